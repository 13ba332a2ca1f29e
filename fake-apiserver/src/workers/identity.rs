//! `Identity`: the user as whom a controller writes, and the names by which its requests are known.

use std::sync::Arc;

use crate::api::user::UserInfo;

/// Identity of a controller towards the server.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// The name of the worker, by which the journal marks its requests.
    pub(crate) worker: &'static str,
    /// The user.
    pub(crate) user: Arc<UserInfo>,
    /// `User-Agent`; what comes before its first slash owns the fields that are written.
    pub(crate) user_agent: String,
}

impl Identity {
    /// A controller of kube-controller-manager, which has a service account of its own in `kube-system`.
    pub(crate) fn controller(name: &'static str) -> Self {
        let user = UserInfo::service_account("kube-system", name);
        Self {
            worker: name,
            user_agent: format!("kube-controller-manager/v1.36.0 {}", user.name),
            user: Arc::new(user),
        }
    }

    /// Another component, such as `kubelet` as `system:node:node-1` of `system:nodes`.
    pub(crate) fn component(name: &'static str, user: impl Into<String>, groups: &[&str]) -> Self {
        Self {
            worker: name,
            user_agent: format!("{name}/v1.36.0"),
            user: Arc::new(UserInfo::new(user, groups.iter().copied())),
        }
    }
}
