//! `pods/binding`: puts a Pod on a node, once (rule I4).

use serde_json::{Value, json};

use super::eviction::set_condition;
use super::{SubresourceRequest, created, text_at};
use crate::api::object::Object;
use crate::api::resource::GroupResource;
use crate::api::status::Status;
use crate::registry::body::Decoded;
use crate::registry::update::Change;
use crate::registry::write::Written;
use crate::registry::{Registry, metadata};

impl Registry {
    pub(super) async fn bind(&self, request: &SubresourceRequest<'_>) -> Result<Written, Status> {
        let options = request.write_options()?;
        let mut binding = request.object.clone();
        binding.insert("kind".into(), "Binding".into());
        binding.insert("apiVersion".into(), "v1".into());
        metadata::fill_namespace(&mut binding, &request.info.namespace)?;
        let write = request.write(&options);
        let mut warnings = Vec::new();
        let binding = self.admit_posted(&write, binding, &mut warnings).await?;
        let node = text_at(&binding, &["target", "name"]);
        let now = self.entropy.now_seconds();
        self.change(&write, None, &Bound { node, now: &now }).await?;
        Ok(created(warnings))
    }
}

/// A Pod that gets its node.
struct Bound<'a> {
    node: &'a str,
    now: &'a str,
}

impl Change for Bound<'_> {
    fn next(&self, old: &Object) -> Result<Decoded, Status> {
        let mut pod = old.clone();
        let current = old
            .get("spec")
            .and_then(|it| it.get("nodeName"))
            .and_then(Value::as_str)
            .unwrap_or_default();
        let conflict = |why: String| {
            let resource = GroupResource {
                group: "".into(),
                resource: "pods/binding".into(),
            };
            Err(Status::conflict(&resource, old.name(), why))
        };
        if old.is_terminating() {
            return conflict(format!(
                "pod {} is being deleted, cannot be assigned to a host",
                old.name()
            ));
        }
        if !current.is_empty() {
            return conflict(format!("pod {} is already assigned to node \"{current}\"", old.name()));
        }
        if let Some(spec) = pod.entry("spec").or_insert_with(|| json!({})).as_object_mut() {
            spec.insert("nodeName".into(), self.node.into());
        }
        let condition = json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": self.now,
        });
        set_condition(&mut pod, condition);
        Ok(Decoded {
            object: pod,
            warnings: Vec::new(),
        })
    }

    fn is_tracked(&self) -> bool {
        true
    }

    fn is_admitted(&self) -> bool {
        false
    }
}
