//! `pods/binding` and `bindings`: assign a Pod to a Node. A Pod can only be assigned once (rule I4;
//! `pkg/registry/core/pod/storage`).

use super::eviction::set_condition;
use super::{SubresourceRequest, created, text_at, value_at};
use crate::api::field::FieldErrors;
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::api::request_info::RequestInfo;
use crate::api::resource::GroupResource;
use crate::api::status::Status;
use crate::registry::Registry;
use crate::registry::answer::Written;
use crate::registry::kinds::metadata;
use crate::registry::request::{Remarks, WriteRequest};
use crate::registry::scheme::body::Decoded;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::decode::Wanted;
use crate::registry::types::edit::ensure_object;
use crate::registry::update::Change;

const BINDING: Wanted<'static> = Wanted {
    group: "",
    version: "v1",
    kind: "Binding",
    shape: None,
};

impl Registry {
    /// Handles a POST of `pods/{name}/binding` (`BindingREST.Create`).
    pub(super) async fn bind(&self, request: &SubresourceRequest<'_>) -> Result<Written, Status> {
        let options = request.write_options()?;
        let Decoded {
            object: mut binding,
            warnings,
            ..
        } = request.read(request.object.clone(), BINDING, &options)?;
        request.remarks.warnings.extend(warnings);
        metadata::fill_namespace(&mut binding, &request.info.namespace)?;
        let RequestInfo { namespace, name, .. } = request.info;
        self.reader.check_namespace_of(request.row, "pods", (namespace, name))?;
        let write = request.write(&options);
        let binding = self.admission.mutate_posted(&write, binding).await?;
        if binding.name() != request.info.name {
            return Err(Status::bad_request("name in URL does not match name in Binding object"));
        }
        self.assign_pod(&write, &write, binding).await
    }

    /// Handles a POST of the collection `bindings`. The name of the Pod is in the body (`LegacyBindingREST.Create`).
    pub(crate) async fn bind_named(&self, request: &WriteRequest<'_>, decoded: Decoded) -> Result<Written, Status> {
        let Decoded {
            object: mut binding,
            warnings,
            ..
        } = decoded;
        request.remarks.warnings.extend(warnings);
        metadata::fill_namespace(&mut binding, &request.info.namespace)?;
        // Unlike `pods/binding`, this endpoint ignores the uid.
        binding.metadata_mut().remove("uid");
        let place = (request.info.namespace.as_str(), binding.name());
        self.reader.check_namespace_of(request.row, "pods", place)?;
        let binding = self.admission.mutate_posted(request, binding).await?;
        let scheme = self.reader.scheme();
        let pods = scheme
            .lookup("", "v1", "pods")
            .ok_or_else(|| Status::internal("pods are always served"))?;
        let info = RequestInfo {
            resource: "pods".into(),
            subresource: "binding".into(),
            name: binding.name().into(),
            ..request.info.clone()
        };
        let write = WriteRequest {
            row: &pods,
            info: &info,
            ..*request
        };
        self.assign_pod(request, &write, binding).await
    }

    /// Assigns a Pod to its Node with the write `write`, after admission of `request`. Fails if the Pod already has a
    /// Node, is being deleted or has scheduling gates.
    async fn assign_pod(
        &self,
        request: &WriteRequest<'_>,
        write: &WriteRequest<'_>,
        binding: Object,
    ) -> Result<Written, Status> {
        let mut errors = FieldErrors::new();
        validate(&Cursor::root(&binding), &mut errors);
        if !errors.is_empty() {
            return Err(Status::new(500, "", errors.aggregate()));
        }
        let binding = self.admission.check_posted(request, binding).await?;
        let now = self.reader.entropy.now_seconds();
        let uid = Some(binding.uid()).filter(|it| !it.is_empty());
        // Warnings about the Pod are dropped, because the client did not send it.
        let remarks = Remarks::default();
        let of_pod = WriteRequest {
            remarks: &remarks,
            ..*write
        };
        self.change(
            &of_pod,
            uid,
            &Bound {
                binding: &binding,
                now: &now,
            },
        )
        .await?;
        Ok(created())
    }
}

/// Validates a Binding (`ValidatePodBinding`).
fn validate(binding: &Cursor<'_>, errors: &mut FieldErrors) {
    let kind = binding.at("target.kind");
    if !matches!(kind.as_text(), "" | "Node") {
        errors.not_supported(kind.path(), kind.as_text(), &["Node", "<empty>"]);
    }
    binding.at("target.name").check_required(errors);
}

/// The change that assigns a Pod to a Node (`setPodNodeAndMetadata`).
struct Bound<'a> {
    binding: &'a Object,
    now: &'a str,
}

impl Change for Bound<'_> {
    fn next(&self, old: &Object) -> Result<Decoded, Status> {
        let mut pod = old.clone();
        let binding = Cursor::root(self.binding);
        let current = text_at(old, &["spec", "nodeName"]);
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
        let is_gated = value_at(old, &["spec", "schedulingGates"])
            .and_then(Value::as_array)
            .is_some_and(|it| !it.is_empty());
        if is_gated {
            return conflict(format!("pod {} has non-empty .spec.schedulingGates", old.name()));
        }
        ensure_object(&mut pod, "spec").insert("nodeName".into(), binding.text("target.name").into());
        ensure_object(&mut pod, "status").remove("nominatedNodeName");
        for part in ["annotations", "labels"] {
            let added = binding.at("metadata").map(part).filter(|it| !it.is_empty());
            if let Some(added) = added {
                ensure_object(pod.metadata_mut(), part).extend(added.clone());
            }
        }
        let condition = json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": self.now,
        });
        set_condition(&mut pod, condition);
        Ok(Decoded::made(pod))
    }

    fn required_version(&self) -> Option<&str> {
        Some(self.binding.meta_str("resourceVersion")).filter(|it| !it.is_empty())
    }

    fn is_tracked(&self) -> bool {
        true
    }

    fn is_admitted(&self) -> bool {
        false
    }
}
