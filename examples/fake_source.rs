//! Events from a source that the program controls, without a server; one of the events is lost.
//!
//! `cargo run --example fake_source`

use std::time::Duration;

use informer::cache::{FakeSource, SharedInformer};
use informer::handler::{HandlerError, ResourceEventHandler};
use informer::{CachedObject, Storage};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tokio::time::sleep;

struct Printer;

impl ResourceEventHandler<Pod> for Printer {
    async fn on_add(&self, pod: &CachedObject<Pod>, is_in_initial_list: bool) -> Result<(), HandlerError> {
        println!("added {}, initial: {is_in_initial_list}", pod.key());
        Ok(())
    }

    async fn on_update(&self, old: &CachedObject<Pod>, new: &CachedObject<Pod>) -> Result<(), HandlerError> {
        println!(
            "updated {} from {} to {}",
            new.key(),
            old.resource_version(),
            new.resource_version()
        );
        Ok(())
    }

    async fn on_delete(&self, pod: &CachedObject<Pod>, final_state_unknown: bool) -> Result<(), HandlerError> {
        println!("deleted {}, final state unknown: {final_state_unknown}", pod.key());
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), informer::Error> {
    let pod = |name: &str, node: &str| {
        json!({
            "metadata": {"name": name, "namespace": "shop"}, "spec": {"nodeName": node, "containers": []},
        })
    };
    let source = FakeSource::new();
    source.add(pod("web-0", "node-1"));

    let pods = SharedInformer::<Pod>::builder(source.clone())
        .storage(Storage::Typed)
        .build()?;
    pods.add_handler(Printer)?;
    let script = async {
        pods.synced().await.expect("the fake source has no injected failure");
        source.add(pod("web-1", "node-1"));
        source.add(pod("web-1", "node-2"));
        sleep(Duration::from_secs(1)).await;
        // The watch does not deliver this deletion; the next list does.
        source.delete_unseen("shop", "web-0");
        source.reset_watches();
        sleep(Duration::from_secs(5)).await;
    };
    pods.run(script).await
}
