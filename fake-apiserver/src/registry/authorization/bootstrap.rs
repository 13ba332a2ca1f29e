//! The ClusterRoles and bindings that are there before the first client: those that people, kubectl and tests use.
//! Those of Kubernetes' own components are not.

use serde_json::{Map, Value, json};

use super::GROUP;
use crate::api::rbac::PolicyRule;

const READ: &str = "get list watch";
const WRITE: &str = "create delete deletecollection patch update";
const ALL: &str = "create delete deletecollection get list patch update watch";

/// A rule: verbs, the API group, and resources, separated by spaces.
type Rule = (&'static str, &'static str, &'static str);

/// The label by which a ClusterRole is gathered into `admin`, `edit` or `view`.
const AGGREGATE_TO: &str = "rbac.authorization.k8s.io/aggregate-to-";

/// ClusterRoles whose rules are gathered: the name, and what it is itself gathered into.
const AGGREGATED: [(&str, &str); 3] = [("admin", ""), ("edit", "admin"), ("view", "edit")];

/// ClusterRoles about resources: the name, what they are gathered into, and the rules.
const ROLES: [(&str, &str, &[Rule]); 5] = [
    (
        "system:aggregate-to-admin",
        "admin",
        &[
            ("create", "authorization.k8s.io", "localsubjectaccessreviews"),
            (ALL, GROUP, "rolebindings roles"),
        ],
    ),
    (
        "system:aggregate-to-edit",
        "edit",
        &[
            (
                READ,
                "",
                "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy",
            ),
            ("impersonate", "", "serviceaccounts"),
            (WRITE, "", "pods pods/attach pods/exec pods/portforward pods/proxy"),
            ("create", "", "pods/eviction"),
            (
                WRITE,
                "",
                "configmaps events persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets \
                 serviceaccounts services services/proxy",
            ),
            ("create", "", "serviceaccounts/token"),
            (
                WRITE,
                "apps",
                "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale \
                 statefulsets statefulsets/scale",
            ),
            (WRITE, "autoscaling", "horizontalpodautoscalers"),
            (WRITE, "batch", "cronjobs jobs"),
            (
                WRITE,
                "extensions",
                "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies replicasets \
                 replicasets/scale replicationcontrollers/scale",
            ),
            (WRITE, "policy", "poddisruptionbudgets"),
            (WRITE, "networking.k8s.io", "ingresses networkpolicies"),
            (ALL, "coordination.k8s.io", "leases"),
            (WRITE, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
        ],
    ),
    (
        "system:aggregate-to-view",
        "view",
        &[
            (
                READ,
                "",
                "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers \
                 replicationcontrollers/scale serviceaccounts services services/status",
            ),
            (
                READ,
                "",
                "bindings events limitranges namespaces/status pods/log pods/status replicationcontrollers/status \
                 resourcequotas resourcequotas/status",
            ),
            (READ, "", "namespaces"),
            (READ, "discovery.k8s.io", "endpointslices"),
            (
                READ,
                "apps",
                "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status \
                 replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status",
            ),
            (
                READ,
                "autoscaling",
                "horizontalpodautoscalers horizontalpodautoscalers/status",
            ),
            (READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
            (
                READ,
                "extensions",
                "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses \
                 ingresses/status networkpolicies replicasets replicasets/scale replicasets/status \
                 replicationcontrollers/scale",
            ),
            (READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
            (READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
            (
                READ,
                "resource.k8s.io",
                "resourceclaims resourceclaims/status resourceclaimtemplates",
            ),
        ],
    ),
    (
        "system:auth-delegator",
        "",
        &[
            ("create", "authentication.k8s.io", "tokenreviews"),
            ("create", "authorization.k8s.io", "subjectaccessreviews"),
        ],
    ),
    (
        "system:basic-user",
        "",
        &[
            (
                "create",
                "authorization.k8s.io",
                "selfsubjectaccessreviews selfsubjectrulesreviews",
            ),
            ("create", "authentication.k8s.io", "selfsubjectreviews"),
        ],
    ),
];

/// ClusterRoles about paths, which are only read.
const PATHS: [(&str, &str); 4] = [
    (
        "system:discovery",
        "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/",
    ),
    (
        "system:monitoring",
        "/healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/*",
    ),
    (
        "system:public-info-viewer",
        "/healthz /livez /readyz /version /version/",
    ),
    (
        "system:service-account-issuer-discovery",
        "/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/",
    ),
];

/// ClusterRoleBindings, each named as its ClusterRole, and the groups they are for.
const BINDINGS: [(&str, &[&str]); 6] = [
    ("cluster-admin", &["system:masters"]),
    ("system:basic-user", &["system:authenticated"]),
    ("system:discovery", &["system:authenticated"]),
    ("system:monitoring", &["system:monitoring"]),
    (
        "system:public-info-viewer",
        &["system:authenticated", "system:unauthenticated"],
    ),
    ("system:service-account-issuer-discovery", &["system:serviceaccounts"]),
];

/// All of them, ready to be stored.
pub(crate) fn objects() -> Vec<Value> {
    let mut objects = vec![role("cluster-admin", "", &PolicyRule::everything())];
    for (name, urls) in PATHS {
        objects.push(role(name, "", &[PolicyRule::paths(["get"], urls.split(' '))]));
    }
    for (name, into, rules) in ROLES {
        let rule =
            |(verbs, group, resources): &Rule| PolicyRule::resources(verbs.split(' '), [*group], resources.split(' '));
        let rules: Vec<PolicyRule> = rules.iter().map(rule).collect();
        objects.push(role(name, into, &rules));
    }
    for (name, into) in AGGREGATED {
        let mut aggregated = role(name, into, &[]);
        aggregated["aggregationRule"] = json!({
            "clusterRoleSelectors": [{"matchLabels": {format!("{AGGREGATE_TO}{name}"): "true"}}],
        });
        objects.push(aggregated);
    }
    for (name, groups) in BINDINGS {
        let subject = |group: &&str| json!({"apiGroup": GROUP, "kind": "Group", "name": group});
        objects.push(json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata(name, ""),
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
            "subjects": groups.iter().map(subject).collect::<Vec<_>>(),
        }));
    }
    objects
}

fn role(name: &str, into: &str, rules: &[PolicyRule]) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole", "metadata": metadata(name, into),
        "rules": rules.iter().map(PolicyRule::to_value).collect::<Vec<_>>(),
    })
}

fn metadata(name: &str, into: &str) -> Value {
    let mut labels = Map::new();
    labels.insert("kubernetes.io/bootstrapping".into(), "rbac-defaults".into());
    if !into.is_empty() {
        labels.insert(format!("{AGGREGATE_TO}{into}"), "true".into());
    }
    json!({
        "name": name, "labels": labels, "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    })
}
