//! A work queue used directly, as in client-go's example: an informer fills it, workers empty it, and failed keys are
//! retried five times and then reported.
//!
//! `cargo run --example work_queue`. Most controllers do not use a work queue directly; see
//! `custom_resource_controller.rs`.

use std::time::Duration;

use informer::ObjectKey;
use informer::cache::{Lister, SharedInformerFactory};
use informer::handler::enqueue;
use informer::queue::WorkQueue;
use k8s_openapi::api::core::v1::Pod;
use testkit::TestCluster;
use testkit::objects::pod;

/// Number of retries after which a failed key is dropped until its object changes.
const MAX_RETRIES: u32 = 5;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), informer::Error> {
    let cluster = TestCluster::start();
    for name in ["web-0", "web-1", "unlucky"] {
        cluster.create(pod(name)).await;
    }

    let queue = WorkQueue::new();
    let factory = SharedInformerFactory::new(cluster.client());
    let pods = factory.informer::<Pod>();
    let sink = queue.clone();
    let handler = enqueue::into::<Pod, _>(enqueue::object(), move |enqueued| sink.add(enqueued.key));
    let registration = pods.add_handler(handler)?;
    factory.start();
    // Wait for the first list, because an object that is not in the cache yet would be treated as deleted.
    registration.synced().await?;
    for _ in 0..2 {
        cluster.run(work(queue.clone(), pods.lister()));
    }

    cluster.settle().await;
    cluster.delete::<Pod>("web-1").await;
    cluster.settle().await;
    queue.shut_down_with_drain().await;
    factory.shutdown().await;
    println!("all done");
    Ok(())
}

async fn work(queue: WorkQueue<ObjectKey>, pods: Lister<Pod>) {
    while let Some(key) = queue.get().await {
        match print(&key, &pods).await {
            Ok(()) => queue.forget(&key),
            Err(why) if queue.num_requeues(&key) < MAX_RETRIES => {
                println!("{}: {why}, retrying", *key);
                queue.add_rate_limited(key.key().clone());
            }
            Err(why) => {
                println!("{}: {why}, given up", *key);
                queue.forget(&key);
            }
        }
    }
}

async fn print(key: &ObjectKey, pods: &Lister<Pod>) -> Result<(), &'static str> {
    tokio::time::sleep(Duration::from_millis(20)).await;
    match pods.get(key) {
        _ if key.name() == "unlucky" => Err("the work fails"),
        Some(pod) => {
            println!("{key} is at version {}", pod.resource_version());
            Ok(())
        }
        None => {
            println!("{key} is gone");
            Ok(())
        }
    }
}
