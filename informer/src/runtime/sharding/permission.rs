//! `Permission`: determines the keys that a replica may work on, from the claims of all replicas.

use std::sync::Arc;

use super::view::View;

/// The claims that a replica has observed. The replica may work on a key if all of its own views claim the key, and no
/// view of another replica claims it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Permission {
    /// Identity of this replica.
    pub(super) me: Arc<str>,
    /// View in the Lease of this replica, once the cache contains it.
    pub(super) claim: Option<View>,
    /// Views that the Lease may contain: the cache has not received them yet, or the outcome of the write is unknown.
    pub(super) doubts: Vec<View>,
    /// View that will be published next, without held keys.
    pub(super) target: View,
    /// Views in unexpired Leases of other replicas, unless they equal `claim`.
    pub(super) others: Vec<(Arc<str>, View)>,
}

impl Permission {
    /// Returns a permission without claims.
    pub(super) fn none(me: &Arc<str>) -> Self {
        Self {
            me: Arc::clone(me),
            claim: None,
            doubts: Vec::new(),
            target: View::none(),
            others: Vec::new(),
        }
    }

    /// Returns `true` if the replica may work on the keys at a position in the hash space.
    pub(super) fn permits(&self, place: u64) -> bool {
        let is_mine = |view: &View| view.claims(&self.me, place);
        self.claim.as_ref().is_some_and(is_mine)
            && is_mine(&self.target)
            && self.doubts.iter().all(is_mine)
            && !self.others.iter().any(|(other, view)| view.claims(other, place))
    }

    /// Returns `true` if it is certain that `after` permits no keys that this permission does not permit.
    pub(super) fn includes(&self, after: &Self) -> bool {
        let has_same_claims = self.claim == after.claim && self.target == after.target;
        let keeps_limits = self.doubts.iter().all(|it| after.doubts.contains(it))
            && self.others.iter().all(|it| after.others.contains(it));
        after.claim.is_none() || has_same_claims && keeps_limits
    }

    /// Returns `true` if the target view claims the keys at a position in the hash space. The replica may work on these
    /// keys now, or will be able to once the target has been published.
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
    fn key_is_permitted_if_all_own_views_claim_it_and_no_other_member_does() {
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

    #[test]
    fn permission_includes_a_permission_with_further_limits() {
        let (alone, all) = (view(&["a"]), view(&["a", "b"]));
        let whole = Permission {
            me: Arc::from("a"),
            claim: Some(alone.clone()),
            doubts: Vec::new(),
            target: alone,
            others: Vec::new(),
        };
        let narrower = [
            Permission {
                doubts: vec![all.clone()],
                ..whole.clone()
            },
            Permission {
                others: vec![(Arc::from("b"), all)],
                ..whole.clone()
            },
        ];
        for narrow in &narrower {
            assert!(whole.includes(narrow) && !narrow.includes(&whole), "{narrow:?}");
        }
        assert!(whole.includes(&Permission::none(&whole.me)));
    }
}
