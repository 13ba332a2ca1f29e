//! Virtual resources: a POST is answered and nothing is stored.

use serde_json::json;

use super::{text_at, value_at};
use crate::api::field::{FieldErrors, FieldPath, quote};
use crate::api::object::Object;
use crate::api::resource::GroupKind;
use crate::api::status::Status;
use crate::registry::body::Decoded;
use crate::registry::write::{Answer, WriteRequest, Written};
use crate::registry::{Registry, managed_fields, metadata};

impl Registry {
    /// POST of a virtual resource (rule Q3). Everybody may do everything: authorisation is off.
    pub(crate) fn review(&self, request: &WriteRequest<'_>, decoded: Decoded) -> Result<Written, Status> {
        let row = request.row;
        let Decoded { mut object, warnings } = decoded;
        if row.info.group == "authorization.k8s.io" && row.info.resource != "selfsubjectrulesreviews" {
            check_attributes(&object)?;
        }
        let now = self.entropy.now_seconds();
        let name = request.manager_name();
        let manager = request.manager(&name, &now);
        request.with_types(|types| managed_fields::track_update(types, None, &mut object, &manager));
        if row.info.resource == "selfsubjectreviews" {
            // The one review that has metadata of its own.
            object.insert("metadata".into(), json!({"creationTimestamp": now}));
        }
        let user = json!({"username": "system:admin", "groups": ["system:masters", "system:authenticated"]});
        let status = match &*row.info.resource {
            "selfsubjectaccessreviews" | "subjectaccessreviews" | "localsubjectaccessreviews" => {
                json!({"allowed": true})
            }
            "selfsubjectrulesreviews" => json!({
                "incomplete": false,
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            }),
            "selfsubjectreviews" => json!({"userInfo": user}),
            "tokenreviews" => json!({"authenticated": true, "user": user}),
            _ => {
                let why = format!("the fake API server does not serve {}", row.info.group_resource());
                return Err(Status::new(501, "NotImplemented", why));
            }
        };
        object.insert("status".into(), status);
        object.metadata_mut();
        Ok(Written {
            answer: Answer::Object(object),
            created: true,
            warnings,
        })
    }
}

/// An access review asks about a resource or about a path: one of the two.
fn check_attributes(review: &Object) -> Result<(), Status> {
    let attributes = |name: &str| value_at(review, &["spec", name]).is_some();
    let spec = FieldPath::new("spec");
    let mut errors = FieldErrors::new();
    match (attributes("resourceAttributes"), attributes("nonResourceAttributes")) {
        (true, true) => {
            let text = |name: &str| quote(text_at(review, &["spec", "nonResourceAttributes", name]));
            let shown = format!("{{\"Path\":{},\"Verb\":{}}}", text("path"), text("verb"));
            let why = "cannot be specified in combination with resourceAttributes";
            metadata::invalid_printed(spec.child("nonResourceAttributes"), &shown, why, &mut errors);
        }
        (false, false) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            errors.invalid(spec.child("resourceAttributes"), serde_json::Value::Null, why);
        }
        (true, false) | (false, true) => return Ok(()),
    }
    // The real server forgets the kind here.
    Err(Status::invalid(
        &GroupKind {
            group: "authorization.k8s.io".into(),
            kind: "".into(),
        },
        "",
        &errors,
    ))
}
