//! Creation and updates of Services, compared with recorded responses of kube-apiserver.

use std::sync::Arc;

use jiff::Timestamp;
use rstest::rstest;

use super::*;
use crate::api::json::Value;
use crate::entropy::Entropy;

const SERVICE: Service = Service {
    version: KubernetesVersion::V1_36,
};

fn object(value: Value) -> Object {
    Object(value.as_object().cloned().unwrap_or_default())
}

/// Returns the result of a create or update: the written object, or the errors.
fn write(spec: Value, old: Option<&Object>, stored: &[Object]) -> Result<Object, String> {
    let entropy = Entropy::new(1, Timestamp::UNIX_EPOCH);
    let context = Context {
        entropy: &entropy,
        stored: &|_, _| stored.iter().cloned().map(Arc::new).collect(),
        subresource: "",
        user: None,
        dry_run: false,
        hidden: &crate::registry::types::hidden::NONE,
        plugins: crate::registry::types::plugins::PluginSet::default(),
    };
    let mut it = object(json!({"metadata": {"name": "a"}, "spec": spec, "status": {}}));
    let mut errors = FieldErrors::new();
    SERVICE.default(&mut it);
    let allocated = SERVICE.allocate(&mut it, old, &mut errors, &context);
    allocated.map_err(|status| status.message)?;
    if errors.is_empty() {
        match old {
            Some(old) => {
                SERVICE.prepare_for_update(&mut it, old, &context);
                SERVICE.validate_update(&it, old, &mut errors, &context);
            }
            None => SERVICE.validate(&it, &mut errors),
        }
    }
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    if texts.is_empty() {
        Ok(it)
    } else {
        Err(texts.join("; "))
    }
}

/// Returns the spec with placeholders for allocated values.
fn masked(mut it: Object) -> Value {
    let spec = ensure_object(&mut it, "spec");
    for field in ["clusterIP", "clusterIPs", "healthCheckNodePort"] {
        if spec.get(field).is_some_and(|it| it != "None" && *it != json!(["None"])) {
            spec.insert(field.into(), json!("masked"));
        }
    }
    for port in items_mut(spec, "ports") {
        if port.contains_key("nodePort") {
            port.insert("nodePort".into(), json!("masked"));
        }
    }
    Value::Object(spec.clone())
}

#[rstest]
#[case(json!({"selector": {"a": "b"}, "ports": [{"port": 80}]}),
    json!({"ports": [{"protocol": "TCP", "port": 80, "targetPort": 80}], "selector": {"a": "b"}, "clusterIP": "masked",
        "clusterIPs": "masked", "type": "ClusterIP", "sessionAffinity": "None", "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster"}))]
#[case(json!({"clusterIP": "None", "selector": {"a": "b"}}),
    json!({"selector": {"a": "b"}, "clusterIP": "None", "clusterIPs": ["None"], "type": "ClusterIP",
        "sessionAffinity": "None", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
        "internalTrafficPolicy": "Cluster"}))]
#[case(json!({"clusterIP": "None", "ports": [{"port": 80}]}),
    json!({"ports": [{"protocol": "TCP", "port": 80, "targetPort": 80}], "clusterIP": "None", "clusterIPs": ["None"],
        "type": "ClusterIP", "sessionAffinity": "None", "ipFamilies": ["IPv4", "IPv6"],
        "ipFamilyPolicy": "RequireDualStack", "internalTrafficPolicy": "Cluster"}))]
#[case(json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]}),
    json!({"ports": [{"protocol": "TCP", "port": 80, "targetPort": 80, "nodePort": "masked"}], "clusterIP": "masked",
        "clusterIPs": "masked", "type": "LoadBalancer", "sessionAffinity": "None", "externalTrafficPolicy": "Local",
        "healthCheckNodePort": "masked", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
        "allocateLoadBalancerNodePorts": true, "internalTrafficPolicy": "Cluster"}))]
#[case(json!({"type": "ExternalName", "externalName": "x.example.com"}),
    json!({"type": "ExternalName", "sessionAffinity": "None", "externalName": "x.example.com"}))]
#[case(json!({"sessionAffinity": "ClientIP", "ports": [{"name": "x", "port": 80, "targetPort": "http"}]}),
    json!({"ports": [{"name": "x", "protocol": "TCP", "port": 80, "targetPort": "http"}], "clusterIP": "masked",
        "clusterIPs": "masked", "type": "ClusterIP", "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}}, "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster"}))]
#[tokio::test(start_paused = true)]
async fn t4_created_services_have_defaults(#[case] spec: Value, #[case] expected: Value) {
    assert_eq!(write(spec, None, &[]).map(masked), Ok(expected));
}

#[tokio::test(start_paused = true)]
async fn t4_service_type_changes_add_and_remove_fields() {
    let with = |it: &Object, changes: Value| {
        let mut spec = it["spec"].clone();
        for (key, value) in changes.as_object().unwrap() {
            spec[key] = value.clone();
        }
        spec
    };
    let created = write(json!({"ports": [{"port": 80}]}), None, &[]).unwrap();
    let node_port = write(with(&created, json!({"type": "NodePort"})), Some(&created), &[]).unwrap();
    assert_eq!(node_port["spec"]["clusterIP"], created["spec"]["clusterIP"]);
    assert_eq!(masked(node_port.clone())["ports"][0]["nodePort"], "masked");
    assert_eq!(node_port["spec"]["externalTrafficPolicy"], "Cluster");

    let back = write(with(&node_port, json!({"type": "ClusterIP"})), Some(&node_port), &[]).unwrap();
    assert_eq!(back["spec"], created["spec"]);

    let external = json!({"type": "ExternalName", "externalName": "x.example.com"});
    let external = write(with(&back, external), Some(&back), &[]).unwrap();
    let expected = json!({"ports": [{"protocol": "TCP", "port": 80, "targetPort": 80}], "type": "ExternalName",
        "sessionAffinity": "None", "externalName": "x.example.com"});
    assert_eq!(external["spec"], expected);

    let again = json!({"type": "ClusterIP", "externalName": null});
    let again = write(with(&external, again), Some(&external), &[]).unwrap();
    assert_eq!(masked(again)["clusterIP"], "masked");
}

#[tokio::test(start_paused = true)]
async fn c8_cluster_ip_is_immutable() {
    let created = write(json!({"ports": [{"port": 80}]}), None, &[]).unwrap();
    let changed = write(json!({"ports": [{"port": 81}]}), Some(&created), &[]).unwrap();
    assert_eq!(changed["spec"]["clusterIPs"], created["spec"]["clusterIPs"]);

    let mut headless = created["spec"].clone();
    headless["clusterIP"] = json!("None");
    let expected = "spec.clusterIPs[0]: Invalid value: [\"None\"]: may not change once set";
    assert_eq!(write(headless, Some(&created), &[]), Err(expected.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn allocated_cluster_ips_and_allocated_or_out_of_range_node_ports_are_refused() {
    let created = write(json!({"type": "NodePort", "ports": [{"port": 80}]}), None, &[]).unwrap();
    let (ip, port) = (&created["spec"]["clusterIP"], &created["spec"]["ports"][0]["nodePort"]);
    let stored = std::slice::from_ref(&created);
    let same_ip = write(json!({"clusterIP": ip, "ports": [{"port": 80}]}), None, stored).unwrap_err();
    assert!(same_ip.starts_with("spec.clusterIPs: Invalid value: ["), "{same_ip}");
    assert!(same_ip.ends_with("provided IP is already allocated"), "{same_ip}");
    let same_port = write(
        json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}),
        None,
        stored,
    );
    let expected = format!("spec.ports[0].nodePort: Invalid value: {port}: provided port is already allocated");
    assert_eq!(same_port, Err(expected));
    let outside = write(
        json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}),
        None,
        stored,
    );
    let expected = "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of \
                    valid ports is 30000-32767";
    assert_eq!(outside, Err(expected.to_owned()));
}

#[rstest]
#[case(json!({}), "spec.ports: Required value")]
#[case(json!({"ports": [{"port": 0}]}),
    "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive; spec.ports[0].targetPort: Invalid \
     value: 0: must be between 1 and 65535, inclusive")]
#[case(json!({"ports": [{"port": 1, "name": "a"}, {"port": 1, "name": "b"}]}),
    "spec.ports[1]: Duplicate value: {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\"Port\":1,\
     \"TargetPort\":0,\"NodePort\":0}")]
#[case(json!({"ports": [{"port": 1}], "clusterIP": "x"}),
    "spec.clusterIPs[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")]
#[case(json!({"ports": [{"port": 1}], "type": "Odd"}),
    "spec.type: Unsupported value: \"Odd\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \
     \"NodePort\"")]
#[case(json!({"ports": [{"port": 1, "name": "a"}, {"port": {}}], "selector": 5, "externalIPs": [7], "ipFamilies": {}}),
    "spec.ports[1].name: Required value; spec.ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive; \
     spec.ports[1].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive; spec.externalIPs[0]: Invalid \
     value: \"\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")]
#[tokio::test(start_paused = true)]
async fn invalid_services_are_refused(#[case] spec: Value, #[case] expected: &str) {
    assert_eq!(write(spec, None, &[]), Err(expected.to_owned()));
}

#[rstest]
#[case(json!({"type": "ClusterIP", "externalName": "a.b"}),
    &["spec.externalName is ignored when spec.type is not \"ExternalName\""])]
#[case(json!({"type": "ClusterIP", "externalIPs": ["2001:db8:0::1"]}), &[
    "spec.externalIPs[0]: IPv6 address \"2001:db8:0::1\" should be in RFC 5952 canonical format (\"2001:db8::1\")",
    "spec.externalIPs is deprecated and may no longer be implemented in some clusters"])]
#[case(json!({"type": "LoadBalancer", "loadBalancerIP": "010.0.0.1", "loadBalancerSourceRanges": ["10.0.0.1/8"]}), &[
    "spec.loadBalancerIP: non-standard IP address \"010.0.0.1\" is invalid: use \"10.0.0.1\"",
    "spec.loadBalancerSourceRanges[0]: CIDR value \"10.0.0.1/8\" is ambiguous in this context (should be \
     \"10.0.0.0/8\" or \"10.0.0.1/32\"?)"])]
#[case(json!({"type": "ClusterIP", "clusterIP": "None", "sessionAffinity": "ClientIP"}),
    &["spec.SessionAffinity is ignored for headless services"])]
fn ignored_deprecated_and_non_canonical_service_fields_cause_warnings(#[case] spec: Value, #[case] expected: &[&str]) {
    let service = object(json!({"spec": spec}));
    assert_eq!(SERVICE.warnings(&service, None), expected);
}
