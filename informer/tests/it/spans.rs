//! Spans: log lines of reconciles, webhooks and components of a process contain the name of their object.

use std::cell::RefCell;
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use informer::handler::enqueue;
use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::{Clusters, LeaderElectionConfig, LeaseLock, Manager, run_always};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use rstest::rstest;
use testkit::TestCluster;
use testkit::objects::{config_map, deployment, node, pod};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// Collects each log event as `span{field=value}: message`, with all of its spans.
#[derive(Clone, Default)]
pub(crate) struct Lines {
    spans: Arc<Mutex<Vec<Spanned>>>,
    lines: Arc<Mutex<Vec<String>>>,
}

struct Spanned {
    text: String,
    parent: Option<u64>,
}

thread_local! {
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

#[derive(Default)]
struct Text {
    fields: String,
    message: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
            return;
        }
        let comma = if self.fields.is_empty() { "" } else { " " };
        write!(self.fields, "{comma}{}={value:?}", field.name()).expect("writing to a String cannot fail");
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Same filter as `RUST_LOG=error`.
        metadata.target().starts_with("informer") && *metadata.level() == Level::ERROR
            || metadata.target().starts_with("it::")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = Text::default();
        span.record(&mut text);
        let current = || ENTERED.with_borrow(|it| it.last().copied());
        let parent = match span.parent() {
            Some(parent) => Some(parent.into_u64()),
            None if span.is_contextual() => current(),
            None => None,
        };
        let mut spans = self.spans.lock().expect("the lock is not poisoned");
        spans.push(Spanned {
            text: format!("{}{{{}}}", span.metadata().name(), text.fields),
            parent,
        });
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let spans = self.spans.lock().expect("the lock is not poisoned");
        let mut line = text.message;
        if !text.fields.is_empty() {
            line = format!("{line} {}", text.fields);
        }
        let mut next = ENTERED.with_borrow(|it| it.last().copied());
        while let Some(id) = next {
            let span = &spans[id as usize - 1];
            line = format!("{}: {line}", span.text);
            next = span.parent;
        }
        self.lines.lock().expect("the lock is not poisoned").push(line);
    }

    fn enter(&self, span: &Id) {
        ENTERED.with_borrow_mut(|it| it.push(span.into_u64()));
    }

    fn exit(&self, span: &Id) {
        ENTERED.with_borrow_mut(|it| {
            let place = it.iter().rposition(|id| *id == span.into_u64());
            it.remove(place.expect("the span was entered before"));
        });
    }
}

/// A dispatcher that is never used. With a single dispatcher, `tracing` caches for all threads whether the first thread
/// that reaches a log line is interested in it, and this thread may belong to a test without a dispatcher.
static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Lines::default()));

impl Lines {
    pub(crate) fn start() -> (Self, tracing::subscriber::DefaultGuard) {
        LazyLock::force(&ANOTHER);
        let lines = Self::default();
        let guard = tracing::subscriber::set_default(lines.clone());
        (lines, guard)
    }

    pub(crate) fn with(&self, word: &str) -> Vec<String> {
        let lines = self.lines.lock().expect("the lock is not poisoned");
        lines.iter().filter(|it| it.contains(word)).cloned().collect()
    }
}

async fn fail(request: Request) -> Result<Action, ReconcileError> {
    tracing::info!("looking");
    tokio::task::yield_now().await;
    tracing::warn!("acting");
    if request.failures == 0 {
        return Err("not yet".into());
    }
    Ok(Action::await_change())
}

#[rstest]
#[tokio::test]
async fn log_lines_of_a_reconcile_contain_controller_object_and_attempt() {
    let (lines, _guard) = Lines::start();
    let cluster = TestCluster::start();
    cluster.create(deployment("web").namespace("shop")).await;
    let manager = Manager::new(cluster.client());
    let builder = manager.controller("web").for_::<Deployment>();
    builder.complete(fail).expect("the controller is complete");
    let _running = cluster.run(async move { manager.run(std::future::pending()).await });
    cluster.settle().await;

    let span = |id, attempt| {
        format!(
            "reconcile{{controller=\"web\" group=\"apps\" kind=\"Deployment\" namespace=\"shop\" name=\"web\" \
             reconcile_id={id} attempt={attempt}}}"
        )
    };
    assert_eq!(
        lines.with("reconcile{"),
        [
            format!("{}: looking", span(1, 1)),
            format!("{}: acting", span(1, 1)),
            format!("{}: reconciler error error=not yet is_terminal=false", span(1, 1)),
            format!("{}: looking", span(2, 2)),
            format!("{}: acting", span(2, 2)),
        ]
    );
}

/// Logs a message when it is dropped, to record the span in which a panic unwinds.
struct Witness;

impl Drop for Witness {
    fn drop(&mut self) {
        tracing::info!("unwinding or dropped");
    }
}

#[rstest]
#[case::panic(true)]
#[case::timeout(false)]
#[tokio::test]
async fn panics_and_timeouts_are_logged_within_the_reconcile_span(#[case] panics: bool) {
    let (lines, _guard) = Lines::start();
    let cluster = TestCluster::start();
    cluster.create(node("n1")).await;
    let manager = Manager::new(cluster.client());
    let builder = manager.controller("nodes").for_::<Node>();
    let builder = builder.reconcile_timeout(Duration::from_secs(1));
    let reconcile = move |_: Request| async move {
        let _witness = Witness;
        if panics {
            std::panic::resume_unwind(Box::new("broken"));
        }
        std::future::pending::<Result<Action, ReconcileError>>().await
    };
    builder.complete(reconcile).expect("the controller is complete");
    let _running = cluster.run(async move { manager.run(std::future::pending()).await });
    cluster.advance(Duration::from_millis(1_001)).await;

    let span = "reconcile{controller=\"nodes\" group=\"\" kind=\"Node\" name=\"n1\" reconcile_id=1 attempt=1}: ";
    let why = if panics {
        "panic: broken [recovered]"
    } else {
        "the reconcile took longer than 1s"
    };
    assert_eq!(
        lines.with("reconcile_id=1 "),
        [
            format!("{span}unwinding or dropped"),
            format!("{span}reconciler error error={why} is_terminal=false"),
        ]
    );
}

#[rstest]
#[tokio::test]
async fn reconcile_span_has_fields_for_custom_keys_and_clusters() {
    let (lines, _guard) = Lines::start();
    let cluster = TestCluster::start();
    cluster
        .create(pod("web").namespace("shop").set("spec.nodeName", "n1"))
        .await;
    let manager = Manager::new(cluster.client());
    let node = enqueue::mapped(|pod: &informer::CachedObject<Pod>| {
        let spec = pod.typed().ok().and_then(|it| it.spec.clone());
        spec.and_then(|it| it.node_name)
    });
    let builder = manager.controller("nodes").keyed_by::<String>().watches::<Pod>(node);
    let reconcile = |_: Request<String>| async {
        tracing::info!("node");
        Ok::<_, ReconcileError>(Action::await_change())
    };
    builder.complete(reconcile).expect("the controller is complete");
    let clusters = Clusters::new(&manager).expect("the manager has no other clusters");
    let reconcile = |_: Request<_>| async {
        tracing::info!("cluster");
        Ok::<_, ReconcileError>(Action::await_change())
    };
    let builder = clusters.controller("pods").for_::<Pod>();
    builder.complete(reconcile).expect("the controller is complete");
    clusters
        .engage("east", cluster.client())
        .expect("the cluster name is unused");
    let _running = cluster.run(async move { manager.run(std::future::pending()).await });
    cluster.settle().await;

    // The clusters start independently of the manager's own caches.
    let mut spans = lines.with("reconcile{");
    spans.sort();
    assert_eq!(
        spans,
        [
            "reconcile{controller=\"nodes\" key=\"n1\" reconcile_id=1 attempt=1}: node",
            "reconcile{controller=\"pods\" group=\"\" kind=\"Pod\" cluster=\"east\" namespace=\"shop\" name=\"web\" \
             reconcile_id=1 attempt=1}: cluster",
        ]
    );
}

#[rstest]
#[tokio::test]
async fn custom_span_function_is_used_and_may_panic() {
    let (lines, _guard) = Lines::start();
    let cluster = TestCluster::start();
    cluster.create(config_map("a")).await;
    cluster.create(config_map("b")).await;
    let manager = Manager::new(cluster.client());
    let builder = manager.controller("maps").for_::<ConfigMap>();
    let builder = builder.span(|request: &Request| match request.key.name() {
        "a" => tracing::info_span!("mine", key = %request.key),
        "b" => std::panic::resume_unwind(Box::new("no span")),
        _ => tracing::Span::none(),
    });
    let reconcile = |request: Request| async move {
        tracing::info!("reconciled {}", request.key);
        Ok::<_, ReconcileError>(Action::await_change())
    };
    builder.complete(reconcile).expect("the controller is complete");
    let _running = cluster.run(async move { manager.run(std::future::pending()).await });
    cluster.settle().await;

    assert_eq!(
        lines.with("reconciled default"),
        ["mine{key=default/a}: reconciled default/a", "reconciled default/b"]
    );
    assert_eq!(
        lines.with("no span"),
        [
            "the function that creates spans panicked controller=\"maps\" key=ObjectKey { namespace: Some(\"default\"), name: \"b\" } panic=\"no span\""
        ]
    );
}

#[rstest]
#[tokio::test]
async fn runnables_elector_and_caches_have_separate_spans() {
    let (lines, _guard) = Lines::start();
    let cluster = TestCluster::start();
    let lock = LeaseLock::new(cluster.client(), "default", "shop");
    let manager = Manager::builder(cluster.client());
    let manager = manager.leader_election(lock, LeaderElectionConfig::new("replica-0"));
    let manager = manager.build().expect("the durations are consistent");
    manager
        .add(run_always("beat", |stop| async move {
            tracing::info!("beating");
            stop.cancelled().await;
            Ok(())
        }))
        .expect("the runnable is accepted");
    let pods = manager.factory().informer::<Pod>();
    let handler = informer::handler::HandlerFn::new(|_: &informer::handler::Event<Pod>| tracing::info!("handled"));
    let options = informer::cache::HandlerOptions {
        name: Some("mine".into()),
        ..Default::default()
    };
    pods.add_handler_with(handler, options)
        .expect("the informer has not stopped");
    cluster.create(pod("web")).await;
    // The streaming list fails, and the first regular list fails as well.
    cluster
        .inject(testkit::faults::server_error().on(testkit::Verb::Watch, "pods").once())
        .forget();
    cluster
        .inject(testkit::faults::server_error().on(testkit::Verb::List, "pods").once())
        .forget();
    let _running = cluster.run(async move { manager.run(std::future::pending()).await });
    cluster.advance(Duration::from_secs(5)).await;

    assert_eq!(lines.with("beating"), ["runnable{name=\"beat\"}: beating"]);
    assert_eq!(lines.with("handled"), ["handler{handler=\"mine\"}: handled"]);
    let failed = lines.with("failed to list and watch");
    assert!(failed[0].starts_with("cache{source=\"/api/v1/pods\"}: "), "{failed:?}");
    let made: Vec<_> = lines
        .spans
        .lock()
        .expect("the lock is not poisoned")
        .iter()
        .map(|it| it.text.clone())
        .collect();
    assert!(made.contains(&"manager{}".to_owned()), "{made:?}");
    let elector = "leader_election{lease=\"default/shop\" identity=\"replica-0\"}".to_owned();
    assert!(made.contains(&elector), "{made:?}");
}

#[cfg(all(feature = "webhooks", feature = "self-signed"))]
#[rstest]
#[case::default(
    false,
    "admission{path=\"/validate--v1-configmap\" uid=UID operation=Create group=\"\" version=\"v1\" \
                        resource=\"configmaps\" namespace=\"shop\" name=\"a\" user=USER dry_run=false}: validating"
)]
#[case::custom(true, "mine{name=\"a\"}: validating")]
#[tokio::test]
async fn webhook_spans_contain_the_request(#[case] is_own: bool, #[case] expected: &str) {
    use informer::webhook::{AdmissionRequest, Denial, Webhooks};
    use k8s_openapi::api::admissionregistration::v1::WebhookClientConfig;

    fn validate(
        _: Option<&ConfigMap>,
        _: Option<&ConfigMap>,
        request: &AdmissionRequest,
    ) -> Result<Vec<String>, Denial> {
        tracing::info!("validating");
        match request.name.as_str() {
            "b" => std::panic::resume_unwind(Box::new("broken")),
            _ => Ok(Vec::new()),
        }
    }

    let (lines, _guard) = Lines::start();
    let cluster = TestCluster::start();
    let mut webhooks = Webhooks::new()
        .validate::<ConfigMap>(validate)
        .expect("the webhook path is unused");
    if is_own {
        webhooks = webhooks.span(|request| tracing::info_span!("mine", name = request.name));
    }
    let server = WebhookClientConfig {
        url: Some("https://webhooks.shop".into()),
        ..WebhookClientConfig::default()
    };
    let configurations = webhooks.configurations("shop", &server);
    cluster.webhooks(webhooks.service(), configurations).await;
    cluster.create(config_map("a").namespace("shop")).await;
    let maps = kube::Api::<ConfigMap>::namespaced(cluster.client(), "shop");
    let mut map = ConfigMap::default();
    map.metadata.name = Some("b".into());
    maps.create(&Default::default(), &map)
        .await
        .expect_err("the webhook panics");

    let seen = lines.with("validating");
    let spans: Vec<_> = seen
        .iter()
        .map(|it| without(it, "uid"))
        .map(|it| without(&it, "user"))
        .collect();
    assert_eq!(spans[0], expected);
    let panicked = lines.with("a webhook panicked panic=\"broken\"");
    assert!(
        panicked[0].contains(if is_own {
            "mine{name=\"b\"}: "
        } else {
            " name=\"b\" user="
        }),
        "{panicked:?}"
    );
}

/// Replaces the value of a field with the field's name in upper case.
#[cfg(all(feature = "webhooks", feature = "self-signed"))]
fn without(line: &str, field: &str) -> String {
    let Some((before, after)) = line.split_once(&format!(" {field}=\"")) else {
        return line.to_owned();
    };
    let (_, after) = after.split_once('"').expect("the text has a closing quote");
    format!("{before} {field}={}{after}", field.to_uppercase())
}
