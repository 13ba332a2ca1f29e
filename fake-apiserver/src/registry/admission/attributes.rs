//! `Attributes`: a request as admission plugins, policies and webhooks receive it.

use crate::api::admission::{AdmissionRequest, GroupVersionKind, GroupVersionResource, Operation};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::api::options::{DeleteOptions, FieldValidation, WriteOptions};
use crate::api::request_info::{RequestInfo, Verb};
use crate::api::resource::{GroupKind, ResourceInfo};
use crate::api::user::UserInfo;
use crate::registry::request::{Remarks, WriteRequest};
use crate::registry::scheme::Row;
use crate::registry::types::hidden::Hidden;
use crate::registry::types::names;

/// API group of the webhook configurations and policies, which are themselves exempt from closures, policies and
/// webhooks.
pub(super) const GROUP: &str = "admissionregistration.k8s.io";

/// Options of a request, by operation type.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestOptions<'a> {
    /// Options of a create request, or of a PUT or apply request that creates an object.
    Create(&'a WriteOptions),
    /// Options of PUT, PATCH and apply.
    Update(&'a WriteOptions),
    /// Options of the deletion of an object or a collection.
    Delete(&'a DeleteOptions),
    /// No options. The options of a connection are in the request's object.
    None,
}

/// A request as admission plugins, policies and webhooks receive it. The objects have the version of the request.
#[derive(Debug)]
pub(crate) struct Attributes<'a> {
    pub(crate) row: &'a Row,
    pub(crate) operation: Operation,
    pub(crate) subresource: &'a str,
    /// Kind of the object: the kind of the row or of a subresource.
    pub(crate) kind: GroupVersionKind,
    pub(crate) name: String,
    /// Namespace of the request; for a Namespace, its own name.
    pub(crate) namespace: String,
    pub(crate) user: &'a UserInfo,
    pub(crate) dry_run: bool,
    pub(crate) options: RequestOptions<'a>,
    pub(crate) object: Option<Object>,
    pub(crate) old: Option<Object>,
    /// Facts about the request body that are lost in the decoded object; cleared when the object is parsed again.
    pub(crate) hidden: Hidden,
    /// Warnings and annotations of the request.
    pub(crate) remarks: &'a Remarks,
}

/// Returns the kind of a resource's objects.
pub(crate) fn kind_of(info: &ResourceInfo) -> GroupVersionKind {
    GroupVersionKind {
        group: info.group.to_string(),
        version: info.version.to_string(),
        kind: info.kind.to_string(),
    }
}

/// Returns the kind according to the `apiVersion` and `kind` of an object.
pub(crate) fn kind_named(object: &Object) -> GroupVersionKind {
    let api_version = object.api_version();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    GroupVersionKind {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: object.kind().to_owned(),
    }
}

/// Returns the group, version and plural name of a resource.
pub(crate) fn resource_of(info: &ResourceInfo) -> GroupVersionResource {
    GroupVersionResource {
        group: info.group.to_string(),
        version: info.version.to_string(),
        resource: info.resource.to_string(),
    }
}

impl<'a> Attributes<'a> {
    /// Creates the attributes for writing an object of the row's kind.
    pub(crate) fn of_write(
        request: &WriteRequest<'a>,
        operation: Operation,
        object: Object,
        old: Option<Object>,
    ) -> Self {
        let options = match operation {
            Operation::Create => RequestOptions::Create(request.options),
            Operation::Update | Operation::Delete => RequestOptions::Update(request.options),
            Operation::Connect => RequestOptions::None,
        };
        let name = match object.name() {
            "" => request.info.name.clone(),
            name => name.to_owned(),
        };
        Self {
            kind: kind_of(&request.row.info),
            row: request.row,
            operation,
            subresource: &request.info.subresource,
            namespace: namespace_of(request.row, &request.info.namespace, object.namespace(), &name),
            name,
            user: request.user,
            dry_run: request.options.dry_run,
            options,
            object: Some(object),
            old,
            hidden: Hidden::default(),
            remarks: request.remarks,
        }
    }

    /// Replaces the object with the result of parsing its serialised form again, and clears `hidden`.
    pub(super) fn set_read_back(&mut self, object: Object) {
        self.object = Some(object);
        self.hidden = Hidden::default();
    }

    /// Creates the attributes of a POST to a subresource that has its own kind.
    pub(crate) fn of_posted(request: &WriteRequest<'a>, object: Object) -> Self {
        let kind = kind_named(&object);
        Self {
            kind,
            ..Self::of_write(request, Operation::Create, object, None)
        }
    }

    /// Creates the attributes of a connection. The object contains the options of the connection, such as
    /// `PodExecOptions`.
    pub(crate) fn of_connection(request: &WriteRequest<'a>, subresource: &'a str, object: Object) -> Self {
        Self {
            kind: kind_named(&object),
            subresource,
            ..Self::of_write(request, Operation::Connect, object, None)
        }
    }

    /// Creates the attributes of a delete request. Requests that delete a collection do not have a name.
    pub(crate) fn of_delete(
        (row, info): (&'a Row, &RequestInfo),
        user: &'a UserInfo,
        options: &'a DeleteOptions,
        old: Object,
        remarks: &'a Remarks,
    ) -> Self {
        let name = match info.verb {
            Verb::DeleteCollection => String::new(),
            Verb::Create | Verb::Update | Verb::Patch | Verb::Get | Verb::List | Verb::Watch | Verb::Delete => {
                old.name().to_owned()
            }
        };
        Self {
            kind: kind_of(&row.info),
            row,
            operation: Operation::Delete,
            subresource: "",
            namespace: namespace_of(row, old.namespace(), "", &name),
            name,
            user,
            dry_run: options.dry_run,
            options: RequestOptions::Delete(options),
            object: None,
            old: Some(old),
            hidden: Hidden::default(),
            remarks,
        }
    }

    /// Adds an annotation to the audit event of the request, unless its key is malformed (`checkKeyFormat`).
    pub(crate) fn annotate(&self, key: String, value: impl FnOnce() -> String) {
        if is_annotation_key(&key) {
            self.remarks.annotations.add(key, value);
        }
    }

    /// Returns the request in the form sent to webhooks and closures.
    pub(crate) fn review(&self, uid: String) -> AdmissionRequest {
        let shown = |object: &Option<Object>| Value::from(object.as_ref().map(|it| it.0.clone())).into();
        AdmissionRequest {
            uid,
            operation: self.operation,
            kind: self.kind.clone(),
            resource: resource_of(&self.row.info),
            request_kind: self.kind.clone(),
            request_resource: resource_of(&self.row.info),
            sub_resource: self.subresource.to_owned(),
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            user: self.user.clone(),
            object: shown(&self.object),
            old_object: shown(&self.old),
            dry_run: self.dry_run,
            options: self.options_value().into(),
        }
    }

    /// Returns the options as an object of `meta.k8s.io/v1`; null for connections.
    pub(crate) fn options_value(&self) -> Value {
        match self.options {
            RequestOptions::Create(options) => write_options("CreateOptions", options),
            RequestOptions::Update(options) => write_options("UpdateOptions", options),
            RequestOptions::Delete(options) => delete_options(options),
            RequestOptions::None => Value::Null,
        }
    }

    /// Returns the group and kind as printed in errors, for custom and built-in resources.
    pub(crate) fn group_kind(&self) -> GroupKind {
        GroupKind {
            group: self.kind.group.clone().into(),
            kind: self.kind.kind.clone().into(),
        }
    }

    /// Returns the object's name for error messages, like Go's `extractResourceName`; "Unknown" if the object does not
    /// have one.
    pub(crate) fn shown_name(&self) -> &str {
        let own = self.object.as_ref().map_or("", Object::name);
        let generated = self.object.as_ref().map_or("", |it| it.meta_str("generateName"));
        let names = [self.name.as_str(), own, generated];
        names.into_iter().find(|it| !it.is_empty()).unwrap_or("Unknown")
    }

    /// Returns `true` if the request is for this resource or one of its subresources.
    pub(crate) fn is_about(&self, group: &str, resource: &str) -> bool {
        self.row.info.group == group && self.row.info.resource == resource
    }
}

fn is_annotation_key(key: &str) -> bool {
    key.contains('/') && names::is_qualified_name(key)
}

/// Returns the namespace of a request. The namespace of a Namespace is its own name.
fn namespace_of(row: &Row, asked: &str, own: &str, name: &str) -> String {
    if row.info.group.is_empty() && row.info.resource == "namespaces" {
        return name.to_owned();
    }
    let namespace = if own.is_empty() { asked } else { own };
    namespace.to_owned()
}

fn write_options(kind: &str, options: &WriteOptions) -> Value {
    let mut map = Map::new();
    map.insert("kind".into(), kind.into());
    map.insert("apiVersion".into(), "meta.k8s.io/v1".into());
    if options.dry_run {
        map.insert("dryRun".into(), json!(["All"]));
    }
    if let Some(manager) = &options.field_manager {
        map.insert("fieldManager".into(), manager.as_str().into());
    }
    // The default `Warn` is omitted, because a client that sets it cannot be distinguished here from one that does not.
    match options.field_validation {
        FieldValidation::Warn => {}
        FieldValidation::Ignore => {
            map.insert("fieldValidation".into(), "Ignore".into());
        }
        FieldValidation::Strict => {
            map.insert("fieldValidation".into(), "Strict".into());
        }
    }
    Value::Object(map)
}

fn delete_options(options: &DeleteOptions) -> Value {
    let mut map = Map::new();
    map.insert("kind".into(), "DeleteOptions".into());
    map.insert("apiVersion".into(), "meta.k8s.io/v1".into());
    if let Some(seconds) = options.grace_period_seconds {
        map.insert("gracePeriodSeconds".into(), seconds.into());
    }
    let mut preconditions = Map::new();
    if let Some(uid) = &options.uid {
        preconditions.insert("uid".into(), uid.as_str().into());
    }
    if let Some(version) = &options.resource_version {
        preconditions.insert("resourceVersion".into(), version.as_str().into());
    }
    if !preconditions.is_empty() {
        map.insert("preconditions".into(), preconditions.into());
    }
    if let Some(orphan) = options.orphan_dependents {
        map.insert("orphanDependents".into(), orphan.into());
    }
    if let Some(policy) = options.propagation_policy {
        map.insert("propagationPolicy".into(), format!("{policy:?}").into());
    }
    if options.dry_run {
        map.insert("dryRun".into(), json!(["All"]));
    }
    Value::Object(map)
}
