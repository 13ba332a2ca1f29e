//! `Impersonate-User` and related headers: the request acts as the user in these headers, if the authenticated user has
//! the permission to impersonate that user (rule Q1).
//!
//! As in Kubernetes 1.36, there are two mechanisms to grant the permission. Constrained impersonation requires the verb
//! `impersonate:<mode>` on the impersonated user and `impersonate-on:<mode>:<verb>` on the request's target; legacy
//! impersonation only requires `impersonate`. Constrained impersonation is checked first; if all checks fail, the error
//! of the first one is returned.

use http::HeaderMap;

use crate::api::field::{FieldErrors, FieldPath, quote};
use crate::api::rbac::Attributes;
use crate::api::status::Status;
use crate::api::user::{ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, UserInfo, is_subdomain};
use crate::registry::Registry;
use crate::registry::types::names;

/// Minimum number of groups, extra fields or values of extra fields for which constrained modes first check the
/// permission for all of them (`*`).
const MANY: usize = 4;

const EXTRA_PREFIX: &str = "impersonate-extra-";

/// The API group of all identities in constrained impersonation, and of uids and extra fields in legacy impersonation.
const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";
/// Prefix of the user names of nodes.
const NODE_PREFIX: &str = "system:node:";

/// Returns the user whom the request impersonates; `None` without the headers.
pub(super) fn wanted(headers: &HeaderMap) -> Result<Option<UserInfo>, Status> {
    let mut user = UserInfo::default();
    let mut is_asked = false;
    for (name, value) in headers {
        let Some(rest) = name.as_str().strip_prefix("impersonate-") else {
            continue;
        };
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        match rest {
            "user" if user.name.is_empty() => user.name = value,
            "uid" if user.uid.is_empty() => user.uid = value,
            "group" => user.groups.push(value),
            _ => {
                let Some(key) = name.as_str().strip_prefix(EXTRA_PREFIX) else {
                    continue;
                };
                let key = percent_encoding::percent_decode_str(key)
                    .decode_utf8_lossy()
                    .into_owned();
                user.extra.entry(key).or_default().push(value);
            }
        }
        is_asked = true;
    }
    if user.name.is_empty() {
        let is_asked = is_asked && (!user.groups.is_empty() || !user.uid.is_empty() || !user.extra.is_empty());
        if is_asked {
            let why = format!(
                "requested &user.DefaultInfo{{Name:\"\", UID:{}, Groups:{}, Extra:{}}} without impersonating a user \
                 name",
                quote(&user.uid),
                go_list(&user.groups),
                go_extra(&user)
            );
            return Err(Status::bad_request(why));
        }
        return Ok(None);
    }
    Ok(Some(user))
}

/// Formats a list like Go: `[]string{"a", "b"}`.
fn go_list(list: &[String]) -> String {
    if list.is_empty() {
        return "[]string(nil)".to_owned();
    }
    let items: Vec<String> = list.iter().map(|it| quote(it)).collect();
    format!("[]string{{{}}}", items.join(", "))
}

/// Formats extra fields like Go: `map[string][]string{"k":[]string{"v"}}`.
fn go_extra(user: &UserInfo) -> String {
    if user.extra.is_empty() {
        return "map[string][]string(nil)".to_owned();
    }
    let items: Vec<String> = user
        .extra
        .iter()
        .map(|(key, values)| format!("{}:{}", quote(key), go_list(values)))
        .collect();
    format!("map[string][]string{{{}}}", items.join(", "))
}

/// Returns the user after impersonation and the verb of constrained impersonation, or 403.
pub(super) fn become_user(
    registry: &Registry,
    requestor: &UserInfo,
    wanted: UserInfo,
    request: &Attributes<'_>,
) -> Result<(UserInfo, Option<String>), Status> {
    let mut first = None;
    for mode in Mode::of(requestor, &wanted) {
        let check = Check {
            registry,
            requestor,
            wanted: &wanted,
            mode,
        };
        match check.run(request) {
            Ok(groups) => return Ok((complete(UserInfo { groups, ..wanted }), mode.verb())),
            Err(refusal) => first = first.or(Some(refusal)),
        }
    }
    Err(first.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
}

/// Adds the group of authenticated or unauthenticated users.
fn complete(mut user: UserInfo) -> UserInfo {
    let group = if user.name == ANONYMOUS {
        UNAUTHENTICATED
    } else {
        AUTHENTICATED
    };
    if !user.is_in(group) && !user.is_in(UNAUTHENTICATED) {
        user.groups.push(group.to_owned());
    }
    user
}

/// Returns the name of a node from its user name.
fn node_of(user: &UserInfo) -> Option<&str> {
    user.name.strip_prefix(NODE_PREFIX).filter(|it| is_subdomain(it))
}

/// Returns the reason why constrained impersonation does not permit an extra field (`validateExtra`).
fn wrong_extra(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".to_owned());
    }
    let mut errors = FieldErrors::new();
    for (part, text) in names::domain_prefixed_path(key) {
        errors.invalid(FieldPath::new("extra.key"), part, text);
    }
    if !errors.is_empty() {
        let why = errors.aggregate();
        return Some(format!("impersonating an invalid key in extra is not allowed: {why}"));
    }
    if key != key.to_lowercase() {
        let key = quote(key);
        return Some(format!(
            "impersonating a non-lowercase key in extra is not allowed: {key}"
        ));
    }
    let has_empty = values.iter().any(String::is_empty);
    has_empty.then(|| "impersonating the empty string value in extra is not allowed".to_owned())
}

/// A mode of impersonation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// A ServiceAccount impersonates the node of its Pod.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    /// The legacy verb `impersonate`.
    Legacy,
}

impl Mode {
    /// Returns the applicable modes, in the order in which they are tried.
    fn of(requestor: &UserInfo, wanted: &UserInfo) -> Vec<Self> {
        let is_name_alone = wanted.groups.is_empty() && wanted.uid.is_empty() && wanted.extra.is_empty();
        let node = node_of(wanted);
        let is_account = wanted.as_service_account().is_some();
        let mut modes = Vec::new();
        if let Some(node) = node.filter(|_| is_name_alone) {
            let own = requestor.extra.get("authentication.kubernetes.io/node-name");
            let is_own = own.is_some_and(|names| names.iter().map(String::as_str).eq([node]));
            if requestor.as_service_account().is_some() && is_own {
                modes.push(Self::AssociatedNode);
            }
            modes.push(Self::ArbitraryNode);
        }
        if is_account && is_name_alone {
            modes.push(Self::ServiceAccount);
        }
        if node.is_none() && !is_account {
            modes.push(Self::UserInfo);
        }
        modes.push(Self::Legacy);
        modes
    }

    /// Returns the verb of a constrained mode.
    fn verb(self) -> Option<String> {
        (self != Self::Legacy).then(|| format!("impersonate:{}", self.name()))
    }

    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }
}

/// Permission check for one mode of impersonation.
struct Check<'a> {
    registry: &'a Registry,
    requestor: &'a UserInfo,
    wanted: &'a UserInfo,
    mode: Mode,
}

impl Check<'_> {
    /// Runs the check. Returns the groups of the impersonated user, except `system:authenticated`.
    fn run(&self, request: &Attributes<'_>) -> Result<Vec<String>, Status> {
        let verb = self.mode.verb().unwrap_or_else(|| "impersonate".to_owned());
        if self.is_constrained() {
            let on = format!("impersonate-on:{}:{}", self.mode.name(), request.verb);
            self.ask(Attributes { verb: &on, ..*request })?;
        }
        let groups = self.user(&verb)?;
        let identity = Attributes {
            verb: &verb,
            group: AUTHENTICATION_GROUP,
            ..Attributes::default()
        };
        if !self.wanted.uid.is_empty() {
            self.ask(Attributes {
                resource: "uids",
                name: &self.wanted.uid,
                ..identity
            })?;
        }
        self.groups(&verb)?;
        self.extra(Attributes {
            resource: "userextras",
            ..identity
        })?;
        Ok(groups)
    }

    fn is_constrained(&self) -> bool {
        self.mode != Mode::Legacy
    }

    /// Returns the API group with which permissions for users and groups are checked.
    fn identity_group(&self) -> &'static str {
        match self.mode {
            Mode::Legacy => "",
            Mode::AssociatedNode | Mode::ArbitraryNode | Mode::ServiceAccount | Mode::UserInfo => AUTHENTICATION_GROUP,
        }
    }

    /// Checks the permission for the user name, and returns the groups that the name implies.
    fn user(&self, verb: &str) -> Result<Vec<String>, Status> {
        let wanted = self.wanted;
        let mut groups = wanted.groups.clone();
        let mut user = Attributes {
            verb,
            group: self.identity_group(),
            resource: "users",
            name: &wanted.name,
            ..Attributes::default()
        };
        if let (Mode::AssociatedNode | Mode::ArbitraryNode, Some(node)) = (self.mode, node_of(wanted)) {
            user.resource = "nodes";
            user.name = if self.mode == Mode::AssociatedNode { "*" } else { node };
            groups = vec!["system:nodes".to_owned()];
        }
        if let Some((namespace, name)) = wanted.as_service_account() {
            (user.resource, user.namespace, user.name) = ("serviceaccounts", namespace, name);
            if groups.is_empty() {
                groups = UserInfo::service_account(namespace, name).groups;
                groups.retain(|group| group != AUTHENTICATED);
            }
        }
        self.ask(user)?;
        Ok(groups)
    }

    fn groups(&self, verb: &str) -> Result<(), Status> {
        let groups = &self.wanted.groups;
        let all = Attributes {
            verb,
            group: self.identity_group(),
            resource: "groups",
            name: "*",
            ..Attributes::default()
        };
        if self.is_constrained() {
            for (name, term) in [("", "empty string"), (MASTERS, "system:masters")] {
                if groups.iter().any(|it| it == name) {
                    let why = format!("impersonating the {term} group is not allowed");
                    return Err(self.refusal(Attributes { name, ..all }, &why));
                }
            }
            if groups.len() >= MANY && self.ask(all).is_ok() {
                return Ok(());
            }
        }
        groups.iter().try_for_each(|name| self.ask(Attributes { name, ..all }))
    }

    /// Checks the extra fields. Constrained modes only permit keys and values of a certain form.
    fn extra(&self, request: Attributes<'_>) -> Result<(), Status> {
        let extra = &self.wanted.extra;
        if self.is_constrained() {
            if let Some(why) = extra.iter().find_map(|(key, values)| wrong_extra(key, values)) {
                return Err(self.refusal(request, &why));
            }
            let all = Attributes {
                subresource: "*",
                name: "*",
                ..request
            };
            let count: usize = extra.values().map(Vec::len).sum();
            if (extra.len() >= MANY || count >= MANY) && self.ask(all).is_ok() {
                return Ok(());
            }
        }
        for (subresource, values) in extra {
            for name in values {
                self.ask(Attributes {
                    subresource,
                    name,
                    ..request
                })?;
            }
        }
        Ok(())
    }

    fn refusal(&self, request: Attributes<'_>, why: &str) -> Status {
        Status::not_allowed(&request, &self.requestor.name, why)
    }

    fn ask(&self, request: Attributes<'_>) -> Result<(), Status> {
        self.registry.authorization.authorize(self.requestor, &request)
    }
}
