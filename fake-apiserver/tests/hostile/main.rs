//! The server handles every request as Kubernetes does: it never panics, never returns 500, and keeps its state.
//! `HOSTILE_TIMES=50` multiplies the number of random inputs by 50.

mod ask;
mod bounds;
mod mutation;
#[path = "../conformance/scenario.rs"]
#[allow(dead_code, reason = "the conformance tests use the rest")]
mod scenario;
mod trial;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use ask::Ask;
use fake_apiserver::ApiServer;
use mutation::{CONTENT_TYPES, Mutation, mutation, text};
use proptest::prelude::*;
use rstest::rstest;
use scenario::{AREAS, Scenario, Variables, is_awaited};
use serde_json::{Value, json};
use trial::{runtime, try_all};

/// Areas with requests that need programs, workers or CEL in addition to a server.
const SPECIAL: [&str; 5] = ["admission", "crd_cel", "kubectl", "workers_gc", "workers_namespace"];

/// Valid requests that are changed at random.
static SCENARIOS: LazyLock<Vec<Scenario>> = LazyLock::new(|| {
    let areas = AREAS.iter().filter(|area| !SPECIAL.contains(area));
    let all = areas.flat_map(|area| Scenario::of_area(area));
    all.filter(|scenario| !scenario.needs_programs()).collect()
});

/// Sends the requests of a scenario, which may depend on earlier responses.
async fn replay(server: &ApiServer, scenario: &Scenario, changes: &[(usize, Mutation)]) -> Result<(), String> {
    let mut variables = Variables::of(&scenario.name);
    Ask::new("POST", "/api/v1/namespaces", "application/json", variables.namespace())
        .check(server)
        .await?;
    let mut collections = BTreeSet::new();
    for (number, step) in scenario.steps.iter().enumerate() {
        let (None, None) = (&step.read, &step.close) else {
            continue;
        };
        if step.path.is_empty() {
            continue;
        }
        let path = variables.fill(&step.path).replace(' ', "%20");
        let content_type = step.content_type.as_deref().unwrap_or("application/json");
        let body = step
            .body
            .as_deref()
            .map(|body| variables.fill_body(body))
            .unwrap_or_default();
        let mut ask = Ask::new(step.method.as_deref().unwrap_or("GET"), &path, content_type, body);
        for (name, value) in &step.headers {
            ask.set_header(
                &name.to_lowercase(),
                &variables.fill(value.as_deref().unwrap_or_default()),
            );
        }
        if ask.method == "POST" {
            collections.insert(path.split('?').next().unwrap_or_default().to_owned());
        }
        for (_, change) in changes.iter().filter(|(at, _)| at % scenario.steps.len() == number) {
            change.apply(&mut ask);
        }
        let mut answer = ask.check(server).await?.json();
        for _ in 0..3 {
            if step
                .until
                .as_ref()
                .is_none_or(|until| is_awaited(&answer, &variables.fill_value(until)))
            {
                break;
            }
            answer = ask.check(server).await?.json();
        }
        variables.capture(&step.capture, &answer);
    }
    for path in collections {
        read_back(server, &path).await?;
    }
    Ok(())
}

/// Reads every stored object in every encoding.
async fn read_back(server: &ApiServer, path: &str) -> Result<(), String> {
    for accept in [
        "application/json",
        "application/yaml",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    ] {
        let mut ask = Ask::get(path);
        ask.set_header("accept", accept);
        ask.check(server).await?;
    }
    let list = Ask::get(path).check(server).await?.json();
    for item in list["items"].as_array().into_iter().flatten() {
        let name = item["metadata"]["name"].as_str().unwrap_or_default();
        let answer = Ask::get(&format!("{path}/{name}")).check(server).await?;
        if answer.code != 200 {
            return Err(format!(
                "{path}/{name} is listed, but cannot be read: {}",
                answer.message()
            ));
        }
    }
    Ask::get(&format!(
        "{path}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"
    ))
    .check(server)
    .await?;
    Ok(())
}

#[test]
fn mutated_requests_do_not_break_the_server() {
    let changes = prop::collection::vec((0_usize..64, mutation()), 1..5);
    try_all(
        600,
        &(0..SCENARIOS.len(), changes),
        |server, (at, changes)| async move { replay(&server, &SCENARIOS[at], &changes).await },
    );
}

/// Returns a pod with many different fields.
fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "labels": {"a": "b"}, "annotations": {"a.b/c": "é\n\u{1f980}"}, "finalizers": ["a.b/c"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]},
        "spec": {
            "containers": [{"name": "c", "image": "i", "args": ["-v", ""], "ports": [{"containerPort": 80}],
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "resources": {"limits": {"cpu": "1.5", "memory": "1Gi"}}, "securityContext": {"runAsUser": 1},
                "livenessProbe": {"httpGet": {"port": "http", "path": "/"}, "periodSeconds": 3},
                "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}, {"name": "w", "configMap": {"name": "x"}}],
            "tolerations": [{"operator": "Exists", "tolerationSeconds": 3, "effect": "NoExecute"}],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "k", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}}]}}
        },
        "status": {"phase": "Running", "startTime": "2020-01-01T00:00:00Z", "conditions": [{"type": "Ready", "status": "True"}]}
    })
}

const PODS: &str = "/api/v1/namespaces/default/pods";

/// All methods and content types for writing the pod `a`.
const WRITES: [(&str, &str, &str); 12] = [
    ("POST", "", "application/json"),
    ("POST", "", "application/yaml"),
    ("PUT", "/a", "application/json"),
    ("PUT", "/a/status", "application/json"),
    ("PATCH", "/a", "application/merge-patch+json"),
    ("PATCH", "/a", "application/strategic-merge-patch+json"),
    ("PATCH", "/a?fieldManager=m&force=1", "application/apply-patch+yaml"),
    ("PATCH", "/new?fieldManager=m", "application/apply-patch+yaml"),
    ("PATCH", "/a/status", "application/strategic-merge-patch+json"),
    ("PATCH", "/a/status", "application/merge-patch+json"),
    (
        "PATCH",
        "/a/status?fieldManager=m&force=1",
        "application/apply-patch+yaml",
    ),
    ("PATCH", "/a", "application/json-patch+json"),
];

async fn create_pod(server: &ApiServer) -> Result<(), String> {
    let answer = Ask::new("POST", PODS, "application/json", pod().to_string())
        .check(server)
        .await?;
    match answer.code {
        201 => Ok(()),
        _ => Err(format!("the pod was not created: {}", answer.message())),
    }
}

#[test]
fn pod_with_random_values_does_not_break_any_write() {
    let changes = prop::collection::vec((any::<u16>(), mutation::value()), 1..3);
    try_all(
        1500,
        &(0..WRITES.len(), changes),
        |server, (write, changes)| async move {
            create_pod(&server).await?;
            let (method, path, content_type) = WRITES[write];
            let mut ask = Ask::new(method, &format!("{PODS}{path}"), content_type, pod().to_string());
            if content_type == "application/json-patch+json" {
                let add =
                    |(key, value): (&String, &Value)| json!({"op": "add", "path": format!("/{key}"), "value": value});
                let whole = pod();
                ask.body = Value::from_iter(whole.as_object().into_iter().flatten().map(add))
                    .to_string()
                    .into();
            }
            for (at, value) in changes {
                Mutation::Replace(at.into(), value).apply(&mut ask);
            }
            ask.check(&server).await?;
            read_back(&server, PODS).await
        },
    );
}

#[rstest]
#[case::create(0)]
#[case::create_from_yaml(1)]
#[case::update(2)]
#[case::merge_patch(4)]
#[case::strategic_patch(5)]
#[case::apply(6)]
fn truncated_body_is_refused(#[case] write: usize) {
    runtime().block_on(async {
        let server = ApiServer::start();
        create_pod(&server).await.expect("the Pod is valid");
        let body = pod().to_string();
        let (method, path, content_type) = WRITES[write];
        for end in 0..body.len() {
            let ask = Ask::new(method, &format!("{PODS}{path}"), content_type, &body.as_bytes()[..end]);
            let answer = ask.check(&server).await.unwrap_or_else(|why| panic!("{end}: {why}"));
            let is_nothing = end == 0 && method == "PATCH";
            assert!(
                is_nothing || (400..500).contains(&answer.code),
                "{end}: {} {}",
                answer.code,
                answer.message()
            );
        }
    });
}

/// Nesting depths that every endpoint must survive.
#[rstest]
fn deeply_nested_body_does_not_break_the_server(
    #[values(100, 200, 9_000, 11_000, 500_000)] depth: usize,
    #[values(
        "application/json",
        "application/yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml"
    )]
    content_type: &str,
) {
    runtime().block_on(async {
        let server = ApiServer::start();
        create_pod(&server).await.expect("the Pod is valid");
        let bodies = [
            "[".repeat(depth),
            "[".repeat(depth) + &"]".repeat(depth),
            "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth),
            format!(
                "{{\"metadata\":{}1{}}}",
                "{\"labels\":".repeat(depth),
                "}".repeat(depth)
            ),
            format!(
                "[{{\"op\":\"add\",\"path\":\"/a\",\"value\":{}{}}}]",
                "[".repeat(depth),
                "]".repeat(depth)
            ),
            format!("[{{\"op\":\"add\",\"path\":\"{}\",\"value\":1}}]", "/a".repeat(depth)),
            "- ".repeat(depth),
            "? ".repeat(depth),
        ];
        for body in bodies {
            let (method, path) = if content_type.contains("patch") {
                ("PATCH", "/a?fieldManager=m")
            } else {
                ("POST", "")
            };
            let ask = Ask::new(method, &format!("{PODS}{path}"), content_type, body);
            ask.check(&server).await.unwrap_or_else(|why| panic!("{why:.2000}"));
        }
    });
}

#[rstest]
fn body_above_the_limit_is_refused_with_413(#[values("POST", "PUT", "PATCH", "DELETE")] method: &str) {
    runtime().block_on(async {
        let server = ApiServer::start();
        create_pod(&server).await.expect("the Pod is valid");
        let path = if method == "POST" {
            PODS.to_owned()
        } else {
            format!("{PODS}/a")
        };
        let body = format!("{{\"a\":\"{}\"}}", "x".repeat(10 * 1024 * 1024));
        let content_type = if method == "PATCH" {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let answer = Ask::new(method, &path, content_type, body)
            .check(&server)
            .await
            .expect("the request is refused");
        assert_eq!(
            (answer.code, answer.message().as_str()),
            (413, "Request entity too large: limit is 3145728")
        );
    });
}

#[test]
fn random_parameters_and_headers_do_not_break_the_server() {
    let pairs = prop::collection::vec(
        prop_oneof![
            4 => mutation().prop_filter("of the head", |it| matches!(it, Mutation::Query(..) | Mutation::Header(..))),
            1 => (any::<usize>(), text()).prop_map(|(at, text)| Mutation::Segment(at, text)),
        ],
        1..6,
    );
    let paths = prop::sample::select(vec![
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/default/pods?watch=true",
        "/api/v1/namespaces/default/pods/a",
        "/api/v1/pods",
        "/api/v1/events?watch=1&resourceVersion=0",
        "/apis/apps/v1/deployments",
        "/api/v1/namespaces/default/pods/a/log",
        "/api",
        "/apis",
        "/apis/apps/v1",
        "/openapi/v2",
        "/openapi/v3/api/v1",
        "/version",
        "/readyz",
        "/",
    ]);
    let methods = prop::sample::select(vec!["GET", "GET", "GET", "HEAD", "DELETE", "POST", "PATCH"]);
    try_all(
        1500,
        &(methods, paths, pairs),
        |server, (method, path, pairs)| async move {
            create_pod(&server).await?;
            let mut ask = Ask::new(method, path, "application/json", "");
            pairs.iter().for_each(|pair| pair.apply(&mut ask));
            ask.check(&server).await.map(drop)
        },
    );
}

#[test]
fn random_bytes_of_every_content_type_do_not_break_the_server() {
    let body = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        prop::collection::vec(any::<u8>(), 0..200).prop_map(|rest| [&b"k8s\0"[..], &rest].concat()),
        text().prop_map(String::into_bytes),
        "[\\[\\]{}:,\"a1\\-\\.e \n#&*!|>?%@`']{0,60}".prop_map(String::into_bytes),
    ];
    let types = prop::sample::select(&CONTENT_TYPES[..]);
    try_all(
        2500,
        &(0..WRITES.len(), types, body),
        |server, (write, content_type, body)| async move {
            create_pod(&server).await?;
            let (method, path, _) = WRITES[write];
            Ask::new(method, &format!("{PODS}{path}"), content_type, body)
                .check(&server)
                .await
                .map(drop)
        },
    );
}
