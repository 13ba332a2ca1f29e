//! Sites: the custom resource of twins with generations, conditions and a status, and the start of its controllers.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Client, CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use testkit::objects::{object, serialized};
use testkit::{ObjectBuilder, TestCluster, TestClusterBuilder};

use crate::support::{Context, Done, Error, now, plain};

#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Site",
    namespaced,
    status = "SiteStatus"
)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SiteSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<u32>,
    pub(crate) image: String,
    pub(crate) host: String,
    pub(crate) secret: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SiteStatus {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) observed_generation: Option<i64>,
    pub(crate) host: String,
    pub(crate) image: String,
    pub(crate) not_after: Option<String>,
    pub(crate) runs: u32,
    pub(crate) last_job: String,
    pub(crate) desired: u32,
    pub(crate) last_scale_time: Option<String>,
    pub(crate) build_started_at: Option<String>,
    pub(crate) deployed_generation: Option<i64>,
    pub(crate) step: u32,
    pub(crate) step_at: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) type_: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) observed_generation: Option<i64>,
    pub(crate) last_transition_time: String,
}

pub(crate) fn sites() -> TestClusterBuilder {
    plain().object(serialized(&Site::crd()))
}

pub(crate) fn site(name: &str, spec: Value) -> ObjectBuilder {
    object("example.com/v1", "Site", name).set("spec", spec)
}

pub(crate) async fn change(cluster: &TestCluster, name: &str, spec: Value) {
    let target = object("example.com/v1", "Site", name);
    let _: testkit::Object = cluster.patch(target, json!({"spec": spec})).await;
}

pub(crate) fn status(site: &Site) -> SiteStatus {
    site.status.clone().unwrap_or_default()
}

/// Returns a recorded time in seconds, or 0 without a recorded time.
pub(crate) fn since(recorded: Option<&str>) -> i64 {
    let time = recorded.and_then(|it| it.parse::<jiff::Timestamp>().ok());
    time.map_or(0, jiff::Timestamp::as_second)
}

pub(crate) async fn patch_status(cx: &Context, name: &str, status: Value) -> Result<(), Error> {
    let (params, patch) = (PatchParams::default(), Patch::Merge(json!({"status": status})));
    Ok(cx.api::<Site>().patch_status(name, &params, &patch).await.map(drop)?)
}

/// Returns the conditions including `wanted`. The time of a condition only changes with its status. Returns `None` if
/// nothing changes.
pub(crate) fn with_condition(site: &Site, mut wanted: Condition) -> Option<Vec<Condition>> {
    let mut all = status(site).conditions;
    wanted.observed_generation = site.metadata.generation;
    wanted.last_transition_time = now().to_string();
    match all.iter_mut().find(|it| it.type_ == wanted.type_) {
        None => all.push(wanted),
        Some(known) => {
            if known.status == wanted.status {
                wanted.last_transition_time.clone_from(&known.last_transition_time);
            }
            let is_same = known.status == wanted.status
                && known.reason == wanted.reason
                && known.message == wanted.message
                && known.observed_generation == wanted.observed_generation;
            if is_same {
                return None;
            }
            *known = wanted;
        }
    }
    Some(all)
}

pub(crate) fn condition(type_: &str, status: bool, reason: &str, message: &str) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        ..Condition::default()
    }
}

/// Starts a controller of Sites that retries after ten seconds.
pub(crate) fn start<F>(
    cluster: &TestCluster,
    name: &'static str,
    watches: impl Fn(Controller<Site>, &Context) -> Controller<Site> + Clone + Send + Sync + 'static,
    reconcile: impl Fn(Arc<Site>, Context) -> F + Clone + Send + Sync + 'static,
) where
    F: Future<Output = Done> + Send + 'static,
{
    let cloud = cluster.external("cloud").of(name);
    cluster.controller(name, move |client: Client| {
        let (reconcile, watches) = (reconcile.clone(), watches.clone());
        let cx = Context {
            client,
            cloud: cloud.clone(),
        };
        async move {
            watches(Controller::new(cx.api::<Site>(), watcher::Config::default()), &cx)
                .run(
                    move |site, cx: Arc<Context>| reconcile(site, Context::clone(&cx)),
                    |_, _: &Error, _| Action::requeue(Duration::from_secs(10)),
                    Arc::new(cx),
                )
                .for_each(|_| async {})
                .await;
        }
    });
}
