//! Bodies in protobuf: valid bodies in which bytes, lengths and wire types are replaced.

use proptest::prelude::*;
use rstest::rstest;

use crate::ask::Ask;
use crate::trial::{CONFIG_MAPS, ask_once, try_all};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Encodes a number as a varint.
fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
        value >>= 7;
    }
    bytes.push(u8::try_from(value).unwrap_or_default());
    bytes
}

/// Encodes a field of bytes.
fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

/// Encodes a body with this version and kind.
fn body(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &meta), field(2, raw)].concat()
}

/// Encodes a ConfigMap `a` with one entry and one label.
fn config_map() -> Vec<u8> {
    let label = [field(1, b"k"), field(2, b"v")].concat();
    let meta = [field(1, b"a"), field(11, &label)].concat();
    let entry = [field(1, b"k"), field(2, b"v")].concat();
    body("v1", "ConfigMap", &[field(1, &meta), field(2, &entry)].concat())
}

#[test]
fn mutated_protobuf_does_not_break_the_server() {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..3), 1..6);
    try_all(800, &[], &changes, |server, changes| async move {
        let mut bytes = config_map();
        for (at, byte, what) in changes {
            let at = at.index(bytes.len());
            match what {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
            if bytes.is_empty() {
                bytes.push(byte);
            }
        }
        Ask::new("POST", CONFIG_MAPS, PROTOBUF, bytes)
            .check(&server)
            .await
            .map(drop)
    });
}

#[test]
fn random_protobuf_messages_do_not_break_the_server() {
    let kinds = prop::sample::select(vec![
        ("v1", "ConfigMap", CONFIG_MAPS),
        ("v1", "Pod", "/api/v1/namespaces/default/pods"),
        ("apps/v1", "Deployment", "/apis/apps/v1/namespaces/default/deployments"),
    ]);
    let fields = prop::collection::vec((0_u64..24, 0_u64..8, prop::collection::vec(any::<u8>(), 0..12)), 0..8);
    try_all(
        600,
        &[],
        &(kinds, fields),
        |server, ((version, kind, path), fields)| async move {
            let mut raw = Vec::new();
            for (number, wire, bytes) in fields {
                raw.extend(varint(number << 3 | wire));
                if wire == 2 {
                    raw.extend(varint(bytes.len() as u64));
                }
                raw.extend(bytes);
            }
            Ask::new("POST", path, PROTOBUF, body(version, kind, &raw))
                .check(&server)
                .await
                .map(drop)
        },
    );
}

#[test]
fn valid_protobuf_is_accepted() {
    let answer = ask_once(&[], &Ask::new("POST", CONFIG_MAPS, PROTOBUF, config_map()));
    assert_eq!(
        (answer.code, &answer.json()["data"]["k"]),
        (201, &"v".into()),
        "{}",
        answer.message()
    );
}

#[rstest]
#[case::length_past_the_end([b"k8s\0".to_vec(), vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]].concat())]
#[case::maximum_length([b"k8s\0".to_vec(), vec![0x0a], vec![0xff; 9], vec![0x01]].concat())]
#[case::unterminated_varint([b"k8s\0".to_vec(), vec![0xff; 40]].concat())]
#[case::group_without_end(body("v1", "ConfigMap", &[0x0b; 4000]))]
#[case::end_without_group(body("v1", "ConfigMap", &[0x0c]))]
#[case::unknown_wire_types(body("v1", "ConfigMap", &[0x0e, 0x0f, 0x16, 0x17]))]
#[case::field_zero(body("v1", "ConfigMap", &[0x02, 0x00]))]
#[case::invalid_utf8(body("v1", "ConfigMap", &field(1, &field(1, &[0xff, 0xfe]))))]
#[case::deep_json(body("apiextensions.k8s.io/v1", "CustomResourceDefinition", &(0..5_000)
    .fold(Vec::new(), |inner, _| if inner.len() < 200_000 { field(1, &inner) } else { inner })))]
fn hostile_protobuf_does_not_break_the_server(#[case] bytes: Vec<u8>) {
    let answer = ask_once(&[], &Ask::new("POST", CONFIG_MAPS, PROTOBUF, bytes));
    assert!(
        (400..500).contains(&answer.code),
        "{} {:.300}",
        answer.code,
        answer.message()
    );
}
