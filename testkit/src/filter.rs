//! `Requests`: the recorded requests of controllers.

use std::fmt;

use fake_apiserver::faults::{RequestFilter, is_client, is_for};
use fake_apiserver::{ApiServer, Entry, RecordedRequest, Verb};

use crate::report::fail;
use crate::test_cluster::{TEST_CLIENT, TestCluster};

/// Requests of the controllers, from [`TestCluster::requests`], to filter and count.
#[derive(Clone, Debug)]
pub struct Requests {
    kept: Vec<RecordedRequest>,
    server: ApiServer,
}

impl TestCluster {
    /// Returns the completed requests so far, except for requests of the test itself and of the server's
    /// [workers](crate::TestClusterBuilder::workers).
    ///
    /// ```
    /// # use kube::{Api, api::ListParams};
    /// # use k8s_openapi::api::core::v1::Pod;
    /// use testkit::{TestCluster, Verb};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cluster = TestCluster::start();
    /// let pods: Api<Pod> = Api::all(cluster.client_named("operator"));
    /// pods.list(&ListParams::default()).await?;
    ///
    /// assert_eq!(cluster.requests().on(Verb::List, "pods").client("operator").count(), 1);
    /// assert_eq!(cluster.requests().writes().count(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn requests(&self) -> Requests {
        let all = self
            .server
            .journal()
            .entries()
            .into_iter()
            .filter_map(|entry| match entry {
                Entry::Request(request) => Some(request),
                Entry::Event(_) => None,
            });
        Requests {
            kept: all
                .filter(|it| *it.client != *TEST_CLIENT && it.worker.is_none())
                .collect(),
            server: self.server.clone(),
        }
    }
}

impl Requests {
    /// Selects only requests with this verb for this resource: the plural (`pods`), optionally with a group
    /// (`deployments.apps`) and a subresource (`pods/status`). Without a subresource, requests for any subresource
    /// match as well.
    ///
    /// # Panics
    ///
    /// If there are no requests for the resource, and it is not served or does not support the verb.
    #[must_use]
    #[track_caller]
    pub fn on(self, verb: Verb, resource: &str) -> Self {
        let is_asked = self.kept.iter().any(|it| it.is_for(resource));
        if !is_asked {
            check_served(&self.server, &[verb], resource);
        }
        self.filtered(|it| {
            it.info
                .as_ref()
                .is_some_and(|info| info.verb == verb && is_for(info, resource))
        })
    }

    /// Selects only requests that may change something.
    #[must_use]
    pub fn writes(self) -> Self {
        self.filtered(RecordedRequest::is_write)
    }

    /// Selects only requests in this namespace.
    #[must_use]
    pub fn namespace(self, namespace: &str) -> Self {
        self.filtered(|it| it.info.as_ref().is_some_and(|info| info.namespace == namespace))
    }

    /// Selects only requests for the object with this name.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        self.filtered(|it| it.info.as_ref().is_some_and(|info| info.name == name))
    }

    /// Selects only requests of the client with this name. For clients in other processes, the name is the `User-Agent`
    /// or its part before the first slash.
    #[must_use]
    pub fn client(self, client: &str) -> Self {
        self.filtered(|it| is_client(&it.client, client))
    }

    /// Selects only requests with this HTTP response status.
    #[must_use]
    pub fn answered(self, code: u16) -> Self {
        self.filtered(|it| it.code == code)
    }

    /// Returns the number of requests.
    pub fn count(&self) -> usize {
        self.kept.len()
    }

    /// Iterates over the requests, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &RecordedRequest> {
        self.kept.iter()
    }

    pub(crate) fn filtered(mut self, keep: impl Fn(&RecordedRequest) -> bool) -> Self {
        self.kept.retain(keep);
        self
    }
}

/// Fails the test if a filter can never match. Otherwise a typo would result in a count of 0.
#[track_caller]
pub(crate) fn check_served(server: &ApiServer, verbs: &[Verb], resource: &str) {
    let filter = RequestFilter {
        verbs: verbs.to_vec(),
        resource: Some(resource.to_owned()),
        ..RequestFilter::default()
    };
    if let Err(why) = filter.check_served(&server.resources()) {
        fail(&why.to_string());
    }
}

impl fmt::Display for Requests {
    /// Formats the requests, one per line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kept.iter().try_for_each(|request| writeln!(f, "{request}"))
    }
}
