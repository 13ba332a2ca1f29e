//! Measures the delivery of a change to many watchers.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use fake_apiserver::ApiServer;
use fake_apiserver::bench::Watcher;
use http_body_util::BodyExt;
use tokio::runtime::Runtime;
use tokio::task::LocalSet;
use tower::ServiceExt;

use crate::measure::cpu_time;
use crate::objects;
use crate::requests::{get, runtime};

/// A server with tasks that watch its ConfigMaps.
#[derive(Debug)]
pub struct Watched {
    runtime: Runtime,
    tasks: LocalSet,
    server: ApiServer,
    watchers: usize,
    delivered: Rc<Cell<usize>>,
}

impl Watched {
    fn empty() -> Self {
        let runtime = runtime();
        let guard = runtime.enter();
        let server = ApiServer::start();
        drop(guard);
        Self {
            runtime,
            tasks: LocalSet::new(),
            server,
            watchers: 0,
            delivered: Rc::default(),
        }
    }

    /// Creates a server with registered watchers that do not read their streams.
    pub fn by_watchers(watchers: usize) -> Self {
        let mut watched = Self::empty();
        watched.watchers = watchers;
        for _ in 0..watchers {
            let guard = watched.runtime.enter();
            let mut watcher = Watcher::open(&watched.server, "configmaps");
            drop(guard);
            let delivered = Rc::clone(&watched.delivered);
            watched.tasks.spawn_local(async move {
                loop {
                    let fresh = watcher.next_batch().await;
                    delivered.set(delivered.get() + fresh);
                }
            });
        }
        watched.settle();
        watched
    }

    /// Creates a server, opens watches with requests, and reads their bodies.
    pub fn by_bodies(watchers: usize) -> Self {
        let mut watched = Self::empty();
        watched.watchers = watchers;
        for _ in 0..watchers {
            let service = watched.server.service();
            let delivered = Rc::clone(&watched.delivered);
            watched.tasks.spawn_local(async move {
                let request = get("/api/v1/configmaps?watch=true");
                let mut body = service
                    .oneshot(request)
                    .await
                    .expect("the service is infallible")
                    .into_body();
                while let Some(Ok(_)) = body.frame().await {
                    delivered.set(delivered.get() + 1);
                }
            });
        }
        watched.settle();
        watched
    }

    /// Creates a server with watchers of a namespace that does not change.
    pub fn idle(watchers: usize) -> Self {
        let watched = Self::empty();
        for at in 0..watchers {
            let service = watched.server.service();
            watched.tasks.spawn_local(async move {
                let request = get(&format!("/api/v1/namespaces/other-{at}/configmaps?watch=true"));
                let mut body = service
                    .oneshot(request)
                    .await
                    .expect("the service is infallible")
                    .into_body();
                while let Some(Ok(_)) = body.frame().await {}
            });
        }
        watched.settle();
        watched
    }

    /// Runs all tasks until they are waiting.
    fn settle(&self) {
        self.runtime.block_on(self.tasks.run_until(async {
            for _ in 0..64 {
                tokio::task::yield_now().await;
            }
        }));
    }

    /// Commits `events` changes, `burst` at a time. Waits until every watcher has received all of them.
    pub fn deliver(&self, events: usize, burst: usize) -> Duration {
        let _guard = self.runtime.enter();
        self.runtime.block_on(self.tasks.run_until(async {
            let start = cpu_time();
            for _ in 0..events.div_ceil(burst) {
                let wanted = self.delivered.get() + burst * self.watchers;
                self.server
                    .load((0..burst).map(|_| objects::config_map("changed")))
                    .expect("the objects are loaded");
                while self.delivered.get() < wanted {
                    tokio::task::yield_now().await;
                }
            }
            cpu_time() - start
        }))
    }

    /// Commits changes without watchers.
    pub fn commit(&self, changes: usize) -> Duration {
        let _guard = self.runtime.enter();
        let maps: Vec<_> = (0..changes).map(|_| objects::config_map("changed")).collect();
        let start = cpu_time();
        self.server.load(maps).expect("the objects are loaded");
        cpu_time() - start
    }
}
