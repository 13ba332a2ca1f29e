//! Webhook functions that panic, hang, are slow or are cancelled: only their own requests are affected.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use futures::FutureExt;
use informer::metrics::Metrics;
use informer::webhook::{AdmissionRequest, Conversion, Defaulter, Denial, Validator, Webhooks};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::CustomResource;
use rstest::rstest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::webhooks::{ask, review};

/// Behaviour of a user function for the object `bad`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Panic,
    Hang,
    Slow,
    /// The server drops the request immediately.
    Cancelled,
}

struct Faulty {
    fault: Fault,
    dropped: Arc<AtomicU32>,
}

struct Witness(Arc<AtomicU32>);

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Faulty {
    async fn decide(&self, map: &ConfigMap) {
        if map.metadata.name.as_deref() != Some("bad") {
            return;
        }
        let _witness = Witness(Arc::clone(&self.dropped));
        match self.fault {
            Fault::Panic => panic!("the user function panics"),
            Fault::Hang | Fault::Cancelled => std::future::pending().await,
            Fault::Slow => sleep(Duration::from_secs(5)).await,
        }
    }
}

impl Validator<ConfigMap> for Faulty {
    async fn validate_create(&self, map: &ConfigMap, _: &AdmissionRequest) -> Result<Vec<String>, Denial> {
        self.decide(map).await;
        Ok(Vec::new())
    }
}

impl Defaulter<ConfigMap> for Faulty {
    async fn default(&self, map: &mut ConfigMap, _: &AdmissionRequest) -> Result<(), Denial> {
        self.decide(map).await;
        Ok(())
    }
}

#[rstest]
#[case::panic(Fault::Panic, Some((false, "panic: the user function panics [recovered]")), "200", 0)]
#[case::hang(Fault::Hang, None, "499", 10)]
#[case::slow_call(Fault::Slow, Some((true, "")), "200", 5)]
#[case::cancelled_request(Fault::Cancelled, None, "499", 0)]
#[tokio::test(start_paused = true)]
async fn fault_of_a_validator_or_defaulter_only_affects_its_request(
    #[case] fault: Fault,
    #[case] expected: Option<(bool, &str)>,
    #[case] code: &str,
    #[case] seconds: u64,
    #[values("validate", "mutate")] verb: &str,
) {
    let (metrics, dropped) = (Metrics::new(), Arc::new(AtomicU32::new(0)));
    let faulty = Faulty {
        fault,
        dropped: Arc::clone(&dropped),
    };
    let webhooks = if verb == "validate" {
        Webhooks::new().validate::<ConfigMap>(faulty)
    } else {
        Webhooks::new().mutate::<ConfigMap>(faulty)
    };
    let webhooks = webhooks.expect("the webhook path is unused").metrics(&metrics);
    let path = format!("/{verb}--v1-configmap");
    let asked = async |name: &str| {
        let body = review("CREATE", json!({"metadata": {"name": name}}), Value::Null);
        ask(&webhooks, &path, "application/json", body.to_string()).await.1
    };
    let answer = {
        let mut bad = Box::pin(asked("bad"));
        let at_once = (&mut bad).now_or_never();
        // Another request receives its response in the meantime.
        let good = asked("good").now_or_never().expect("the request completes at once");
        assert_eq!(good["response"]["allowed"], true);
        match (at_once, fault) {
            (Some(answer), _) => Some(answer),
            (None, Fault::Cancelled) => None,
            // A server waits for at most 30 s, and for 10 s by default.
            (None, _) => tokio::time::timeout(Duration::from_secs(10), bad).await.ok(),
        }
    };
    let decided = answer.as_ref().map(|it| {
        let message = it["response"]["status"]["message"].as_str().unwrap_or_default();
        (it["response"]["allowed"] == true, message)
    });
    assert_eq!(decided, expected);
    assert_eq!(dropped.load(Ordering::Relaxed), 1, "the call has ended");
    let text = metrics.render();
    let panics = u32::from(fault == Fault::Panic);
    let count = if code == "200" { 2 } else { 1 };
    for line in [
        format!("webhook_requests_in_flight{{webhook=\"{path}\"}} 0"),
        format!("webhook_requests_total{{code=\"200\",webhook=\"{path}\"}} {count}"),
        format!("webhook_requests_total{{code=\"{code}\",webhook=\"{path}\"}} {count}"),
        format!("webhook_panics_total{{webhook=\"{path}\"}} {panics}"),
        format!("webhook_latency_seconds_sum{{webhook=\"{path}\"}} {seconds}"),
    ] {
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
}

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Page", namespaced)]
struct PageSpec {
    title: String,
}

mod v1beta1 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1beta1", kind = "Page", namespaced)]
    pub(super) struct PageSpec {
        pub(super) name: String,
    }
}

/// Returns webhooks that convert pages, and call `on_bad` for the page `bad`.
fn pages(on_bad: impl Fn() + Send + Sync + 'static) -> Webhooks {
    let to_hub = move |old: v1beta1::Page| {
        if old.metadata.name.as_deref() == Some("bad") {
            on_bad();
        }
        Ok::<_, &str>(Page::new("", PageSpec { title: old.spec.name }))
    };
    let from_hub = |page: Page| {
        let spec = v1beta1::PageSpec { name: page.spec.title };
        Ok::<_, &str>(v1beta1::Page::new("", spec))
    };
    Webhooks::new().convert(Conversion::to_hub::<Page>().spoke(to_hub, from_hub))
}

async fn convert(webhooks: &Webhooks, name: &str) -> Value {
    let page = json!({"apiVersion": "example.com/v1beta1", "kind": "Page",
        "metadata": {"name": name, "namespace": "shop"}, "spec": {"name": "n"}});
    let request = json!({"uid": "u", "desiredAPIVersion": "example.com/v1", "objects": [page]});
    let body = json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "request": request});
    let (_, answer) = ask(webhooks, "/convert", "application/json", body.to_string()).await;
    answer["response"].clone()
}

#[tokio::test]
async fn converter_that_panics_only_fails_its_own_request() {
    let metrics = Metrics::new();
    let webhooks = pages(|| panic!("the user function panics")).metrics(&metrics);
    let bad = convert(&webhooks, "bad").await;
    assert_eq!(bad["result"]["status"], "Failure");
    assert_eq!(bad["result"]["message"], "panic: the user function panics [recovered]");
    let good = convert(&webhooks, "good").await;
    assert_eq!(good["convertedObjects"][0]["spec"], json!({"title": "n"}));
    let text = metrics.render();
    assert!(text.contains("webhook_panics_total{webhook=\"/convert\"} 1"), "{text}");
    assert!(text.contains("in_flight{webhook=\"/convert\"} 0"), "{text}");
}

/// Conversions are synchronous, so they can only block their threads. A cancelled request ends when the function
/// returns.
#[rstest]
#[case::slow_conversion(false)]
#[case::cancelled_request(true)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn converter_that_blocks_its_thread_only_delays_its_own_request(#[case] is_cancelled: bool) {
    let metrics = Metrics::new();
    let (entered, mut called) = tokio::sync::mpsc::unbounded_channel();
    let (release, released) = mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let webhooks = pages(move || {
        entered.send(()).expect("the receiver is open");
        // The end of the test also unblocks this call.
        let _ = released.lock().expect("the lock is not poisoned").recv();
    });
    let webhooks = Arc::new(webhooks.metrics(&metrics));
    let asking = tokio::spawn({
        let webhooks = Arc::clone(&webhooks);
        async move { convert(&webhooks, "bad").await }
    });
    called.recv().await.expect("the call arrives");
    let good = convert(&webhooks, "good").await;
    assert_eq!(good["convertedObjects"][0]["spec"], json!({"title": "n"}));
    if is_cancelled {
        asking.abort();
    }
    release.send(()).expect("the receiver is open");
    match asking.await {
        Ok(bad) => assert_eq!(bad["convertedObjects"][0]["spec"], json!({"title": "n"})),
        Err(err) => assert!(is_cancelled && err.is_cancelled()),
    }
    let text = metrics.render();
    assert!(text.contains("in_flight{webhook=\"/convert\"} 0"), "{text}");
}
