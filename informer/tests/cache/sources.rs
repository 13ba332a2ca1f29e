//! What an informer can be of: typed objects, dynamic ones, metadata; all namespaces or some; by selectors.

use std::sync::Arc;

use informer::cache::{ApiListWatch, FakeSource, SharedInformer, SharedInformerFactory, indexes};
use informer::{ObjectKey, Storage};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::core::{ApiResource, Expression, Selector};
use rstest::rstest;
use testkit::objects::{config_map, namespace, node, pod};
use testkit::{TestCluster, Verb, cluster};

use crate::support::{Told, stored};

#[rstest]
#[tokio::test(start_paused = true)]
async fn a_factory_has_one_informer_a_type(cluster: TestCluster) {
    cluster.create(pod("web-0").label("app", "web")).await;
    let factory = SharedInformerFactory::new(cluster.client());
    let (one, other) = (factory.informer::<Pod>(), factory.informer::<Pod>());
    let dynamic = factory.dynamic(&ApiResource::erase::<Pod>(&()));
    let metadata = factory.metadata::<Pod>();
    factory.start();
    factory.start();
    factory.wait_for_cache_sync().await.expect("all sync");
    assert_eq!(
        cluster.requests().on(Verb::Watch, "pods").count(),
        3,
        "typed, dynamic and metadata"
    );
    assert_eq!(stored(&one), stored(&other));

    let key = ObjectKey::new("default", "web-0");
    let dynamic = dynamic
        .lister()
        .get(&key)
        .expect("it is there")
        .typed()
        .expect("an object");
    assert_eq!(dynamic.data["spec"]["containers"][0]["name"], "main");
    let metadata = metadata.lister().get(&key).expect("it is there");
    assert_eq!(metadata.label("app").as_deref(), Some("web"));
    assert!(!metadata.json().expect("it is held as text").contains("\"spec\":"));
    assert_eq!(
        metadata.typed().expect("metadata").metadata.name.as_deref(),
        Some("web-0")
    );

    // One that is asked for later is started by the next call.
    let nodes = factory.informer::<Node>();
    factory.start();
    factory.wait_for_cache_sync().await.expect("all sync");
    assert!(nodes.has_synced());
    factory.shutdown().await;
    assert!(one.is_stopped() && nodes.is_stopped());
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn several_namespaces_are_one_cache(cluster: TestCluster) {
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
    maps.add_handler(told.handler()).expect("it is new");
    factory.start();
    factory.wait_for_cache_sync().await.expect("all sync");
    cluster.settle().await;
    let mut initial = told.take();
    initial.sort();
    assert_eq!(initial, ["initial billing/a", "initial shop/a"]);
    assert_eq!(nodes.lister().len(), 1, "what has no namespace is listed whole");

    // A list of one namespace says nothing of the other.
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
async fn selectors_and_tweaks_are_sent(cluster: TestCluster) {
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
async fn every_storage_answers_the_same(#[case] storage: Storage) {
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
        .expect("nothing is there twice");
    let synced = informer.clone();
    informer
        .run(async move { synced.synced().await.expect("it syncs") })
        .await
        .expect("it is new");
    let lister = informer.lister();
    for (index, value) in [
        ("field:spec.nodeName", "node-1"),
        ("field:spec.priority", "7"),
        ("label:seen", "yes"),
        ("annotation:note", "it's \"quoted\""),
        ("owner", "u-0"),
        ("namespace", "shop"),
    ] {
        assert_eq!(lister.index_values(index).expect("an index"), [value]);
        assert_eq!(lister.by_index(index, value).expect("an index").len(), 1);
    }
    let object = lister.get(&ObjectKey::new("shop", "web-0")).expect("it is there");
    assert_eq!(
        (object.uid().as_str(), object.generation(), object.is_deleting()),
        ("u-1", Some(3), true)
    );
    let typed = object.typed().expect("a Pod");
    assert!(typed.metadata.managed_fields.is_none());
    assert!(
        Arc::ptr_eq(&typed, &object.typed().expect("a Pod")),
        "who holds it shares it"
    );
    assert_eq!(lister.related("owner", &object).expect("an index").len(), 1);
    lister.by_index("nowhere", "x").expect_err("there is no such index");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_transformed_is_dropped_and_the_others_stay() {
    let source = FakeSource::new();
    for name in ["a", "b"] {
        source.add(serde_json::json!({"metadata": {"name": name}}));
    }
    let informer = SharedInformer::<ConfigMap>::builder(source)
        .transform(|map: &mut ConfigMap| {
            if map.metadata.name.as_deref() == Some("a") {
                Err("not this one")
            } else {
                Ok(())
            }
        })
        .build()
        .expect("nothing is there twice");
    let synced = informer.clone();
    informer
        .run(async move { synced.synced().await.expect("it syncs") })
        .await
        .expect("it is new");
    assert_eq!(stored(&informer), ["b@2"]);
}
