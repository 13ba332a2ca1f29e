//! `View`: the members of a group as a replica observes them, and the owners of keys.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Prefix of a list of members in a Lease.
const VERSION: &str = "v1:";

/// Prefix of a list of members together with held keys. Prefixes other than this one and [`VERSION`] are from later
/// versions of this crate; a replica that reads such a list assumes that the Lease claims all keys.
const VERSION_HOLDING: &str = "v2:";

/// The members of a group by name, which determine the owner of each key. The owner depends only on the string form of
/// the key and on the members, so it is the same on every machine and in every version of this crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    members: Members,
    /// Keys that the replica is still working on although other members own them, by their positions in the hash space.
    held: Arc<BTreeMap<u64, String>>,
}

/// JSON representation of a view with held keys.
#[derive(Deserialize, Serialize)]
struct Holding {
    members: Vec<String>,
    held: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Members {
    /// The members, sorted by name.
    Known(Arc<[Member]>),
    /// The members cannot be parsed, so the replica that published them may own any key.
    Unreadable,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Member {
    name: Arc<str>,
    hash: u64,
}

impl View {
    /// Returns a view without members, which claims nothing.
    pub(super) fn none() -> Self {
        Self::of([])
    }

    /// Returns a view that claims all keys, because it could not be parsed.
    pub(super) fn unreadable() -> Self {
        Self {
            members: Members::Unreadable,
            held: Arc::default(),
        }
    }

    pub(super) fn of(names: impl IntoIterator<Item = Arc<str>>) -> Self {
        let members = names.into_iter().map(|name| Member {
            hash: place_of(&name),
            name,
        });
        let mut members: Vec<_> = members.collect();
        members.sort();
        members.dedup();
        Self {
            members: Members::Known(members.into()),
            held: Arc::default(),
        }
    }

    /// Returns the view with these held keys.
    pub(super) fn holding(&self, held: impl IntoIterator<Item = String>) -> Self {
        let held = held.into_iter().map(|it| (place_of(&it), it));
        Self {
            members: self.members.clone(),
            held: Arc::new(held.collect()),
        }
    }

    /// Returns the held keys with their positions in the hash space.
    pub(super) fn held(&self) -> impl Iterator<Item = (u64, &str)> {
        self.held.iter().map(|(place, text)| (*place, text.as_str()))
    }

    /// Returns `true` if both views have the same members.
    pub(super) fn has_members_of(&self, other: &Self) -> bool {
        self.members == other.members
    }

    /// Parses a view from a Lease. If this fails, the view claims all keys.
    pub(super) fn read(text: Option<&str>) -> Self {
        let holding = |text: &str| {
            if let Some(names) = text.strip_prefix(VERSION) {
                let members = serde_json::from_str(names).ok()?;
                return Some(Holding {
                    members,
                    held: Vec::new(),
                });
            }
            serde_json::from_str(text.strip_prefix(VERSION_HOLDING)?).ok()
        };
        match text.and_then(holding) {
            None => Self::unreadable(),
            Some(Holding { members, held }) => Self::of(members.into_iter().map(Arc::from)).holding(held),
        }
    }

    /// Returns the string form of the view, for a Lease.
    pub(super) fn write(&self) -> String {
        let members = serde_json::Value::from(self.names());
        if self.held.is_empty() {
            return format!("{VERSION}{members}");
        }
        let held: Vec<_> = self.held.values().collect();
        format!(
            "{VERSION_HOLDING}{}",
            serde_json::json!({"members": members, "held": held})
        )
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.members().iter().map(|it| it.name.to_string()).collect()
    }

    fn members(&self) -> &[Member] {
        match &self.members {
            Members::Known(members) => members,
            Members::Unreadable => &[],
        }
    }

    /// Returns the owner of the keys at a position in the hash space: the member with the highest weight.
    pub(super) fn owner(&self, place: u64) -> Option<&str> {
        let weight = |it: &Member| mix(it.hash ^ place);
        // If two members have the same weight, the last one by name is the owner.
        let owner = self.members().iter().max_by_key(|it| weight(it));
        owner.map(|it| &*it.name)
    }

    /// Returns `true` if the replica `name` with this view claims the keys at a position in the hash space.
    pub(super) fn claims(&self, name: &str, place: u64) -> bool {
        self.members == Members::Unreadable || self.owner(place) == Some(name) || self.held.contains_key(&place)
    }
}

/// Returns the position of a key in the hash space, which is the hash of its string form.
pub(crate) fn place_of<T: fmt::Display + ?Sized>(key: &T) -> u64 {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    // Errors of the `Display` implementation are ignored, because they occur after the same bytes in every process.
    let _ = write!(hash, "{key}");
    mix(hash.0)
}

struct Fnv(u64);

impl fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(())
    }
}

/// Mixes all bits of a number (the last steps of SplitMix64).
fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(names: &[&str]) -> View {
        View::of(names.iter().map(|it| Arc::from(*it)))
    }

    #[test]
    fn each_key_has_one_owner_and_shares_are_balanced() {
        let view = view(&["a", "b", "c"]);
        let mut shares = std::collections::BTreeMap::<_, u32>::new();
        for key in 0..3_000 {
            let owner = view
                .owner(place_of(&format!("default/web-{key}")))
                .expect("the view has members");
            *shares.entry(owner).or_default() += 1;
        }
        assert!(shares.values().all(|it| (850..1_150).contains(it)), "{shares:?}");
        assert_eq!(View::none().owner(7), None);
    }

    #[test]
    fn new_member_only_takes_over_its_own_share() {
        let (before, after) = (view(&["a", "b"]), view(&["c", "b", "a"]));
        for key in 0..1_000 {
            let place = place_of(&key);
            let (old, new) = (before.owner(place), after.owner(place));
            assert!(old == new || new == Some("c"), "{old:?} {new:?}");
        }
    }

    #[test]
    fn key_owners_do_not_change_between_program_versions() {
        let view = view(&["web-0", "web-1", "web-2"]);
        let owners = ["default/a", "default/b", "shop/a", "node-1"].map(|it| view.owner(place_of(&it)));
        assert_eq!(owners, [Some("web-2"), Some("web-1"), Some("web-0"), Some("web-1")]);
    }

    #[test]
    fn member_view_round_trips_and_claims_all_keys_if_unreadable() {
        let members = view(&["a, \"b\"", "c"]);
        assert_eq!(View::read(Some(&members.write())), members);
        assert_eq!(View::read(Some(&View::none().write())), View::none());
        let holding = members.holding(["shop/x".to_owned(), "shop/\"y\"".to_owned()]);
        assert_eq!(View::read(Some(&holding.write())), holding);
        assert!(holding.claims("anybody", place_of("shop/x")) && !members.claims("anybody", place_of("shop/x")));
        for text in [
            None,
            Some(""),
            Some("v2:[]"),
            Some("v3:[]"),
            Some("v1:a"),
            Some("v1:[1]"),
        ] {
            assert!(View::read(text).claims("anybody", 7), "{text:?}");
        }
        assert!(!View::none().claims("a", 7));
    }
}
