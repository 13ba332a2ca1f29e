use std::borrow::Cow;

use super::*;
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::resource::{Scope, SubresourceInfo, Text};
use crate::registry::types::schema::served::builtins;

fn now() -> Timestamp {
    "2026-11-21T10:00:00Z".parse().expect("the time is valid")
}

fn asked<'a>(path: &'a str, hash: &'a str) -> Asked<'a> {
    Asked {
        path,
        hash,
        accept: "",
        if_none_match: "",
        now: now(),
    }
}

fn with_builtins<T>(use_it: impl FnOnce(OpenApi<'_>) -> T) -> T {
    let rows: Vec<&ResourceInfo> = builtins(KubernetesVersion::default()).collect();
    use_it(OpenApi {
        version: KubernetesVersion::default(),
        builtins: &rows,
        custom: &[],
    })
}

fn document(api: &OpenApi<'_>, path: &str) -> Value {
    let answer = api.answer(asked(path, ""));
    assert_eq!(answer.status, 200);
    serde_json::from_slice(&answer.body).expect("the text is valid JSON")
}

fn widget() -> ResourceInfo {
    let texts = |list: &[&str]| Cow::Owned(list.iter().map(|it| Text::Owned((*it).to_owned())).collect());
    let verbs = [
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ];
    let sub = |name: &str, group: &str, kind: &str| SubresourceInfo {
        name: name.to_owned().into(),
        group: group.to_owned().into(),
        version: "v1".into(),
        kind: kind.to_owned().into(),
        verbs: texts(&["get", "patch", "update"]),
    };
    ResourceInfo {
        group: "shop.example.com".into(),
        version: "v1".into(),
        resource: "widgets".into(),
        singular: "widget".into(),
        kind: "Widget".into(),
        list_kind: "WidgetList".into(),
        scope: Scope::Namespaced,
        short_names: texts(&[]),
        categories: texts(&[]),
        verbs: texts(&verbs),
        stored_version: Some("v1".into()),
        subresources: Cow::Owned(vec![
            sub("scale", "autoscaling", "Scale"),
            sub("status", "shop.example.com", "Widget"),
        ]),
    }
}

#[test]
fn n6_openapi_documents_contain_all_referenced_schemas() {
    with_builtins(|api| {
        let index = api.index();
        let paths = index["paths"].as_object().expect("the value is an object");
        assert!(paths.contains_key("api/v1") && paths.contains_key("apis/apps/v1"));
        for path in paths.keys() {
            let document = document(&api, path);
            let text = document.to_string();
            for part in text.split(REF).skip(1) {
                let name = &part[..part.find('"').expect("the text has a quote")];
                assert!(
                    document["components"]["schemas"].get(name).is_some(),
                    "{path} lacks {name}"
                );
            }
        }
        for row in builtins(KubernetesVersion::default()) {
            let name = definition_of(&row.group, &row.version, &row.kind).expect("the type has a definition");
            assert!(definition(KubernetesVersion::default(), &name).is_some(), "{name}");
        }
    });
}

#[test]
fn n6_openapi_documents_with_a_hash_are_immutable() {
    with_builtins(|api| {
        let index = api.index();
        let url = index["paths"]["apis/batch/v1"]["serverRelativeURL"]
            .as_str()
            .expect("the URL is a string")
            .to_owned();
        let (path, hash) = url.split_once("?hash=").expect("the URL has a hash");
        assert_eq!((path, hash.len()), ("/openapi/v3/apis/batch/v1", 128));
        let header = |answer: &DocumentAnswer, name: &str| {
            answer
                .headers
                .iter()
                .find(|it| it.0 == name)
                .map(|it| it.1.clone())
                .unwrap_or_default()
        };
        let with_hash = api.answer(asked("apis/batch/v1", hash));
        assert_eq!(with_hash.status, 200);
        assert_eq!(header(&with_hash, "etag"), format!("\"{hash}\""));
        assert_eq!(header(&with_hash, "cache-control"), "public, immutable");
        assert_eq!(header(&with_hash, "expires"), "Sun, 21 Nov 2027 10:00:00 GMT");
        let without = api.answer(asked("apis/batch/v1", ""));
        assert_eq!(header(&without, "cache-control"), "");
        let etag = format!("\"{hash}\"");
        let cached = api.answer(Asked {
            if_none_match: &etag,
            ..asked("apis/batch/v1", hash)
        });
        assert_eq!((cached.status, cached.body.len()), (304, 0));
        let wrong = api.answer(asked("apis/batch/v1", "BAD"));
        assert_eq!((wrong.status, header(&wrong, "location")), (301, url.clone()));
        assert_eq!(api.answer(asked("apis/none/v1", "")).status, 404);
        let protobuf = api.answer(Asked {
            accept: "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
            ..asked("apis/batch/v1", "")
        });
        assert_eq!(protobuf.status, 406);
    });
}

#[test]
fn n8_openapi_declares_field_validation_for_writes() {
    with_builtins(|api| {
        let document = document(&api, "apis/apps/v1");
        let item = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"];
        let names: Vec<&Value> = item["patch"]["parameters"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|it| &it["name"])
            .collect();
        assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
        let kind = json!({"group": "apps", "version": "v1", "kind": "Deployment"});
        assert_eq!(item["patch"]["x-kubernetes-group-version-kind"], kind);
        assert_eq!(item["put"]["operationId"], "replaceAppsV1NamespacedDeployment");
        let strategy =
            &document["components"]["schemas"]["io.k8s.api.apps.v1.DeploymentStrategy"]["properties"]["type"];
        assert_eq!(strategy["enum"], json!(["Recreate", "RollingUpdate"]));
    });
}

#[test]
fn parameters_have_the_same_descriptions_as_in_kube_apiserver() {
    with_builtins(|api| {
        let (apps, core) = (document(&api, "apis/apps/v1"), document(&api, "api/v1"));
        let described = |place: &Value, name: &str| -> String {
            let mut all = place["parameters"].as_array().into_iter().flatten();
            let found = all.find(|it| it["name"] == name);
            let found = found.and_then(|it| it["description"].as_str());
            found
                .unwrap_or_else(|| panic!("{name} is missing in {place}"))
                .to_owned()
        };
        let item = &apps["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"];
        assert_eq!(described(item, "name"), "name of the Deployment");
        assert_eq!(
            described(item, "namespace"),
            "object name and auth scope, such as for teams and projects"
        );
        assert!(described(item, "pretty").starts_with("If 'true', then the output is pretty printed."));
        // The descriptions differ, so the operations do not share the parameter.
        assert!(described(&item["patch"], "fieldManager").contains("required for apply requests"));
        assert!(!described(&item["put"], "fieldManager").contains("required for apply requests"));
        let scale = &apps["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"];
        assert_eq!(described(scale, "name"), "name of the Scale");
        let exec = &core["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/exec"];
        assert_eq!(described(exec, "name"), "name of the PodExecOptions");
        assert!(described(exec, "command").starts_with("Command is the remote command to execute."));
        let proxy = &core["paths"]["/api/v1/nodes/{name}/proxy/{path}"];
        let paths = proxy["parameters"].as_array().into_iter().flatten();
        let paths: Vec<&str> = paths
            .filter(|it| it["name"] == "path")
            .filter_map(|it| it["description"].as_str())
            .collect();
        assert_eq!(
            paths,
            [
                "Path is the URL path to use for the current proxy request to node.",
                "path to the resource"
            ]
        );
    });
}

/// The names contain hashes of the parameters, so they are only equal to kube-apiserver's names if the descriptions are
/// equal.
#[rstest::rstest]
#[case::query("pretty-tJGM1-ng", "/api/v1/namespaces")]
#[case::list("continue-QfD61s0i", "/api/v1/namespaces")]
#[case::watch("watch-XNNPZGbK", "/api/v1/watch/namespaces")]
#[case::patch("fieldManager-7c6nTn1T", "/api/v1/namespaces/{name}")]
#[case::path("namespace-vgWSWtn3", "/api/v1/namespaces/{namespace}/pods")]
#[case::delete_options("body-2Y1dVQaQ", "/api/v1/namespaces/{name}")]
#[case::log_options("container-1GeXxFDC", "/api/v1/namespaces/{namespace}/pods/{name}/log")]
#[case::path_of_a_log_file("logpath-Noq7euwC", "/logs/{logpath}")]
fn v2_shared_parameters_have_the_same_names_as_in_kube_apiserver(#[case] name: &str, #[case] path: &str) {
    with_builtins(|api| {
        let document: Value = serde_json::from_slice(&v2(&api, "", "").body).expect("the text is valid JSON");
        assert!(
            document["parameters"][name].is_object(),
            "the parameter {name} is shared"
        );
        let item = document["paths"][path].to_string();
        assert!(item.contains(&format!("\"#/parameters/{name}\"")), "{item}");
    });
}

#[test]
fn n6_custom_resources_have_openapi_documents() {
    let row = widget();
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "description": "What is wanted.", "properties": {"size": {"type": "integer"}}}}});
    let custom = [CustomSchema {
        row: &row,
        schema: &OpenApiSchema::new(schema.to_string()),
        selectable: &[],
    }];
    let api = OpenApi {
        version: KubernetesVersion::default(),
        builtins: &[],
        custom: &custom,
    };
    let document = document(&api, "apis/shop.example.com/v1");
    let schemas = document["components"]["schemas"]
        .as_object()
        .expect("the value is an object");
    let names: Vec<&str> = schemas
        .keys()
        .map(|name| name.rsplit('.').next().unwrap_or_default())
        .collect();
    let expected = [
        "Widget",
        "WidgetList",
        "Scale",
        "ScaleSpec",
        "ScaleStatus",
        "DeleteOptions",
        "FieldsV1",
        "ListMeta",
        "ManagedFieldsEntry",
        "ObjectMeta",
        "OwnerReference",
        "Patch",
        "Preconditions",
        "ShardInfo",
        "Status",
        "StatusCause",
        "StatusDetails",
        "Time",
    ];
    assert_eq!(names, expected);
    let object = &schemas["com.example.shop.v1.Widget"];
    assert_eq!(object["properties"]["spec"]["description"], "What is wanted.");
    let kind = json!([{"group": "shop.example.com", "version": "v1", "kind": "Widget"}]);
    assert_eq!(object["x-kubernetes-group-version-kind"], kind);
    assert_eq!(
        schemas["com.example.shop.v1.WidgetList"]["description"],
        "WidgetList is a list of Widget"
    );
    let mut paths: Vec<_> = document["paths"].as_object().into_iter().flat_map(Map::keys).collect();
    paths.sort();
    let base = "/apis/shop.example.com/v1/namespaces/{namespace}/widgets";
    let expected = [
        base.to_owned(),
        format!("{base}/{{name}}"),
        format!("{base}/{{name}}/scale"),
        format!("{base}/{{name}}/status"),
        "/apis/shop.example.com/v1/widgets".to_owned(),
    ];
    assert_eq!(paths, expected.iter().collect::<Vec<_>>());
    let patch = &document["paths"][&expected[1]]["patch"]["requestBody"]["content"];
    assert_eq!(patch.as_object().map(Map::len), Some(3));
}

#[test]
fn changed_schema_changes_the_openapi_hash() {
    let row = widget();
    let hash = |schema: &Value| {
        let custom = [CustomSchema {
            row: &row,
            schema: &OpenApiSchema::new(schema.to_string()),
            selectable: &[],
        }];
        let api = OpenApi {
            version: KubernetesVersion::default(),
            builtins: &[],
            custom: &custom,
        };
        api.hash("apis/shop.example.com/v1")
    };
    assert_eq!(hash(&json!({"type": "object"})), hash(&json!({"type": "object"})));
    assert_ne!(
        hash(&json!({"type": "object"})),
        hash(&json!({"type": "object", "nullable": true}))
    );
}

#[test]
fn openapi_field_descriptions_are_found() {
    let text =
        description("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "name").expect("the field has a description");
    assert!(text.starts_with("Name must be unique within a namespace."), "{text}");
    assert_eq!(description("none", ""), None);
}

fn v2(api: &OpenApi<'_>, accept: &str, if_none_match: &str) -> DocumentAnswer {
    api.v2(accept, if_none_match)
}

#[test]
fn n6_v2_document_contains_all_definitions() {
    let row = widget();
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"x-kubernetes-int-or-string": true, "default": 1}}}}});
    let rows: Vec<&ResourceInfo> = builtins(KubernetesVersion::default()).collect();
    let api = OpenApi {
        version: KubernetesVersion::default(),
        builtins: &rows,
        custom: &[CustomSchema {
            row: &row,
            schema: &OpenApiSchema::new(schema.to_string()),
            selectable: &[],
        }],
    };
    let answer = v2(&api, "application/json", "");
    assert_eq!(answer.status, 200);
    let document: Value = serde_json::from_slice(&answer.body).expect("the text is valid JSON");
    let text = document.to_string();
    for word in ["#/components/", "requestBody", "\"allOf\":[", "\"oneOf\":["] {
        assert!(!text.contains(word), "OpenAPI v2 does not have the keyword {word}");
    }
    let definitions = document["definitions"].as_object().expect("the value is an object");
    let lost: Vec<&str> = text
        .split("\"#/definitions/")
        .skip(1)
        .filter_map(|part| part.split('"').next())
        .filter(|name| !definitions.contains_key(name))
        .collect();
    assert_eq!(lost, [""; 0]);
    let pod = &definitions["io.k8s.api.core.v1.Pod"];
    assert_eq!(
        pod["properties"]["spec"]["$ref"],
        "#/definitions/io.k8s.api.core.v1.PodSpec"
    );
    assert_eq!(
        pod["x-kubernetes-group-version-kind"],
        json!([{"group": "", "version": "v1", "kind": "Pod"}])
    );
    let widget = &definitions["com.example.shop.v1.Widget"]["properties"];
    assert_eq!(
        widget["spec"]["properties"]["size"],
        json!({"x-kubernetes-int-or-string": true})
    );
    let patch = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Pod");
    let parameters = patch["parameters"].as_array().expect("the value is a list");
    assert_eq!(parameters[0]["$ref"], "#/parameters/body-78PwaGsr");
    assert!(
        parameters
            .iter()
            .any(|it| it["name"] == "fieldValidation" && it["type"] == "string"),
        "{patch}"
    );
}

#[test]
fn n6_v2_etag_is_derived_from_the_served_resources_in_json_and_protobuf() {
    with_builtins(|api| {
        const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
        let tag_of = |answer: &DocumentAnswer| {
            let (_, tag) = answer
                .headers
                .iter()
                .find(|(name, _)| *name == "etag")
                .expect("the response has an ETag");
            tag.clone()
        };
        let (json, protobuf) = (v2(&api, "", ""), v2(&api, PROTOBUF, ""));
        assert_eq!(tag_of(&json), tag_of(&protobuf));
        assert!(
            protobuf.body.starts_with(b"\x0a\x032.0\x12"),
            "the field swagger comes first"
        );
        assert_eq!(v2(&api, PROTOBUF, &tag_of(&json)).status, 304);
        assert_eq!(v2(&api, "text/html", "").status, 406);
        let fewer = OpenApi {
            version: KubernetesVersion::default(),
            builtins: &api.builtins[1..],
            custom: &[],
        };
        assert_ne!(tag_of(&v2(&fewer, "", "")), tag_of(&json));
    });
}
