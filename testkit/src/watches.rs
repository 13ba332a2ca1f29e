//! Event injection: sends events to open watches, and ends or expires them.

use fake_apiserver::faults::RequestFilter;
use fake_apiserver::{ApiServer, Verb, WatchEventKind, WatchHandle};

use crate::filter::check_served;
use crate::target::ToObject;
use crate::test_cluster::TestCluster;

/// Open watches, from [`TestCluster::watches`]. They can be filtered and manipulated.
#[derive(Clone, Debug)]
pub struct Watches {
    handles: Vec<WatchHandle>,
    server: ApiServer,
}

impl TestCluster {
    /// Returns the watches that are open now.
    ///
    /// ```
    /// # use futures::StreamExt;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use kube::{Api, api::{WatchEvent, WatchParams}};
    /// use testkit::{TestCluster, WatchEventKind, objects::pod};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cluster = TestCluster::start();
    /// let pods: Api<Pod> = Api::all(cluster.client());
    /// let mut events = pods.watch(&WatchParams::default(), "0").await?.boxed();
    ///
    /// // There is no such Pod: the controller under test receives a false event.
    /// cluster.watches().on("pods").send(WatchEventKind::Deleted, pod("web-0"));
    /// assert!(matches!(events.next().await, Some(Ok(WatchEvent::Deleted(_)))));
    ///
    /// cluster.watches().on("pods").expire();
    /// let event = events.next().await;
    /// assert!(matches!(event, Some(Ok(WatchEvent::Error(status))) if status.code == 410));
    /// # Ok(())
    /// # }
    /// ```
    pub fn watches(&self) -> Watches {
        self.skips("watches");
        Watches {
            handles: self.server.watches(),
            server: self.server.clone(),
        }
    }

    /// Removes the history of all objects, and ends all watches with 410 Gone, so that every client must list again. A
    /// compaction has this effect on a client that resumes an old watch; open watches survive it.
    pub fn expire_watches(&self) {
        if self.skips("expire_watches") {
            return;
        }
        self.server.compact();
        self.watches().expire();
    }
}

impl Watches {
    /// Selects only watches of this resource: the plural (`pods`), optionally with a group (`deployments.apps`).
    ///
    /// # Panics
    ///
    /// If the resource is not served or cannot be watched.
    #[must_use]
    #[track_caller]
    pub fn on(self, resource: &str) -> Self {
        check_served(&self.server, &[Verb::Watch], resource);
        self.filtered(&RequestFilter {
            resource: Some(resource.to_owned()),
            ..RequestFilter::default()
        })
    }

    /// Selects only watches of this namespace. Watches of all namespaces do not match.
    #[must_use]
    pub fn namespace(self, namespace: &str) -> Self {
        self.filtered(&RequestFilter {
            namespace: Some(namespace.to_owned()),
            ..RequestFilter::default()
        })
    }

    /// Selects only watches of the client with this name.
    #[must_use]
    pub fn client(self, client: &str) -> Self {
        self.filtered(&RequestFilter {
            client: Some(client.to_owned()),
            ..RequestFilter::default()
        })
    }

    /// Sends an event to each watch, even if it contradicts the state, which does not change.
    pub fn send<Form>(&self, kind: WatchEventKind, object: impl ToObject<Form>) {
        let object = object.to_object();
        for handle in &self.handles {
            handle.send(kind, object.clone());
        }
    }

    /// Ends the watches with 410 Gone, so that their clients list again.
    pub fn expire(&self) {
        self.handles.iter().for_each(WatchHandle::expire);
    }

    /// Ends the watches, as a server does after their timeout. Clients resume from the last event they received.
    pub fn end(&self) {
        self.handles.iter().for_each(WatchHandle::end);
    }

    /// Breaks the connections between two events.
    pub fn cut(&self) {
        self.handles.iter().for_each(WatchHandle::cut);
    }

    /// Breaks the connections in the middle of the next event, after at most this many of its bytes.
    pub fn cut_inside(&self, bytes: usize) {
        self.handles.iter().for_each(|it| it.cut_inside(bytes));
    }

    /// Holds all events until the watches are released or resumed, as with a slow network or a lagging server. Holding
    /// watches of several resources and resuming them in a different order also changes the order in which their
    /// changes arrive.
    pub fn hold(&self) {
        self.handles.iter().for_each(WatchHandle::hold);
    }

    /// Delivers this many events of each held watch.
    pub fn release(&self, events: u64) {
        self.handles.iter().for_each(|it| it.release(events));
    }

    /// Delivers all held events immediately, and further events as usual.
    pub fn resume(&self) {
        self.handles.iter().for_each(WatchHandle::resume);
    }

    /// Delivers nothing more, not even the end of the watch, as if the server had disappeared without the client
    /// noticing.
    pub fn silence(&self) {
        self.handles.iter().for_each(WatchHandle::silence);
    }

    /// Delivers the next `events` events of each watch twice.
    pub fn duplicate(&self, events: u64) {
        self.handles.iter().for_each(|it| it.duplicate(events));
    }

    /// Sends a bookmark to each watch now.
    pub fn bookmark(&self) {
        self.handles.iter().for_each(WatchHandle::bookmark);
    }

    /// Stops sending bookmarks to the watches.
    pub fn withhold_bookmarks(&self) {
        self.handles.iter().for_each(WatchHandle::withhold_bookmarks);
    }

    /// Returns the handle of each watch.
    pub fn handles(&self) -> &[WatchHandle] {
        &self.handles
    }

    /// Returns the number of watches.
    pub fn count(&self) -> usize {
        self.handles.len()
    }

    fn filtered(mut self, filter: &RequestFilter) -> Self {
        self.handles
            .retain(|handle| filter.matches(handle.info(), handle.client(), None));
        self
    }
}
