//! The syntax of label keys and values, with the error messages of Go's validation (rule B25).

const KEY_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
    used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
    or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

const MAX_NAME: usize = 63;
const MAX_SUBDOMAIN: usize = 253;

/// Returns the errors of `key` as a label key, joined by `; `; `None` if it is valid.
pub(super) fn key_error(key: &str) -> Option<String> {
    let mut errors = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, rest)) if rest.contains('/') => {
            return Some(format!(
                "a valid label key {KEY_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > MAX_SUBDOMAIN {
                    errors.push(format!("prefix part must be no more than {MAX_SUBDOMAIN} bytes"));
                }
                if !is_subdomain(prefix) {
                    errors.push(format!("prefix part {SUBDOMAIN_RULE}"));
                }
            }
            name
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX_NAME {
        errors.push(format!("name part must be no more than {MAX_NAME} bytes"));
    }
    if name.is_empty() || !is_name(name) {
        errors.push(format!("name part {KEY_RULE}"));
    }
    (!errors.is_empty()).then(|| errors.join("; "))
}

/// Returns the errors of `value` as a label value, joined by `; `; `None` if it is valid.
pub(super) fn value_error(value: &str) -> Option<String> {
    let mut errors = Vec::new();
    if value.len() > MAX_NAME {
        errors.push(format!("must be no more than {MAX_NAME} bytes"));
    }
    if !is_name(value) {
        errors.push(VALUE_RULE.to_owned());
    }
    (!errors.is_empty()).then(|| errors.join("; "))
}

/// Returns `true` if the name is empty or matches `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`.
fn is_name(name: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    ends(bytes.first())
        && ends(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Returns `true` if the name consists of lower-case letters, digits and inner dashes, in parts separated by dots.
fn is_subdomain(name: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.split('.').all(|label| {
        let bytes = label.as_bytes();
        bytes.first().is_some_and(alphanumeric)
            && bytes.last().is_some_and(alphanumeric)
            && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
    })
}
