//! `Election`: the locks of leader election that the processes of a run hold. A process that waits for the lock of
//! another process counts as started.

use std::collections::BTreeMap;
use std::sync::Mutex;

use http::Method;
use serde_json::Value;

use super::leases::RECORD;
use crate::lock::lock;

/// The locks of all processes of a run.
#[derive(Debug, Default)]
pub(crate) struct Election(Mutex<BTreeMap<String, Lock>>);

/// A lock: a Lease, or a ConfigMap or Endpoints with a leader election record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lock {
    /// The process that wrote the lock last.
    writer: String,
    /// Set when that process has ended.
    has_ended: bool,
    /// The holder's identity in the last write that contained it, empty if the lock was released. `None` if no request
    /// body with it was JSON.
    identity: Option<String>,
}

/// State of a lock before a write.
#[derive(Debug)]
pub(crate) struct Earlier {
    path: String,
    lock: Option<Lock>,
}

impl Election {
    /// Records a write of a lock by a process. Ignores other requests. Returns the lock's path and its earlier state,
    /// for [`refused`](Self::refused).
    pub(crate) fn writes(&self, process: &str, method: &Method, path: &str, body: &[u8]) -> Option<Earlier> {
        let is_write = matches!(*method, Method::PUT | Method::POST | Method::PATCH);
        let is_lease = path.contains("/coordination.k8s.io/") && path.contains("/leases");
        if !is_write || !(is_lease || memchr::memmem::find(body, RECORD.as_bytes()).is_some()) {
            return None;
        }
        let path = match *method {
            Method::POST => {
                crate::explore::parts::name_in(body).map(|name| format!("{}/{name}", path.trim_end_matches('/')))
            }
            _ => Some(path.to_owned()),
        }?;
        let mut locks = lock(&self.0);
        let before = locks.get(&path).cloned();
        let own = before.as_ref().filter(|it| it.writer == process);
        let held = Lock {
            writer: process.to_owned(),
            has_ended: false,
            identity: holder(body).or_else(|| own.and_then(|it| it.identity.clone())),
        };
        locks.insert(path.clone(), held);
        Some(Earlier { path, lock: before })
    }

    /// Restores the earlier state of a lock after the server refused a write of a process, unless another process has
    /// written the lock in the meantime.
    pub(crate) fn refused(&self, process: &str, earlier: Earlier) {
        let mut locks = lock(&self.0);
        if locks.get(&earlier.path).is_some_and(|it| it.writer == process) {
            match earlier.lock {
                Some(before) => locks.insert(earlier.path, before),
                None => locks.remove(&earlier.path),
            };
        }
    }

    /// Records that a process has ended. Its locks expire.
    pub(crate) fn ended(&self, process: &str) {
        let mut locks = lock(&self.0);
        let own = locks.values_mut().filter(|it| it.writer == process);
        own.for_each(|it| it.has_ended = true);
    }

    /// Returns `true` if the object at this path is a lock that another running process holds.
    pub(crate) fn is_held_by_another(&self, process: &str, path: &str) -> bool {
        let is_held = |it: &Lock| it.writer != process && !it.has_ended && it.identity.as_deref() != Some("");
        lock(&self.0).get(path).is_some_and(is_held)
    }

    /// Returns the paths of the locks that a process wrote last, with the identities of their holders; `None` if the
    /// identity is not known.
    pub(crate) fn left_by(&self, process: &str) -> Vec<(String, Option<String>)> {
        let locks = lock(&self.0);
        let left = locks.iter().filter(|(_, it)| it.writer == process);
        left.map(|(path, it)| (path.clone(), it.identity.clone())).collect()
    }
}

/// Returns the holder's identity in a written lock. `null` releases the lock.
fn holder(body: &[u8]) -> Option<String> {
    let object: Value = serde_json::from_slice(body).ok()?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match object["metadata"]["annotations"][RECORD].as_str() {
        Some(record) => serde_json::from_str::<Value>(record)
            .ok()?
            .get("holderIdentity")
            .map(text),
        None => object["spec"].get("holderIdentity").map(text),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

    fn lease(holder: &str) -> Vec<u8> {
        let lease = json!({"metadata": {"name": "lock"}, "spec": {"holderIdentity": holder}});
        lease.to_string().into_bytes()
    }

    #[test]
    fn lock_is_held_until_its_writer_ends_or_releases_it() {
        let (election, path) = (Election::default(), format!("{LEASES}/lock"));
        election.writes("a", &Method::POST, LEASES, &lease("one"));
        assert!(election.is_held_by_another("b", &path));
        assert!(!election.is_held_by_another("a", &path));
        election.ended("a");
        assert!(!election.is_held_by_another("b", &path));
        assert_eq!(election.left_by("a"), [(path.clone(), Some("one".to_owned()))]);
        election.writes("b", &Method::PUT, &path, &lease("two"));
        assert!(election.is_held_by_another("a", &path));
        assert_eq!(election.left_by("a"), []);
        election.writes("b", &Method::PUT, &path, &lease(""));
        assert!(!election.is_held_by_another("a", &path));
    }

    #[test]
    fn refused_write_does_not_change_the_holder() {
        let (election, path) = (Election::default(), format!("{LEASES}/lock"));
        election.writes("a", &Method::POST, LEASES, &lease("one"));
        let earlier = election.writes("b", &Method::POST, LEASES, &lease("two"));
        assert!(!election.is_held_by_another("b", &path));
        election.refused("b", earlier.expect("the request writes a lock"));
        assert!(election.is_held_by_another("b", &path));
        let renewal = json!({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}).to_string();
        election.writes("a", &Method::PATCH, &path, renewal.as_bytes());
        assert_eq!(election.left_by("a"), [(path, Some("one".to_owned()))]);
    }

    #[test]
    fn record_in_an_annotation_is_a_lock() {
        let (election, path) = (Election::default(), "/api/v1/namespaces/default/configmaps/lock");
        let record = json!({"holderIdentity": "one"}).to_string();
        let body = json!({"metadata": {"name": "lock", "annotations": {RECORD: record}}}).to_string();
        election.writes("a", &Method::PUT, path, body.as_bytes());
        election.writes("a", &Method::PUT, "/api/v1/namespaces/default/configmaps/other", b"{}");
        election.ended("a");
        assert_eq!(election.left_by("a"), [(path.to_owned(), Some("one".to_owned()))]);
    }
}
