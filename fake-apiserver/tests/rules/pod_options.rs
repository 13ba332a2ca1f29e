//! Options of `pods/log` and `pods/portforward`, which are decoded before the Pod is looked up.

use fake_apiserver::ApiServer;
use rstest::rstest;
use serde_json::json;

use crate::ask::{get, message, post};

const PODS: &str = "/api/v1/namespaces/default/pods";

async fn server() -> ApiServer {
    let server = ApiServer::start();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(post(&server, PODS, &pod).await.0, 201);
    server
}

#[rstest]
#[case::time(
    "sinceTime=x",
    "parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\""
)]
#[case::month(
    "sinceTime=2026-13-01T00:00:00Z",
    "parsing time \"2026-13-01T00:00:00Z\": month out of range"
)]
#[case::not_an_integer("tailLines=abc", "strconv.ParseInt: parsing \"abc\": invalid syntax")]
#[case::empty_integer("tailLines=", "strconv.ParseInt: parsing \"\": invalid syntax")]
#[case::empty_seconds("sinceSeconds=", "strconv.ParseInt: parsing \"\": invalid syntax")]
#[case::overflow(
    "limitBytes=99999999999999999999",
    "strconv.ParseInt: parsing \"99999999999999999999\": value out of range"
)]
#[tokio::test(start_paused = true)]
async fn log_options_are_decoded_before_the_pod_is_read(#[case] query: &str, #[case] why: &str) {
    let server = server().await;
    for pod in ["p", "missing"] {
        let (code, answer) = get(&server, &format!("{PODS}/{pod}/log?{query}")).await;
        assert_eq!((code, message(&answer)), (400, why));
    }
}

#[rstest]
#[case::empty_since_time("sinceTime=", 204)]
#[case::time_with_an_offset("sinceTime=2026-01-01T00:00:00%2B01:00", 204)]
#[case::empty_time_and_seconds("sinceTime=&sinceSeconds=5", 422)]
#[tokio::test(start_paused = true)]
async fn empty_since_time_counts_as_a_time(#[case] query: &str, #[case] expected: u16) {
    let (code, answer) = get(&server().await, &format!("{PODS}/p/log?{query}")).await;
    assert_eq!(code, expected, "{answer}");
}

#[rstest]
#[case::not_a_number("abc", "abc", "invalid syntax")]
#[case::overflow("70000", "70000", "value out of range")]
#[case::empty("", "", "invalid syntax")]
#[case::negative("-1", "-1", "invalid syntax")]
#[case::second_port_of_a_list("80,x", "x", "invalid syntax")]
#[tokio::test(start_paused = true)]
async fn ports_of_a_port_forward_are_decoded_before_the_pod_is_read(
    #[case] ports: &str,
    #[case] shown: &str,
    #[case] why: &str,
) {
    let server = server().await;
    let why = format!("cannot convert to []int32: strconv.ParseUint: parsing \"{shown}\": {why}");
    for pod in ["p", "missing"] {
        let path = format!("{PODS}/{pod}/portforward?ports={ports}");
        let (code, answer) = post(&server, &path, &json!({})).await;
        assert_eq!((code, message(&answer)), (400, why.as_str()));
    }
}
