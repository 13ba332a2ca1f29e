//! 5,000 Pods owned by 500 ReplicaSets owned by 50 Deployments: CPU time, wall time, requests and peak memory of
//! rolling them out, and of deleting them in the background and in the foreground.
//!
//! `cargo run --release -p fake-apiserver --example workloads_load [DEPLOYMENTS]`

#![allow(clippy::print_stdout, reason = "it prints what it measured")]

use std::time::Duration;

use bytes::Bytes;
use fake_apiserver::{ApiServer, Worker};
use http::Request;
use serde_json::{Value, json};
use tokio::time::sleep;

/// ReplicaSets of each Deployment.
const SETS: usize = 10;
/// Pods of each ReplicaSet.
const PODS: usize = 10;

type Anything<T = ()> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Anything {
    let deployments = std::env::args().nth(1).map_or(Ok(50), |it| it.parse())?;
    println!(
        "{deployments} Deployments, {} ReplicaSets, {} Pods",
        deployments * SETS,
        deployments * SETS * PODS
    );
    for policy in ["Background", "Foreground"] {
        // Each measurement has its own runtime, and thus its own clock.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()?;
        runtime.block_on(measure(deployments, policy))?;
    }
    Ok(())
}

async fn measure(deployments: usize, policy: &str) -> Anything {
    let server = ApiServer::builder().workers(Worker::ALL).start();
    sleep(Duration::from_secs(1)).await;

    let rolled_out = Measured::begin(&server);
    for number in 0..deployments {
        let name = format!("app-{number:03}");
        let path = "/apis/apps/v1/namespaces/default/deployments";
        let made = send(&server, "POST", path, &deployment(&name)).await?;
        for revision in 0..SETS {
            let set = replica_set(&name, revision, &made["metadata"]["uid"]);
            send(&server, "POST", "/apis/apps/v1/namespaces/default/replicasets", &set).await?;
        }
    }
    while ready(&server).await? < deployments * SETS * PODS {
        sleep(Duration::from_secs(1)).await;
    }
    rolled_out.tell("all ready", &server);

    let deleted = Measured::begin(&server);
    let path = format!("/apis/apps/v1/namespaces/default/deployments?propagationPolicy={policy}");
    send(&server, "DELETE", &path, &Value::Null).await?;
    while left(&server).await? > 0 {
        sleep(Duration::from_secs(1)).await;
    }
    deleted.tell(&format!("all deleted, {policy}"), &server);
    Ok(())
}

/// The start of a measurement.
struct Measured {
    wall: std::time::Instant,
    virtual_time: tokio::time::Instant,
    cpu: Duration,
    requests: u64,
}

impl Measured {
    #[expect(clippy::disallowed_methods, reason = "wall time is what it measures")]
    fn begin(server: &ApiServer) -> Self {
        // Resets the peak memory, if the system supports it.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        Self {
            wall: std::time::Instant::now(),
            virtual_time: tokio::time::Instant::now(),
            cpu: cpu_time(),
            requests: server.journal().total(),
        }
    }

    fn tell(&self, what: &str, server: &ApiServer) {
        println!(
            "{what}: CPU {:.3} s, wall {:.3} s, virtual {} s, {} requests, at most {} MiB",
            cpu_time().saturating_sub(self.cpu).as_secs_f64(),
            self.wall.elapsed().as_secs_f64(),
            self.virtual_time.elapsed().as_secs(),
            server.journal().total() - self.requests,
            resident(),
        );
    }
}

/// Counts the objects that are not yet deleted.
async fn left(server: &ApiServer) -> Anything<usize> {
    let mut count = 0;
    for (api_version, kind) in [("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet"), ("v1", "Pod")] {
        count += server.list(api_version, kind, "").await?.len();
    }
    Ok(count)
}

/// Returns the CPU time of this thread, which does all the work; 0 if it cannot be read.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|it| it.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// Returns a paused Deployment, which does not change its ReplicaSets.
fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": SETS * PODS, "paused": true, "selector": {"matchLabels": {"app": name}},
            "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}, "template": template(name, 0),
        },
    })
}

fn replica_set(name: &str, revision: usize, owner: &Value) -> Value {
    let reference = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": owner, "controller": true,
        "blockOwnerDeletion": true,
    });
    let template = template(name, revision);
    let labels = &template["metadata"]["labels"];
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": format!("{name}-{revision}"), "labels": labels, "ownerReferences": [reference]},
        "spec": {"replicas": PODS, "selector": {"matchLabels": labels}, "template": template},
    })
}

fn template(name: &str, revision: usize) -> Value {
    json!({
        "metadata": {"labels": {"app": name, "revision": revision.to_string()}},
        "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
    })
}

async fn ready(server: &ApiServer) -> Anything<usize> {
    let sets = server.list("apps/v1", "ReplicaSet", "").await?;
    let ready = sets
        .iter()
        .filter_map(|it| it["status"]["readyReplicas"].as_u64())
        .sum::<u64>();
    Ok(usize::try_from(ready)?)
}

async fn send(server: &ApiServer, method: &str, path: &str, body: &Value) -> Anything<Value> {
    let body = if body.is_null() {
        Bytes::new()
    } else {
        body.to_string().into()
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(body)?;
    let answer = server.call(request).await;
    if !answer.status().is_success() {
        return Err(String::from_utf8_lossy(answer.body()).into_owned().into());
    }
    Ok(serde_json::from_slice(answer.body())?)
}

/// Returns the peak memory of the process so far, in MiB; 0 if it cannot be read.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|it| it.trim().strip_suffix(" kB")?.trim().parse::<usize>().ok());
    kilobytes.unwrap_or(0) / 1024
}
