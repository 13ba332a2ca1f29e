//! Measures a complete test with a controller of `informer`; `controllers.rs` contains the same test with kube-runtime.

use std::time::Duration;

use fake_apiserver::ApiServer;
use informer::cache::SharedInformerFactory;
use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::{Controller, owner_references};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use tokio_util::sync::CancellationToken;

use crate::measure::cpu_time;
use crate::objects;
use crate::requests::runtime;

/// Runs a complete test `times` times, each in its own runtime: a server, a controller, `parents` ConfigMaps, and a
/// Secret for each. Returns the CPU time, and the number of requests in a run.
pub fn whole_test(times: usize, parents: usize) -> (Duration, usize) {
    let start = cpu_time();
    let mut requests = 0;
    for _ in 0..times {
        requests = runtime().block_on(async {
            let server = ApiServer::start();
            converge(&server, parents).await;
            server.journal().requests().len()
        });
    }
    (cpu_time() - start, requests)
}

async fn create(client: &Client, name: &str) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let map = serde_json::from_value(objects::config_map(name)).expect("the object is a ConfigMap");
    maps.create(&PostParams::default(), &map)
        .await
        .expect("the create succeeds");
}

async fn converge(server: &ApiServer, count: usize) {
    let client = server.client();
    let children: Api<Secret> = Api::default_namespaced(client.clone());
    tokio::spawn(parents(client.clone()));
    for at in 0..count {
        create(&client, &format!("parent-{at}")).await;
    }
    while children
        .list(&ListParams::default())
        .await
        .expect("the list succeeds")
        .items
        .len()
        < count
    {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Runs a controller that creates a Secret for each ConfigMap.
pub(crate) async fn parents(client: Client) {
    let factory = SharedInformerFactory::new(client.clone());
    let maps = factory.informer::<ConfigMap>().lister();
    let secrets = factory.informer::<Secret>().lister();
    let api: Api<Secret> = Api::default_namespaced(client);
    let controller = Controller::builder("parents", &factory)
        .for_::<ConfigMap>()
        .owns::<Secret>()
        .build(move |request: Request| {
            let (maps, secrets, api) = (maps.clone(), secrets.clone(), api.clone());
            async move {
                if let (Some(map), None) = (maps.get(&request.key), secrets.get(&request.key)) {
                    let mut secret = Secret::default();
                    secret.metadata.name = Some(request.key.name().to_owned());
                    secret.metadata.namespace = request.key.namespace().map(str::to_owned);
                    owner_references::set_controller(&mut secret, &*map.typed()?)?;
                    api.create(&PostParams::default(), &secret).await?;
                }
                Ok::<_, ReconcileError>(Action::await_change())
            }
        })
        .expect("the controller is complete");
    let _ = controller.run(CancellationToken::new()).await;
}
