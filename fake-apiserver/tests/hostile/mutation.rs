//! `Mutation`: a random change of a valid request.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::ask::Ask;

/// A change of a request.
#[derive(Clone, Debug)]
pub(crate) enum Mutation {
    Method(&'static str),
    /// Replaces a segment of the path.
    Segment(usize, String),
    /// Adds a query parameter.
    Query(&'static str, String),
    Header(&'static str, String),
    /// Replaces a value of the body; the number is its index.
    Replace(usize, Value),
    Remove(usize),
    /// Renames a key of an object.
    Rename(usize, String),
    /// Wraps a value in this many nested lists or objects.
    Nest(usize, usize),
    /// Truncates the body, in thousandths of its length.
    Truncate(usize),
    /// Replaces a byte of the body.
    Byte(usize, u8),
    Body(Vec<u8>),
}

const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "brew",
];

pub(crate) const CONTENT_TYPES: [&str; 16] = [
    "application/json",
    "application/json; charset=utf-8",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/apply-patch+cbor",
    "application/cbor",
    "text/plain",
    "*/*",
    "",
    ";",
    "application/json;q=",
    "\u{ff}/\u{1f980}",
];

const ACCEPTS: [&str; 16] = [
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;as=Table;v=v9;g=meta.k8s.io",
    "application/json;as=;v=;g=",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
    "application/json;q=0.0001;q=x, */*;q=2",
    "text/html, */*;q=0.1",
    ",,,;;;===",
    "application/json;stream=watch",
    "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
    "",
];

const PARAMETERS: [&str; 22] = [
    "labelSelector",
    "fieldSelector",
    "resourceVersion",
    "resourceVersionMatch",
    "continue",
    "limit",
    "watch",
    "allowWatchBookmarks",
    "sendInitialEvents",
    "timeoutSeconds",
    "timeout",
    "dryRun",
    "fieldManager",
    "fieldValidation",
    "force",
    "pretty",
    "propagationPolicy",
    "gracePeriodSeconds",
    "orphanDependents",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "includeObject",
    "\u{0}%",
];

/// Strings that have a meaning in some field.
const TEXTS: [&str; 58] = [
    "",
    " ",
    "\u{0}",
    "a",
    "-",
    ".",
    "..",
    "/",
    "%",
    "%zz",
    "%00",
    "~1",
    "a=b",
    "a in (b,c)",
    "a in (",
    "!a",
    "a>1",
    "a>b",
    "a==b,,c!=d",
    "metadata.name=a",
    "metadata.name!=a,metadata.namespace=x",
    "status.phase=Running",
    "spec.nodeName=",
    "metadata.name==\\,",
    "0",
    "1",
    "-1",
    "00",
    "3",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999",
    "1.5",
    "1e9",
    "abc",
    "true",
    "false",
    "All",
    "Exact",
    "NotOlderThan",
    "Strict",
    "Warn",
    "Ignore",
    "Foreground",
    "Background",
    "Orphan",
    "1h",
    "1d",
    "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ==",
    "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6OTksInN0YXJ0IjoiYVx1MDAwMCJ9",
    "null",
    "[]",
    "{}",
    "\u{1f980}\u{301}",
    "default",
    "kube-system",
    "$(A)",
    "(((((a)*)*)*)*)*$",
];

pub(crate) fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => prop::sample::select(&TEXTS[..]).prop_map(str::to_owned),
        1 => any::<String>(),
        1 => "[ -~]{0,40}",
        1 => (prop::sample::select(&["a", "é", "a.", "(", "a,", "1", "/"][..]), prop_oneof![Just(70_usize), Just(300), Just(9000)])
            .prop_map(|(text, times)| text.repeat(times)),
    ]
}

/// Values that are unexpected in many fields.
pub(crate) fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => prop::sample::select(vec![
            json!(null), json!(true), json!(false), json!(0), json!(1), json!(-1), json!(1.5), json!(-0.0), json!(1e300),
            json!(i64::MAX), json!(i64::MIN), json!(u64::MAX), json!(i32::MAX), json!(65536), json!([]), json!({}),
            json!([null]), json!([[]]), json!([{}]), json!([1, "a"]), json!([{}, {}]), json!({"": null}), json!({"a": null}),
            json!({"a": {"a": [1]}}), json!({"$patch": "delete"}), json!({"$patch": "replace", "a": 1}), json!({"$patch": 1}),
            json!({"$retainKeys": ["a"]}), json!({"$retainKeys": 1}), json!([{"$patch": "delete"}]),
            json!({"$setElementOrder/containers": [{"name": "a"}]}), json!({"$deleteFromPrimitiveList/finalizers": ["a"]}),
            json!({"$ref": "#"}), json!({"f:a": {}}), json!({"k:{": {}}), json!([{"op": "add", "path": "/a", "value": 1}]),
        ]),
        3 => prop::sample::select(vec![
            "1", "100m", "1e99999", "-1Ki", "1E", "0x1", ".", "+", "1i", "999999999999999999999999Ei", "1n",
            "2020-01-01T00:00:00Z", "2020-13-01T00:00:00Z", "9999-12-31T23:59:60Z", "0000-00-00T00:00:00+99:99", "10%", "-1%",
            "1.2.3.4", "::1", "10.0.0.0/33", "a.b.c/d", "*", "* * * * *", "*/0 99-1 * * *", "@every 1s", "TZ=X 0 0 * * *",
            "^a{99999999}$", "(?<a>", "string", "object", "array", "v1", "apps/v1", "Pod", "date-time", "int-or-string",
            "self.a > 0", "{.a..b[?(@.c==1)]}", ".spec[", "/metadata/name", "/spec/containers/-", "/a/-1", "/~2", "replace",
            "test", "move", "copy", "foregroundDeletion", "orphan", "kubernetes", "Apply", "Update", "FieldsV1", "AAAA", "=",
        ]).prop_map(Value::from),
        2 => text().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
    ]
}

pub(crate) fn mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<u16>().prop_map(usize::from);
    prop_oneof![
        1 => prop::sample::select(&METHODS[..]).prop_map(Mutation::Method),
        1 => (at.clone(), text()).prop_map(|(at, text)| Mutation::Segment(at, text)),
        4 => (prop::sample::select(&PARAMETERS[..]), text()).prop_map(|(name, text)| Mutation::Query(name, text)),
        1 => prop::sample::select(&CONTENT_TYPES[..]).prop_map(|it| Mutation::Header("content-type", it.to_owned())),
        2 => prop::sample::select(&ACCEPTS[..]).prop_map(|it| Mutation::Header("accept", it.to_owned())),
        1 => (prop::sample::select(&["accept", "user-agent", "impersonate-user", "accept-encoding", "if-none-match"][..]), text())
            .prop_map(|(name, text)| Mutation::Header(name, text)),
        12 => (at.clone(), value()).prop_map(|(at, value)| Mutation::Replace(at, value)),
        3 => at.clone().prop_map(Mutation::Remove),
        3 => (at.clone(), text()).prop_map(|(at, text)| Mutation::Rename(at, text)),
        1 => (at.clone(), prop_oneof![1_usize..300, Just(9_990_usize), Just(10_010), Just(100_000)])
            .prop_map(|(at, depth)| Mutation::Nest(at, depth)),
        1 => (0_usize..1000).prop_map(Mutation::Truncate),
        1 => (at, any::<u8>()).prop_map(|(at, byte)| Mutation::Byte(at, byte)),
        1 => prop::collection::vec(any::<u8>(), 0..60).prop_map(Mutation::Body),
        1 => prop::collection::vec(any::<u8>(), 0..60).prop_map(|rest| Mutation::Body([&b"k8s\0"[..], &rest].concat())),
    ]
}

impl Mutation {
    /// Applies the change to a request.
    pub(crate) fn apply(&self, ask: &mut Ask) {
        match self {
            Self::Method(method) => ask.method = (*method).to_owned(),
            Self::Segment(at, text) => {
                let (path, query) = ask
                    .path
                    .split_once('?')
                    .map_or((ask.path.as_str(), None), |(p, q)| (p, Some(q)));
                let mut segments: Vec<String> = path.split('/').map(str::to_owned).collect();
                let count = segments.len();
                segments[at % count] = encoded(text);
                ask.path = segments.join("/") + &query.map(|it| format!("?{it}")).unwrap_or_default();
            }
            Self::Query(name, text) => {
                let sign = if ask.path.contains('?') { '&' } else { '?' };
                ask.path += &format!("{sign}{}={}", encoded(name), encoded(text));
            }
            Self::Header(name, text) => ask.set_header(name, text),
            Self::Replace(at, value) => in_body(ask, *at, |place| *place = value.clone()),
            Self::Nest(at, depth) => nest(ask, *at, *depth),
            Self::Remove(at) => in_body_key(ask, *at, None),
            Self::Rename(at, text) => in_body_key(ask, *at, Some(text)),
            Self::Truncate(thousandths) => ask.body.truncate(ask.body.len() * thousandths / 1000),
            Self::Byte(at, byte) => {
                let count = ask.body.len().max(1);
                if let Some(place) = ask.body.get_mut(at % count) {
                    *place = *byte;
                }
            }
            Self::Body(body) => ask.body.clone_from(body),
        }
    }
}

/// Percent-encodes a string, unless it already seems to be encoded.
fn encoded(text: &str) -> String {
    if text.starts_with('%') {
        return text.to_owned();
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~=,!()$".contains(&byte);
    let one = |byte: u8| {
        if is_plain(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(one).collect()
}

fn nest(ask: &mut Ask, at: usize, depth: usize) {
    const MARK: &str = "\"the nested place\"";
    in_body(ask, at, |place| *place = MARK.trim_matches('"').into());
    let nested = match depth % 2 {
        0 => "[".repeat(depth) + &"]".repeat(depth),
        _ => "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth),
    };
    ask.body = String::from_utf8_lossy(&ask.body).replace(MARK, &nested).into_bytes();
}

/// Changes a value of the body, if it is JSON.
fn in_body(ask: &mut Ask, at: usize, change: impl FnOnce(&mut Value)) {
    if let Ok(mut body) = serde_json::from_slice::<Value>(&ask.body) {
        let count = places(&body);
        if let Some(place) = nth(&mut body, &mut (at % count)) {
            change(place);
        }
        ask.body = body.to_string().into_bytes();
    }
}

/// Removes or renames a key of the body.
fn in_body_key(ask: &mut Ask, at: usize, name: Option<&str>) {
    in_body(ask, at, |place| match place {
        Value::Object(map) => {
            let Some(key) = map.keys().nth(at % map.len().max(1)).cloned() else {
                return;
            };
            let value = map.remove(&key).unwrap_or_default();
            if let Some(name) = name {
                map.insert(name.to_owned(), value);
            }
        }
        Value::Array(list) => {
            list.pop();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    });
}

/// Returns the number of values in a value, including the value itself.
pub(crate) fn places(value: &Value) -> usize {
    1 + match value {
        Value::Object(map) => map.values().map(places).sum(),
        Value::Array(list) => list.iter().map(places).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Returns the value with this index, if there is one.
pub(crate) fn nth<'a>(value: &'a mut Value, left: &mut usize) -> Option<&'a mut Value> {
    if *left == 0 {
        return Some(value);
    }
    *left -= 1;
    match value {
        Value::Object(map) => map.values_mut().find_map(|value| nth(value, left)),
        Value::Array(list) => list.iter_mut().find_map(|value| nth(value, left)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}
