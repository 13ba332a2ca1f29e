//! Filtering handlers, predicates, and mappings to keys.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use informer::cache::{FakeSource, SharedInformer};
use informer::handler::{Enqueued, Event, Predicate, ResourceEventHandler, ToKeys, enqueue, predicates};
use informer::{CachedObject, ObjectKey};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::Told;

fn object(version: u64, change: &Value) -> CachedObject<Pod> {
    let mut object = json!({
        "metadata": {
            "name": "web", "namespace": "shop", "resourceVersion": version.to_string(), "generation": 1,
            "labels": {"app": "web"}, "annotations": {"note": "1"},
        },
        "spec": {"containers": []},
    });
    for (path, value) in change.as_object().expect("the value is an object") {
        *object.pointer_mut(path).expect("the path exists") = value.clone();
    }
    CachedObject::decode(&object.to_string()).expect("the object can be decoded")
}

fn updated(change: &Value) -> Event<Pod> {
    Event::Updated {
        old: object(1, &json!({})),
        new: object(2, change),
    }
}

#[rstest]
#[case::generation(json!({"/metadata/generation": 2}), [true, false, false, true])]
#[case::labels(json!({"/metadata/labels": {"app": "api"}}), [false, true, false, true])]
#[case::annotations(json!({"/metadata/annotations": {}}), [false, false, true, true])]
#[case::order_of_labels(json!({"/metadata/labels": {"app": "web"}}), [false, false, false, true])]
#[case::another_field(json!({"/spec": {"containers": [], "nodeName": "a"}}), [false, false, false, true])]
fn update_predicates_compare_generation_labels_annotations_and_version(
    #[case] change: Value,
    #[case] passes: [bool; 4],
) {
    let event = updated(&change);
    let found = [
        predicates::generation_changed().passes(&event),
        predicates::labels_changed().passes(&event),
        predicates::annotations_changed().passes(&event),
        predicates::resource_version_changed().passes(&event),
    ];
    assert_eq!(found, passes);
}

#[test]
fn resync_is_not_a_change() {
    let (old, new) = (object(1, &json!({})), object(1, &json!({})));
    let event = Event::Updated { old, new };
    assert!(event.is_replay());
    assert!(!predicates::resource_version_changed().passes(&event));
}

/// kube-runtime's predicates compare an object with a stored value, and therefore lose deletions (kube-rs/kube#1768).
#[test]
fn change_predicates_pass_additions_and_deletions() {
    let object = object(1, &json!({}));
    let deleted = Event::Deleted {
        object: object.clone(),
        final_state_unknown: false,
    };
    let added = Event::Added {
        object,
        is_in_initial_list: false,
    };
    for event in [deleted, added] {
        assert!(predicates::generation_changed().passes(&event));
        assert!(predicates::labels_changed().passes(&event));
        assert!(predicates::annotations_changed().passes(&event));
        assert!(predicates::resource_version_changed().passes(&event));
    }
}

#[test]
fn predicates_can_be_combined() {
    let event = updated(&json!({"/metadata/generation": 2}));
    let (yes, no) = (
        predicates::generation_changed::<Pod>(),
        predicates::labels_changed::<Pod>(),
    );
    assert!(yes.clone().or(no.clone()).passes(&event));
    assert!(!yes.clone().and(no.clone()).passes(&event));
    assert!(yes.and(no.not()).passes(&event));
}

fn map(name: &str, app: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "shop", "labels": {"app": app}}})
}

/// A change of a source.
type Act = Box<dyn Fn(&FakeSource)>;

/// Runs an informer of a source with the handler, and makes one change per millisecond.
async fn told_of(handler: impl ResourceEventHandler<ConfigMap>, acts: Vec<Act>) {
    let source = FakeSource::new();
    let informer = SharedInformer::<ConfigMap>::new(source.clone());
    informer.add_handler(handler).expect("the informer has not stopped");
    let end = async {
        informer.synced().await.expect("the cache syncs");
        for act in acts {
            act(&source);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    // Everything runs in one task, so the future does not have to be `Send`.
    let run = informer.run(std::future::pending());
    futures::future::select(std::pin::pin!(run), std::pin::pin!(end)).await;
}

#[tokio::test(start_paused = true)]
async fn filtered_handler_receives_adds_and_deletes_for_accepted_objects() {
    let told = Told::default();
    let filtered = told
        .handler::<ConfigMap>()
        .filtered(|it: &CachedObject<ConfigMap>| it.label("app").as_deref() == Some("web"));
    told_of(
        filtered,
        vec![
            Box::new(|it| it.add(map("a", "web"))),
            Box::new(|it| it.add(map("b", "api"))),
            Box::new(|it| it.add(map("a", "web"))),
            Box::new(|it| it.add(map("a", "api"))),
            Box::new(|it| it.add(map("a", "api"))),
            Box::new(|it| it.add(map("a", "web"))),
            Box::new(|it| it.delete("shop", "a")),
            Box::new(|it| it.delete("shop", "b")),
        ],
    )
    .await;
    assert_eq!(
        told.take(),
        [
            "added shop/a",
            "updated shop/a",
            "deleted shop/a",
            "added shop/a",
            "deleted shop/a"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn handler_only_receives_events_that_pass_its_predicate() {
    let told = Told::default();
    let only = told.handler::<ConfigMap>().only(predicates::labels_changed());
    told_of(
        only,
        vec![
            Box::new(|it| it.add(map("a", "web"))),
            Box::new(|it| it.add(map("a", "web"))),
            Box::new(|it| it.add(map("a", "api"))),
            Box::new(|it| it.delete("shop", "a")),
        ],
    )
    .await;
    assert_eq!(told.take(), ["added shop/a", "updated shop/a", "deleted shop/a"]);
}

fn keys(to_keys: &impl ToKeys<Pod>, event: &Event<Pod>) -> Vec<String> {
    let mut keys = Vec::new();
    to_keys.keys(event, &mut |key: ObjectKey| keys.push(key.to_string()));
    keys
}

fn owned(owners: &Value) -> CachedObject<Pod> {
    let metadata = json!({"name": "web-0", "namespace": "shop", "ownerReferences": owners});
    CachedObject::decode(&json!({"metadata": metadata}).to_string()).expect("the object can be decoded")
}

#[test]
fn owners_are_found_by_group_and_kind() {
    let owner = |api: &str, kind: &str, name: &str, controller: bool| json!({"apiVersion": api, "kind": kind, "name": name, "uid": "1", "controller": controller});
    let old = owned(&json!([
        owner("apps/v1beta2", "ReplicaSet", "one", true),
        owner("example.com/v1", "ReplicaSet", "x", true)
    ]));
    let new = owned(&json!([
        owner("apps/v1", "ReplicaSet", "two", false),
        owner("apps/v1", "Deployment", "y", false),
        owner("v1", "Node", "node-1", false),
    ]));
    let event = Event::Updated { old, new };
    assert_eq!(keys(&enqueue::owner::<ReplicaSet>(), &event), ["shop/one", "shop/two"]);
    assert_eq!(keys(&enqueue::controller::<ReplicaSet>(), &event), ["shop/one"]);
    assert_eq!(keys(&enqueue::owner::<Node>(), &event), ["node-1"]);
    assert_eq!(
        keys(&enqueue::owner_of_kind("example.com", "ReplicaSet", false), &event),
        ["shop/x"]
    );
    assert_eq!(keys(&enqueue::object(), &event), ["shop/web-0"]);
    assert_eq!(
        keys(
            &enqueue::mapped(|_: &CachedObject<Pod>| [ObjectKey::cluster("all")]),
            &event
        ),
        ["all", "all"]
    );
}

#[tokio::test(start_paused = true)]
async fn key_is_enqueued_once_per_event_and_replays_are_marked() {
    let seen: Arc<Mutex<Vec<Enqueued>>> = Arc::default();
    let log = Arc::clone(&seen);
    let to_keys = enqueue::mapped(|_: &CachedObject<ConfigMap>| [ObjectKey::cluster("all")]);
    let handler = enqueue::into(to_keys, move |it| {
        log.lock().expect("the lock is not poisoned").push(it)
    });
    let event = |is_in_initial_list| {
        let object = CachedObject::decode(&map("a", "web").to_string()).expect("the object can be decoded");
        Event::Added {
            object,
            is_in_initial_list,
        }
    };
    handler.on_event(&event(true)).await.expect("the handler does not fail");
    handler
        .on_event(&event(false))
        .await
        .expect("the handler does not fail");
    let changed = Event::Updated {
        old: CachedObject::decode(r#"{"metadata":{"name":"a","resourceVersion":"1"}}"#)
            .expect("the object can be decoded"),
        new: CachedObject::decode(r#"{"metadata":{"name":"a","resourceVersion":"2"}}"#)
            .expect("the object can be decoded"),
    };
    handler.on_event(&changed).await.expect("the handler does not fail");
    let key = ObjectKey::cluster("all");
    let seen = seen.lock().expect("the lock is not poisoned");
    let replays: Vec<_> = seen.iter().map(|it| (it.key.clone(), it.is_replay)).collect();
    assert_eq!(replays, [true, false, false].map(|is_replay| (key.clone(), is_replay)));
}

#[test]
fn label_predicate_checks_the_newest_state() {
    let selector = kube::core::Selector::from(kube::core::Expression::Equal("app".into(), "web".into()));
    let is_web = predicates::label_selector::<Pod>(selector);
    assert!(is_web.passes(&updated(&json!({}))));
    assert!(!is_web.passes(&updated(&json!({"/metadata/labels": {"app": "api"}}))));
    let deleted = Event::Deleted {
        object: object(3, &json!({})),
        final_state_unknown: true,
    };
    assert!(is_web.passes(&deleted));
}
