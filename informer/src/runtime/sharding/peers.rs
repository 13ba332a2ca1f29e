//! `Peers`: the Leases of the other replicas, and which of them have not ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use tokio::time::Instant;

use super::member_lease::{holder, lasts, view};
use super::view::View;
use crate::cache::Snapshot;
use crate::{Object, ObjectKey, ResourceVersion};

/// The other replicas, by their Leases.
#[derive(Debug, Default)]
pub(super) struct Peers(BTreeMap<ObjectKey, Peer>);

/// A replica, by its Lease.
#[derive(Debug)]
struct Peer {
    state: (String, ResourceVersion),
    /// `None` if it gave its Lease up.
    holder: Option<Arc<str>>,
    claim: View,
    lasts: Duration,
    /// The time at which this state was first seen here. Clocks of other machines do not matter.
    seen: Instant,
    /// The Lease was deleted, by whom is not known: what it claimed counts until it would have ended.
    is_gone: bool,
    /// Its deletion was tried.
    is_swept: bool,
}

impl Peer {
    /// True if it was not renewed for `times` as long as it says it lasts, as of the moment up to which all renewals
    /// are known.
    fn has_ended(&self, known_to: Option<Instant>, times: u32) -> bool {
        known_to.is_some_and(|it| self.seen + self.lasts * times <= it)
    }
}

/// A Lease that may be deleted.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) version: ResourceVersion,
}

impl Peers {
    /// Looks at the Leases there are. All changes are among them that were made before `known_to`.
    pub(super) fn look(&mut self, leases: &Snapshot<Lease>, own: &ObjectKey, known_to: Option<Instant>) {
        for peer in self.0.values_mut() {
            peer.is_gone = true;
        }
        for object in leases.iter().filter(|it| it.key() != own) {
            self.see(object);
        }
        self.0.retain(|_, it| !it.is_gone || !it.has_ended(known_to, 1));
    }

    fn see(&mut self, object: &Object<Lease>) {
        let state = (object.uid(), object.resource_version().clone());
        if let Some(peer) = self.0.get_mut(object.key()).filter(|it| it.state == state) {
            peer.is_gone = false;
            return;
        }
        let lease = match object.typed() {
            Ok(lease) => lease,
            // It stays as it was: what cannot be read claims what it did.
            Err(err) => return tracing::warn!(lease = %object.key(), error = %err, "a Lease cannot be read"),
        };
        let peer = Peer {
            state,
            holder: holder(&lease).map(Arc::from),
            claim: view(&lease),
            lasts: lasts(&lease),
            seen: Instant::now(),
            is_gone: false,
            is_swept: false,
        };
        self.0.insert(object.key().clone(), peer);
    }

    /// Those that have not ended and are there.
    pub(super) fn members(&self, known_to: Option<Instant>) -> impl Iterator<Item = Arc<str>> {
        let live = self
            .0
            .values()
            .filter(move |it| !it.is_gone && !it.has_ended(known_to, 1));
        live.filter_map(|it| it.holder.clone())
    }

    /// The claims of those that have not ended.
    pub(super) fn claims(&self, known_to: Option<Instant>) -> impl Iterator<Item = (Arc<str>, View)> {
        let live = self.0.values().filter(move |it| !it.has_ended(known_to, 1));
        live.filter_map(|it| Some((it.holder.clone()?, it.claim.clone())))
    }

    /// A Lease that ended long ago, if there is one; each is told once.
    pub(super) fn sweep(&mut self, known_to: Option<Instant>) -> Option<Ended> {
        let is_old = |it: &Peer| !it.is_swept && !it.is_gone && it.has_ended(known_to, 2);
        let (key, peer) = self.0.iter_mut().find(|(_, it)| is_old(it))?;
        peer.is_swept = true;
        let (uid, version) = peer.state.clone();
        Some(Ended {
            name: key.name().to_owned(),
            uid,
            version,
        })
    }
}
