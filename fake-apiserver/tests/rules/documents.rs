//! OpenAPI documents: documents without a resource, deprecated paths, and shared parameters.

use fake_apiserver::ApiServer;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{get, post, send};

#[rstest]
#[case(".well-known/openid-configuration", "", "getServiceAccountIssuerOpenIDConfiguration")]
#[case("api", "", "getCoreAPIVersions")]
#[case("api/v1", "", "getCoreV1APIResources")]
#[case("apis", "", "getAPIVersions")]
#[case("apis/rbac.authorization.k8s.io", "", "getRbacAuthorizationAPIGroup")]
#[case("apis/apps/v1", "", "getAppsV1APIResources")]
#[case("logs", "", "logFileListHandler")]
#[case("logs", "{logpath}", "logFileHandler")]
#[case("openid/v1/jwks", "", "getServiceAccountIssuerOpenIDKeyset")]
#[case("version", "", "getCodeVersion")]
#[case("api/v1", "watch/pods", "watchCoreV1PodListForAllNamespaces")]
#[case("api/v1", "watch/namespaces/{namespace}/pods", "watchCoreV1NamespacedPodList")]
#[case("api/v1", "watch/nodes/{name}", "watchCoreV1Node")]
#[case("api/v1", "nodes/{name}/proxy/{path}", "connectCoreV1GetNodeProxyWithPath")]
#[tokio::test]
async fn openapi_v2_and_v3_contain_every_operation(
    #[case] document: &str,
    #[case] rest: &str,
    #[case] operation: &str,
) {
    let server = ApiServer::start();
    let (_, index) = get(&server, "/openapi/v3").await;
    let url = index["paths"][document]["serverRelativeURL"].as_str();
    let (code, v3) = get(&server, url.expect("the index lists the document")).await;
    assert_eq!(code, 200);
    let (_, v2) = get(&server, "/openapi/v2").await;
    let path = format!("/{document}/{rest}");
    for found in [&v3, &v2] {
        assert_eq!(found["paths"][&path]["get"]["operationId"], operation, "{path}");
    }
    let text = v3.to_string();
    let names = text
        .split("#/components/schemas/")
        .skip(1)
        .filter_map(|it| it.split('"').next());
    for name in names {
        assert!(
            v3["components"]["schemas"][name].is_object(),
            "the document defines {name}"
        );
    }
}

fn names(parameters: &Value) -> Vec<&str> {
    let all = parameters.as_array().into_iter().flatten();
    all.filter_map(|it| it["name"].as_str()).collect()
}

#[tokio::test]
async fn shared_openapi_parameters_are_declared_on_the_path() {
    let server = ApiServer::start();
    let (_, core) = get(&server, "/openapi/v3/api/v1").await;
    let path = |path: &str| &core["paths"][path];
    let binding = path("/api/v1/namespaces/{namespace}/pods/{name}/binding");
    let expected = [
        "dryRun",
        "fieldManager",
        "fieldValidation",
        "name",
        "namespace",
        "pretty",
    ];
    assert_eq!(
        (names(&binding["parameters"]), &binding["post"]["parameters"]),
        (expected.to_vec(), &Value::Null)
    );
    let pods = path("/api/v1/namespaces/{namespace}/pods");
    assert_eq!(names(&pods["parameters"]), ["namespace", "pretty"]);
    assert_eq!(names(&pods["post"]["parameters"]), expected[..3]);
}

#[rstest]
#[case("pods", "delete", "delete a Pod", json!("#/components/schemas/io.k8s.api.core.v1.Pod"))]
#[case("events", "delete", "delete an Event", json!("#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Status"))]
#[case("endpoints", "delete", "delete Endpoints", json!("#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Status"))]
#[tokio::test]
async fn openapi_declares_the_responses_of_deletes(
    #[case] resource: &str,
    #[case] method: &str,
    #[case] text: &str,
    #[case] answer: Value,
) {
    let (_, core) = get(&ApiServer::start(), "/openapi/v3/api/v1").await;
    let operation = &core["paths"][format!("/api/v1/namespaces/{{namespace}}/{resource}/{{name}}")][method];
    let content = &operation["responses"]["200"]["content"]["application/json"];
    assert_eq!(
        (&operation["description"], &content["schema"]["$ref"]),
        (&json!(text), &answer)
    );
}

#[rstest]
#[case::trailing_slash("GET", "/version/", 200)]
#[case::trailing_slash_of_a_version("GET", "/apis/apps/v1/", 200)]
#[case::two_leading_slashes("GET", "//version", 404)]
#[case::only_two_slashes("GET", "//", 404)]
#[case::escaped_letter("GET", "/%76ersion", 404)]
#[case::write("POST", "/version", 405)]
#[case::head("HEAD", "/version", 405)]
#[case::head_of_health("HEAD", "/healthz", 200)]
#[case::write_to_readiness("POST", "/readyz", 200)]
#[case::single_health_check("GET", "/healthz/ping", 200)]
#[case::unknown_health_check("GET", "/healthz/none", 404)]
#[case::group("GET", "/apis/apps", 200)]
#[case::write_to_a_group("PUT", "/apis/apps", 200)]
#[case::unknown_version("PUT", "/apis/apps/v9", 404)]
#[case::too_deep("GET", "/apis/apps/v1//x", 404)]
#[case::core_group_below_apis("GET", "/apis//v1", 404)]
#[case::index_with_two_slashes("GET", "/openapi/v3//", 404)]
#[case::longer_path_than_the_index("GET", "/openapi/v3x", 404)]
#[tokio::test]
async fn paths_and_methods_of_documents_are_checked(#[case] method: &str, #[case] path: &str, #[case] code: u16) {
    let server = ApiServer::start();
    let found = send(&server, method, path, "application/json", &Value::Null).await;
    assert_eq!(found.0, code, "{}", found.1);
}

/// Returns the definitions of a custom kind and of its list in OpenAPI v3 and v2.
async fn definitions_of_custom_kind(server: &ApiServer) -> [[Value; 2]; 2] {
    let spec = json!({"type": "object", "properties": {
        "color": {"type": "string"},
        "port": {"x-kubernetes-int-or-string": true},
        "note": {"type": "string", "nullable": true},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true,
            "properties": {"data": {"type": "string"}}},
        "raw": {"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true},
    }, "required": ["color", "note"]});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.e.com"},
        "spec": {"group": "e.com", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"}, "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "selectableFields": [{"jsonPath": ".spec.color"}]}]},
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, answer) = post(server, path, &definition).await;
    assert_eq!(code, 201, "{answer}");
    let (_, v3) = get(server, "/openapi/v3/apis/e.com/v1").await;
    let (_, v2) = get(server, "/openapi/v2").await;
    let of = |all: &Value| ["Foo", "FooList"].map(|kind| all[format!("com.e.v1.{kind}")].clone());
    [of(&v3["components"]["schemas"]), of(&v2["definitions"])]
}

#[tokio::test]
async fn openapi_contains_the_selectable_fields_of_custom_kinds() {
    for definitions in definitions_of_custom_kind(&ApiServer::start()).await {
        for definition in definitions {
            assert_eq!(
                definition["x-kubernetes-selectable-fields"],
                json!([{"fieldPath": "spec.color"}]),
                "{definition}"
            );
        }
    }
}

#[tokio::test]
async fn openapi_schemas_of_custom_kinds_have_the_forms_of_v3_and_v2() {
    let [[v3, _], [v2, _]] = definitions_of_custom_kind(&ApiServer::start()).await;
    let (v3, v2) = (&v3["properties"]["spec"], &v2["properties"]["spec"]);
    assert_eq!(
        v3["properties"]["port"],
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]})
    );
    assert_eq!(v2["properties"]["port"], json!({"x-kubernetes-int-or-string": true}));
    assert_eq!(v3["required"], json!(["color", "note"]));
    assert_eq!(v2["required"], json!(["color"]));
    assert_eq!(v2["properties"]["note"], json!({}));
    for spec in [v3, v2] {
        let template = &spec["properties"]["template"];
        assert_eq!(template["required"], json!(["kind", "apiVersion"]));
        let about = template["properties"]["kind"]["description"]
            .as_str()
            .unwrap_or_default();
        assert!(
            about.starts_with("kind is a string value representing the type of this object."),
            "{about}"
        );
        assert_eq!(template["properties"]["data"], json!({"type": "string"}));
    }
    assert!(v3["properties"]["raw"]["properties"]["metadata"].is_object());
    assert_eq!(
        v2["properties"]["raw"],
        json!({"x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true})
    );
}
