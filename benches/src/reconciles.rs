//! Controllers of both libraries at the same work, on the same server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fake_apiserver::ApiServer;
use futures::StreamExt;
use informer::ObjectKey;
use informer::cache::SharedInformerFactory;
use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::{Controller, owner_references};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use kube::runtime::controller::Action as PeerAction;
use kube::runtime::{Controller as PeerController, watcher};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::measure::cpu_time;
use crate::objects;
use crate::requests::runtime;

/// Whose controller works.
#[derive(Clone, Copy, Debug)]
pub enum Peer {
    /// Ours.
    Informer,
    /// That of kube-runtime.
    KubeRuntime,
}

/// Starts a controller of ConfigMaps that calls `work` for each and does nothing else.
fn spawn_noop(peer: Peer, client: &Client, work: impl Fn() + Clone + Send + Sync + 'static) {
    match peer {
        Peer::Informer => {
            let factory = SharedInformerFactory::new(client.clone());
            let controller = Controller::builder("noop", &factory)
                .for_::<ConfigMap>()
                .build(move |_: Request| {
                    work();
                    std::future::ready(Ok::<_, ReconcileError>(Action::await_change()))
                })
                .expect("it is complete");
            tokio::spawn(controller.run(CancellationToken::new()));
        }
        Peer::KubeRuntime => {
            let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
            let controller = PeerController::new(maps, watcher::Config::default()).run(
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

async fn create(client: &Client, name: &str) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let map = serde_json::from_value(objects::config_map(name)).expect("a ConfigMap");
    maps.create(&PostParams::default(), &map).await.expect("create");
}

/// CPU time from the start of a controller until each of `count` objects was reconciled.
pub fn first_list(peer: Peer, count: usize) -> Duration {
    runtime().block_on(async {
        let server = ApiServer::start();
        let client = server.client();
        for at in 0..count {
            create(&client, &format!("map-{at}")).await;
        }
        let (done, all) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let start = cpu_time();
        spawn_noop(peer, &client, {
            let all = Arc::clone(&all);
            move || {
                if done.fetch_add(1, Ordering::Relaxed) + 1 == count {
                    all.notify_one();
                }
            }
        });
        all.notified().await;
        cpu_time() - start
    })
}

/// How long it takes from the answer to a create until the reconcile, on the real clock, `times` times.
pub fn event_to_reconcile(peer: Peer, times: usize) -> Vec<Duration> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let server = ApiServer::start();
        let client = server.client();
        let (sender, mut called) = mpsc::unbounded_channel();
        spawn_noop(peer, &client, move || {
            let _ = sender.send(Instant::now());
        });
        create(&client, "first").await;
        called.recv().await.expect("it runs");
        let mut waits = Vec::new();
        for at in 0..times {
            create(&client, &format!("map-{at}")).await;
            let created = Instant::now();
            let at = called.recv().await.expect("it runs");
            waits.push(at.saturating_duration_since(created));
        }
        waits
    })
}

/// CPU time of a whole test, `times` times: a server, a controller, `parents` ConfigMaps and a Secret for each.
pub fn whole_test(peer: Peer, times: usize, parents: usize) -> Duration {
    match peer {
        Peer::KubeRuntime => crate::controllers::whole_test(times, parents).0,
        Peer::Informer => {
            let start = cpu_time();
            for _ in 0..times {
                runtime().block_on(converge(parents));
            }
            cpu_time() - start
        }
    }
}

/// A controller of ConfigMaps and the Secrets they own.
pub(crate) async fn parents(client: Client) {
    let factory = SharedInformerFactory::new(client.clone());
    let maps = factory.informer::<ConfigMap>().lister();
    let secrets = factory.informer::<Secret>().lister();
    let api: Api<Secret> = Api::default_namespaced(client);
    let controller = Controller::builder("parents", &factory)
        .for_::<ConfigMap>()
        .owns::<Secret>()
        .build(move |request: Request| {
            let (maps, secrets, api) = (maps.clone(), secrets.clone(), api.clone());
            async move {
                if let (Some(map), None) = (maps.get(&request.key), secrets.get(&request.key)) {
                    let mut secret = Secret::default();
                    secret.metadata.name = Some(request.key.name().to_owned());
                    secret.metadata.namespace = request.key.namespace().map(str::to_owned);
                    owner_references::set_controller(&mut secret, &*map.typed()?)?;
                    api.create(&PostParams::default(), &secret).await?;
                }
                Ok::<_, ReconcileError>(Action::await_change())
            }
        })
        .expect("it is complete");
    let _ = controller.run(CancellationToken::new()).await;
}

async fn converge(count: usize) {
    let server = ApiServer::start();
    let client = server.client();
    let children: Api<Secret> = Api::default_namespaced(client.clone());
    tokio::spawn(parents(client.clone()));
    for at in 0..count {
        create(&client, &format!("parent-{at}")).await;
    }
    while children.list(&ListParams::default()).await.expect("list").items.len() < count {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// CPU time for `count` keys of a source that are reconciled.
pub fn queued(count: usize) -> Duration {
    runtime().block_on(async {
        let server = ApiServer::start();
        let factory = SharedInformerFactory::new(server.client());
        let (done, all) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let reached = Arc::clone(&all);
        let controller = Controller::builder("queued", &factory)
            .source(|_, stop| async move { stop.cancelled().await })
            .build(move |_: Request| {
                if done.fetch_add(1, Ordering::Relaxed) + 1 == count {
                    reached.notify_one();
                }
                std::future::ready(Ok::<_, ReconcileError>(Action::await_change()))
            })
            .expect("it is complete");
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
    })
}
