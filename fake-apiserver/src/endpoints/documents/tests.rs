//! Tests of the paths, methods and encodings of documents.

use rstest::rstest;

use crate::server::ApiServer;

/// Sends a request without a body; returns the code and the body of the response.
async fn send(method: &str, path: &str, accept: &str) -> (u16, String) {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("accept", accept);
    let answer = ApiServer::start().call(request.body("").unwrap()).await;
    let text = String::from_utf8_lossy(answer.body()).into_owned();
    (answer.status().as_u16(), text)
}

#[rstest]
#[case::kind_first("/apis/apps", r#"{"kind":"APIGroup","apiVersion":"v1","name":"apps","versions":[{"#)]
#[case::lists(
    "/apis/batch/v1",
    r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"batch/v1","resources":"#
)]
#[case::core(
    "/api",
    r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"#
)]
#[case::resources(
    "/api/v1",
    r#"[{"name":"bindings","singularName":"binding","namespaced":true,"kind":"Binding","verbs":"#
)]
#[case::versions("/apis/apps", r#"{"groupVersion":"apps/v1","version":"v1"}"#)]
#[tokio::test]
async fn discovery_documents_have_the_field_order_of_go_structs(#[case] path: &str, #[case] part: &str) {
    let (code, text) = send("GET", path, "application/json").await;
    assert_eq!(code, 200);
    assert!(text.contains(part), "{text}");
}

#[tokio::test]
async fn aggregated_discovery_has_the_field_order_of_go_structs() {
    let (_, text) = send("GET", "/api", super::discovery::AGGREGATED).await;
    let start = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"#;
    assert!(text.starts_with(start), "{text}");
    let resource = r#"{"resource":"bindings","responseKind":{"group":"","version":"","kind":"Binding"},"scope":"#;
    assert!(text.contains(resource), "{text}");
}

#[rstest]
#[case("/healthz/", 404)]
#[case("/livez/ping/", 404)]
#[case("/metrics/", 404)]
#[case("/openapi/v3/", 404)]
#[case("/version/", 200)]
#[case("/apis/", 200)]
#[case("/apis//", 404)]
#[case("/apis/apps/v1//", 200)]
#[case("/api/v1/namespaces//pods", 200)]
#[case("/healthz/poststarthook/rbac/bootstrap-roles", 200)]
#[tokio::test]
async fn slashes_in_paths_are_interpreted_like_in_kube_apiserver(#[case] path: &str, #[case] code: u16) {
    assert_eq!(send("GET", path, "*/*").await.0, code);
}

#[rstest]
#[case("/", 200)]
#[case("/apis", 200)]
#[case("/apis/apps", 200)]
#[case("/apis/apps/v1", 405)]
#[case("/api", 405)]
#[case("/version", 405)]
#[case("/openid/v1/jwks", 405)]
#[tokio::test]
async fn only_documents_of_kube_aggregator_accept_post(#[case] path: &str, #[case] code: u16) {
    assert_eq!(send("POST", path, "*/*").await.0, code);
}

#[rstest]
#[case("/api/v1/namespaces/default/pods/x/resize", 406)]
#[case("/api/v1/namespaces/default/pods/x/ephemeralcontainers", 406)]
#[case("/apis/certificates.k8s.io/v1/certificatesigningrequests/x/approval", 406)]
#[case("/api/v1/namespaces/default/pods/x/status", 404)]
#[case("/apis/apps/v1/namespaces/default/deployments/x/scale", 404)]
#[tokio::test]
async fn unsupported_subresource_tables_are_refused_before_the_object_is_looked_up(
    #[case] path: &str,
    #[case] code: u16,
) {
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    assert_eq!(send("GET", path, table).await.0, code);
}

#[rstest]
#[case::paths_as_yaml("/", "application/yaml", 200)]
#[case::paths_as_unsupported_type("/", "text/html", 200)]
#[case::version_as_any_type("/version", "*/*", 200)]
#[case::version_with_parameters("/version", "application/json;as=Table;g=meta.k8s.io;v=v1", 200)]
#[case::version_with_json_at_quality_zero("/version", "application/yaml,application/json;q=0", 200)]
#[case::version_as_yaml("/version", "application/yaml", 406)]
#[case::version_as_any_application_type("/version", "application/*", 406)]
#[tokio::test]
async fn path_list_and_version_are_only_served_as_json(#[case] path: &str, #[case] accept: &str, #[case] code: u16) {
    let (found, text) = send("GET", path, accept).await;
    assert_eq!(found, code, "{text}");
    match code {
        200 => assert!(text.starts_with("{\n  \""), "{text}"),
        _ => assert!(text.contains("Available representations: application/json"), "{text}"),
    }
}
