//! RBAC: clients with the permissions of a user, and the smallest role for a controller, derived from its requests.
//!
//! A test runs the controller as the user of its deployment, and then compares the shipped role with the permissions
//! that the controller used:
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::api::{Api, ListParams};
//! use testkit::{TestCluster, UserInfo};
//!
//! const SHIPPED: &str = r#"
//! apiVersion: rbac.authorization.k8s.io/v1
//! kind: Role
//! metadata: {name: reader, namespace: default}
//! rules:
//! - {apiGroups: [""], resources: [configmaps], verbs: [list]}
//! ---
//! apiVersion: rbac.authorization.k8s.io/v1
//! kind: RoleBinding
//! metadata: {name: reader, namespace: default}
//! roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
//! subjects: [{kind: ServiceAccount, name: operator, namespace: default}]
//! "#;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = TestCluster::builder().rbac().yaml(SHIPPED).start();
//! let client = cluster.client_as("operator", UserInfo::service_account("default", "operator"));
//! let maps = Api::<ConfigMap>::default_namespaced(client);
//! maps.list(&ListParams::default()).await?;
//! assert!(maps.get("settings").await.unwrap_err().to_string().contains("forbidden"));
//!
//! let observed = cluster.requests().client("operator").observed_rbac();
//! let report = observed.compare(SHIPPED);
//! assert!(report.missing().iter().any(|rule| rule.verbs == ["get"]));
//! assert!(report.unused().is_empty());
//! # Ok(())
//! # }
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use fake_apiserver::api::rbac::{Attributes, PolicyRule};
use fake_apiserver::{RecordedRequest, UserInfo, Verb, load};
use serde_json::{Value, json};

use crate::filter::Requests;
use crate::test_cluster::TestCluster;

/// The verbs in conventional order.
const VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

impl TestCluster {
    /// Returns a client that acts as a user, such as the ServiceAccount of the controller's deployment. For `name`, see
    /// [`client_named`](Self::client_named). The user's permissions are only enforced if
    /// [`rbac`](crate::TestClusterBuilder::rbac) is enabled. On a real API server, the client acts as the user of the
    /// test.
    #[must_use]
    pub fn client_as(&self, name: &str, user: UserInfo) -> kube::Client {
        self.skips("client_as");
        self.clients().client_as(name, user)
    }

    /// Returns the permissions that the requests of all controllers require. For a single controller, see
    /// [`Requests::observed_rbac`].
    pub fn observed_rbac(&self) -> ObservedRbac {
        self.requests().observed_rbac()
    }
}

impl Requests {
    /// Selects only requests of the user with this name, such as `system:serviceaccount:shop:operator`.
    #[must_use]
    pub fn user(self, name: &str) -> Self {
        self.filtered(|it| it.user.name == name)
    }

    /// Returns the permissions that these requests require, including refused requests. Permissions that every user
    /// has, such as discovery, are excluded.
    pub fn observed_rbac(&self) -> ObservedRbac {
        let needs = self.iter().filter_map(Need::of).flat_map(Need::with_create).collect();
        ObservedRbac { needs }
    }
}

/// The permissions that requests require, from [`TestCluster::observed_rbac`]. Its `Display` output is a ClusterRole
/// with only these permissions, in YAML.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedRbac {
    needs: BTreeSet<Need>,
}

/// A permission that a request requires.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Need {
    namespace: String,
    group: String,
    resource: String,
    subresource: String,
    verb: &'static str,
    name: String,
    /// Set if a PATCH or PUT created the object, which requires the permission to create as well.
    creates: bool,
}

impl Need {
    fn of(request: &RecordedRequest) -> Option<Self> {
        let info = request.info.as_ref()?;
        let is_anyones = matches!(&*info.group, "authorization.k8s.io" | "authentication.k8s.io")
            && info.resource.starts_with("selfsubject");
        (!is_anyones).then(|| Self {
            namespace: info.namespace.clone(),
            group: info.group.to_string(),
            resource: info.resource.to_string(),
            subresource: info.subresource.split('/').next().unwrap_or_default().to_owned(),
            verb: info.verb.as_str(),
            name: info.name.clone(),
            creates: request.code == 201 && matches!(info.verb, Verb::Patch | Verb::Update),
        })
    }

    fn with_create(mut self) -> impl Iterator<Item = Self> {
        let creates = std::mem::take(&mut self.creates);
        let create = Self {
            verb: Verb::Create.as_str(),
            ..self.clone()
        };
        [Some(self), creates.then_some(create)].into_iter().flatten()
    }

    fn attributes(&self) -> Attributes<'_> {
        Attributes {
            verb: self.verb,
            group: &self.group,
            resource: &self.resource,
            subresource: &self.subresource,
            namespace: &self.namespace,
            name: &self.name,
            path: "",
        }
    }

    /// Returns the resource with its subresource: `pods/log`.
    fn full_resource(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.clone(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }

    fn rule(&self) -> PolicyRule {
        PolicyRule::resources([self.verb], [self.group.as_str()], [self.full_resource().as_str()])
    }
}

impl ObservedRbac {
    /// Returns `true` if no permissions were used.
    pub fn is_empty(&self) -> bool {
        self.needs.is_empty()
    }

    /// Returns the smallest set of rules that allows every request, regardless of namespaces and names. The rules are
    /// sorted by group and resource; the resources of a group with equal verbs share a rule.
    pub fn rules(&self) -> Vec<PolicyRule> {
        smallest(self.needs.iter())
    }

    /// Returns a ClusterRole with the smallest set of [rules](Self::rules) that allows every request.
    pub fn cluster_role(&self, name: &str) -> Value {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
            "rules": values(&self.rules()),
        })
    }

    /// Returns a Role with the smallest set of rules that allows every request in a namespace. It excludes permissions
    /// that were used in other namespaces or cluster-wide.
    pub fn role(&self, namespace: &str, name: &str) -> Value {
        let here = self.needs.iter().filter(|need| need.namespace == namespace);
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": name, "namespace": namespace}, "rules": values(&smallest(here)),
        })
    }

    /// Compares the used permissions with the roles in a manifest. The bindings in the manifest determine the scope of
    /// a role. Without a binding, a ClusterRole applies everywhere, and a Role applies in its namespace, or in every
    /// namespace if `metadata.namespace` is not set. Other objects are ignored.
    ///
    /// # Panics
    ///
    /// If the manifest cannot be parsed, or does not contain a role.
    #[track_caller]
    pub fn compare(&self, manifest: &str) -> RbacComparison {
        let grants = Grant::read(manifest);
        assert!(!grants.is_empty(), "the manifest has no Role and no ClusterRole");
        let missing = self
            .needs
            .iter()
            .filter(|need| !grants.iter().any(|grant| grant.allows(need)));
        let (mut unused, mut too_wide) = (Vec::new(), Vec::new());
        for grant in &grants {
            for part in grant.rules.iter().flat_map(PolicyRule::parts) {
                let used: Vec<&Need> = self
                    .needs
                    .iter()
                    .filter(|need| grant.counts_in(&need.namespace) && part.allows(&need.attributes()))
                    .collect();
                if part.non_resource_urls.is_empty() && used.is_empty() {
                    unused.push(part);
                } else if is_wide(&part) {
                    too_wide.push((part, smallest(used.into_iter())));
                }
            }
        }
        RbacComparison {
            missing: smallest(missing),
            unused: PolicyRule::compact(unused),
            too_wide,
        }
    }

    /// Asserts that the roles in a manifest grant all permissions that were used.
    ///
    /// # Panics
    ///
    /// If permissions are missing; the message lists the missing rules. Also panics like [`compare`](Self::compare).
    #[track_caller]
    pub fn assert_granted_by(&self, manifest: &str) {
        let mut comparison = self.compare(manifest);
        (comparison.unused, comparison.too_wide) = (Vec::new(), Vec::new());
        assert!(comparison.is_exact(), "{comparison}");
    }

    /// Asserts that the roles in a manifest grant exactly the permissions that were used. A `*` always grants too much.
    ///
    /// # Panics
    ///
    /// If the permissions differ; the message lists missing and superfluous rules. Also panics like
    /// [`compare`](Self::compare):
    ///
    /// ```text
    /// the shipped roles differ from the permissions that were used
    /// missing:
    /// - {apiGroups: [""], resources: ["pods"], verbs: ["delete"]}
    /// unused:
    /// - {apiGroups: [""], resources: ["secrets"], verbs: ["get", "list"]}
    /// ```
    #[track_caller]
    pub fn assert_is_exactly(&self, manifest: &str) {
        let comparison = self.compare(manifest);
        assert!(comparison.is_exact(), "{comparison}");
    }
}

impl fmt::Display for ObservedRbac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: observed\nrules:",
        )?;
        let rules = self.rules();
        if rules.is_empty() {
            return f.write_str(" []\n");
        }
        f.write_str("\n")?;
        for rule in &rules {
            writeln!(f, "- apiGroups: {}", list(&rule.api_groups))?;
            writeln!(f, "  resources: {}", list(&rule.resources))?;
            writeln!(f, "  verbs: {}", list(&rule.verbs))?;
        }
        Ok(())
    }
}

/// Result of [`ObservedRbac::compare`]. Its `Display` output is the message of a failing test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RbacComparison {
    missing: Vec<PolicyRule>,
    unused: Vec<PolicyRule>,
    /// Rules with a `*`, each with the permissions of the rule that were used.
    too_wide: Vec<(PolicyRule, Vec<PolicyRule>)>,
}

impl RbacComparison {
    /// Returns the permissions that were used but not granted.
    pub fn missing(&self) -> &[PolicyRule] {
        &self.missing
    }

    /// Returns the permissions that were granted but not used.
    pub fn unused(&self) -> &[PolicyRule] {
        &self.unused
    }

    /// Returns `true` if the roles grant exactly the permissions that were used.
    pub fn is_exact(&self) -> bool {
        self.missing.is_empty() && self.unused.is_empty() && self.too_wide.is_empty()
    }
}

impl fmt::Display for RbacComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_exact() {
            return f.write_str("the shipped roles match the permissions that were used");
        }
        f.write_str("the shipped roles differ from the permissions that were used")?;
        for (title, rules) in [("missing", &self.missing), ("unused", &self.unused)] {
            if !rules.is_empty() {
                write!(f, "\n{title}:")?;
            }
            for rule in rules {
                write!(f, "\n- {}", line(rule))?;
            }
        }
        if !self.too_wide.is_empty() {
            f.write_str("\ntoo wide:")?;
        }
        for (rule, used) in &self.too_wide {
            write!(f, "\n- {}", line(rule))?;
            let used: Vec<String> = used.iter().map(line).collect();
            if !used.is_empty() {
                write!(f, "\n  used by the controller: {}", used.join(", "))?;
            }
        }
        Ok(())
    }
}

/// A role in a manifest, and the scope in which it applies.
struct Grant {
    rules: Vec<PolicyRule>,
    place: Place,
}

/// Scope of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Everywhere,
    /// Applies in all namespaces, but not to cluster-scoped objects.
    Namespaces,
    Namespace(String),
}

impl Grant {
    #[track_caller]
    fn read(manifest: &str) -> Vec<Self> {
        let objects =
            load::from_text(manifest).unwrap_or_else(|err| panic!("the manifest of the roles is invalid: {err}"));
        let objects: Vec<Value> = objects.into_iter().map(|manifest| manifest.object).collect();
        let mut grants = Vec::new();
        for role in &objects {
            let kind = role["kind"].as_str().unwrap_or_default();
            let Some(fields) = role.as_object().filter(|_| matches!(kind, "Role" | "ClusterRole")) else {
                continue;
            };
            let rules = PolicyRule::all_of(fields);
            let mut places: Vec<Place> = objects.iter().filter_map(|it| place_of_binding(it, role)).collect();
            if places.is_empty() {
                places.push(match (kind, role["metadata"]["namespace"].as_str()) {
                    ("ClusterRole", _) => Place::Everywhere,
                    (_, None) => Place::Namespaces,
                    (_, Some(namespace)) => Place::Namespace(namespace.to_owned()),
                });
            }
            grants.extend(places.into_iter().map(|place| Self {
                rules: rules.clone(),
                place,
            }));
        }
        grants
    }

    fn counts_in(&self, namespace: &str) -> bool {
        match &self.place {
            Place::Everywhere => true,
            Place::Namespaces => !namespace.is_empty(),
            Place::Namespace(own) => own == namespace,
        }
    }

    fn allows(&self, need: &Need) -> bool {
        self.counts_in(&need.namespace) && self.rules.iter().any(|rule| rule.allows(&need.attributes()))
    }
}

/// Returns the scope in which a binding grants a role; `None` if it does not refer to the role.
fn place_of_binding(binding: &Value, role: &Value) -> Option<Place> {
    let namespace = &binding["metadata"]["namespace"];
    let refers = binding["roleRef"]["kind"] == role["kind"] && binding["roleRef"]["name"] == role["metadata"]["name"];
    match binding["kind"].as_str()? {
        "ClusterRoleBinding" if refers => Some(Place::Everywhere),
        "RoleBinding" if refers && (role["kind"] == "ClusterRole" || *namespace == role["metadata"]["namespace"]) => {
            Some(
                namespace
                    .as_str()
                    .map_or(Place::Namespaces, |it| Place::Namespace(it.to_owned())),
            )
        }
        _ => None,
    }
}

fn is_wide(rule: &PolicyRule) -> bool {
    let lists = [&rule.verbs, &rule.api_groups, &rule.resources];
    lists.iter().any(|list| list.iter().any(|it| it.contains('*')))
}

/// Returns the smallest set of rules for these permissions.
fn smallest<'a>(needs: impl Iterator<Item = &'a Need>) -> Vec<PolicyRule> {
    let rules = needs.map(Need::rule).collect::<BTreeSet<_>>().into_iter().collect();
    let mut together: BTreeMap<(Vec<String>, Vec<String>), Vec<String>> = BTreeMap::new();
    for mut rule in PolicyRule::compact(rules) {
        let place = |verb: &String| VERBS.iter().position(|it| it == verb);
        rule.verbs.sort_by_key(place);
        together
            .entry((rule.api_groups, rule.verbs))
            .or_default()
            .extend(rule.resources);
    }
    let rule = |((api_groups, verbs), resources)| PolicyRule {
        verbs,
        api_groups,
        resources,
        ..PolicyRule::default()
    };
    let mut rules: Vec<PolicyRule> = together.into_iter().map(rule).collect();
    rules.sort_by(|a, b| (&a.api_groups, &a.resources).cmp(&(&b.api_groups, &b.resources)));
    rules
}

fn values(rules: &[PolicyRule]) -> Vec<Value> {
    rules.iter().map(PolicyRule::to_value).collect()
}

/// Formats a list as `["a", "b"]`, which is valid YAML.
fn list(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|it| format!("{it:?}")).collect();
    format!("[{}]", items.join(", "))
}

/// Formats a rule as one line of YAML.
fn line(rule: &PolicyRule) -> String {
    let fields = [
        ("apiGroups", &rule.api_groups),
        ("resources", &rule.resources),
        ("resourceNames", &rule.resource_names),
        ("nonResourceURLs", &rule.non_resource_urls),
        ("verbs", &rule.verbs),
    ];
    let filled = fields.into_iter().filter(|(_, items)| !items.is_empty());
    let fields: Vec<String> = filled.map(|(name, items)| format!("{name}: {}", list(items))).collect();
    format!("{{{}}}", fields.join(", "))
}
