//! CPU time and memory from the start of a manager over 100,000 Pods to its first reconcile, and the same for a
//! controller of kube-runtime. `PODS` sets the number.
//!
//! It is a separate program because counting memory slows down every allocation: compare only times of the same run.

#![expect(clippy::print_stdout, reason = "it prints its figures")]

use std::sync::Arc;
use std::time::Duration;

use benches::counting::{Counting, measured};
use benches::measure::cpu_time;
use benches::mirror::{Mirror, pod_text};
use benches::requests::runtime;
use futures::StreamExt;
use informer::Storage;
use informer::cache::{ByObject, ReflectorOptions};
use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::Manager;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{Controller, controller, watcher};
use kube::{Api, Client};
use tokio::sync::Notify;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs a manager until its controller is called for the first time.
async fn ours(client: Client, storage: Storage, strips: bool) -> Result<Manager, informer::Error> {
    let pods = ByObject::<Pod>::new().informer(move |pods| {
        // The source has encoded its list and does not stream.
        let mut options = ReflectorOptions::default();
        options.streaming_lists = false;
        let pods = pods.reflector(options).storage(storage);
        if strips { pods.strip_managed_fields() } else { pods }
    });
    let manager = Manager::builder(client).cache(|cache| cache.by_object(pods))?.build()?;
    let first = Arc::new(Notify::new());
    let called = Arc::clone(&first);
    manager.controller("pods").for_::<Pod>().complete(move |_: Request| {
        called.notify_one();
        async { Ok::<_, ReconcileError>(Action::await_change()) }
    })?;
    let running = manager.clone();
    tokio::spawn(async move { running.run(std::future::pending()).await });
    first.notified().await;
    Ok(manager)
}

/// Runs a controller of kube-runtime until it is called for the first time.
async fn kube_runtime(client: Client) {
    let first = Arc::new(Notify::new());
    let reconcile = |_: Arc<Pod>, first: Arc<Notify>| async move {
        first.notify_one();
        Ok::<_, kube::Error>(controller::Action::await_change())
    };
    let policy = |_: Arc<Pod>, _: &kube::Error, _: Arc<Notify>| controller::Action::requeue(Duration::from_secs(5));
    let running = Controller::new(Api::<Pod>::all(client), watcher::Config::default())
        .with_config(controller::Config::default().concurrency(1))
        .run(reconcile, policy, Arc::clone(&first))
        .for_each(|_| async {});
    tokio::spawn(running);
    first.notified().await;
}

fn row<T>(name: &str, pods: usize, start: impl Future<Output = T>, runtime: &tokio::runtime::Runtime) {
    let began = cpu_time();
    let (held, peak, started) = measured(|| runtime.block_on(start));
    let time = (cpu_time() - began).as_secs_f64();
    let (held, peak) = (held / pods, peak / pods);
    println!("{name:<28} {time:>8.2} s of CPU {held:>8} bytes a Pod held {peak:>8} at most");
    drop(started);
}

fn main() {
    let asked = std::env::var("PODS").ok();
    let pods = asked.and_then(|it| it.parse().ok()).unwrap_or(100_000);
    println!(
        "{pods} Pods of {} bytes, from start to the first reconcile",
        pod_text(0, 1).len()
    );
    let mirror = Mirror::new(pods);
    let cases = [
        ("encoded", Storage::Encoded, false),
        ("encoded, managedFields cut", Storage::Encoded, true),
        ("typed, managedFields cut", Storage::Typed, true),
    ];
    for (name, storage, strips) in cases {
        // Its tasks, and with them its cache, end with the runtime.
        let runtime = runtime();
        let _entered = runtime.enter();
        row(name, pods, ours(mirror.client(), storage, strips), &runtime);
    }
    let runtime = runtime();
    let _entered = runtime.enter();
    row("kube-runtime", pods, kube_runtime(mirror.client()), &runtime);
}
