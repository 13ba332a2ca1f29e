//! Measures informers of this crate and of kube-runtime, from the first list to the last of many changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use informer::Storage;
use informer::cache::{ApiListWatch, Lister, ReflectorOptions, SharedInformer};
use informer::handler::{Event, HandlerFn};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::{WatchStreamExt, reflector, watcher};

use crate::measure::cpu_time;
use crate::mirror::Mirror;
use crate::requests::runtime;

/// Options of an informer.
#[derive(Clone, Copy, Debug)]
pub struct Ours {
    /// Form in which Pods are stored.
    pub storage: Storage,
    /// Set if managed fields are removed.
    pub strips: bool,
    /// Number of handlers, which read the key.
    pub handlers: usize,
    /// Set if each handler decodes the Pod.
    pub decodes: bool,
}

/// CPU times of the sync and of the subsequent changes, without the server's time for encoding.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Time from the start until the cache contains all Pods.
    pub sync: Duration,
    /// Time from the first change until the last handler has received the last change.
    pub changes: Duration,
}

/// Measures an informer with a number of Pods and changes.
pub fn ours(pods: usize, changes: usize, ours: Ours) -> Times {
    let mirror = Mirror::new(pods);
    let lines = mirror.changes(changes, 2);
    runtime().block_on(async {
        let informer = informer(&mirror, ours);
        let told = Arc::new(AtomicUsize::new(0));
        for _ in 0..ours.handlers {
            let told = Arc::clone(&told);
            let handler = HandlerFn::new(move |event: &Event<Pod>| {
                if ours.decodes {
                    std::hint::black_box(event.object().typed().expect("the object is a Pod"));
                }
                told.fetch_add(event.object().key().name().len().min(1), Ordering::Relaxed);
            });
            informer.add_handler(handler).expect("the informer has not stopped");
        }
        let start = cpu_time();
        let runs = informer.clone();
        let task = tokio::spawn(async move { runs.run(std::future::pending()).await });
        informer.synced().await.expect("the cache syncs");
        let sync = cpu_time() - start;
        while told.load(Ordering::Relaxed) < pods * ours.handlers {
            tokio::task::yield_now().await;
        }
        let start = cpu_time();
        mirror.push(lines);
        let last = informer::ResourceVersion::from((changes as u64 + 1).to_string().as_str());
        informer.lister().reached(&last).await;
        while told.load(Ordering::Relaxed) < (pods + changes) * ours.handlers {
            tokio::task::yield_now().await;
        }
        let times = Times {
            sync,
            changes: cpu_time() - start,
        };
        task.abort();
        times
    })
}

/// Returns an informer that was not started.
pub fn informer(mirror: &Mirror, ours: Ours) -> SharedInformer<Pod> {
    let mut options = ReflectorOptions::default();
    options.streaming_lists = false;
    options.storage = ours.storage;
    if ours.strips {
        options = options.strip_managed_fields();
    }
    let source = ApiListWatch::all::<Pod>(mirror.client(), &());
    SharedInformer::builder(source)
        .reflector(options)
        .build()
        .expect("the options have no duplicates")
}

/// Same as `ours`, for kube-runtime's watcher and reflector.
pub fn kube_runtime(pods: usize, changes: usize, strips: bool) -> Times {
    let mirror = Mirror::new(pods);
    let lines = mirror.changes(changes, 2);
    runtime().block_on(async {
        let start = cpu_time();
        let (store, writer) = reflector::store::<Pod>();
        let events = watcher(Api::<Pod>::all(mirror.client()), watcher::Config::default());
        let events = events.modify(move |pod| {
            if strips {
                pod.metadata.managed_fields = None;
            }
        });
        let mut events = std::pin::pin!(events.reflect(writer));
        while let Some(event) = events.next().await {
            if matches!(event, Ok(watcher::Event::InitDone)) {
                break;
            }
        }
        assert_eq!(store.len(), pods);
        let sync = cpu_time() - start;
        let start = cpu_time();
        mirror.push(lines);
        for _ in 0..changes {
            drop(events.next().await);
        }
        Times {
            sync,
            changes: cpu_time() - start,
        }
    })
}

/// Fills an informer's cache with Pods and returns it, so that its memory can be measured.
pub fn held(mirror: &Mirror, ours: Ours) -> Lister<Pod> {
    runtime().block_on(async {
        let informer = informer(mirror, ours);
        let synced = informer.clone();
        informer
            .run(async move { synced.synced().await.expect("the cache syncs") })
            .await
            .expect("the informer was not run before");
        informer.lister()
    })
}

/// Same as `held`, for kube-runtime.
pub fn held_by_kube_runtime(mirror: &Mirror, strips: bool) -> reflector::Store<Pod> {
    runtime().block_on(async {
        let (store, writer) = reflector::store::<Pod>();
        let events = watcher(Api::<Pod>::all(mirror.client()), watcher::Config::default());
        let events = events.modify(move |pod| {
            if strips {
                pod.metadata.managed_fields = None;
            }
        });
        let mut events = std::pin::pin!(events.reflect(writer));
        while let Some(event) = events.next().await {
            if matches!(event, Ok(watcher::Event::InitDone)) {
                break;
            }
        }
        store
    })
}
