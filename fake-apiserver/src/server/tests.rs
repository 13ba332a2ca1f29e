//! Tests with stored objects that cannot be decoded. Only a bug in the server could cause them.

use bytes::Bytes;
use http::Request;
use rstest::rstest;

use super::ApiServer;
use crate::storage::{Body, Key};

const PATH: &str = "/api/v1/namespaces/default/configmaps/a";

/// Returns a server with a ConfigMap stored as truncated JSON.
fn server() -> ApiServer {
    let server = ApiServer::start();
    let body = Body {
        bytes: Bytes::from_static(b"\"name\":\"a\",\"namespace\":\"default\"},\"data\":{\"k\":"),
        version_at: 0,
        metadata_len: 35,
        is_completed_on_read: false,
        uid: "u".into(),
        labels: [].into(),
        fields: [].into(),
    };
    let store = &server.endpoints.registry.reader.store;
    store
        .create(&"configmaps".into(), Key::new("default", "a"), body)
        .expect("the object does not exist yet");
    server
}

#[rstest]
#[case::put("PUT", "application/json", r#"{"metadata":{"name":"a"}}"#)]
#[case::merge_patch("PATCH", "application/merge-patch+json", r#"{"data":{"k":"v"}}"#)]
#[case::apply(
    "PATCH",
    "application/apply-patch+yaml",
    "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"
)]
#[tokio::test]
async fn unreadable_stored_object_is_not_overwritten(
    #[case] method: &str,
    #[case] content_type: &str,
    #[case] body: &'static str,
) {
    let server = server();
    let before = server.endpoints.registry.reader.store.revision();
    let request = Request::builder()
        .method(method)
        .uri(format!("{PATH}?fieldManager=m"))
        .header("content-type", content_type)
        .body(body)
        .expect("the request is valid");
    assert_eq!(server.call(request).await.status(), 500);
    assert_eq!(
        server.endpoints.registry.reader.store.revision(),
        before,
        "nothing was written"
    );
}
