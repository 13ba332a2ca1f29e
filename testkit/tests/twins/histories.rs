//! Histories: revisions with numbers, snapshots and counts. Their contents depend on the changes that a controller
//! observes one by one.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use serde_json::{Value, json};
use testkit::TestCluster;
use testkit::objects::config_map;

use crate::support::{Context, Done, Error, OPERATOR, annotation, done, field, plain};

twins! {
    plain();
    revisions_are_numbered: "end state", "secrets default/web-";
    revisions_increase: "end state", "secrets default/web-";
    each_observed_size_has_a_snapshot: "end state", "secrets default/snapshot-3: missing";
    rollouts_are_counted: "end state", "secrets default/web: missing";
    numbered_children_are_removed: "end state", "secrets default/web-2: unexpected";
    inactive_color_gets_the_next_size: "end state", "secrets default/web-blue";
}

async fn change(cluster: &TestCluster, size: &str) {
    let _: testkit::Object = cluster.patch(config_map("web"), json!({"data": {"size": size}})).await;
}

/// Sets the size several times, and waits after each change.
async fn with_sizes(cluster: &TestCluster, sizes: &[&str]) {
    let first = config_map("web").data("size", sizes[0]).label("kind", "app");
    cluster.create(first).await;
    cluster.settle().await;
    for size in &sizes[1..] {
        change(cluster, size).await;
        cluster.settle().await;
    }
}

/// Sets three sizes, and waits after the first and the last.
async fn with_changes_at_once(cluster: &TestCluster) {
    cluster
        .create(config_map("web").data("size", "1").label("kind", "app"))
        .await;
    cluster.settle().await;
    change(cluster, "2").await;
    change(cluster, "3").await;
    cluster.settle().await;
}

/// Sets annotations of the parent, if the parent has not changed since it was read.
async fn mark(cx: &Context, parent: &ConfigMap, annotations: Value) -> Result<(), Error> {
    let patch = json!({"metadata": {"resourceVersion": parent.resource_version(), "annotations": annotations}});
    cx.merge::<ConfigMap>(&parent.name_any(), patch).await.map(drop)
}

fn number(of: &Secret) -> u32 {
    of.labels().get("number").and_then(|it| it.parse().ok()).unwrap_or(0)
}

fn size(of: &Secret) -> &str {
    of.labels().get("size").map_or("", String::as_str)
}

/// Returns the revisions of the parent, oldest first.
async fn revisions(cx: &Context, parent: &ConfigMap) -> Result<Vec<Secret>, Error> {
    let mut all = cx.list::<Secret>(&format!("of={}", parent.name_any())).await?;
    all.sort_by_key(number);
    Ok(all)
}

async fn create_revision(cx: &Context, parent: &ConfigMap, name: &str, number: u32) -> Result<bool, Error> {
    let size = field(parent, "size");
    let mut labels = json!({"of": parent.name_any(), "number": number.to_string()});
    labels["size"] = size.into();
    cx.create::<Secret>(json!({"metadata": {"name": name, "labels": labels}}))
        .await
}

/// Deletes all revisions except for the newest two.
async fn keep_two(cx: &Context, revisions: &[Secret]) -> Result<(), Error> {
    for old in revisions.iter().rev().skip(2) {
        cx.delete::<Secret>(&old.name_any()).await?;
    }
    Ok(())
}

/// Creates the next revision if the newest one has another size. The buggy variant counts in the parent, and accepts
/// any existing revision with the next number.
async fn revisions_are_numbered(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .selects("kind=app")
        .start(cluster, move |parent, cx| async move {
            let wanted = field(&parent, "size");
            let newest = match is_healthy {
                true => revisions(&cx, &parent)
                    .await?
                    .last()
                    .map(|it| (number(it), size(it).to_owned())),
                false => {
                    let last = annotation(&parent, "revision").parse().ok();
                    last.map(|it| (it, annotation(&parent, "size").to_owned()))
                }
            };
            let number = match newest {
                Some((number, size)) if size == wanted => number,
                other => {
                    let number = other.map_or(0, |it| it.0) + 1;
                    let is_new = create_revision(&cx, &parent, &format!("web-{number}"), number).await?;
                    if is_healthy && !is_new {
                        return Err(Error::NotYet("another revision has this number"));
                    }
                    number
                }
            };
            keep_two(&cx, &revisions(&cx, &parent).await?).await?;
            let number = number.to_string();
            if annotation(&parent, "revision") != number || annotation(&parent, "size") != wanted {
                mark(&cx, &parent, json!({"revision": number, "size": wanted})).await?;
            }
            done()
        });
    with_sizes(cluster, &["1", "2", "3"]).await;
}

/// Names revisions by their content, and gives the current revision the greatest number, as Deployments do. The buggy
/// variant records the size before its revision has this number.
async fn revisions_increase(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .selects("kind=app")
        .start(cluster, move |parent, cx| async move {
            let wanted = field(&parent, "size");
            if !is_healthy && annotation(&parent, "size") == wanted {
                return done();
            }
            let all = revisions(&cx, &parent).await?;
            let greatest = all.last().map_or(0, number);
            if !is_healthy {
                mark(&cx, &parent, json!({"size": wanted})).await?;
            }
            let name = format!("web-{wanted}");
            match all.iter().find(|it| size(it) == wanted) {
                Some(present) if number(present) == greatest => {}
                Some(_) => {
                    let labels = json!({"metadata": {"labels": {"number": (greatest + 1).to_string()}}});
                    cx.merge::<Secret>(&name, labels).await?;
                }
                None => drop(create_revision(&cx, &parent, &name, greatest + 1).await?),
            }
            keep_two(&cx, &revisions(&cx, &parent).await?).await?;
            if is_healthy && annotation(&parent, "size") != wanted {
                mark(&cx, &parent, json!({"size": wanted})).await?;
            }
            done()
        });
    with_sizes(cluster, &["1", "2", "3", "1"]).await;
}

/// Keeps a snapshot of each size that it observes. The buggy variant marks the newest size as done, even if that is a
/// different size.
async fn each_observed_size_has_a_snapshot(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .selects("kind=app")
        .start(cluster, move |parent, cx| async move {
            let wanted = field(&parent, "size");
            if annotation(&parent, "done") == wanted {
                return done();
            }
            cx.create_secret(&parent, &format!("snapshot-{wanted}"), json!({"size": wanted}))
                .await?;
            if is_healthy {
                mark(&cx, &parent, json!({"done": wanted})).await?;
            } else if let Some(newest) = cx.get::<ConfigMap>(&parent.name_any()).await? {
                mark(&cx, &newest, json!({"done": field(&newest, "size")})).await?;
            }
            done()
        });
    with_changes_at_once(cluster).await;
}

/// Counts the sizes that it observes. The buggy variant counts a size before it rolls it out.
async fn rollouts_are_counted(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .selects("kind=app")
        .start(cluster, move |parent, cx| roll_out(parent, cx, is_healthy));
    with_changes_at_once(cluster).await;
}

async fn roll_out(parent: std::sync::Arc<ConfigMap>, cx: Context, is_healthy: bool) -> Done {
    let wanted = field(&parent, "size");
    let count: u32 = annotation(&parent, "count").parse().unwrap_or(0);
    let is_counted = annotation(&parent, "size") == wanted;
    if !is_counted {
        let count = (count + 1).to_string();
        mark(&cx, &parent, json!({"count": count, "size": wanted})).await?;
    }
    if is_healthy || !is_counted {
        let settings = json!({"metadata": {"labels": {"size": wanted}}});
        cx.apply::<Secret>("operator", &parent.name_any(), settings).await?;
    }
    done()
}

/// Keeps as many children as the size specifies. The buggy variant only deletes the child with the next number.
async fn numbered_children_are_removed(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .selects("kind=app")
        .start(cluster, move |parent, cx| async move {
            let size: u32 = field(&parent, "size").parse().unwrap_or(0);
            for number in 0..size {
                create_revision(&cx, &parent, &format!("web-{number}"), number).await?;
            }
            for child in revisions(&cx, &parent).await? {
                let is_next = number(&child) == size;
                if number(&child) >= size && (is_healthy || is_next) {
                    cx.delete::<Secret>(&child.name_any()).await?;
                }
            }
            done()
        });
    with_sizes(cluster, &["3", "2", "1"]).await;
}

/// Deploys each size to the color that is not active, and then makes this color active. The buggy variant makes the
/// color active first.
///
/// The active color depends on the number of sizes that the controller observes one by one.
async fn inactive_color_gets_the_next_size(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .selects("kind=app")
        .start(cluster, move |parent, cx| async move {
            // The cache may contain an old active color.
            let Some(parent) = cx.get::<ConfigMap>(&parent.name_any()).await? else {
                return done();
            };
            let wanted = field(&parent, "size");
            if annotation(&parent, "size") == wanted {
                return done();
            }
            let next = if annotation(&parent, "active") == "blue" {
                "green"
            } else {
                "blue"
            };
            let marks = json!({"active": next, "size": wanted});
            if !is_healthy {
                mark(&cx, &parent, marks.clone()).await?;
            }
            let color = json!({"metadata": {"labels": {"size": wanted}}});
            cx.apply::<Secret>("operator", &format!("web-{next}"), color).await?;
            if is_healthy {
                mark(&cx, &parent, marks).await?;
            }
            done()
        });
    with_sizes(cluster, &["1", "2", "3"]).await;
}
