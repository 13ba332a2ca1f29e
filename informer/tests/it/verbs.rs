//! Read-your-writes by verb: after each type of write, a key waits for the cache. After requests without writes, it
//! does not wait.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use informer::cache::SharedInformerFactory;
use informer::handler::{Event, enqueue};
use informer::reconcile::{Action, ReconcileError, Request, Writes};
use informer::runtime::Controller;
use informer::{CachedObject, ObjectKey};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
use kube::api::{
    Api, DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy,
};
use kube::{Client, Error};
use rstest::rstest;
use serde_json::{Value, json};
use testkit::objects::{config_map, deployment, namespace, node, pod, secret};
use testkit::{FaultBuilder, TestCluster, faults};
use tokio_util::sync::CancellationToken;

type Done = BoxFuture<'static, Result<(), Error>>;

/// A request that a reconcile sends once.
type Act = fn(Client) -> Done;

fn secrets(client: &Client) -> Api<Secret> {
    Api::default_namespaced(client.clone())
}

fn pods(client: &Client) -> Api<Pod> {
    Api::default_namespaced(client.clone())
}

fn of<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("the value is an object")
}

fn dry() -> PostParams {
    PostParams {
        dry_run: true,
        ..PostParams::default()
    }
}

fn label() -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"labels": {"new": "yes"}}}))
}

fn all() -> ListParams {
    ListParams::default().labels("app=all")
}

async fn world() -> TestCluster {
    let cluster = TestCluster::start();
    cluster.create(config_map("a")).await;
    cluster.create(namespace("shop")).await;
    cluster.create(secret("s")).await;
    cluster.create(secret("held").finalizer("example.com/hold")).await;
    cluster.create(secret("all-1").label("app", "all")).await;
    let held = secret("all-2").label("app", "all");
    cluster.create(held.finalizer("example.com/hold")).await;
    cluster.create(node("n")).await;
    cluster.create(pod("p")).await;
    cluster.create(deployment("d")).await;
    cluster
}

/// Returns the number of calls of a controller for a ConfigMap in ten seconds while its caches do not advance, and in
/// the next ten seconds. The first call runs `act`, and each call requeues after a tenth of a second.
async fn calls(cluster: &TestCluster, act: Act) -> (u32, u32) {
    calls_within(cluster, act, Duration::from_secs(10)).await
}

async fn calls_within(cluster: &TestCluster, act: Act, after: Duration) -> (u32, u32) {
    let factory = SharedInformerFactory::new(cluster.client_named("cache"));
    let mut builder = Controller::builder("writer", &factory).for_::<ConfigMap>();
    let nobody = || enqueue::mapped(|_: &CachedObject<Secret>| Vec::<ObjectKey>::new());
    builder = builder.watches_where::<Secret>(nobody(), |_: &Event<Secret>| true);
    builder = builder.watches::<Pod>(enqueue::mapped(|_: &CachedObject<Pod>| Vec::<ObjectKey>::new()));
    builder = builder.watches::<Deployment>(enqueue::mapped(|_: &CachedObject<Deployment>| Vec::<ObjectKey>::new()));
    builder = builder.watches::<Node>(enqueue::mapped(|_: &CachedObject<Node>| Vec::<ObjectKey>::new()));
    let client = Writes::new().observe(&cluster.client_named("writer"));
    let calls: Arc<Mutex<u32>> = Arc::default();
    let count = Arc::clone(&calls);
    let controller = builder.build(move |_: Request| {
        let number = {
            let mut count = count.lock().expect("the lock is not poisoned");
            *count += 1;
            *count
        };
        let client = client.clone();
        async move {
            if number == 1 {
                let _ = act(client).await;
            }
            Ok::<_, ReconcileError>(Action::requeue(Duration::from_millis(100)))
        }
    });
    factory.start();
    cluster.settle().await;
    cluster.watches().client("cache").hold();
    cluster.run(
        controller
            .expect("the controller is complete")
            .run(CancellationToken::new()),
    );
    cluster.advance(Duration::from_secs(10)).await;
    let before = std::mem::take(&mut *calls.lock().expect("the lock is not poisoned"));
    cluster.watches().client("cache").resume();
    cluster.advance(after).await;
    let after = *calls.lock().expect("the lock is not poisoned");
    (before, after)
}

const WRITES: &[(&str, Act)] = &[
    ("create", |it| {
        async move {
            secrets(&it)
                .create(&PostParams::default(), &of(json!({"metadata": {"name": "new"}})))
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("generate", |it| {
        async move {
            secrets(&it)
                .create(
                    &PostParams::default(),
                    &of(json!({"metadata": {"generateName": "new-"}})),
                )
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("replace", |it| {
        async move {
            secrets(&it)
                .replace(
                    "s",
                    &PostParams::default(),
                    &of(json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}})),
                )
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("merge", |it| {
        async move {
            secrets(&it)
                .patch("s", &PatchParams::default(), &label())
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("apply new", |it| {
        async move {
            secrets(&it)
                .patch(
                    "new",
                    &PatchParams::apply("me"),
                    &Patch::Apply(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "new"}})),
                )
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("apply", |it| {
        async move {
            secrets(&it)
                .patch(
                    "s",
                    &PatchParams::apply("me"),
                    &Patch::Apply(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"labels": {"a": "b"}}})),
                )
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("delete", |it| {
        async move { secrets(&it).delete("s", &DeleteParams::default()).await.map(drop) }.boxed()
    }),
    ("delete held", |it| {
        async move { secrets(&it).delete("held", &DeleteParams::default()).await.map(drop) }.boxed()
    }),
    ("delete foreground", |it| {
        async move {
            secrets(&it)
                .delete(
                    "s",
                    &DeleteParams {
                        propagation_policy: Some(PropagationPolicy::Foreground),
                        ..DeleteParams::default()
                    },
                )
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("delete orphan", |it| {
        async move {
            secrets(&it)
                .delete(
                    "s",
                    &DeleteParams {
                        propagation_policy: Some(PropagationPolicy::Orphan),
                        ..DeleteParams::default()
                    },
                )
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("delete gracefully", |it| {
        async move { pods(&it).delete("p", &DeleteParams::default()).await.map(drop) }.boxed()
    }),
    ("delete at once", |it| {
        async move {
            pods(&it)
                .delete("p", &DeleteParams::default().grace_period(0))
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("delete collection", |it| {
        async move {
            secrets(&it)
                .delete_collection(&DeleteParams::default(), &all())
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("delete collection of held", |it| {
        async move {
            secrets(&it)
                .delete_collection(&DeleteParams::default(), &all().fields("metadata.name=all-2"))
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("delete collection of pods", |it| {
        async move {
            pods(&it)
                .delete_collection(&DeleteParams::default(), &ListParams::default())
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("delete made before", |it| {
        async move {
            secrets(&it)
                .create(&PostParams::default(), &of(json!({"metadata": {"name": "new"}})))
                .await?;
            secrets(&it).delete("new", &DeleteParams::default()).await.map(drop)
        }
        .boxed()
    }),
    ("delete and make", |it| {
        async move {
            secrets(&it).delete("s", &DeleteParams::default()).await?;
            secrets(&it)
                .create(&PostParams::default(), &of(json!({"metadata": {"name": "s"}})))
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("status", |it| {
        async move {
            pods(&it)
                .patch_status(
                    "p",
                    &PatchParams::default(),
                    &Patch::Merge(json!({"status": {"message": "well"}})),
                )
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("scale", |it| {
        async move {
            Api::<Deployment>::default_namespaced(it)
                .patch_scale(
                    "d",
                    &PatchParams::default(),
                    &Patch::Merge(json!({"spec": {"replicas": 3}})),
                )
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("eviction", |it| {
        async move { pods(&it).evict("p", &EvictParams::default()).await.map(drop) }.boxed()
    }),
    ("binding", |it| {
        async move {
    let body = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    pods(&it).create_subresource::<Value, Value>("binding", "p", &PostParams::default(), &body).await.map(drop) }.boxed()
    }),
    ("ephemeral containers", |it| {
        async move {
            let patch = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox"}]}});
            pods(&it)
                .patch_subresource(
                    "ephemeralcontainers",
                    "p",
                    &PatchParams::default(),
                    &Patch::Strategic(patch),
                )
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("node", |it| {
        async move {
            Api::<Node>::all(it)
                .patch("n", &PatchParams::default(), &label())
                .await
                .map(drop)
        }
        .boxed()
    }),
];

const NO_WRITES: &[(&str, Act)] =
    &[
        ("create", |it| {
            async move {
                secrets(&it)
                    .create(&dry(), &of(json!({"metadata": {"name": "new"}})))
                    .await
                    .map(drop)
            }
            .boxed()
        }),
        ("replace", |it| {
            async move {
                secrets(&it)
                    .replace(
                        "s",
                        &dry(),
                        &of(json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}})),
                    )
                    .await
                    .map(drop)
            }
            .boxed()
        }),
        ("patch", |it| {
            async move {
                secrets(&it)
                    .patch(
                        "s",
                        &PatchParams {
                            dry_run: true,
                            ..PatchParams::default()
                        },
                        &label(),
                    )
                    .await
                    .map(drop)
            }
            .boxed()
        }),
        ("apply", |it| {
            async move {
                secrets(&it)
                    .patch(
                        "new",
                        &PatchParams {
                            dry_run: true,
                            ..PatchParams::apply("me")
                        },
                        &Patch::Apply(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "new"}})),
                    )
                    .await
                    .map(drop)
            }
            .boxed()
        }),
        ("delete", |it| {
            async move {
                secrets(&it)
                    .delete("s", &DeleteParams::default().dry_run())
                    .await
                    .map(drop)
            }
            .boxed()
        }),
        ("delete held", |it| {
            async move {
                secrets(&it)
                    .delete("held", &DeleteParams::default().dry_run())
                    .await
                    .map(drop)
            }
            .boxed()
        }),
        ("delete gracefully", |it| {
            async move {
                pods(&it)
                    .delete("p", &DeleteParams::default().dry_run())
                    .await
                    .map(drop)
            }
            .boxed()
        }),
        ("delete collection", |it| {
            async move {
                secrets(&it)
                    .delete_collection(&DeleteParams::default().dry_run(), &all())
                    .await
                    .map(drop)
            }
            .boxed()
        }),
        ("delete collection of nothing", |it| {
            async move {
                secrets(&it)
                    .delete_collection(&DeleteParams::default(), &ListParams::default().labels("app=none"))
                    .await
                    .map(drop)
            }
            .boxed()
        }),
        ("eviction", |it| {
            async move {
                let body = json!({"metadata": {"name": "p"}, "deleteOptions": {"dryRun": ["All"]}});
                pods(&it)
                    .create_subresource::<Value, Value>("eviction", "p", &PostParams::default(), &body)
                    .await
                    .map(drop)
            }
            .boxed()
        }),
        ("eviction in the query", |it| {
            async move {
                pods(&it)
                    .evict(
                        "p",
                        &EvictParams {
                            post_options: dry(),
                            ..EvictParams::default()
                        },
                    )
                    .await
                    .map(drop)
            }
            .boxed()
        }),
        ("exists", |it| {
            async move {
                secrets(&it)
                    .create(&PostParams::default(), &of(json!({"metadata": {"name": "s"}})))
                    .await
                    .map(drop)
            }
            .boxed()
        }),
        ("invalid", |it| {
            async move {
                secrets(&it)
                    .create(&PostParams::default(), &of(json!({"metadata": {"name": "No!"}})))
                    .await
                    .map(drop)
            }
            .boxed()
        }),
        ("missing", |it| {
            async move {
                secrets(&it)
                    .patch("none", &PatchParams::default(), &label())
                    .await
                    .map(drop)
            }
            .boxed()
        }),
        ("delete missing", |it| {
            async move { secrets(&it).delete("none", &DeleteParams::default()).await.map(drop) }.boxed()
        }),
        ("conflict", |it| {
            async move {
                secrets(&it)
                    .replace(
                        "s",
                        &PostParams::default(),
                        &of(json!({"metadata": {"name": "s", "resourceVersion": "1"}})),
                    )
                    .await
                    .map(drop)
            }
            .boxed()
        }),
        ("precondition", |it| {
            async move {
                secrets(&it)
                    .delete(
                        "s",
                        &DeleteParams {
                            preconditions: Some(Preconditions {
                                uid: Some("another".into()),
                                resource_version: None,
                            }),
                            ..DeleteParams::default()
                        },
                    )
                    .await
                    .map(drop)
            }
            .boxed()
        }),
        ("nothing changed", |it| {
            async move {
                secrets(&it)
                    .patch("s", &PatchParams::default(), &Patch::Merge(json!({})))
                    .await
                    .map(drop)
            }
            .boxed()
        }),
        ("get", |it| async move { secrets(&it).get("s").await.map(drop) }.boxed()),
        ("token", |it| {
            async move {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}});
    Api::<k8s_openapi::api::core::v1::ServiceAccount>::default_namespaced(it)
        .create_subresource::<Value, Value>("token", "default", &PostParams::default(), &body).await.map(drop) }.boxed()
        }),
    ];

#[tokio::test(start_paused = true)]
async fn key_waits_for_writes_of_every_verb() {
    for (name, act) in WRITES {
        let cluster = world().await;
        let before = cluster.server().resource_version();
        let (held, after) = calls(&cluster, *act).await;
        assert!(cluster.server().resource_version() > before, "{name}: the verb writes");
        assert_eq!(held, 1, "{name}: the key waits while the cache lacks the write");
        assert!(after > 50, "{name}: {after} calls in the next ten seconds");
    }
}

#[tokio::test(start_paused = true)]
async fn key_does_not_wait_after_requests_that_do_not_write() {
    for (name, act) in NO_WRITES {
        let cluster = world().await;
        let before = cluster.server().resource_version();
        let (held, after) = calls(&cluster, *act).await;
        assert_eq!(
            cluster.server().resource_version(),
            before,
            "{name}: the verb does not write"
        );
        assert!(
            held > 50 && after > 50,
            "{name}: {held} and {after} calls in ten seconds"
        );
    }
}

#[rstest]
#[case::connection_reset(|| faults::reset().but_applied())]
#[case::timeout(|| faults::timeout().but_applied())]
#[case::truncated_response(|| faults::truncated(20))]
#[tokio::test(start_paused = true)]
async fn key_waits_for_its_writes_after_lost_responses(#[case] loss: fn() -> FaultBuilder) {
    for (name, act) in WRITES {
        let cluster = world().await;
        let before = cluster.server().resource_version();
        for resource in ["secrets", "pods", "deployments", "nodes"] {
            let losing = loss().client("writer").on_writes(resource).once();
            cluster.inject(losing).forget();
        }
        // After a deletion of unnamed objects, a cache only reaches the required version with a bookmark, which is sent
        // every minute.
        let (held, after) = calls_within(&cluster, *act, Duration::from_secs(80)).await;
        assert!(cluster.server().resource_version() > before, "{name}: the verb writes");
        assert_eq!(held, 1, "{name}: the key waits while the cache lacks the write");
        assert!(after > 50, "{name}: {after} calls after the bound");
    }
}
