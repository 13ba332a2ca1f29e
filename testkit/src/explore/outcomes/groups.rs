//! Groups of related objects. If several controllers compete, a different controller may have been first in each group.

use std::collections::BTreeSet;

use super::difference::Difference;
use super::end_state::EndState;
use crate::mask::Mask;

impl EndState {
    /// Returns `true` if each group of related objects in `found` equals the group in this state or in `other`. This
    /// state and `found` must have the same objects and fields: if an object or field is missing in one of them, no
    /// other controller has written it. Values that `other` only assigns to different objects do not count as
    /// differences, because two objects of `found` could have the same value.
    pub(crate) fn differs_in_groups_like(&self, found: &Self, other: &Self, mask: &Mask) -> bool {
        let (differences, _) = self.differences_but_for_order(found, mask);
        let (others, _) = self.differences_but_for_order(other, mask);
        let has_value =
            |it: &Difference| matches!(&it.values, Some((one, other)) if !one.is_null() && !other.is_null());
        if !differences.iter().all(has_value) {
            return false;
        }
        let keys: BTreeSet<&str> = differences.iter().chain(&others).map(|it| &*it.key).collect();
        let groups = groups(keys, |one, another| {
            [self, found, other].iter().any(|it| it.mentions_name(one, another))
        });
        groups.iter().all(|group| {
            let of = |all: &[Difference]| -> BTreeSet<(String, String, String)> {
                let all = all.iter().filter(|it| group.contains(&*it.key));
                all.map(|it| (it.key.to_string(), it.path.clone(), it.text.clone()))
                    .collect()
            };
            let found = of(&differences);
            found.is_empty() || found == of(&others)
        })
    }

    /// Returns `true` if the name or the content of the object `key` contains the name of the object `other`.
    fn mentions_name(&self, key: &str, other: &str) -> bool {
        let name = name(other);
        key.contains(name)
            || self
                .named(key)
                .iter()
                .any(|it| it.object.value().to_string().contains(name))
    }
}

/// Divides keys into groups, so that related keys are in the same group.
fn groups(keys: BTreeSet<&str>, is_related: impl Fn(&str, &str) -> bool) -> Vec<BTreeSet<&str>> {
    let mut groups: Vec<BTreeSet<&str>> = Vec::new();
    for key in keys {
        let is_near = |it: &BTreeSet<&str>| it.iter().any(|of| is_related(of, key) || is_related(key, of));
        let (near, mut rest): (Vec<_>, Vec<_>) = groups.into_iter().partition(is_near);
        let mut group: BTreeSet<&str> = near.into_iter().flatten().collect();
        group.insert(key);
        rest.push(group);
        groups = rest;
    }
    groups
}

/// Returns the name in a key: `secrets default/web` → `web`.
fn name(key: &str) -> &str {
    let name = key.rfind(['/', ' ']).map_or(key, |at| &key[at + 1..]);
    name.trim_end_matches('*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_of_related_keys_is_one_group() {
        let keys = ["a 1", "b 12", "c 2", "d 3"];
        let is_related = |one: &str, other: &str| name(one).contains(name(other));
        let groups = groups(keys.into(), is_related);
        assert_eq!(
            groups,
            [BTreeSet::from(["a 1", "b 12", "c 2"]), BTreeSet::from(["d 3"])]
        );
    }
}
