//! `Plan`: the writes that a controller decides on. Controllers are functions from the state to a plan.

use jiff::Timestamp;

use super::resource::{Resource, Target};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::api::options::PropagationPolicy;
use crate::registry::types::cursor::Cursor;

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Write {
    /// POST. `told` is the Event to write where it succeeds or fails.
    Create {
        resource: Resource,
        object: Object,
        told: Option<Told>,
    },
    /// The same as a merge of a Secret, which gets a token of these claims.
    Token { at: Target, patch: Value, claims: Value },
    /// A JSON merge patch of the object, or of its `status` subresource.
    Merge {
        at: Target,
        subresource: &'static str,
        patch: Value,
    },
    /// The whole status, in place of the one there is.
    Status { at: Target, status: Value },
    /// DELETE of this object and no other of its name.
    Delete {
        at: Target,
        grace: Option<i64>,
        propagation: Option<PropagationPolicy>,
        told: Option<Told>,
    },
    /// POST to `pods/binding`.
    Bind { pod: Target, node: String },
    /// An Event about an object.
    Note(Note),
}

/// Event about an object when one that it owns is created or deleted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    /// Object of the Event.
    pub(crate) about: Regarding,
    pub(crate) component: &'static str,
    /// The reason and message of a success; `{}` stands for the object's name.
    pub(crate) success: (&'static str, String),
    /// The reason and message of a failure; `{}` stands for the server's message.
    pub(crate) failure: (&'static str, String),
}

/// The object an Event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Regarding {
    pub(crate) kind: String,
    pub(crate) api_version: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    /// `spec.containers{name}`, where it is about a container.
    pub(crate) field_path: String,
}

impl Regarding {
    /// An object as it was read.
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

/// An Event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Note {
    pub(crate) about: Regarding,
    pub(crate) component: &'static str,
    /// The node, where a kubelet says it.
    pub(crate) host: String,
    pub(crate) is_warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// Work to do, in this order, and the time to look again.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) writes: Vec<Write>,
    /// Time to look again though nothing changes.
    pub(crate) again: Option<Timestamp>,
}

impl Plan {
    /// Nothing to do.
    pub(crate) const EMPTY: Self = Self {
        writes: Vec::new(),
        again: None,
    };

    /// Looks again at `at`, or before, whichever was asked first.
    pub(crate) fn look_again(&mut self, at: Timestamp) {
        self.again = Some(self.again.map_or(at, |it| it.min(at)));
    }

    pub(crate) fn create(&mut self, resource: Resource, object: Value) {
        self.create_and_tell(resource, object, None);
    }

    pub(crate) fn create_and_tell(&mut self, resource: Resource, object: Value, told: Option<Told>) {
        let mut map = match object {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        map.insert("apiVersion".into(), resource.api_version().into());
        map.insert("kind".into(), resource.kind().into());
        let object = Object(map);
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

    /// The same through `/status`, by which annotations can be written, too.
    pub(crate) fn merge_status(&mut self, resource: Resource, object: &Object, patch: Value) {
        let at = Target::of(resource, object);
        self.writes.push(Write::Merge {
            at,
            subresource: "status",
            patch,
        });
    }

    /// Writes a status if it differs from the one there is.
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
        let about = Regarding::of(about.0, about.1);
        self.writes.push(Write::Note(Note {
            about,
            component,
            host: String::new(),
            is_warning: false,
            reason,
            message,
        }));
    }

    pub(crate) fn warn(
        &mut self,
        about: (Resource, &Object),
        component: &'static str,
        reason: &'static str,
        message: String,
    ) {
        self.note(about, component, reason, message);
        if let Some(Write::Note(note)) = self.writes.last_mut() {
            note.is_warning = true;
        }
    }
}

/// Returns `true` if two statuses are equal: a null is as good as absent.
fn same_object(one: &Map, other: &Map) -> bool {
    let known = |map: &Map| map.values().filter(|it| !it.is_null()).count();
    known(one) == known(other)
        && one
            .iter()
            .all(|(key, value)| value.is_null() || other.get(key) == Some(value))
}

/// The reference by which an object names the controller that owns it.
pub(crate) fn controller_reference(resource: Resource, owner: &Object) -> Value {
    json!({
        "apiVersion": resource.api_version(), "kind": resource.kind(), "name": owner.name(), "uid": owner.uid(),
        "controller": true, "blockOwnerDeletion": true,
    })
}
