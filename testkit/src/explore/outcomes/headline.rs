//! Headlines of differences from the reference. If an object of the reference outlives its owner, the reference itself
//! is wrong; otherwise, either of the two runs may be wrong.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fake_apiserver::StoredObject;

use super::end_state::{EndState, Kept};
use super::identities::{Referent, Which, resource};
use super::violation::STILL_DIFFERS;
use crate::explore::plans::given;
use crate::explore::trace::{Step, What};

/// Part of the scenario after which a difference is left.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LeftAfter<'a> {
    /// The last step of the scenario.
    End,
    /// The end of a scenario that continued during a fault.
    Overlap,
    /// A step at this place in the test or scenario.
    Step(&'a str),
}

/// Returns the headline of a difference from the reference that is left after `within`, at the end of the scenario or
/// after the step at a place. It does not assume that the reference is right: the reference may lack a repair that the
/// other run has made after its fault.
pub(crate) fn headline(
    (end, trace): (&EndState, &[Step]),
    found: &EndState,
    within: Duration,
    place: LeftAfter<'_>,
) -> String {
    match (left_behind(end, trace, found), place) {
        (Some(left), LeftAfter::End | LeftAfter::Overlap) => format!("{left}:"),
        (Some(left), LeftAfter::Step(place)) => format!("{left}: after the step at {place}"),
        (None, LeftAfter::End) => end_differently(within),
        (None, LeftAfter::Overlap) => format!("{STILL_DIFFERS} after {within:?}, so one of them is wrong:"),
        (None, LeftAfter::Step(place)) => {
            format!("the two runs differ after the step at {place}, so one of them is wrong (waited {within:?}):")
        }
    }
}

/// Returns the headline of a difference at the end of the scenario if it is not known which run is wrong.
pub(crate) fn end_differently(within: Duration) -> String {
    format!("the two runs end differently, so one of them is wrong (waited {within:?}):")
}

/// Describes an object, or a key of an external system, that exists in the reference but not in the other run, if it
/// was created for an object that no longer exists. `end` is the state of the reference. `trace` is the trace in which
/// the writer of the object is looked up.
fn left_behind(end: &EndState, trace: &[Step], found: &EndState) -> Option<String> {
    let gone = gone(end);
    let left = |what: String, writer: Option<Arc<str>>, owner: &StoredObject| {
        let writer = writer
            .map(|it| format!(", written by {}", given(&it)))
            .unwrap_or_default();
        let owner = format!("{} {}/{}", resource(owner), owner.namespace(), owner.name()).replace(" /", " ");
        format!("left behind in the reference run: {what}{writer} for {owner}, which no longer exists")
    };
    let has_fewer = |(key, all): &(&Arc<str>, &Vec<Kept>)| {
        let found = found.without_earlier_rollouts(key, found.named(key));
        found.len() < end.without_earlier_rollouts(key, all).len()
    };
    for (key, all) in end.all().filter(has_fewer) {
        if let Some(owner) = all.iter().find_map(|kept| gone_owner(end, kept, &gone)) {
            return Some(left(key.replace(" /", " "), writer(trace, key), owner));
        }
    }
    for (system, kept) in end.externals() {
        let others = found.externals().get(system);
        let missing = kept
            .objects
            .iter()
            .filter(|(key, _)| others.is_none_or(|it| !it.objects.contains_key(*key)));
        for (key, value) in missing {
            let text = format!("{key} {value}");
            let tokens = end.identities().in_text(&text);
            let is_of = |owner: &&&StoredObject| {
                let means = |it: &Referent| matches!(it.which, Which::Deleted(_)) && it.what == "uid";
                tokens.iter().any(|(_, token, it)| means(it) && *token == owner.uid())
                    || is_named_after(key, owner.name())
            };
            if let Some(owner) = gone.iter().find(is_of) {
                return Some(left(format!("{system} {key}"), caller(trace, key), owner));
            }
        }
    }
    None
}

/// Returns the deleted objects, oldest first, except if an object with the same name and resource exists now.
pub(super) fn gone(end: &EndState) -> Vec<&StoredObject> {
    let is_gone = |owner: &&StoredObject| {
        let key = format!("{} {}/{}", resource(owner), owner.namespace(), owner.name());
        end.named(&key).is_empty()
    };
    end.deleted().iter().filter(is_gone).collect()
}

/// Returns the object in `gone` for which the run probably created the object `kept`: `kept` contains its uid, or is
/// named after it.
pub(super) fn gone_owner<'a>(end: &EndState, kept: &Kept, gone: &[&'a StoredObject]) -> Option<&'a StoredObject> {
    if kept.is_untouched {
        return None;
    }
    let mentioned: BTreeSet<&str> = end.mentions(kept).iter().map(String::as_str).collect();
    let is_of = |owner: &&&StoredObject| {
        let is_near = owner.namespace().is_empty() || owner.namespace() == kept.object.namespace();
        mentioned.contains(owner.uid()) || is_near && is_named_after(kept.object.name(), owner.name())
    };
    gone.iter().find(is_of).copied()
}

/// Returns `true` if `name` equals `owner` or begins with it and a hyphen: `web-data` is named after `web`.
fn is_named_after(name: &str, owner: &str) -> bool {
    let rest = name.strip_prefix(owner);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Returns the client that last wrote an object.
fn writer(trace: &[Step], key: &str) -> Option<Arc<str>> {
    let (resource, object) = key.split_once(' ')?;
    let mut steps = trace.iter().rev();
    let step = steps.find(|step| match &step.what {
        What::Request(request) => request.is_write() && request.base() == resource && request.named() == object,
        What::Event { .. } | What::Call { .. } | What::Note(_) => false,
    });
    step.map(|it| Arc::clone(&it.client))
}

/// Returns the client that made the last call to an external system about a key.
fn caller(trace: &[Step], key: &str) -> Option<Arc<str>> {
    let mut steps = trace.iter().rev();
    let step = steps.find(|step| matches!(&step.what, What::Call { object, .. } if object == key));
    step.map(|it| Arc::clone(&it.client))
}
