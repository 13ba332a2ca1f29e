//! Measures the memory of a server whose objects change for half an hour. Prints lines of the form `minutes TAB bytes`:
//! the memory in use after this number of minutes. `churn objects` changes 425 objects; `churn workers` repeatedly
//! rolls out 40 Pods.
//!
//! The server has the default limits of the command with `--control`. The minutes are virtual; the memory is the memory
//! of the process.

#![expect(clippy::print_stdout, reason = "the growth program reads it")]

use std::time::Duration;

use benches::measure::scaled;
use benches::objects;
use benches::requests::runtime;
use fake_apiserver::{ApiServer, ApiServerBuilder, Worker};
use http::Request;
use serde_json::{Value, json};
use tokio::time::sleep;

/// Number of writes per second in `objects`.
const WRITES: usize = 20;
/// Seconds between rollouts in `workers`.
const ROLLOUT: usize = 30;

fn main() {
    let minutes = scaled(30, 1);
    let runtime = runtime();
    match std::env::args().nth(1).as_deref() {
        Some("objects") => runtime.block_on(change_objects(minutes)),
        Some("workers") => runtime.block_on(roll_out(minutes)),
        other => panic!("expected churn objects or churn workers, found {other:?}"),
    }
}

/// Returns a builder for a server with the limits of the command.
fn bounded() -> ApiServerBuilder {
    ApiServer::builder()
        .history_bytes(16 << 20)
        .journal_capacity(16_384)
        .journal_bytes(8 << 20)
}

/// Patches or recreates 300 ConfigMaps, 25 custom resources and 100 Pods of 5 KB, one after the other.
async fn change_objects(minutes: usize) {
    let server = bounded().start();
    server
        .load([objects::definition("widgets", "Widget")])
        .expect("the objects are loaded");
    let maps = (0..300).map(|at| objects::config_map(&format!("map-{at}")));
    let widgets = (0..25).map(|at| objects::widget(&format!("widget-{at}")));
    let pods = (0..100).map(|at| objects::running_pod(&format!("pod-{at}")));
    server
        .load(maps.chain(widgets).chain(pods))
        .expect("the objects are loaded");
    let mut made = 0;
    for minute in 1..=minutes {
        for second in 0..60 {
            for at in 0..WRITES {
                made += 1;
                let change = json!({"metadata": {"annotations": {"changed": made.to_string()}}});
                let path = match at % 4 {
                    0 => format!("/api/v1/namespaces/default/pods/pod-{}", made / 4 % 100),
                    1 if second % 12 == 0 => format!(
                        "/apis/bench.example.com/v1/namespaces/default/widgets/widget-{}",
                        made / 4 % 25
                    ),
                    _ => format!("/api/v1/namespaces/default/configmaps/map-{}", made % 300),
                };
                send(&server, "PATCH", &path, &change).await;
            }
            let name = format!("map-{}", made % 300);
            let all = "/api/v1/namespaces/default/configmaps";
            send(&server, "DELETE", &format!("{all}/{name}"), &Value::Null).await;
            send(&server, "POST", all, &objects::config_map(&name)).await;
            sleep(Duration::from_secs(1)).await;
        }
        println!("{minute}\t{}", resident());
    }
}

/// Changes the template of a Deployment with 40 Pods every half minute.
async fn roll_out(minutes: usize) {
    let server = bounded().workers(Worker::ALL).start();
    let all = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "app"},
        "spec": {
            "replicas": 40, "selector": {"matchLabels": {"app": "app"}},
            "template": {
                "metadata": {"labels": {"app": "app"}},
                "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
            },
        },
    });
    send(&server, "POST", all, &deployment).await;
    for minute in 1..=minutes {
        for second in 0..60 {
            if second % ROLLOUT == 0 {
                let at = minute * 60 + second;
                let change = json!({"spec": {"template": {"metadata": {"annotations": {"at": at.to_string()}}}}});
                send(&server, "PATCH", &format!("{all}/app"), &change).await;
            }
            sleep(Duration::from_secs(1)).await;
        }
        println!("{minute}\t{}", resident());
    }
    let pods = server.list("v1", "Pod", "").await.expect("the list succeeds");
    assert!(pods.len() >= 40, "{} Pods", pods.len());
}

async fn send(server: &ApiServer, method: &str, path: &str, body: &Value) {
    let content_type = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .body(body)
        .expect("the request is valid");
    let answer = server.call(request).await;
    assert!(answer.status().is_success(), "{method} {path}: {:?}", answer.body());
}

/// Returns the resident memory of the process in bytes; 0 if the system does not report it.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|it| it.trim().strip_suffix(" kB")?.trim().parse::<usize>().ok());
    kilobytes.unwrap_or(0) * 1024
}
