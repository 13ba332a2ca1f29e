//! Explorations of controllers: replays of a failure are identical, byte by byte.

use futures::future::LocalBoxFuture;
use informer::ObjectKey;
use informer::cache::SharedInformerFactory;
use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::{Controller, ControllerBuilder, owner_references};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use rstest::rstest;
use serde_json::json;
use testkit::TestCluster;
use testkit::explore::explore;
use testkit::objects::{config_map, pod};
use tokio_util::sync::CancellationToken;

/// Returns the number of replays of each failure: `DRYDOCK_REPLAYS`, or a default that is lower without optimisations.
fn replays() -> u64 {
    let few = if cfg!(debug_assertions) { 30 } else { 300 };
    let asked = std::env::var("DRYDOCK_REPLAYS").ok();
    asked.and_then(|it| it.parse().ok()).unwrap_or(few)
}

/// Number of objects that are created at the same time in each scenario, so that a random order would be detected.
const OBJECTS: usize = 4;

fn done() -> Result<Action, ReconcileError> {
    Ok(Action::await_change())
}

async fn run(builder: ControllerBuilder, reconciler: impl informer::reconcile::Reconciler) {
    let controller = builder.build(reconciler).expect("the controller is complete");
    let _ = controller.run(CancellationToken::new()).await;
}

fn secret_of(parent: &ConfigMap) -> Result<Secret, ReconcileError> {
    let mut secret = Secret::default();
    secret.metadata.namespace = parent.namespace();
    owner_references::set_controller(&mut secret, parent)?;
    Ok(secret)
}

fn field<'a>(parent: &'a ConfigMap, name: &str) -> &'a str {
    let data = parent.data.as_ref();
    data.and_then(|it| it.get(name)).map_or("", String::as_str)
}

/// Runs a controller that counts objects in a cache that may not contain its own writes yet, and therefore creates too
/// many objects.
async fn over_creation(client: Client) {
    let factory = SharedInformerFactory::new(client.clone());
    let (maps, secrets) = (
        factory.informer::<ConfigMap>().lister(),
        factory.informer::<Secret>().lister(),
    );
    let api: Api<Secret> = Api::default_namespaced(client);
    let builder = Controller::builder("sets", &factory)
        .for_::<ConfigMap>()
        .owns::<Secret>()
        .without_read_your_writes();
    run(builder, move |request: Request| {
        let (maps, secrets, api) = (maps.clone(), secrets.clone(), api.clone());
        async move {
            let Some(map) = maps.get(&request.key) else {
                return done();
            };
            let map = map.typed()?;
            let prefix = format!("{}-", request.key.name());
            let found = secrets.list();
            let found = found.iter().filter(|it| it.key().name().starts_with(&prefix)).count();
            for _ in found..field(&map, "replicas").parse().unwrap_or_default() {
                let mut secret = secret_of(&map)?;
                secret.metadata.generate_name = Some(prefix.clone());
                api.create(&PostParams::default(), &secret).await?;
            }
            done()
        }
    })
    .await;
}

/// Runs a controller that only writes two objects if the first object differs from its desired state.
async fn dependent_writes(client: Client) {
    let factory = SharedInformerFactory::new(client.clone());
    let (maps, secrets) = (
        factory.informer::<ConfigMap>().lister(),
        factory.informer::<Secret>().lister(),
    );
    let api: Api<Secret> = Api::default_namespaced(client);
    run(
        Controller::builder("resizer", &factory)
            .for_::<ConfigMap>()
            .owns::<Secret>(),
        move |request: Request| {
            let (maps, secrets, api) = (maps.clone(), secrets.clone(), api.clone());
            async move {
                let Some(map) = maps.get(&request.key) else {
                    return done();
                };
                let map = map.typed()?;
                let [first, second] = ["set", "claim"].map(|it| format!("{}-{it}", request.key.name()));
                for name in [&first, &second] {
                    if secrets.get(&ObjectKey::new("default", name)).is_none() {
                        let mut secret = secret_of(&map)?;
                        secret.metadata.name = Some(name.clone());
                        api.create(&PostParams::default(), &secret).await?;
                    }
                }
                let size = field(&map, "replicas");
                let seen = secrets.get(&ObjectKey::new("default", &first));
                if seen.and_then(|it| it.annotation("size")).as_deref() != Some(size) {
                    for name in [&first, &second] {
                        let patch = Patch::Merge(json!({"metadata": {"annotations": {"size": size}}}));
                        api.patch(name, &PatchParams::default(), &patch).await?;
                    }
                }
                done()
            }
        },
    )
    .await;
}

/// Runs a controller that deletes the dependents of a Pod when it observes the deletion of the Pod. If it misses the
/// deletion, the dependents remain.
async fn edge_triggered(client: Client) {
    let factory = SharedInformerFactory::new(client.clone());
    let pods = factory.informer::<Pod>().lister();
    let api: Api<Secret> = Api::default_namespaced(client);
    run(
        Controller::builder("volumes", &factory).for_::<Pod>(),
        move |request: Request| {
            let (pods, api) = (pods.clone(), api.clone());
            async move {
                let name = request.key.name().to_owned();
                let outcome = match pods.get(&request.key) {
                    Some(_) => {
                        let mut secret = Secret::default();
                        secret.metadata.name = Some(name);
                        api.create(&PostParams::default(), &secret).await.map(drop)
                    }
                    None => api.delete(&name, &DeleteParams::default()).await.map(drop),
                };
                match outcome {
                    Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => done(),
                    outcome => outcome.map_err(Into::into).and_then(|()| done()),
                }
            }
        },
    )
    .await;
}

async fn scaled(cluster: &TestCluster) {
    let names = (0..OBJECTS).map(|it| format!("web-{it}"));
    for name in names.clone() {
        cluster.create(config_map(&name).data("replicas", "1")).await;
    }
    cluster.settle().await;
    for name in names {
        let _: testkit::Object = cluster
            .patch(config_map(&name), json!({"data": {"replicas": "2"}}))
            .await;
    }
    cluster.settle().await;
}

fn over_created(cluster: &TestCluster) -> LocalBoxFuture<'_, ()> {
    Box::pin(async move {
        cluster.controller("sets", over_creation);
        scaled(cluster).await;
    })
}

fn resized(cluster: &TestCluster) -> LocalBoxFuture<'_, ()> {
    Box::pin(async move {
        cluster.controller("resizer", dependent_writes);
        scaled(cluster).await;
    })
}

fn cleaned(cluster: &TestCluster) -> LocalBoxFuture<'_, ()> {
    Box::pin(async move {
        cluster.controller("volumes", edge_triggered);
        for at in 0..OBJECTS {
            cluster.create(pod(&format!("node-{at}"))).await;
        }
        cluster.settle().await;
        for at in 1..OBJECTS {
            cluster.delete(pod(&format!("node-{at}"))).await;
        }
        cluster.settle().await;
    })
}

#[rstest]
#[case::over_creation(over_created)]
#[case::dependent_writes(resized)]
#[case::edge_triggered(cleaned)]
fn replay_of_a_failure_is_deterministic(#[case] scenario: for<'a> fn(&'a TestCluster) -> LocalBoxFuture<'a, ()>) {
    let exploration = || {
        explore(async move |cluster: &TestCluster| scenario(cluster).await).budget(std::time::Duration::from_secs(3600))
    };
    let found = exploration().report();
    let failure = found
        .failure()
        .unwrap_or_else(|| panic!("the bug is not found: {found}"));
    let again = exploration().replay(&failure.replay()).times(replays()).report();
    assert_eq!(found.nondeterminism(), Vec::<String>::new());
    assert_eq!(again.nondeterminism(), Vec::<String>::new(), "{}", failure.replay());
    assert_eq!(again.coverage().schedules, replays());
    assert_eq!(again.failure().map(|it| it.what()), Some(failure.what()));
}
