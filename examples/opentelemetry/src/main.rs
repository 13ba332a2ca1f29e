//! Reconciles as traces: the spans of informer, and the program's own spans within them, exported by OpenTelemetry.
//!
//! `cargo run --manifest-path examples/opentelemetry/Cargo.toml`. The example keeps the spans in memory and prints
//! them; a real program uses an exporter of `opentelemetry-otlp`. The example is a separate workspace, so that only its
//! own lock file contains the OpenTelemetry crates, which make breaking changes in each release.

use std::sync::Arc;

use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::Manager;
use k8s_openapi::api::core::v1::ConfigMap;
use opentelemetry::trace::{SpanId, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use testkit::TestCluster;
use testkit::objects::config_map;
use tracing::level_filters::LevelFilter;
use tracing::{Instrument, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), informer::Error> {
    let exporter = InMemorySpanExporter::default();
    let _guard = tracing::subscriber::set_default(subscriber(&exporter));
    run(&TestCluster::builder().object(config_map("settings")).start()).await?;
    for span in finished(&exporter) {
        println!("{}", text(&span));
    }
    Ok(())
}

/// Exports each reconcile as a separate trace. Excludes spans that last as long as the process: they would only be
/// exported at its end, and would contain every event until then.
fn subscriber(exporter: &InMemorySpanExporter) -> impl Subscriber + Send + Sync + use<> {
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let exported = Targets::new()
        .with_default(LevelFilter::INFO)
        .with_target("informer::process", LevelFilter::OFF);
    let traces = tracing_opentelemetry::layer().with_tracer(provider.tracer("shop"));
    Registry::default().with(traces.with_filter(exported))
}

/// Runs a controller with a failing first attempt, until all work is done.
async fn run(cluster: &TestCluster) -> Result<(), informer::Error> {
    let manager = Manager::new(cluster.client());
    let lister = manager.lister::<ConfigMap>();
    let reconcile = move |request: Request| {
        let map = lister.get(&request.key);
        async move {
            let keys = map.and_then(|map| map.typed().ok()).map_or(0, count);
            publish(keys, request.failures).instrument(tracing::info_span!("publish", keys)).await?;
            Ok::<_, ReconcileError>(Action::await_change())
        }
    };
    manager.controller("settings").for_::<ConfigMap>().complete(reconcile)?;
    let _running = cluster.run(async move { manager.run(std::future::pending()).await });
    cluster.settle().await;
    Ok(())
}

fn count(map: Arc<ConfigMap>) -> usize {
    map.data.as_ref().map_or(0, std::collections::BTreeMap::len)
}

async fn publish(_keys: usize, failures: u32) -> Result<(), ReconcileError> {
    tokio::task::yield_now().await;
    match failures {
        0 => Err("the registry does not answer".into()),
        _ => Ok(()),
    }
}

/// Returns the spans that have ended, in the order in which they ended.
fn finished(exporter: &InMemorySpanExporter) -> Vec<SpanData> {
    exporter.get_finished_spans().unwrap_or_default()
}

/// Formats a span like `reconcile (root) Unset namespace=default name=settings`.
fn text(span: &SpanData) -> String {
    let place = match span.parent_span_id {
        SpanId::INVALID => "root",
        _ => "child",
    };
    let shown = ["controller", "kind", "namespace", "name", "attempt", "keys"];
    let attributes = shown.iter().filter_map(|name| {
        let attribute = span.attributes.iter().find(|it| it.key.as_str() == *name)?;
        Some(format!(" {name}={}", attribute.value))
    });
    let attributes: String = attributes.collect();
    format!("{} ({place}) {:?}{attributes}", span.name, span.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_reconcile_has_its_own_trace_with_user_spans_and_status() {
        let exporter = InMemorySpanExporter::default();
        let _guard = tracing::subscriber::set_default(subscriber(&exporter));
        let cluster = TestCluster::builder().object(config_map("settings").data("a", "b")).start();
        run(&cluster).await.expect("the run succeeds");

        let spans = finished(&exporter);
        let of_informer = |span: &&SpanData| span.name == "reconcile" || span.name == "publish";
        let texts: Vec<_> = spans.iter().filter(of_informer).map(text).collect();
        let reconcile = |status, attempt| {
            format!(
                "reconcile (root) {status} controller=settings kind=ConfigMap namespace=default name=settings \
                 attempt={attempt}"
            )
        };
        assert_eq!(
            texts,
            [
                "publish (child) Unset keys=1".to_owned(),
                reconcile("Error { description: \"\" }", 1),
                "publish (child) Unset keys=1".to_owned(),
                reconcile("Unset", 2),
            ]
        );
        let traces: Vec<_> = spans.iter().filter(of_informer).map(|it| it.span_context.trace_id()).collect();
        assert!(traces[0] == traces[1] && traces[2] == traces[3] && traces[0] != traces[2]);
        assert!(spans.iter().all(|it| it.name != "manager" && it.name != "cache"));
    }
}
