//! Resyncs: handlers receive all objects again.

use std::time::Duration;

use informer::cache::{FakeSource, HandlerOptions, SharedInformer};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::support::Told;

fn every(seconds_tenth: u64) -> HandlerOptions {
    HandlerOptions {
        resync_period: Some(Duration::from_millis(seconds_tenth * 100)),
        ..HandlerOptions::default()
    }
}

fn running(source: &FakeSource) -> SharedInformer<ConfigMap> {
    source.add(json!({"metadata": {"name": "a"}}));
    let informer = SharedInformer::<ConfigMap>::builder(source.clone())
        .resync_period(Duration::from_secs(10))
        .build()
        .expect("the options have no duplicates");
    let runs = informer.clone();
    tokio::spawn(async move { runs.run(std::future::pending()).await });
    informer
}

#[tokio::test(start_paused = true)]
async fn each_handler_has_its_own_resync_period() {
    let informer = running(&FakeSource::new());
    let told = [Told::default(), Told::default(), Told::default(), Told::default()];
    informer
        .add_handler(told[0].handler())
        .expect("the informer has not stopped");
    informer
        .add_handler_with(told[1].handler(), every(30))
        .expect("the informer has not stopped");
    informer
        .add_handler_with(told[2].handler(), every(0))
        .expect("the informer has not stopped");
    // A resync period of less than a second is raised to a second.
    informer
        .add_handler_with(told[3].handler(), every(1))
        .expect("the informer has not stopped");
    tokio::time::sleep(Duration::from_millis(10_500)).await;
    let resyncs = told.map(|it| it.take().iter().filter(|it| *it == "same a").count());
    assert_eq!(resyncs, [1, 3, 0, 10]);
}

#[tokio::test(start_paused = true)]
async fn unchanged_objects_of_a_list_are_delivered_to_new_and_resyncing_handlers() {
    let source = FakeSource::new();
    let informer = running(&source);
    let (resyncing, fresh) = (Told::default(), Told::default());
    informer
        .add_handler_with(resyncing.handler(), every(100))
        .expect("the informer has not stopped");
    tokio::time::sleep(Duration::from_millis(10_500)).await;
    informer
        .add_handler_with(fresh.handler(), every(0))
        .expect("the informer has not stopped");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(resyncing.take(), ["initial a", "same a"]);
    assert_eq!(fresh.take(), ["initial a"]);

    // A new handler receives unchanged objects of lists until the next resync. Then only the handlers that took part in
    // this resync receive them.
    relist(&source);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(fresh.take(), ["same a"]);
    tokio::time::sleep(Duration::from_secs(5)).await;
    relist(&source);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(fresh.take(), [""; 0]);
    assert_eq!(resyncing.take(), ["same a", "same a", "same a"]);
}

/// Makes a change without a net effect and removes the history, so that the informer lists again.
fn relist(source: &FakeSource) {
    source.add_unseen(json!({"metadata": {"name": "z"}}));
    source.delete_unseen("", "z");
    source.reset_watches();
}
