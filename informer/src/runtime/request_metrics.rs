//! Metrics of a client's requests, with client-go's metric names.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::time::Instant;
use tower::service_fn;

use crate::metrics::{Collect, Histogram, Metrics, Samples};

/// Histogram bounds of client-go, in seconds.
const BOUNDS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// Wraps `client` so that its requests are counted in two metrics. `rest_client_requests_total` counts requests by
/// status code and method, with the code `<error>` for requests without a response.
/// `rest_client_request_duration_seconds` measures the time until the headers of the response, by verb. A
/// [`Manager`](super::Manager) wraps its client in this way.
///
/// ```
/// use informer::metrics::Metrics;
/// use informer::runtime::count_requests;
/// use testkit::TestCluster;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let metrics = Metrics::new();
/// let client = count_requests(&TestCluster::start().client(), &metrics);
/// let pods = kube::Api::<k8s_openapi::api::core::v1::Pod>::default_namespaced(client);
/// assert!(pods.get_opt("web").await?.is_none());
/// assert!(metrics.render().contains("rest_client_requests_total{code=\"404\",method=\"GET\"} 1"));
/// # Ok(())
/// # }
/// ```
pub fn count_requests(client: &Client, metrics: &Metrics) -> Client {
    let stats = Arc::new(Stats::default());
    let collector: Arc<dyn Collect> = stats.clone();
    metrics.register(&collector);
    let inner = client.clone();
    let service = service_fn(move |request: Request<Body>| {
        let (client, stats) = (inner.clone(), Arc::clone(&stats));
        let answer: BoxFuture<'static, Result<Response<Body>, kube::Error>> = Box::pin(async move {
            let (method, began) = (request.method().to_string(), Instant::now());
            let answer = client.send(request).await;
            let code = answer.as_ref().ok().map(|it| it.status().as_u16());
            stats.count(method, code, began.elapsed());
            answer
        });
        answer
    });
    Client::new(service, client.default_namespace())
}

#[derive(Default)]
struct Stats(Mutex<Figures>);

#[derive(Default)]
struct Figures {
    /// Number of requests by status code and method.
    requests: BTreeMap<(Option<u16>, String), u64>,
    took: BTreeMap<String, Histogram>,
}

impl Stats {
    fn count(&self, method: String, code: Option<u16>, took: Duration) {
        let mut figures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let histogram = figures.took.entry(method.clone());
        histogram.or_insert_with(|| Histogram::new(BOUNDS)).observe_time(took);
        *figures.requests.entry((code, method)).or_default() += 1;
    }
}

impl Collect for Stats {
    fn collect(&self, samples: &mut Samples) {
        let figures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for ((code, method), count) in &figures.requests {
            let code = code.map_or_else(|| "<error>".to_owned(), |it| it.to_string());
            let labels = &[("code", code.as_str()), ("method", method.as_str())];
            let help = "Number of HTTP requests, partitioned by status code, method, and host.";
            samples.counter("rest_client_requests_total", help, labels, *count as f64);
        }
        for (method, took) in &figures.took {
            let help = "Request latency in seconds. Broken down by verb, and host.";
            let labels = &[("verb", method.as_str())];
            samples.histogram("rest_client_request_duration_seconds", help, labels, took);
        }
    }
}
