//! `Plan`: the writes that a controller decides to make. A controller is a function from the state to a plan.

use std::borrow::Cow;

use jiff::Timestamp;

use super::resource::{Resource, Target};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::api::options::{PatchKind, PropagationPolicy};
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;

/// A write of a plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Write {
    /// Creates the object, and then writes the Event `told` about its success or failure.
    Create {
        resource: Resource,
        object: Object,
        told: Option<Told>,
    },
    /// Creates a Job of a CronJob, and then writes the status of the CronJob, which lists the Job as active.
    CreateActive {
        job: Object,
        told: Told,
        cron: Target,
        status: Map,
        /// The scheduled time of the Job.
        scheduled: String,
    },
    /// Sends the writes as another service account in `kube-system`.
    As { account: &'static str, writes: Vec<Write> },
    /// Sets the number of replicas through the subresource `scale`.
    Scale(Box<Rescale>),
    /// Merges a patch with a new token for these claims into a Secret.
    Token { at: Target, patch: Value, claims: Value },
    /// Applies a JSON merge patch to the object, or to its `status` subresource.
    Merge {
        at: Target,
        subresource: &'static str,
        patch: Value,
    },
    /// Applies a patch of any type to the object or a subresource.
    Patch {
        at: Target,
        subresource: String,
        kind: PatchKind,
        patch: Value,
    },
    /// Replaces the whole status.
    Status { at: Target, status: Value },
    /// Deletes the object, unless it was replaced by a different object with the same name.
    Delete {
        at: Target,
        grace: Option<i64>,
        propagation: Option<PropagationPolicy>,
        told: Option<Told>,
    },
    /// Sends a POST to `pods/binding`.
    Bind { pod: Target, node: String },
    /// Writes an Event about an object.
    Note(Note),
}

/// A change of the number of replicas, and the writes that depend on its success.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rescale {
    /// The name of the resource in storage.
    pub(crate) storage: String,
    pub(crate) key: Key,
    pub(crate) replicas: i64,
    /// The object that has the status.
    pub(crate) at: Target,
    /// Event and status on success.
    pub(crate) success: (Note, Map),
    /// Event and status on failure; `{}` at the end of their messages is replaced by the server's message.
    pub(crate) failure: (Note, Map),
}

/// Event for an owner when an owned object is created or deleted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    /// The object that the Event refers to.
    pub(crate) about: Regarding,
    pub(crate) component: &'static str,
    /// Reason and message on success, if an Event is written; `{}` is replaced by the object's name.
    pub(crate) success: Option<(&'static str, String)>,
    /// Reason and message on failure; `{}` is replaced by the server's message.
    pub(crate) failure: (&'static str, String),
}

/// The object that an Event refers to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Regarding {
    pub(crate) kind: String,
    pub(crate) api_version: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    /// `spec.containers{name}`, if the Event is about a container.
    pub(crate) field_path: String,
}

impl Regarding {
    /// Returns a reference to an object, including the resourceVersion that was read.
    pub(crate) fn of(resource: Resource, object: &Object) -> Self {
        Self {
            kind: resource.kind().to_owned(),
            api_version: resource.api_version().to_owned(),
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            uid: object.uid().to_owned(),
            resource_version: object.meta_str("resourceVersion").to_owned(),
            field_path: String::new(),
        }
    }
}

/// Content of an Event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Note {
    pub(crate) about: Regarding,
    pub(crate) component: &'static str,
    /// The node, if the Event is written by a kubelet.
    pub(crate) host: String,
    pub(crate) is_warning: bool,
    pub(crate) reason: Cow<'static, str>,
    pub(crate) message: String,
}

/// The writes of a controller in order, and the time of the next sync.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) writes: Vec<Write>,
    /// Time of the next sync, even if nothing changes.
    pub(crate) again: Option<Timestamp>,
}

impl Plan {
    /// A plan without writes.
    pub(crate) const EMPTY: Self = Self {
        writes: Vec::new(),
        again: None,
    };

    /// Schedules the next sync at `at`, unless an earlier one is scheduled.
    pub(crate) fn look_again(&mut self, at: Timestamp) {
        self.again = Some(self.again.map_or(at, |it| it.min(at)));
    }

    /// Sends the writes that `add` adds as another service account in `kube-system`.
    pub(crate) fn send_as(&mut self, account: &'static str, add: impl FnOnce(&mut Self)) {
        let first = self.writes.len();
        add(self);
        let writes = self.writes.split_off(first);
        if !writes.is_empty() {
            self.writes.push(Write::As { account, writes });
        }
    }

    pub(crate) fn create(&mut self, resource: Resource, object: Value) {
        self.create_and_tell(resource, object, None);
    }

    pub(crate) fn create_and_tell(&mut self, resource: Resource, object: Value, told: Option<Told>) {
        let object = object_of(resource, object);
        self.writes.push(Write::Create { resource, object, told });
    }

    pub(crate) fn merge(&mut self, resource: Resource, object: &Object, patch: Value) {
        let at = Target::of(resource, object);
        self.writes.push(Write::Merge {
            at,
            subresource: "",
            patch,
        });
    }

    /// Adds a merge patch of the subresource `status`, which may also contain annotations.
    pub(crate) fn merge_status(&mut self, resource: Resource, object: &Object, patch: Value) {
        let at = Target::of(resource, object);
        self.writes.push(Write::Merge {
            at,
            subresource: "status",
            patch,
        });
    }

    /// Adds a write of the status, unless it is equal to the current one.
    pub(crate) fn status(&mut self, resource: Resource, object: &Object, status: Map) {
        if same_object(Cursor::root(object).map_or_empty("status"), &status) {
            return;
        }
        let at = Target::of(resource, object);
        let status = Value::Object(status);
        self.writes.push(Write::Status { at, status });
    }

    pub(crate) fn delete(&mut self, resource: Resource, object: &Object) {
        self.delete_and_tell(resource, object, None);
    }

    pub(crate) fn delete_and_tell(&mut self, resource: Resource, object: &Object, told: Option<Told>) {
        let at = Target::of(resource, object);
        self.writes.push(Write::Delete {
            at,
            grace: None,
            propagation: None,
            told,
        });
    }

    pub(crate) fn note(
        &mut self,
        about: (Resource, &Object),
        component: &'static str,
        reason: &'static str,
        message: String,
    ) {
        let note = Self::event(about, component, false, reason, message);
        self.writes.push(Write::Note(note));
    }

    /// Returns the content of an Event.
    pub(crate) fn event(
        about: (Resource, &Object),
        component: &'static str,
        is_warning: bool,
        reason: &'static str,
        message: String,
    ) -> Note {
        Note {
            about: Regarding::of(about.0, about.1),
            component,
            host: String::new(),
            is_warning,
            reason: reason.into(),
            message,
        }
    }

    pub(crate) fn warn(
        &mut self,
        about: (Resource, &Object),
        component: &'static str,
        reason: &'static str,
        message: String,
    ) {
        let note = Self::event(about, component, true, reason, message);
        self.writes.push(Write::Note(note));
    }
}

/// Adds the version and the kind of a resource to an object.
pub(crate) fn object_of(resource: Resource, object: Value) -> Object {
    let mut map = match object {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    map.insert("apiVersion".into(), resource.api_version().into());
    map.insert("kind".into(), resource.kind().into());
    Object(map)
}

/// Returns `true` if two statuses are equal. A null field is equal to an absent field.
fn same_object(one: &Map, other: &Map) -> bool {
    let known = |map: &Map| map.values().filter(|it| !it.is_null()).count();
    known(one) == known(other)
        && one
            .iter()
            .all(|(key, value)| value.is_null() || other.get(key) == Some(value))
}

/// Returns the owner reference to the controller of an object.
pub(crate) fn controller_reference(resource: Resource, owner: &Object) -> Value {
    json!({
        "apiVersion": resource.api_version(), "kind": resource.kind(), "name": owner.name(), "uid": owner.uid(),
        "controller": true, "blockOwnerDeletion": true,
    })
}
