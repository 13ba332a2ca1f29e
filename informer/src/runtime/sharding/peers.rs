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

/// Other replicas by their Leases.
#[derive(Debug, Default)]
pub(super) struct Peers(BTreeMap<ObjectKey, Peer>);

/// Another replica.
#[derive(Debug)]
struct Peer {
    state: (String, ResourceVersion),
    /// `None` if it has given its Lease up.
    holder: Option<Arc<str>>,
    claim: View,
    lasts: Duration,
    /// Time at which this state was first seen here; clocks of other machines are not used.
    seen: Instant,
    /// Set if the Lease was deleted, perhaps by hand: its claim counts until the Lease would have expired.
    is_gone: bool,
    /// Set once its deletion was tried.
    is_swept: bool,
}

impl Peer {
    /// Returns `true` if it was not renewed for `times` its duration, up to the time at which all renewals are known.
    fn has_ended(&self, known_to: Option<Instant>, times: u32) -> bool {
        known_to.is_some_and(|it| self.seen + self.lasts * times <= it)
    }
}

/// Expired Lease that may be deleted.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) version: ResourceVersion,
}

impl Peers {
    /// Takes over the Leases of the cache, which shows all changes made before `known_to`.
    pub(super) fn observe(&mut self, leases: &Snapshot<Lease>, own: &ObjectKey, known_to: Option<Instant>) {
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
            // The last readable state stays in force.
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

    /// Returns the identities of the live replicas.
    pub(super) fn members(&self, known_to: Option<Instant>) -> impl Iterator<Item = Arc<str>> {
        let live = self
            .0
            .values()
            .filter(move |it| !it.is_gone && !it.has_ended(known_to, 1));
        live.filter_map(|it| it.holder.clone())
    }

    /// Returns the claims that have not expired.
    pub(super) fn claims(&self, known_to: Option<Instant>) -> impl Iterator<Item = (Arc<str>, View)> {
        let live = self.0.values().filter(move |it| !it.has_ended(known_to, 1));
        live.filter_map(|it| Some((it.holder.clone()?, it.claim.clone())))
    }

    /// Returns a Lease that expired long ago; each only once.
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
