//! The status of a custom resource: conditions with times, counters, the observed generation, and writers that share
//! an object.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, CustomResource, CustomResourceExt, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use testkit::objects::{config_map, serialized};
use testkit::{TestCluster, TestClusterBuilder};

use crate::support::{now, plain};

twins! {
    apps();
    transition_time_changes_with_the_status: "idempotence", "apps.example.com default/web";
    parts_are_recounted: "end state", "apps.example.com default/web status.parts";
    generation_is_observed_after_the_work: "end state", "secrets default/web";
    each_manager_applies_its_own_fields: "idempotence", "it restores data.east, which west had overwritten";
    all_pages_of_the_list_are_read: "end state", "secrets default/copy-";
}

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "App",
    namespaced,
    status = "AppStatus"
)]
struct AppSpec {
    parts: u32,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
struct AppStatus {
    observed_generation: Option<i64>,
    parts: u32,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    last_transition_time: String,
}

fn apps() -> TestClusterBuilder {
    plain().object(serialized(&App::crd()))
}

/// Starts a controller of Apps, as in kube's examples.
fn start<F>(
    cluster: &TestCluster,
    name: &'static str,
    reconcile: impl Fn(Arc<App>, Client) -> F + Clone + Send + Sync + 'static,
) where
    F: Future<Output = kube::Result<Action>> + Send + 'static,
{
    cluster.controller(name, move |client: Client| {
        let reconcile = reconcile.clone();
        async move {
            Controller::new(Api::<App>::all(client.clone()), watcher::Config::default())
                .owns(Api::<Secret>::all(client.clone()), watcher::Config::default())
                .run(
                    move |app, client: Arc<Client>| reconcile(app, Client::clone(&client)),
                    |_, _: &kube::Error, _| Action::requeue(Duration::from_secs(5)),
                    Arc::new(client),
                )
                .for_each(|_| async {})
                .await;
        }
    });
}

async fn made(cluster: &TestCluster) {
    let app = App {
        metadata: ObjectMeta {
            name: Some("web".to_owned()),
            ..ObjectMeta::default()
        },
        spec: AppSpec { parts: 2 },
        status: None,
    };
    cluster.create(serialized(&app)).await;
    cluster.settle().await;
    let _: testkit::Object = cluster
        .patch(
            testkit::objects::object("example.com/v1", "App", "web"),
            json!({"spec": {"parts": 3}}),
        )
        .await;
    cluster.settle().await;
}

async fn patch_status(client: &Client, status: Value) -> kube::Result<()> {
    let apps = Api::<App>::default_namespaced(client.clone());
    let patch = Patch::Merge(json!({"status": status}));
    apps.patch_status("web", &PatchParams::default(), &patch)
        .await
        .map(drop)
}

/// Creates the Secrets of an App; returns the number of new ones.
async fn make_parts(app: &App, client: &Client) -> kube::Result<u32> {
    let secrets = Api::<Secret>::default_namespaced(client.clone());
    let mut created = 0;
    for nth in 0..app.spec.parts {
        let mut secret = Secret::default();
        secret.metadata.name = Some(format!("{}-{nth}", app.name_any()));
        secret.metadata.owner_references = Some(app.controller_owner_ref(&()).into_iter().collect());
        match secrets.create(&PostParams::default(), &secret).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(err) => return Err(err),
            Ok(_) => created += 1,
        }
    }
    Ok(created)
}

/// Writes a condition with the time of its last change. The buggy variant writes the current time once per process.
async fn transition_time_changes_with_the_status(cluster: &TestCluster, is_healthy: bool) {
    cluster.controller("operator", move |client: Client| async move {
        let mut generation = None;
        let apps = Api::<App>::all(client.clone());
        let mut apps = std::pin::pin!(watcher(apps, watcher::Config::default()));
        while let Some(event) = apps.next().await {
            let Ok(watcher::Event::Apply(app) | watcher::Event::InitApply(app)) = event else {
                continue;
            };
            let known = app.status.clone().unwrap_or_default();
            let is_ready = known
                .conditions
                .iter()
                .any(|it| it.kind == "Ready" && it.status == "True");
            let is_due = match is_healthy {
                true => !is_ready,
                false => generation != app.metadata.generation,
            };
            let now = now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let condition = json!({"type": "Ready", "status": "True", "lastTransitionTime": now});
            while is_due && patch_status(&client, json!({"conditions": [condition]})).await.is_err() {
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
            generation = app.metadata.generation;
        }
    });
    made(cluster).await;
}

/// Reports the number of parts. The buggy variant adds the number of parts that it has just created.
async fn parts_are_recounted(cluster: &TestCluster, is_healthy: bool) {
    start(cluster, "operator", move |app, client| async move {
        let created = make_parts(&app, &client).await?;
        let known = app.status.as_ref().map_or(0, |it| it.parts);
        let parts = match is_healthy {
            true => {
                let secrets = Api::<Secret>::default_namespaced(client.clone());
                let all = secrets.list(&ListParams::default()).await?;
                all.iter().filter(|it| it.name_any().starts_with("web-")).count() as u32
            }
            false => known + created,
        };
        if parts != known {
            patch_status(&client, json!({"parts": parts})).await?;
        }
        Ok(Action::requeue(Duration::from_secs(300)))
    });
    made(cluster).await;
}

/// Skips a generation that it has observed. The buggy variant reports the generation before its work is done.
async fn generation_is_observed_after_the_work(cluster: &TestCluster, is_healthy: bool) {
    start(cluster, "operator", move |app, client| async move {
        let generation = app.metadata.generation;
        if app.status.as_ref().and_then(|it| it.observed_generation) == generation {
            return Ok(Action::await_change());
        }
        if is_healthy {
            make_parts(&app, &client).await?;
        }
        patch_status(&client, json!({"observedGeneration": generation})).await?;
        if !is_healthy {
            make_parts(&app, &client).await?;
        }
        Ok(Action::await_change())
    });
    made(cluster).await;
}

/// Two controllers write their own fields of one ConfigMap. The buggy variant replaces the complete object that it has
/// read.
async fn each_manager_applies_its_own_fields(cluster: &TestCluster, is_healthy: bool) {
    for name in ["east", "west"] {
        start(cluster, name, move |app, client| async move {
            let maps = Api::<ConfigMap>::default_namespaced(client);
            let parts = app.spec.parts.to_string();
            if is_healthy {
                let own = json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}, "data": {name: parts},
                });
                let params = PatchParams::apply(name).force();
                maps.patch("shared", &params, &Patch::Apply(own)).await?;
                return Ok(Action::await_change());
            }
            let mut shared = maps.get("shared").await?;
            let data = shared.data.get_or_insert_default();
            if data.insert(name.to_owned(), parts.clone()) != Some(parts) {
                shared.metadata.resource_version = None;
                maps.replace("shared", &PostParams::default(), &shared).await?;
            }
            Ok(Action::await_change())
        });
    }
    cluster.create(config_map("shared")).await;
    made(cluster).await;
}

/// Returns the names of all sources, page by page. The buggy variant treats a failed page as the end of the list.
async fn sources(maps: &Api<ConfigMap>, is_healthy: bool) -> kube::Result<Vec<String>> {
    let (mut names, mut next) = (Vec::new(), None);
    loop {
        let mut params = ListParams::default().labels("kind=source").limit(2);
        params.continue_token.clone_from(&next);
        match maps.list(&params).await {
            Ok(page) => {
                names.extend(page.iter().map(ResourceExt::name_any));
                next = page.metadata.continue_.filter(|it| !it.is_empty());
                if next.is_none() {
                    return Ok(names);
                }
            }
            Err(_) if !is_healthy => return Ok(names),
            Err(err) => return Err(err),
        }
    }
}

/// Copies the sources, and deletes copies without a source, from a list that is read once a minute.
async fn all_pages_of_the_list_are_read(cluster: &TestCluster, is_healthy: bool) {
    start(cluster, "operator", move |_, client| async move {
        let maps = Api::<ConfigMap>::default_namespaced(client.clone());
        let secrets = Api::<Secret>::default_namespaced(client);
        let sources = sources(&maps, is_healthy).await?;
        for source in &sources {
            let mut copy = Secret::default();
            copy.metadata.name = Some(format!("copy-{source}"));
            match secrets.create(&PostParams::default(), &copy).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                created => drop(created?),
            }
        }
        for copy in secrets.list(&ListParams::default()).await? {
            let name = copy.name_any();
            if !name
                .strip_prefix("copy-")
                .is_none_or(|it| sources.iter().any(|source| source == it))
            {
                secrets.delete(&name, &Default::default()).await?;
            }
        }
        Ok(Action::await_change())
    });
    for nth in 0..5 {
        cluster
            .create(config_map(&format!("source-{nth}")).label("kind", "source"))
            .await;
    }
    made(cluster).await;
}
