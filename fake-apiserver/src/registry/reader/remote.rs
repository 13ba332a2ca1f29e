//! The aggregated API servers of APIServices.

use super::Reader;
use crate::registry::scheme::{Row, codec};
use crate::registry::types::remote_server::RemoteServer;
use crate::storage::{Key, KeyRange};

impl Reader {
    /// Registers an aggregated API server in this process; only the first call has an effect.
    pub(crate) fn serve_remote(&self, remote: RemoteServer) {
        let _ = self.own_remote.set(remote);
    }

    /// Returns the server of the APIService for a group and version. If the APIService does not exist, returns the
    /// matching server in this process.
    pub(crate) fn remote_server(&self, group: &str, version: &str) -> Option<RemoteServer> {
        let row = self.scheme().lookup("apiregistration.k8s.io", "v1", "apiservices")?;
        match self
            .store
            .get(&row.storage, &Key::new("", &format!("{version}.{group}")))
        {
            Some(stored) => RemoteServer::of(&codec::decode(&row, &stored)),
            None => {
                let own = self.own_remote.get().cloned();
                own.filter(|it| it.group == group && it.version == version)
            }
        }
    }

    /// Returns the servers of all APIServices that have a server, sorted by the names of the APIServices, followed by
    /// the server in this process unless it has the name of one of them.
    pub(crate) fn remote_servers(&self) -> Vec<RemoteServer> {
        let Some(row) = self.scheme().lookup("apiregistration.k8s.io", "v1", "apiservices") else {
            return Vec::new();
        };
        let decode = |row: &Row, stored| RemoteServer::of(&codec::decode(row, stored));
        let snapshot = self.store.snapshot(&row.storage);
        let everything = KeyRange::of(None);
        let stored = snapshot.range(&everything).filter_map(|stored| decode(&row, stored));
        let mut servers: Vec<RemoteServer> = stored.collect();
        let own = self.own_remote.get().cloned();
        servers.extend(own.filter(|own| servers.iter().all(|it| it.name != own.name)));
        servers
    }

    /// Returns `true` if the test has registered a service or an address for the server's host.
    pub(crate) fn has_route(&self, remote: &RemoteServer) -> bool {
        self.transport.has_route(&remote.endpoint)
    }
}
