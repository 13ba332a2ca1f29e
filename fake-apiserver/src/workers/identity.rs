//! `Identity`: the user and the client name of a controller's requests.

use std::sync::Arc;

use crate::api::user::UserInfo;

/// Identity of a controller in its requests.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// The name of the worker, with which the journal marks its requests.
    pub(crate) worker: &'static str,
    /// The user of the requests.
    pub(crate) user: Arc<UserInfo>,
    /// `User-Agent`; the part before the first slash is the field manager of the controller's writes.
    pub(crate) user_agent: String,
}

impl Identity {
    /// Returns the identity of a controller in kube-controller-manager, with its own service account in `kube-system`.
    pub(crate) fn controller(name: &'static str) -> Self {
        let user = UserInfo::service_account("kube-system", name);
        Self {
            worker: name,
            user_agent: format!("kube-controller-manager/v1.36.0 {}", user.name),
            user: Arc::new(user),
        }
    }

    /// Returns the identity of a component outside of kube-controller-manager, such as `kubelet` with the user
    /// `system:node:node-1` in the group `system:nodes`.
    pub(crate) fn component(name: &'static str, user: impl Into<String>, groups: &[&str]) -> Self {
        Self {
            worker: name,
            user_agent: format!("{name}/v1.36.0"),
            user: Arc::new(UserInfo::new(user, groups.iter().copied())),
        }
    }
}
