//! Measures reads of many objects by direct calls of the server, without a client.

use std::time::Duration;

use fake_apiserver::ApiServer;
use http_body_util::BodyExt;
use tokio::runtime::Runtime;
use tower::ServiceExt;

use crate::measure::cpu_time;
use crate::objects;
use crate::requests::{get, runtime};

/// A server with many Pods.
#[derive(Debug)]
pub struct Many {
    /// Runtime of the requests.
    pub runtime: Runtime,
    /// The server.
    pub server: ApiServer,
    /// Number of Pods.
    pub count: usize,
}

impl Many {
    /// Creates a server with `count` running Pods of 5 KB.
    pub fn pods(count: usize) -> Self {
        let runtime = runtime();
        let guard = runtime.enter();
        let server = ApiServer::start();
        server
            .load((0..count).map(|at| objects::running_pod(&format!("pod-{at:07}"))))
            .expect("the objects are loaded");
        drop(guard);
        Self { runtime, server, count }
    }

    /// Reads a response frame by frame and drops the frames. Returns the number of bytes and the CPU time.
    pub fn read(&self, path: &str, times: usize) -> (usize, Duration) {
        let requests: Vec<_> = (0..times).map(|_| get(path)).collect();
        self.runtime.block_on(async {
            let start = cpu_time();
            let mut bytes = 0;
            for request in requests {
                let mut body = self
                    .server
                    .service()
                    .oneshot(request)
                    .await
                    .expect("the service is infallible")
                    .into_body();
                while let Some(frame) = body.frame().await {
                    bytes += frame
                        .expect("the body is in memory")
                        .data_ref()
                        .map_or(0, |data| data.len());
                }
            }
            (bytes, cpu_time() - start)
        })
    }

    /// Measures reading the whole list.
    pub fn list(&self, times: usize) -> Duration {
        let (bytes, spent) = self.read("/api/v1/namespaces/default/pods", times);
        assert!(bytes > times * self.count * 4500, "{bytes}");
        spent
    }

    /// Measures reading the first page of 500 objects.
    pub fn page(&self, times: usize) -> Duration {
        let (bytes, spent) = self.read("/api/v1/namespaces/default/pods?limit=500", times);
        assert!(bytes > times * 500.min(self.count) * 4500, "{bytes}");
        spent
    }

    /// Measures lists with a selector that does not match any object.
    pub fn select_none(&self, times: usize) -> Duration {
        let path = "/api/v1/namespaces/default/pods?labelSelector=app.kubernetes.io%2Fname%3Dother";
        let (bytes, spent) = self.read(path, times);
        assert!(bytes < times * 200, "{bytes}");
        spent
    }

    /// Measures a snapshot of the whole state, and forking the server.
    pub fn snapshot_and_fork(&self, times: usize) -> Duration {
        let _guard = self.runtime.enter();
        let start = cpu_time();
        for _ in 0..times {
            std::hint::black_box((self.server.snapshot(), self.server.fork()));
        }
        cpu_time() - start
    }

    /// Measures the first write to a fork, which copies the parts that it shares with the original server.
    pub fn write_to_fork(&self, times: usize) -> Duration {
        let _guard = self.runtime.enter();
        let start = cpu_time();
        for _ in 0..times {
            self.server
                .fork()
                .load([objects::config_map("first")])
                .expect("the objects are loaded");
        }
        cpu_time() - start
    }
}
