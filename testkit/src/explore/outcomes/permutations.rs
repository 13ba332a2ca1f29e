//! Values that a controller assigns in the order in which objects arrive, such as numbers and addresses. Two runs may
//! assign them to different objects, and both are correct.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::difference::Difference;
use crate::mask::general;

/// Maps with arbitrary keys.
const MAPS: [&str; 5] = ["data", "stringData", "binaryData", "annotations", "labels"];

/// Removes the differences in which siblings have exchanged their values, and returns descriptions of them. Siblings
/// are the same field in several objects of one resource and namespace, or the entries of a map with arbitrary keys. A
/// value that also occurs in another field of its object is not considered, because it follows from the object.
pub(crate) fn take_permuted(differences: &mut Vec<Difference>) -> Vec<String> {
    let mut groups: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
    for (at, difference) in differences.iter().enumerate() {
        if difference
            .values
            .as_ref()
            .is_some_and(|it| is_scalar(&it.0) && is_scalar(&it.1))
            && !difference.is_copied
        {
            for group in groups_of(difference) {
                groups.entry(group).or_default().push(at);
            }
        }
    }
    let (mut taken, mut words): (BTreeSet<usize>, Vec<String>) = (BTreeSet::new(), Vec::new());
    for ((of, path), members) in groups {
        let values = |side: fn(&(Value, Value)) -> &Value| {
            let values = members.iter().filter_map(|at| differences[*at].values.as_ref());
            values.map(|it| side(it).to_string()).collect::<BTreeSet<String>>()
        };
        let (expected, found) = (values(|it| &it.0), values(|it| &it.1));
        let is_new = members.iter().all(|at| !taken.contains(at));
        // The items of one list are not siblings: their order may have a meaning.
        let keys: BTreeSet<&str> = members.iter().map(|at| &*differences[*at].key).collect();
        let are_siblings = !of.ends_with("/*") || keys.len() == members.len();
        // The values must be different from each other, so that each belongs to one object.
        if members.len() > 1 && expected.len() == members.len() && expected == found && is_new && are_siblings {
            taken.extend(&members);
            let values: Vec<String> = expected.into_iter().collect();
            words.push(format!("{of} {path}: {}", values.join(", ")));
        }
    }
    let mut at = 0;
    differences.retain(|_| {
        at += 1;
        !taken.contains(&(at - 1))
    });
    words
}

/// Returns `true` if the items of a list only differ in their order. Lists that are sets or have keys have been sorted
/// before, so the order of this list is significant.
pub(super) fn is_list_reordered(differences: &[Difference]) -> bool {
    let mut lists: BTreeMap<(&str, String), [Vec<String>; 2]> = BTreeMap::new();
    for difference in differences {
        if let Some((expected, found)) = &difference.values {
            let key = (&*difference.key, general(&difference.path));
            let [of_expected, of_found] = lists.entry(key).or_default();
            of_expected.push(expected.to_string());
            of_found.push(found.to_string());
        }
    }
    lists.into_values().any(|[mut expected, mut found]| {
        expected.sort();
        found.sort();
        expected.len() > 1 && expected == found
    })
}

/// Returns the groups of siblings that a field belongs to: the same field in other objects, and the other entries of
/// its map.
fn groups_of(difference: &Difference) -> impl Iterator<Item = (String, String)> {
    let Difference { key, path, .. } = difference;
    let of = key.rsplit_once(['/', ' ']).map_or("", |(of, _)| of);
    let siblings = (format!("{of}/*"), general(path));
    let map = MAPS.iter().find_map(|map| {
        let (before, entry) = path.split_once(&format!("{map}."))?;
        let is_map = before.is_empty() || before.ends_with('.');
        (is_map && !entry.is_empty()).then(|| (key.replace(" /", " "), format!("{before}{map}.*")))
    });
    [siblings].into_iter().chain(map)
}

fn is_scalar(value: &Value) -> bool {
    matches!(value, Value::Number(_) | Value::String(_))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[rstest::rstest]
    #[case::exchanged_items(&[("status.queue.0", "a", "b"), ("status.queue.1", "b", "a")], true)]
    #[case::other_item(&[("status.queue.0", "a", "b"), ("status.queue.1", "b", "c")], false)]
    #[case::different_fields(&[("status.first", "a", "b"), ("status.last", "b", "a")], false)]
    fn list_is_reordered_if_its_items_are_the_same(#[case] fields: &[(&str, &str, &str)], #[case] expected: bool) {
        let differences = fields.iter().map(|(path, expected, found)| Difference {
            key: "sites.example.com default/site".into(),
            path: (*path).to_owned(),
            text: String::new(),
            values: Some((json!(expected), json!(found))),
            is_copied: false,
            is_derived: false,
        });
        let differences: Vec<Difference> = differences.collect();
        assert_eq!(is_list_reordered(&differences), expected);
    }
}
