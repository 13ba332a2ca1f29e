//! Measures unmodified controllers with kube-runtime, from start to convergence.

use std::sync::Arc;
use std::time::Duration;

use fake_apiserver::ApiServer;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Client, Resource};

use crate::measure::cpu_time;
use crate::objects;
use crate::requests::runtime;

/// Ensures that a ConfigMap has its Secret.
async fn reconcile(parent: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let secrets: Api<Secret> = Api::default_namespaced((*client).clone());
    let name = parent.metadata.name.as_deref().unwrap_or_default();
    if secrets.get_opt(name).await?.is_none() {
        let owners = parent.controller_owner_ref(&()).map(|owner| vec![owner]);
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            owner_references: owners,
            ..ObjectMeta::default()
        };
        secrets
            .create(
                &PostParams::default(),
                &Secret {
                    metadata,
                    ..Secret::default()
                },
            )
            .await?;
    }
    Ok(Action::await_change())
}

/// Runs a controller of ConfigMaps and the Secrets that they own.
pub(crate) async fn parents(client: Client) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    Controller::new(maps, watcher::Config::default())
        .owns(secrets, watcher::Config::default())
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(5)),
            Arc::new(client),
        )
        .for_each(|_| async {})
        .await;
}

async fn converge(client: &Client, parents: usize) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    for at in 0..parents {
        let map =
            serde_json::from_value(objects::config_map(&format!("parent-{at}"))).expect("the object is a ConfigMap");
        maps.create(&PostParams::default(), &map)
            .await
            .expect("the create succeeds");
    }
    while secrets
        .list(&ListParams::default())
        .await
        .expect("the list succeeds")
        .items
        .len()
        < parents
    {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Runs a complete test `times` times, each in its own runtime: a server, a controller, `parents` objects, and an
/// object that the controller creates for each of them. Returns the CPU time, and the number of requests in a run.
pub fn whole_test(times: usize, parents: usize) -> (Duration, usize) {
    let start = cpu_time();
    let mut requests = 0;
    for _ in 0..times {
        requests = runtime().block_on(async {
            let server = ApiServer::start();
            let client = server.client();
            tokio::spawn(self::parents(client.clone()));
            converge(&client, parents).await;
            server.journal().requests().len()
        });
    }
    (cpu_time() - start, requests)
}

/// Measures a controller with ten objects and without work for `hours` of virtual time.
pub fn idle_hours(hours: u64) -> Duration {
    let start = cpu_time();
    runtime().block_on(async {
        let server = ApiServer::start();
        let client = server.client();
        tokio::spawn(self::parents(client.clone()));
        converge(&client, 10).await;
        tokio::time::sleep(Duration::from_secs(hours * 3600)).await;
    });
    cpu_time() - start
}
