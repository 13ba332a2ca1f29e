//! `AuditEvent`: an event of `audit.k8s.io/v1`, with its fields in the order of Go's struct.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;

use crate::api::json::Value;
use crate::api::status::{Status, StatusDetails};
use crate::api::user::UserInfo;

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuditEvent {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) level: &'static str,
    #[serde(rename = "auditID")]
    pub(super) audit_id: String,
    pub(super) stage: &'static str,
    #[serde(rename = "requestURI")]
    pub(super) request_uri: String,
    pub(super) verb: String,
    pub(super) user: User,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) impersonated_user: Option<User>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) authentication_metadata: Option<AuthenticationMetadata>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    pub(super) source_ips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object_ref: Option<ObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_status: Option<ResponseStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_object: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_object: Option<Value>,
    pub(super) request_received_timestamp: String,
    pub(super) stage_timestamp: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<Cow<'static, str>, String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuthenticationMetadata {
    pub(super) impersonation_constraint: String,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct User {
    #[serde(skip_serializing_if = "String::is_empty")]
    username: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: BTreeMap<String, Vec<String>>,
}

impl From<&UserInfo> for User {
    fn from(user: &UserInfo) -> Self {
        Self {
            username: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
        }
    }
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectReference {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) subresource: String,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct ResponseStatus {
    pub(super) metadata: Empty,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) status: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) details: Option<Box<StatusDetails>>,
    pub(super) code: u16,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Empty {}

impl From<&Status> for ResponseStatus {
    fn from(status: &Status) -> Self {
        Self {
            metadata: Empty {},
            status: "Failure",
            message: status.message.clone(),
            reason: status.reason.clone().into_owned(),
            details: status.details.clone(),
            code: status.code,
        }
    }
}
