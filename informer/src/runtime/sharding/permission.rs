//! `Permission`: the keys that this replica may work on, derived from the claims it has observed.

use std::sync::Arc;

use super::view::View;

/// Observed claims. A replica may work on a key that all of its own views claim and no other replica claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Permission {
    /// Identity of this replica.
    pub(super) me: Arc<str>,
    /// Published view, once the cache contains it.
    pub(super) claim: Option<View>,
    /// Views that may be published: the cache does not contain them yet, or the outcome of the write is unknown.
    pub(super) doubts: Vec<View>,
    /// View to publish next.
    pub(super) target: View,
    /// Views of other replicas with Leases that have not expired, except for views equal to `claim`.
    pub(super) others: Vec<(Arc<str>, View)>,
}

impl Permission {
    /// Returns the permission of a replica without observations.
    pub(super) fn none(me: &Arc<str>) -> Self {
        Self {
            me: Arc::clone(me),
            claim: None,
            doubts: Vec::new(),
            target: View::none(),
            others: Vec::new(),
        }
    }

    /// Returns `true` if keys of a place may be worked on.
    pub(super) fn permits(&self, place: u64) -> bool {
        let is_mine = |view: &View| view.claims(&self.me, place);
        self.claim.as_ref().is_some_and(is_mine)
            && is_mine(&self.target)
            && self.doubts.iter().all(is_mine)
            && !self.others.iter().any(|(other, view)| view.claims(other, place))
    }

    /// Returns `true` if the target view claims the keys of a place, so that this replica may work on them now or as
    /// soon as the target is published.
    pub(super) fn expects(&self, place: u64) -> bool {
        self.target.claims(&self.me, place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(names: &[&str]) -> View {
        View::of(names.iter().map(|it| Arc::from(*it)))
    }

    #[test]
    fn a_key_is_permitted_if_every_own_view_claims_it_and_no_other_member_does() {
        let (alone, all) = (view(&["a"]), view(&["a", "b"]));
        let place_of = |owner| {
            (0..)
                .find(|it| all.owner(*it) == Some(owner))
                .expect("each member owns a key")
        };
        let (ours, theirs) = (place_of("a"), place_of("b"));
        let whole = Permission {
            me: Arc::from("a"),
            claim: Some(alone.clone()),
            doubts: Vec::new(),
            target: alone,
            others: Vec::new(),
        };
        assert!(whole.permits(ours) && whole.permits(theirs));
        let narrower = [
            Permission {
                claim: Some(all.clone()),
                ..whole.clone()
            },
            Permission {
                doubts: vec![all.clone()],
                ..whole.clone()
            },
            Permission {
                target: all.clone(),
                ..whole.clone()
            },
            Permission {
                others: vec![(Arc::from("b"), all)],
                ..whole.clone()
            },
        ];
        for permission in narrower {
            assert!(
                permission.permits(ours) && !permission.permits(theirs),
                "{permission:?}"
            );
        }
        let unclaimed = Permission { claim: None, ..whole };
        assert!(!unclaimed.permits(ours) && unclaimed.expects(ours));
    }
}
