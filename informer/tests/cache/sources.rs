//! Sources of an informer: typed objects, dynamic objects and metadata, in all or some namespaces, and with selectors.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fake_apiserver::api::selector::LabelSelector;
use informer::cache::{
    ApiListWatch, FakeSource, IndexFn, Indexer, ListWatch as _, SharedInformer, SharedInformerFactory, indexes,
};
use informer::{CachedObject, ObjectKey, ResourceVersion, Storage};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::core::{ApiResource, Expression, Selector};
use rstest::rstest;
use testkit::objects::{config_map, namespace, node, pod};
use testkit::{TestCluster, Verb, cluster};

use crate::support::{Told, stored};

#[rstest]
#[tokio::test(start_paused = true)]
async fn factory_has_one_informer_for_each_typed_dynamic_and_metadata_type(cluster: TestCluster) {
    cluster.create(pod("web-0").label("app", "web")).await;
    let factory = SharedInformerFactory::new(cluster.client());
    let (one, other) = (factory.informer::<Pod>(), factory.informer::<Pod>());
    let dynamic = factory.dynamic(&ApiResource::erase::<Pod>(&()));
    let metadata = factory.metadata::<Pod>();
    factory.start();
    factory.start();
    factory.wait_for_cache_sync().await.expect("all caches sync");
    assert_eq!(
        cluster.requests().on(Verb::Watch, "pods").count(),
        3,
        "typed, dynamic and metadata caches have separate watches"
    );
    assert_eq!(stored(&one), stored(&other));

    let key = ObjectKey::new("default", "web-0");
    let dynamic = dynamic
        .lister()
        .get(&key)
        .expect("the object exists")
        .typed()
        .expect("the value is an object");
    assert_eq!(dynamic.data["spec"]["containers"][0]["name"], "main");
    let metadata = metadata.lister().get(&key).expect("the object exists");
    assert_eq!(metadata.label("app").as_deref(), Some("web"));
    assert!(
        !metadata
            .json()
            .expect("the object is stored as text")
            .contains("\"spec\":")
    );
    assert_eq!(
        metadata
            .typed()
            .expect("the object has metadata")
            .metadata
            .name
            .as_deref(),
        Some("web-0")
    );

    // An informer that is requested later must be started with another call.
    let nodes = factory.informer::<Node>();
    factory.start();
    factory.wait_for_cache_sync().await.expect("all caches sync");
    assert!(nodes.has_synced());
    factory.shutdown().await;
    assert!(one.is_stopped() && nodes.is_stopped());
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn several_namespaces_share_one_cache(cluster: TestCluster) {
    for name in ["shop", "billing", "other"] {
        cluster.create(namespace(name)).await;
        cluster.create(config_map("a").namespace(name)).await;
    }
    cluster.create(node("node-1")).await;
    let factory = SharedInformerFactory::builder(cluster.client())
        .namespace("shop")
        .namespace("billing")
        .build();
    let (maps, nodes, told) = (
        factory.informer::<ConfigMap>(),
        factory.informer::<Node>(),
        Told::default(),
    );
    maps.add_handler(told.handler()).expect("the informer has not stopped");
    factory.start();
    factory.wait_for_cache_sync().await.expect("all caches sync");
    cluster.settle().await;
    let mut initial = told.take();
    initial.sort();
    assert_eq!(initial, ["initial billing/a", "initial shop/a"]);
    assert_eq!(nodes.lister().len(), 1, "a cluster-scoped type is listed completely");

    // A list of one namespace does not affect the other namespace.
    cluster.delete(config_map("a").namespace("shop")).await;
    cluster.watches().on("configmaps").namespace("shop").expire();
    cluster.settle().await;
    let left: Vec<_> = maps.lister().list().iter().map(|it| it.key().to_string()).collect();
    assert_eq!(left, ["billing/a"]);
    assert_eq!(maps.lister().namespace("billing").list().len(), 1);
    assert!(maps.lister().namespace("shop").get("a").is_none());
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn selectors_and_added_parameters_are_sent(cluster: TestCluster) {
    for (name, app) in [("a", "web"), ("b", "web"), ("c", "api")] {
        cluster.create(pod(name).label("app", app)).await;
    }
    let mut selector = Selector::default();
    selector.extend(Expression::In("app".into(), ["web".into(), "x".into()].into()));
    let source = ApiListWatch::all::<Pod>(cluster.client(), &())
        .labels_from(&selector)
        .fields("metadata.name!=b")
        .tweak(|parameters| parameters.push(("note".to_owned(), "a&b".to_owned())));
    let informer = SharedInformer::<Pod>::new(source);
    let runs = informer.clone();
    cluster.run(async move { runs.run(std::future::pending()).await });
    cluster.settle().await;
    let names: Vec<_> = informer
        .lister()
        .list()
        .iter()
        .map(|it| it.key().name().to_owned())
        .collect();
    assert_eq!(names, ["a"]);
    let asked = cluster.journal().requests();
    assert!(asked.iter().any(|it| it.path.contains("note=a%26b")), "{asked:?}");
}

#[rstest]
#[case::encoded(Storage::Encoded)]
#[case::typed(Storage::Typed)]
#[cfg_attr(feature = "compression", case::compressed(Storage::Compressed))]
#[tokio::test(start_paused = true)]
async fn every_storage_returns_the_same_objects(#[case] storage: Storage) {
    let source = FakeSource::new();
    source.add(serde_json::json!({
        "metadata": {
            "name": "web-0", "namespace": "shop", "uid": "u-1", "generation": 3,
            "labels": {"app": "web"}, "annotations": {"note": "it's \"quoted\""},
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u-0"}],
            "managedFields": [{"manager": "kubelet"}],
        },
        "spec": {"nodeName": "node-1", "containers": [], "priority": 7},
    }));
    let informer = SharedInformer::<Pod>::builder(source)
        .storage(storage)
        .strip_managed_fields()
        .transform(|pod: &mut Pod| {
            pod.metadata
                .labels
                .get_or_insert_default()
                .insert("seen".into(), "yes".into());
            Ok::<_, std::convert::Infallible>(())
        })
        .index(indexes::field("spec.nodeName"))
        .index(indexes::field("spec.priority"))
        .index(indexes::label("seen"))
        .index(indexes::annotation("note"))
        .index(indexes::owner_uid())
        .index(indexes::namespace())
        .build()
        .expect("the options have no duplicates");
    let synced = informer.clone();
    informer
        .run(async move { synced.synced().await.expect("the cache syncs") })
        .await
        .expect("the informer was not run before");
    let lister = informer.lister();
    for (index, value) in [
        ("field:spec.nodeName", "node-1"),
        ("field:spec.priority", "7"),
        ("label:seen", "yes"),
        ("annotation:note", "it's \"quoted\""),
        ("owner", "u-0"),
        ("namespace", "shop"),
    ] {
        assert_eq!(lister.index_values(index).expect("the index exists"), [value]);
        assert_eq!(lister.by_index(index, value).expect("the index exists").len(), 1);
    }
    let object = lister.get(&ObjectKey::new("shop", "web-0")).expect("the object exists");
    assert_eq!(
        (object.uid().as_str(), object.generation(), object.is_deleting()),
        ("u-1", Some(3), true)
    );
    let typed = object.typed().expect("the object is a Pod");
    assert!(typed.metadata.managed_fields.is_none());
    assert!(
        Arc::ptr_eq(&typed, &object.typed().expect("the object is a Pod")),
        "the decoded object is shared"
    );
    assert_eq!(lister.related("owner", &object).expect("the index exists").len(), 1);
    lister.by_index("nowhere", "x").expect_err("the index does not exist");
}

#[rstest]
#[case::transform_fails(|| Err("the object is refused"))]
#[case::transform_panics(|| panic!("the object is refused"))]
#[tokio::test(start_paused = true)]
async fn object_that_cannot_be_transformed_is_dropped_and_others_are_kept(
    #[case] refuse: fn() -> Result<(), &'static str>,
) {
    let source = FakeSource::new();
    for name in ["a", "b"] {
        source.add(serde_json::json!({"metadata": {"name": name}}));
    }
    let informer = SharedInformer::<ConfigMap>::builder(source)
        .transform(move |map: &mut ConfigMap| {
            if map.metadata.name.as_deref() == Some("a") {
                refuse()
            } else {
                Ok(())
            }
        })
        .build()
        .expect("the options have no duplicates");
    let synced = informer.clone();
    informer
        .run(async move { synced.synced().await.expect("the cache syncs") })
        .await
        .expect("the informer was not run before");
    assert_eq!(stored(&informer), ["b@2"]);
}

/// Returns an informer of a source that runs until the end of the test.
fn running<K: informer::Cacheable>(source: &FakeSource) -> SharedInformer<K> {
    let informer = SharedInformer::<K>::new(source.clone());
    let runs = informer.clone();
    tokio::spawn(async move { runs.run(std::future::pending()).await });
    informer
}

async fn a_moment() {
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
}

fn colored(name: &str, color: &str) -> serde_json::Value {
    serde_json::json!({"metadata": {"name": name, "labels": {"color": color}}})
}

#[tokio::test(start_paused = true)]
async fn index_can_be_added_late_and_drops_unused_values() {
    let source = FakeSource::new();
    source.add(colored("a", "red"));
    source.add(colored("b", "blue"));
    let maps = running::<ConfigMap>(&source);
    maps.synced().await.expect("the cache syncs");
    maps.add_index(indexes::label("color"))
        .expect("the index name is unused");
    let err = maps.add_index(indexes::label("color")).expect_err("the index exists");
    assert!(err.to_string().contains("label:color"), "{err}");
    let lister = maps.lister();
    assert_eq!(
        lister.index_values("label:color").expect("the index exists"),
        ["blue", "red"]
    );

    source.add(colored("a", "green"));
    source.delete("", "b");
    a_moment().await;
    assert_eq!(lister.index_values("label:color").expect("the index exists"), ["green"]);
    assert_eq!(
        lister.index_keys("label:color", "green").expect("the index exists"),
        [ObjectKey::cluster("a")]
    );
    assert!(
        lister
            .by_index("label:color", "red")
            .expect("the index exists")
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn index_function_that_panics_leaves_its_object_in_the_cache() {
    let source = FakeSource::new();
    source.add(colored("a", "red"));
    let maps = running::<ConfigMap>(&source);
    let picky = informer::cache::IndexFn::new("picky", |map: &informer::CachedObject<ConfigMap>| {
        assert_ne!(map.key().name(), "a", "the test panics on purpose");
        [map.key().name().to_owned()]
    });
    maps.add_index(picky).expect("the index name is unused");
    maps.synced().await.expect("the cache syncs");
    source.add(colored("b", "red"));
    a_moment().await;
    assert_eq!(stored(&maps), ["a@1", "b@2"]);
    assert_eq!(maps.lister().index_values("picky").expect("the index exists"), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn other_tasks_run_while_many_single_changes_are_indexed() {
    let source = FakeSource::new();
    let maps = running::<ConfigMap>(&source);
    let turn = Arc::new(AtomicUsize::new(0));
    let turns = Arc::new(Mutex::new(BTreeMap::<usize, usize>::new()));
    let (now, seen) = (Arc::clone(&turn), Arc::clone(&turns));
    let counting = IndexFn::new("counting", move |_: &CachedObject<ConfigMap>| {
        let mut seen = seen.lock().expect("the lock is not poisoned");
        *seen.entry(now.load(Ordering::Relaxed)).or_default() += 1;
        [String::new()]
    });
    maps.add_index(counting).expect("the index name is unused");
    maps.synced().await.expect("the cache syncs");
    for number in 0..1_000 {
        source.add(colored(&format!("map-{number}"), "red"));
    }
    while maps.lister().len() < 1_000 {
        turn.fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
    }
    let turns = turns.lock().expect("the lock is not poisoned");
    assert_eq!(turns.values().sum::<usize>(), 1_000);
    let most = turns.values().max().expect("the objects were indexed");
    assert!(*most <= 64, "{most} objects were indexed without a pause");
}

#[test]
fn object_without_a_version_does_not_change_the_version_of_the_store() {
    let store = Indexer::<ConfigMap>::new();
    let object = |text: &str| CachedObject::decode(text).expect("the object can be decoded");
    store.insert(object(r#"{"metadata": {"name": "a", "resourceVersion": "5"}}"#));
    store.insert(object(r#"{"metadata": {"name": "b"}}"#));
    assert_eq!(store.lister().resource_version(), ResourceVersion::from("5"));
    assert_eq!(store.lister().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn index_function_may_read_the_cache_before_the_change() {
    let source = FakeSource::new();
    source.add(colored("a", "red"));
    let maps = running::<ConfigMap>(&source);
    // The index value of an object is the number of objects that existed when it was inserted.
    let count = |name| {
        let lister = maps.lister();
        IndexFn::new(name, move |_: &informer::CachedObject<ConfigMap>| {
            [lister.len().to_string()]
        })
    };
    maps.add_index(count("early")).expect("the index name is unused");
    maps.synced().await.expect("the cache syncs");
    source.add(colored("b", "red"));
    a_moment().await;
    maps.add_index(count("late")).expect("the index name is unused");
    let (lister, keys) = (maps.lister(), ["a", "b"].map(ObjectKey::cluster));
    assert_eq!(lister.index_keys("early", "0").expect("the index exists"), keys[..1]);
    assert_eq!(lister.index_keys("early", "1").expect("the index exists"), keys[1..]);
    assert_eq!(lister.index_keys("late", "2").expect("the index exists"), keys);
    let a = lister.get(&keys[0]).expect("the object exists");
    assert_eq!(lister.related("late", &a).expect("the index exists").len(), 2);
}

#[rstest]
#[case::few_changed(2)]
#[case::many_changed(200)]
#[tokio::test(start_paused = true)]
async fn index_is_updated_by_a_new_list(#[case] changed: usize) {
    let (source, name) = (FakeSource::new(), |number: usize| format!("{number:04}"));
    (0..300).for_each(|it| source.add(colored(&name(it), "red")));
    let maps = running::<ConfigMap>(&source);
    maps.add_index(indexes::label("color"))
        .expect("the index name is unused");
    maps.synced().await.expect("the cache syncs");
    for number in 0..changed {
        source.delete_unseen("", &name(number));
        if number % 2 == 0 {
            source.add_unseen(colored(&name(number), "green"));
        }
    }
    source.add_unseen(colored("x", "red"));
    source.reset_watches();
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let lister = maps.lister();
    let keys = |color| lister.index_keys("label:color", color).expect("the index exists");
    let green: Vec<_> = (0..changed)
        .step_by(2)
        .map(|it| ObjectKey::cluster(&name(it)))
        .collect();
    let red = (changed..300).map(name).chain(["x".to_owned()]);
    assert_eq!(keys("green"), green);
    assert_eq!(keys("red"), red.map(|it| ObjectKey::cluster(&it)).collect::<Vec<_>>());
    assert_eq!(lister.len(), keys("green").len() + keys("red").len());
}

#[tokio::test(start_paused = true)]
async fn unobserved_recreation_is_delivered_as_an_update() {
    let (source, told) = (FakeSource::new(), Told::default());
    source.add(colored("a", "red"));
    let maps = running::<ConfigMap>(&source);
    maps.add_handler(told.handler()).expect("the informer has not stopped");
    a_moment().await;
    source.delete_unseen("", "a");
    source.add_unseen(colored("a", "blue"));
    a_moment().await;
    assert_eq!(told.take(), ["initial a"], "a change without an event is not delivered");
    source.reset_watches();
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(told.take(), ["updated a"]);
}

#[tokio::test(start_paused = true)]
async fn fake_source_can_fail_lists() {
    let source = FakeSource::new();
    source.add(colored("a", "red"));
    let status = kube::core::Status::failure("not for you", "Forbidden").with_code(403);
    source.fail_lists(Some(status));
    let mut options = crate::script::options();
    options.streaming_lists = false;
    let maps = SharedInformer::<ConfigMap>::builder(source.clone())
        .reflector(options)
        .build()
        .expect("the options have no duplicates");
    let runs = maps.clone();
    tokio::spawn(async move { runs.run(std::future::pending()).await });
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert!(!maps.has_synced());
    source.fail_lists(None);
    tokio::time::sleep(std::time::Duration::from_secs(61)).await;
    assert_eq!(stored(&maps), ["a@1"]);
}

#[cfg(feature = "compression")]
#[tokio::test(start_paused = true)]
async fn compressed_objects_are_unchanged() {
    let source = FakeSource::new();
    let (encoded, compressed) = (
        running::<ConfigMap>(&source),
        SharedInformer::<ConfigMap>::builder(source.clone())
            .storage(Storage::Compressed)
            .build()
            .expect("the options have no duplicates"),
    );
    let runs = compressed.clone();
    tokio::spawn(async move { runs.run(std::future::pending()).await });
    // The first text becomes the dictionary. Short, long and dissimilar texts must be supported as well.
    let texts = [
        "",
        "x",
        "Grüße, 世界",
        &"all the same ".repeat(5_000),
        &"z".repeat(200_000),
    ];
    for (number, text) in texts.into_iter().enumerate() {
        source.add(serde_json::json!({"metadata": {"name": format!("m-{number}")}, "data": {"text": text}}));
        a_moment().await;
    }
    source.add(serde_json::json!({"metadata": {"name": "m-0"}, "data": {"text": "changed"}}));
    source.reset_watches();
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let all = |maps: &SharedInformer<ConfigMap>| -> Vec<_> {
        maps.lister()
            .list()
            .iter()
            .map(|it| (it.json(), it.typed().ok()))
            .collect()
    };
    assert_eq!(all(&compressed), all(&encoded));
    assert_eq!(all(&compressed).len(), 5);
    assert_eq!(
        all(&compressed)[0]
            .1
            .as_ref()
            .and_then(|it| it.data.clone())
            .expect("the ConfigMap has data")["text"],
        "changed"
    );
}

/// If a source expects an object that the server does not list, the object's key is held back. If a source does not
/// expect an object that the server lists, the object's key may be reconciled too early.
#[rstest]
#[tokio::test(start_paused = true)]
async fn source_interprets_selectors_like_the_server(
    cluster: TestCluster,
    #[values(
        "app",
        "!app",
        " app = web ",
        "app==web,tier!=db",
        "app!=web",
        "app in (web, api)",
        "app in (),tier",
        "app notin (web,),!x/y",
        "in in (in,notin)",
        "x.io/y-z=",
        "app in (web),tier in (db,cache),!none"
    )]
    text: &str,
) {
    let selector = LabelSelector::parse(text).expect("the selector is valid");
    let source = ApiListWatch::all::<Pod>(cluster.client(), &()).labels(text);
    let values = |key: &str| [None, Some(""), Some("web"), Some("db")].map(|value| (key.to_owned(), value));
    for app in values("app") {
        for other in ["tier", "in", "x/y", "x.io/y-z"].into_iter().flat_map(values) {
            let pairs = [&app, &other].into_iter();
            let labels: BTreeMap<String, String> = pairs
                .filter_map(|(key, value)| Some((key.clone(), (*value)?.to_owned())))
                .collect();
            let expected = selector.matches(|key| labels.get(key).map(String::as_str));
            let found = source.may_have(&ObjectKey::new("default", "a"), Some(&labels));
            assert_eq!(found, expected, "{labels:?}");
        }
    }
}
