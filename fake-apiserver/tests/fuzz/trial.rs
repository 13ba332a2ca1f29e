//! `try_all`: same as in the hostile tests, for a server that was prepared with requests. Also contains objects that
//! all fuzz tests share.

use std::future::Future;

use fake_apiserver::ApiServer;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::ask::{Answer, Ask};
use crate::hostile;

/// Path of ConfigMaps.
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Path of the Widgets of [`widgets`].
pub(crate) const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// Path of CRDs.
pub(crate) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Tries values on forks of a server that was prepared with these requests.
#[track_caller]
pub(crate) fn try_all<S, F>(cases: u32, prepare: &[Ask], strategy: &S, test: impl FnMut(ApiServer, S::Value) -> F)
where
    S: Strategy,
    F: Future<Output = Result<(), String>>,
{
    hostile::try_all_on(async || prepared(prepare).await, cases, strategy, test);
}

async fn prepared(prepare: &[Ask]) -> ApiServer {
    let server = ApiServer::start();
    for ask in prepare {
        let answer = ask.check(&server).await.unwrap_or_else(|why| panic!("{why:.2000}"));
        assert!(answer.code < 300, "{}", answer.message());
    }
    server
}

/// Sends a request to a new server in virtual time, after the requests in `prepare`.
#[track_caller]
pub(crate) fn ask_once(prepare: &[Ask], ask: &Ask) -> Answer {
    hostile::runtime().block_on(async {
        let server = prepared(prepare).await;
        ask.check(&server).await.unwrap_or_else(|why| panic!("{why:.2000}"))
    })
}

/// Returns a POST of JSON.
pub(crate) fn post(path: &str, body: &Value) -> Ask {
    Ask::new("POST", path, "application/json", body.to_string())
}

/// Returns the CRD of Widgets, with this schema for their `spec`.
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

/// Returns a Widget with this `spec`.
pub(crate) fn widget(spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec})
}
