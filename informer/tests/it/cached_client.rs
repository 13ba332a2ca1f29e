//! The client that reads from caches: starting informers, choosing between cache and server, and waiting for the
//! client's own writes.

use std::sync::Arc;
use std::time::Duration;

use informer::cache::SharedInformerFactory;
use informer::runtime::{CachedClient, Manager};
use informer::{Error, ObjectKey};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, Preconditions, ValidationDirective};
use kube::core::{ApiResource, DynamicObject, Expression};
use rstest::rstest;
use serde_json::json;
use testkit::objects::{config_map, node, pod};
use testkit::{TestCluster, Verb, faults};

/// Returns the cached client of a running manager.
fn client(cluster: &TestCluster) -> CachedClient {
    let manager = Manager::new(cluster.client_named("reader"));
    let client = manager.cached_client();
    cluster.run(async move { manager.run(std::future::pending()).await });
    client
}

async fn running(cluster: &TestCluster) -> CachedClient {
    let client = client(cluster);
    cluster.settle().await;
    client
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn names<K: ResourceExt>(objects: &[Arc<K>]) -> Vec<String> {
    objects.iter().map(|it| it.name_any()).collect()
}

#[tokio::test(start_paused = true)]
async fn first_read_starts_the_informer_and_later_reads_use_it() {
    let cluster = TestCluster::builder().object(config_map("m").data("a", "b")).start();
    let client = running(&cluster).await;
    assert_eq!(cluster.requests().client("reader").count(), 0);
    let map = client.get::<ConfigMap>(&key("m")).await.expect("the read succeeds");
    assert_eq!(
        map.expect("the object exists")
            .data
            .as_ref()
            .expect("the ConfigMap has data")["a"],
        "b"
    );
    assert!(
        client
            .get::<ConfigMap>(&key("n"))
            .await
            .expect("the read succeeds")
            .is_none()
    );
    let asked = cluster.requests().client("reader").count();
    assert!(
        asked <= 2,
        "the informer sends a list and a watch, or one stream: {asked}"
    );
    client.list::<ConfigMap>().await.expect("the read succeeds");
    assert_eq!(cluster.requests().client("reader").count(), asked);
}

#[tokio::test(start_paused = true)]
async fn read_before_the_manager_runs_is_an_error() {
    let cluster = TestCluster::start();
    let manager = Manager::new(cluster.client());
    let err = manager
        .cached_client()
        .get::<Pod>(&key("a"))
        .await
        .expect_err("the manager does not run yet");
    assert!(err.to_string().contains("the cache is not started"), "{err}");
}

#[tokio::test(start_paused = true)]
async fn client_may_refuse_types_without_an_informer() {
    let cluster = TestCluster::builder().object(config_map("m")).start();
    let client = running(&cluster).await;
    let strict = client.clone().fail_on_missing_informer();
    let err = strict
        .get::<ConfigMap>(&key("m"))
        .await
        .expect_err("no informer was started for the type");
    assert!(err.to_string().contains("/api/v1/configmaps is not cached"), "{err}");
    assert_eq!(cluster.requests().client("reader").count(), 0);
    client.get::<ConfigMap>(&key("m")).await.expect("the read succeeds");
    assert!(
        strict
            .get::<ConfigMap>(&key("m"))
            .await
            .expect("the type is cached now")
            .is_some()
    );
}

#[tokio::test(start_paused = true)]
async fn informer_that_does_not_sync_fails_the_read_in_time() {
    let cluster = TestCluster::start();
    let client = running(&cluster).await;
    let _fault = cluster.inject(faults::status(403, "Forbidden").client("reader"));
    let key = key("m");
    let read = tokio::time::timeout(Duration::from_secs(121), client.get::<ConfigMap>(&key));
    let err = read
        .await
        .expect("the read ends within two minutes")
        .expect_err("the client may not list");
    assert!(err.to_string().contains("/api/v1/configmaps"), "{err}");
}

#[tokio::test(start_paused = true)]
async fn list_conditions_are_combined() {
    let cluster = TestCluster::start();
    let owner = cluster.create(config_map("owner")).await;
    let web = |name: &str| pod(name).label("app", "web").set("spec.nodeName", "node-1");
    cluster.create(web("a").namespace("shop").owned_by(&owner)).await;
    cluster.create(web("b").namespace("shop")).await;
    cluster.create(web("b").namespace("billing")).await;
    cluster
        .create(pod("c").namespace("shop").set("spec.nodeName", "node-2"))
        .await;
    let manager = Manager::new(cluster.client());
    manager
        .index_field::<Pod>("spec.nodeName")
        .expect("the index name is unused");
    let client = manager.cached_client();
    cluster.run(async move { manager.run(std::future::pending()).await });
    cluster.settle().await;
    let pods = || client.list::<Pod>();
    let on_node = pods().field("spec.nodeName", "node-1").await.expect("the index exists");
    assert_eq!(names(&on_node), ["b", "a", "b"]);
    let here = pods().in_namespace("shop").labels([("app", "web")]);
    assert_eq!(names(&here.await.expect("the read succeeds")), ["a", "b"]);
    let both = pods().field("spec.nodeName", "node-1").in_namespace("shop").limit(1);
    assert_eq!(names(&both.await.expect("the read succeeds")), ["a"]);
    let owned = pods().owned_by(owner.uid()).field("spec.nodeName", "node-1");
    assert_eq!(names(&owned.await.expect("the read succeeds")), ["a"]);
    let without = pods().selector(Expression::DoesNotExist("app".into()).into());
    assert_eq!(names(&without.await.expect("the read succeeds")), ["c"]);
    let err = pods()
        .field("status.phase", "Running")
        .await
        .expect_err("the index does not exist");
    assert!(err.to_string().contains("field status.phase has no index"), "{err}");
    let err = pods()
        .index("nothing", "x")
        .await
        .expect_err("the index does not exist");
    assert!(err.to_string().contains("there is no index \"nothing\""), "{err}");
}

#[tokio::test(start_paused = true)]
async fn read_returns_earlier_writes_of_its_client() {
    let cluster = TestCluster::start();
    let client = running(&cluster).await;
    client.list::<ConfigMap>().await.expect("the read succeeds");
    let map = |name: &str| {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.into());
        map.metadata.namespace = Some("default".into());
        map
    };
    cluster.watches().on("configmaps").hold();
    client.create(&map("a")).await.expect("the object does not exist yet");
    let reads = tokio::spawn({
        let client = client.clone();
        async move {
            let one = client.get::<ConfigMap>(&key("a")).await.expect("the read succeeds");
            let all = client.list::<ConfigMap>().await.expect("the read succeeds");
            (one.is_some(), names(&all))
        }
    });
    // Reads of another object do not wait.
    assert!(
        client
            .get::<ConfigMap>(&key("b"))
            .await
            .expect("the read succeeds")
            .is_none()
    );
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!reads.is_finished(), "the read waits until the cache has the write");
    cluster.watches().on("configmaps").resume();
    assert_eq!(
        reads.await.expect("the task does not panic"),
        (true, vec!["a".to_owned()])
    );
    client.delete::<ConfigMap>(&key("a")).await.expect("the object exists");
    assert!(
        client
            .get::<ConfigMap>(&key("a"))
            .await
            .expect("the read succeeds")
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn read_fails_if_the_cache_lacks_a_write_for_thirty_seconds() {
    let cluster = TestCluster::builder().object(config_map("a")).start();
    let client = running(&cluster).await;
    client.list::<ConfigMap>().await.expect("the read succeeds");
    cluster.watches().on("configmaps").hold();
    let patch = Patch::Merge(json!({"data": {"x": "y"}}));
    client
        .patch::<ConfigMap>(&key("a"), &patch)
        .await
        .expect("the object exists");
    let began = tokio::time::Instant::now();
    let err = client
        .get::<ConfigMap>(&key("a"))
        .await
        .expect_err("the read is older than the write");
    assert_eq!(began.elapsed().as_secs(), 30);
    assert!(
        err.to_string()
            .contains("has not received the last write of this client to default/a"),
        "{err}"
    );
}

#[tokio::test(start_paused = true)]
async fn objects_can_be_updated_patched_or_applied() {
    let cluster = TestCluster::builder().object(pod("p")).object(config_map("m")).start();
    let client = running(&cluster).await;
    let before = client.get::<ConfigMap>(&key("m")).await.unwrap().unwrap();
    let mut map = ConfigMap::clone(&before);
    map.data.get_or_insert_default().insert("a".into(), "1".into());
    let updated = client.update(&map).await.unwrap();
    assert!(
        client
            .update(&map)
            .await
            .expect_err("the object is stale")
            .is_conflict()
    );
    map.data.get_or_insert_default().insert("a".into(), "2".into());
    assert!(
        client
            .patch_from(&before, &map)
            .await
            .expect_err("the object is stale")
            .is_conflict()
    );
    let mut other = updated.clone();
    other.data = Some([("b".to_owned(), "3".to_owned())].into());
    let patched = client.patch_from(&updated, &other).await.unwrap().data.unwrap();
    assert_eq!(patched, [("b".to_owned(), "3".to_owned())].into());

    let sent = cluster.requests().client("reader").writes().count();
    client
        .patch_from(&updated, &updated)
        .await
        .expect("an empty patch succeeds");
    assert_eq!(cluster.requests().client("reader").writes().count(), sent);

    let pod_before = client.get::<Pod>(&key("p")).await.unwrap().unwrap();
    let mut pod = Pod::clone(&pod_before);
    pod.status.get_or_insert_default().message = Some("well".into());
    pod.metadata.labels = Some([("not".to_owned(), "written".to_owned())].into());
    client.status::<Pod>().patch_from(&pod_before, &pod).await.unwrap();
    let pod = client.get::<Pod>(&key("p")).await.unwrap().unwrap();
    assert_eq!(pod.status.as_ref().and_then(|it| it.message.as_deref()), Some("well"));
    assert!(pod.labels().is_empty());

    let mut applied = map.clone();
    (applied.metadata.resource_version, applied.data) = (None, Some([("c".to_owned(), "4".to_owned())].into()));
    let err = client.apply(&applied).await.expect_err("the client has no field owner");
    assert!(err.to_string().contains("has no field owner"), "{err}");
    client
        .clone()
        .field_owner("me")
        .apply(&applied)
        .await
        .expect("the field has no owner");
    applied.data = Some([("c".to_owned(), "5".to_owned())].into());
    let other = client.clone().field_owner("other");
    assert!(
        other
            .apply(&applied)
            .await
            .expect_err("another manager owns the field")
            .is_conflict()
    );
    other
        .force_ownership()
        .apply(&applied)
        .await
        .expect("the field is taken over");
    assert_eq!(cluster.get::<ConfigMap>("m").data.unwrap()["c"], "5");
}

#[tokio::test(start_paused = true)]
async fn deletes_respect_preconditions_dry_runs_and_selectors() {
    let cluster = TestCluster::start();
    for name in ["a", "b", "c"] {
        cluster
            .create(config_map(name).label("app", if name == "c" { "api" } else { "web" }))
            .await;
    }
    let client = running(&cluster).await;
    let other = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some("other".into()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let err = client.delete_with::<ConfigMap>(&key("a"), &other).await;
    assert!(err.expect_err("the object has another uid").is_conflict());
    client
        .clone()
        .dry_run()
        .delete::<ConfigMap>(&key("a"))
        .await
        .expect("the dry run succeeds");
    assert!(cluster.exists::<ConfigMap>("a"));
    let err = client
        .delete::<ConfigMap>(&key("x"))
        .await
        .expect_err("the object does not exist");
    assert!(err.is_not_found());
    let all = client.delete_all_of::<ConfigMap>().in_namespace("default");
    all.labels([("app", "web")]).await.expect("the objects are deleted");
    assert!(!cluster.exists::<ConfigMap>("a") && cluster.exists::<ConfigMap>("c"));
    let err = client
        .delete_all_of::<ConfigMap>()
        .await
        .expect_err("the delete has no namespace");
    assert!(err.to_string().contains("the namespace is missing"), "{err}");
}

#[rstest]
#[case::missing_namespace(ObjectKey::cluster("m"), false, "has no namespace")]
#[case::unexpected_namespace(ObjectKey::new("default", "n"), true, "its type is cluster-scoped")]
#[tokio::test(start_paused = true)]
async fn key_of_the_wrong_scope_is_refused(#[case] key: ObjectKey, #[case] is_node: bool, #[case] message: &str) {
    let cluster = TestCluster::start();
    let client = running(&cluster).await;
    let err = if is_node {
        client.delete::<Node>(&key).await
    } else {
        client.delete::<ConfigMap>(&key).await
    };
    let err = err.expect_err("the key has the wrong scope").to_string();
    assert!(err.contains(message), "{err}");
}

#[tokio::test(start_paused = true)]
async fn type_can_be_read_without_the_cache() {
    let cluster = TestCluster::builder()
        .object(config_map("m").label("a", "b"))
        .object(node("n"))
        .start();
    let client = running(&cluster).await.without_cache_for::<ConfigMap>();
    assert!(
        client
            .get::<ConfigMap>(&key("m"))
            .await
            .expect("the read succeeds")
            .is_some()
    );
    assert!(
        client
            .get::<ConfigMap>(&key("x"))
            .await
            .expect("the read succeeds")
            .is_none()
    );
    let named = client
        .list::<ConfigMap>()
        .labels([("a", "b")])
        .field("metadata.name", "m");
    assert_eq!(names(&named.await.expect("the server supports the selector")), ["m"]);
    let err = client
        .list::<ConfigMap>()
        .owned_by("u")
        .await
        .expect_err("the server has no owner index");
    assert!(err.to_string().contains("the server does not support indexes"), "{err}");
    assert_eq!(
        cluster
            .requests()
            .client("reader")
            .on(Verb::Watch, "configmaps")
            .count(),
        0
    );
    let live = client.live();
    assert!(
        live.get::<Node>(&ObjectKey::cluster("n"))
            .await
            .expect("the read succeeds")
            .is_some()
    );
}

#[tokio::test(start_paused = true)]
async fn client_supports_dynamic_types_and_metadata() {
    let cluster = TestCluster::builder()
        .object(config_map("m").data("a", "b"))
        .object(node("n"))
        .start();
    let client = running(&cluster).await;
    let maps = client.dynamic(&ApiResource::erase::<ConfigMap>(&()));
    let map = maps
        .get(&key("m"))
        .await
        .expect("the read succeeds")
        .expect("the object exists");
    assert_eq!(map.data["data"]["a"], "b");
    let nodes = client.dynamic_of_cluster(&ApiResource::erase::<Node>(&()));
    assert_eq!(names(&nodes.list().await.expect("the read succeeds")), ["n"]);
    let metadata = client.metadata::<ConfigMap>();
    let label = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
    metadata.patch(&key("m"), &label).await.expect("the object exists");
    let map = metadata
        .get(&key("m"))
        .await
        .expect("the read succeeds")
        .expect("the object exists");
    assert_eq!(map.labels()["x"], "y");
    metadata.delete(&key("m")).await.expect("the object exists");
    assert!(maps.get(&key("m")).await.expect("the read succeeds").is_none());
}

#[rstest]
#[case::default(None, None)]
#[case::ignore(Some(ValidationDirective::Ignore), None)]
#[case::strict(Some(ValidationDirective::Strict), Some("unknown field \"colour\""))]
#[tokio::test(start_paused = true)]
async fn strict_field_validation_refuses_unknown_fields(
    #[case] directive: Option<ValidationDirective>,
    #[case] refused: Option<&str>,
) {
    let cluster = TestCluster::start();
    let mut client = running(&cluster).await;
    if let Some(directive) = directive {
        client = client.field_validation(directive);
    }
    let maps = client.dynamic(&ApiResource::erase::<ConfigMap>(&()));
    let mut map = DynamicObject::new("m", &ApiResource::erase::<ConfigMap>(&())).within("default");
    map.data = json!({"data": {"a": "b"}, "colour": "red"});
    let created = maps.create(&map).await;
    assert_eq!(created.is_err(), refused.is_some());
    if let (Err(err), Some(reason)) = (created, refused) {
        assert!(err.to_string().contains(reason), "{err}");
        return;
    }
    let client = client.field_validation(ValidationDirective::Strict);
    let maps = client.dynamic(&ApiResource::erase::<ConfigMap>(&()));
    map.data = json!({"data": {"a": "d"}, "colour": "red"});
    maps.update(&map).await.expect_err("the object has an unknown field");
    let patch = Patch::Merge(json!({"colour": "red"}));
    maps.patch(&key("m"), &patch)
        .await
        .expect_err("the object has an unknown field");
}

/// Reads an object. Returns the number of objects that were found.
async fn found<K>(client: &CachedClient, key: ObjectKey) -> Result<usize, Error>
where
    K: informer::Cacheable + kube::Resource<DynamicType = ()>,
    K::Scope: 'static,
{
    Ok(client.get::<K>(&key).await?.into_iter().count())
}

/// Lists the objects in a namespace. Returns the number of objects.
async fn listed<K>(client: &CachedClient, namespace: &str) -> Result<usize, Error>
where
    K: informer::Cacheable + kube::Resource<DynamicType = ()>,
    K::Scope: 'static,
{
    Ok(client.list::<K>().in_namespace(namespace).await?.len())
}

#[rstest]
#[case::from_the_cache(false)]
#[case::from_the_server(true)]
#[tokio::test(start_paused = true)]
async fn read_with_a_namespace_of_the_wrong_scope_is_an_error(#[case] is_live: bool) {
    let cluster = TestCluster::builder()
        .object(config_map("m").namespace("shop"))
        .object(node("n"))
        .start();
    let factory = SharedInformerFactory::builder(cluster.client())
        .namespace("shop")
        .build();
    let client = CachedClient::new(cluster.client(), &factory);
    let client = if is_live { client.live() } else { client };
    assert_eq!(
        found::<ConfigMap>(&client, ObjectKey::new("shop", "m"))
            .await
            .expect("the read succeeds"),
        1
    );
    assert_eq!(
        found::<Node>(&client, ObjectKey::cluster("n"))
            .await
            .expect("the read succeeds"),
        1
    );
    let unfit = [
        (
            found::<ConfigMap>(&client, ObjectKey::cluster("m")).await,
            "has no namespace",
        ),
        (
            found::<Node>(&client, ObjectKey::new("shop", "n")).await,
            "its type is cluster-scoped",
        ),
        (listed::<Node>(&client, "shop").await, "its type is cluster-scoped"),
    ];
    for (read, message) in unfit {
        let err = read.expect_err(message).to_string();
        assert!(err.contains(message), "{err}");
    }
    let outside = [
        found::<ConfigMap>(&client, ObjectKey::new("billing", "m")).await,
        listed::<ConfigMap>(&client, "billing").await,
    ];
    for read in outside {
        match (is_live, read) {
            // A read from the server is not limited to the namespace of the cache.
            (true, read) => assert_eq!(read.expect("the read succeeds"), 0),
            (false, read) => {
                let err = read.expect_err("the cache only contains one namespace").to_string();
                assert!(err.contains("the namespace \"billing\" is not in the cache"), "{err}");
            }
        }
    }
}

fn empty_map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.into());
    map.metadata.namespace = Some("default".into());
    map
}

#[tokio::test(start_paused = true)]
async fn read_after_a_create_and_a_delete_does_not_return_the_object() {
    let cluster = TestCluster::start();
    let client = running(&cluster).await;
    client.list::<ConfigMap>().await.expect("the read succeeds");
    let watches = cluster.watches().on("configmaps");
    watches.hold();
    client
        .create(&empty_map("a"))
        .await
        .expect("the object does not exist yet");
    client.delete::<ConfigMap>(&key("a")).await.expect("the object exists");
    let reader = client.clone();
    let read = tokio::spawn(async move { reader.get::<ConfigMap>(&key("a")).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    // The cache receives the create, but not the deletion.
    watches.release(1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!read.is_finished(), "the read waits for the deletion");
    watches.resume();
    let object = read.await.expect("the task does not panic").expect("the read succeeds");
    assert!(object.is_none());
}

#[rstest]
#[case::late_metadata(1)]
#[case::late_objects(0)]
#[tokio::test(start_paused = true)]
async fn read_waits_for_a_write_that_only_another_cache_has_received(#[case] late: usize) {
    let cluster = TestCluster::start();
    let client = running(&cluster).await;
    let metadata = client.metadata::<ConfigMap>();
    client.list::<ConfigMap>().await.expect("the read succeeds");
    metadata.list().await.expect("the read succeeds");
    let watches = cluster.watches().on("configmaps");
    let [_, _] = watches.handles() else {
        panic!("each cache has one watch: {}", watches.count());
    };
    watches.handles()[late].hold();
    client
        .create(&empty_map("a"))
        .await
        .expect("the object does not exist yet");
    let object = key("a");
    let typed = async {
        let found = client.get::<ConfigMap>(&object).await.expect("the read succeeds");
        found.is_some()
    };
    let partial = async {
        let found = metadata.get(&object).await.expect("the read succeeds");
        found.is_some()
    };
    let resumed = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        watches.resume();
    };
    let (typed, partial, ()) = futures::join!(typed, partial, resumed);
    assert!(typed && partial, "{typed} {partial}");
}

#[rstest]
#[case::from_the_cache(false)]
#[case::from_the_server(true)]
#[tokio::test(start_paused = true)]
async fn lists_from_the_cache_and_from_the_server_select_the_same_objects(#[case] is_live: bool) {
    let cluster = TestCluster::builder()
        .object(config_map("m").label("a", "b"))
        .object(config_map("n"))
        .start();
    let client = running(&cluster).await;
    let client = if is_live { client.live() } else { client };
    let maps = || client.list::<ConfigMap>();
    let none = maps().limit(0).await.expect("the read succeeds");
    assert!(none.is_empty(), "{:?}", names(&none));
    let labelled = maps().labels([]).labels([("a", "b")]);
    assert_eq!(names(&labelled.await.expect("the read succeeds")), ["m"]);
}

#[tokio::test(start_paused = true)]
async fn special_characters_of_a_field_value_are_escaped() {
    let cluster = TestCluster::builder().object(config_map("m")).start();
    let client = running(&cluster).await.live();
    for value in ["m,metadata.namespace=default", "m\\"] {
        let maps = client.list::<ConfigMap>().field("metadata.name", value);
        assert_eq!(names(&maps.await.expect("the value is valid")), [""; 0]);
    }
}
