//! Tests a queue with threads that add and take keys. A seed determines how the threads are interleaved.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::work_queue::{AddOptions, WorkQueue};
use crate::interleave::interleave;

/// State of the test: the keys in progress, the last state of each key that a worker has read, and the current states.
#[derive(Default)]
struct Work {
    working: BTreeMap<u32, usize>,
    seen: BTreeMap<u32, u32>,
    states: BTreeMap<u32, u32>,
}

const KEYS: u32 = 4;

#[test]
fn queue_neither_loses_changes_nor_returns_a_key_to_two_workers() {
    for seed in 0..400 {
        let builder = WorkQueue::builder();
        let queue = if seed % 2 == 0 { builder } else { builder.by_priority() }.build();
        let work = Mutex::new(Work::default());
        let all = || -> MutexGuard<'_, Work> { work.lock().unwrap_or_else(PoisonError::into_inner) };
        let change = |priority: i32| {
            for key in (0..KEYS).chain(0..KEYS) {
                *all().states.entry(key).or_default() += 1;
                let options = AddOptions {
                    priority: priority * (key as i32 % 2),
                    ..AddOptions::default()
                };
                queue.add_with(key, options);
            }
        };
        let work_once = |worker: usize| {
            let Some(item) = queue.try_get() else {
                return false;
            };
            let other = all().working.insert(*item, worker);
            assert_eq!(other, None, "two workers have the key {} with the seed {seed}", *item);
            let state = all().states.get(&item).copied().unwrap_or_default();
            all().seen.insert(*item, state);
            // Locks a mutex, so that other threads may run while this thread processes the key.
            assert!(queue.processing() > 0);
            all().working.remove(&item);
            true
        };
        let working = |worker: usize| {
            for _ in 0..KEYS * 3 {
                work_once(worker);
            }
        };
        interleave(
            seed,
            vec![
                Box::new(|| change(0)),
                Box::new(|| change(-100)),
                Box::new(|| working(1)),
                Box::new(|| working(2)),
            ],
        );
        while work_once(0) {}
        let left = all();
        assert_eq!(left.seen, left.states, "the results differ with seed {seed}");
        assert_eq!(queue.processing(), 0);
    }
}
