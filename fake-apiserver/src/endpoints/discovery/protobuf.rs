//! Discovery documents in Kubernetes' protobuf envelope, for clients that accept no other encoding (rule M1).

use crate::api::json::Value;
use crate::api::protobuf::{write_bytes, write_number, write_text};
/// Encoding of a field.
enum Form {
    Text,
    Texts,
    Flag,
    One(&'static [Field]),
    Many(&'static [Field]),
    /// A message that contains a list of strings.
    TextList,
}

/// A field: its name in JSON, its number and its encoding.
type Field = (&'static str, u64, Form);

const ADDRESS: &[Field] = &[("clientCIDR", 1, Form::Text), ("serverAddress", 2, Form::Text)];
const VERSION: &[Field] = &[("groupVersion", 1, Form::Text), ("version", 2, Form::Text)];
const GROUP: &[Field] = &[
    ("name", 1, Form::Text),
    ("versions", 2, Form::Many(VERSION)),
    ("preferredVersion", 3, Form::One(VERSION)),
    ("serverAddressByClientCIDRs", 4, Form::Many(ADDRESS)),
];
const RESOURCE: &[Field] = &[
    ("name", 1, Form::Text),
    ("namespaced", 2, Form::Flag),
    ("kind", 3, Form::Text),
    ("verbs", 4, Form::TextList),
    ("shortNames", 5, Form::Texts),
    ("singularName", 6, Form::Text),
    ("categories", 7, Form::Texts),
    ("group", 8, Form::Text),
    ("version", 9, Form::Text),
    ("storageVersionHash", 10, Form::Text),
];
const VERSIONS: &[Field] = &[
    ("versions", 1, Form::Texts),
    ("serverAddressByClientCIDRs", 2, Form::Many(ADDRESS)),
];
const GROUPS: &[Field] = &[("groups", 1, Form::Many(GROUP))];
const RESOURCES: &[Field] = &[("groupVersion", 1, Form::Text), ("resources", 2, Form::Many(RESOURCE))];

/// Encodes the document as a response body; `None` if it does not have a protobuf form.
pub(crate) fn encode(document: &Value) -> Option<Vec<u8>> {
    let kind = document.get("kind")?.as_str()?;
    let fields = match kind {
        "APIVersions" => VERSIONS,
        "APIGroupList" => GROUPS,
        "APIGroup" => GROUP,
        "APIResourceList" => RESOURCES,
        _ => return None,
    };
    let version = document.get("apiVersion").and_then(Value::as_str);
    let mut names = Vec::new();
    write_text(&mut names, 1, version.unwrap_or("v1"));
    write_text(&mut names, 2, kind);
    let mut out = b"k8s\0".to_vec();
    write_bytes(&mut out, 1, &names);
    write_bytes(&mut out, 2, &message(document, fields));
    write_text(&mut out, 3, "");
    write_text(&mut out, 4, "");
    Some(out)
}

fn message(value: &Value, fields: &[Field]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, field, form) in fields {
        let value = &value[*name];
        let items = || value.as_array().into_iter().flatten();
        match form {
            Form::Text => write_text(&mut out, *field, value.as_str().unwrap_or_default()),
            Form::Texts => items().for_each(|it| write_text(&mut out, *field, it.as_str().unwrap_or_default())),
            Form::Flag => write_number(&mut out, *field, value.as_bool().unwrap_or_default().into()),
            Form::One(fields) => write_bytes(&mut out, *field, &message(value, fields)),
            Form::Many(fields) => items().for_each(|it| write_bytes(&mut out, *field, &message(it, fields))),
            Form::TextList => {
                let mut list = Vec::new();
                items().for_each(|it| write_text(&mut list, 1, it.as_str().unwrap_or_default()));
                write_bytes(&mut out, *field, &list);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use crate::api::json::json;

    use super::*;

    #[test]
    fn m1_api_versions_are_encoded_as_in_go() {
        let document = json!({
            "kind": "APIVersions", "apiVersion": "v1", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "a:1"}],
        });
        let mut expected = b"k8s\0\n\x11\n\x02v1\x12\x0bAPIVersions".to_vec();
        expected.extend_from_slice(b"\x12\x16\n\x02v1\x12\x10\n\x090.0.0.0/0\x12\x03a:1\x1a\0\"\0");
        assert_eq!(encode(&document), Some(expected));
    }
}
