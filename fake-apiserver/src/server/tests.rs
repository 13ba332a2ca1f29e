//! Objects in storage that cannot be read, which only a fault of the server itself could leave there.

use bytes::Bytes;
use http::Request;
use rstest::rstest;

use super::ApiServer;
use crate::storage::{Body, Key};

const PATH: &str = "/api/v1/namespaces/default/configmaps/a";

/// A server with a ConfigMap whose bytes end in the middle.
fn server() -> ApiServer {
    let server = ApiServer::start();
    let body = Body {
        bytes: Bytes::from_static(b"\"name\":\"a\",\"namespace\":\"default\"},\"data\":{\"k\":"),
        version_at: 0,
        metadata_len: 35,
        uid: "u".into(),
        labels: [].into(),
        fields: [].into(),
    };
    let store = &server.endpoints.registry.reader.store;
    store
        .create(&"configmaps".into(), Key::new("default", "a"), body)
        .expect("there is no other");
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
async fn what_cannot_be_read_is_never_taken_for_empty(
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
        .expect("the request is whole");
    assert_eq!(server.call(request).await.status(), 500);
    assert_eq!(
        server.endpoints.registry.reader.store.revision(),
        before,
        "nothing was written"
    );
}
