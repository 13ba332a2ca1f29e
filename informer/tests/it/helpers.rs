//! Helpers for controllers: finalizers, owner references, conditions, retries, expectations, health checks.

use std::sync::Arc;
use std::time::Duration;

use informer::metrics::Metrics;
use informer::reconcile::{Action, ReconcileError};
use informer::runtime::conditions::{self, ConditionStatus};
use informer::runtime::{
    Deletion, Endpoints, Expectations, OperationResult, RetryPolicy, add_finalizer, create_or_update, finalize,
    owner_references, ping, remove_finalizer, retry_on_conflict,
};
use informer::{Clock, Error, ObjectKey};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::{Api, Resource};
use rstest::rstest;
use testkit::objects::config_map;
use testkit::{TestCluster, Verb, faults};

const FINALIZER: &str = "example.com/bucket";

fn maps(cluster: &TestCluster) -> Api<ConfigMap> {
    Api::default_namespaced(cluster.client())
}

#[tokio::test(start_paused = true)]
async fn finalizer_is_added_first_and_removed_after_the_work() {
    let cluster = TestCluster::start();
    let api = maps(&cluster);
    cluster.create(config_map("m")).await;
    let seen = finalize(&api, FINALIZER, Arc::new(cluster.get("m")), async |it| match it {
        Deletion::No(map) if map.metadata.finalizers.is_some() => Ok(Action::await_change()),
        other => Err(ReconcileError::from(format!("{other:?}"))),
    })
    .await;
    assert!(seen.is_ok(), "{seen:?}");

    cluster.delete::<ConfigMap>("m").await;
    let fails = finalize(&api, FINALIZER, Arc::new(cluster.get("m")), async |it| match it {
        Deletion::Pending(_) => Err(ReconcileError::from("not yet")),
        Deletion::No(_) => Ok(Action::await_change()),
    })
    .await;
    assert_eq!(fails.expect_err("the work failed").to_string(), "not yet");
    assert!(
        cluster.exists::<ConfigMap>("m"),
        "the object is kept until the work is done"
    );

    let done = finalize(&api, FINALIZER, Arc::new(cluster.get("m")), async |_| {
        Ok(Action::await_change())
    })
    .await;
    assert!(done.is_ok(), "{done:?}");
    cluster.assert_gone::<ConfigMap>("m");
}

#[tokio::test(start_paused = true)]
async fn finalizer_is_only_written_to_the_newest_version() {
    let cluster = TestCluster::start();
    cluster.create(config_map("m")).await;
    let old: ConfigMap = cluster.get("m");
    cluster
        .edit("m", |map: &mut ConfigMap| {
            map.metadata.finalizers = Some(vec!["example.com/other".into()])
        })
        .await;
    let result = add_finalizer(&maps(&cluster), FINALIZER, &old).await;
    assert!(result.expect_err("the object is stale").is_conflict());
}

#[rstest]
#[case::adding_an_existing_finalizer(Some(vec!["example.com/other".to_owned(), FINALIZER.to_owned()]), true)]
#[case::removing_a_missing_finalizer(Some(vec!["example.com/other".to_owned()]), false)]
#[case::removing_from_an_object_without_finalizers(None, false)]
#[tokio::test(start_paused = true)]
async fn unchanged_finalizers_are_not_written(#[case] finalizers: Option<Vec<String>>, #[case] is_added: bool) {
    let cluster = TestCluster::start();
    cluster
        .create(config_map("m").set("metadata.finalizers", &finalizers))
        .await;
    let map: ConfigMap = cluster.get("m");
    let writes = cluster.requests().writes().count();
    match is_added {
        true => {
            let same = add_finalizer(&maps(&cluster), FINALIZER, &map).await;
            assert_eq!(same.expect("the call succeeds"), map);
        }
        false => {
            let done = remove_finalizer(&maps(&cluster), FINALIZER, &map).await;
            done.expect("the call succeeds");
        }
    }
    assert_eq!(cluster.requests().writes().count(), writes);
    assert_eq!(cluster.get::<ConfigMap>("m"), map);
}

fn red(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.meta_mut().name = Some(name.to_owned());
    map
}

fn paint(map: &mut ConfigMap) -> Result<(), Error> {
    map.data.get_or_insert_default().insert("color".into(), "red".into());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn create_or_update_creates_updates_or_leaves_the_object_unchanged() {
    let cluster = TestCluster::start();
    let api = maps(&cluster);
    let mut results = Vec::new();
    for round in 0..4 {
        if round == 2 {
            cluster
                .patch::<ConfigMap>("m", serde_json::json!({"data": {"color": "blue", "size": "big"}}))
                .await;
        }
        results.push(
            create_or_update(&api, red("m"), paint)
                .await
                .expect("the call succeeds")
                .1,
        );
    }
    use OperationResult::{Created, Unchanged, Updated};
    assert_eq!(results, [Created, Unchanged, Updated, Unchanged]);
    cluster.assert_has(config_map("m").data("color", "red").data("size", "big"));
    assert_eq!(cluster.requests().on(Verb::Update, "configmaps").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn change_must_keep_the_identity_of_the_object() {
    let cluster = TestCluster::start();
    let rename = |map: &mut ConfigMap| {
        map.meta_mut().name = Some("other".into());
        Ok(())
    };
    let err = create_or_update(&maps(&cluster), red("m"), rename)
        .await
        .expect_err("the closure changes the name");
    assert!(err.to_string().contains("was m, is other"), "{err}");
    assert_eq!(cluster.requests().writes().count(), 0);
}

#[rstest]
#[case(3, true, 4)]
#[case(9, false, 5)]
#[tokio::test(start_paused = true)]
async fn update_is_attempted_at_most_five_times_on_conflict(
    #[case] conflicts: u64,
    #[case] works: bool,
    #[case] tries: usize,
) {
    let cluster = TestCluster::start();
    cluster.create(config_map("m")).await;
    cluster
        .inject(faults::conflict().on(Verb::Update, "configmaps").times(conflicts))
        .forget();
    let api = maps(&cluster);
    let result = retry_on_conflict(RetryPolicy::DEFAULT_RETRY, || async {
        let map = api.get("m").await?;
        api.replace("m", &Default::default(), &map).await
    })
    .await;
    assert_eq!(result.is_ok(), works, "{result:?}");
    assert_eq!(cluster.requests().on(Verb::Get, "configmaps").count(), tries);
}

fn set(namespace: Option<&str>, name: &str) -> ReplicaSet {
    let mut set = ReplicaSet::default();
    set.metadata.namespace = namespace.map(str::to_owned);
    (set.metadata.name, set.metadata.uid) = (Some(name.to_owned()), Some(format!("uid-{name}")));
    set
}

fn pod_in(namespace: Option<&str>) -> Pod {
    let mut pod = Pod::default();
    (pod.metadata.namespace, pod.metadata.name) = (namespace.map(str::to_owned), Some("p".to_owned()));
    pod
}

#[test]
fn object_can_only_have_one_controller() {
    let (one, other) = (set(Some("shop"), "one"), set(Some("shop"), "other"));
    let mut pod = pod_in(Some("shop"));
    owner_references::set_controller(&mut pod, &one).expect("the object has no controller");
    owner_references::set_controller(&mut pod, &one).expect("the owner is the same");
    owner_references::set_owner(&mut pod, &other).expect("an object may have several owners");
    let err = owner_references::set_controller(&mut pod, &other).expect_err("the object has a controller");
    assert_eq!(
        err.to_string(),
        "object shop/p is already owned by another ReplicaSet controller one"
    );
    let reference = owner_references::controller_of(&pod).expect("the object has a controller");
    assert_eq!(
        (reference.controller, reference.block_owner_deletion),
        (Some(true), Some(true))
    );
    assert!(owner_references::is_controlled_by(&pod, &one) && !owner_references::is_controlled_by(&pod, &other));
    assert!(owner_references::has_owner(&pod, &other));
    owner_references::remove_owner(&mut pod, &other).expect("the owner exists");
    assert!(owner_references::remove_owner(&mut pod, &other).is_err());
    assert_eq!(pod.metadata.owner_references.map(|it| it.len()), Some(1));
}

#[rstest]
#[case(Some("shop"), Some("other"), "cross-namespace")]
#[case(None, Some("shop"), "cluster-scoped resource")]
fn namespaced_owner_must_be_in_the_namespace_of_the_object(
    #[case] own: Option<&str>,
    #[case] owners: Option<&str>,
    #[case] why: &str,
) {
    let err = owner_references::set_controller(&mut pod_in(own), &set(owners, "one")).expect_err(why);
    assert!(err.to_string().contains(why), "{err}");
}

#[test]
fn cluster_scoped_owner_may_own_namespaced_objects() {
    let mut node = Node::default();
    (node.metadata.name, node.metadata.uid) = (Some("n".into()), Some("1".into()));
    owner_references::set_owner(&mut pod_in(Some("shop")), &node).expect("Nodes are cluster-scoped");
}

#[tokio::test(start_paused = true)]
async fn condition_keeps_its_transition_time_until_its_status_changes() {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().expect("the time is valid"));
    let mut all = Vec::new();
    let mut steps = Vec::new();
    for (status, message) in [
        (ConditionStatus::False, "a"),
        (ConditionStatus::False, "b"),
        (ConditionStatus::True, "b"),
        (ConditionStatus::True, "b"),
    ] {
        let is_new = conditions::set(&mut all, "Ready", status, "Reason", message, Some(1), &clock);
        let time = &conditions::find(&all, "Ready")
            .expect("the condition was set")
            .last_transition_time;
        steps.push((is_new, time.0.as_second() % 60));
        tokio::time::advance(Duration::from_secs(10)).await;
    }
    assert_eq!(steps, [(true, 0), (true, 0), (true, 20), (false, 20)]);
    assert!(conditions::is_true(&all, "Ready") && conditions::remove(&mut all, "Ready") && all.is_empty());
}

#[tokio::test(start_paused = true)]
async fn expectations_are_met_by_events_or_expire() {
    let (expectations, key) = (Expectations::new(), ObjectKey::new("shop", "web"));
    expectations.expect_deletions(&key, ["a".to_owned(), "b".to_owned()]);
    expectations.deletion_observed(&key, "a");
    expectations.deletion_observed(&key, "a");
    assert!(!expectations.are_met(&key), "an observed deletion only counts once");
    expectations.deletion_observed(&key, "b");
    assert!(expectations.are_met(&key));
    expectations.expect_creations(&key, 1);
    tokio::time::advance(Duration::from_secs(299)).await;
    assert!(!expectations.are_met(&key));
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(expectations.are_met(&key));
}

#[rstest]
#[case("/healthz", "", 200, "ok")]
#[case("/healthz", "verbose", 200, "[+]ping ok\nhealthz check passed\n")]
#[case("/healthz/ping", "", 200, "ok")]
#[case("/healthz/other", "", 404, "404 page not found\n")]
#[case(
    "/readyz",
    "",
    500,
    "[-]db failed: reason withheld\n[+]ping ok\nreadyz check failed\n"
)]
#[case("/readyz", "exclude=db", 200, "ok")]
#[case("/readyz/db", "", 500, "internal server error: the service is down\n")]
#[case("/metrics", "", 200, "")]
#[case("/", "", 404, "404 page not found\n")]
fn health_endpoints_match_controller_runtime(
    #[case] path: &str,
    #[case] query: &str,
    #[case] code: u16,
    #[case] body: &str,
) {
    let endpoints = Endpoints::new(&Metrics::new());
    endpoints.add_healthz("ping", ping);
    endpoints.add_readyz("ping", ping);
    endpoints.add_readyz("db", || Err("the service is down".into()));
    let answer = endpoints.answer(path, query);
    assert_eq!((answer.code, answer.body.as_str()), (code, body));
}

#[rstest]
#[case::cause("Timeout", "", "ResourceVersionTooLarge", "", true)]
#[case::message("Timeout", "Too large resource version: 9, current: 7", "", "", true)]
#[case::message_of_a_cause("Timeout", "", "", "Too large resource version", true)]
#[case::another_timeout("Timeout", "request did not complete", "", "", false)]
#[case::another_reason("Invalid", "Too large resource version", "", "", false)]
fn too_large_version_is_recognised_by_cause_or_message(
    #[case] reason: &str,
    #[case] message: &str,
    #[case] cause: &str,
    #[case] cause_message: &str,
    #[case] is_too_large: bool,
) {
    let status = serde_json::json!({
        "code": 504, "reason": reason, "message": message,
        "details": {"causes": [{"reason": cause, "message": cause_message}]},
    });
    let status: kube::core::Status = serde_json::from_value(status).expect("the value is a Status");
    let err = Error::from(kube::Error::Api(Box::new(status)));
    assert_eq!(err.is_version_too_large(), is_too_large);
}
