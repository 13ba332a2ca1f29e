//! `UserInfo`: the sender of a request, as determined by authentication.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The group of all authenticated users.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of all unauthenticated users.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of an unauthenticated user.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group with all permissions, regardless of roles.
pub const MASTERS: &str = "system:masters";
/// Prefix of the user names of ServiceAccounts.
pub const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
/// Key of the ID of the credential in [`UserInfo::extra`].
pub(crate) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// A user. As a request extension, it is the authenticated user, such as the user of a verified client certificate.
///
/// ```
/// use fake_apiserver::UserInfo;
///
/// let operator = UserInfo::service_account("shop", "operator");
/// assert_eq!(operator.name, "system:serviceaccount:shop:operator");
/// assert_eq!(operator.groups, ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UserInfo {
    /// The user's name.
    pub name: String,
    /// The groups of the user.
    pub groups: Vec<String>,
    /// Distinguishes users with the same name; empty if unknown.
    pub uid: String,
    /// Additional attributes from authentication, such as the name of a token.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Identity of requests without credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Anonymous {
    /// The administrator, in the group `system:masters`. This is the default, so in-process clients and plain HTTP need
    /// no token.
    #[default]
    Admin,
    /// `system:anonymous` in the group `system:unauthenticated`, as in kube-apiserver. If authorization is off, such
    /// requests are still attributed to the administrator.
    Allowed,
    /// Requests without credentials are refused with 401.
    Refused,
}

impl UserInfo {
    /// Creates a user with a name and groups, and adds the group `system:authenticated`, unless the groups contain
    /// `system:unauthenticated`.
    pub fn new(name: impl Into<String>, groups: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let mut user = Self {
            name: name.into(),
            groups: groups.into_iter().map(Into::into).collect(),
            ..Self::default()
        };
        user.authenticate();
        user
    }

    /// Creates the user of a ServiceAccount.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self::new(
            format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"),
            [
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
            ],
        )
    }

    /// Creates the user of a request without credentials.
    pub fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// Creates the administrator, who is by default the user of requests without credentials.
    pub fn admin() -> Self {
        Self::new("system:admin", [MASTERS])
    }

    /// Returns the user to whom the API server's own writes are attributed.
    pub(crate) fn api_server() -> &'static Self {
        static API_SERVER: LazyLock<UserInfo> = LazyLock::new(|| UserInfo::new("system:apiserver", [MASTERS]));
        &API_SERVER
    }

    /// Returns `true` if the user is in a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|it| it == group)
    }

    /// Returns the namespace and name of the ServiceAccount, if the user is one.
    pub fn as_service_account(&self) -> Option<(&str, &str)> {
        let parts = self.name.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':');
        let is_label = |text: &str| text.len() <= 63 && !text.contains('.') && is_subdomain(text);
        parts.filter(|(namespace, name)| is_label(namespace) && is_subdomain(name))
    }

    /// Adds the group of all authenticated users, unless the user is in the group of unauthenticated users.
    pub(crate) fn authenticate(&mut self) {
        if !self.is_in(AUTHENTICATED) && !self.is_in(UNAUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
    }
}

/// Returns `true` for a DNS subdomain, such as the name of a Node. The rules of names, which also report errors, are in
/// a higher layer.
pub(crate) fn is_subdomain(name: &str) -> bool {
    let is_edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        let has_edges = bytes.first().is_some_and(is_edge) && bytes.last().is_some_and(is_edge);
        has_edges && bytes.iter().all(|byte| is_edge(byte) || *byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Request extension with the name of the server's worker that sent the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentBy(pub &'static str);
