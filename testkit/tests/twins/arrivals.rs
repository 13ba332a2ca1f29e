//! Objects that are created at the same time, and results that depend on the order in which a controller handles them.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use serde_json::json;
use testkit::TestCluster;
use testkit::objects::config_map;

use crate::support::{Error, OPERATOR, annotation, done, field, plain};

twins! {
    plain();
    items_are_packed_greedily: "end state", "configmaps default/bins";
    names_are_listed_in_the_order_of_arrival: "end state", "configmaps default/summary";
}

/// Creates items of different sizes at the same time.
async fn with_items(cluster: &TestCluster) {
    for (name, size) in [("web", "60"), ("shop", "50"), ("blog", "40"), ("docs", "30")] {
        cluster
            .create(config_map(name).label("kind", "item").data("size", size))
            .await;
    }
    cluster.settle().await;
}

/// Puts each item into the first bin of size 100 that has space for it. The number of bins depends on the order. The
/// buggy variant only stores the used space of each bin, and adds an item again if its annotation was not written.
async fn items_are_packed_greedily(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .selects("kind=item")
        .start(cluster, move |item, cx| async move {
            if !annotation(&item, "bin").is_empty() {
                return done();
            }
            let bins = cx.get::<ConfigMap>("bins").await?.ok_or(Error::NotYet("no bins"))?;
            let (name, data) = (item.name_any(), bins.data.clone().unwrap_or_default());
            let size: u32 = field(&item, "size").parse().unwrap_or(0);
            let known = data.get(&name).and_then(|it| it.split_once(' '));
            let bin = match known {
                Some((bin, _)) => bin.to_owned(),
                None => {
                    let used = |bin: &str| -> u32 {
                        let packed = data.values().filter_map(|it| it.split_once(' '));
                        let sizes = packed.filter(|(of, _)| *of == bin).map(|(_, size)| size);
                        let sum = data.get(&format!("bin-{bin}")).map(String::as_str);
                        sizes.chain(sum).filter_map(|it| it.parse::<u32>().ok()).sum()
                    };
                    let all = (1..).map(|it: u32| it.to_string());
                    let bin = all.take(9).find(|it| used(it) + size <= 100).unwrap_or_default();
                    let (key, entry) = match is_healthy {
                        true => (name, format!("{bin} {size}")),
                        false => (format!("bin-{bin}"), (used(&bin) + size).to_string()),
                    };
                    let patch = json!({
                        "metadata": {"resourceVersion": bins.resource_version()}, "data": {key: entry},
                    });
                    cx.merge::<ConfigMap>("bins", patch).await?;
                    bin
                }
            };
            cx.annotate(&item, "bin", &bin).await?;
            done()
        });
    cluster.create(config_map("bins")).await;
    cluster.settle().await;
    with_items(cluster).await;
}

/// Appends the name of each item to a list in one string. The buggy variant appends a name again if its annotation was
/// not written.
async fn names_are_listed_in_the_order_of_arrival(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .selects("kind=item")
        .start(cluster, move |item, cx| async move {
            if !annotation(&item, "listed").is_empty() {
                return done();
            }
            let name = item.name_any();
            loop {
                let summary = cx.get::<ConfigMap>("summary").await?;
                let summary = summary.ok_or(Error::NotYet("no summary"))?;
                let listed = field(&summary, "names");
                if is_healthy && listed.split(',').any(|it| it == name) {
                    break;
                }
                let names = format!("{listed},{name}");
                let patch = json!({
                    "metadata": {"resourceVersion": summary.resource_version()},
                    "data": {"names": names.trim_start_matches(',')},
                });
                match cx.merge::<ConfigMap>("summary", patch).await {
                    Err(Error::Kube(kube::Error::Api(status))) if status.is_conflict() => {}
                    merged => {
                        merged?;
                        break;
                    }
                }
            }
            cx.annotate(&item, "listed", "yes").await?;
            done()
        });
    cluster.create(config_map("summary")).await;
    cluster.settle().await;
    with_items(cluster).await;
}
