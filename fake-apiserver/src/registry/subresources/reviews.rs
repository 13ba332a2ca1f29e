//! Virtual resources: a POST is answered and nothing is stored.

use serde_json::json;

use crate::api::status::Status;
use crate::registry::Registry;
use crate::registry::body::Decoded;
use crate::registry::scheme::Row;
use crate::registry::write::{Answer, Written};

impl Registry {
    /// POST of a virtual resource (rule Q3). Everybody may do everything: authorisation is off.
    pub(crate) fn review(&self, row: &Row, decoded: Decoded) -> Result<Written, Status> {
        let Decoded { mut object, warnings } = decoded;
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
