//! `UserInfo`: who sends a request, as authentication has found out.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The group of everyone who is known.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of everyone who is not.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of everyone who is not known.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group that is allowed everything, without regard to roles.
pub const MASTERS: &str = "system:masters";
/// Prefix of the user names of ServiceAccounts.
pub const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// A user. As an extension of a request it says that a client certificate was verified.
///
/// ```
/// use fake_apiserver::UserInfo;
///
/// let operator = UserInfo::service_account("shop", "operator");
/// assert_eq!(operator.name, "system:serviceaccount:shop:operator");
/// assert_eq!(operator.groups, ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// The user's name.
    pub name: String,
    /// The groups the user is in.
    pub groups: Vec<String>,
    /// Tells this user from another of the same name; empty if unknown.
    pub uid: String,
    /// Additional facts from authentication, such as the name of a token.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Identity of requests without credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// The administrator, in the group `system:masters`: so the test's own client and plain HTTP need no token.
    #[default]
    Admin,
    /// `system:anonymous` in the group `system:unauthenticated`, as kube-apiserver has it.
    Allowed,
    /// Nobody: 401.
    Refused,
}

impl UserInfo {
    /// A user by name and groups; `system:authenticated` is added, as for everyone who shows credentials.
    pub fn new(name: impl Into<String>, groups: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let mut user = Self {
            name: name.into(),
            groups: groups.into_iter().map(Into::into).collect(),
            ..Self::default()
        };
        user.authenticate();
        user
    }

    /// The user of a ServiceAccount.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self::new(
            format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"),
            [
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
            ],
        )
    }

    /// The user of a request without credentials.
    pub fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// The administrator that everyone is while authorisation is off.
    pub fn admin() -> Self {
        Self::new("system:admin", [MASTERS])
    }

    /// The API server itself, which writes on its own account.
    pub(crate) fn api_server() -> &'static Self {
        static API_SERVER: LazyLock<UserInfo> = LazyLock::new(|| UserInfo::new("system:apiserver", [MASTERS]));
        &API_SERVER
    }

    /// Returns `true` if the user is in a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|it| it == group)
    }

    /// Namespace and name of the ServiceAccount whose user this is.
    pub fn as_service_account(&self) -> Option<(&str, &str)> {
        self.name.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')
    }

    /// Adds the group of everyone who is known.
    pub(crate) fn authenticate(&mut self) {
        if !self.is_in(AUTHENTICATED) && !self.is_in(UNAUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
    }
}

/// As an extension of a request: one of the server's own workers sends it, the one of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentBy(pub &'static str);
