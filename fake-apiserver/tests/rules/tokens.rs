//! The subresource `token` of ServiceAccounts.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fake_apiserver::ApiServer;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{message, post, with};

const TOKEN: &str = "/api/v1/namespaces/default/serviceaccounts/a/token";

/// Returns a server with a ServiceAccount and its Pod, and the uid of the ServiceAccount.
async fn server() -> (ApiServer, Value) {
    let server = ApiServer::start();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"serviceAccountName": "a", "containers": [{"name": "c", "image": "i"}]}});
    let (_, account) = post(&server, "/api/v1/namespaces/default/serviceaccounts", &account).await;
    post(&server, "/api/v1/namespaces/default/pods", &pod).await;
    (server, account["metadata"]["uid"].clone())
}

fn request(changes: &Value) -> Value {
    with(
        &json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}),
        changes,
    )
}

#[rstest]
#[case::uid_of_another_account(json!({"metadata": {"uid": "u"}}), 409, "Operation cannot be fulfilled on \
    TokenRequest.authentication.k8s.io \"a\": the UID in the token request (u) does not match the UID of the service \
    account (UID)")]
#[case::bound_object_without_a_name(json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1"}}}), 400,
    "Name parameter required.")]
#[case::bound_object_in_any_core_version(
    json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v2", "name": "q"}}}), 404,
    "pods \"q\" not found")]
#[case::bound_object_of_another_group(
    json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "a/v1", "name": "q"}}}), 400,
    "cannot bind token to object of type a/v1, Kind=Pod")]
#[tokio::test]
async fn token_requests_are_validated(#[case] changes: Value, #[case] code: u16, #[case] text: &str) {
    let (server, uid) = server().await;
    let answer = post(&server, TOKEN, &request(&changes)).await;
    let text = text.replace("UID)", &format!("{})", uid.as_str().unwrap_or_default()));
    assert_eq!((answer.0, message(&answer.1)), (code, &*text), "{}", answer.1);
}

/// Kubelets request 3607 seconds. Tokens for the server itself with this lifetime are valid for a year, and clients are
/// warned after the requested time.
#[rstest]
#[case(3607, json!([]), true)]
#[case(3600, json!([]), false)]
#[case(3607, json!(["vault"]), false)]
#[tokio::test]
async fn tokens_for_pods_with_the_lifetime_that_kubelets_request_are_extended_to_a_year(
    #[case] seconds: i64,
    #[case] audiences: Value,
    #[case] is_extended: bool,
) {
    let (server, _) = server().await;
    let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": "p"});
    let spec = json!({"expirationSeconds": seconds, "audiences": audiences, "boundObjectRef": bound});
    let (code, answer) = post(&server, TOKEN, &request(&json!({"spec": spec}))).await;
    assert_eq!(code, 201, "{answer}");
    let token = answer["status"]["token"].as_str().expect("the token is a string");
    let claims = token.split('.').nth(1).expect("the token has three parts");
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).expect("the text is base64"))
        .expect("the text is valid JSON");
    let after = |claim: &Value| claim.as_i64().map(|it| it - claims["iat"].as_i64().unwrap_or_default());
    let life = if is_extended { 365 * 24 * 60 * 60 } else { seconds };
    assert_eq!(after(&claims["exp"]), Some(life));
    assert_eq!(
        after(&claims["kubernetes.io"]["warnafter"]),
        is_extended.then_some(seconds)
    );
}
