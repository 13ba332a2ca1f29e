//! `Peers`: the Leases of other replicas, with their claims and their expiry.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use tokio::time::Instant;

use super::member_lease::{holder, lasts, view};
use super::view::View;
use crate::cache::CacheSnapshot;
use crate::{CachedObject, ObjectKey, ResourceVersion};

/// The other replicas of the group, by the keys of their Leases.
#[derive(Debug)]
pub(super) struct Peers {
    peers: BTreeMap<ObjectKey, Peer>,
    /// Duration of Leases without `leaseDurationSeconds`.
    usual: Duration,
}

/// Another replica, as described by its Lease.
#[derive(Debug)]
struct Peer {
    state: (String, ResourceVersion),
    /// Identity of the replica; `None` if it has released the Lease, or if no state of the Lease could be parsed.
    holder: Option<Arc<str>>,
    claim: View,
    lasts: Duration,
    /// Time at which this state was first observed, on this process's clock.
    seen: Instant,
    /// Set if the Lease was deleted, for example manually. The claim remains in effect until the Lease would have
    /// expired.
    is_gone: bool,
    /// Set once this replica has attempted to delete the Lease.
    is_swept: bool,
}

impl Peer {
    /// Returns `true` if the Lease was not renewed for `times` its duration. Only considers the time before `known_to`,
    /// because later renewals may not have been observed yet.
    fn has_ended(&self, known_to: Option<Instant>, times: u32) -> bool {
        known_to.is_some_and(|it| self.seen + self.lasts * times <= it)
    }
}

/// An expired Lease to be deleted.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) version: ResourceVersion,
}

impl Peers {
    /// Creates an empty set of replicas. `usual` is the duration of Leases without `leaseDurationSeconds`.
    pub(super) fn new(usual: Duration) -> Self {
        Self {
            peers: BTreeMap::new(),
            usual,
        }
    }

    /// Updates the replicas from the Leases in the cache, which contains all changes made before `known_to`.
    pub(super) fn observe(&mut self, leases: &CacheSnapshot<Lease>, own: &ObjectKey, known_to: Option<Instant>) {
        for peer in self.peers.values_mut() {
            peer.is_gone = true;
        }
        for object in leases.iter().filter(|it| it.key() != own) {
            self.see(object);
        }
        self.peers.retain(|_, it| !it.is_gone || !it.has_ended(known_to, 1));
    }

    fn see(&mut self, object: &CachedObject<Lease>) {
        let state = (object.uid(), object.resource_version().clone());
        if let Some(peer) = self.peers.get_mut(object.key()).filter(|it| it.state == state) {
            peer.is_gone = false;
            return;
        }
        let known = self.peers.remove(object.key());
        let (holder, claim, lasts) = match object.typed() {
            Ok(lease) => (
                holder(&lease).map(Arc::from),
                view(&lease),
                lasts(&lease).unwrap_or(self.usual),
            ),
            // A replica that renews an invalid Lease is running, and may own any key.
            Err(err) => {
                tracing::warn!(lease = %object.key(), error = %err, "invalid Lease, so its holder may own any key");
                let lasts = known.as_ref().map_or(self.usual, |it| it.lasts);
                (known.and_then(|it| it.holder), View::unreadable(), lasts)
            }
        };
        let peer = Peer {
            state,
            holder,
            claim,
            lasts,
            seen: Instant::now(),
            is_gone: false,
            is_swept: false,
        };
        self.peers.insert(object.key().clone(), peer);
    }

    /// Returns the identities of the replicas with Leases that have neither expired nor been deleted.
    pub(super) fn members(&self, known_to: Option<Instant>) -> impl Iterator<Item = Arc<str>> {
        let live = self
            .peers
            .values()
            .filter(move |it| !it.is_gone && !it.has_ended(known_to, 1));
        live.filter_map(|it| it.holder.clone())
    }

    /// Returns the claims that have not expired, with the identities of their replicas.
    pub(super) fn claims(&self, known_to: Option<Instant>) -> impl Iterator<Item = (Arc<str>, View)> {
        let live = self.peers.values().filter(move |it| !it.has_ended(known_to, 1));
        live.filter_map(|it| match &it.holder {
            Some(holder) => Some((Arc::clone(holder), it.claim.clone())),
            None => (it.claim == View::unreadable()).then(|| (Arc::from(""), it.claim.clone())),
        })
    }

    /// Returns a Lease that was not renewed for twice its duration, so that the caller can delete it. Returns each
    /// state of a Lease only once.
    pub(super) fn sweep(&mut self, known_to: Option<Instant>) -> Option<Ended> {
        let is_old = |it: &Peer| !it.is_swept && !it.is_gone && it.has_ended(known_to, 2);
        let (key, peer) = self.peers.iter_mut().find(|(_, it)| is_old(it))?;
        peer.is_swept = true;
        let (uid, version) = peer.state.clone();
        Some(Ended {
            name: key.name().to_owned(),
            uid,
            version,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Indexer;

    /// Returns a snapshot with a Lease `shop/web-0` that has this spec and these annotations.
    fn leases(version: u32, spec: &str, annotations: &str) -> CacheSnapshot<Lease> {
        let leases = Indexer::new();
        let text = format!(
            r#"{{"metadata":{{"name":"web-0","namespace":"shop","uid":"u","resourceVersion":"{version}",
                "annotations":{annotations}}},"spec":{spec}}}"#
        );
        leases.insert(CachedObject::decode(&text).expect("the object can be decoded"));
        leases.lister().snapshot()
    }

    /// Returns the members, and the number of claims.
    fn seen(peers: &Peers) -> (Vec<Arc<str>>, usize) {
        let now = Some(Instant::now());
        let claims = peers.claims(now).filter(|(holder, view)| view.claims(holder, 7));
        (peers.members(now).collect(), claims.count())
    }

    #[tokio::test(start_paused = true)]
    async fn holder_of_an_unreadable_lease_may_own_any_key() {
        let own = ObjectKey::new("shop", "web-1");
        let unreadable = r#"{"holderIdentity":"web-0","leaseDurationSeconds":"long"}"#;
        let readable = r#"{"holderIdentity":"web-0","leaseDurationSeconds":15}"#;
        let members = r#"{"informer.drydock.dev/members":"v1:[]"}"#;
        let mut peers = Peers::new(Duration::from_secs(15));
        peers.observe(&leases(1, unreadable, "{}"), &own, None);
        assert_eq!(
            seen(&peers),
            (Vec::new(), 1),
            "the holder of an unreadable Lease is not a member"
        );
        peers.observe(&leases(2, readable, members), &own, None);
        assert_eq!(seen(&peers), (vec!["web-0".into()], 0));
        // Each new version shows that the holder is running.
        for version in 3..10 {
            tokio::time::advance(Duration::from_secs(10)).await;
            peers.observe(&leases(version, unreadable, members), &own, Some(Instant::now()));
            assert_eq!(seen(&peers), (vec!["web-0".into()], 1));
        }
        tokio::time::advance(Duration::from_secs(16)).await;
        assert_eq!(seen(&peers), (Vec::new(), 0), "an expired Lease has no effect");
    }

    #[tokio::test(start_paused = true)]
    async fn lease_without_a_duration_has_the_default_duration() {
        let mut peers = Peers::new(Duration::from_secs(15));
        let (own, spec) = (ObjectKey::new("shop", "web-1"), r#"{"holderIdentity":"web-0"}"#);
        peers.observe(&leases(1, spec, "{}"), &own, None);
        tokio::time::advance(Duration::from_secs(14)).await;
        assert_eq!(seen(&peers), (vec!["web-0".into()], 1));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(seen(&peers), (Vec::new(), 0));
    }
}
