//! `AdmissionReview` of `admission.k8s.io/v1`: request and response.

use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::UserInfo;
use kube::core::{GroupVersionKind, GroupVersionResource, Status};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The only supported API version of reviews.
pub(super) const API_VERSION: &str = "admission.k8s.io/v1";

/// Operation of an admission request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[non_exhaustive]
pub enum Operation {
    /// An object is created.
    Create,
    /// An object or one of its subresources is updated.
    Update,
    /// An object is deleted.
    Delete,
    /// A connection is opened, for example by `exec` or `proxy`.
    Connect,
}

/// Request to an admission webhook (`admission.Request`).
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AdmissionRequest {
    /// Identifier of the request, which the response must contain as well.
    pub uid: String,
    /// Type of the object as the server sends it to the webhook.
    #[serde(default = "no_kind")]
    pub kind: GroupVersionKind,
    /// Resource of the object as the server sends it to the webhook.
    #[serde(default = "no_resource")]
    pub resource: GroupVersionResource,
    /// Subresource, such as `status` or `scale`; empty for the object itself.
    #[serde(default)]
    pub sub_resource: String,
    /// Type in the client's request. Differs from `kind` if the object was converted for the webhook.
    #[serde(default)]
    pub request_kind: Option<GroupVersionKind>,
    /// Resource in the client's request. Differs from `resource` if the object was converted for the webhook.
    #[serde(default)]
    pub request_resource: Option<GroupVersionResource>,
    /// Name of the object; empty if the server generates the name.
    #[serde(default)]
    pub name: String,
    /// Namespace of the object; empty for cluster-scoped objects.
    #[serde(default)]
    pub namespace: String,
    /// Operation that the client requested.
    pub operation: Operation,
    /// The user that sent the request.
    #[serde(default)]
    pub user_info: UserInfo,
    /// New state of the object; null for deletions.
    #[serde(default)]
    pub object: Value,
    /// Stored state of the object; null for creations.
    #[serde(default)]
    pub old_object: Value,
    /// Set for dry runs: nothing will be stored, so the webhook must not have side effects.
    #[serde(default)]
    pub dry_run: bool,
    /// Options of the operation: `CreateOptions`, `UpdateOptions` or `DeleteOptions`.
    #[serde(default)]
    pub options: Value,
}

fn no_kind() -> GroupVersionKind {
    GroupVersionKind::gvk("", "", "")
}

fn no_resource() -> GroupVersionResource {
    GroupVersionResource::gvr("", "", "")
}

/// A review that contains a request.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Asked<R> {
    #[serde(default)]
    pub(super) api_version: String,
    #[serde(default)]
    pub(super) kind: String,
    pub(super) request: Option<R>,
}

/// A review that contains a response.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answered<R> {
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
    pub(super) response: R,
}

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
