//! `Filter`: which requests and watches are meant; and `Requests`, the ones that came.

use std::fmt;

use fake_apiserver::{Entry, RecordedRequest, RequestInfo, Verb};

use crate::test_cluster::{TEST_CLIENT, TestCluster};

/// What faults, watches and the journal are narrowed by. What is not given does not matter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    pub(crate) verbs: Option<Vec<Verb>>,
    /// The plural; `resource.group` and `resource/subresource` are understood.
    pub(crate) resource: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) client: Option<String>,
}

impl Filter {
    /// Whether a request is meant. Those of the test itself and of the server's workers are only if their client is
    /// named; a worker goes by its own name.
    pub(crate) fn matches(&self, info: &RequestInfo, user_agent: &str, worker: Option<&str>) -> bool {
        let client = match &self.client {
            Some(client) => client == worker.unwrap_or(user_agent),
            None => user_agent != TEST_CLIENT && worker.is_none(),
        };
        client
            && self.verbs.as_ref().is_none_or(|verbs| verbs.contains(&info.verb))
            && self.resource.as_ref().is_none_or(|resource| is_for(info, resource))
            && self
                .namespace
                .as_ref()
                .is_none_or(|namespace| *namespace == info.namespace)
            && self.name.as_ref().is_none_or(|name| *name == info.name)
    }
}

/// Whether a request is for `resource`: a plural with any subresource, or with one, and with or without its group.
fn is_for(info: &RequestInfo, resource: &str) -> bool {
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource)),
        None => (resource, None),
    };
    let (plural, group) = match resource.split_once('.') {
        Some((plural, group)) => (plural, Some(group)),
        None => (resource, None),
    };
    *info.resource == *plural
        && group.is_none_or(|group| *info.group == *group)
        && subresource.is_none_or(|subresource| info.subresource == subresource)
}

impl fmt::Display for Filter {
    /// `on update,patch configmaps name=a`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verbs {
            Some(verbs) => write!(
                f,
                "on {}",
                verbs.iter().map(|it| it.as_str()).collect::<Vec<_>>().join(",")
            )?,
            None => f.write_str("on every request for")?,
        }
        write!(f, " {}", self.resource.as_deref().unwrap_or("any resource"))?;
        for (field, value) in [
            ("namespace", &self.namespace),
            ("name", &self.name),
            ("client", &self.client),
        ] {
            if let Some(value) = value {
                write!(f, " {field}={value}")?;
            }
        }
        Ok(())
    }
}

/// Requests of the controllers, from [`TestCluster::requests`], to be narrowed and counted.
#[derive(Clone, Debug)]
pub struct Requests {
    kept: Vec<RecordedRequest>,
}

impl TestCluster {
    /// The requests that were answered so far, without those of the test itself and of the server's
    /// [workers](crate::TestClusterBuilder::workers).
    ///
    /// ```
    /// # use kube::{Api, api::ListParams};
    /// # use k8s_openapi::api::core::v1::Pod;
    /// use testkit::{TestCluster, Verb};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// let pods: Api<Pod> = Api::all(cluster.client_named("operator"));
    /// pods.list(&ListParams::default()).await.unwrap();
    ///
    /// assert_eq!(cluster.requests().on(Verb::List, "pods").client("operator").count(), 1);
    /// assert_eq!(cluster.requests().writes().count(), 0);
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
                .filter(|it| it.user_agent != TEST_CLIENT && it.worker.is_none())
                .collect(),
        }
    }
}

impl Requests {
    /// Those with this verb for this resource: its plural (`pods`), which may name a group (`deployments.apps`) and a
    /// subresource (`pods/status`).
    #[must_use]
    pub fn on(self, verb: Verb, resource: &str) -> Self {
        self.filtered(|it| {
            it.info
                .as_ref()
                .is_some_and(|info| info.verb == verb && is_for(info, resource))
        })
    }

    /// Those that would change something.
    #[must_use]
    pub fn writes(self) -> Self {
        self.filtered(RecordedRequest::is_write)
    }

    /// Those in this namespace.
    #[must_use]
    pub fn namespace(self, namespace: &str) -> Self {
        self.filtered(|it| it.info.as_ref().is_some_and(|info| info.namespace == namespace))
    }

    /// Those for the object of this name.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        self.filtered(|it| it.info.as_ref().is_some_and(|info| info.name == name))
    }

    /// Those of the client of this name.
    #[must_use]
    pub fn client(self, client: &str) -> Self {
        self.filtered(|it| it.user_agent == client)
    }

    /// Those that were answered with this HTTP status.
    #[must_use]
    pub fn answered(self, code: u16) -> Self {
        self.filtered(|it| it.code == code)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.kept.len()
    }

    /// The requests, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &RecordedRequest> {
        self.kept.iter()
    }

    pub(crate) fn filtered(mut self, keep: impl Fn(&RecordedRequest) -> bool) -> Self {
        self.kept.retain(keep);
        self
    }
}

impl fmt::Display for Requests {
    /// One a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kept.iter().try_for_each(|request| writeln!(f, "{request}"))
    }
}
