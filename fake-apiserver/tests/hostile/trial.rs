//! `try_all`: checks a property for many values, each on its own server, with the same values in every run.

use std::cell::RefCell;
use std::future::Future;

use fake_apiserver::ApiServer;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use tokio::runtime::{Builder, Runtime};

/// Creates a runtime with virtual time.
pub(crate) fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime without sockets can be built")
}

/// Tries random values; a failure is shrunk and reported. `HOSTILE_TIMES` multiplies the number of cases,
/// `HOSTILE_SEED` changes the values.
#[track_caller]
pub(crate) fn try_all<S, F>(cases: u32, strategy: &S, test: impl FnMut(ApiServer, S::Value) -> F)
where
    S: Strategy,
    F: Future<Output = Result<(), String>>,
{
    try_all_on(async || ApiServer::start(), cases, strategy, test);
}

/// Same as `try_all`, with forks of a prepared server.
#[track_caller]
pub(crate) fn try_all_on<S, F>(
    prepared: impl AsyncFnOnce() -> ApiServer,
    cases: u32,
    strategy: &S,
    mut test: impl FnMut(ApiServer, S::Value) -> F,
) where
    S: Strategy,
    F: Future<Output = Result<(), String>>,
{
    let number = |name| std::env::var(name).ok().and_then(|it| it.parse::<u32>().ok());
    let cases = cases * number("HOSTILE_TIMES").unwrap_or(1);
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let seed = [&number("HOSTILE_SEED").unwrap_or(1).to_le_bytes()[..], &[7; 28]].concat();
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);

    let runtime = runtime();
    let fresh = runtime.block_on(prepared());
    let test = RefCell::new(&mut test);
    let result = TestRunner::new_with_rng(config, rng).run(strategy, |value| {
        let run = (test.borrow_mut())(fresh.fork(), value);
        runtime.block_on(run).map_err(TestCaseError::fail)
    });
    if let Err(why) = result {
        panic!("{why}");
    }
}
