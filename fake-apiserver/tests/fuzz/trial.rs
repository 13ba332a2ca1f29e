//! `try_all`: a property tried with the same random values in every run, each on a server of its own.

use std::cell::RefCell;
use std::future::Future;

use fake_apiserver::ApiServer;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::ask::{Answer, Ask};

/// Where ConfigMaps are.
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Where the Widgets of [`widgets`] are.
pub(crate) const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// Where CRDs are.
pub(crate) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A runtime in virtual time.
pub(crate) fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime without sockets needs nothing")
}

/// Tries values on forks of one server that was prepared by these requests. A failure is shrunk and shown.
#[track_caller]
pub(crate) fn try_all<S, F>(cases: u32, prepare: &[Ask], strategy: &S, mut test: impl FnMut(ApiServer, S::Value) -> F)
where
    S: Strategy,
    F: Future<Output = Result<(), String>>,
{
    let wanted = std::env::var("PROPTEST_CASES").ok().and_then(|it| it.parse().ok());
    let config = ProptestConfig {
        cases: wanted.unwrap_or(cases),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[11; 32]);
    let runtime = runtime();
    let fresh = runtime.block_on(async {
        let server = ApiServer::start();
        for ask in prepare {
            let answer = ask.check(&server).await.expect("it is good");
            assert!(answer.code < 300, "{}", answer.message());
        }
        server
    });
    let test = RefCell::new(&mut test);
    let result = TestRunner::new_with_rng(config, rng).run(strategy, |value| {
        let run = (test.borrow_mut())(fresh.fork(), value);
        runtime.block_on(run).map_err(TestCaseError::fail)
    });
    if let Err(why) = result {
        panic!("{why}");
    }
}

/// Asks a fresh server in virtual time, after the requests that prepare it.
#[track_caller]
pub(crate) fn ask_once(prepare: &[Ask], ask: &Ask) -> Answer {
    runtime().block_on(async {
        let server = ApiServer::start();
        for ask in prepare {
            let answer = ask.check(&server).await.unwrap_or_else(|why| panic!("{why:.2000}"));
            assert!(answer.code < 300, "{}", answer.message());
        }
        ask.check(&server).await.unwrap_or_else(|why| panic!("{why:.2000}"))
    })
}

/// A POST of JSON.
pub(crate) fn post(path: &str, body: &Value) -> Ask {
    Ask::new("POST", path, "application/json", body.to_string())
}

/// The CRD of Widgets, whose `spec` has this schema.
pub(crate) fn widgets(spec: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "properties": {"spec": spec}}}}],
        },
    })
}

/// A Widget with this `spec`.
pub(crate) fn widget(spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec})
}
