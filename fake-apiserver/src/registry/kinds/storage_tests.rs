//! Errors of volumes, ResourceClaims and ResourceSlices, compared with recorded responses of kube-apiserver.

use jiff::Timestamp;
use rstest::rstest;

use crate::api::field::FieldErrors;
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::entropy::Entropy;
use crate::registry::kinds::strategy::Context;
use crate::registry::scheme::builtins::strategy;

fn decoded(group: &str, resource: &str, body: Value) -> Object {
    let mut object = Object(body.as_object().cloned().unwrap_or_default());
    strategy(group, resource).default(&mut object);
    object
}

fn created(group: &str, resource: &str, body: Value) -> Vec<String> {
    let mut errors = FieldErrors::new();
    strategy(group, resource).validate(&decoded(group, resource, body), &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

fn volume(more: Value) -> Value {
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": "v"}, "spec": spec})
}

fn csi() -> Value {
    json!({"driver": "d.example.com", "volumeHandle": "h"})
}

#[rstest]
#[case::single_source(json!({"csi": csi()}), &[])]
#[case::second_source(
    json!({"csi": csi(), "flocker": {}}),
    &["spec.flocker: Required value: one of datasetName and datasetUUID is required",
      "spec.csi: Forbidden: may not specify more than 1 volume type"]
)]
#[case::empty_csi(
    json!({"csi": {}}),
    &["spec.csi.driver: Required value", "spec.csi.volumeHandle: Required value"]
)]
#[case::csi_secrets(
    json!({"csi": {"driver": "d", "volumeHandle": "h", "nodeExpandSecretRef": {}}}),
    &["spec.csi.nodeExpandSecretRef.name: Required value", "spec.csi.nodeExpandSecretRef.namespace: Required value"]
)]
#[case::missing_capacity(
    json!({"csi": csi(), "capacity": null}),
    &["spec.capacity: Required value", "spec.capacity: Unsupported value: null: supported values: \"storage\""]
)]
#[case::affinity_without_terms(
    json!({"csi": csi(), "nodeAffinity": {"required": {}}}),
    &["spec.nodeAffinity.required.nodeSelectorTerms: Required value: must have at least one node selector term"]
)]
#[case::affinity_without_requirements(
    json!({"csi": csi(), "nodeAffinity": {}}),
    &["spec.nodeAffinity.required: Required value: must specify required node constraints"]
)]
fn persistent_volumes_are_validated(#[case] spec: Value, #[case] expected: &[&str]) {
    assert_eq!(created("", "persistentvolumes", volume(spec)), expected);
}

#[rstest]
#[case::other_label("kubernetes.io/hostname", "kubernetes.io/hostnamex", true)]
#[case::beta_to_stable_label("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone", false)]
#[case::stable_to_beta_label("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone", true)]
fn node_affinity_may_only_change_from_beta_to_stable_labels(
    #[case] before: &str,
    #[case] after: &str,
    #[case] refused: bool,
) {
    let with = |key: &str| {
        let requirement = json!({"key": key, "operator": "In", "values": ["a"]});
        let terms = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}});
        decoded(
            "",
            "persistentvolumes",
            volume(json!({"csi": csi(), "nodeAffinity": terms})),
        )
    };
    let entropy = Entropy::new(1, Timestamp::UNIX_EPOCH);
    let context = Context {
        entropy: &entropy,
        stored: &|_, _| Vec::new(),
        subresource: "",
        user: None,
        dry_run: false,
        hidden: &crate::registry::types::hidden::NONE,
        plugins: crate::registry::types::plugins::PluginSet::default(),
    };
    let mut errors = FieldErrors::new();
    strategy("", "persistentvolumes").validate_update(&with(after), &with(before), &mut errors, &context);
    let paths: Vec<String> = errors.iter().map(|error| error.path.to_string()).collect();
    assert_eq!(paths, if refused { vec!["nodeAffinity"] } else { vec![] });
}

#[rstest]
#[case::neither_exactly_nor_first_available(
    json!({"requests": [{"name": "a"}]}),
    &["spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required"]
)]
#[case::missing_class(
    json!({"requests": [{"name": "a", "exactly": {}}]}),
    &["spec.devices.requests[0].exactly.deviceClassName: Required value"]
)]
#[case::unknown_mode(
    json!({"requests": [{"name": "b", "firstAvailable": [
        {"name": "s", "deviceClassName": "gpu", "allocationMode": "all"}]}]}),
    &["spec.devices.requests[0].firstAvailable[0].allocationMode: Unsupported value: \"all\": supported values: \
       \"All\", \"ExactCount\""]
)]
#[case::constraint_without_an_attribute(
    json!({"constraints": [{}]}),
    &["spec.devices.constraints[0]: Required value: exactly one of \"matchAttribute\" or \"distinctAttribute\" is \
       required, but multiple fields are set"]
)]
#[case::unknown_request(
    json!({"config": [{"requests": ["a"], "opaque": {"driver": "d.example.com", "parameters": 5}}]}),
    &["spec.devices.config[0].requests[0]: Invalid value: \"a\": must be the name of a request in the claim or the \
       name of a request and a subrequest separated by '/'",
      "spec.devices.config[0].opaque.parameters: Invalid value: \"<value omitted>\": must be a valid JSON object"]
)]
fn device_requests_of_claims_are_validated(#[case] devices: Value, #[case] expected: &[&str]) {
    let body = json!({"spec": {"devices": devices}});
    assert_eq!(created("resource.k8s.io", "resourceclaims", body), expected);
}

#[rstest]
#[case::empty_spec(
    json!({}),
    &["spec.driver: Required value", "spec.pool.name: Required value",
      "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
      "spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is \
       required"]
)]
#[case::two_node_selections(
    json!({"driver": "d", "pool": {"name": "p", "resourceSliceCount": 1}, "nodeName": "n", "allNodes": true}),
    &["spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of `nodeName`, `nodeSelector`, `allNodes`, \
       `perDeviceNodeSelection` is required, but multiple fields are set"]
)]
#[case::conditions(
    json!({"driver": "d", "pool": {"name": "p", "resourceSliceCount": 1}, "nodeName": "n",
        "devices": [{"name": "d", "bindingFailureConditions": ["x"]}]}),
    &["spec.devices[0].bindingConditions: Invalid value: null: bindingConditions are required to use \
       bindingFailureConditions"]
)]
fn resource_slices_require_a_driver_a_pool_and_one_node_selection(#[case] spec: Value, #[case] expected: &[&str]) {
    assert_eq!(
        created("resource.k8s.io", "resourceslices", json!({"spec": spec})),
        expected
    );
}
