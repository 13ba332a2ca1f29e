//! Orders in which the objects of the test may arrive. A run in which controllers observe the objects one at a time, in
//! any order, is a correct run without faults. A failing run with the same end state only has another order.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fake_apiserver::{StoredChange, Verb};
use serde_json::Value;

use crate::explore::outcomes::{Outcome, plain_key};
use crate::explore::trace::What;
use crate::test_cluster::TEST_CLIENT;

/// Maximum number of objects for which all orders are tried.
const ALL_ORDERS: usize = 3;

/// Maximum number of objects in an order, because the run takes longer with each object.
const MOST_OBJECTS: usize = 24;

/// An object that the test has created.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Created {
    /// Time since the start of the run.
    at: Duration,
    /// Resource, namespace and name, such as `configmaps default/web`.
    key: String,
}

impl Created {
    fn name(&self) -> &str {
        let at = self.key.rfind(['/', ' ']).map_or(0, |at| at + 1);
        &self.key[at..]
    }
}

/// Returns the orders in which the failing run may have handled objects of one resource that the test created at the
/// same time, the most likely first. An object that the test created earlier also arrives earlier: controllers can
/// compare the times of creation. Objects that refer to each other, and more than `MOST_OBJECTS`, are not reordered.
pub(super) fn orders(failed: &Outcome) -> Vec<Vec<String>> {
    let changes = changes(failed);
    let handled = handled(failed, &changes);
    let mut all = Vec::new();
    for siblings in siblings(failed) {
        if siblings.len() > MOST_OBJECTS || refer_to_each_other(failed, &siblings, &changes) {
            continue;
        }
        let place = |which: fn(&(usize, usize)) -> usize| {
            let handled = &handled;
            move |it: &Created| (handled.get(&it.key).map_or(usize::MAX, which), it.key.clone())
        };
        let mut orders = vec![
            sorted(&siblings, place(|it| it.0)),
            sorted(&siblings, place(|it| it.1)),
            sorted(&siblings, |it| it.key.clone()),
        ];
        if siblings.len() <= ALL_ORDERS {
            let ranks = permutations(siblings.len());
            let rank =
                |ranks: &[usize], it: &Created| siblings.iter().position(|other| other == it).map(|at| ranks[at]);
            orders.extend(ranks.iter().map(|ranks| sorted(&siblings, |it| rank(ranks, it))));
        }
        all.extend(orders);
    }
    let mut known = BTreeSet::new();
    all.retain(|it| known.insert(it.clone()));
    all
}

/// Returns the objects of the test by resource, oldest first. Omits resources of which the test did not create two
/// objects at the same time.
fn siblings(failed: &Outcome) -> Vec<Vec<Created>> {
    let mut by_resource: BTreeMap<&str, Vec<Created>> = BTreeMap::new();
    for doing in &failed.doings {
        let is_created = doing.verb == Verb::Create && doing.subresource.is_empty() && doing.wrote.is_some();
        let siblings = by_resource.entry(&doing.resource).or_default();
        let (at, key) = (doing.at, doing.key());
        // An object may be created again after its deletion. Only the first creation is ordered.
        if is_created && siblings.iter().all(|it| it.key != key) {
            siblings.push(Created { at, key });
        }
    }
    let are_unordered = |all: &Vec<Created>| all.windows(2).any(|it| it[0].at == it[1].at);
    by_resource.into_values().filter(are_unordered).collect()
}

/// Sorts objects by the time of their creation, then by a rank.
fn sorted<R: Ord>(siblings: &[Created], rank: impl Fn(&Created) -> R) -> Vec<String> {
    let mut sorted: Vec<&Created> = siblings.iter().collect();
    sorted.sort_by_cached_key(|it| (it.at, rank(it)));
    sorted.into_iter().map(|it| it.key.clone()).collect()
}

/// Returns all permutations of the numbers below `count`.
fn permutations(count: usize) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = vec![Vec::new()];
    for _ in 0..count {
        let longer = all.iter().flat_map(|start| {
            let rest = (0..count).filter(move |it| !start.contains(it));
            rest.map(move |next| start.iter().copied().chain([next]).collect::<Vec<usize>>())
        });
        all = longer.collect();
    }
    all
}

/// Returns the writes of a run by revision.
fn changes(failed: &Outcome) -> BTreeMap<u64, StoredChange> {
    let Some((server, base)) = failed.end.history() else {
        return BTreeMap::new();
    };
    let changes = server.changes_after(*base).into_iter();
    changes.map(|it| (it.revision, it)).collect()
}

/// Returns `true` if the test created an object that contains the name of one of the others.
fn refer_to_each_other(failed: &Outcome, siblings: &[Created], changes: &BTreeMap<u64, StoredChange>) -> bool {
    failed.doings.iter().any(|doing| {
        let key = doing.key();
        let change = doing.wrote.and_then(|it| changes.get(&it));
        let is_sibling = siblings.iter().any(|it| it.key == key);
        let Some(created) = change.and_then(|it| it.after.as_ref()).filter(|_| is_sibling) else {
            return false;
        };
        let mut created = created.value();
        created["metadata"]["name"] = Value::Null;
        let text = content(created);
        let others = siblings.iter().filter(|it| it.key != key);
        others.map(Created::name).any(|it| contains(&text, it))
    })
}

/// Returns the positions in the trace of the first and the last write or call of a controller that concerns each
/// object: a write of the object itself, a write that adds its name to another object, or a call with its name.
fn handled(failed: &Outcome, changes: &BTreeMap<u64, StoredChange>) -> BTreeMap<String, (usize, usize)> {
    let created = siblings(failed).into_iter().flatten();
    let created: Vec<Created> = created.collect();
    let mut handled: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for (at, step) in failed
        .trace
        .iter()
        .enumerate()
        .filter(|(_, it)| *it.client != *TEST_CLIENT)
    {
        let concerned: Vec<&Created> = match &step.what {
            What::Request(request) => {
                let change = request.wrote.and_then(|it| changes.get(&it));
                change.map_or_else(Vec::new, |it| concerned(it, &created))
            }
            What::Call { object, .. } => created.iter().filter(|it| contains(object, it.name())).collect(),
            What::Event { .. } | What::Note(_) => Vec::new(),
        };
        for object in concerned {
            handled.entry(object.key.clone()).or_insert((at, at)).1 = at;
        }
    }
    handled
}

/// Returns the objects that a write concerns.
fn concerned<'a>(change: &StoredChange, created: &'a [Created]) -> Vec<&'a Created> {
    let Some(object) = change.object() else {
        return Vec::new();
    };
    let key = plain_key(object).replace(" /", " ");
    let [before, after] = [&change.before, &change.after].map(|it| it.as_ref().map(|it| content(it.value())));
    let is_added = |name: &str| {
        let has = |text: &Option<String>| text.as_ref().is_some_and(|it| contains(it, name));
        has(&after) && !has(&before)
    };
    let concerned = created.iter().filter(|it| it.key == key || is_added(it.name()));
    concerned.collect()
}

/// Returns an object as a string, without the names of fields in `managedFields`.
fn content(mut object: Value) -> String {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object.to_string()
}

/// Returns `true` if a text contains a name as a separate word.
fn contains(text: &str, name: &str) -> bool {
    let is_part = |sign: Option<char>| sign.is_some_and(char::is_alphanumeric);
    !name.is_empty()
        && text.match_indices(name).any(|(at, _)| {
            let (before, after) = (&text[..at], &text[at + name.len()..]);
            !is_part(before.chars().next_back()) && !is_part(after.chars().next())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::word(r#"{"of":"web"}"#, true)]
    #[case::part_of_a_name(r#"{"of":"default/web-login"}"#, true)]
    #[case::longer_word(r#"{"of":"webhook"}"#, false)]
    #[case::number(r#"{"of":"web2"}"#, false)]
    fn name_is_found_as_a_separate_word(#[case] text: &str, #[case] expected: bool) {
        assert_eq!(contains(text, "web"), expected);
    }

    #[test]
    fn permutations_are_complete() {
        let all = permutations(3);
        assert_eq!(all.len(), 6);
        assert_eq!(BTreeSet::from_iter(all).len(), 6);
    }

    fn created(names: &[(u64, &str)]) -> Vec<Created> {
        let created = names.iter().map(|(at, name)| Created {
            at: Duration::from_secs(*at),
            key: format!("configmaps default/{name}"),
        });
        created.collect()
    }

    #[test]
    fn objects_created_earlier_arrive_earlier() {
        let all = created(&[(0, "c"), (0, "b"), (5, "a")]);
        let expected = ["configmaps default/b", "configmaps default/c", "configmaps default/a"];
        assert_eq!(sorted(&all, |it| it.key.clone()), expected);
    }
}
