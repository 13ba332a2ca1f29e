//! Shared informers: order and timing of events, and three cases in which kube-runtime's shared streams lose deletions
//! or block.

use std::sync::Arc;
use std::time::Duration;

use informer::CachedObject;
use informer::cache::{ApiListWatch, HandlerOptions, HandlerQueue, QueueOrder, SharedInformer};
use informer::handler::{Event, HandlerError, HandlerFn, ResourceEventHandler};
use k8s_openapi::api::core::v1::ConfigMap;
use rstest::rstest;
use testkit::objects::config_map;
use testkit::{TestCluster, Verb, cluster, faults};
use tokio::sync::Semaphore;

use crate::support::{Told, stored};

/// Returns a running informer of ConfigMaps.
fn running(cluster: &TestCluster) -> SharedInformer<ConfigMap> {
    running_in_order(cluster, QueueOrder::Arrival)
}

fn running_in_order(cluster: &TestCluster, order: QueueOrder) -> SharedInformer<ConfigMap> {
    let source = ApiListWatch::all::<ConfigMap>(cluster.client(), &());
    let informer = SharedInformer::builder(source)
        .order(order)
        .build()
        .expect("the options have no duplicates");
    let runs = informer.clone();
    cluster.run(async move { runs.run(std::future::pending()).await });
    informer
}

/// A handler that waits for a permit before each event.
struct Slow {
    permits: Arc<Semaphore>,
    told: Told,
}

impl ResourceEventHandler<ConfigMap> for Slow {
    async fn on_event(&self, event: &Event<ConfigMap>) -> Result<(), HandlerError> {
        self.permits.acquire().await?.forget();
        self.told.push(crate::support::name_of(event));
        Ok(())
    }
}

#[rstest]
#[case::in_arrival_order(QueueOrder::Arrival)]
#[case::grouped_by_object(QueueOrder::ByObject)]
#[tokio::test(start_paused = true)]
async fn handlers_receive_every_change(#[case] order: QueueOrder) {
    let cluster = TestCluster::builder().object(config_map("a")).start();
    let told = Told::default();
    let informer = running_in_order(&cluster, order);
    informer
        .add_handler(told.handler())
        .expect("the informer has not stopped");
    cluster.settle().await;
    assert_eq!(told.take(), ["initial default/a"]);

    cluster.create(config_map("b")).await;
    cluster.settle().await;
    cluster.update(config_map("b").data("color", "red")).await;
    cluster.settle().await;
    cluster.delete(config_map("a")).await;
    cluster.settle().await;
    assert_eq!(
        told.take(),
        ["added default/b", "updated default/b", "deleted default/a"]
    );
    assert_eq!(
        informer.lister().resource_version().to_string(),
        cluster.server().resource_version().to_string()
    );
}

/// kube-runtime does not deliver deletions to its subscribers (kube-rs/kube#1590).
#[rstest]
#[tokio::test(start_paused = true)]
async fn every_handler_receives_deletions(cluster: TestCluster) {
    let told = [Told::default(), Told::default()];
    let informer = running(&cluster);
    for told in &told {
        informer
            .add_handler(told.handler())
            .expect("the informer has not stopped");
    }
    cluster.settle().await;
    cluster.create(config_map("a")).await;
    cluster.settle().await;
    cluster.delete(config_map("a")).await;
    cluster.settle().await;
    for told in told {
        assert_eq!(told.take(), ["added default/a", "deleted default/a"]);
    }
}

/// kube-runtime's watcher does not report objects that are missing from a new list.
#[rstest]
#[case::in_arrival_order(QueueOrder::Arrival)]
#[case::grouped_by_object(QueueOrder::ByObject)]
#[tokio::test(start_paused = true)]
async fn unobserved_deletion_is_delivered_after_the_next_list(#[case] order: QueueOrder) {
    let cluster = TestCluster::builder()
        .object(config_map("a"))
        .object(config_map("b"))
        .start();
    let told = Told::default();
    let informer = running_in_order(&cluster, order);
    informer
        .add_handler(told.handler())
        .expect("the informer has not stopped");
    cluster.settle().await;
    told.take();

    let gap = cluster.inject(faults::server_error().on(Verb::Watch, "configmaps"));
    cluster.expire_watches();
    cluster.delete(config_map("a")).await;
    cluster.expire_watches();
    drop(gap);
    cluster.settle().await;
    let told = told.take();
    assert_eq!(
        told.iter().filter(|it| *it == "vanished default/a").count(),
        1,
        "{told:?}"
    );
    assert_eq!(stored(&informer).len(), 1);
}

/// kube-runtime's shared stream sleeps forever if an object is deleted before a subscriber reads it, and then blocks
/// all subscribers.
#[rstest]
#[tokio::test(start_paused = true)]
async fn deletion_before_a_slow_handler_runs_does_not_block_other_handlers(cluster: TestCluster) {
    let (slow, prompt, permits) = (Told::default(), Told::default(), Arc::new(Semaphore::new(0)));
    let informer = running(&cluster);
    let handler = Slow {
        permits: Arc::clone(&permits),
        told: slow.clone(),
    };
    informer.add_handler(handler).expect("the informer has not stopped");
    informer
        .add_handler(prompt.handler())
        .expect("the informer has not stopped");
    cluster.settle().await;

    cluster.create(config_map("a")).await;
    cluster.delete(config_map("a")).await;
    for n in 0..200 {
        cluster.create(config_map(&format!("b-{n}"))).await;
    }
    cluster.settle().await;
    assert_eq!(slow.count(), 0);
    assert_eq!(prompt.take().len(), 202, "a slow handler does not delay others");
    assert_eq!(informer.lister().len(), 200);

    permits.add_permits(1000);
    cluster.settle().await;
    let slow = slow.take();
    assert_eq!(slow[..3], ["added default/a", "deleted default/a", "added default/b-0"]);
    assert_eq!(slow.len(), 202);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn handlers_can_be_added_late_and_removed(cluster: TestCluster) {
    let informer = running(&cluster);
    cluster.create(config_map("a")).await;
    cluster.settle().await;

    let (told, other) = (Told::default(), Told::default());
    let registration = informer
        .add_handler(told.handler())
        .expect("the informer has not stopped");
    informer
        .add_handler(other.handler())
        .expect("the informer has not stopped");
    // When the handler is added, the cache contains only one of the two objects.
    cluster.create(config_map("b")).await;
    registration.synced().await.expect("the informer has not stopped");
    cluster.settle().await;
    assert_eq!(told.take(), ["initial default/a", "added default/b"]);

    informer.remove_handler(&registration);
    informer.remove_handler(&registration);
    registration.ended().await;
    cluster.create(config_map("c")).await;
    cluster.settle().await;
    assert_eq!(told.take(), [""; 0]);
    assert_eq!(other.take().len(), 3);
    assert!(registration.has_synced());
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn handler_has_synced_after_the_initial_list(cluster: TestCluster) {
    cluster.create(config_map("a")).await;
    cluster.create(config_map("b")).await;
    let permits = Arc::new(Semaphore::new(1));
    let handler = Slow {
        permits: Arc::clone(&permits),
        told: Told::default(),
    };
    let informer = running(&cluster);
    let registration = informer.add_handler(handler).expect("the informer has not stopped");
    cluster.settle().await;
    assert!(informer.has_synced() && !registration.has_synced());
    permits.add_permits(1);
    cluster.settle().await;
    assert!(registration.has_synced());
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn handler_receives_the_next_event_after_an_error_or_a_panic(cluster: TestCluster) {
    struct Bad(Told);
    impl ResourceEventHandler<ConfigMap> for Bad {
        async fn on_add(&self, object: &CachedObject<ConfigMap>, _: bool) -> Result<(), HandlerError> {
            self.0.push(object.key().name().to_owned());
            assert_ne!(object.key().name(), "a", "the test panics on purpose");
            Err("the handler always fails".into())
        }
    }
    let (told, other) = (Told::default(), Told::default());
    let informer = running(&cluster);
    let registration = informer
        .add_handler(Bad(told.clone()))
        .expect("the informer has not stopped");
    informer
        .add_handler(other.handler())
        .expect("the informer has not stopped");
    for name in ["a", "b", "c"] {
        cluster.create(config_map(name)).await;
    }
    cluster.settle().await;
    assert_eq!(told.take(), ["a", "b", "c"]);
    assert_eq!(other.take().len(), 3);
    assert_eq!(registration.failures(), 3);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn coalescing_queue_skips_states_but_not_deletions(cluster: TestCluster) {
    let (told, permits) = (Told::default(), Arc::new(Semaphore::new(0)));
    let informer = running(&cluster);
    let handler = Slow {
        permits: Arc::clone(&permits),
        told: told.clone(),
    };
    let options = HandlerOptions {
        queue: HandlerQueue::Coalescing(1),
        ..HandlerOptions::default()
    };
    informer
        .add_handler_with(handler, options)
        .expect("the informer has not stopped");
    cluster.settle().await;
    // The first event is being delivered, a second event is queued, and later events are merged.
    cluster.create(config_map("first")).await;
    cluster.settle().await;
    cluster.create(config_map("second")).await;
    for name in ["a", "b"] {
        cluster.create(config_map(name)).await;
    }
    for n in 0..50 {
        for name in ["a", "b"] {
            cluster.update(config_map(name).data("n", &n.to_string())).await;
        }
    }
    cluster.delete(config_map("b")).await;
    cluster.create(config_map("b")).await;
    cluster.delete(config_map("first")).await;
    cluster.settle().await;
    permits.add_permits(1000);
    cluster.settle().await;
    let expected = [
        "added default/first",
        "added default/second",
        "added default/a",
        "deleted default/b",
        "added default/b",
        "deleted default/first",
    ];
    assert_eq!(told.take(), expected);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn informer_runs_once_and_delivers_pending_events_on_stop(cluster: TestCluster) {
    cluster.create(config_map("a")).await;
    let source = ApiListWatch::all::<ConfigMap>(cluster.client(), &());
    let (informer, told) = (SharedInformer::<ConfigMap>::new(source), Told::default());
    let registration = informer
        .add_handler(told.handler())
        .expect("the informer has not stopped");
    let synced = informer.clone();
    informer
        .run(async move { synced.synced().await.expect("the cache syncs") })
        .await
        .expect("the informer was not run before");

    assert_eq!(told.take(), ["initial default/a"]);
    assert!(registration.has_synced() && informer.is_stopped() && informer.has_synced());
    informer
        .run(std::future::ready(()))
        .await
        .expect_err("the informer was run before");
    informer
        .add_handler(told.handler())
        .expect_err("the informer has stopped");
    informer
        .add_index(informer::cache::indexes::namespace())
        .expect_err("the informer has stopped");
    assert_eq!(informer.lister().len(), 1, "a stopped informer can still be read");
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn stopped_informer_ends_waits_with_an_error(cluster: TestCluster) {
    let _down = cluster.inject(faults::server_error().on(Verb::List, "configmaps"));
    let _down = cluster.inject(faults::server_error().on(Verb::Watch, "configmaps"));
    let source = ApiListWatch::all::<ConfigMap>(cluster.client(), &());
    let informer = SharedInformer::<ConfigMap>::new(source);
    let registration = informer
        .add_handler(HandlerFn::new(|_: &Event<ConfigMap>| {}))
        .expect("the informer has not stopped");
    let run = informer.run(tokio::time::sleep(Duration::from_secs(60)));
    let (ran, synced, told) = futures::join!(run, informer.synced(), registration.synced());
    ran.expect("the informer was not run before");
    synced.expect_err("the cache did not sync");
    told.expect_err("the cache did not sync");
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn dropping_the_informer_ends_its_handlers(cluster: TestCluster) {
    let (told, permits) = (Told::default(), Arc::new(Semaphore::new(0)));
    let source = ApiListWatch::all::<ConfigMap>(cluster.client(), &());
    let informer = SharedInformer::<ConfigMap>::new(source);
    let handler = Slow {
        permits: Arc::clone(&permits),
        told: told.clone(),
    };
    let registration = informer.add_handler(handler).expect("the informer has not stopped");
    cluster.create(config_map("a")).await;
    let runs = informer.clone();
    let task = cluster.run(async move { runs.run(std::future::pending()).await });
    cluster.settle().await;
    task.crash();
    permits.add_permits(10);
    registration.ended().await;
    assert!(informer.is_stopped());
    assert_eq!(told.count(), 0);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn object_is_decoded_at_most_once_for_all_handlers(cluster: TestCluster) {
    let informer = running(&cluster);
    let pointers = Told::default();
    for _ in 0..3 {
        let log = pointers.clone();
        let handler = HandlerFn::new(move |event: &Event<ConfigMap>| {
            let typed = event.object().typed().expect("the object is a ConfigMap");
            log.push(format!("{:p}", Arc::as_ptr(&typed)));
        });
        informer.add_handler(handler).expect("the informer has not stopped");
    }
    cluster.create(config_map("a")).await;
    cluster.settle().await;
    let pointers = pointers.take();
    assert_eq!(pointers.len(), 3);
    assert!(pointers.iter().all(|it| *it == pointers[0]), "{pointers:?}");
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn reader_can_wait_for_its_own_write(cluster: TestCluster) {
    let informer = running(&cluster);
    informer.synced().await.expect("the informer has not stopped");
    let watch = cluster.inject(faults::delay(Duration::from_secs(20)).on(Verb::Watch, "configmaps"));
    cluster.watches().on("configmaps").end();
    let written = cluster.create(config_map("a")).await;
    assert!(informer.lister().is_empty());
    informer.lister().reached(&written.resource_version().into()).await;
    assert_eq!(informer.lister().len(), 1);
    drop(watch);
}
