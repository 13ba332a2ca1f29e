//! Random operations on a work queue, compared with a simple and slow model.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use informer::queue::{AddOptions, WorkItem, WorkQueue};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tokio::time::{Instant, advance};

/// An operation on a queue.
#[derive(Clone, Debug)]
enum Op {
    Add {
        key: u8,
        priority: i32,
    },
    AddAfter {
        key: u8,
        priority: i32,
        after: u64,
    },
    Get,
    /// Completes the n-th of the keys in progress.
    Done(usize),
    /// Completes the n-th of the keys in progress, and takes the next key.
    Next(usize),
    Pass(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = 0..6_u8;
    let op = prop_oneof![
        4 => (key.clone(), -1..3_i32).prop_map(|(key, priority)| Op::Add { key, priority }),
        3 => (key, -1..3_i32, 1..50_u64).prop_map(|(key, priority, after)| Op::AddAfter { key, priority, after }),
        5 => Just(Op::Get),
        3 => (0..4_usize).prop_map(Op::Done),
        2 => (0..4_usize).prop_map(Op::Next),
        2 => (1..40_u64).prop_map(Op::Pass),
    ];
    prop::collection::vec(op, 1..120)
}

/// Literal translation of client-go's queue: three sets and a list of delayed keys.
#[derive(Default)]
struct Fifo {
    queue: Vec<u8>,
    dirty: BTreeSet<u8>,
    processing: BTreeSet<u8>,
    waiting: BTreeMap<u8, (Instant, u64)>,
    delays: u64,
}

impl Fifo {
    fn add(&mut self, key: u8) {
        if self.dirty.insert(key) && !self.processing.contains(&key) {
            self.queue.push(key);
        }
    }

    fn add_at(&mut self, key: u8, at: Instant) {
        self.delays += 1;
        let entry = self.waiting.entry(key).or_insert((at, self.delays));
        if at < entry.0 {
            *entry = (at, self.delays);
        }
    }

    fn promote(&mut self, now: Instant) {
        let mut due: Vec<_> = self.waiting.iter().filter(|(_, due)| due.0 <= now).collect();
        due.sort_by_key(|(_, due)| **due);
        for key in due.into_iter().map(|(key, _)| *key).collect::<Vec<_>>() {
            self.waiting.remove(&key);
            self.add(key);
        }
    }

    fn get(&mut self) -> Option<u8> {
        (!self.queue.is_empty()).then(|| {
            let key = self.queue.remove(0);
            self.dirty.remove(&key);
            self.processing.insert(key);
            key
        })
    }

    fn done(&mut self, key: u8) {
        self.processing.remove(&key);
        if self.dirty.contains(&key) {
            self.queue.push(key);
        }
    }
}

/// Model of controller-runtime's queue: an item for each key, with a priority, a counter, and an optional time.
#[derive(Default)]
struct ByPriority {
    items: BTreeMap<u8, Item>,
    locked: BTreeSet<u8>,
    counter: u64,
}

struct Item {
    priority: i32,
    counter: u64,
    ready_at: Option<Instant>,
}

impl ByPriority {
    fn add(&mut self, key: u8, priority: i32, ready_at: Option<Instant>) {
        self.counter += 1;
        let Some(item) = self.items.get_mut(&key) else {
            let counter = self.counter;
            self.items.insert(
                key,
                Item {
                    priority,
                    counter,
                    ready_at,
                },
            );
            return;
        };
        let is_sooner = item.ready_at.is_some_and(|at| ready_at.is_none_or(|new| new < at));
        if priority > item.priority {
            item.priority = priority;
            item.counter = self.counter;
        }
        if is_sooner {
            item.ready_at = ready_at;
            item.counter = self.counter;
        }
    }

    fn promote(&mut self, now: Instant) {
        let mut due: Vec<_> = self
            .items
            .iter_mut()
            .filter(|(_, it)| it.ready_at.is_some_and(|at| at <= now))
            .collect();
        due.sort_by_key(|(_, it)| (it.ready_at, it.counter));
        for (_, item) in due {
            self.counter += 1;
            item.counter = self.counter;
            item.ready_at = None;
        }
    }

    fn get(&mut self) -> Option<(u8, i32)> {
        let ready = self
            .items
            .iter()
            .filter(|(key, it)| it.ready_at.is_none() && !self.locked.contains(key));
        let (key, item) = ready.min_by_key(|(_, it)| (-it.priority, it.counter))?;
        let found = (*key, item.priority);
        self.items.remove(&found.0);
        self.locked.insert(found.0);
        Some(found)
    }
}

fn run(future: impl Future<Output = Result<(), TestCaseError>>) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.expect("the runtime can be built").block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(36),
        ..ProptestConfig::default()
    })]

    #[test]
    fn fifo_queue_behaves_like_client_go(ops in ops()) {
        run(async move {
            let (queue, mut model) = (WorkQueue::new(), Fifo::default());
            let mut works: Vec<WorkItem<u8>> = Vec::new();
            for op in ops {
                match op {
                    Op::Add { key, .. } => {
                        queue.add(key);
                        model.add(key);
                    }
                    Op::AddAfter { key, after, .. } => {
                        let after = Duration::from_millis(after);
                        queue.add_after(key, after);
                        model.add_at(key, Instant::now() + after);
                    }
                    Op::Get => {
                        let work = queue.try_get();
                        prop_assert_eq!(work.as_deref().copied(), model.get());
                        works.extend(work);
                    }
                    Op::Done(at) if at < works.len() => model.done(*works.remove(at)),
                    Op::Next(at) if at < works.len() => {
                        let work = works.remove(at);
                        model.done(*work);
                        let next = work.try_next();
                        prop_assert_eq!(next.as_deref().copied(), model.get());
                        works.extend(next);
                    }
                    Op::Done(_) | Op::Next(_) => {}
                    Op::Pass(time) => {
                        advance(Duration::from_millis(time)).await;
                        model.promote(Instant::now());
                    }
                }
                prop_assert_eq!(queue.len(), model.dirty.len());
                prop_assert_eq!(queue.processing(), model.processing.len());
                prop_assert_eq!(queue.delayed(), model.waiting.len());
            }
            Ok(())
        })?;
    }

    #[test]
    fn priority_queue_behaves_like_controller_runtime(ops in ops()) {
        run(async move {
            let (queue, mut model) = (WorkQueue::builder().by_priority().build(), ByPriority::default());
            let mut works: Vec<WorkItem<u8>> = Vec::new();
            for op in ops {
                match op {
                    Op::Add { key, priority } => {
                        queue.add_with(key, AddOptions { priority, ..AddOptions::default() });
                        model.add(key, priority, None);
                    }
                    Op::AddAfter { key, priority, after } => {
                        let after = Duration::from_millis(after);
                        queue.add_with(key, AddOptions { priority, after, ..AddOptions::default() });
                        model.add(key, priority, Some(Instant::now() + after));
                    }
                    Op::Get => {
                        let work = queue.try_get();
                        let found = work.as_ref().map(|it| (*it.key(), it.priority()));
                        prop_assert_eq!(found, model.get());
                        works.extend(work);
                    }
                    Op::Done(at) if at < works.len() => { model.locked.remove(&*works.remove(at)); }
                    Op::Next(at) if at < works.len() => {
                        let work = works.remove(at);
                        model.locked.remove(&*work);
                        let next = work.try_next();
                        let found = next.as_ref().map(|it| (*it.key(), it.priority()));
                        prop_assert_eq!(found, model.get());
                        works.extend(next);
                    }
                    Op::Done(_) | Op::Next(_) => {}
                    Op::Pass(time) => {
                        advance(Duration::from_millis(time)).await;
                        model.promote(Instant::now());
                    }
                }
                let ready = model.items.values().filter(|it| it.ready_at.is_none()).count();
                prop_assert_eq!(queue.len(), ready);
                prop_assert_eq!(queue.delayed(), model.items.len() - ready);
            }
            Ok(())
        })?;
    }

    /// With any number of workers that may be slow, fail and give up, keys are neither lost nor processed by two
    /// workers at the same time.
    #[test]
    fn keys_are_neither_lost_nor_returned_to_two_workers(
        adds in prop::collection::vec((0..8_u8, 0..30_u64, any::<bool>()), 1..60),
        workers in 1..5_usize,
        is_by_priority in any::<bool>(),
        exchanges in any::<bool>(),
    ) {
        run(async move {
            let queue = match is_by_priority {
                true => WorkQueue::builder().by_priority().build(),
                false => WorkQueue::new(),
            };
            // For each key, the last version that was announced, and the version that its worker read when it started.
            let seen = std::sync::Arc::new(std::sync::Mutex::new(BTreeMap::<u8, (u64, u64, bool)>::new()));
            for _ in 0..workers {
                let (queue, seen) = (queue.clone(), seen.clone());
                tokio::spawn(async move {
                    let mut next = queue.get().await;
                    while let Some(work) = next {
                        let version = {
                            let mut seen = seen.lock().expect("the lock is not poisoned");
                            let state = seen.entry(*work).or_default();
                            assert!(!std::mem::replace(&mut state.2, true), "two workers process one key");
                            state.0
                        };
                        tokio::time::sleep(Duration::from_millis(u64::from(*work) % 4)).await;
                        {
                            let mut seen = seen.lock().expect("the lock is not poisoned");
                            let state = seen.entry(*work).or_default();
                            (state.1, state.2) = (version, false);
                            if version % 3 == 1 && queue.num_requeues(&work) == 0 {
                                queue.add_rate_limited(*work);
                            }
                        }
                        next = if exchanges {
                            work.next().await
                        } else {
                            drop(work);
                            queue.get().await
                        };
                    }
                });
            }
            for (key, pause, is_delayed) in adds {
                seen.lock().expect("the lock is not poisoned").entry(key).or_default().0 += 1;
                match is_delayed {
                    true => queue.add_after(key, Duration::from_millis(pause)),
                    false => queue.add(key),
                }
                tokio::time::sleep(Duration::from_millis(pause / 4)).await;
            }
            tokio::time::sleep(Duration::from_secs(60)).await;
            for (key, (announced, worked, is_held)) in seen.lock().expect("the lock is not poisoned").iter() {
                prop_assert!(announced == worked && !is_held, "{} was announced {} times", key, announced);
            }
            Ok(())
        })?;
    }
}
