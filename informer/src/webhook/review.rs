//! `AdmissionReview` of `admission.k8s.io/v1`: request and answer.

use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::UserInfo;
use kube::core::{GroupVersionKind, GroupVersionResource, Status};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The only supported version.
pub(super) const API_VERSION: &str = "admission.k8s.io/v1";

/// Operation of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[non_exhaustive]
pub enum Operation {
    /// An object is created.
    Create,
    /// An object, or a subresource of it, is changed.
    Update,
    /// An object is deleted.
    Delete,
    /// A connection is opened: `exec`, `proxy`.
    Connect,
}

/// Request to an admission webhook (`admission.Request`).
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AdmissionRequest {
    /// Identifies the request; the answer contains it, too.
    pub uid: String,
    /// The type of the object as sent to the webhook.
    #[serde(default = "no_kind")]
    pub kind: GroupVersionKind,
    /// The resource of the object as sent to the webhook.
    #[serde(default = "no_resource")]
    pub resource: GroupVersionResource,
    /// `status`, `scale`; empty for the object itself.
    #[serde(default)]
    pub sub_resource: String,
    /// The type of the client's request, if it was converted for the webhook.
    #[serde(default)]
    pub request_kind: Option<GroupVersionKind>,
    /// The resource of the client's request.
    #[serde(default)]
    pub request_resource: Option<GroupVersionResource>,
    /// The name of the object; empty if the server generates it.
    #[serde(default)]
    pub name: String,
    /// The namespace of the object; empty for cluster-scoped objects.
    #[serde(default)]
    pub namespace: String,
    /// Operation of the client.
    pub operation: Operation,
    /// User that sent the request.
    #[serde(default)]
    pub user_info: UserInfo,
    /// The new state of the object; null for deletions.
    #[serde(default)]
    pub object: Value,
    /// The stored state of the object; null for creations.
    #[serde(default)]
    pub old_object: Value,
    /// Set if nothing will be stored: the webhook must not have side effects.
    #[serde(default)]
    pub dry_run: bool,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions` of the request.
    #[serde(default)]
    pub options: Value,
}

fn no_kind() -> GroupVersionKind {
    GroupVersionKind::gvk("", "", "")
}

fn no_resource() -> GroupVersionResource {
    GroupVersionResource::gvr("", "", "")
}

/// A received review.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Asked<R> {
    #[serde(default)]
    pub(super) api_version: String,
    #[serde(default)]
    pub(super) kind: String,
    pub(super) request: Option<R>,
}

/// An answered review.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answered<R> {
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
    pub(super) response: R,
}

/// Decision of a webhook.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdmissionResponse {
    pub(super) uid: String,
    pub(super) allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) patch: Option<ByteString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
}

impl AdmissionResponse {
    pub(super) fn allowed() -> Self {
        Self {
            uid: String::new(),
            allowed: true,
            status: None,
            patch: None,
            patch_type: None,
            warnings: Vec::new(),
        }
    }

    pub(super) fn refused(status: Status) -> Self {
        Self {
            allowed: false,
            status: Some(status),
            ..Self::allowed()
        }
    }
}
