//! `Policy`: all Roles and bindings, indexed by subject.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::api::field::quote;
use crate::api::object::Object;
use crate::api::rbac::{Attributes, PolicyRule};
use crate::api::user::{SERVICE_ACCOUNT_PREFIX, UserInfo};
use crate::registry::types::cursor::Cursor;

/// Rules of each Role and ClusterRole, by kind, namespace and name.
type Rules = BTreeMap<(&'static str, String, String), Arc<[PolicyRule]>>;

/// All Roles and bindings, indexed by subject.
#[derive(Debug, Default)]
pub(super) struct Policy {
    rules: Rules,
    /// ClusterRoleBindings.
    cluster: Bindings,
    /// RoleBindings by namespace.
    namespaces: BTreeMap<String, Bindings>,
}

/// The bindings of one namespace, or the ClusterRoleBindings, sorted by name.
#[derive(Debug, Default)]
struct Bindings {
    all: Vec<Binding>,
    /// For each user name, including names of ServiceAccounts: the indexes of bindings and of their subjects.
    users: BTreeMap<String, Vec<(usize, usize)>>,
    /// For each group: the indexes of bindings and of their subjects.
    groups: BTreeMap<String, Vec<(usize, usize)>>,
}

/// A RoleBinding or ClusterRoleBinding.
#[derive(Debug)]
struct Binding {
    /// The binding in messages: `RoleBinding "name/namespace" of Role "name"`.
    shown: String,
    /// The subjects as printed in messages.
    subjects: Vec<String>,
    /// Rules of the role, or an error if the role does not exist.
    rules: Result<Arc<[PolicyRule]>, String>,
}

/// A role that a binding refers to, but that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RoleMissing {
    /// `role` or `clusterrole`: the resource as kube-apiserver prints it in this error.
    pub(super) resource: &'static str,
    pub(super) name: String,
}

impl fmt::Display for RoleMissing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} {} not found", self.resource, super::GROUP, quote(&self.name))
    }
}

/// The binding that allows a request, and its subject.
pub(super) struct Grant<'a> {
    binding: &'a Binding,
    subject: &'a str,
}

impl fmt::Display for Grant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.binding.shown, self.subject)
    }
}

impl Policy {
    /// Parses all Roles and bindings; `stored` returns the objects of a resource of the group.
    pub(super) fn read(stored: impl Fn(&str) -> Vec<Object>) -> Self {
        let mut policy = Self::default();
        for (kind, resource) in [("Role", "roles"), ("ClusterRole", "clusterroles")] {
            for role in stored(resource) {
                let key = (kind, role.namespace().to_owned(), role.name().to_owned());
                policy.rules.insert(key, PolicyRule::of_role(&role).into());
            }
        }
        for binding in stored("clusterrolebindings") {
            policy.cluster.add(&binding, &policy.rules);
        }
        for binding in stored("rolebindings") {
            let namespace = policy.namespaces.entry(binding.namespace().to_owned()).or_default();
            namespace.add(&binding, &policy.rules);
        }
        policy
    }

    /// Returns the first binding that allows a request: cluster bindings before namespace bindings, and bindings of the
    /// user before bindings of the user's groups.
    pub(super) fn find(&self, user: &UserInfo, request: &Attributes<'_>) -> Option<Grant<'_>> {
        self.applying(user, request.namespace)
            .find(|(binding, _)| match &binding.rules {
                Ok(rules) => rules.iter().any(|rule| rule.allows(request)),
                Err(_) => false,
            })
            .map(|(binding, subject)| Grant { binding, subject })
    }

    /// Returns all rules of a user, and the errors of the user's bindings.
    pub(super) fn rules_of(&self, user: &UserInfo, namespace: &str) -> (Vec<PolicyRule>, Vec<String>) {
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for (binding, _) in self.applying(user, namespace) {
            if seen.contains(&binding.shown.as_str()) {
                continue;
            }
            seen.insert(&binding.shown);
            match &binding.rules {
                Ok(found) => rules.extend(found.iter().cloned()),
                Err(error) if errors.contains(error) => {}
                Err(error) => errors.push(error.clone()),
            }
        }
        (rules, errors)
    }

    /// Returns the suffix for the message of a refusal: `RBAC: …` if bindings refer to missing roles.
    pub(super) fn reason(&self, user: &UserInfo, namespace: &str) -> String {
        let (_, errors) = self.rules_of(user, namespace);
        match errors.as_slice() {
            [] => String::new(),
            [error] => format!("RBAC: {error}"),
            several => format!("RBAC: [{}]", several.join(", ")),
        }
    }

    /// Returns the rules of a role that a binding in `namespace` refers to.
    pub(super) fn role(&self, kind: &str, namespace: &str, name: &str) -> Result<Arc<[PolicyRule]>, RoleMissing> {
        role(&self.rules, kind, namespace, name)
    }

    /// Returns the bindings that apply to the user or to one of the user's groups, each with the matching subject.
    fn applying<'a>(&'a self, user: &UserInfo, namespace: &str) -> impl Iterator<Item = (&'a Binding, &'a str)> {
        let within = (!namespace.is_empty()).then(|| self.namespaces.get(namespace));
        [Some(&self.cluster), within.flatten()]
            .into_iter()
            .flatten()
            .flat_map(|bindings| bindings.applying(user))
    }
}

fn role(rules: &Rules, kind: &str, namespace: &str, name: &str) -> Result<Arc<[PolicyRule]>, RoleMissing> {
    let (kind, resource, namespace) = match kind {
        "Role" => ("Role", "role", namespace),
        _ => ("ClusterRole", "clusterrole", ""),
    };
    let found = rules.get(&(kind, namespace.to_owned(), name.to_owned()));
    found.cloned().ok_or_else(|| RoleMissing {
        resource,
        name: name.to_owned(),
    })
}

impl Bindings {
    fn add(&mut self, binding: &Object, rules: &Rules) {
        let root = Cursor::root(binding);
        let (kind, name) = (root.text("roleRef.kind"), root.text("roleRef.name"));
        let namespace = binding.namespace();
        let number = self.all.len();
        let mut subjects = Vec::new();
        for (index, subject) in root.items("subjects").enumerate() {
            let (kind, name) = (subject.text("kind"), subject.text("name"));
            let mut shown = format!("{kind} {}", quote(name));
            let (by, whom) = match kind {
                "User" => (&mut self.users, name.to_owned()),
                "Group" => (&mut self.groups, name.to_owned()),
                _ => {
                    let own = subject.text("namespace");
                    let namespace = if own.is_empty() { namespace } else { own };
                    shown = format!("{kind} {}", quote(&format!("{name}/{namespace}")));
                    (&mut self.users, format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"))
                }
            };
            by.entry(whom).or_default().push((number, index));
            subjects.push(shown);
        }
        let shown = match namespace {
            "" => format!("ClusterRoleBinding {}", quote(binding.name())),
            namespace => format!("RoleBinding {}", quote(&format!("{}/{namespace}", binding.name()))),
        };
        self.all.push(Binding {
            shown: format!("{shown} of {kind} {}", quote(name)),
            subjects,
            rules: role(rules, kind, namespace, name).map_err(|missing| missing.to_string()),
        });
    }

    fn applying<'a>(&'a self, user: &UserInfo) -> impl Iterator<Item = (&'a Binding, &'a str)> {
        let groups = user.groups.iter().filter_map(|group| self.groups.get(group));
        let found = self.users.get(&user.name).into_iter().chain(groups).flatten();
        found.filter_map(|(number, subject)| {
            let binding = self.all.get(*number)?;
            Some((binding, binding.subjects.get(*subject)?.as_str()))
        })
    }
}
