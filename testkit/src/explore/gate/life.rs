//! `Life`: one run of a controller, from its start to its crash, and its observations in that time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::lock::lock;

/// One run of a controller, from its start to its crash.
#[derive(Debug)]
pub(crate) struct Life {
    /// The client's name as it appears in points.
    pub(crate) client: Arc<str>,
    pub(crate) number: u32,
    is_dead: AtomicBool,
    /// The client's observations in this run.
    told: Mutex<Told>,
}

/// The objects and revisions that a client has observed.
#[derive(Debug, Default)]
struct Told {
    /// The newest observed revision of each resource.
    revisions: BTreeMap<String, u64>,
    /// The last observed uid of each object, by resource, namespace and name.
    uids: BTreeMap<String, String>,
}

/// The data of an object in a response or event that the gate uses.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) generate_name: String,
    pub(crate) uid: String,
    pub(crate) revision: u64,
}

impl Life {
    pub(crate) fn new(client: Arc<str>, number: u32) -> Self {
        Self {
            client,
            number,
            is_dead: AtomicBool::new(false),
            told: Mutex::default(),
        }
    }

    /// Ends the run of the controller: events and responses are no longer delivered, and new requests do not reach the
    /// server.
    pub(crate) fn end(&self) {
        self.is_dead.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    /// Returns the newest revision of a resource that the client has observed.
    pub(crate) fn view(&self, resource: &str) -> u64 {
        let resource = resource.split('/').next().unwrap_or_default();
        lock(&self.told).revisions.get(resource).copied().unwrap_or_default()
    }

    /// Returns the last uid that the client has observed for a name.
    pub(crate) fn uid(&self, resource: &str, namespace: &str, name: &str) -> Option<String> {
        let resource = resource.split('/').next().unwrap_or_default();
        let key = format!("{resource} {namespace}/{name}");
        lock(&self.told).uids.get(&key).cloned()
    }

    /// Records an object in the response to a request. The client's view of the whole resource does not change.
    pub(crate) fn told_of_object(&self, resource: &str, shown: &Shown) {
        self.tell(resource, shown, 0);
    }

    /// Records an observed object, or only a revision if the object has no name.
    pub(crate) fn told(&self, resource: &str, shown: &Shown) {
        self.tell(resource, shown, shown.revision);
    }

    fn tell(&self, resource: &str, shown: &Shown, revision: u64) {
        let resource = resource.split('/').next().unwrap_or_default();
        let mut told = lock(&self.told);
        match told.revisions.get_mut(resource) {
            Some(newest) => *newest = revision.max(*newest),
            None => drop(told.revisions.insert(resource.to_owned(), revision)),
        }
        if !shown.uid.is_empty() {
            let key = format!("{resource} {}/{}", shown.namespace, shown.name);
            told.uids.insert(key, shown.uid.clone());
        }
    }
}
