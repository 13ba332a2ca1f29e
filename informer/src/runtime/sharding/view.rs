//! `View`: the members as one replica sees them, and the owners of keys among them.

use std::fmt::{self, Write as _};
use std::sync::Arc;

/// Prefix of the list of members in a Lease. Any other prefix is from a later version.
const VERSION: &str = "v1:";

/// Members by name. The owner of a key is a function of them and of the key's text alone: the same in every process, on
/// every machine, and in every version of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View(Members);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Members {
    /// In the order of their names.
    Known(Arc<[Member]>),
    /// Unreadable members: the replica that published them may own any key.
    Unreadable,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Member {
    name: Arc<str>,
    hash: u64,
}

impl View {
    /// Returns the view without members, which claims nothing.
    pub(super) fn none() -> Self {
        Self::of([])
    }

    /// Returns the view of a replica that may own any key.
    pub(super) fn unreadable() -> Self {
        Self(Members::Unreadable)
    }

    pub(super) fn of(names: impl IntoIterator<Item = Arc<str>>) -> Self {
        let members = names.into_iter().map(|name| Member {
            hash: place_of(&name),
            name,
        });
        let mut members: Vec<_> = members.collect();
        members.sort();
        members.dedup();
        Self(Members::Known(members.into()))
    }

    /// Parses the text in a Lease.
    pub(super) fn read(text: Option<&str>) -> Self {
        let names = text.and_then(|it| it.strip_prefix(VERSION));
        let names = names.and_then(|it| serde_json::from_str::<Vec<String>>(it).ok());
        names.map_or(Self::unreadable(), |names| Self::of(names.into_iter().map(Arc::from)))
    }

    /// Returns the text for a Lease.
    pub(super) fn write(&self) -> String {
        format!("{VERSION}{}", serde_json::Value::from(self.names()))
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.members().iter().map(|it| it.name.to_string()).collect()
    }

    fn members(&self) -> &[Member] {
        match &self.0 {
            Members::Known(members) => members,
            Members::Unreadable => &[],
        }
    }

    /// Returns the owner of the keys of a place: the member of the highest weight.
    pub(super) fn owner(&self, place: u64) -> Option<&str> {
        let weight = |it: &Member| mix(it.hash ^ place);
        // Of two members with the same weight the last in order.
        let owner = self.members().iter().max_by_key(|it| weight(it));
        owner.map(|it| &*it.name)
    }

    /// Returns `true` if a replica `name` with this view claims the keys of a place.
    pub(super) fn claims(&self, name: &str, place: u64) -> bool {
        self.0 == Members::Unreadable || self.owner(place) == Some(name)
    }
}

/// Returns the place of a key on the hash space, from its text.
pub(crate) fn place_of<T: fmt::Display + ?Sized>(key: &T) -> u64 {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    // Formatting that fails ends at the same byte in every process.
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

/// Spreads a number over all bits (the last steps of splitmix64).
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
    fn a_key_belongs_to_one_and_each_has_about_its_share() {
        let view = view(&["a", "b", "c"]);
        let mut shares = std::collections::BTreeMap::<_, u32>::new();
        for key in 0..3_000 {
            let owner = view
                .owner(place_of(&format!("default/web-{key}")))
                .expect("there are members");
            *shares.entry(owner).or_default() += 1;
        }
        assert!(shares.values().all(|it| (850..1_150).contains(it)), "{shares:?}");
        assert_eq!(View::none().owner(7), None);
    }

    #[test]
    fn a_new_member_takes_keys_and_moves_none_between_others() {
        let (before, after) = (view(&["a", "b"]), view(&["c", "b", "a"]));
        for key in 0..1_000 {
            let place = place_of(&key);
            let (old, new) = (before.owner(place), after.owner(place));
            assert!(old == new || new == Some("c"), "{old:?} {new:?}");
        }
    }

    #[test]
    fn an_owner_is_the_same_in_every_version_of_the_program() {
        let view = view(&["web-0", "web-1", "web-2"]);
        let owners = ["default/a", "default/b", "shop/a", "node-1"].map(|it| view.owner(place_of(&it)));
        assert_eq!(owners, [Some("web-2"), Some("web-1"), Some("web-0"), Some("web-1")]);
    }

    #[test]
    fn a_view_is_read_as_it_was_written_and_claims_all_where_it_cannot_be_read() {
        let members = view(&["a, \"b\"", "c"]);
        assert_eq!(View::read(Some(&members.write())), members);
        assert_eq!(View::read(Some(&View::none().write())), View::none());
        for text in [None, Some(""), Some("v2:[]"), Some("v1:a"), Some("v1:[1]")] {
            assert!(View::read(text).claims("anybody", 7), "{text:?}");
        }
        assert!(!View::none().claims("a", 7));
    }
}
