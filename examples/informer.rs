//! An informer that prints the events of the ConfigMaps in a cluster. The server runs in the same process.
//!
//! `cargo run --example informer`

use std::time::Duration;

use informer::cache::{ApiListWatch, SharedInformer};
use informer::handler::{Event, HandlerFn};
use k8s_openapi::api::core::v1::ConfigMap;
use testkit::TestCluster;
use testkit::objects::config_map;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A real program uses `kube::Client::try_default().await?`.
    let cluster = TestCluster::builder()
        .object(config_map("settings").data("color", "red"))
        .start();
    let source = ApiListWatch::all::<ConfigMap>(cluster.client(), &());

    let maps = SharedInformer::<ConfigMap>::builder(source)
        .strip_managed_fields()
        .build()?;
    maps.add_handler(HandlerFn::new(|event: &Event<ConfigMap>| {
        let data = event.object().typed().map(|map| map.data.clone().unwrap_or_default());
        println!("{event:?}: {data:?}");
    }))?;

    let runs = maps.clone();
    let running = tokio::spawn(async move { runs.run(tokio::time::sleep(Duration::from_secs(60))).await });
    maps.synced().await?;
    println!(
        "{} ConfigMaps at version {}",
        maps.lister().len(),
        maps.lister().resource_version()
    );

    cluster.update(config_map("settings").data("color", "blue")).await;
    cluster.expire_watches(); // the informer must list again
    cluster.delete(config_map("settings")).await;
    running.await??;
    Ok(())
}
