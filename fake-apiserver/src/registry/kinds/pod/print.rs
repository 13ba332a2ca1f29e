//! Prints values in field errors with the Go field names of kube-apiserver's internal types.

use crate::api::json::{Map, SmolStr, Value};
use crate::registry::types::cursor::Cursor;

/// Fields whose Go name differs from the capitalised JSON name.
const IRREGULAR: [(&str, &str); 15] = [
    ("apiVersion", "APIVersion"),
    ("apiGroup", "APIGroup"),
    ("dnsConfig", "DNSConfig"),
    ("dnsPolicy", "DNSPolicy"),
    ("fsGroup", "FSGroup"),
    ("hostIP", "HostIP"),
    ("ip", "IP"),
    ("httpGet", "HTTPGet"),
    ("httpHeaders", "HTTPHeaders"),
    ("tcpSocket", "TCPSocket"),
    ("tty", "TTY"),
    ("os", "OS"),
    ("grpc", "GRPC"),
    ("seLinuxOptions", "SELinuxOptions"),
    ("ttlSecondsAfterFinished", "TTLSecondsAfterFinished"),
];

/// Maps with user-defined keys, which are printed unchanged.
const USER_KEYS: [&str; 7] = [
    "labels",
    "annotations",
    "matchLabels",
    "nodeSelector",
    "limits",
    "requests",
    "overhead",
];

/// Returns the value with Go's field names. The field names within selectors and metadata are unchanged, because
/// kube-apiserver uses the same types for them internally. Absent fields remain absent, although Go prints them as null
/// or zero.
pub(crate) fn go_names(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(fields.iter().map(|(key, value)| go_field(key, value)).collect()),
        Value::Array(items) => Value::Array(items.iter().map(go_names).collect()),
        other => other.clone(),
    }
}

fn go_field(key: &str, value: &Value) -> (String, Value) {
    match key {
        "metadata" | "labelSelector" | "namespaceSelector" | "selector" => (capital(key), value.clone()),
        _ if USER_KEYS.contains(&key) => (capital(key), value.clone()),
        _ => (capital(key), go_names(value)),
    }
}

fn capital(key: &str) -> String {
    if let Some((_, go)) = IRREGULAR.iter().find(|(json, _)| *json == key) {
        return (*go).to_owned();
    }
    let mut characters = key.chars();
    match characters.next() {
        Some(first) => first.to_ascii_uppercase().to_string() + characters.as_str(),
        None => String::new(),
    }
}

/// Formats an object with these fields in the given order. Absent fields are null:
/// `{"Type":"Blue","RollingUpdate":null}`.
pub(crate) fn go_struct(object: &Cursor<'_>, fields: &[&str]) -> String {
    let printed: Vec<String> = fields
        .iter()
        .map(|field| {
            let value = object.get(field).map_or(Value::Null, go_names);
            format!("\"{}\":{value}", capital(field))
        })
        .collect();
    format!("{{{}}}", printed.join(","))
}

/// Returns the differences between two specs, similar to kube-apiserver's diff. Each changed field has one line with
/// the old value, and one with the new value.
pub(crate) fn difference(kind: &str, old: &Map, new: &Map) -> String {
    let mut lines = vec![format!("  {kind}{{")];
    let mut keys: Vec<&SmolStr> = old.keys().chain(new.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut same = 0;
    for key in keys {
        if old.get(key) == new.get(key) {
            same += 1;
            continue;
        }
        for (sign, side) in [("-", old), ("+", new)] {
            let value = side.get(key).map_or(Value::Null, go_names);
            lines.push(format!("{sign} \t{}: {value},", capital(key)));
        }
    }
    if same > 0 {
        lines.push(format!("  \t... // {same} identical fields"));
    }
    lines.push("  }\n".to_owned());
    lines.join("\n")
}
