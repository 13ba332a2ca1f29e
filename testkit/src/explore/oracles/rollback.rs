//! `Oracle::Rollback`: finds fields that return to an earlier value, for example after a decision based on an old
//! state.

use std::collections::BTreeMap;

use fake_apiserver::{ApiServer, StoredObject};
use serde_json::Value;

use super::facts::Facts;
use super::row::{Looks, OracleRow, Recurring};
use crate::explore::outcomes::{Deciders, Reference, Returned, by_keys, leaves, resource, resource_of};
use crate::text::shortened;
use crate::work::Work;

/// Maximum number of characters of a value in a message.
const VALUE_CHARS: usize = 60;

/// Top-level fields that may return to an earlier value.
const STATUS: [&str; 4] = ["metadata", "status", "kind", "apiVersion"];

pub(super) const ROW: OracleRow = OracleRow {
    name: "no field is rolled back",
    looks: Looks::AtTheEnd(check),
    recurs: Some(recurs),
};

fn check(facts: &Facts<'_>) -> Option<String> {
    let (reference, returned) = (facts.reference?, facts.returned?);
    // A client with an outdated state acts on it, and a late write is based on an outdated state.
    let mut faults = facts.gate.plan.faults.iter();
    if faults.any(|it| it.action.fault.row().shows_old) {
        return None;
    }
    let ((object, field), how) = not_in_reference(returned, reference).next()?;
    Some(format!("{object} {field} {how}"))
}

fn recurs(runs: &Recurring<'_>) -> bool {
    let mut returned = not_in_reference(&runs.failed.returned, runs.reference);
    returned.all(|(field, _)| runs.faultless.returned.contains_key(field))
}

/// Returns the fields that return to an earlier value, but do not do so in the reference.
fn not_in_reference<'a>(
    returned: &'a Returned,
    reference: &'a Reference,
) -> impl Iterator<Item = (&'a (String, String), &'a String)> {
    returned.iter().filter(|(found, _)| {
        let (resource, field) = (resource_of(&found.0), &found.1);
        !reference.outcome.returned.contains_key(*found) && !reference.mask.hides(resource, field)
    })
}

/// Returns the fields that have returned to an earlier value since a revision, by object and field, with a description.
/// Excludes `metadata`, `status`, and objects that only the server's workers wrote: an endpoint becomes ready again
/// when its Pod does.
pub(crate) fn returned(server: &ApiServer, since: u64, work: &Work) -> Returned {
    let mut versions: BTreeMap<String, Vec<StoredObject>> = BTreeMap::new();
    for object in server.written_objects(since) {
        if !work.is_beside(object.group(), object.resource()) {
            versions.entry(object.uid().to_owned()).or_default().push(object);
        }
    }
    let deciders = Deciders::of(server);
    let mut returned = BTreeMap::new();
    for versions in versions.into_values() {
        // Most writes only change the status. A field can only return to a value if there are at least three different
        // contents.
        let versions = with_own_content(versions);
        let is_derived = |it: &StoredObject| deciders.is_derived(&it.value(), "");
        if versions.len() < 3 || versions.iter().all(is_derived) {
            continue;
        }
        let object = format!(
            "{} {}/{}",
            resource(&versions[0]),
            versions[0].namespace(),
            versions[0].name()
        );
        let mut values: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for (nth, version) in versions.iter().enumerate() {
            let mut value = version.value();
            by_keys(version, &mut value);
            let mut leaves = leaves(value, &|path| STATUS.contains(&path));
            // A missing field counts as a value.
            for (path, taken) in &mut values {
                let now = leaves.remove(path).unwrap_or_default();
                if taken.last() != Some(&now) {
                    taken.push(now);
                }
            }
            for (path, now) in leaves {
                let before = (nth > 0).then_some(Value::Null);
                values.entry(path).or_default().extend(before.into_iter().chain([now]));
            }
        }
        for (path, taken) in values {
            let last = taken
                .iter()
                .enumerate()
                .find(|(at, value)| taken[..*at].contains(value));
            // Entries of lists and maps may be removed and added.
            if let Some((at, value)) = last.filter(|(at, _)| !taken[..*at].contains(&Value::Null)) {
                let left = shortened(&taken[at - 1].to_string(), VALUE_CHARS);
                let how = format!(
                    "was {0}, then {left}, then {0} again",
                    shortened(&value.to_string(), VALUE_CHARS)
                );
                returned.insert((object.replace(" /", " "), path), how);
            }
        }
    }
    returned
}

/// Removes versions of an object that have the same content as the version before them.
fn with_own_content(versions: Vec<StoredObject>) -> Vec<StoredObject> {
    let mut kept: Vec<StoredObject> = Vec::new();
    for version in versions {
        let is_repeated = kept.last().is_some_and(|it| {
            let [before, now] = [it, &version].map(StoredObject::stored_bytes);
            content(before).eq(content(now))
        });
        if !is_repeated {
            kept.push(version);
        }
    }
    kept
}

/// Returns the bytes of each field of an object except for `metadata` and `status`. The bytes of a stored object begin
/// within its metadata.
fn content(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut at, mut depth) = (0, 2_u32);
    let fields = std::iter::from_fn(move || {
        let start = at;
        while let Some(byte) = text.get(at) {
            match byte {
                b'"' => at = end_of_string(text, at),
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            at += 1;
            let is_end = depth == 0 || depth == 1 && *byte == b',';
            if is_end {
                return Some(&text[start..at]);
            }
        }
        None
    });
    // Skip the remaining metadata.
    fields.skip(1).filter(|it| !it.starts_with(b"\"status\":"))
}

/// Returns the index of the closing quote of a string.
fn end_of_string(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(offset) = memchr::memchr2(b'"', b'\\', text.get(at..).unwrap_or_default()) {
        match text[at + offset] {
            b'"' => return at + offset,
            _ => at += offset + 2,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use fake_apiserver::Worker;
    use serde_json::json;

    use super::{content, returned};
    use crate::objects::{config_map, pod, service};
    use crate::work::Work;
    use crate::{Object, TestCluster};

    #[tokio::test]
    async fn rollback_of_worker_fields_is_not_reported() {
        let cluster = TestCluster::builder().workers(Worker::ALL).start();
        let web = service("web").set("spec", json!({"selector": {"app": "web"}, "ports": [{"port": 80}]}));
        cluster.create(web).await;
        cluster.create(pod("web-0").label("app", "web")).await;
        cluster.create(config_map("colors").data("web", "red")).await;
        for (is_ready, color) in [("True", "red"), ("False", "blue"), ("True", "red")] {
            let conditions = json!([{"type": "Ready", "status": is_ready}]);
            let ips = json!([{"ip": "10.0.0.7"}]);
            let status = json!({"phase": "Running", "podIP": "10.0.0.7", "podIPs": ips, "conditions": conditions});
            let _: Object = cluster.patch_status(pod("web-0"), status).await;
            let _: Object = cluster
                .patch(config_map("colors"), json!({"data": {"web": color}}))
                .await;
            cluster.settle().await;
        }
        let fields: Vec<_> = returned(cluster.server(), 0, &Work::default()).into_keys().collect();
        assert_eq!(
            fields,
            [("configmaps default/colors".to_owned(), "data.web".to_owned())]
        );
    }

    #[rstest::rstest]
    #[case::status_changes(
        r#""name":"a"},"spec":{"x":[1,"}"]},"status":{"n":1}}"#,
        r#""name":"a","generation":2},"spec":{"x":[1,"}"]},"status":{"n":2}}"#,
        true
    )]
    #[case::spec_changes(r#""name":"a"},"spec":{"x":1}}"#, r#""name":"a"},"spec":{"x":2}}"#, false)]
    #[case::data_is_added(r#""name":"a"}}"#, r#""name":"a"},"data":{"k":"\"v"}}"#, false)]
    fn content_excludes_metadata_and_status(#[case] one: &str, #[case] other: &str, #[case] is_same: bool) {
        assert_eq!(content(one.as_bytes()).eq(content(other.as_bytes())), is_same);
    }
}
