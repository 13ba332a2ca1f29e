//! `Scale`: the subresource `scale` of an object, to which autoscalers and disruption budgets refer.

use std::fmt;

use super::pods::spec;
use super::resource::Resource;
use super::sees::{Sees, selector_of, service_selector};
use crate::api::object::Object;
use crate::api::selector::LabelSelector;
use crate::registry::custom::scale as custom;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;

/// The built-in resources with the subresource.
pub(crate) const SCALABLE: [Resource; 4] = [
    Resource::Deployment,
    Resource::ReplicaSet,
    Resource::ReplicationController,
    Resource::StatefulSet,
];

/// The numbers and the selector of an object that can be scaled.
pub(crate) struct Scale {
    /// The name of the resource in storage.
    pub(crate) storage: String,
    pub(crate) key: Key,
    pub(crate) uid: String,
    /// The desired number of replicas.
    pub(crate) replicas: i64,
    /// The observed number of replicas.
    pub(crate) observed: i64,
    /// The selector of the Pods; `None` if the object does not have a selector.
    pub(crate) selector: Option<LabelSelector>,
}

/// Returns the group of an `apiVersion`; empty for the core group.
pub(crate) fn group(version: &str) -> &str {
    version.split_once('/').map_or("", |it| it.0)
}

/// Error for an object with a scale that cannot be read.
#[derive(Debug)]
pub(crate) enum ScaleError {
    /// No resource of the kind is served.
    UnknownKind { kind: String, version: String },
    /// The resource with this name does not have the subresource `scale`.
    Unsupported(String),
    /// The object does not exist.
    Missing { resource: String, name: String },
    /// The number of replicas of the object is missing or invalid.
    Invalid(String),
}

impl fmt::Display for ScaleError {
    /// Formats the error of the request that reads the scale.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKind { kind, version } => {
                write!(f, "no matches for kind {kind:?} in group {:?}", group(version))
            }
            Self::Unsupported(_) => f.write_str("the server could not find the requested resource"),
            Self::Missing { resource, name } => write!(f, "{resource} {name:?} not found"),
            Self::Invalid(why) => f.write_str(why),
        }
    }
}

/// Reads the scale of an object.
pub(crate) fn scale_of(version: &str, kind: &str, key: &Key, sees: &Sees<'_>) -> Result<Scale, ScaleError> {
    let missing = |resource: String| ScaleError::Missing {
        resource,
        name: key.name().to_owned(),
    };
    let builtin = SCALABLE
        .into_iter()
        .find(|it| it.kind() == kind && group(it.api_version()) == group(version));
    if let Some(resource) = builtin {
        let object = sees
            .cluster
            .get(resource, key)
            .ok_or_else(|| missing(resource.plural()))?;
        return Ok(of_builtin(resource, object));
    }
    let unknown = || ScaleError::UnknownKind {
        kind: kind.to_owned(),
        version: version.to_owned(),
    };
    let api = sees.api.ok_or_else(unknown)?;
    let served = api.resource_of_kind(version, kind).ok_or_else(unknown)?;
    let stored = api.resource(&served.storage).ok_or_else(unknown)?;
    let plural = match stored.info.group.as_ref() {
        "" => stored.info.resource.to_string(),
        group => format!("{}.{group}", stored.info.resource),
    };
    let paths = stored.custom_version().and_then(|it| it.scale.as_ref());
    let paths = paths.ok_or_else(|| ScaleError::Unsupported(plural.clone()))?;
    let object = api.get(&served.storage, key).ok_or_else(|| missing(plural))?;
    let scale = custom::get(&object, paths).map_err(|status| ScaleError::Invalid(status.message.to_string()))?;
    let scale = Cursor::root(&scale);
    Ok(Scale {
        storage: served.storage.to_string(),
        key: key.clone(),
        uid: object.uid().to_owned(),
        replicas: scale.integer("spec.replicas").unwrap_or(0),
        observed: scale.integer("status.replicas").unwrap_or(0),
        selector: match scale.text("status.selector") {
            "" => None,
            text => LabelSelector::parse(text).ok(),
        },
    })
}

fn of_builtin(resource: Resource, object: &Object) -> Scale {
    Scale {
        storage: resource.storage().to_owned(),
        key: Key::new(object.namespace(), object.name()),
        uid: object.uid().to_owned(),
        replicas: Cursor::root(object).integer("spec.replicas").unwrap_or(1),
        observed: Cursor::root(object).integer("status.replicas").unwrap_or(0),
        selector: match resource {
            Resource::ReplicationController => service_selector(object),
            _ => selector_of(spec(object), "selector"),
        },
    }
}
