//! Objects that the spec of an explored object refers to by name, and changes that create them after the explored
//! object.

use serde_json::Value;

use crate::objects::serialized;
use crate::target::ObjectId;
use crate::test_cluster::TestCluster;

/// Suffix in the names of changes that create a referenced object later: `secrets default/login: before → after the
/// object`.
const AFTER: &str = ": before → after the object";

/// Resources that are never treated as references, even if a string in the spec equals an object's name. Objects named
/// `default` are excluded as well.
const NOT_MEANT: [&str; 4] = ["customresourcedefinitions", "events", "leases", "namespaces"];

/// Returns `true` if a change creates a referenced object after the explored one.
pub(crate) fn is_late(change: &str) -> bool {
    change.ends_with(AFTER)
}

/// An object that exists before the explored object and is named in its spec.
pub(crate) struct Referenced {
    pub(crate) change: String,
    value: Value,
}

impl Referenced {
    /// Finds the objects with names that are values in the spec of `object`: objects in its namespace, and
    /// cluster-scoped objects. Excludes the name `default` and the resources in `NOT_MEANT`.
    pub(crate) fn of(cluster: &TestCluster, object: &Value) -> Vec<Self> {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
        let mut texts = Vec::new();
        collect(&object["spec"], &mut texts);
        let objects = cluster.server().stored_objects().into_iter();
        let named = objects.filter(|it| {
            let is_meant = !NOT_MEANT.contains(&it.resource()) && it.name() != "default";
            is_meant && texts.contains(&it.name()) && ["", namespace].contains(&it.namespace())
        });
        let referenced = named.map(|it| Self {
            change: format!("{} {}/{}{AFTER}", it.resource(), it.namespace(), it.name()).replace(" /", " "),
            value: it.value(),
        });
        referenced.collect()
    }

    /// Deletes the object, so that it can be created later.
    pub(crate) async fn delete(&self, cluster: &TestCluster) {
        // The test has created the object and may delete it. If it remains, creating it later fails.
        let _ = cluster
            .send(http::Method::DELETE, &ObjectId::of(&self.value), "", None)
            .await;
    }

    pub(crate) async fn create(&self, cluster: &TestCluster) {
        let mut value = self.value.clone();
        if let Some(metadata) = value["metadata"].as_object_mut() {
            for field in [
                "uid",
                "resourceVersion",
                "creationTimestamp",
                "generation",
                "managedFields",
            ] {
                metadata.remove(field);
            }
        }
        if let Some(hooks) = &cluster.hooks {
            hooks.test_notes(format!("the test changes {}", self.change));
        }
        cluster.create(serialized(&value)).await;
    }
}

/// Collects the strings in a value.
fn collect<'v>(value: &'v Value, texts: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|it| collect(it, texts)),
        Value::Object(fields) => fields.values().for_each(|it| collect(it, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::objects::secret;

    #[tokio::test]
    async fn definition_that_is_named_in_a_spec_is_not_a_reference() {
        let name = "widgets.example.com";
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
                }],
            },
        });
        let cluster = TestCluster::start();
        cluster.create(serialized(&definition)).await;
        cluster.create(secret("login")).await;
        let referenced = Referenced::of(&cluster, &json!({"spec": {"watches": name, "secret": "login"}}));
        let changes: Vec<String> = referenced.into_iter().map(|it| it.change).collect();
        assert_eq!(changes, ["secrets default/login: before → after the object"]);
    }
}
