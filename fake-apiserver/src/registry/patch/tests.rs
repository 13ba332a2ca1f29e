//! Patches, compared with recorded responses of kube-apiserver.

use rstest::rstest;

use super::{Patched, json_patch, merge_patch, parse_json, strategic_patch};
use crate::api::json::{Value, json};
use crate::api::status::Status;
use crate::registry::types::go_text::go_text;
use crate::registry::types::schema::SchemaRef;
use crate::registry::types::schema::builtin::shape_of;

fn builtin(group: &str, version: &str, kind: &str) -> SchemaRef<'static> {
    SchemaRef::Builtin(shape_of(group, version, kind).expect("the kind is built in"))
}

/// Returns the patched value, or the code and the message of the error.
fn outcome(patched: Result<Patched, Status>) -> Result<Value, (u16, String)> {
    patched
        .map(|it| it.value)
        .map_err(|status| (status.code, status.message))
}

fn config_map() -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v", "m": "moved"}})
}

#[rstest]
#[case::replace_of_a_missing_field(json!([{"op": "replace", "path": "/data/none", "value": "x"}]),
    json!({"k": "v", "m": "moved", "none": "x"}))]
#[case::copy_and_move(json!([{"op": "copy", "from": "/data/k", "path": "/data/copy"},
    {"op": "move", "from": "/data/m", "path": "/data/there"}]), json!({"k": "v", "copy": "v", "there": "moved"}))]
#[case::copy_of_a_missing_value(json!([{"op": "copy", "from": "/data/none", "path": "/data/x"}]),
    json!({"k": "v", "m": "moved", "x": null}))]
#[case::successful_test(json!([{"op": "test", "path": "/data/k", "value": "v"}, {"op": "remove", "path": "/data/m"}]),
    json!({"k": "v"}))]
#[case::test_of_a_missing_field(json!([{"op": "test", "path": "/data/none"}]), json!({"k": "v", "m": "moved"}))]
#[case::whole_document(json!([{"op": "replace", "path": "", "value": {"data": {"z": "1"}}}]), json!({"z": "1"}))]
#[case::escaped_path(json!([{"op": "add", "path": "/data/a~1b~0c", "value": 1}, {"op": "remove", "path": "/data/m"}]),
    json!({"k": "v", "a/b~c": 1}))]
#[case::null_body(Value::Null, json!({"k": "v", "m": "moved"}))]
fn g2_json_patches_are_applied(#[case] patch: Value, #[case] data: Value) {
    let done = outcome(json_patch(config_map(), patch.to_string().as_bytes())).expect("the patch applies");
    assert_eq!(done["data"], data);
}

#[rstest]
#[case(json!([{"op": "add", "path": "/-1", "value": 9}]), json!([1, 2, 3, 9]))]
#[case(json!([{"op": "add", "path": "/-", "value": 9}]), json!([1, 2, 3, 9]))]
#[case(json!([{"op": "add", "path": "/0", "value": 9}]), json!([9, 1, 2, 3]))]
#[case(json!([{"op": "add", "path": "/3", "value": 9}]), json!([1, 2, 3, 9]))]
#[case(json!([{"op": "remove", "path": "/-1"}]), json!([1, 2]))]
#[case(json!([{"op": "replace", "path": "/-3", "value": 9}]), json!([9, 2, 3]))]
fn g2_list_indices_are_resolved(#[case] patch: Value, #[case] list: Value) {
    let mut patch = patch;
    let path = format!("/list{}", patch[0]["path"].as_str().unwrap_or_default());
    patch[0]["path"] = path.into();
    let done =
        outcome(json_patch(json!({"list": [1, 2, 3]}), patch.to_string().as_bytes())).expect("the patch applies");
    assert_eq!(done["list"], list);
}

#[rstest]
#[case(json!([{"op": "remove", "path": "/data/none"}]))]
#[case(json!([{"op": "add", "path": "/metadata/labels/x", "value": "y"}]))]
#[case(json!([{"op": "remove", "path": "/metadata/finalizers/0"}]))]
#[case(json!([{"op": "move", "from": "/data/none", "path": "/data/x"}]))]
#[case(json!([{"op": "test", "path": "/data/absent", "value": "v"}]))]
#[case(json!([{"op": "test", "path": "", "value": {}}]))]
#[case(json!([{"op": "remove", "path": ""}]))]
#[case(json!([{"op": "explode", "path": "/data/k"}]))]
#[case(json!([{"op": "replace", "path": "/nothing/x", "value": "w"}]))]
#[case(json!([{"op": "add", "path": "/data/k/deep", "value": "w"}]))]
#[case(json!([{}]))]
#[case(json!([null]))]
fn g2_inapplicable_json_patches_fail(#[case] patch: Value) {
    let error = json_patch(config_map(), patch.to_string().as_bytes()).expect_err("the patch fails");
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "the server rejected our request due to an error in our request",
        "reason": "Invalid", "details": {}, "code": 422
    });
    assert_eq!(Value::from(error.to_value()), body);
}

#[rstest]
#[case(
    r#"{"op":"remove"}"#,
    "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
)]
#[case("[1]", "json: cannot unmarshal number into Go value of type handlers.jsonPatchOp")]
#[case(
    r#"[{"op":1}]"#,
    "json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"
)]
#[case("[", "unexpected end of JSON input")]
fn g1_malformed_json_patches_are_refused(#[case] body: &str, #[case] text: &str) {
    let error = outcome(json_patch(config_map(), body.as_bytes())).expect_err("the patch fails");
    assert_eq!(error, (400, format!("error decoding patch: {text}")));
}

#[test]
fn a20_json_patch_is_limited_to_ten_thousand_operations() {
    let operations = |n| Value::Array(vec![json!({"op": "test", "path": "/data/k", "value": "v"}); n]).to_string();
    assert!(json_patch(config_map(), operations(10_000).as_bytes()).is_ok());
    let text = "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001";
    let error = outcome(json_patch(config_map(), operations(10_001).as_bytes()))
        .expect_err("the patch has too many operations");
    assert_eq!(error, (413, text.to_owned()));
}

#[test]
fn copy_operations_of_json_patches_are_bounded_in_size_and_depth() {
    let copies = vec![json!({"op": "copy", "from": "/data", "path": "/data/x"}); 200];
    let error = outcome(json_patch(config_map(), Value::Array(copies).to_string().as_bytes()));
    assert_eq!(error.expect_err("the result is too deep or too large").0, 422);
    let siblings = (0..40).map(|i| json!({"op": "copy", "from": "", "path": format!("/x{i}")}));
    assert!(json_patch(config_map(), Value::Array(siblings.collect()).to_string().as_bytes()).is_err());
}

#[test]
fn unknown_and_duplicate_fields_in_patches_are_strict_errors() {
    let body = br#"[{"op":"test","path":"/data/k","value":"v","extra":1}]"#;
    let patched = json_patch(config_map(), body).expect("the patch applies");
    assert_eq!(patched.strict_errors, [r#"json patch unknown field "[0].extra""#]);
    let patched = merge_patch(config_map(), br#"{"data":{"k":"1","k":"2"}}"#).expect("the patch applies");
    assert_eq!(patched.strict_errors, [r#"duplicate field "data.k""#]);
    assert_eq!(patched.value["data"]["k"], "2");
}

#[test]
fn only_the_first_hundred_duplicate_fields_of_a_patch_are_reported() {
    let fields: Vec<String> = (0..150).map(|at| format!(r#""k{at}":"1","k{at}":"2""#)).collect();
    let body = format!(r#"{{"data":{{{}}}}}"#, fields.join(","));
    let patched = merge_patch(config_map(), body.as_bytes()).expect("the patch applies");
    let errors = patched.strict_errors;
    assert_eq!(errors.len(), 100);
    assert_eq!(errors[99], r#"duplicate field "data.k99""#);
}

#[rstest]
#[case(json!({"data": {"m": null, "new": "n"}}), json!({"k": "v", "new": "n"}))]
#[case(json!({"data": {"never": null}}), json!({"k": "v", "m": "moved"}))]
#[case(json!({"data": {"k": {"a": null, "b": [{"c": null}]}, "m": null}}), json!({"k": {"b": [{}]}}))]
#[case(json!({}), json!({"k": "v", "m": "moved"}))]
fn g3_merge_patches_follow_rfc_7386(#[case] patch: Value, #[case] data: Value) {
    let done = outcome(merge_patch(config_map(), patch.to_string().as_bytes())).expect("the patch applies");
    assert_eq!(done["data"], data);
}

#[rstest]
#[case("{", "error decoding patch: unexpected end of JSON input")]
#[case(
    "[]",
    "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
)]
#[case(
    "\"x\"",
    "error decoding patch: json: cannot unmarshal string into Go value of type map[string]interface {}"
)]
#[case(
    "data: {k: w}",
    "error decoding patch: invalid character 'd' looking for beginning of value"
)]
#[case("", "error decoding patch: unexpected end of JSON input")]
#[case("null", "Invalid JSON Patch")]
fn g1_malformed_merge_patches_are_refused(#[case] body: &str, #[case] text: &str) {
    let error = outcome(merge_patch(config_map(), body.as_bytes())).expect_err("the patch fails");
    assert_eq!(error, (400, text.to_owned()));
}

#[rstest]
#[case("{", "unexpected end of JSON input")]
#[case("[]", "json: cannot unmarshal array into Go value of type map[string]interface {}")]
fn g1_malformed_strategic_patches_are_refused(#[case] body: &str, #[case] text: &str) {
    let error =
        outcome(strategic_patch(config_map(), body.as_bytes(), SchemaRef::Deduced)).expect_err("the patch fails");
    assert_eq!(error, (400, text.to_owned()));
}

fn pod_spec(spec: Value) -> Value {
    json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "d"},
        "spec": {"replicas": 2, "template": {"spec": spec}}})
}

fn patch_pod_spec(spec: Value, patch: Value) -> Result<Value, (u16, String)> {
    let schema = builtin("apps", "v1", "Deployment");
    let body = json!({"spec": {"template": {"spec": patch}}}).to_string();
    let done = outcome(strategic_patch(pod_spec(spec), body.as_bytes(), schema))?;
    Ok(done["spec"]["template"]["spec"].clone())
}

#[rstest]
#[case::atomic_args(json!({"containers": [{"name": "c", "args": ["z"], "command": ["run"]}]}),
    json!([{"name": "c", "image": "1", "args": ["z"], "command": ["run"]}, {"name": "e", "image": "2"}]))]
#[case::delete(json!({"containers": [{"name": "e", "$patch": "delete"}]}),
    json!([{"name": "c", "image": "1", "args": ["a", "b"]}]))]
#[case::replace(json!({"containers": [{"name": "only", "image": "5"}, {"$patch": "replace"}]}),
    json!([{"name": "only", "image": "5"}]))]
#[case::new_item(json!({"containers": [{"name": "n"}, {"name": "e", "image": "3"}]}),
    json!([{"name": "n"}, {"name": "c", "image": "1", "args": ["a", "b"]}, {"name": "e", "image": "3"}]))]
#[case::explicit_order(json!({"$setElementOrder/containers": [{"name": "e"}, {"name": "c"}], "containers": []}),
    json!([{"name": "e", "image": "2"}, {"name": "c", "image": "1", "args": ["a", "b"]}]))]
fn g5_lists_of_maps_are_merged_by_key(#[case] patch: Value, #[case] containers: Value) {
    let spec = json!({"containers": [{"name": "c", "image": "1", "args": ["a", "b"]}, {"name": "e", "image": "2"}]});
    assert_eq!(
        patch_pod_spec(spec, patch).expect("the patch applies")["containers"],
        containers
    );
}

#[test]
fn g5_env_and_ports_are_merged_by_key() {
    let spec = json!({"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
        "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 90, "name": "adm"}]}]});
    let patch = json!({"containers": [{"name": "c",
        "env": [{"name": "B", "value": "9"}, {"name": "C", "value": "3"}, {"name": "A", "$patch": "delete"}],
        "ports": [{"containerPort": 80, "name": "web"}, {"containerPort": 53, "protocol": "UDP"}]}]});
    let done = patch_pod_spec(spec, patch).expect("the patch applies");
    assert_eq!(
        done["containers"][0],
        json!({"name": "c", "env": [{"name": "B", "value": "9"}, {"name": "C", "value": "3"}],
            "ports": [{"containerPort": 80, "name": "web"}, {"containerPort": 53, "protocol": "UDP"},
                {"containerPort": 90, "name": "adm"}]})
    );
    let nulls = json!({"containers": [{"name": "c", "env": null, "ports": [{"containerPort": 80, "name": null}]}]});
    let done = patch_pod_spec(done, nulls).expect("the patch applies");
    assert_eq!(done["containers"][0]["ports"][0], json!({"containerPort": 80}));
    assert_eq!(done["containers"][0].get("env"), None);
}

#[test]
fn g6_retain_keys_removes_other_fields() {
    let spec = json!({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "o", "emptyDir": {}}]});
    let patch = json!({"volumes": [{"$retainKeys": ["configMap", "name"], "name": "v", "configMap": {"name": "x"}}]});
    let done = patch_pod_spec(spec.clone(), patch).expect("the patch applies");
    let volumes = json!([{"name": "v", "configMap": {"name": "x"}}, {"name": "o", "emptyDir": {}}]);
    assert_eq!(done["volumes"], volumes);
    let mismatch = json!({"volumes": [{"$retainKeys": ["name"], "name": "v", "configMap": {"name": "x"}}]});
    let error = patch_pod_spec(spec, mismatch).expect_err("the patch fails");
    assert_eq!(error, (400, "invalid patch format of retainKeys".to_owned()));
}

#[rstest]
#[case(json!({"finalizers": ["e.com/c", "e.com/a"]}), json!(["e.com/c", "e.com/a", "e.com/b"]))]
#[case(json!({"$deleteFromPrimitiveList/finalizers": ["e.com/b"]}), json!(["e.com/a"]))]
#[case(json!({"finalizers": null}), Value::Null)]
fn g6_primitive_lists_are_merged_as_sets(#[case] metadata: Value, #[case] finalizers: Value) {
    let object = json!({"kind": "ConfigMap", "metadata": {"name": "a", "finalizers": ["e.com/a", "e.com/b"]}});
    let body = json!({"metadata": metadata}).to_string();
    let done =
        outcome(strategic_patch(object, body.as_bytes(), builtin("", "v1", "ConfigMap"))).expect("the patch applies");
    assert_eq!(
        done["metadata"].get("finalizers").cloned().unwrap_or_default(),
        finalizers
    );
}

#[rstest]
#[case(json!({"data": {"k": null}}), json!({"m": "moved"}))]
#[case(json!({"data": {"$patch": "replace", "c": "3"}}), json!({"c": "3"}))]
#[case(json!({"data": {"$patch": "delete"}}), json!({}))]
#[case(json!({"dada": {"k": "w"}}), json!({"k": "v", "m": "moved"}))]
fn g6_map_directives_are_applied(#[case] patch: Value, #[case] data: Value) {
    let schema = builtin("", "v1", "ConfigMap");
    let done = outcome(strategic_patch(config_map(), patch.to_string().as_bytes(), schema)).expect("the patch applies");
    assert_eq!(done["data"], data);
}

/// Go's `mergeMap` discards nulls in values that the original lacks, then maps with a directive.
#[rstest]
#[case::nulls_of_a_map(json!({"nodeSelector": {"a": null, "b": "c"}}), json!({"nodeSelector": {"b": "c"}}))]
#[case::nulls_of_a_nested_map(json!({"affinity": {"nodeAffinity": null, "podAffinity": {"x": null}}}),
    json!({"affinity": {"podAffinity": {}}}))]
#[case::nulls_in_items(json!({"volumes": [{"name": "v", "emptyDir": {"medium": null}}]}),
    json!({"volumes": [{"name": "v", "emptyDir": {}}]}))]
#[case::replacement(json!({"nodeSelector": {"$patch": "replace", "a": "b"}}), json!({}))]
#[case::deletion(json!({"nodeSelector": {"$patch": "delete"}}), json!({}))]
#[case::unknown_directive(json!({"nodeSelector": {"$patch": "explode"}}), json!({}))]
#[case::items_with_directives(json!({"volumes": [{"$patch": "replace"}, {"name": "v"}, {"name": "w", "$patch": "delete"}]}),
    json!({"volumes": [{"name": "v"}]}))]
#[case::items_with_an_order(json!({"$setElementOrder/volumes": [{"name": "w"}, {"name": "v"}],
    "volumes": [{"name": "w"}, {"name": "x", "$patch": "delete"}, {"name": "v"}]}),
    json!({"volumes": [{"name": "w"}, {"name": "v"}]}))]
#[case::other_directives(json!({"nodeSelector": {"$retainKeys": ["a"], "a": "b"}}),
    json!({"nodeSelector": {"$retainKeys": ["a"], "a": "b"}}))]
#[case::deletion_from_a_missing_list(json!({"$deleteFromPrimitiveList/dnsPolicy": ["a"]}), json!({}))]
#[case::map_for_a_string_field(json!({"hostname": {"a": null, "b": {"$patch": "replace"}, "c": 1}}), json!({"hostname": {"c": 1}}))]
#[case::nested_directives_in_an_added_item(
    json!({"containers": [{"name": "e", "env": [{"name": "x", "$patch": "replace"}],
    "image": null}]}), json!({"containers": [{"name": "e", "env": [{"name": "x", "$patch": "replace"}], "image": null},
    {"name": "c"}]}))]
#[case::deletion_of_the_last_item(
    json!({"$setElementOrder/containers": [], "containers": [{"name": "c", "$patch": "delete"}]}),
    json!({"containers": []}))]
#[case::deletion_regardless_of_the_patch_strategy(
    json!({"containers": [{"name": "c", "$deleteFromPrimitiveList/args": ["a"]}]}),
    json!({"containers": [{"name": "c"}]}))]
fn g6_directives_and_nulls_for_missing_fields_are_removed(#[case] patch: Value, #[case] changed: Value) {
    let mut wanted = json!({"containers": [{"name": "c"}], "hostname": "h"});
    for (field, value) in changed.as_object().into_iter().flatten() {
        wanted[field] = value.clone();
    }
    let spec = json!({"containers": [{"name": "c"}], "hostname": "h"});
    assert_eq!(patch_pod_spec(spec, patch).expect("the patch applies"), wanted);
}

#[test]
fn g5_owner_references_are_merged_by_uid() {
    let object = json!({"metadata": {"ownerReferences": [{"uid": "o", "name": "o"}]}});
    let body = json!({"metadata": {"ownerReferences": [{"uid": "q", "name": "q"}, {"uid": "o", "controller": true}]}});
    let schema = builtin("", "v1", "ConfigMap");
    let done = outcome(strategic_patch(object, body.to_string().as_bytes(), schema)).expect("the patch applies");
    assert_eq!(
        done["metadata"]["ownerReferences"],
        json!([{"uid": "q", "name": "q"}, {"uid": "o", "name": "o", "controller": true}])
    );
}

#[rstest]
#[case(json!({"$setElementOrder/containers": [{"name": "c"}], "containers": [{"name": "e", "image": "img:4"}]}), 500,
    "The order in patch list:\n[map[image:img:4 name:e]]\n doesn't match $setElementOrder list:\n[map[name:c]]\n")]
#[case(json!({"$setElementOrder/containers": "x"}), 500, "expected a []interface {}, but received a string")]
#[case(json!({"containers": [{"image": "x"}]}), 500,
    "map: map[image:x] does not contain declared merge key: name")]
#[case(json!({"containers": [{"name": "c", "$patch": "explode"}]}), 500,
    "unknown patch type: explode in map: map[$patch:explode name:c]")]
#[case(json!({"$patch": "merge"}), 500, "unknown patch type: merge in map: map[$patch:merge]")]
#[case(json!({"$retainKeys": "x"}), 400, "invalid patch format of retainKeys")]
#[case(json!({"$deleteFromPrimitiveList": ["x"]}), 400, "invalid patch format of primitive list")]
fn g7_invalid_directives_are_refused(#[case] patch: Value, #[case] code: u16, #[case] text: &str) {
    let spec = json!({"containers": [{"name": "c"}, {"name": "e"}]});
    assert_eq!(patch_pod_spec(spec, patch), Err((code, text.to_owned())));
}

#[test]
fn strategic_patch_is_printed_as_in_go() {
    let body = br#"{"data":{"k":5,"f":1.5e30,"l":["a",null,true]}}"#;
    let patched = strategic_patch(config_map(), body, SchemaRef::Deduced).expect("the patch applies");
    assert_eq!(
        patched.shown.as_deref(),
        Some("map[data:map[f:1.5e+30 k:5 l:[a <nil> true]]]")
    );
    assert_eq!(go_text(&json!({"a": 1.0})), "map[a:1]");
}

#[rstest]
#[case("{\"a\" 1}", "invalid character '1' after object key")]
#[case("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair")]
#[case("[1 2]", "invalid character '2' after array element")]
#[case("{} x", "invalid character 'x' after top-level value")]
#[case("{,}", "invalid character ',' looking for beginning of object key string")]
#[case("[1,]", "invalid character ']' looking for beginning of value")]
#[case("nul", "unexpected end of JSON input")]
#[case("nulk", "invalid character 'k' in literal null (expecting 'l')")]
#[case("\"\\x\"", "invalid character 'x' in string escape code")]
#[case("\"\u{1}\"", "invalid character '\\x01' in string literal")]
#[case("-x", "invalid character 'x' in numeric literal")]
#[case("1.x", "invalid character 'x' after decimal point in numeric literal")]
#[case("'a'", "invalid character '\\'' looking for beginning of value")]
fn a15_syntax_errors_have_the_same_messages_as_in_go(#[case] body: &str, #[case] text: &str) {
    assert_eq!(parse_json(body.as_bytes()), Err(text.to_owned()));
}

#[test]
fn deeply_nested_json_is_refused() {
    let body = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    assert_eq!(parse_json(body.as_bytes()), Err("exceeded max depth".to_owned()));
    let body = "[".repeat(200_000);
    assert!(parse_json(body.as_bytes()).is_err());
}
