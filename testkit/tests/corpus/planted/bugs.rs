//! Planted bugs and their twins. Exploration with the defaults finds each bug, and reports nothing for its twin.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use rstest::rstest;
use serde_json::json;
use testkit::TestCluster;
use testkit::explore::External;

use super::{Scenario, exploration, is_silent};
use crate::support::{Reconciled, annotate, api, custom, ensure, names, operator, pod_of, spec, volume};

/// Records in an annotation that the custom resource is done.
async fn say_done(parent: &ConfigMap, client: &Client) -> Reconciled {
    annotate(parent, client, "done", spec(parent, "size")).await
}

fn failed(why: impl std::error::Error + Send + Sync + 'static) -> kube::Error {
    kube::Error::Service(Box::new(why))
}

async fn made_and_changed(cluster: &TestCluster) {
    cluster.create(custom("web").data("size", "1")).await;
    cluster.settle().await;
    let _: testkit::Object = cluster.patch(custom("web"), json!({"data": {"size": "2"}})).await;
    cluster.settle().await;
}

/// Ignores an error of a cloud, and reports success.
async fn ignore_the_cloud(parent: Arc<ConfigMap>, client: Client, cloud: External, is_fixed: bool) -> Reconciled {
    if parent.annotations().get("done").map(String::as_str) == Some(spec(&parent, "size")) {
        return Ok(());
    }
    let disk = json!({"size": spec(&parent, "size")});
    let name = parent.name_any();
    let done = match cloud.get(&name).await {
        Ok(Some(_)) => cloud.update(&name, disk).await,
        Ok(None) => cloud.create(&name, disk).await,
        Err(err) => Err(err),
    };
    if is_fixed {
        done.map_err(failed)?;
    }
    say_done(&parent, &client).await
}

fn cloud_errors(cluster: &TestCluster, is_fixed: bool) {
    let cloud = cluster.external("cloud").of("operator");
    cluster.controller("operator", move |client| {
        let cloud = cloud.clone();
        operator(client, move |parent, client| {
            ignore_the_cloud(parent, client, cloud.clone(), is_fixed)
        })
    });
}

/// Creates a resource with an id that the cloud generates, and records the id afterwards. Nothing else refers to the
/// resource.
async fn lose_the_id(parent: Arc<ConfigMap>, client: Client, cloud: External, is_fixed: bool) -> Reconciled {
    let name = parent.name_any();
    if parent.annotations().contains_key("id") {
        return Ok(());
    }
    let found = match is_fixed {
        true => cloud.list().await.map_err(failed)?,
        false => Vec::new(),
    };
    let id = match found.into_iter().find(|(_, machine)| machine["tag"] == name.as_str()) {
        Some((id, _)) => id,
        None => cloud.add(json!({"tag": name})).await.map_err(failed)?,
    };
    annotate(&parent, &client, "id", &id).await
}

fn cloud_ids(cluster: &TestCluster, is_fixed: bool) {
    let cloud = cluster.external("cloud").of("operator");
    cluster.controller("operator", move |client| {
        let cloud = cloud.clone();
        operator(client, move |parent, client| {
            lose_the_id(parent, client, cloud.clone(), is_fixed)
        })
    });
}

/// Creates a Pod with the requested size. The controller trusts its own last write and ignores the watch.
async fn believe(parent: Arc<ConfigMap>, client: Client, written: Arc<Mutex<String>>, is_fixed: bool) -> Reconciled {
    let (pods, name, size) = (api::<Pod>(&client), parent.name_any(), spec(&parent, "size"));
    ensure(&pods, &pod_of(&parent, json!({"name": name.as_str()}))).await?;
    let found = match is_fixed {
        true => pods.get(&name).await?.annotations().get("size").cloned(),
        false => written.lock().ok().map(|it| it.clone()),
    };
    if found.as_deref() == Some(size) {
        return Ok(());
    }
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"size": size}}}));
    pods.patch(&name, &PatchParams::default(), &patch).await?;
    if let Ok(mut written) = written.lock() {
        size.clone_into(&mut written);
    }
    Ok(())
}

fn late_writes(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("operator", move |client| {
        let written = Arc::<Mutex<String>>::default();
        operator(client, move |parent, client| {
            believe(parent, client, Arc::clone(&written), is_fixed)
        })
    });
}

/// Does not retry a failed write; the next change repairs it.
async fn give_up(parent: Arc<ConfigMap>, client: Client, is_fixed: bool) -> Reconciled {
    let data = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": parent.name_any()},
        "stringData": {"size": spec(&parent, "size")},
    });
    let params = PatchParams::apply("operator").force();
    let secrets = api::<Secret>(&client);
    let written = secrets.patch(&parent.name_any(), &params, &Patch::Apply(data)).await;
    match is_fixed {
        true => written.map(drop),
        false => Ok(()),
    }
}

fn repaired_later(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("operator", move |client| {
        operator(client, move |parent, client| give_up(parent, client, is_fixed))
    });
}

/// Starts again after an error, with the initial size.
async fn begin_anew(parent: Arc<ConfigMap>, client: Client, is_fixed: bool) -> Reconciled {
    let secrets = api::<Secret>(&client);
    let name = parent.name_any();
    let apply = async |size: &str| {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name.as_str()}, "stringData": {"size": size},
        });
        let params = PatchParams::apply("operator").force();
        secrets.patch(&name, &params, &Patch::Apply(secret)).await.map(drop)
    };
    if apply(spec(&parent, "size")).await.is_err() {
        if !is_fixed {
            apply("1").await?;
        }
        apply(spec(&parent, "size")).await?;
    }
    Ok(())
}

fn rolled_back(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("operator", move |client| {
        operator(client, move |parent, client| begin_anew(parent, client, is_fixed))
    });
}

/// Counts its Secrets, but only on the first page.
async fn read_one_page(parent: Arc<ConfigMap>, client: Client, is_fixed: bool, limit: u32) -> Reconciled {
    let secrets = api::<Secret>(&client);
    for index in 0..3 {
        ensure(&secrets, &volume(&format!("{}-{index}", parent.name_any()))).await?;
    }
    let mut params = ListParams::default().limit(limit);
    let mut count = 0;
    loop {
        let page = secrets.list(&params).await?;
        count += page.items.len();
        match page.metadata.continue_.filter(|it| is_fixed && !it.is_empty()) {
            Some(next) => params = params.continue_token(&next),
            None => break,
        }
    }
    if parent.annotations().get("count") == Some(&count.to_string()) {
        return Ok(());
    }
    let count = Patch::Merge(json!({"metadata": {"annotations": {"count": count.to_string()}}}));
    let parents = api::<ConfigMap>(&client);
    let params = PatchParams::default();
    parents.patch(&parent.name_any(), &params, &count).await.map(drop)
}

fn small_limit(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("operator", move |client| {
        operator(client, move |parent, client| read_one_page(parent, client, is_fixed, 2))
    });
}

/// Treats the first page as the complete list, which is wrong if the server sends smaller pages.
fn large_limit(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("operator", move |client| {
        operator(client, move |parent, client| {
            read_one_page(parent, client, is_fixed, 500)
        })
    });
}

/// Creates two children, one of them without an ownerReference.
async fn forget_the_owner(parent: Arc<ConfigMap>, client: Client, is_fixed: bool) -> Reconciled {
    let secrets = api::<Secret>(&client);
    for (suffix, is_owned) in [("data", true), ("logs", is_fixed)] {
        let mut secret = volume(&format!("{}-{suffix}", parent.name_any()));
        if is_owned {
            secret.metadata.owner_references = parent.controller_owner_ref(&()).map(|it| vec![it]);
        }
        ensure(&secrets, &secret).await?;
    }
    Ok(())
}

fn forgotten_owner(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("operator", move |client| {
        operator(client, move |parent, client| forget_the_owner(parent, client, is_fixed))
    });
}

/// Creates an existing object again after a lost response.
async fn make_twice(parent: Arc<ConfigMap>, client: Client, is_fixed: bool) -> Reconciled {
    let secrets = api::<Secret>(&client);
    let prefix = format!("{}-", parent.name_any());
    if names(&secrets).await?.iter().any(|it| it.starts_with(&prefix)) {
        return Ok(());
    }
    let mut secret = Secret::default();
    match is_fixed {
        true => secret.metadata.name = Some(format!("{prefix}0")),
        false => secret.metadata.generate_name = Some(prefix),
    }
    let post = PostParams::default();
    let made = secrets.create(&post, &secret).await;
    match made {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(kube::Error::Service(_)) => match secrets.create(&post, &secret).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            made => made.map(drop),
        },
        made => made.map(drop),
    }
}

fn retried_create(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("operator", move |client| {
        operator(client, move |parent, client| make_twice(parent, client, is_fixed))
    });
}

pub(super) fn scenario(start: fn(&TestCluster, bool), is_fixed: bool) -> impl Scenario {
    async move |cluster: &TestCluster| {
        start(cluster, is_fixed);
        made_and_changed(cluster).await;
    }
}

#[rstest]
#[case::error_of_an_external_system_is_ignored(cloud_errors, "end state")]
#[case::id_of_an_external_object_is_lost(cloud_ids, "end state")]
#[case::write_arrives_late(late_writes, "end state")]
#[case::damage_is_repaired_by_a_later_step(repaired_later, "end state")]
#[case::value_is_rolled_back(rolled_back, "no field is rolled back")]
#[case::only_the_first_page_is_read(small_limit, "all pages are read")]
#[case::only_the_first_page_is_read_with_a_large_limit(large_limit, "all pages are read")]
#[case::owner_reference_is_missing(forgotten_owner, "all have owners")]
#[case::create_is_retried(retried_create, "end state")]
fn planted_bug_is_found(#[case] start: fn(&TestCluster, bool), #[case] oracle: &str) {
    let report = exploration(scenario(start, false)).report();
    assert_eq!(report.failure().map(|it| it.oracle()), Some(oracle), "{report}");
    assert_eq!(report.nondeterminism(), Vec::<String>::new(), "{report}");
}

#[test]
fn ignored_field_may_return_to_an_earlier_value() {
    let report = exploration(scenario(rolled_back, false)).ignore("data.size").report();
    assert!(report.is_success(), "{report}");
}

#[rstest]
fn fixed_variant_of_a_planted_bug_passes(
    #[values(
        cloud_errors,
        cloud_ids,
        late_writes,
        repaired_later,
        rolled_back,
        small_limit,
        large_limit,
        forgotten_owner,
        retried_create
    )]
    start: fn(&TestCluster, bool),
) {
    is_silent(scenario(start, true));
}

/// Renews a certificate that is valid for a minute: after half of that time, or when it has expired.
async fn renew(client: Client, every: Duration) {
    let maps = api::<ConfigMap>(&client);
    loop {
        let renewed = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "certificate"}});
        let _ = maps
            .patch(
                "certificate",
                &PatchParams::apply("renewer").force(),
                &Patch::Apply(&renewed),
            )
            .await;
        let now = Patch::Merge(json!({"metadata": {"annotations": {"renewed": format!("{:?}", every)}}}));
        let _ = maps.patch("certificate", &PatchParams::default(), &now).await;
        tokio::time::sleep(every).await;
        let _ = maps.delete("certificate", &Default::default()).await;
    }
}

/// Nothing is written at the moment at which a certificate expires.
#[rstest]
#[case::renewed_too_late(90, Some("always"))]
#[case::renewed_in_time(30, None)]
fn always_checks_run_as_time_passes(#[case] every: u64, #[case] oracle: Option<&str>) {
    let report = exploration(async move |cluster: &TestCluster| {
        cluster.controller("renewer", move |client| renew(client, Duration::from_secs(every)));
        cluster.advance(Duration::from_secs(200)).await;
    })
    .always("the certificate is valid", |cluster| {
        let made = cluster.try_get::<ConfigMap>("certificate");
        let made = made.and_then(|it| it.meta().creation_timestamp.clone());
        made.is_none_or(|it| cluster.server().now().duration_since(it.0).as_secs() < 60)
    })
    .faults(testkit::explore::variants())
    .schedules(5)
    .report();
    assert_eq!(report.failure().map(|it| it.oracle()), oracle, "{report}");
}
