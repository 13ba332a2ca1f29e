//! Effects of each fault on a request of a `kube::Client`.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fake_apiserver::api::status::Status;
use fake_apiserver::{Decision, Fault, Seen, Verdict, WatchHandle, When};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use rstest::rstest;
use testkit::objects::config_map;
use testkit::{TestCluster, Verb, cluster};
use tokio::time::Instant;

fn maps(client: Client) -> Api<ConfigMap> {
    Api::default_namespaced(client)
}

fn named(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.into());
    map
}

/// Returns the outcome of a request in one word.
fn learned<T>(result: &Result<T, kube::Error>) -> String {
    match result {
        Ok(_) => "ok".into(),
        Err(kube::Error::Api(status)) => status.code.to_string(),
        Err(kube::Error::Service(err)) => match err.downcast_ref::<io::Error>() {
            Some(err) => format!("{:?}", err.kind()),
            None => err.to_string(),
        },
        Err(err) => format!("{err:?}"),
    }
}

fn internal() -> Box<Status> {
    Box::new(Status::internal("injected"))
}

#[rstest]
#[case::pass(|| Verdict::Pass, "ok", true)]
#[case::fail(|| Verdict::Fail(internal()), "500", false)]
#[case::lose(|| Verdict::Lose(internal()), "500", true)]
#[case::delay(|| Verdict::Delay(Duration::from_secs(5)), "ok", true)]
#[case::delay_response(|| Verdict::DelayAnswer(Duration::from_secs(5)), "ok", true)]
#[case::refuse(|| Verdict::Refuse, "ConnectionRefused", false)]
#[case::reset(|| Verdict::Reset(When::Before), "ConnectionReset", false)]
#[case::reset_after(|| Verdict::Reset(When::After), "ConnectionReset", true)]
#[case::hang(|| Verdict::Hang(When::Before), "nothing", false)]
#[case::hang_after(|| Verdict::Hang(When::After), "nothing", true)]
#[tokio::test(start_paused = true)]
async fn verdict_determines_effect_and_response(
    cluster: TestCluster,
    #[case] verdict: fn() -> Verdict,
    #[case] expected: &str,
    #[case] is_done: bool,
) {
    cluster.server().inject(move |_: &Seen<'_>| verdict()).forget();
    let maps = maps(cluster.client());
    let (params, map) = (PostParams::default(), named("a"));
    let create = maps.create(&params, &map);
    let result = tokio::time::timeout(Duration::from_secs(60), create).await;
    let told = result.map_or_else(|_| "nothing".to_owned(), |result| learned(&result));
    assert_eq!((told.as_str(), cluster.exists(config_map("a"))), (expected, is_done));
}

#[rstest]
#[case::delayed_request(|| Verdict::Delay(Duration::from_secs(5)), 1)]
#[case::delayed_response(|| Verdict::DelayAnswer(Duration::from_secs(5)), 0)]
#[tokio::test(start_paused = true)]
async fn delayed_list_returns_the_state_at_the_time_of_the_read(
    cluster: TestCluster,
    #[case] verdict: fn() -> Verdict,
    #[case] expected: usize,
) {
    let rule = move |seen: &Seen<'_>| match seen.info.verb {
        Verb::List => verdict(),
        _ => Verdict::Pass,
    };
    cluster.server().inject(rule).forget();
    let (maps, began) = (maps(cluster.client()), Instant::now());
    let params = ListParams::default();
    let list = maps.list(&params);
    let write = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        cluster.create(config_map("a")).await;
    };
    let (list, _) = futures::join!(list, write);
    assert_eq!(list.expect("the request is answered").items.len(), expected);
    assert_eq!(began.elapsed(), Duration::from_secs(5));
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn truncated_response_fails_the_request(cluster: TestCluster) {
    cluster.create(config_map("a")).await;
    cluster.server().inject(|_: &Seen<'_>| Verdict::Truncate(20)).forget();
    let result = maps(cluster.client()).get("a").await;
    assert!(matches!(result, Err(kube::Error::Service(_))), "{result:?}");
    let request = cluster.journal().requests().pop().expect("the request was recorded");
    assert_eq!(request.faults, ["cut after 20 bytes"]);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn journal_contains_the_client_and_the_fault(cluster: TestCluster) {
    cluster
        .server()
        .inject(|_: &Seen<'_>| Verdict::Reset(When::After))
        .forget();
    let _ = maps(cluster.client_named("operator")).get("a").await;
    let request = cluster.journal().requests().pop().expect("the request was recorded");
    assert_eq!((&*request.client, request.code), ("operator", 0));
    assert!(
        request
            .to_string()
            .ends_with("no response [connection reset after the request was executed]"),
        "{request}"
    );
}

/// Holds every request, or its response if it is a create, and every watch. Records the decisions.
#[derive(Clone, Default)]
struct Chooser(Arc<Mutex<Chosen>>);

#[derive(Default)]
struct Chosen {
    decisions: Vec<(Verb, String, Decision)>,
    watches: Vec<WatchHandle>,
}

impl Fault for Chooser {
    fn on_request(&mut self, request: &Seen<'_>) -> Verdict {
        let (verdict, decision) = match request.info.verb {
            Verb::Create => Verdict::held_answer(),
            _ => Verdict::held(),
        };
        let choice = (request.info.verb, request.client.to_owned(), decision);
        self.0.lock().expect("the lock is not poisoned").decisions.push(choice);
        verdict
    }

    fn on_watch(&mut self, watch: &WatchHandle) {
        watch.hold();
        self.0
            .lock()
            .expect("the lock is not poisoned")
            .watches
            .push(watch.clone());
    }
}

impl Chooser {
    fn next(&self) -> (Verb, String, Decision) {
        self.0.lock().expect("the lock is not poisoned").decisions.remove(0)
    }
}

#[rstest]
#[case::pass(|| Verdict::Pass, "ok")]
#[case::fail(|| Verdict::Fail(internal()), "500")]
#[case::reset(|| Verdict::Reset(When::Before), "ConnectionReset")]
#[tokio::test(start_paused = true)]
async fn held_request_waits_for_its_decision(
    cluster: TestCluster,
    #[case] verdict: fn() -> Verdict,
    #[case] expected: &str,
) {
    let chooser = Chooser::default();
    cluster.server().inject(chooser.clone()).forget();
    let maps = maps(cluster.client_named("operator"));
    let (params, map) = (PostParams::default(), named("a"));
    let mut create = Box::pin(maps.create(&params, &map));
    let waiting = tokio::time::timeout(Duration::from_secs(3600), &mut create).await;
    assert!(waiting.is_err(), "{waiting:?}");
    assert!(cluster.exists(config_map("a")), "the response is held, not the write");

    let (verb, client, decision) = chooser.next();
    assert_eq!((verb, client.as_str()), (Verb::Create, "operator"));
    decision.decide(verdict()).expect("the client is waiting");
    assert_eq!(learned(&create.await), expected);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn abandoned_request_cannot_be_decided(cluster: TestCluster) {
    let chooser = Chooser::default();
    cluster.server().inject(chooser.clone()).forget();
    let maps = maps(cluster.client());
    let running = tokio::spawn(async move { maps.delete("a", &Default::default()).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    running.abort();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (_, _, decision) = chooser.next();
    assert!(decision.is_abandoned());
    assert!(decision.decide(Verdict::Pass).is_err());
}
