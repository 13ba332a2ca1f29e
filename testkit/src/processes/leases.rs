//! Releases the locks of a killed leader, as if they had expired, so that the next leader does not have to wait.

use fake_apiserver::ApiServer;
use http::{Method, Request, header};
use serde_json::{Value, json};

use crate::test_cluster::TEST_CLIENT;

/// Annotation that contains the leader election record, in ConfigMaps and Endpoints.
pub(crate) const RECORD: &str = "control-plane.alpha.kubernetes.io/leader";

/// Removes the holder from the locks with these API paths, unless another process has become the holder. If the
/// identity of the previous holder is not known, the lock is only released if `is_single` is set: no other process
/// can have become the holder.
pub(crate) async fn release(server: &ApiServer, locks: &[(String, Option<String>)], is_single: bool) {
    for (path, identity) in locks {
        if identity.is_none() && !is_single {
            continue;
        }
        let request = |method: Method, body: String| {
            let request = Request::builder().method(method).uri(path);
            let request = request.header(header::USER_AGENT, TEST_CLIENT);
            let request = request.header(header::CONTENT_TYPE, "application/merge-patch+json");
            request.body(body)
        };
        let Ok(read) = request(Method::GET, String::new()) else {
            continue;
        };
        let answer = server.call(read).await;
        let Ok(object) = serde_json::from_slice::<Value>(answer.body()) else {
            continue;
        };
        let Some(patch) = released(&object, identity.as_deref()) else {
            continue;
        };
        if let Ok(write) = request(Method::PATCH, patch.to_string()) {
            // Ignore errors: if the object was deleted, it does not block anything.
            let _ = server.call(write).await;
        }
    }
}

/// Returns the patch that releases a lock; `None` if the object is not a lock, or if it is not held by this identity.
fn released(object: &Value, identity: Option<&str>) -> Option<Value> {
    let is_held = |holder: &str| !holder.is_empty() && identity.is_none_or(|it| it == holder);
    if let Some(record) = object["metadata"]["annotations"][RECORD].as_str() {
        let mut record: Value = serde_json::from_str(record).ok()?;
        if !record["holderIdentity"].as_str().is_some_and(is_held) {
            return None;
        }
        record["holderIdentity"] = "".into();
        record["leaseDurationSeconds"] = 1.into();
        return Some(json!({"metadata": {"annotations": {RECORD: record.to_string()}}}));
    }
    let holder = object["spec"]["holderIdentity"].as_str()?;
    is_held(holder).then(|| json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::held_lease(
        json!({"spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}),
        Some("a"),
        Some(json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})),
    )]
    #[case::lease_of_an_unknown_holder(
        json!({"spec": {"holderIdentity": "a"}}),
        None,
        Some(json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})),
    )]
    #[case::lease_of_another_holder(json!({"spec": {"holderIdentity": "b"}}), Some("a"), None)]
    #[case::released_lease(json!({"spec": {"holderIdentity": ""}}), Some(""), None)]
    #[case::object_without_a_lock(json!({"data": {}}), None, None)]
    #[case::lock_in_an_annotation(
        json!({"metadata": {"annotations": {RECORD: r#"{"holderIdentity":"a","leaseDurationSeconds":15}"#}}}),
        Some("a"),
        Some(json!({"metadata": {"annotations": {RECORD: r#"{"holderIdentity":"","leaseDurationSeconds":1}"#}}})),
    )]
    fn only_leases_of_the_killed_holder_are_released(
        #[case] object: Value,
        #[case] identity: Option<&str>,
        #[case] patch: Option<Value>,
    ) {
        assert_eq!(released(&object, identity), patch);
    }
}
