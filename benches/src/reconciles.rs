//! Measures controllers with both libraries, with the same work on the same server.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use informer::ObjectKey;
use informer::cache::SharedInformerFactory;
use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::Controller;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::controller::{Action as PeerAction, Config as PeerConfig, applier};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::{Controller as PeerController, watcher};
use kube::{Api, Client};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::measure::cpu_time;
use crate::mirror::{Mirror, added};
use crate::requests::runtime;

/// Library of the measured controller.
#[derive(Clone, Copy, Debug)]
pub enum Peer {
    /// This crate's informer.
    Informer,
    /// The controller of kube-runtime.
    KubeRuntime,
}

/// Function that each reconcile calls.
type Work = Arc<dyn Fn() + Send + Sync>;

/// Returns a function that counts its calls, and a notification at call `count`.
fn countdown(count: usize) -> (Work, Arc<Notify>) {
    let (left, all) = (AtomicUsize::new(count), Arc::new(Notify::new()));
    let reached = Arc::clone(&all);
    let work = move || {
        if left.fetch_sub(1, Ordering::Relaxed) == 1 {
            reached.notify_one();
        }
    };
    (Arc::new(work), all)
}

/// Starts a controller of Pods with reconciles that only call `work`.
fn spawn_noop(peer: Peer, client: &Client, work: Work) {
    match peer {
        Peer::Informer => {
            let factory = SharedInformerFactory::new(client.clone());
            let controller = Controller::builder("noop", &factory)
                .for_::<Pod>()
                .build(move |_: Request| {
                    work();
                    std::future::ready(Ok::<_, ReconcileError>(Action::await_change()))
                });
            tokio::spawn(
                controller
                    .expect("the controller is complete")
                    .run(CancellationToken::new()),
            );
        }
        Peer::KubeRuntime => {
            let pods: Api<Pod> = Api::all(client.clone());
            let controller = PeerController::new(pods, watcher::Config::default()).run(
                move |_, _| {
                    work();
                    std::future::ready(Ok::<_, kube::Error>(PeerAction::await_change()))
                },
                |_, _, _| PeerAction::await_change(),
                Arc::new(()),
            );
            tokio::spawn(controller.for_each(|_| async {}));
        }
    }
}

/// Measures the CPU time from the start of a controller until each of `count` Pods was reconciled.
pub fn first_list(peer: Peer, count: usize) -> Duration {
    let mirror = Mirror::new(count);
    runtime().block_on(async {
        let (work, all) = countdown(count);
        let start = cpu_time();
        spawn_noop(peer, &mirror.client(), work);
        all.notified().await;
        cpu_time() - start
    })
}

/// Measures the CPU time of reconciling `count` queued keys with this concurrency, without a cache.
pub fn queued(peer: Peer, count: usize, concurrency: usize) -> Duration {
    match peer {
        Peer::Informer => runtime().block_on(queued_ours(count, concurrency)),
        Peer::KubeRuntime => runtime().block_on(queued_theirs(count, concurrency)),
    }
}

async fn queued_ours(count: usize, concurrency: usize) -> Duration {
    let factory = SharedInformerFactory::new(Mirror::new(0).client());
    let (work, all) = countdown(count);
    let controller = Controller::builder("queued", &factory)
        .source(|_, stop| async move { stop.cancelled().await })
        .concurrency(concurrency)
        .build(move |_: Request| {
            work();
            std::future::ready(Ok::<_, ReconcileError>(Action::await_change()))
        })
        .expect("the controller is complete");
    let queue = controller.queue();
    let keys: Vec<_> = (0..count)
        .map(|at| ObjectKey::new("shop", &format!("web-{at}")))
        .collect();
    let start = cpu_time();
    for key in keys {
        queue.add(key);
    }
    tokio::spawn(controller.run(CancellationToken::new()));
    all.notified().await;
    cpu_time() - start
}

/// Same as `queued`, for kube-runtime. kube-runtime's applier passes objects from its store to the reconciler, so the
/// store contains an object for each key.
async fn queued_theirs(count: usize, concurrency: usize) -> Duration {
    let (store, mut writer) = reflector::store::<Pod>();
    let mut keys = Vec::with_capacity(count);
    for at in 0..count {
        let mut pod = Pod::default();
        pod.metadata.name = Some(format!("web-{at}"));
        pod.metadata.namespace = Some("shop".to_owned());
        keys.push(Ok::<_, Infallible>(ObjectRef::from_obj(&pod)));
        writer.apply_watcher_event(&watcher::Event::Apply(pod));
    }
    writer.apply_watcher_event(&watcher::Event::InitDone);
    let config = PeerConfig::default().concurrency(u16::try_from(concurrency).unwrap_or_default());
    let start = cpu_time();
    let applied = applier(
        |_, _| std::future::ready(Ok::<_, kube::Error>(PeerAction::await_change())),
        |_, _: &kube::Error, _| PeerAction::await_change(),
        Arc::new(()),
        store,
        // The applier ends at the end of the stream, even if keys are still queued.
        futures::stream::iter(keys).chain(futures::stream::pending()),
        config,
    );
    let done = applied.take(count).count().await;
    assert_eq!(done, count);
    cpu_time() - start
}

/// Measures the time from the arrival of an event until the reconcile begins, with the real clock, `times` times.
pub fn event_to_reconcile(peer: Peer, times: usize) -> Vec<Duration> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let mirror = Mirror::new(1);
    runtime.expect("the runtime can be built").block_on(async {
        let (sender, mut called) = mpsc::unbounded_channel();
        // The receiver is dropped after the last event.
        let work = move || {
            let _ = sender.send(Instant::now());
        };
        spawn_noop(peer, &mirror.client(), Arc::new(work));
        called.recv().await.expect("the controller runs");
        let mut waits = Vec::new();
        for at in 0..times {
            let line = added(at + 1, at as u64 + 2);
            let came = Instant::now();
            mirror.push(vec![line]);
            let at = called.recv().await.expect("the controller runs");
            waits.push(at.saturating_duration_since(came));
        }
        waits
    })
}
