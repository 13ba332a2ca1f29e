//! Digest of a run: a hash of its requests, responses and watch events, and of its stored objects.

use std::hash::{DefaultHasher, Hash, Hasher};

use fake_apiserver::{Entry, RecordedEvent, RecordedRequest};

use crate::test_cluster::TestCluster;

/// Returns a hash of all recorded requests, responses and watch events, and of all stored objects. The resource
/// `events` is excluded, because kube's recorder derives the names and times of Events from the machine's clock.
pub(crate) fn digest(cluster: &TestCluster) -> u64 {
    let is_event = |group: &str, resource: &str| matches!((group, resource), ("" | "events.k8s.io", "events"));
    let mut hasher = DefaultHasher::new();
    for entry in cluster.journal().since(0) {
        match entry {
            Entry::Request(it) if it.info.as_ref().is_some_and(|it| is_event(&it.group, &it.resource)) => {}
            Entry::Event(it) if is_event(&it.group, &it.resource) => {}
            Entry::Request(request) => hash_request(&request, &mut hasher),
            Entry::Event(event) => hash_event(&event, &mut hasher),
        }
    }
    let objects = cluster.server.stored_objects().into_iter();
    for object in objects.filter(|it| !is_event(it.group(), it.resource())) {
        (object.resource(), object.namespace(), object.name(), object.revision()).hash(&mut hasher);
        object.value().to_string().hash(&mut hasher);
    }
    hasher.finish()
}

fn hash_request(request: &RecordedRequest, hasher: &mut DefaultHasher) {
    (request.started, request.answered, &request.method, &request.path).hash(hasher);
    (&request.client, &request.user_agent, request.code).hash(hasher);
    (&request.request_body, request.answer_bytes()).hash(hasher);
}

fn hash_event(event: &RecordedEvent, hasher: &mut DefaultHasher) {
    (event.at, event.watch, &event.client, event.kind, event.revision).hash(hasher);
    event.line.hash(hasher);
}
