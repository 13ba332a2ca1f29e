//! CRDs that kube-apiserver accepts or refuses.

use super::super::tests::in_context;
use super::approval::ANNOTATION as APPROVAL;
use super::status::CLEANUP_FINALIZER;
use super::*;
use crate::api::field::FieldErrors;
use crate::api::json::{Value, json};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::registry::cel::IS_EVALUATED;
use crate::registry::kinds::strategy::Strategy;

/// The strategy of Kubernetes 1.36.
const CRDS: CrdStrategy = CrdStrategy {
    version: KubernetesVersion::V1_36,
};

fn crd(version: Value) -> Object {
    crd_with(json!([version]), json!({}))
}

fn crd_with(versions: Value, more: Value) -> Object {
    let mut spec = json!({
        "group": "example.com", "names": {"plural": "widgets", "kind": "Widget"}, "scope": "Namespaced",
        "versions": versions,
    });
    for (key, value) in more.as_object().expect("the value is an object") {
        spec[key] = value.clone();
    }
    let mut crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"}, "spec": spec,
    });
    Object(std::mem::take(crd.as_object_mut().expect("the value is an object")))
}

fn v1(spec_properties: Value) -> Value {
    let spec = json!({"type": "object", "properties": spec_properties});
    version("v1", true, json!({"type": "object", "properties": {"spec": spec}}))
}

fn version(name: &str, storage: bool, schema: Value) -> Value {
    json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}})
}

fn with(mut version: Value, key: &str, value: Value) -> Value {
    version[key] = value;
    version
}

fn plain() -> Value {
    v1(json!({"size": {"type": "integer"}, "color": {"type": "string"}}))
}

fn created(mut crd: Object) -> Object {
    CRDS.default(&mut crd);
    in_context("", |context| CRDS.prepare_for_create(&mut crd, context));
    crd
}

fn errors(crd: Object) -> Vec<String> {
    let mut errors = FieldErrors::new();
    CRDS.validate(&created(crd), &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn o1_crd_defaults_are_filled_in() {
    let crd = created(crd(plain()));
    assert_eq!(crd["spec"]["names"]["singular"], "widget");
    assert_eq!(crd["spec"]["names"]["listKind"], "WidgetList");
    assert_eq!(crd["spec"]["conversion"], json!({"strategy": "None"}));
    let status = json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]});
    assert_eq!(crd["status"], status);
}

#[test]
fn o4_valid_crd_has_no_errors() {
    assert_eq!(errors(crd(plain())), Vec::<String>::new());
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    assert_eq!(errors(crd(version("v1", true, schema))), Vec::<String>::new());
}

const SCHEMA: &str = "spec.validation.openAPIV3Schema.properties";

#[rstest::rstest]
#[case(json!({"a": {"type": "integer", "default": "x"}}),
    "[spec].properties[a].default: Invalid value: \"string\":  in body must be of type integer: \"string\"")]
#[case(json!({"a": {"type": "string", "enum": ["x"], "default": "y"}}),
    "[spec].properties[a].default: Unsupported value: \"y\": supported values: \"x\"")]
#[case(json!({"a": {"type": "object", "properties": {"b": {"type": "string"}}, "default": {"b": "x", "zz": 1}}}),
    "[spec].properties[a].default: Invalid value: {\"b\":\"x\",\"zz\":1}: must not have unknown fields")]
#[case(json!({"a": {"type": "string", "pattern": "(["}}),
    "[spec].properties[a].pattern: Invalid value: \"([\": must be a valid regular expression, but isn't: \
     error parsing regexp: missing closing ]: `[`")]
#[case(json!({"a": {"type": "strings"}}),
    "[spec].properties[a].type: Unsupported value: \"strings\": supported values: \"array\", \"boolean\", \
     \"integer\", \"number\", \"object\", \"string\"")]
#[case(json!({"a": {}}), "[spec].properties[a].type: Required value: must not be empty for specified object fields")]
#[case(json!({"a": {"type": "array"}}), "[spec].properties[a].items: Required value: must be specified")]
#[case(json!({"a": {"type": "string", "anyOf": [{"type": "string"}]}}),
    "[spec].properties[a].anyOf[0].type: Forbidden: must be empty to be structural")]
#[case(json!({"a": {"type": "string", "uniqueItems": true}}),
    "[spec].properties[a].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity \
     becomes quadratic")]
#[case(json!({"a": {"type": "string", "$ref": "#/x"}}), "[spec].properties[a].$ref: Forbidden: $ref is not supported")]
#[case(json!({"l": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}},
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}}),
    "[spec].properties[l].items.properties[k].default: Required value: this property is in \
     x-kubernetes-list-map-keys, so it must have a default or be a required property")]
fn o4_schemas_are_validated(#[case] properties: Value, #[case] expected: &str) {
    assert_eq!(errors(crd(v1(properties))), [format!("{SCHEMA}{expected}")]);
}

#[test]
fn o4_any_of_integer_and_string_is_accepted_for_int_or_string() {
    let branches = json!([{"type": "integer"}, {"type": "string"}]);
    let a = json!({"a": {"x-kubernetes-int-or-string": true, "anyOf": branches, "pattern": "^[0-9]+$"}});
    assert_eq!(errors(crd(v1(a))), Vec::<String>::new());
}

#[test]
fn o4_metadata_schema_may_only_restrict_names() {
    let labels = json!({"type": "object", "properties": {"labels": {"type": "object"}}});
    let schema = json!({"type": "object", "properties": {"metadata": labels}});
    let text = "[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is \
                implicitly specified";
    assert_eq!(errors(crd(version("v1", true, schema))), [format!("{SCHEMA}{text}")]);
}

#[rstest::rstest]
#[case(json!({"specReplicasPath": "spec.size", "statusReplicasPath": ".status.size"}),
    &["specReplicasPath: Invalid value: \"spec.size\": must be a simple json path starting with ."])]
#[case(json!({"specReplicasPath": ".foo.size", "statusReplicasPath": ".spec.size"}),
    &["specReplicasPath: Invalid value: \".foo.size\": should be a json path under .spec",
      "statusReplicasPath: Invalid value: \".spec.size\": should be a json path under .status"])]
#[case(json!({"specReplicasPath": ".spec.l[0]", "statusReplicasPath": ".status.size", "labelSelectorPath": ".foo"}),
    &["labelSelectorPath: Invalid value: \".foo\": should be a json path under either .spec or .status"])]
fn o4_scale_paths_are_validated(#[case] scale: Value, #[case] expected: &[&str]) {
    let found = errors(crd(with(plain(), "subresources", json!({"scale": scale}))));
    let expected: Vec<String> = expected
        .iter()
        .map(|it| format!("spec.subresources.scale.{it}"))
        .collect();
    assert_eq!(found, expected);
}

#[rstest::rstest]
#[case(json!({"name": "X", "type": "colour", "jsonPath": ".a"}),
    "type: Invalid value: \"colour\": must be one of boolean,date,integer,number,string")]
#[case(json!({"name": "", "type": "string", "jsonPath": ".a"}), "name: Required value")]
#[case(json!({"name": "X", "type": "string", "jsonPath": ""}), "JSONPath: Required value")]
#[case(json!({"name": "X", "type": "string", "jsonPath": ".spec[", "format": "frob"}),
    "format: Invalid value: \"frob\": must be one of byte,date,date-time,double,float,int32,int64,password")]
fn o4_printer_columns_are_validated(#[case] column: Value, #[case] expected: &str) {
    let found = errors(crd(with(plain(), "additionalPrinterColumns", json!([column]))));
    assert_eq!(found, [format!("spec.additionalPrinterColumns[0].{expected}")]);
}

#[rstest::rstest]
#[case(json!({"strategy": "Webhook"}), &[
    "webhookClientConfig: Required value: required when strategy is set to Webhook",
    "conversionReviewVersions: Required value"])]
#[case(json!({"strategy": "Magic"}),
    &["strategy: Unsupported value: \"Magic\": supported values: \"None\", \"Webhook\""])]
#[case(json!({"strategy": "Webhook", "webhook":
        {"clientConfig": {"url": "https://x.example/y"}, "conversionReviewVersions": ["v9"]}}),
    &["conversionReviewVersions: Invalid value: [\"v9\"]: must include at least one of v1, v1beta1"])]
#[case(json!({"strategy": "None", "webhook":
        {"clientConfig": {"url": "https://x.example/y"}, "conversionReviewVersions": ["v1"]}}), &[
    "webhookClientConfig: Forbidden: should not be set when strategy is not set to Webhook",
    "conversionReviewVersions: Forbidden: should not be set when strategy is not set to Webhook"])]
fn o4_conversion_is_validated(#[case] conversion: Value, #[case] expected: &[&str]) {
    let found = errors(crd_with(json!([plain()]), json!({"conversion": conversion})));
    let expected: Vec<String> = expected.iter().map(|it| format!("spec.conversion.{it}")).collect();
    assert_eq!(found, expected);
}

#[rstest::rstest]
#[case(json!([{"name": "v1", "served": true, "storage": true}]),
    "spec.versions[0].schema.openAPIV3Schema: Required value")]
#[case(json!([with(plain(), "schema", json!({}))]), "spec.versions[0].schema.openAPIV3Schema: Required value")]
#[case(json!([with(plain(), "selectableFields", json!([{"jsonPath": ".spec.nope"}]))]),
    "spec.selectableFields[0].jsonPath: Invalid value: \".spec.nope\": is an invalid path: does not refer to a \
     valid field")]
fn o4_versions_are_validated(#[case] versions: Value, #[case] expected: &str) {
    assert_eq!(errors(crd_with(versions, json!({}))), [expected]);
}

#[test]
fn o4_errors_in_one_of_several_versions_contain_the_version_index() {
    let bad = version("v2", false, json!({"type": "object", "properties": {"spec": {}}}));
    assert_eq!(
        errors(crd_with(json!([plain(), bad]), json!({}))),
        [
            "spec.versions[1].schema.openAPIV3Schema.properties[spec].type: Required value: must not be empty for \
          specified object fields"
        ]
    );
}

#[test]
fn o4_names_group_and_storage_are_validated() {
    let mut wrong = crd_with(
        json!([with(plain(), "storage", json!(false))]),
        json!({"group": "nodot"}),
    );
    wrong.metadata_mut().insert("name".into(), "x".into());
    let found = errors(wrong);
    assert_eq!(
        found[0],
        "metadata.name: Invalid value: \"x\": must be spec.names.plural+\".\"+spec.group"
    );
    assert_eq!(
        found[1],
        "spec.group: Invalid value: \"nodot\": should be a domain with at least one dot"
    );
    assert!(found[2].starts_with("spec.versions: Invalid value: [{"), "{}", found[2]);
    assert!(found[2].ends_with("must have exactly one version marked as storage version"));
    let true_flag = crd_with(json!([plain()]), json!({"preserveUnknownFields": true}));
    assert_eq!(
        errors(true_flag),
        [
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set \
          x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        ]
    );
}

#[test]
fn o19_protected_groups_require_an_approval() {
    let mut crd = crd_with(json!([plain()]), json!({"group": "x.k8s.io"}));
    crd.metadata_mut().insert("name".into(), "widgets.x.k8s.io".into());
    let found = errors(crd.clone());
    assert!(found[0].starts_with("metadata.annotations[api-approved.kubernetes.io]: Required value: protected"));
    crd.metadata_mut()
        .insert("annotations".into(), json!({APPROVAL: "unapproved, a test"}));
    assert_eq!(errors(crd), Vec::<String>::new());
}

#[rstest::rstest]
#[case::approved(
    "https://example.com/pull/1",
    "True",
    "ApprovedAnnotation",
    "approved in https://example.com/pull/1"
)]
#[case::not_approved(
    "unapproved, a \"test\"",
    "False",
    "UnapprovedAnnotation",
    r#"not approved: "unapproved, a \"test\"""#
)]
#[case::invalid(
    "yes",
    "False",
    "InvalidAnnotation",
    "protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a reason \
     starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111"
)]
#[case::missing(
    "",
    "False",
    "MissingAnnotation",
    "protected groups must have approval annotation \"api-approved.kubernetes.io\", see \
     https://github.com/kubernetes/enhancements/pull/1111"
)]
fn o19_condition_reports_the_approval_of_a_protected_group(
    #[case] annotation: &str,
    #[case] status: &str,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let mut crd = crd_with(json!([plain()]), json!({"group": "x.k8s.io"}));
    let metadata = crd.metadata_mut();
    metadata.insert("name".into(), "widgets.x.k8s.io".into());
    metadata.insert("annotations".into(), json!({APPROVAL: annotation}));
    let (settled, writes) = settled(created(crd), &[]);
    let expected = condition("KubernetesAPIApprovalPolicyConformant", status, reason, message);
    assert_eq!((writes, &settled["status"]["conditions"][0]), (3, &expected));
    assert!(is_settled(&settled));
}

fn settled(mut crd: Object, others: &[Object]) -> (Object, usize) {
    let mut writes = 0;
    loop {
        let mut used = UsedNames::default();
        others
            .iter()
            .chain([&crd])
            .for_each(|it| used.add(&CrdNames::accepted(it)));
        match reconcile(&crd, &used, "2024-01-01T00:00:00Z") {
            Some(next) => crd = next,
            None => return (crd, writes),
        }
        writes += 1;
    }
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": status, "lastTransitionTime": "2024-01-01T00:00:00Z", "reason": reason,
        "message": message,
    })
}

#[test]
fn o2_crd_is_established_after_its_names_are_accepted() {
    let first = created(crd(plain()));
    let accepted = reconcile(&first, &UsedNames::default(), "2024-01-01T00:00:00Z").expect("the definition changes");
    let initial = "the initial names have been accepted";
    let conditions = json!([
        condition("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
        condition("Established", "False", "Installing", initial),
    ]);
    assert_eq!(accepted["status"]["conditions"], conditions);
    let (established, writes) = settled(first, &[]);
    assert_eq!(writes, 2);
    assert_eq!(
        established["status"]["conditions"][1],
        condition("Established", "True", "InitialNamesAccepted", initial)
    );
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    assert_eq!(established["status"]["acceptedNames"], names);
}

/// `{"a": 1}` in base64; the outermost element is not a DER SEQUENCE.
const NO_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\neyJhIjogMX0=\n-----END CERTIFICATE-----\n";
/// A block with a certificate, as far as the server checks it.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";

fn converted(bundle: &str) -> Object {
    use base64::Engine as _;
    let bundle = base64::engine::general_purpose::STANDARD.encode(bundle);
    let client = json!({"url": "https://x.example/y", "caBundle": bundle});
    let webhook = json!({"clientConfig": client, "conversionReviewVersions": ["v1"]});
    let conversion = json!({"strategy": "Webhook", "webhook": webhook});
    crd_with(json!([plain()]), json!({"conversion": conversion}))
}

#[rstest::rstest]
#[case::not_pem("\n", "unable to parse bytes as PEM block")]
#[case::not_a_certificate(NO_CERTIFICATE, "failed to parse certificate: x509: malformed certificate")]
#[case::pem_block_of_another_type(
    "-----BEGIN X-----\nMAA=\n-----END X-----\n",
    "no valid certificate authority data seen"
)]
fn o2_crd_with_an_invalid_ca_bundle_is_not_established(#[case] bundle: &str, #[case] why: &str) {
    assert_eq!(errors(converted(bundle)), Vec::<String>::new());
    let (waiting, writes) = settled(created(converted(bundle)), &[]);
    let message = "The conversion webhook CABundle is invalid";
    let refused = condition("Established", "False", "InvalidCABundle", message);
    assert_eq!((writes, &waiting["status"]["conditions"][1]), (2, &refused));
    let (established, _) = settled(created(converted(CERTIFICATE)), &[]);
    let update = |old: &Object| {
        let (mut new, mut errors) = (converted(bundle), FieldErrors::new());
        in_context("", |context| {
            CRDS.default(&mut new);
            CRDS.prepare_for_update(&mut new, old, context);
            CRDS.validate_update(&new, old, &mut errors, context);
        });
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let shown = converted(bundle)["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"].to_string();
    let text = format!(
        "spec.conversion.webhookClientConfig.caBundle: Invalid value: {shown}: unable to load root certificates: {why}"
    );
    assert_eq!(update(&established), [text]);
    assert_eq!(update(&waiting), Vec::<String>::new());
}

#[rstest::rstest]
#[case(json!({"plural": "gadgets", "kind": "Widget", "listKind": "GadgetList"}), "KindConflict", "Widget",
    json!({"plural": "gadgets", "kind": "", "listKind": "GadgetList"}))]
#[case(json!({"plural": "gadgets", "kind": "Gadget", "shortNames": ["wid", "wd"], "singular": "widget"}),
    "ShortNamesConflict", "wd", json!({"plural": "gadgets", "kind": "Gadget", "listKind": "GadgetList"}))]
fn o2_name_conflicts_are_reported(
    #[case] names: Value,
    #[case] reason: &str,
    #[case] name: &str,
    #[case] accepted: Value,
) {
    let taken = json!({"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]});
    let (first, _) = settled(created(crd_with(json!([plain()]), json!({"names": taken}))), &[]);
    let second = created(crd_with(json!([plain()]), json!({"names": names})));
    let (second, writes) = settled(second, &[first]);
    assert_eq!(writes, 1);
    let conditions = json!([
        condition(
            "NamesAccepted",
            "False",
            reason,
            &format!("\"{name}\" is already in use")
        ),
        condition("Established", "False", "NotAccepted", "not all names are accepted"),
    ]);
    assert_eq!(second["status"]["conditions"], conditions);
    assert_eq!(second["status"]["acceptedNames"], accepted);
}

#[test]
fn o14_deleted_crd_waits_until_its_custom_resources_are_gone() {
    let (mut crd, _) = settled(created(crd(plain())), &[]);
    crd.metadata_mut()
        .insert("deletionTimestamp".into(), "2024-01-01T00:00:05Z".into());
    CRDS.prepare_for_deletion(&mut crd);
    assert_eq!(crd.finalizers().collect::<Vec<_>>(), [CLEANUP_FINALIZER]);
    assert_eq!(crd["status"]["conditions"][2]["reason"], "InstanceDeletionPending");
    let crd = finalize(&crd, true, "2024-01-01T00:00:06Z").expect("the definition changes");
    assert_eq!(crd["status"]["conditions"][2]["reason"], "InstanceDeletionInProgress");
    assert_eq!(finalize(&crd, true, "2024-01-01T00:00:06Z"), None);
    let gone = finalize(&crd, false, "2024-01-01T00:00:06Z").expect("the definition changes");
    assert_eq!(gone.finalizers().count(), 0);
}

#[test]
fn o4_crd_updates_are_validated() {
    let (old, _) = settled(created(crd(plain())), &[]);
    let update = |change: &dyn Fn(&mut Object)| {
        let mut new = old.clone();
        change(&mut new);
        let mut errors = FieldErrors::new();
        in_context("", |context| {
            CRDS.default(&mut new);
            CRDS.prepare_for_update(&mut new, &old, context);
            CRDS.validate_update(&new, &old, &mut errors, context);
        });
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        (new, texts)
    };
    let spec_change = |pointer: &'static str, value: Value| {
        move |crd: &mut Object| {
            let spec = crd.get_mut("spec").expect("the object has a spec");
            *spec.pointer_mut(pointer).expect("the field exists") = value.clone();
        }
    };
    for (pointer, value, text) in [
        (
            "/scope",
            "Cluster",
            "spec.scope: Invalid value: \"Cluster\": field is immutable",
        ),
        (
            "/group",
            "x.y",
            "spec.group: Invalid value: \"x.y\": field is immutable",
        ),
        (
            "/names/plural",
            "gadgets",
            "spec.names.plural: Invalid value: \"gadgets\": field is immutable",
        ),
        (
            "/names/kind",
            "Gadget",
            "spec.names.kind: Invalid value: \"Gadget\": field is immutable",
        ),
    ] {
        assert_eq!(update(&spec_change(pointer, json!(value))).1, [text]);
    }
    let v2 = |storage| with(with(plain(), "name", json!("v2")), "storage", json!(storage));
    let both = json!([with(plain(), "storage", json!(false)), v2(true)]);
    let (switched, texts) = update(&spec_change("/versions", both));
    assert_eq!(texts, Vec::<String>::new());
    assert_eq!(switched["status"]["storedVersions"], json!(["v1", "v2"]));
    let (_, texts) = update(&spec_change("/versions", json!([v2(true)])));
    assert!(
        texts[0].starts_with("status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was")
    );
}

#[test]
fn o21_unknown_formats_cause_warnings() {
    let formats = crd(v1(
        json!({"a": {"type": "string", "format": "frobnicate"}, "b": {"type": "string", "format": "date"}}),
    ));
    assert_eq!(CRDS.warnings(&formats, None), ["unrecognized format \"frobnicate\""]);
    assert_eq!(CRDS.warnings(&formats, Some(&formats)), Vec::<String>::new());
    let rules = json!({"a": {"type": "string", "x-kubernetes-validations": [{"rule": "self != ''"}]}});
    let warnings = CRDS.warnings(&crd(v1(rules)), None);
    let text = "x-kubernetes-validations are not evaluated by this server: rule \"self != ''\" is not checked";
    let unchecked = !IS_EVALUATED;
    assert_eq!(warnings, [text].into_iter().filter(|_| unchecked).collect::<Vec<_>>());
}

#[test]
fn o4_old_self_requires_correlatable_values() {
    let a = json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]});
    let item = json!({"type": "object", "properties": {"a": a}});
    let list = json!({"l": {"type": "array", "items": item, "maxItems": 5}});
    let text = "[spec].properties[l].items.properties[a].x-kubernetes-validations[0].rule: Invalid value: \
                \"self == oldSelf\": oldSelf cannot be used on the uncorrelatable portion of the schema within \
                spec.validation.openAPIV3Schema.properties[spec].properties[l]";
    let known = IS_EVALUATED.then(|| format!("{SCHEMA}{text}"));
    assert_eq!(errors(crd(v1(list))), Vec::from_iter(known));
}

/// `MapIsCorrelatable`: the fields of an atomic map are also matched to stored fields by name.
#[test]
fn o4_old_self_may_be_used_within_atomic_maps() {
    let a = json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]});
    let map = json!({"m": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": a}}});
    assert_eq!(errors(crd(v1(map))), Vec::<String>::new());
}

/// Selectable fields that are the same in all versions require a schema that is the same in all versions.
#[test]
fn o4_selectable_fields_may_only_be_shared_by_versions_with_the_same_schema() {
    let schema = |kind: &str| json!({"openAPIV3Schema": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": kind}}}});
    let fields = json!([{"jsonPath": ".a"}]);
    let of = |name, storage, kind, fields: &Value| {
        with(
            version(name, storage, schema(kind)["openAPIV3Schema"].clone()),
            "selectableFields",
            fields.clone(),
        )
    };
    let texts = |first: &Value, second: &Value, kind| {
        errors(crd_with(
            json!([of("v1", true, "string", first), of("v2", false, kind, second)]),
            json!({}),
        ))
    };
    assert_eq!(texts(&fields, &fields, "string"), Vec::<String>::new());
    let shared = "spec.selectableFields: Invalid value: \"\": may only be set when validations.schema is included";
    assert_eq!(texts(&fields, &fields, "integer"), [shared]);
    let own = "Invalid value: \"\": may only be set when `version.schema.openAPIV3Schema` is not included";
    let none = json!([]);
    assert_eq!(
        texts(&fields, &none, "string"),
        [format!("spec.versions[0].selectableFields: {own}")]
    );
    assert_eq!(texts(&fields, &none, "integer"), Vec::<String>::new());
}

#[rstest::rstest]
#[case::rule_of_a_string(
    json!({"type": "string", "default": "x", "x-kubernetes-validations": [{"rule": "self != 'x'"}]}),
    Some("[a].default: Invalid value: \"x\": failed rule: self != 'x'"))]
#[case::rule_of_a_field(json!({"type": "object", "default": {"b": 1}, "properties": {
    "b": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1", "message": "small"}]}}}),
    Some("[a].default.b: Invalid value: 1: small"))]
#[case::transition_rule(
    json!({"type": "integer", "default": 1, "x-kubernetes-validations": [{"rule": "self > oldSelf"}]}),
    Some("[a].default: Invalid value: 1: failed rule: self > oldSelf"))]
#[case::rule_with_optional_old_self(json!({"type": "integer", "default": 1, "x-kubernetes-validations": [
    {"rule": "oldSelf.hasValue()", "optionalOldSelf": true}]}),
    Some("[a].default: Invalid value: 1: failed rule: oldSelf.hasValue()"))]
#[case::satisfied_rule(json!({"type": "integer", "default": 2, "x-kubernetes-validations": [{"rule": "self > 1"}]}),
    None)]
fn o4_defaults_must_satisfy_the_rules_of_their_schema(#[case] property: Value, #[case] expected: Option<&str>) {
    let expected = expected.filter(|_| IS_EVALUATED);
    let expected = expected.map(|text| format!("{SCHEMA}[spec].properties{text}"));
    assert_eq!(errors(crd(v1(json!({"a": property})))), Vec::from_iter(expected));
}
