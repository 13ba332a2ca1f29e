//! Runs test threads one at a time, in an order that a seed determines. Threads switch when they lock a mutex. Code
//! under test uses [`sync::Mutex`](crate::sync::Mutex), which is an alias of this module's mutex in unit tests.
//!
//! Switching at locks is sufficient for state that is only accessed while its lock is held.

use std::cell::RefCell;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, LockResult, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

/// A mutex that may switch to another thread before it is locked.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let Some(turns) = TURNS.with_borrow(Clone::clone) else {
            return self.0.lock();
        };
        loop {
            turns.pass();
            match self.0.try_lock() {
                Ok(guard) => return Ok(guard),
                Err(TryLockError::Poisoned(poisoned)) => return Err(poisoned),
                // A thread that is not running holds the lock: let another thread run.
                Err(TryLockError::WouldBlock) => {}
            }
        }
    }
}

thread_local! {
    static TURNS: RefCell<Option<Turns>> = const { RefCell::new(None) };
}

/// A thread's handle to the schedule.
#[derive(Clone)]
struct Turns {
    me: usize,
    schedule: Arc<Schedule>,
}

struct Schedule {
    state: std::sync::Mutex<State>,
    changed: Condvar,
}

struct State {
    current: usize,
    is_live: Vec<bool>,
    random: u64,
}

impl State {
    /// Chooses the thread that runs next, at random.
    fn choose(&mut self) {
        let live: Vec<_> = (0..self.is_live.len()).filter(|it| self.is_live[*it]).collect();
        // A step of xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        if !live.is_empty() {
            self.current = live[(self.random % live.len() as u64) as usize];
        }
    }
}

impl Turns {
    /// Switches to a randomly chosen thread, which may be the current thread.
    fn pass(&self) {
        self.state().choose();
        self.schedule.changed.notify_all();
        self.wait();
    }

    /// Returns `true` if another thread has not ended.
    fn has_others(&self) -> bool {
        let state = self.state();
        let mut threads = state.is_live.iter().enumerate();
        threads.any(|(thread, is_live)| thread != self.me && *is_live)
    }

    fn wait(&self) {
        let state = self
            .schedule
            .changed
            .wait_while(self.state(), |it| it.current != self.me);
        drop(state.unwrap_or_else(PoisonError::into_inner));
    }

    fn end(&self) {
        let mut state = self.state();
        state.is_live[self.me] = false;
        state.choose();
        drop(state);
        self.schedule.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.schedule.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a thread from the schedule when it ends or panics.
struct End(Turns);

impl Drop for End {
    fn drop(&mut self) {
        TURNS.set(None);
        self.0.end();
    }
}

/// Runs each function in its own thread, interleaved in an order determined by the seed.
pub(crate) fn interleave(seed: u64, functions: Vec<Box<dyn FnOnce() + Send + '_>>) {
    let schedule = Arc::new(Schedule {
        state: std::sync::Mutex::new(State {
            current: 0,
            is_live: vec![true; functions.len()],
            random: (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        }),
        changed: Condvar::new(),
    });
    thread::scope(|scope| {
        for (me, function) in functions.into_iter().enumerate() {
            let schedule = Arc::clone(&schedule);
            scope.spawn(move || {
                let turns = Turns { me, schedule };
                TURNS.set(Some(turns.clone()));
                let end = End(turns);
                end.0.wait();
                function();
            });
        }
    });
}

/// Runs a future in a thread of [`interleave`]. Other threads run while the future waits.
///
/// # Panics
///
/// Panics if the future waits after all other threads have ended, because no thread can wake it.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result;
        }
        while !woken.0.swap(false, Ordering::AcqRel) {
            let turns = TURNS.with_borrow(Clone::clone);
            let turns = turns.expect("the thread was started by `interleave`");
            assert!(turns.has_others(), "no thread is left that can wake the future");
            turns.pass();
        }
    }
}

/// Set when a future is woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}
