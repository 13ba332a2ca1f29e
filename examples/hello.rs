//! A server and a client in one process, without a cluster or a port.
//!
//! `cargo run --example hello`

use fake_apiserver::{ApiServer, Verb};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = ApiServer::start();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());

    let mut greeting = ConfigMap::default();
    greeting.metadata.name = Some("greeting".into());
    greeting.data = Some([("hello".into(), "world".into())].into());
    let created = maps.create(&PostParams::default(), &greeting).await?;

    println!("{}", serde_json::to_string_pretty(&created)?);
    if let Err(kube::Error::Api(status)) = maps.create(&PostParams::default(), &greeting).await {
        println!("a second time: {} {}: {}", status.code, status.reason, status.message);
    }
    assert_eq!(server.journal().count(Verb::Create, "configmaps"), 2);
    Ok(())
}
