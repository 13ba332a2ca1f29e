//! Limits on the size of the history, and on the expansion of small documents.

use fake_apiserver::{ApiServer, Verb};
use rstest::rstest;
use serde_json::json;

use crate::ask::{Answer, Ask};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

async fn asked(server: &ApiServer, ask: Ask) -> Answer {
    ask.check(server).await.expect("the response is valid")
}

/// Creates a ConfigMap of 10 KB; returns its resourceVersion.
async fn created(server: &ApiServer, name: &str) -> String {
    let map = json!({"metadata": {"name": name}, "data": {"text": "x".repeat(10_000)}});
    let made = asked(server, Ask::new("POST", MAPS, JSON, map.to_string())).await;
    made.json()["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

async fn patched(server: &ApiServer, name: &str, times: usize) {
    for at in 0..times {
        let patch = json!({"data": {"at": at.to_string()}});
        let path = format!("{MAPS}/{name}");
        assert_eq!(
            asked(server, Ask::new("PATCH", &path, MERGE, patch.to_string()))
                .await
                .code,
            200
        );
    }
}

/// Returns the events of a watch that starts at a revision.
async fn watched(server: &ApiServer, path: &str, from: &str) -> String {
    let path = format!("{path}?watch=1&resourceVersion={from}&timeoutSeconds=1");
    String::from_utf8_lossy(&asked(server, Ask::get(&path)).await.body).into_owned()
}

#[rstest]
#[case::above_the_limit(100_000, true)]
#[case::within_the_limit(10_000_000, false)]
#[tokio::test(start_paused = true)]
async fn changes_above_history_bytes_are_compacted(#[case] bytes: usize, #[case] is_expired: bool) {
    let server = ApiServer::builder().history_bytes(bytes).start();
    let first = created(&server, "a").await;
    patched(&server, "a", 100).await;
    let events = watched(&server, MAPS, &first).await;
    assert_eq!(events.contains("\"code\":410"), is_expired, "{events:.300}");
    let last = (server.resource_version() - 2).to_string();
    assert_eq!(watched(&server, MAPS, &last).await.matches("MODIFIED").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn oldest_changes_of_all_resources_are_dropped_first() {
    let server = ApiServer::builder().history_bytes(100_000).start();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let before = server.resource_version().to_string();
    let account = json!({"metadata": {"name": "old"}});
    asked(&server, Ask::new("POST", accounts, JSON, account.to_string())).await;
    assert!(watched(&server, accounts, &before).await.contains("ADDED"));
    created(&server, "a").await;
    patched(&server, "a", 20).await;
    assert!(watched(&server, accounts, &before).await.contains("\"code\":410"));
}

#[tokio::test(start_paused = true)]
async fn newest_change_is_kept_regardless_of_its_size() {
    let server = ApiServer::builder().history_bytes(0).start();
    created(&server, "a").await;
    let before = server.resource_version().to_string();
    patched(&server, "a", 1).await;
    assert_eq!(watched(&server, MAPS, &before).await.matches("MODIFIED").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn only_the_bodies_of_old_journal_entries_are_dropped() {
    let server = ApiServer::builder().journal_bytes(50_000).start();
    for at in 0..10 {
        created(&server, &format!("map-{at}")).await;
    }
    let requests = server.journal().requests();
    assert_eq!(server.journal().count(Verb::Create, "configmaps"), 10);
    let cut: Vec<bool> = requests.iter().map(|it| it.is_cut).collect();
    // The bodies of a request and its response have 10 KB in total.
    assert_eq!(cut, [[true; 8].as_slice(), &[false; 2]].concat());
    for request in requests {
        assert_eq!(request.request_body.is_empty(), request.is_cut);
        assert_eq!(request.answer.is_none(), request.is_cut);
    }
}

#[rstest]
#[case::many_aliases(format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), vec!["*a"; 5_000].join(",")))]
#[case::nested_anchors_of_a_long_text(format!("a: {}{}{}\n", (0..100).map(|at| format!("&a{at} [")).collect::<String>(),
    "x".repeat(1_000_000), "]".repeat(100)))]
#[case::nested_anchors_of_many_values(
    format!("a: {}{}1{}\n", (0..100).map(|at| format!("&a{at} [")).collect::<String>(),
    "1,".repeat(100_000), "]".repeat(100)))]
#[tokio::test(start_paused = true)]
async fn yaml_document_with_unbounded_aliases_is_refused(#[case] data: String) {
    let server = ApiServer::start();
    let answer = asked(&server, Ask::new("POST", MAPS, "application/yaml", data)).await;
    assert_eq!(answer.code, 400);
    assert!(
        answer.message().contains("excessive aliasing"),
        "{:.200}",
        answer.message()
    );
}
