//! `Clients`: builds the clients of a cluster.

use std::fmt;
use std::sync::Arc;

use fake_apiserver::{ApiServer, UserInfo};

use crate::hooks::Hooks;
use crate::service::ClientService;
use crate::test_cluster::TestCluster;

/// Builds clients of a cluster.
#[derive(Clone)]
pub(crate) struct Clients {
    server: ApiServer,
    hooks: Option<Arc<dyn Hooks>>,
    /// Client of a real server; `None` if the test's own server handles the requests.
    remote: Option<kube::Client>,
}

impl Clients {
    pub(crate) fn client(&self, name: &str) -> kube::Client {
        match (&self.hooks, &self.remote) {
            (Some(hooks), _) => Arc::clone(hooks).client(name, None),
            (None, Some(remote)) => self.server.relay(remote, name),
            (None, None) => self.server.client_named(name),
        }
    }

    /// Builds a client that acts as a user. On a real server, it acts as the user of the test.
    pub(crate) fn client_as(&self, name: &str, user: UserInfo) -> kube::Client {
        match (&self.hooks, &self.remote) {
            (Some(hooks), _) => Arc::clone(hooks).client(name, Some(user)),
            (None, Some(_)) => self.client(name),
            (None, None) => self.server.client_as(name, user),
        }
    }

    /// Builds the service for clients of any version of kube.
    pub(crate) fn service(&self, name: &str) -> ClientService {
        match (&self.hooks, &self.remote) {
            (Some(hooks), _) => ClientService::explored(Arc::clone(hooks).service(name)),
            (None, Some(remote)) => ClientService::remote(self.server.relay(remote, name)),
            (None, None) => ClientService::of_server(self.server.client_service(name)),
        }
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients")
            .field("hooks", &self.hooks)
            .finish_non_exhaustive()
    }
}

impl TestCluster {
    pub(crate) fn clients(&self) -> Clients {
        Clients {
            server: self.server.clone(),
            hooks: self.hooks.clone(),
            remote: self.real.as_ref().map(|real| real.client().clone()),
        }
    }
}
