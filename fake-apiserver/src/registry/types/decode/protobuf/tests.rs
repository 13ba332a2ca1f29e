use super::*;
use crate::api::json::json;
use crate::registry::types::decode::convert;
use crate::registry::types::schema::builtin::shape_of;
use rstest::rstest;

/// Bodies written by Go's serializer, each with the JSON of the same object.
#[rustfmt::skip]
#[rstest]
#[case::inlined_messages(
    r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","creationTimestamp":"2024-01-01T00:00:00Z"},"spec":{"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1Gi"}},{"name":"w","configMap":{"name":"m","optional":false}}],"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"1"}},"livenessProbe":{"httpGet":{"port":"web"},"periodSeconds":5},"securityContext":{"runAsUser":0}}],"terminationGracePeriodSeconds":0},"status":{}}"#,
    "azhzAAoJCgJ2MRIDUG9kEsEBChkKAWESABoAIgAqADIAOABCCAiAgcisBhAAEo4BChAKAXYSCxIJCgASBQoDMUdpCg8KAXcSCpoBBwoDCgFtIAASSwoBYxIBaSoAQgwKCgoDY3B1EgMKATFSHwoTEhEKABIJCAEQABoDd2ViGgAiABAAGAAgBSgAMABqAHIAegIgAIABAIgBAJABAKIBABoAIAAyAEIASgBSAFgAYABoAIIBAIoBAJoBAMIBABoTCgAaACIAKgAyAEoAWgByAIgBABoAIgA="
)]
#[case::maps_and_bytes(
    r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"e":"","k":"v"},"binaryData":{"b":"AAEC"}}"#,
    "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEiwKEQoBYRIAGgAiACoAMgA4AEIAEgUKAWUSABIGCgFrEgF2GggKAWISAwABAhoAIgA="
)]
#[case::negative_numbers_and_micro_times(
    r#"{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"l"},"spec":{"leaseDurationSeconds":-1,"renewTime":"2024-01-01T00:00:00.000123Z"}}"#,
    "azhzAAofChZjb29yZGluYXRpb24uazhzLmlvL3YxEgVMZWFzZRIsChEKAWwSABoAIgAqADIAOABCABIXEP///////////wEiCgiAgcisBhD4wAcaACIA"
)]
#[case::named_lists(
    r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"user":"u","extra":{"k":["a","b"]}},"status":{"allowed":false}}"#,
    "azhzAAouChdhdXRob3JpemF0aW9uLms4cy5pby92MRITU3ViamVjdEFjY2Vzc1JldmlldxIwChAKABIAGgAiACoAMgA4AEIAEhIaAXUqCwoBaxIGCgFhCgFiMgAaCAgAEgAaACAAGgAiAA=="
)]
#[case::empty_named_list(
    r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"user":"u","extra":{"k":null}},"status":{"allowed":false}}"#,
    "azhzAAouChdhdXRob3JpemF0aW9uLms4cy5pby92MRITU3ViamVjdEFjY2Vzc1JldmlldxIqChAKABIAGgAiACoAMgA4AEIAEgwaAXUqBQoBaxIAMgAaCAgAEgAaACAAGgAiAA=="
)]
#[case::alternatives_in_schemas(
    r#"{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{"name":"as.b.c"},"spec":{"group":"b.c","names":{"plural":"as","kind":"A"},"scope":"Cluster","versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"l":{"type":"array","default":["x"],"items":{"type":"string"}},"m":{"maximum":1.5,"additionalProperties":true}}}}}]},"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":null}}"#,
    "azhzAAozChdhcGlleHRlbnNpb25zLms4cy5pby92MRIYQ3VzdG9tUmVzb3VyY2VEZWZpbml0aW9uEo4CChYKBmFzLmIuYxIAGgAiACoAMgA4AEIAEuUBCgNiLmMaCwoCYXMSACIBQSoAIgdDbHVzdGVyOsUBCgJ2MRABGAEiuAEKtQEKABIAIgAqBm9iamVjdDIAOgBQAGAAegCQAQDqAVoKAWwSVQoAEgAiACoFYXJyYXkyADoAQgcKBVsieCJdUABgAHoAkAEAwgEmCiQKABIAIgAqBnN0cmluZzIAOgBQAGAAegCQAQCoAgC4AgDAAgCoAgC4AgDAAgDqATEKAW0SLAoAEgAiACoAMgA6AEkAAAAAAAD4P1AAYAB6AJABAPIBAggBqAIAuAIAwAIAqAIAuAIAwAIAOABQABoMEggKABIAIgAqACAAGgAiAA=="
)]
fn m1_protobuf_and_json_decode_to_the_same_object(#[case] json: &str, #[case] body: &str) {
    let object: Map = serde_json::from_str(json).expect("the text is an object");
    let raw = STANDARD.decode(body).expect("the text is base64");
    let envelope = open(&raw).expect("the text has an envelope");
    let (group, version) = envelope.api_version.split_once('/').unwrap_or(("", &envelope.api_version));
    assert_eq!((&object["kind"], &object["apiVersion"]), (&json!(envelope.kind), &json!(envelope.api_version)));
    let shape = shape_of(group, version, &envelope.kind).expect("the kind is built in");
    let read = |message: &[u8]| {
        let mut read = decode(shape, message).expect("the message can be decoded");
        convert(shape, &mut read).expect("the fields have the right types");
        read
    };
    let mut expected = object.clone();
    expected.remove("kind");
    expected.remove("apiVersion");
    assert_eq!(read(envelope.message), expected);
    let written = encode(group, version, &envelope.kind, &object).expect("the kind is built in");
    assert_eq!(read(open(&written).expect("the text has an envelope").message), expected);
}

#[test]
fn m1_lists_are_encoded() {
    let object = json!({"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]});
    let written = encode(
        "",
        "v1",
        "ConfigMapList",
        object.as_object().expect("the value is an object"),
    )
    .expect("the list can be encoded");
    let envelope = open(&written).expect("the text has an envelope");
    assert_eq!(envelope.kind, "ConfigMapList");
    assert_eq!(envelope.message, b"\x0a\x03\x12\x017\x12\x05\x0a\x03\x0a\x01a");
    assert_eq!(encode("example.com", "v1", "Widget", &Map::new()), None);
}

#[test]
fn arbitrary_protobuf_does_not_panic() {
    let shape = shape_of("apiextensions.k8s.io", "v1", "CustomResourceDefinition").expect("the kind is built in");
    assert!(open(b"{}").is_err());
    assert!(open(b"k8s\0\xff").is_err());
    let mut noise = 1_u32;
    let mut bytes = Vec::new();
    for len in 0..3000 {
        // A linear congruential generator provides pseudorandom bytes.
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes.push(noise.to_be_bytes()[0] & 0x3f);
        let _ = decode(shape, &bytes[bytes.len().saturating_sub(len % 40)..]);
    }
    // Each level of nesting costs two bytes.
    let mut deep = Vec::new();
    for _ in 0..50_000 {
        deep.extend_from_slice(b"\x0a\x7f");
    }
    let _ = decode(shape, &deep);
}
