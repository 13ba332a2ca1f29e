//! Rules of the work queue: client-go's by default, and controller-runtime's with priorities.

use std::time::Duration;

use futures::FutureExt;
use informer::metrics::Metrics;
use informer::queue::{
    AddOptions, ExponentialBackoff, FastSlow, LOW_PRIORITY, MaxOf, RateLimiter, TokenBucket, WithMaxWait, WorkItem,
    WorkQueue, default_controller_rate_limiter, default_item_based_rate_limiter,
};
use rstest::rstest;
use tokio::time::{Instant, advance};

fn fifo() -> WorkQueue<&'static str> {
    WorkQueue::new()
}

fn by_priority() -> WorkQueue<&'static str> {
    WorkQueue::builder().by_priority().build()
}

fn at(priority: i32) -> AddOptions {
    AddOptions {
        priority,
        ..AddOptions::default()
    }
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Returns all ready keys. Each is completed before the next one is taken.
fn drain<T: Clone + Eq + std::hash::Hash>(queue: &WorkQueue<T>) -> Vec<T> {
    std::iter::from_fn(|| queue.try_get().map(|work| work.key().clone())).collect()
}

#[rstest]
#[case(fifo())]
#[case(by_priority())]
#[tokio::test(start_paused = true)]
async fn keys_are_returned_in_order_of_arrival(#[case] queue: WorkQueue<&'static str>) {
    ["c", "a", "b", "a"].into_iter().for_each(|key| queue.add(key));
    assert_eq!(queue.len(), 3);
    assert_eq!(drain(&queue), ["c", "a", "b"]);
    assert!(queue.is_empty());
}

#[rstest]
#[case(fifo())]
#[case(by_priority())]
#[tokio::test(start_paused = true)]
async fn key_added_while_processing_is_returned_again(#[case] queue: WorkQueue<&'static str>) {
    queue.add("a");
    let work = queue.get().await.expect("the queue is open");
    ["a", "a", "a"].into_iter().for_each(|key| queue.add(key));
    assert!(queue.try_get().is_none(), "a key under work is not returned");
    assert_eq!(queue.processing(), 1);
    drop(work);
    assert_eq!(drain(&queue), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn each_added_key_wakes_one_waiting_worker() {
    let queue = fifo();
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                queue
                    .get()
                    .await
                    .map(|work| std::mem::ManuallyDrop::new(work).key().to_string())
            })
        })
        .collect();
    tokio::task::yield_now().await;
    queue.add("a");
    queue.add("b");
    queue.add("c");
    let mut got: Vec<_> = futures::future::join_all(workers)
        .await
        .into_iter()
        .map(|it| it.expect("the task does not panic").expect("the queue has a key"))
        .collect();
    got.sort();
    assert_eq!(got, ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn cancelled_waiter_wakes_another_waiter() {
    let queue = fifo();
    let mut first = Box::pin(queue.get());
    assert!(first.as_mut().now_or_never().is_none());
    let other = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.as_deref().copied() }
    });
    tokio::task::yield_now().await;
    queue.add("a"); // wakes the first waiter
    drop(first);
    assert_eq!(other.await.expect("the task does not panic"), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn delayed_key_is_returned_at_the_earlier_due_time() {
    let queue = fifo();
    let began = Instant::now();
    queue.add_after("a", millis(300));
    queue.add_after("a", millis(100));
    queue.add_after("a", millis(200));
    queue.add_after("b", millis(50));
    assert_eq!((queue.len(), queue.delayed()), (0, 2));
    assert_eq!(queue.get().await.as_deref(), Some(&"b"));
    assert_eq!(began.elapsed(), millis(50));
    assert_eq!(queue.get().await.as_deref(), Some(&"a"));
    assert_eq!(began.elapsed(), millis(100));
    advance(millis(1000)).await;
    assert!(queue.try_get().is_none(), "the key was only queued once");
}

#[tokio::test(start_paused = true)]
async fn earlier_due_key_wakes_the_waiting_worker() {
    let queue = fifo();
    let began = Instant::now();
    queue.add_after("late", Duration::from_secs(3600));
    let workers = [0, 1].map(|_| {
        let queue = queue.clone();
        tokio::spawn(async move {
            let work = queue.get().await.expect("the queue is open");
            (*work.key(), Instant::now())
        })
    });
    tokio::time::sleep(millis(5)).await;
    queue.add_after("soon", millis(10));
    let [one, other] = workers;
    let (one, other) = (
        one.await.expect("the task does not panic"),
        other.await.expect("the task does not panic"),
    );
    let mut got = [(one.0, one.1 - began), (other.0, other.1 - began)];
    got.sort();
    assert_eq!(got, [("late", Duration::from_secs(3600)), ("soon", millis(15))]);
}

#[tokio::test(start_paused = true)]
async fn key_without_a_delay_is_added_immediately() {
    let queue = fifo();
    queue.add_after("a", Duration::ZERO);
    assert_eq!(drain(&queue), ["a"]);
}

#[rstest]
#[case::fifo(fifo(), 2)]
#[case::by_priority(by_priority(), 1)]
#[tokio::test(start_paused = true)]
async fn immediate_add_only_absorbs_a_delayed_add_in_the_priority_queue(
    #[case] queue: WorkQueue<&'static str>,
    #[case] deliveries: usize,
) {
    queue.add_after("a", millis(100));
    queue.add("a");
    let first = drain(&queue).len();
    advance(millis(200)).await;
    assert_eq!(first + drain(&queue).len(), deliveries);
}

#[tokio::test(start_paused = true)]
async fn failed_keys_wait_longer_until_reset() {
    let queue = fifo();
    let mut waits = Vec::new();
    for _ in 0..4 {
        let began = Instant::now();
        queue.add_rate_limited("a");
        assert_eq!(queue.get().await.as_deref(), Some(&"a"));
        waits.push(began.elapsed().as_millis());
    }
    assert_eq!(waits, [5, 10, 20, 40]);
    assert_eq!(queue.num_requeues(&"a"), 4);
    queue.forget(&"a");
    assert_eq!(queue.num_requeues(&"a"), 0);
}

#[tokio::test(start_paused = true)]
async fn higher_priority_is_first_and_a_raised_key_is_last_of_its_priority() {
    let queue = by_priority();
    queue.add_with("low", at(LOW_PRIORITY));
    queue.add("one");
    queue.add_with("high", at(7));
    queue.add_with("raised", at(LOW_PRIORITY));
    queue.add("two");
    queue.add_with("raised", at(0));
    queue.add_with("one", at(LOW_PRIORITY)); // the priority is not lowered
    let work: Vec<_> = std::iter::from_fn(|| queue.try_get()).collect();
    let got: Vec<_> = work.iter().map(|it| (*it.key(), it.priority())).collect();
    assert_eq!(
        got,
        [
            ("high", 7),
            ("one", 0),
            ("two", 0),
            ("raised", 0),
            ("low", LOW_PRIORITY)
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn key_added_while_processing_precedes_later_keys() {
    let queue = by_priority();
    queue.add("a");
    let work = queue.try_get();
    queue.add("a");
    queue.add("b");
    queue.add("c");
    assert_eq!(queue.try_get().as_deref(), Some(&"b"));
    drop(work);
    assert_eq!(drain(&queue), ["a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn repeated_delayed_add_keeps_the_shorter_delay_and_the_higher_priority() {
    let queue = by_priority();
    let delayed = |priority, after| AddOptions {
        priority,
        after: millis(after),
        ..AddOptions::default()
    };
    queue.add_with("a", delayed(5, 200));
    queue.add_with("a", delayed(1, 100));
    queue.add_with("b", delayed(3, 100));
    advance(millis(100)).await;
    let got: Vec<_> = std::iter::from_fn(|| queue.try_get().map(|it| (*it.key(), it.priority()))).collect();
    assert_eq!(got, [("a", 5), ("b", 3)]);
}

#[tokio::test(start_paused = true)]
async fn shorter_of_delay_and_rate_limit_applies() {
    let queue = by_priority();
    let began = Instant::now();
    queue.add_with(
        "a",
        AddOptions {
            after: Duration::from_secs(60),
            is_rate_limited: true,
            ..AddOptions::default()
        },
    );
    assert_eq!(queue.get().await.as_deref(), Some(&"a"));
    assert_eq!(began.elapsed(), millis(5));
    assert_eq!(queue.num_requeues(&"a"), 1);
}

#[tokio::test(start_paused = true)]
async fn shutdown_returns_remaining_keys_and_ignores_adds() {
    let queue = fifo();
    queue.add("a");
    let work = queue.try_get();
    queue.add("a");
    queue.add("b");
    queue.add_after("delayed", millis(1));
    queue.shut_down();
    queue.add("c");
    assert!(queue.is_shutting_down());
    assert_eq!(queue.get().await.as_deref(), Some(&"b"));
    assert!(queue.get().await.is_none());
    drop(work);
    assert_eq!(
        queue.get().await.as_deref(),
        Some(&"a"),
        "keys added before the shutdown are returned"
    );
    advance(millis(100)).await;
    assert!(queue.get().await.is_none(), "delayed keys are dropped");
}

#[tokio::test(start_paused = true)]
async fn shutdown_of_a_priority_queue_drops_its_keys() {
    let queue = by_priority();
    queue.add("a");
    queue.shut_down();
    assert!(queue.get().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn shutdown_wakes_all_waiters() {
    let queue = fifo();
    let waiting = futures::future::join3(queue.get(), queue.get(), queue.get());
    let shut_down = async {
        tokio::task::yield_now().await;
        queue.shut_down();
    };
    let ((one, two, three), ()) = futures::join!(waiting, shut_down);
    assert!(one.is_none() && two.is_none() && three.is_none());
}

#[rstest]
#[case(fifo())]
#[case(by_priority())]
#[tokio::test(start_paused = true)]
async fn shutdown_with_drain_waits_for_the_workers(#[case] queue: WorkQueue<&'static str>) {
    queue.add("a");
    let work = queue.try_get();
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(drain.as_mut().now_or_never().is_none());
    drop(work);
    drain.await;
    assert_eq!(queue.processing(), 0);
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_a_shutdown_with_drain() {
    let queue = fifo();
    queue.add("a");
    let work = queue.try_get();
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(drain.as_mut().now_or_never().is_none());
    queue.shut_down();
    drain.await;
    assert!(work.is_some());
}

#[rstest]
#[case::exponential(Box::new(ExponentialBackoff::new(millis(1), millis(20))), &[1, 2, 4, 8, 16, 20, 20])]
#[case::item_based(Box::new(default_item_based_rate_limiter()), &[1, 2, 4, 8])]
#[case::fast_slow(Box::new(FastSlow::new(millis(5), millis(90), 2)), &[5, 5, 90, 90])]
#[case::token_bucket(Box::new(TokenBucket::new(10.0, 2)), &[0, 0, 100, 200])]
#[case::max_of(Box::new(MaxOf::new(vec![
    Box::new(FastSlow::new(millis(5), millis(7), 1)),
    Box::new(ExponentialBackoff::new(millis(2), millis(1000))),
])), &[5, 7, 8, 16])]
#[case::max_wait(Box::new(WithMaxWait::new(ExponentialBackoff::default(), millis(12))), &[5, 10, 12, 12])]
#[tokio::test(start_paused = true)]
async fn each_rate_limiter_returns_the_expected_delays(
    #[case] mut limiter: Box<dyn RateLimiter<&'static str>>,
    #[case] waits: &[u128],
) {
    let got: Vec<_> = waits.iter().map(|_| limiter.when(&"a").as_millis()).collect();
    assert_eq!(got, waits);
}

#[tokio::test(start_paused = true)]
async fn exponential_limiter_counts_each_key_and_does_not_overflow() {
    let mut limiter = ExponentialBackoff::<u32>::default();
    for _ in 0..200 {
        limiter.when(&1);
    }
    assert_eq!(limiter.when(&1), Duration::from_secs(1000));
    assert_eq!(limiter.when(&2), millis(5));
    assert_eq!((limiter.num_requeues(&1), limiter.num_requeues(&2)), (201, 1));
}

#[tokio::test(start_paused = true)]
async fn token_bucket_refills_over_time() {
    let mut limiter = default_controller_rate_limiter();
    let waits: Vec<_> = (0..102).map(|key| limiter.when(&key).as_millis()).collect();
    assert_eq!((waits[99], waits[100], waits[101]), (5, 100, 200));
    advance(Duration::from_secs(3600)).await;
    let again: Vec<_> = (200..301).map(|key| limiter.when(&key).as_millis()).collect();
    assert_eq!((again[99], again[100]), (5, 100), "the bucket holds at most 100 tokens");
}

#[rstest]
#[case(WorkQueue::builder(), "")]
#[case(WorkQueue::builder().by_priority(), "0")]
#[tokio::test(start_paused = true)]
async fn named_queue_has_metrics(
    #[case] builder: informer::queue::WorkQueueBuilder<&'static str>,
    #[case] priority: &str,
) {
    let metrics = Metrics::new();
    let queue = builder.named("q", &metrics).build();
    ["a", "b", "a"].into_iter().for_each(|key| queue.add(key));
    advance(millis(20)).await;
    let work: Vec<WorkItem<_>> = queue.get().await.into_iter().collect();
    advance(Duration::from_secs(3)).await;
    queue.add_rate_limited("c");
    let text = metrics.render();
    for line in [
        &format!("workqueue_depth{{name=\"q\",controller=\"q\",priority=\"{priority}\"}} 1"),
        "workqueue_adds_total{name=\"q\",controller=\"q\"} 3",
        "workqueue_retries_total{name=\"q\",controller=\"q\"} 1",
        "workqueue_queue_duration_seconds_count{name=\"q\",controller=\"q\"} 1",
        "workqueue_queue_duration_seconds_sum{name=\"q\",controller=\"q\"} 0.02",
        "workqueue_work_duration_seconds_count{name=\"q\",controller=\"q\"} 0",
        "workqueue_unfinished_work_seconds{name=\"q\",controller=\"q\"} 3",
        "workqueue_longest_running_processor_seconds{name=\"q\",controller=\"q\"} 3",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
    }
    drop(work);
    assert!(
        metrics
            .render()
            .contains("workqueue_work_duration_seconds_count{name=\"q\",controller=\"q\"} 1")
    );
    drop(queue);
    assert_eq!(metrics.render(), "", "a dropped queue has no metrics");
}
