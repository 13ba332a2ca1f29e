//! Errors: predicates identify errors even if they are wrapped several times.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use anyhow::Context;
use informer::reconcile::{Action, ReconcileError, Request, TerminalError};
use informer::runtime::{LeaderElectionConfig, LeaderElector, LeaseLock, Manager, run_always};
use informer::{Error, ObjectKey, errors};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::core::Status;
use kube::{Api, Client};
use rstest::rstest;
use testkit::objects::config_map;
use testkit::{TestCluster, Verb, faults};
use tokio_util::sync::CancellationToken;

type Predicate = fn(&(dyn StdError + 'static)) -> bool;

const PREDICATES: &[(&str, Predicate)] = &[
    ("forbidden", errors::is_forbidden),
    ("unauthorized", errors::is_unauthorized),
    ("invalid", errors::is_invalid),
    ("not found", errors::is_not_found),
    ("already exists", errors::is_already_exists),
    ("conflict", errors::is_conflict),
    ("expired", errors::is_expired),
    ("too many requests", errors::is_too_many_requests),
    ("timeout", errors::is_timeout),
    ("unknown outcome", errors::is_unknown_outcome),
    ("fenced", errors::is_fenced),
    ("lost leadership", errors::is_lost_leadership),
    ("gated", errors::is_gated),
];

/// Returns the names of the predicates that return `true`.
fn kinds(err: &(dyn StdError + 'static)) -> Vec<&'static str> {
    let holding = PREDICATES.iter().filter(|(_, holds)| holds(err));
    holding.map(|(name, _)| *name).collect()
}

/// An error type of a caller, with a source.
#[derive(Debug)]
struct Wrapped(Box<dyn StdError + Send + Sync>);

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("wrapped")
    }
}

impl StdError for Wrapped {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.0)
    }
}

fn answer(code: u16, reason: &str) -> kube::Error {
    kube::Error::Api(Box::new(Status::failure("no", reason).with_code(code)))
}

#[rstest]
#[case::forbidden(403, "Forbidden", &["forbidden"])]
#[case::unauthorized(401, "Unauthorized", &["unauthorized"])]
#[case::invalid(422, "Invalid", &["invalid"])]
#[case::not_found(404, "NotFound", &["not found"])]
#[case::already_exists(409, "AlreadyExists", &["already exists"])]
#[case::conflict(409, "Conflict", &["conflict"])]
#[case::expired(410, "Expired", &["expired"])]
#[case::gone(410, "Gone", &["expired"])]
#[case::too_many_requests(429, "TooManyRequests", &["too many requests"])]
#[case::timeout(504, "Timeout", &["timeout", "unknown outcome"])]
#[case::server_timeout(500, "ServerTimeout", &["timeout"])]
#[case::bad_gateway(502, "", &["unknown outcome"])]
#[case::internal_error(500, "InternalError", &[])]
#[case::bad_request(400, "BadRequest", &[])]
fn error_predicates_distinguish_server_responses(#[case] code: u16, #[case] reason: &str, #[case] expected: &[&str]) {
    assert_eq!(kinds(&answer(code, reason)), expected);
    assert_eq!(kinds(&Error::from(answer(code, reason))), expected);
    assert_eq!(kinds(&Wrapped(answer(code, reason).into())), expected);
    assert_eq!(
        kinds(&Wrapped(Box::new(Wrapped(Box::new(Error::from(answer(code, reason))))))),
        expected
    );
    let context = anyhow::Error::from(answer(code, reason)).context("a").context("b");
    assert_eq!(kinds(context.as_ref()), expected);
    let reconcile = ReconcileError::from(context);
    assert_eq!(kinds(reconcile.get_ref()), expected);
}

#[rstest]
#[case::connection_refused(faults::refused(), &[])]
#[case::connection_reset(faults::reset(), &["unknown outcome"])]
#[case::lost_response(faults::timeout().but_applied(), &["timeout", "unknown outcome"])]
#[case::truncated_response(faults::truncated(10), &["unknown outcome"])]
#[tokio::test]
async fn error_predicates_distinguish_requests_without_a_response(
    #[case] fault: testkit::FaultBuilder,
    #[case] expected: &[&str],
) {
    let cluster = TestCluster::start();
    cluster.inject(fault.on(Verb::Create, "configmaps").once()).forget();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let mut map = ConfigMap::default();
    map.metadata.name = Some("a".into());
    let err = maps
        .create(&PostParams::default(), &map)
        .await
        .expect_err("the request is not answered");
    assert_eq!(kinds(&err), expected, "{err:?}");
    assert_eq!(kinds(&Error::from(err)), expected);
}

async fn elapsed() -> tokio::time::error::Elapsed {
    let never = std::future::pending::<()>();
    tokio::time::timeout(Duration::from_secs(1), never)
        .await
        .expect_err("the future never completes")
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn timeout_set_by_the_caller_has_an_unknown_outcome() {
    assert_eq!(kinds(&elapsed().await), ["timeout", "unknown outcome"]);
    assert_eq!(kinds(&Wrapped(elapsed().await.into())), ["timeout", "unknown outcome"]);
}

async fn write(client: Client) -> Result<ConfigMap, kube::Error> {
    let mut map = ConfigMap::default();
    map.metadata.name = Some("written".into());
    Api::default_namespaced(client)
        .create(&PostParams::default(), &map)
        .await
}

#[rstest]
#[tokio::test]
async fn fenced_write_is_not_executed() {
    let cluster = TestCluster::start();
    let lock = LeaseLock::new(cluster.client(), "default", "shop");
    let elector = LeaderElector::new(lock, LeaderElectionConfig::new("a")).expect("the durations are consistent");
    let client = elector.fenced(&cluster.client());
    elector.run(CancellationToken::new(), |_| async {}).await;
    let err = write(client).await.expect_err("the elector no longer leads");
    assert_eq!(kinds(&err), ["fenced"], "{err:?}");
    assert!(Error::from(err).is_fenced());
}

#[rstest]
#[tokio::test]
async fn manager_reports_a_lost_lease() {
    let cluster = TestCluster::start();
    let lock = LeaseLock::new(cluster.client(), "default", "shop");
    let manager = Manager::builder(cluster.client()).leader_election(lock, LeaderElectionConfig::new("a"));
    let manager = manager.build().expect("the durations are consistent");
    let ending = manager.clone();
    let running = tokio::spawn(async move { ending.run(std::future::pending()).await });
    manager.elected().await;
    cluster.inject(faults::refused().on(Verb::Update, "leases")).forget();
    cluster.inject(faults::refused().on(Verb::Get, "leases")).forget();
    cluster.advance(Duration::from_secs(20)).await;
    let err = running
        .await
        .expect("the task does not panic")
        .expect_err("the manager lost its Lease");
    assert_eq!(kinds(&err), ["lost leadership"], "{err}");
}

#[rstest]
#[tokio::test]
async fn manager_returns_the_error_of_a_failed_runnable() {
    let cluster = TestCluster::start();
    let manager = Manager::new(cluster.client());
    manager
        .add(run_always("boot", |_| async { Err(answer(403, "Forbidden").into()) }))
        .expect("the runnable is accepted");
    let err = manager
        .run(std::future::pending())
        .await
        .expect_err("the runnable fails");
    assert!(err.is_forbidden(), "{err}");
}

#[rstest]
#[tokio::test]
async fn read_returns_a_gated_error_if_the_cache_lacks_an_own_write() {
    let cluster = TestCluster::builder().object(config_map("a")).start();
    let manager = Manager::new(cluster.client());
    let maps = manager.lister::<ConfigMap>();
    let running = manager.clone();
    let _running = cluster.run(async move { running.run(std::future::pending()).await });
    maps.synced().await.expect("the cache syncs");
    cluster.settle().await;
    cluster.watches().on("configmaps").hold();
    let client = manager.cached_client();
    let mut map = ConfigMap::default();
    map.metadata.name = Some("b".into());
    map.metadata.namespace = Some("default".into());
    client.create(&map).await.expect("the create succeeds");
    let err = client
        .get::<ConfigMap>(&ObjectKey::new("default", "b"))
        .await
        .expect_err("the cache lacks the write");
    assert_eq!(kinds(&err), ["gated"], "{err}");
}

fn plain() -> Result<(), TerminalError> {
    Err(TerminalError::new("no image"))
}

#[rstest]
#[case::constructor(ReconcileError::terminal("no image"), "terminal error: no image")]
#[case::question_mark_operator(plain().expect_err("the call fails").into(), "terminal error: no image")]
#[case::anyhow(anyhow::Error::from(plain().expect_err("the call fails")).into(), "terminal error: no image")]
#[case::context(plain().context("rollout").context("web").expect_err("the call fails").into(), "terminal error: web: rollout: no image")]
#[case::source_of_another_error(Wrapped(plain().expect_err("the call fails").into()).into(),
    "terminal error: wrapped: no image")]
#[case::boxed_error(ReconcileError::terminal("no image").into_inner().into(), "terminal error: no image")]
#[case::boxed_error_with_context(
    anyhow::Error::from_boxed(ReconcileError::terminal("no image").into_inner()).context("web").into(),
    "terminal error: web: no image"
)]
fn terminal_error_stays_terminal_if_it_is_wrapped(#[case] err: ReconcileError, #[case] text: &str) {
    assert!(err.is_terminal(), "{err:?}");
    assert_eq!(err.to_string(), text);
}

#[rstest]
#[case::string("not yet".into(), "not yet")]
#[case::error_with_context(anyhow::anyhow!("not yet").context("web").into(), "web: not yet")]
#[case::server_response(answer(403, "Forbidden").into(), "no (403 Forbidden)")]
#[case::server_response_with_context(anyhow::Error::from(answer(403, "Forbidden")).context("web").into(), "web: no (403 Forbidden)")]
fn other_errors_are_not_terminal_and_contain_their_sources(#[case] err: ReconcileError, #[case] text: &str) {
    assert!(!err.is_terminal());
    assert_eq!(err.to_string(), text);
}

#[rstest]
#[tokio::test]
async fn terminal_error_with_context_is_not_retried() {
    let cluster = TestCluster::builder().object(config_map("a")).start();
    let manager = Manager::new(cluster.client());
    let calls = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = std::sync::Arc::clone(&calls);
    let reconcile = move |_: Request| {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async { plain().context("web").map(|()| Action::await_change()) }
    };
    manager
        .controller("maps")
        .for_::<ConfigMap>()
        .complete(reconcile)
        .expect("the controller is complete");
    let _running = cluster.run(async move { manager.run(std::future::pending()).await });
    cluster.advance(Duration::from_secs(3_600)).await;
    assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), 1);
}
