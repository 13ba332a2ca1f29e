//! Helpers shared by the tests of custom resources.

use jiff::Timestamp;

use super::definition::CustomResource;
use super::strategy::CustomStrategy;
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::entropy::Entropy;
use crate::registry::kinds::strategy::Context;

/// Returns the established CRD of Widgets with one version; `more` contains additional fields of the version.
pub(super) fn resource(schema: Value, more: Value) -> CustomResource {
    let mut version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    for (key, value) in more.as_object().expect("the value is an object") {
        version[key] = value.clone();
    }
    resource_of(json!([version]))
}

/// Returns the established CRD of Widgets with these versions.
pub(super) fn resource_of(versions: Value) -> CustomResource {
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let crd = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "names": names, "scope": "Namespaced", "versions": versions},
        "status": {"acceptedNames": names, "conditions": [{"type": "Established", "status": "True"}]},
    });
    CustomResource::parse(&Object(crd.as_object().expect("the value is an object").clone())).expect("the CRD is valid")
}

pub(super) fn strategy(schema: Value, more: Value) -> CustomStrategy {
    let resource = resource(schema, more);
    CustomStrategy {
        version: resource.storage,
    }
}

/// Returns a Widget with this spec.
pub(super) fn object(spec: Value) -> Object {
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec});
    Object(widget.as_object().expect("the value is an object").clone())
}

/// Calls `then` with a context without stored objects.
pub(super) fn in_context<T>(subresource: &str, then: impl FnOnce(&Context<'_>) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("the runtime can be built");
    let _guard = runtime.enter();
    let entropy = Entropy::new(1, Timestamp::UNIX_EPOCH);
    then(&Context {
        entropy: &entropy,
        stored: &|_, _| Vec::new(),
        subresource,
        user: None,
        dry_run: false,
        hidden: &crate::registry::types::hidden::NONE,
        plugins: crate::registry::types::plugins::PluginSet::default(),
    })
}
