//! `/metrics`: names, labels and values as in kube-apiserver 1.36, and limits on concurrent requests.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use fake_apiserver::{ApiServer, Authorization, Seen, Verb, Verdict};
use futures::StreamExt as _;
use http::Request;
use rstest::rstest;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::ask::{CONFIG_MAPS, config_map, get, request, send};

/// Media type that requests aggregated discovery.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

async fn page(server: &ApiServer) -> String {
    let (code, text) = get(server, "/metrics").await;
    assert_eq!(code, 200);
    text
}

/// Returns the value of a sample as a string.
fn sample<'a>(page: &'a str, series: &str) -> Option<&'a str> {
    page.lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))
}

/// Returns the series that counts requests for ConfigMaps.
fn requests(code: u16, scope: &str, verb: &str) -> String {
    format!(
        "apiserver_request_total{{code=\"{code}\",component=\"apiserver\",dry_run=\"\",group=\"\",\
         resource=\"configmaps\",scope=\"{scope}\",subresource=\"\",verb=\"{verb}\",version=\"v1\"}}"
    )
}

#[rstest]
#[case::list("GET", CONFIG_MAPS, Value::Null, 200, "namespace", "LIST")]
#[case::list_of_all_namespaces("GET", "/api/v1/configmaps", Value::Null, 200, "cluster", "LIST")]
#[case::get(
    "GET",
    "/api/v1/namespaces/default/configmaps/none",
    Value::Null,
    404,
    "resource",
    "GET"
)]
#[case::create("POST", CONFIG_MAPS, config_map("a"), 201, "resource", "POST")]
#[case::refused("POST", CONFIG_MAPS, config_map("A"), 422, "resource", "POST")]
#[case::delete_collection("DELETE", CONFIG_MAPS, Value::Null, 200, "namespace", "DELETE")]
#[tokio::test(start_paused = true)]
async fn requests_are_counted_by_verb_scope_and_code(
    #[case] method: &str,
    #[case] path: &str,
    #[case] body: Value,
    #[case] code: u16,
    #[case] scope: &str,
    #[case] verb: &str,
) {
    let server = ApiServer::start();
    let series = requests(code, scope, verb);
    assert_eq!(sample(&page(&server).await, &series), None);
    for _ in 0..2 {
        // Another create with the same name would return a different code.
        let body = if code == 201 {
            json!({"metadata": {"generateName": "a-"}})
        } else {
            body.clone()
        };
        assert_eq!(send(&server, method, path, body).await, code);
    }
    assert_eq!(sample(&page(&server).await, &series), Some("2"));
}

#[tokio::test(start_paused = true)]
async fn applies_and_dry_runs_are_counted_separately() {
    let server = ApiServer::start();
    let path = format!("{CONFIG_MAPS}/a?fieldManager=t&dryRun=All");
    let apply = Request::patch(path).header("content-type", "application/apply-patch+yaml");
    let apply = apply.body(config_map("a").to_string()).expect("the request is valid");
    assert_eq!(server.call(apply).await.status(), 201);
    let series = requests(201, "resource", "APPLY").replace("dry_run=\"\"", "dry_run=\"All\"");
    assert_eq!(sample(&page(&server).await, &series), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn request_durations_use_the_clock_of_the_server() {
    let server = ApiServer::start();
    let slow = |seen: &Seen<'_>| match seen.info.verb {
        Verb::List => Verdict::Delay(Duration::from_secs(3)),
        _ => Verdict::Pass,
    };
    let _slow = server.inject(slow);
    assert_eq!(get(&server, CONFIG_MAPS).await.0, 200);
    let page = page(&server).await;
    let labels = "component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"configmaps\",scope=\"namespace\",\
                  subresource=\"\",verb=\"LIST\",version=\"v1\"";
    let series = |suffix: &str, le: &str| format!("apiserver_request_duration_seconds_{suffix}{{{labels}{le}}}");
    assert_eq!(sample(&page, &series("bucket", ",le=\"2\"")), Some("0"));
    assert_eq!(sample(&page, &series("bucket", ",le=\"3\"")), Some("1"));
    assert_eq!(sample(&page, &series("bucket", ",le=\"+Inf\"")), Some("1"));
    assert_eq!(sample(&page, &series("sum", "")), Some("3"));
    assert_eq!(sample(&page, &series("count", "")), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn watch_is_counted_when_its_client_disconnects() {
    let server = ApiServer::start();
    let watch = Request::get(format!("{CONFIG_MAPS}?watch=1")).body(Body::empty());
    let watch = watch.expect("the request is valid");
    let Ok(answer) = server.service().oneshot(watch).await;
    let mut events = answer.into_body().into_data_stream();
    send(&server, "POST", CONFIG_MAPS, config_map("a")).await;
    events
        .next()
        .await
        .expect("the watch delivers an event")
        .expect("the event arrives completely");

    let under_way = "apiserver_longrunning_requests{component=\"apiserver\",group=\"\",resource=\"configmaps\",\
                     scope=\"namespace\",subresource=\"\",verb=\"WATCH\",version=\"v1\"}";
    let answered = requests(200, "namespace", "WATCH");
    let during = page(&server).await;
    assert_eq!(sample(&during, under_way), Some("1"));
    assert_eq!(sample(&during, &answered), None);
    let sent = "apiserver_watch_events_total{group=\"\",resource=\"configmaps\",version=\"v1\"}";
    assert_eq!(sample(&during, sent), Some("1"));

    drop(events);
    let after = page(&server).await;
    assert_eq!(sample(&after, under_way), Some("0"));
    assert_eq!(sample(&after, &answered), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn objects_are_counted_by_stored_resource() {
    let server = ApiServer::start();
    send(&server, "POST", CONFIG_MAPS, config_map("a")).await;
    let page = page(&server).await;
    let series = "apiserver_resource_objects{group=\"\",resource=\"configmaps\"}";
    assert_eq!(sample(&page, series), Some("1"));
    let series = "apiserver_resource_objects{group=\"apps\",resource=\"deployments\"}";
    assert_eq!(sample(&page, series), Some("0"));
    assert_eq!(
        sample(&page, "apiserver_storage_objects{resource=\"deployments.apps\"}"),
        Some("0")
    );
    let events = page
        .lines()
        .filter(|it| it.contains("_objects{") && it.contains("resource=\"events"));
    assert_eq!(
        events.count(),
        2,
        "Events of both groups are stored once, and counted under two names"
    );
}

#[tokio::test(start_paused = true)]
async fn component_statuses_do_not_appear_in_the_metrics() {
    let page = page(&ApiServer::start()).await;
    assert!(!page.contains("componentstatuses"), "{page}");
}

/// The help text of a metric includes its stability level, except for process metrics.
#[tokio::test(start_paused = true)]
async fn process_start_metric_has_the_same_help_text_as_kube_apiserver() {
    let page = page(&ApiServer::start()).await;
    let help = "\n# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.\n";
    assert!(page.contains(help), "{page}");
}

#[rstest]
#[case::health("/livez", "*/*", Some(("", "/livez")))]
#[case::single_health_check("/livez/ping", "*/*", None)]
#[case::discovery("/apis", "*/*", None)]
#[case::aggregated_groups("/apis", AGGREGATED, Some(("apiserver", "apis")))]
#[case::aggregated_core_group("/api", AGGREGATED, Some(("apiserver", "api")))]
#[case::openapi_v3_index("/openapi/v3", "*/*", Some(("", "openapi/v3")))]
#[case::openapi_v3_document("/openapi/v3/api/v1", "*/*", Some(("", "openapi/v3/")))]
#[case::openapi_v2_document("/openapi/v2", "*/*", None)]
#[tokio::test(start_paused = true)]
async fn document_requests_are_counted_as_in_kube_apiserver(
    #[case] path: &str,
    #[case] accept: &str,
    #[case] labels: Option<(&str, &str)>,
) {
    let server = ApiServer::start();
    let asked = Request::get(path).header("accept", accept).body("");
    let answer = server.call(asked.expect("the request is valid")).await;
    assert_eq!(answer.status(), 200);
    let page = page(&server).await;
    let counted: Vec<_> = page
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{"))
        .collect();
    let expected = labels.map(|(component, subresource)| {
        format!(
            "apiserver_request_total{{code=\"200\",component=\"{component}\",dry_run=\"\",group=\"\",resource=\"\",\
             scope=\"\",subresource=\"{subresource}\",verb=\"GET\",version=\"\"}} 1"
        )
    });
    assert_eq!(counted, expected.iter().map(String::as_str).collect::<Vec<_>>());
}

#[rstest]
#[case::watch_of_a_namespace(
    "/api/v1/namespaces/default/configmaps?watch=1",
    "configmaps",
    "namespace",
    "",
    "WATCH"
)]
#[case::watch_of_one_object(
    "/api/v1/configmaps?watch=1&fieldSelector=metadata.name%3Da",
    "configmaps",
    "resource",
    "",
    "WATCH"
)]
#[case::legacy_watch_path("/api/v1/watch/configmaps", "configmaps", "cluster", "", "LIST")]
#[case::legacy_watch_path_of_one_object(
    "/api/v1/watch/namespaces/default/configmaps/a",
    "configmaps",
    "resource",
    "",
    "GET"
)]
#[case::failed_log_request("/api/v1/namespaces/default/pods/p/log", "pods", "resource", "log", "CONNECT")]
#[tokio::test(start_paused = true)]
async fn long_running_requests_are_labelled_by_verb_scope_and_subresource(
    #[case] path: &str,
    #[case] resource: &str,
    #[case] scope: &str,
    #[case] subresource: &str,
    #[case] verb: &str,
) {
    let server = ApiServer::start();
    let asked = Request::get(path).body(Body::empty()).expect("the request is valid");
    let Ok(answer) = server.service().oneshot(asked).await;
    let number = if answer.status() == 200 { "1" } else { "0" };
    let during = page(&server).await;
    let series = format!(
        "apiserver_longrunning_requests{{component=\"apiserver\",group=\"\",resource=\"{resource}\",\
         scope=\"{scope}\",subresource=\"{subresource}\",verb=\"{verb}\",version=\"v1\"}}"
    );
    assert_eq!(sample(&during, &series), Some(number), "{during}");
    drop(answer);
    assert_eq!(sample(&page(&server).await, &series), Some("0"));
}

#[tokio::test(start_paused = true)]
async fn get_with_watch_parameter_is_counted_as_watch() {
    let server = ApiServer::start();
    assert_eq!(get(&server, &format!("{CONFIG_MAPS}/a?watch=1")).await.0, 404);
    assert_eq!(
        sample(&page(&server).await, &requests(404, "resource", "WATCH")),
        Some("1")
    );
}

#[tokio::test(start_paused = true)]
async fn patch_with_an_unknown_media_type_is_not_counted() {
    let server = ApiServer::start();
    let asked = Request::patch(format!("{CONFIG_MAPS}/a")).header("content-type", "application/nothing");
    let answer = server.call(asked.body("{}").expect("the request is valid")).await;
    assert_eq!(answer.status(), 415);
    assert!(!page(&server).await.contains("apiserver_request_total"));
}

/// The rules of the text format: families are contiguous and described once, and series are unique.
#[tokio::test(start_paused = true)]
async fn metrics_are_valid_in_the_exposition_format() {
    let server = ApiServer::start();
    send(&server, "POST", CONFIG_MAPS, config_map("a")).await;
    get(&server, "/healthz").await;
    get(&server, "/apis/apps/v1/deployments").await;
    let answer = server.call(request("GET", "/metrics", &Value::Null)).await;
    let kind = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
    assert_eq!(answer.headers()["content-type"], kind);
    let first = String::from_utf8_lossy(answer.body()).into_owned();
    assert_eq!(page(&server).await, first, "reading the metrics does not change them");
    assert!(first.ends_with('\n'));

    let (mut families, mut series, mut family) = (Vec::new(), BTreeSet::new(), "");
    for line in first.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            family = rest.split_once(' ').expect("the metric has a help text").0;
            families.push(family);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert_eq!(rest.split_once(' ').expect("the metric has a type").0, family);
        } else {
            let (name, value) = line.rsplit_once(' ').expect("a sample has a value");
            assert!(name.starts_with(family), "{line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(series.insert(name), "the series occurs twice: {line}");
        }
    }
    let mut sorted = families.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(families, sorted);
    for family in [
        "apiserver_current_inflight_requests",
        "kubernetes_build_info",
        "process_start_time_seconds",
    ] {
        assert!(families.contains(&family), "{family}");
    }
    assert!(first.contains("git_version=\"v1.36.2\",go_version="));
    assert!(first.contains(
        "apiserver_request_total{code=\"200\",component=\"\",dry_run=\"\",group=\"\",resource=\"\",scope=\"\",\
         subresource=\"/healthz\",verb=\"GET\",version=\"\"} 1\n"
    ));
}

#[tokio::test(start_paused = true)]
async fn delete_of_the_metrics_path_resets_counters() {
    let server = ApiServer::start();
    get(&server, CONFIG_MAPS).await;
    let answer = server.call(request("DELETE", "/metrics", &Value::Null)).await;
    assert_eq!(&answer.body()[..], b"metrics reset\n");
    assert_eq!(sample(&page(&server).await, &requests(200, "namespace", "LIST")), None);
}

#[rstest]
#[case::without_permission("dev", 403)]
#[case::with_the_monitoring_role("monitor", 200)]
#[tokio::test(start_paused = true)]
async fn metrics_require_permission_for_the_path(#[case] token: &str, #[case] code: u16) {
    let server = ApiServer::builder()
        .authorization(Authorization::Rbac)
        .token("dev", "dev", ["devs"])
        .token("monitor", "prometheus", ["system:monitoring"])
        .start();
    let asked = Request::get("/metrics").header("authorization", format!("Bearer {token}"));
    let answer = server.call(asked.body("").expect("the request is valid")).await;
    assert_eq!(answer.status().as_u16(), code);
}

#[tokio::test(start_paused = true)]
async fn requests_above_the_limit_are_refused_with_429_except_for_administrators() {
    let server = ApiServer::builder()
        .authorization(Authorization::Rbac)
        .token("dev", "dev", ["system:monitoring"])
        .max_requests_inflight(1, 1)
        .start();
    let (sender, held) = tokio::sync::oneshot::channel();
    let sender = std::sync::Mutex::new(Some(sender));
    let _hold = server.inject(move |_: &Seen<'_>| {
        let mut sender = sender.lock().expect("the lock is not poisoned");
        match sender.take() {
            Some(sender) => {
                let (verdict, decision) = Verdict::held();
                let _ = sender.send(decision);
                verdict
            }
            None => Verdict::Pass,
        }
    });
    let asked = |path: &str, token: Option<&str>| {
        let asked = Request::get(path);
        let asked = match token {
            Some(token) => asked.header("authorization", format!("Bearer {token}")),
            None => asked,
        };
        asked.body("").expect("the request is valid")
    };
    let (server, waiting) = (&server, asked(CONFIG_MAPS, None));
    let first = server.call(waiting);
    let others = async {
        let held = held.await.expect("the first request is held");
        let refused = server.call(asked("/healthz", Some("dev"))).await;
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.headers()["retry-after"], "1");
        assert_eq!(&refused.body()[..], b"Too many requests, please try again later.\n");
        assert_eq!(server.call(asked("/healthz", None)).await.status(), 200);
        let page = page(server).await;
        let current = "apiserver_current_inflight_requests{request_kind=\"readOnly\"}";
        assert_eq!(sample(&page, current), Some("1"));
        held.decide(Verdict::Pass).expect("the request is held");
    };
    let (answer, ()) = tokio::join!(first, others);
    assert_eq!(answer.status(), 200);
    assert_eq!(server.call(asked("/healthz", Some("dev"))).await.status(), 200);
}
