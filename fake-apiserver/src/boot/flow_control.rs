//! Priority levels and FlowSchemas that exist from the start: the mandatory and the suggested objects of
//! `k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap`.

use serde_json::{Value, json};

/// The field manager that kube-apiserver uses for these objects.
pub(super) const MANAGER: &str = "api-priority-and-fairness-config-producer-v1";

/// Name, shares, queues with their hand size, and lendable percentage of a priority level.
type Level = (&'static str, u32, Option<(u32, u32)>, u32);

const LEVELS: [Level; 7] = [
    ("catch-all", 5, None, 0),
    ("global-default", 20, Some((128, 6)), 50),
    ("leader-election", 10, Some((16, 4)), 0),
    ("node-high", 40, Some((64, 6)), 25),
    ("system", 30, Some((64, 6)), 33),
    ("workload-high", 40, Some((128, 6)), 50),
    ("workload-low", 100, Some((128, 6)), 90),
];

/// Name, priority level, precedence, distinguisher (may be empty) and subjects of a FlowSchema.
type Schema = (&'static str, &'static str, u32, &'static str, &'static [Subject]);

/// Subject of a FlowSchema.
#[derive(Clone, Copy)]
enum Subject {
    Group(&'static str),
    User(&'static str),
    /// All ServiceAccounts of a namespace.
    Accounts(&'static str),
}

const EVERYONE: &[Subject] = &[
    Subject::Group("system:unauthenticated"),
    Subject::Group("system:authenticated"),
];
const CONTROLLERS: Subject = Subject::User("system:kube-controller-manager");
const SCHEDULER: Subject = Subject::User("system:kube-scheduler");
const NODES: &[Subject] = &[Subject::Group("system:nodes")];

const SCHEMAS: [Schema; 11] = [
    ("catch-all", "catch-all", 10_000, "ByUser", EVERYONE),
    ("exempt", "exempt", 1, "", &[Subject::Group("system:masters")]),
    ("global-default", "global-default", 9_900, "ByUser", EVERYONE),
    (
        "kube-controller-manager",
        "workload-high",
        800,
        "ByNamespace",
        &[CONTROLLERS],
    ),
    ("kube-scheduler", "workload-high", 800, "ByNamespace", &[SCHEDULER]),
    (
        "kube-system-service-accounts",
        "workload-high",
        900,
        "ByNamespace",
        &[Subject::Accounts("kube-system")],
    ),
    ("probes", "exempt", 2, "", EVERYONE),
    (
        "service-accounts",
        "workload-low",
        9_000,
        "ByUser",
        &[Subject::Group("system:serviceaccounts")],
    ),
    (
        "system-leader-election",
        "leader-election",
        100,
        "ByUser",
        &[CONTROLLERS, SCHEDULER, Subject::Accounts("kube-system")],
    ),
    ("system-node-high", "node-high", 400, "ByUser", NODES),
    ("system-nodes", "system", 500, "ByUser", NODES),
];

/// Returns all initial objects, priority levels first.
pub(super) fn objects() -> Vec<Value> {
    let exempt = json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}});
    let levels = LEVELS.map(|level| object("PriorityLevelConfiguration", level.0, &limited(level)));
    let mut objects = vec![object("PriorityLevelConfiguration", "exempt", &exempt)];
    objects.extend(levels);
    objects.extend(SCHEMAS.map(|schema| object("FlowSchema", schema.0, &flow(schema))));
    objects
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": kind, "spec": spec,
        "metadata": {"name": name, "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}},
    })
}

fn limited((_, shares, queues, lent): Level) -> Value {
    let response = match queues {
        None => json!({"type": "Reject"}),
        Some((queues, hand)) => {
            json!({"type": "Queue", "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": 50}})
        }
    };
    json!({
        "type": "Limited",
        "limited": {"nominalConcurrencyShares": shares, "limitResponse": response, "lendablePercent": lent},
    })
}

fn flow((name, level, precedence, distinguisher, subjects): Schema) -> Value {
    let leases = |verbs: &[&str]| {
        json!({
            "verbs": verbs, "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "namespaces": ["*"],
        })
    };
    let resources = |group: &str, resources: &[&str]| {
        json!({
            "verbs": ["*"], "apiGroups": [group], "resources": resources, "clusterScope": true, "namespaces": ["*"],
        })
    };
    let mut rule = json!({"subjects": subjects.iter().copied().map(subject).collect::<Vec<_>>()});
    match name {
        "probes" => {
            let paths = ["/healthz", "/readyz", "/livez"];
            rule["nonResourceRules"] = json!([{"verbs": ["get"], "nonResourceURLs": paths}]);
        }
        "system-leader-election" => rule["resourceRules"] = json!([leases(&["get", "create", "update"])]),
        "system-node-high" => {
            rule["resourceRules"] = json!([resources("", &["nodes", "nodes/status"]), leases(&["*"])]);
        }
        _ => {
            rule["resourceRules"] = json!([resources("*", &["*"])]);
            rule["nonResourceRules"] = json!([{"verbs": ["*"], "nonResourceURLs": ["*"]}]);
        }
    }
    let mut spec = json!({
        "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": [rule],
    });
    if !distinguisher.is_empty() {
        spec["distinguisherMethod"] = json!({"type": distinguisher});
    }
    spec
}

fn subject(of: Subject) -> Value {
    match of {
        Subject::Group(name) => json!({"kind": "Group", "group": {"name": name}}),
        Subject::User(name) => json!({"kind": "User", "user": {"name": name}}),
        Subject::Accounts(namespace) => {
            json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": "*"}})
        }
    }
}
