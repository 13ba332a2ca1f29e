//! Event injection: putting events into open watches, ending and expiring them.

use fake_apiserver::faults::RequestFilter;
use fake_apiserver::{ApiServer, Verb, WatchEventKind, WatchHandle};

use crate::filter::check_served;
use crate::target::ToObject;
use crate::test_cluster::TestCluster;

/// Open watches, from [`TestCluster::watches`], to narrow and to manipulate.
#[derive(Clone, Debug)]
pub struct Watches {
    handles: Vec<WatchHandle>,
    server: ApiServer,
}

impl TestCluster {
    /// The open watches now.
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

    /// Forgets the history of all objects and ends all watches with 410 Gone, as a server does whose log was compacted:
    /// every client must list again.
    pub fn expire_watches(&self) {
        if self.skips("expire_watches") {
            return;
        }
        self.server.compact();
        self.watches().expire();
    }
}

impl Watches {
    /// Those of this resource: its plural (`pods`), which may name a group (`deployments.apps`).
    ///
    /// # Panics
    ///
    /// If no such resource is served that can be watched.
    #[must_use]
    #[track_caller]
    pub fn on(self, resource: &str) -> Self {
        check_served(&self.server, &[Verb::Watch], resource);
        self.filtered(&RequestFilter {
            resource: Some(resource.to_owned()),
            ..RequestFilter::default()
        })
    }

    /// Those of this namespace alone.
    #[must_use]
    pub fn namespace(self, namespace: &str) -> Self {
        self.filtered(&RequestFilter {
            namespace: Some(namespace.to_owned()),
            ..RequestFilter::default()
        })
    }

    /// Those of the client of this name.
    #[must_use]
    pub fn client(self, client: &str) -> Self {
        self.filtered(&RequestFilter {
            client: Some(client.to_owned()),
            ..RequestFilter::default()
        })
    }

    /// Sends an event to each watch, true or not. The state does not change.
    pub fn send(&self, kind: WatchEventKind, object: impl ToObject) {
        let object = object.to_object();
        for handle in &self.handles {
            handle.send(kind, object.clone());
        }
    }

    /// Ends them as a server does whose log was compacted: with 410 Gone.
    pub fn expire(&self) {
        self.handles.iter().for_each(WatchHandle::expire);
    }

    /// Ends them as a server does when their time is over. A client goes on from the last event it saw.
    pub fn end(&self) {
        self.handles.iter().for_each(WatchHandle::end);
    }

    /// Breaks their connections between two events.
    pub fn cut(&self) {
        self.handles.iter().for_each(WatchHandle::cut);
    }

    /// Breaks their connections within the next event, after so many bytes of it at the most.
    pub fn cut_inside(&self, bytes: usize) {
        self.handles.iter().for_each(|it| it.cut_inside(bytes));
    }

    /// Delivers nothing until they are released or resumed: a slow network, or a server that is behind. Held watches
    /// of several resources, resumed in another order, tell of changes in another order than they happened.
    pub fn hold(&self) {
        self.handles.iter().for_each(WatchHandle::hold);
    }

    /// Lets so many more events of each held watch pass.
    pub fn release(&self, events: u64) {
        self.handles.iter().for_each(|it| it.release(events));
    }

    /// Lets everything pass again; what waited comes at once.
    pub fn resume(&self) {
        self.handles.iter().for_each(WatchHandle::resume);
    }

    /// Delivers nothing more, not even an end: the other side is gone and the client does not notice.
    pub fn silence(&self) {
        self.handles.iter().for_each(WatchHandle::silence);
    }

    /// Delivers the next so many events of each twice.
    pub fn duplicate(&self, events: u64) {
        self.handles.iter().for_each(|it| it.duplicate(events));
    }

    /// Sends each a bookmark now.
    pub fn bookmark(&self) {
        self.handles.iter().for_each(WatchHandle::bookmark);
    }

    /// Sends them no more bookmarks.
    pub fn withhold_bookmarks(&self) {
        self.handles.iter().for_each(WatchHandle::withhold_bookmarks);
    }

    /// Each of them.
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
