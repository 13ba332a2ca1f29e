//! Values of custom resources that a schema permits: formats, enums and the rules of `x-kubernetes-validations`.

use fake_apiserver::ApiServer;
use rstest::rstest;
use serde_json::{Value, json};

#[cfg(feature = "cel")]
use crate::ask::put;
use crate::ask::{causes, post};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const FOOS: &str = "/apis/e.com/v1/namespaces/default/foos";

/// Returns a server with a custom resource, in which `spec.f` has this schema.
async fn server(field: &Value) -> ApiServer {
    let server = ApiServer::start();
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"f": field}}}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.e.com"}, "spec": {"group": "e.com", "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let (code, answer) = post(&server, DEFINITIONS, &definition).await;
    assert_eq!(code, 201, "{answer}");
    server
}

fn foo(value: &Value) -> Value {
    let mut object = json!({"apiVersion": "e.com/v1", "kind": "Foo", "metadata": {"name": "a"}, "spec": {"f": value}});
    if value.is_null() {
        object["spec"] = json!({});
    }
    object
}

/// Returns the messages about the field in a refusal.
fn refusal(answer: &(u16, Value)) -> Vec<String> {
    let causes = causes(answer).into_iter();
    causes.map(|it| it.trim_start_matches("spec.f: ").to_owned()).collect()
}

/// Creates an object with a value of the field; returns the messages of the refusal.
async fn created(field: &Value, value: &Value) -> Vec<String> {
    refusal(&post(&server(field).await, FOOS, &foo(value)).await)
}

/// Updates an object from one value of the field to another; returns the messages of the refusal.
#[cfg(feature = "cel")]
async fn updated(field: &Value, old: &Value, new: &Value) -> Vec<String> {
    let server = server(field).await;
    let (code, answer) = post(&server, FOOS, &foo(old)).await;
    assert_eq!(code, 201, "{answer}");
    let mut object = foo(new);
    object["metadata"]["resourceVersion"] = answer["metadata"]["resourceVersion"].clone();
    refusal(&put(&server, &format!("{FOOS}/a"), &object).await)
}

#[rstest]
#[case::days("duration", "1d", true)]
#[case::words("duration", "2 weeks", true)]
#[case::iso_8601("duration", "PT1H30M", true)]
#[case::number_with_a_unit_in_a_sentence("duration", "about 5 minutes ago", true)]
#[case::unknown_unit("duration", "P1Y", false)]
#[case::zero("duration", "0", true)]
#[case::no_bytes("byte", "", false)]
#[case::unused_bits("byte", "aGl=", true)]
#[case::url_alphabet("byte", "-_-_", false)]
#[case::leading_zero("ipv4", "10.0.0.010", true)]
#[case::mapped_address("ipv4", "::ffff:10.0.0.1", true)]
#[case::other_family("ipv4", "::1", false)]
#[case::leading_zero_of_a_range("cidr", "010.0.0.0/8", true)]
#[case::long_prefix("cidr", "10.0.0.0/33", false)]
#[case::without_separators("ssn", "123456789", false)]
#[case::with_separators("ssn", "123-45-6789", true)]
#[tokio::test]
async fn formats_accept_the_same_strings_as_go(#[case] format: &str, #[case] value: &str, #[case] fits: bool) {
    let refused = created(&json!({"type": "string", "format": format}), &json!(value)).await;
    let text = format!("Invalid value: \"{value}\": spec.f in body must be of type {format}: \"{value}\"");
    assert_eq!(refused, Vec::from_iter((!fits).then_some(text)));
}

/// Go converts the value to the type of each permitted value before it compares them.
#[rstest]
#[case::truncated(json!({"type": "number", "enum": [1, 2]}), json!(1.5), &[])]
#[case::other_integer(json!({"type": "number", "enum": [1, 2]}), json!(3.5),
    &["Unsupported value: 3.5: supported values: \"1\", \"2\""])]
#[case::fraction(json!({"type": "number", "enum": [1.5]}), json!(1),
    &["Unsupported value: 1: supported values: \"1.5\""])]
#[case::character(json!({"type": "string", "enum": ["A"]}), json!(65),
    &["Invalid value: \"integer\": spec.f in body must be of type string: \"integer\""])]
#[tokio::test]
async fn enums_compare_converted_values(#[case] field: Value, #[case] value: Value, #[case] expected: &[&str]) {
    assert_eq!(created(&field, &value).await, expected);
}

#[cfg(feature = "cel")]
fn with_rule(mut field: Value, rule: &Value) -> Value {
    field["x-kubernetes-validations"] = json!([rule]);
    field
}

/// Rules cannot read undeclared fields, but they are part of the object.
#[cfg(feature = "cel")]
#[rstest]
#[case::changed(json!({"a": 1}), json!({"a": 2}), false)]
#[case::added(json!({"a": 1}), json!({"a": 1, "b": 1}), false)]
#[case::nested_null(json!({"a": {"b": null}}), json!({"a": {"c": null}}), false)]
#[case::list(json!({"a": [{"b": 1}]}), json!({"a": [{"b": 2}]}), false)]
#[case::unchanged(json!({"a": {"b": [1, "x", null]}}), json!({"a": {"b": [1, "x", null]}}), true)]
#[case::renamed(json!({"a": 1}), json!({"b": 1}), true)]
#[tokio::test]
async fn comparison_of_objects_includes_undeclared_fields(
    #[case] old: Value,
    #[case] new: Value,
    #[case] is_same: bool,
) {
    let rule = json!({"rule": "self == oldSelf", "message": "immutable"});
    let field = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let expected = Vec::from_iter((!is_same).then_some("Invalid value: immutable"));
    assert_eq!(updated(&with_rule(field, &rule), &old, &new).await, expected);
}

#[cfg(feature = "cel")]
#[tokio::test]
async fn comparison_of_objects_includes_additional_fields_without_a_schema() {
    let rule = json!({"rule": "self == oldSelf", "message": "immutable"});
    let field = with_rule(json!({"type": "object", "additionalProperties": true}), &rule);
    let refused = updated(&field, &json!({"a": 1}), &json!({"a": 2})).await;
    assert_eq!(refused, ["Invalid value: immutable"]);
}

/// A field without a type is compared as a whole.
#[cfg(feature = "cel")]
#[rstest]
#[case::object(json!({"a": 1}), json!({"b": 1}), false)]
#[case::scalar(json!("x"), json!("y"), false)]
#[case::unchanged(json!([{"a": null}]), json!([{"a": null}]), true)]
#[tokio::test]
async fn comparison_of_objects_includes_fields_without_a_type(
    #[case] old: Value,
    #[case] new: Value,
    #[case] is_same: bool,
) {
    let untyped = json!({"x-kubernetes-preserve-unknown-fields": true});
    let field = json!({"type": "object", "properties": {"values": untyped}});
    let field = with_rule(field, &json!({"rule": "self == oldSelf", "message": "immutable"}));
    let refused = updated(&field, &json!({"values": old}), &json!({"values": new})).await;
    assert_eq!(
        refused,
        Vec::from_iter((!is_same).then_some("Invalid value: immutable"))
    );
}

#[cfg(feature = "cel")]
#[tokio::test]
async fn comparison_of_embedded_objects_includes_all_fields() {
    let field = json!({"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true});
    let field = with_rule(field, &json!({"rule": "self == oldSelf", "message": "immutable"}));
    let embedded = |data: &str, label: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"l": label}},
            "data": {"d": data}})
    };
    let refused = async |new| updated(&field, &embedded("x", "x"), &new).await;
    assert_eq!(refused(embedded("x", "x")).await, [""; 0]);
    assert_eq!(refused(embedded("y", "x")).await, ["Invalid value: immutable"]);
    assert_eq!(refused(embedded("x", "y")).await, ["Invalid value: immutable"]);
}

#[cfg(feature = "cel")]
#[tokio::test]
async fn list_contains_an_object_only_with_the_same_undeclared_fields() {
    let item = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let field = json!({"type": "array", "maxItems": 5, "items": item});
    let field = with_rule(
        field,
        &json!({"rule": "oldSelf.all(o, o in self)", "message": "append only"}),
    );
    let old = json!([{"a": 1}]);
    assert_eq!(updated(&field, &old, &json!([{"a": 2}, {"a": 1}])).await, [""; 0]);
    assert_eq!(
        updated(&field, &old, &json!([{"a": 2}])).await,
        ["Invalid value: append only"]
    );
}

/// Nulls of maps are values, and nulls of declared fields are only part of the size.
#[cfg(feature = "cel")]
#[tokio::test]
async fn nulls_are_part_of_maps() {
    let text = json!({"type": "string", "nullable": true});
    let map = json!({"type": "object", "additionalProperties": text});
    let rule = json!({"rule": "size(self) == 1 && 'a' in self", "message": "m"});
    assert_eq!(created(&with_rule(map, &rule), &json!({"a": null})).await, [""; 0]);
    let object = with_rule(
        json!({"type": "object", "properties": {"a": text}}),
        &json!({"rule": "self == oldSelf", "message": "m"}),
    );
    assert_eq!(
        updated(&object, &json!({"a": null}), &json!({})).await,
        ["Invalid value: m"]
    );
    assert_eq!(
        updated(&object, &json!({"a": null}), &json!({"a": null})).await,
        [""; 0]
    );
}

#[cfg(feature = "cel")]
#[tokio::test]
async fn null_is_not_an_old_value() {
    let field = json!({"type": "object", "properties": {"n": with_rule(
        json!({"type": "integer", "nullable": true}),
        &json!({"rule": "self == oldSelf"}),
    )}});
    assert_eq!(updated(&field, &json!({"n": null}), &json!({"n": 5})).await, [""; 0]);
}

/// The variables of a `messageExpression` are the same for all rules of a value: `oldSelf` is never optional, and only
/// set if a rule uses it.
#[cfg(feature = "cel")]
#[rstest]
#[case::optional(json!({"rule": "oldSelf.hasValue() ? self >= oldSelf.value() : self > 0", "optionalOldSelf": true,
    "messageExpression": "oldSelf.hasValue() ? 'was 5' : 'new'"}), "m")]
#[case::only_in_the_message(json!({"rule": "self > 4", "messageExpression": "oldSelf == 5 ? 'was 5' : 'new'"}), "m")]
#[case::in_both(json!({"rule": "self >= oldSelf", "messageExpression": "oldSelf == 5 ? 'was 5' : 'new'"}), "was 5")]
#[tokio::test]
async fn message_expressions_use_old_values_of_rules(#[case] mut rule: Value, #[case] message: &str) {
    rule["message"] = json!("m");
    let refused = updated(&with_rule(json!({"type": "integer"}), &rule), &json!(5), &json!(3)).await;
    assert_eq!(refused, [format!("Invalid value: 3: {message}")]);
}

#[cfg(feature = "cel")]
#[rstest]
#[case::days("duration", "self >= duration('24h')", "1d", None)]
#[case::iso_8601("duration", "self == duration('1h30m')", "PT1H30M", None)]
#[case::without_dash("datetime", "self.endsWith('Z')", "2024-01-01T00:00:00Z", None)]
#[case::bytes("byte", "self == b'hi'", "aGl=", None)]
#[case::standard_alphabet(
    "byte",
    "size(self) > 0",
    "AA+/",
    Some("Invalid byte formatted string AA+/: illegal base64 data at input byte 2")
)]
#[tokio::test]
async fn rules_read_formatted_strings_as_in_go(
    #[case] format: &str,
    #[case] rule: &str,
    #[case] value: &str,
    #[case] error: Option<&str>,
) {
    let field = with_rule(
        json!({"type": "string", "format": format}),
        &json!({"rule": rule, "message": "m"}),
    );
    let expected = error.map(|error| format!("Invalid value: \"string\": {error} evaluating rule: m"));
    assert_eq!(created(&field, &json!(value)).await, Vec::from_iter(expected));
}

/// Go resolves the path in the schema, so the notation is irrelevant.
#[cfg(feature = "cel")]
#[rstest]
#[case::field_in_brackets("['x.y']", "spec.f.x.y")]
#[case::map_entry_after_a_dot(".m.app", "spec.f.m[app]")]
#[case::map_entry_in_brackets(".m['a.b']", "spec.f.m[a.b]")]
#[tokio::test]
async fn field_paths_of_rules_are_normalised(#[case] field_path: &str, #[case] expected: &str) {
    let text = json!({"type": "string"});
    let map = json!({"type": "object", "additionalProperties": text});
    let field = json!({"type": "object", "properties": {"x.y": text, "m": map}});
    let field = with_rule(
        field,
        &json!({"rule": "false", "message": "m", "fieldPath": field_path}),
    );
    let answer = post(&server(&field).await, FOOS, &foo(&json!({}))).await;
    assert_eq!(causes(&answer), [format!("{expected}: Invalid value: m")]);
}

#[cfg(feature = "cel")]
#[tokio::test]
async fn field_path_of_a_rule_on_a_map_selects_an_entry() {
    let field = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let field = with_rule(field, &json!({"rule": "false", "message": "m", "fieldPath": ".app"}));
    let answer = post(&server(&field).await, FOOS, &foo(&json!({}))).await;
    assert_eq!(causes(&answer), ["spec.f.[app]: Invalid value: m"]);
}

#[tokio::test]
async fn default_of_an_int_or_string_may_have_another_type() {
    server(&json!({"x-kubernetes-int-or-string": true, "default": true})).await;
}
