//! Expiry of open watches, and reads of future versions.

use fake_apiserver::ApiServer;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{Watch, config_map, get, post};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn busy(server: &ApiServer) {
    for index in 0..40 {
        let map = config_map(&format!("busy-{index}"), json!({"k": "x".repeat(1000)}));
        assert_eq!(post(server, MAPS, &map).await.0, 201);
    }
}

async fn server() -> ApiServer {
    let server = ApiServer::builder().history_bytes(8 * 1024).start();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "quiet"}});
    assert_eq!(post(&server, "/api/v1/namespaces", &namespace).await.0, 201);
    server
}

#[rstest]
#[case::watch_of_a_namespace("/api/v1/namespaces/quiet/configmaps?watch=1", "configmaps")]
#[case::watch_of_a_name(
    "/api/v1/namespaces/quiet/configmaps?watch=1&fieldSelector=metadata.name%3Dq",
    "configmaps"
)]
#[case::watch_of_another_resource("/api/v1/secrets?watch=1", "secrets")]
#[tokio::test]
async fn idle_watch_survives_changes_and_compactions_in_other_scopes(
    #[case] path: &str,
    #[case] resource: &str,
    #[values(true, false)] is_compacted: bool,
) {
    let server = server().await;
    let from = server.resource_version();
    let mut watch = Watch::open(&server, &format!("{path}&resourceVersion={from}")).await;
    busy(&server).await;
    if is_compacted {
        server.compact();
    }
    let kind = if resource == "secrets" { "Secret" } else { "ConfigMap" };
    let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "q"}});
    let (code, made) = post(&server, &format!("/api/v1/namespaces/quiet/{resource}"), &object).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(watch.told(), [json!({"type": "ADDED", "object": made})]);
}

#[rstest]
#[case::all_objects("/api/v1/configmaps?watch=1")]
#[case::one_namespace("/api/v1/namespaces/default/configmaps?watch=1")]
#[case::one_name("/api/v1/namespaces/default/configmaps?watch=1&fieldSelector=metadata.name%3Dbusy-0")]
#[tokio::test]
async fn unread_watch_expires(#[case] path: &str, #[values(true, false)] is_compacted: bool) {
    let server = server().await;
    let mut watch = Watch::open(
        &server,
        &format!("{path}&resourceVersion={}", server.resource_version()),
    )
    .await;
    busy(&server).await;
    if is_compacted {
        server.compact();
    }
    let told = watch.told();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["type"], "ERROR");
    assert_eq!(told[0]["object"]["code"], 410);
}

#[tokio::test]
async fn open_watch_survives_a_compaction_of_unread_changes() {
    let server = server().await;
    let path = format!(
        "/api/v1/configmaps?watch=1&resourceVersion={}",
        server.resource_version()
    );
    let mut watch = Watch::open(&server, &path).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let object = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    for name in ["read", "unread"] {
        let (code, made) = post(&server, maps, &object(name)).await;
        assert_eq!(code, 201, "{made}");
        if name == "unread" {
            server.compact();
        }
        assert_eq!(watch.told(), [json!({"type": "ADDED", "object": made})]);
    }
}

#[tokio::test]
async fn watch_from_a_compacted_version_expires() {
    let server = server().await;
    let from = server.resource_version();
    busy(&server).await;
    server.compact();
    let path = format!("/api/v1/namespaces/quiet/configmaps?watch=1&timeoutSeconds=1&resourceVersion={from}");
    assert_eq!(get(&server, &path).await.1["object"]["code"], 410);
}

/// Events do not have a watch cache, so etcd refuses the watch (rule E24).
#[rstest]
#[case::config_maps("/api/v1/configmaps", "too old resource version: ")]
#[case::events("/api/v1/events", "The resourceVersion for the provided watch is too old.")]
#[case::new_events(
    "/apis/events.k8s.io/v1/events",
    "The resourceVersion for the provided watch is too old."
)]
#[tokio::test]
async fn expired_watch_has_the_message_of_the_cache_or_of_etcd(#[case] path: &str, #[case] message: &str) {
    let server = server().await;
    let from = server.resource_version();
    busy(&server).await;
    server.compact();
    let path = format!("{path}?watch=1&timeoutSeconds=1&resourceVersion={from}");
    let object = &get(&server, &path).await.1["object"];
    assert_eq!((&object["code"], &object["reason"]), (&json!(410), &json!("Expired")));
    let found = object["message"].as_str().unwrap_or_default();
    assert!(found.starts_with(message), "{found}");
}

/// A watch cache waits three seconds. etcd, which serves only Events, does not wait, and does not send `Retry-After`.
#[rstest]
#[case::list("/api/v1/configmaps?resourceVersion=", 3, 1)]
#[case::exact_list("/api/v1/configmaps?resourceVersionMatch=Exact&resourceVersion=", 3, 1)]
#[case::object("/api/v1/namespaces/default/configmaps/a?resourceVersion=", 3, 1)]
#[case::list_of_events("/api/v1/events?resourceVersion=", 0, 0)]
#[case::event("/apis/events.k8s.io/v1/namespaces/default/events/a?resourceVersion=", 0, 0)]
#[tokio::test(start_paused = true)]
async fn reads_of_future_versions_time_out(#[case] path: &str, #[case] seconds: u64, #[case] retry_after: u64) {
    let server = ApiServer::start();
    let begun = tokio::time::Instant::now();
    let (code, answer) = get(&server, &format!("{path}999999")).await;
    assert_eq!((code, begun.elapsed().as_secs()), (504, seconds));
    let current = server.resource_version();
    assert_eq!(
        answer["message"],
        format!("Timeout: Too large resource version: 999999, current: {current}")
    );
    assert_eq!(
        answer["details"]["retryAfterSeconds"].as_u64().unwrap_or_default(),
        retry_after
    );
    assert_eq!(answer["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
}

#[tokio::test(start_paused = true)]
async fn watch_from_a_future_version_delivers_later_changes() {
    let server = ApiServer::start();
    let from = server.resource_version() + 1;
    let mut watch = Watch::open(&server, &format!("/api/v1/configmaps?watch=1&resourceVersion={from}")).await;
    post(&server, MAPS, &config_map("a", Value::Null)).await;
    assert_eq!(watch.told(), Vec::<Value>::new());
    let (_, made) = post(&server, MAPS, &config_map("b", Value::Null)).await;
    assert_eq!(watch.told(), [json!({"type": "ADDED", "object": made})]);
}

#[tokio::test]
async fn server_with_a_start_revision_has_no_earlier_history() {
    let server = ApiServer::builder().revision(5000).start();
    assert!(server.resource_version() >= 5000);
    for path in ["/api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion=4000"] {
        assert_eq!(get(&server, path).await.1["object"]["code"], 410, "{path}");
    }
    let exact = "/api/v1/configmaps?resourceVersionMatch=Exact&resourceVersion=4000";
    assert_eq!(get(&server, exact).await.0, 410);
}

#[tokio::test]
async fn state_at_a_future_version_is_the_current_state() {
    let server = ApiServer::start();
    post(&server, MAPS, &config_map("a", Value::Null)).await;
    let current = server.resource_version();
    let snapshot = server.snapshot_at(current + 100).expect("the history is complete");
    server.restore(&snapshot);
    let exact = format!("/api/v1/configmaps?resourceVersionMatch=Exact&resourceVersion={current}");
    assert_eq!(get(&server, &exact).await.0, 200);
    let mut watch = Watch::open(
        &server,
        &format!("/api/v1/configmaps?watch=1&resourceVersion={current}"),
    )
    .await;
    let (_, made) = post(&server, MAPS, &config_map("b", Value::Null)).await;
    assert_eq!(watch.told(), [json!({"type": "ADDED", "object": made})]);
}
