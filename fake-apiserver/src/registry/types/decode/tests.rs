use super::*;
use crate::api::json::json;
use rstest::rstest;

fn wanted<'a>(group: &'a str, version: &'a str, kind: &'a str) -> Wanted<'a> {
    Wanted {
        group,
        version,
        kind,
        shape: None,
    }
}

const CONFIG_MAP: Wanted<'static> = Wanted {
    group: "",
    version: "v1",
    kind: "ConfigMap",
    shape: None,
};
const DEPLOYMENT: Wanted<'static> = Wanted {
    group: "apps",
    version: "v1",
    kind: "Deployment",
    shape: None,
};

fn body(wanted: Wanted<'_>, raw: &str, strictness: FieldValidation) -> Result<(Value, Vec<String>), Status> {
    let (mut object, repeats_key) = parse(raw.as_bytes(), wanted.kind)?;
    let raw = raw.as_bytes();
    let (warnings, _) = decode(wanted, &mut object, Text { raw, repeats_key }, None, strictness)?;
    Ok((Value::Object(object.0), warnings))
}

fn duplicates(raw: &str) -> Vec<String> {
    let repeats_key = parse(raw.as_bytes(), "").is_ok_and(|(_, repeats_key)| repeats_key);
    let raw = raw.as_bytes();
    duplicate_fields(Text { raw, repeats_key })
}

fn refusal(wanted: Wanted<'_>, raw: &str) -> String {
    let status = body(wanted, raw, FieldValidation::Strict).expect_err("the body is refused");
    assert_eq!((status.code, &*status.reason), (400, "BadRequest"));
    status.message
}

fn pod(spec: Value) -> Value {
    let raw = json!({"metadata": {"name": "a"}, "spec": spec}).to_string();
    let (object, warnings) = body(wanted("", "v1", "Pod"), &raw, FieldValidation::Strict).expect("the body is a Pod");
    assert!(warnings.is_empty());
    object["spec"].clone()
}

#[rstest]
#[case("{", "couldn't get version/kind; json parse error: unexpected end of JSON input ({)")]
#[case(
    "",
    "couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)"
)]
#[case(
    "hello, this is not an object at all",
    "couldn't get version/kind; json parse error: invalid character 'h' looking for beginning of value \
     (68656c6c6f2c2074686973206973206e6f7420616e206f626a6563742061 ...)"
)]
#[case(
    "{\"apiVersion\":\"a/b/c\",\"kind\":\"ConfigMap\"}",
    "unexpected GroupVersion string: a/b/c ({\"apiVersion\":\"a/b/c\",\"kind\":\" ...)"
)]
fn a15_body_without_a_usable_kind_is_refused(#[case] raw: &str, #[case] error: &str) {
    let expected = format!("the object provided is unrecognized (must be of type ConfigMap): {error}");
    assert_eq!(refusal(CONFIG_MAP, raw), expected);
}

#[rstest]
#[case("v1", "Secret", "converting (v1.Secret) to (core.ConfigMap): unknown conversion")]
#[case(
    "v1",
    "ConfigMapList",
    "converting (v1.ConfigMapList) to (core.ConfigMap): unknown conversion"
)]
#[case(
    "apps/v1",
    "Deployment",
    "converting (v1.Deployment) to (core.ConfigMap): unknown conversion"
)]
#[case(
    "v1",
    "Nothing",
    "no kind \"Nothing\" is registered for version \"v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\""
)]
#[case(
    "example.com/v1",
    "ConfigMap",
    "no kind \"ConfigMap\" is registered for version \"example.com/v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\""
)]
fn a15_object_of_another_kind_is_refused(#[case] api_version: &str, #[case] kind: &str, #[case] error: &str) {
    let raw = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}}).to_string();
    let expected = format!("{kind} in version \"v1\" cannot be handled as a ConfigMap: {error}");
    assert_eq!(refusal(CONFIG_MAP, &raw), expected);
}

#[test]
fn a15_missing_kind_is_taken_from_the_path() {
    let (object, _) = body(DEPLOYMENT, "{\"kind\":null}", FieldValidation::Strict).expect("the body is valid");
    assert_eq!(
        (&object["kind"], &object["apiVersion"]),
        (&json!("Deployment"), &json!("apps/v1"))
    );
    assert_eq!(
        refusal(
            DEPLOYMENT,
            "{\"apiVersion\":\"extensions/v1beta1\",\"kind\":\"Deployment\"}"
        ),
        "the API version in the data (extensions/v1beta1) does not match the expected API version (apps/v1)"
    );
    let raw = "{\"apiVersion\":\"autoscaling/v1\",\"kind\":\"HorizontalPodAutoscaler\"}";
    assert_eq!(
        refusal(wanted("autoscaling", "v2", "HorizontalPodAutoscaler"), raw),
        "the API version in the data (autoscaling/v1) does not match the expected API version (autoscaling/v2)"
    );
}

#[rstest]
#[case("", "ConfigMap", json!({"data": {"k": 5}}), "json: cannot unmarshal number into Go struct field ConfigMap.data of type string")]
#[case("", "ConfigMap", json!({"metadata": {"labels": {"x": true}}}), "json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.labels of type string")]
#[case("", "ConfigMap", json!({"metadata": "x"}), "json: cannot unmarshal string into Go struct field ConfigMap.metadata of type v1.ObjectMeta")]
#[case("", "ConfigMap", json!({"metadata": {"creationTimestamp": "yesterday"}}), "parsing time \"yesterday\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"yesterday\" as \"2006\"")]
#[case("", "Secret", json!({"data": {"k": "***"}}), "illegal base64 data at input byte 0")]
#[case("apps", "Deployment", json!({"spec": {"replicas": "2"}}), "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32")]
#[case("apps", "Deployment", json!({"spec": {"replicas": 3_000_000_000_u32}}), "json: cannot unmarshal number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32")]
#[case("", "Pod", json!({"spec": {"containers": {"name": "c"}}}), "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container")]
#[case("", "Pod", json!({"metadata": {"labels": {"x": true}}, "spec": {"containers": {}}}), "json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.labels of type string")]
#[case("", "Pod", json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "lots"}}}]}}), "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
#[case("", "Pod", json!({"spec": {"volumes": [{"iscsi": {"targetPortal": []}}]}}), "json: cannot unmarshal array into Go struct field ISCSIVolumeSource.spec.volumes.VolumeSource.iscsi.targetPortal of type string")]
#[case("", "Pod", json!({"spec": {"containers": 1, "overhead": {"cpu": {}}}}), "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
#[case("apiextensions.k8s.io", "CustomResourceDefinition", json!({"spec": {"names": 1, "versions": [{"schema": {"openAPIV3Schema": {"items": {"x-kubernetes-validations": [{"rule": 1}]}}}}]}}), "json: cannot unmarshal number into Go struct field JSONSchemaProps.spec.versions.schema.openAPIV3Schema.items.x-kubernetes-validations.rule of type string")]
#[case("", "Service", json!({"spec": {"ports": [{"targetPort": 1.5}]}}), "json: cannot unmarshal number 1.5 into Go struct field ServicePort.spec.ports.targetPort of type int32")]
fn a15_wrong_types_are_refused(#[case] group: &str, #[case] kind: &str, #[case] value: Value, #[case] error: &str) {
    let expected = format!("{kind} in version \"v1\" cannot be handled as a {kind}: {error}");
    assert_eq!(refusal(wanted(group, "v1", kind), &value.to_string()), expected);
}

const SEVERAL: &str = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","bogus":1},"spec":{"replicas":1,"replicas":2,"paused":false,"Paused":true,"foo":{"a":1,"a":2},"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i","imagee":"j"}]}}}}"#;

#[test]
fn l2_strict_errors_are_in_document_order() {
    assert_eq!(
        refusal(DEPLOYMENT, SEVERAL),
        "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: \
         unknown field \"metadata.bogus\", duplicate field \"spec.replicas\", unknown field \"spec.Paused\", \
         unknown field \"spec.foo\", unknown field \"spec.template.spec.containers[0].imagee\""
    );
}

#[rstest::rstest]
#[case(r#"{"k:{\"name\":\"a\"}":1,"k:{\"name\":\"b\"}":1}"#, &[])]
#[case(r#"{"k:{\"name\":\"a\"}":1,"k:{\"name\":\"a\"}":1}"#, &["k:{\"name\":\"a\"}"])]
#[case(r#"{"k\"":1,"k\u0022":1}"#, &["k\""])]
#[case(r#"{"a\/b":1,"a/b":1}"#, &["a/b"])]
fn escaped_keys_are_compared_after_decoding(#[case] raw: &str, #[case] repeated: &[&str]) {
    assert_eq!(duplicates(raw), repeated);
}

#[test]
fn l1_warn_reports_dropped_fields_and_ignore_does_not() {
    let (object, warnings) = body(DEPLOYMENT, SEVERAL, FieldValidation::Warn).expect("the body is a Deployment");
    assert_eq!(warnings.len(), 5);
    assert_eq!(object["spec"]["replicas"], 2);
    assert_eq!(object["spec"].get("foo"), None);
    let (_, warnings) = body(DEPLOYMENT, SEVERAL, FieldValidation::Ignore).expect("the body is a Deployment");
    assert!(warnings.is_empty());
}

#[test]
fn l1_unknown_field_causes_a_warning_and_is_dropped() {
    let (object, warnings) =
        body(CONFIG_MAP, "{\"Data\":{\"k\":\"v\"}}", FieldValidation::Warn).expect("the body is a ConfigMap");
    assert_eq!(warnings, ["unknown field \"Data\""]);
    assert_eq!(object, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}));
}

#[rstest]
#[case(r#"{"spec":{"a":"1","a":"2"}}"#, &["spec.a"])]
#[case(r#"{"a":[{"b":1},{"b":1,"b":2}],"a":3}"#, &["a[1].b", "a"])]
#[case(r#"{"a":1,"\u0061":2}"#, &["a"])]
#[case(r#"{"a":{"x":1},"b":{"x":1},"c":["a","a"]}"#, &[])]
#[case(r#"{"a":"b\"","b":"a","c":"{\"a\":1,\"a\":2}"}"#, &[])]
#[case(r#"{"a"#, &[])]
fn l1_duplicate_fields_are_found_in_raw_json(#[case] raw: &str, #[case] expected: &[&str]) {
    assert_eq!(duplicates(raw), expected);
}

#[test]
fn l1_duplicate_fields_are_found_among_many_keys() {
    let keys = |n: usize| (0..n).map(|i| format!("\"k{i}\":1,")).collect::<String>();
    assert!(duplicates(&format!("{{{}\"z\":1}}", keys(100))).is_empty());
    assert_eq!(duplicates(&format!("{{{}\"k7\":1}}", keys(100))), ["k7"]);
}

#[test]
fn a32_empty_object_has_the_fields_that_go_always_encodes() {
    let (object, _) = body(DEPLOYMENT, "{}", FieldValidation::Strict).expect("the body is a Deployment");
    let expected = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "status": {},
        "spec": {"selector": null, "strategy": {}, "template": {"metadata": {}, "spec": {"containers": null}}},
    });
    assert_eq!(object, expected);
}

#[test]
fn a32_only_zero_values_of_pointers_are_kept() {
    let spec = pod(json!({
        "containers": [{"name": "c", "image": "", "args": [], "stdin": false, "resources": {"limits": {"cpu": "1000m"}},
            "ports": [{"containerPort": 0, "hostPort": 0}],
            "securityContext": {}, "env": [{"name": "A", "value": ""}]}],
        "terminationGracePeriodSeconds": 0, "hostNetwork": false, "nodeSelector": {}, "tolerations": null,
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "0.5Gi"}}],
    }));
    let expected = json!({
        "containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}, "ports": [{"containerPort": 0}],
            "securityContext": {}, "env": [{"name": "A"}]}],
        "terminationGracePeriodSeconds": 0,
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "512Mi"}}],
    });
    assert_eq!(spec, expected);
}

#[test]
fn nulls_are_decoded_as_in_go() {
    let raw = r#"{"metadata":null,"data":{"a":null,"b":"c"},"binaryData":{"d":[0,null,2]},"immutable":null}"#;
    let (object, _) = body(CONFIG_MAP, raw, FieldValidation::Strict).expect("the body is a ConfigMap");
    let expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": {"a": "", "b": "c"},
        "binaryData": {"d": "AAAC"}});
    assert_eq!(object, expected);
}

#[test]
fn crd_schema_keeps_items_additional_properties_and_defaults() {
    let raw =
        json!({"spec": {"group": "a.b", "names": {"kind": "A", "plural": "as"}, "scope": "Cluster", "versions": [{
        "name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "a": {"type": "array", "items": {"type": "string", "bogus": 1}, "default": [null, {"x": 1}]},
            "b": {"additionalProperties": false, "maximum": 1.0}}}}}]}})
        .to_string();
    let wanted = wanted("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let (object, warnings) = body(wanted, &raw, FieldValidation::Warn).expect("the body is a definition");
    assert!(
        warnings.is_empty(),
        "a schema below `items` decodes itself: {warnings:?}"
    );
    let properties = &object["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    let expected = json!({
        "a": {"type": "array", "items": {"type": "string"}, "default": [null, {"x": 1}]},
        "b": {"additionalProperties": false, "maximum": 1},
    });
    assert_eq!(properties, &expected);
}

#[test]
fn fields_of_wrong_types_do_not_panic() {
    for value in [
        json!(null),
        json!(true),
        json!(1e300),
        json!("x"),
        json!([[]]),
        json!({"": {"": []}}),
    ] {
        for name in ["metadata", "spec", "status", "data", "kind", "apiVersion"] {
            for kind in ["Pod", "ConfigMap", "Node", "Secret", "Service", "Event"] {
                let raw = json!({ name: value.clone() }).to_string();
                let _ = body(wanted("", "v1", kind), &raw, FieldValidation::Strict);
            }
        }
    }
}

#[test]
fn too_deeply_nested_document_is_refused() {
    let mut schema = json!({});
    for _ in 0..1000 {
        schema = json!({ "not": schema });
    }
    let value = json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}});
    let Value::Object(mut object) = value else {
        unreachable!("the value is an object")
    };
    let shape = shape_of("apiextensions.k8s.io", "v1", "CustomResourceDefinition").expect("the kind is built in");
    assert_eq!(convert(shape, &mut object), Err("exceeded max depth".to_owned()));
}

#[rstest]
#[case::whole_float(json!({"replicas": 2.0}), Ok(json!({"replicas": 2})))]
#[case::integer_overflow_wraps(json!({"replicas": 4_294_967_297_i64}), Ok(json!({"replicas": 1})))]
#[case::integer_beyond_64_bits(json!({"replicas": 9_223_372_036_854_775_808_u64}), Ok(json!({"replicas": 0})))]
#[case::fraction(json!({"replicas": 1.5}), Err("cannot convert float64 to int32"))]
#[case::string_instead_of_a_number(json!({"replicas": "2"}), Err("unrecognized type: int32"))]
#[case::number_instead_of_a_string(json!({"serviceName": 1}), Err("cannot convert int64 to string"))]
#[case::list_instead_of_a_string(json!({"serviceName": []}), Err("unrecognized type: string"))]
#[case::map_instead_of_a_list(json!({"volumeClaimTemplates": {}}), Err("cannot restore slice from map"))]
#[case::bool_instead_of_a_struct(json!({"template": true}), Err("cannot restore struct from: bool"))]
#[case::struct_fields_in_declaration_order(
    json!({"podManagementPolicy": [], "template": 1}),
    Err("cannot restore struct from: int64")
)]
fn unstructured_values_are_converted_as_in_go(#[case] spec: Value, #[case] expected: Result<Value, &str>) {
    let shape = shape_of("apps", "v1", "StatefulSet").expect("StatefulSets are served");
    let mut set = Object(Map::from_iter([("spec".to_owned(), spec)]));
    let restored = restore(shape, &mut set).map(|()| set["spec"].clone());
    assert_eq!(restored, expected.map_err(str::to_owned));
}

#[rstest]
#[case(
    r#"{"spec":{"replicas":"x","paused":1}}"#,
    "DeploymentSpec.spec.replicas of type int32"
)]
#[case(r#"{"spec":{"paused":1,"replicas":"x"}}"#, "DeploymentSpec.spec.paused of type bool")]
#[case::error_that_ends_decoding(
    r#"{"spec":{"replicas":"x","strategy":{"rollingUpdate":{"maxSurge":true}}}}"#,
    "RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge of type int32"
)]
fn first_wrong_type_in_the_document_is_reported(#[case] raw: &str, #[case] expected: &str) {
    let refusal = refusal(wanted("apps", "v1", "Deployment"), raw);
    assert!(refusal.ends_with(expected), "{refusal}");
}

#[rstest]
#[case(
    DEPLOYMENT,
    r#"{"spec":{"replicas":NUMBER}}"#,
    "DeploymentSpec.spec.replicas of type int32"
)]
#[case(
    wanted("", "v1", "Service"),
    r#"{"spec":{"ports":[{"port":1},{"targetPort":NUMBER}]}}"#,
    "ServicePort.spec.ports.targetPort of type int32"
)]
#[case(
    DEPLOYMENT,
    r#"{"spec":{"replicas":NUMBER,"paused":3}}"#,
    "DeploymentSpec.spec.replicas of type int32"
)]
fn numbers_in_errors_are_printed_as_written(#[case] wanted: Wanted<'_>, #[case] raw: &str, #[case] place: &str) {
    for number in ["1e2", "99999999999999999999", "1E+10", "1.50", "-1.0"] {
        let message = refusal(wanted, &raw.replace("NUMBER", number));
        let expected = format!("json: cannot unmarshal number {number} into Go struct field {place}");
        assert!(message.ends_with(&expected), "{message}");
    }
}
