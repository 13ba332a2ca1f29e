//! Sets each leaf of an object with many fields to unusual values. For all kinds, the response must not be an internal
//! error, and a refused write must not change anything.

use axum::body::Body;
use fake_apiserver::ApiServer;
use http_body_util::BodyExt as _;
use rstest::rstest;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::recording::{Recording, Variables};
use crate::{TOKEN, set_up, start};

/// Interval at which changes are tried, because trying all of them takes minutes.
const STRIDE: usize = 151;

/// Maximum size of an object, in bytes. The time for all leaves of an object grows quadratically.
const MOST_BYTES: usize = 8 << 10;

/// Unusual values of any type.
fn odd_values() -> Vec<Value> {
    vec![
        json!(""),
        json!("Odd"),
        json!("-a_B."),
        json!("\u{0}\u{a0}\u{1f600}"),
        json!("x".repeat(300)),
        json!(0),
        json!(-1),
        json!(i64::from(i32::MAX) + 1),
        json!(i64::MIN),
        json!(1.5),
        json!(true),
        Value::Null,
        json!([]),
        json!({}),
        json!(["a", "a"]),
        json!([{}, {}]),
        json!({"": "", "a/b/c": "-"}),
    ]
}

/// Collects the paths of a value and of all values below it, without managed fields.
fn ways(value: &Value, way: &str, found: &mut Vec<String>) {
    if way == "/metadata/managedFields" {
        return;
    }
    found.push(way.to_owned());
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let key = key.replace('~', "~0").replace('/', "~1");
                ways(value, &format!("{way}/{key}"), found);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                ways(value, &format!("{way}/{index}"), found);
            }
        }
        _ => {}
    }
}

async fn send(server: &ApiServer, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("authorization", format!("Bearer {TOKEN}"))
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()));
    let Ok(answer) = server.service().oneshot(request.expect("the request is valid")).await;
    let code = answer.status().as_u16();
    let body = answer
        .into_body()
        .collect()
        .await
        .expect("the response body arrives completely");
    (code, serde_json::from_slice(&body.to_bytes()).unwrap_or_default())
}

#[rstest]
#[case::cron_jobs("cronjobs")]
#[case::daemon_sets("daemonsets")]
#[case::deployments("deployments")]
#[case::jobs("jobs")]
#[case::pods("pods")]
#[case::pod_templates("podtemplates")]
#[case::replica_sets("replicasets")]
#[case::replication_controllers("replicationcontrollers")]
#[case::stateful_sets("statefulsets")]
#[tokio::test(start_paused = true)]
async fn replacing_any_leaf_does_not_break_the_server(
    #[case] file: &str,
    #[values("create", "update", "status")] way: &str,
) {
    if (file, way) == ("podtemplates", "status") {
        return;
    }
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential/requests");
    let recording = Recording::read(&folder.join(format!("{file}.jsonl.gz")));
    let server = start(&recording.options);
    let mut variables = Variables::default();
    for step in &recording.setup {
        set_up(&server, step, &mut variables).await;
    }
    let size = |body: &Option<String>| body.as_deref().map_or(0, str::len);
    let case = recording
        .cases
        .iter()
        .filter(|it| it.name.starts_with("create/") && it.answer.status == 201)
        .filter(|it| size(&it.request.body) < MOST_BYTES)
        .max_by_key(|it| size(&it.request.body))
        .expect("the recordings have an accepted create");
    let body = variables.fill(case.request.body.as_deref().expect("the request has a body"));
    let object: Value = serde_json::from_str(&body).expect("the text is valid JSON");
    let collection = variables.fill_path(&case.request.path);
    let collection = collection.split('?').next().expect("the request has a path").to_owned();
    let name = object["metadata"]["name"].as_str().expect("the name is a string");
    let object_path = format!("{collection}/{name}");
    let (method, path, base) = if way == "create" {
        ("POST", format!("{collection}?dryRun=All"), object)
    } else {
        let (code, mut made) = send(&server, "POST", &collection, &object).await;
        assert_eq!(code, 201, "{made}");
        made["metadata"]
            .as_object_mut()
            .expect("the metadata is an object")
            .remove("resourceVersion");
        let suffix = if way == "update" { "" } else { "/status" };
        ("PUT", format!("{object_path}{suffix}"), made)
    };
    let mut all = Vec::new();
    ways(&base, "", &mut all);
    let odd = odd_values();
    let changes = all.iter().flat_map(|leaf| odd.iter().map(move |value| (leaf, value)));
    let mut stored = send(&server, "GET", &object_path, &Value::Null).await;
    for (leaf, value) in changes.step_by(STRIDE) {
        let mut changed = base.clone();
        *changed.pointer_mut(leaf).expect("the field exists") = value.clone();
        let (code, answer) = send(&server, method, &path, &changed).await;
        assert!(code < 500, "{leaf} = {value}: {answer}");
        let now = send(&server, "GET", &object_path, &Value::Null).await;
        if code >= 400 || way == "create" {
            assert_eq!(stored, now, "{leaf} = {value}: {answer}");
        }
        stored = now;
    }
}
