//! Rollouts and scales: an autoscaler, a build and its deployment, a canary, pinned digests, and paused workloads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt};
use serde_json::json;
use testkit::TestCluster;
use testkit::objects::{config_map, deployment};

use crate::sites::{Site, change, condition, patch_status, since, site, sites, start, status, with_condition};
use crate::support::{Context, Error, again, done, now};

twins! {
    sites(), 60;
    unreadable_load_keeps_the_scale: "no field is rolled back", "default/web spec.replicas was 1, then 3, then 1 again";
    build_of_this_generation_is_deployed: "end state", "default/web spec.template.spec.containers.0.image: expected";
    weight_of_a_canary_grows: "no field is rolled back", "data.weight was \"20\", then \"50\", then \"20\" again";
    digest_of_a_tag_is_pinned: "end state", "expected \"sha256-aaaa\", found \"sha256-cccc\"";
    resumed_workload_regains_its_size: "end state", "metadata.annotations.size: expected \"3\", found \"0\"";
}

/// Scales a Deployment by its load, every 15 s; it waits for a minute before it scales down. The buggy variant treats a
/// load that cannot be read as zero.
async fn unreadable_load_keeps_the_scale(cluster: &TestCluster, is_healthy: bool) {
    start(
        cluster,
        "scaler",
        |it, _| it,
        move |site, cx| async move {
            let (name, status) = (site.name_any(), status(&site));
            let load = match cx.get::<ConfigMap>("load").await {
                Ok(load) => load.and_then(|it| it.data?.get(&name)?.parse().ok()).unwrap_or(0),
                Err(_) if !is_healthy => 0,
                Err(err) => return Err(err),
            };
            let desired = u32::div_ceil(load, 10).clamp(1, site.spec.size.unwrap_or(10));
            let Some(workload) = cx.get::<Deployment>(&name).await? else {
                return again(15);
            };
            let current = workload.spec.and_then(|it| it.replicas).unwrap_or(1).unsigned_abs();
            let may_shrink = now().as_second() - since(status.last_scale_time.as_deref()) >= 60;
            if desired > current || (desired < current && may_shrink) {
                let scale = Patch::Merge(json!({"spec": {"replicas": desired}}));
                cx.api::<Deployment>()
                    .patch_scale(&name, &PatchParams::default(), &scale)
                    .await?;
                let patch = json!({"desired": desired, "lastScaleTime": now().to_string()});
                patch_status(&cx, &name, patch).await?;
            } else if status.desired != desired && desired == current {
                patch_status(&cx, &name, json!({"desired": desired})).await?;
            }
            again(15)
        },
    );
    cluster.create(config_map("load").data("web", "25")).await;
    cluster.create(deployment("web").set("spec.replicas", 1)).await;
    cluster.create(site("web", json!({"size": 8}))).await;
    cluster.advance(Duration::from_secs(100)).await;
    for load in ["70", "31"] {
        let _: testkit::Object = cluster.patch(config_map("load"), json!({"data": {"web": load}})).await;
        cluster.advance(Duration::from_secs(100)).await;
    }
}

/// One controller builds an image, which takes half a minute, and another one deploys it. The buggy variant deploys the
/// image of an earlier generation, and considers the new one deployed.
async fn build_of_this_generation_is_deployed(cluster: &TestCluster, is_healthy: bool) {
    start(
        cluster,
        "builder",
        |it, _| it,
        move |site, cx| async move {
            let (name, status, generation) = (site.name_any(), status(&site), site.metadata.generation);
            let known = status.conditions.iter().find(|it| it.type_ == "Built");
            if known.is_none_or(|it| it.observed_generation != generation) {
                let building = condition("Built", false, "Building", "");
                let conditions = with_condition(&site, building);
                let patch = json!({"conditions": conditions, "buildStartedAt": now().to_string()});
                patch_status(&cx, &name, patch).await?;
                return again(30);
            }
            if known.is_some_and(|it| it.status == "True") {
                return done();
            }
            let left = since(status.build_started_at.as_deref()) + 30 - now().as_second();
            if left > 0 {
                return again(left.unsigned_abs());
            }
            let image = format!("registry.example.com/{}:{}", name, site.spec.image);
            match cx.cloud.create(&image, json!({})).await {
                Err(testkit::explore::ExternalError::AlreadyExists(_)) => {}
                created => created?,
            }
            let built = condition("Built", true, "Pushed", &image);
            let patch = json!({"conditions": with_condition(&site, built), "image": image});
            patch_status(&cx, &name, patch).await?;
            done()
        },
    );
    start(
        cluster,
        "deployer",
        |it, _| it.with_config(Config::default().debounce(Duration::from_secs(2))),
        move |site, cx| async move {
            let (name, status, generation) = (site.name_any(), status(&site), site.metadata.generation);
            let is_built = status.conditions.iter().any(|it| {
                it.type_ == "Built" && it.status == "True" && (!is_healthy || it.observed_generation == generation)
            });
            if !is_built || status.deployed_generation == generation {
                return done();
            }
            let workload = json!({
                "metadata": {"ownerReferences": [site.controller_owner_ref(&())]},
                "spec": {
                    "selector": {"matchLabels": {"site": name}},
                    "template": {
                        "metadata": {"labels": {"site": name}},
                        "spec": {"containers": [{"name": "main", "image": status.image}]},
                    },
                },
            });
            cx.apply::<Deployment>("deployer", &name, workload).await?;
            patch_status(&cx, &name, json!({"deployedGeneration": generation})).await?;
            done()
        },
    );
    cluster.create(site("web", json!({"image": "1"}))).await;
    cluster.advance(Duration::from_secs(60)).await;
    change(cluster, "web", json!({"image": "2"})).await;
    cluster.advance(Duration::from_secs(60)).await;
}

const WEIGHTS: [&str; 3] = ["20", "50", "100"];

/// Sends 20, 50 and 100 % of the traffic to a new image, a minute apart. The buggy variant counts the steps in memory.
async fn weight_of_a_canary_grows(cluster: &TestCluster, is_healthy: bool) {
    let cloud = cluster.external("cloud").of("canary");
    cluster.controller("canary", move |client: Client| {
        let cx = Context {
            client,
            cloud: cloud.clone(),
        };
        async move {
            let steps = Arc::new(Mutex::new(BTreeMap::<String, (u32, i64)>::new()));
            Controller::new(cx.api::<Site>(), watcher::Config::default())
                .run(
                    move |site, cx: Arc<Context>| {
                        let steps = Arc::clone(&steps);
                        async move { shift(&site, &cx, &steps, is_healthy).await }
                    },
                    |_, _: &Error, _| Action::requeue(Duration::from_secs(10)),
                    Arc::new(cx),
                )
                .for_each(|_| async {})
                .await;
        }
    });
    cluster.create(site("web", json!({"image": "web:1"}))).await;
    cluster.advance(Duration::from_secs(200)).await;
}

async fn shift(
    site: &Site,
    cx: &Context,
    steps: &Mutex<BTreeMap<String, (u32, i64)>>,
    is_healthy: bool,
) -> Result<Action, Error> {
    let name = site.name_any();
    let Some(site) = cx.get::<Site>(&name).await? else {
        return done();
    };
    let (status, image) = (status(&site), &site.spec.image);
    if status.image == *image && status.step as usize == WEIGHTS.len() {
        return done();
    }
    let is_new = status.image != *image;
    let (step, at) = match (is_healthy, is_new) {
        (true, true) => (0, 0),
        (true, false) => (status.step, since(status.step_at.as_deref())),
        (false, _) => *steps
            .lock()
            .expect("no task panics")
            .entry(image.clone())
            .or_insert((0, 0)),
    };
    let left = at + 60 - now().as_second();
    if left > 0 {
        return again(left.unsigned_abs());
    }
    let route = json!({"metadata": {"ownerReferences": [site.controller_owner_ref(&())]},
        "data": {"image": image, "weight": WEIGHTS[step as usize]}});
    cx.apply::<ConfigMap>("canary", &format!("{name}-route"), route).await?;
    let patch = json!({"image": image, "step": step + 1, "stepAt": now().to_string()});
    patch_status(cx, &name, patch).await?;
    if !is_healthy {
        let at = now().as_second();
        steps
            .lock()
            .expect("no task panics")
            .insert(image.clone(), (step + 1, at));
    }
    again(60)
}

/// Resolves the tag of an image once. The buggy variant keeps the digests in memory.
async fn digest_of_a_tag_is_pinned(cluster: &TestCluster, is_healthy: bool) {
    let cloud = cluster.external("cloud").of("pins");
    cluster.controller("pins", move |client: Client| {
        let cx = Context {
            client,
            cloud: cloud.clone(),
        };
        async move {
            let digests = Arc::new(Mutex::new(BTreeMap::<String, String>::new()));
            Controller::new(cx.api::<Site>(), watcher::Config::default())
                .owns(cx.api::<Deployment>(), watcher::Config::default())
                .run(
                    move |site, cx: Arc<Context>| {
                        let digests = Arc::clone(&digests);
                        async move { pin(&site, &cx, &digests, is_healthy).await }
                    },
                    |_, _: &Error, _| Action::requeue(Duration::from_secs(10)),
                    Arc::new(cx),
                )
                .for_each(|_| async {})
                .await;
        }
    });
    cluster
        .create(
            config_map("registry")
                .data("v1", "sha256-aaaa")
                .data("v2", "sha256-bbbb"),
        )
        .await;
    cluster.create(site("web", json!({"image": "v1", "size": 1}))).await;
    cluster.settle().await;
    let _: testkit::Object = cluster
        .patch(config_map("registry"), json!({"data": {"v1": "sha256-cccc"}}))
        .await;
    change(cluster, "web", json!({"size": 2})).await;
    cluster.settle().await;
    change(cluster, "web", json!({"image": "v2"})).await;
    cluster.settle().await;
}

async fn pin(
    site: &Site,
    cx: &Context,
    digests: &Mutex<BTreeMap<String, String>>,
    is_healthy: bool,
) -> Result<Action, Error> {
    let (name, tag) = (site.name_any(), &site.spec.image);
    let known = if is_healthy {
        let workload = cx.get::<Deployment>(&name).await?;
        workload.and_then(|it| {
            let of = it.annotations().get("tag")?.clone();
            let digest = it.annotations().get("digest")?.clone();
            (of == *tag).then_some(digest)
        })
    } else {
        digests.lock().expect("no task panics").get(tag).cloned()
    };
    let digest = match known {
        Some(digest) => digest,
        None => {
            let registry = cx.get::<ConfigMap>("registry").await?;
            let found = registry.and_then(|it| it.data?.get(tag).cloned());
            let Some(digest) = found else {
                return Err(Error::NotYet("the tag is unknown"));
            };
            digests
                .lock()
                .expect("no task panics")
                .insert(tag.clone(), digest.clone());
            digest
        }
    };
    let workload = json!({
        "metadata": {
            "ownerReferences": [site.controller_owner_ref(&())], "annotations": {"tag": tag, "digest": digest},
        },
        "spec": {
            "replicas": site.spec.size, "selector": {"matchLabels": {"site": name}},
            "template": {
                "metadata": {"labels": {"site": name}},
                "spec": {"containers": [{"name": "main", "image": format!("web@{digest}")}]},
            },
        },
    });
    cx.apply::<Deployment>("pins", &name, workload).await?;
    done()
}

/// Scales a paused Deployment to zero, and later back to its size. The buggy variant stores the size in another write.
async fn resumed_workload_regains_its_size(cluster: &TestCluster, is_healthy: bool) {
    let cloud = cluster.external("cloud").of("pauses");
    cluster.controller("pauses", move |client: Client| {
        let cx = Context {
            client,
            cloud: cloud.clone(),
        };
        async move {
            Controller::new(cx.api::<Deployment>(), watcher::Config::default())
                .run(
                    move |workload: Arc<Deployment>, cx: Arc<Context>| async move {
                        pause(&workload, &cx, is_healthy).await
                    },
                    |_, _: &Error, _| Action::requeue(Duration::from_secs(10)),
                    Arc::new(cx),
                )
                .for_each(|_| async {})
                .await;
        }
    });
    cluster.create(deployment("web").set("spec.replicas", 3)).await;
    cluster.settle().await;
    for paused in [json!("yes"), json!(null)] {
        let patch = json!({"metadata": {"annotations": {"paused": paused}}});
        let _: testkit::Object = cluster.patch(deployment("web"), patch).await;
        cluster.settle().await;
    }
}

async fn pause(workload: &Deployment, cx: &Context, is_healthy: bool) -> Result<Action, Error> {
    let name = workload.name_any();
    let replicas = workload.spec.as_ref().and_then(|it| it.replicas).unwrap_or(1);
    let is_paused = workload.annotations().contains_key("paused");
    let stored = workload.annotations().get("size").and_then(|it| it.parse::<i32>().ok());
    let version = workload.resource_version();
    match (is_paused, stored) {
        (true, None) if is_healthy => {
            let patch = json!({
                "metadata": {"resourceVersion": version, "annotations": {"size": replicas.to_string()}},
                "spec": {"replicas": 0},
            });
            cx.merge::<Deployment>(&name, patch).await?;
        }
        (true, None) => {
            cx.merge::<Deployment>(&name, json!({"spec": {"replicas": 0}})).await?;
            let patch = json!({"metadata": {"annotations": {"size": replicas.to_string()}}});
            cx.merge::<Deployment>(&name, patch).await?;
        }
        (false, Some(size)) => {
            let patch = json!({
                "metadata": {"resourceVersion": version, "annotations": {"size": null}},
                "spec": {"replicas": size},
            });
            cx.merge::<Deployment>(&name, patch).await?;
        }
        (true, Some(_)) | (false, None) => {}
    }
    done()
}
