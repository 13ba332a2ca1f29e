//! Name rules (rule B26): functions that return the errors for an invalid name, label key or label value, with the
//! messages of Kubernetes.
//!
//! Every write checks names and labels, so the rules scan bytes. The regular expressions only occur in error messages.

const LABEL_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
/// Reserved words of CEL (`celReservedSymbols` of `apiserver/pkg/cel`).
pub(crate) const CEL_RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];
const LABEL_MAX: usize = 63;
/// Maximum length of a DNS-1123 subdomain, in bytes.
pub(crate) const SUBDOMAIN_MAX: usize = 253;

/// Returns the errors for a `name` that is not a DNS-1123 subdomain. A prefix may end in a dash.
pub(crate) fn dns1123_subdomain(name: &str, is_prefix: bool) -> Vec<String> {
    let masked = mask_trailing_dash(name.as_bytes(), is_prefix);
    subdomain_errors(&masked, "characters")
}

/// Returns the errors for a `name` that is not a DNS-1123 label. A prefix may end in a dash.
pub(crate) fn dns1123_label(name: &str, is_prefix: bool) -> Vec<String> {
    let masked = mask_trailing_dash(name.as_bytes(), is_prefix);
    let mut errors = too_long(masked.len(), LABEL_MAX, "characters");
    if !is_label(&masked) {
        errors.push(if is_subdomain(&masked) {
            "must not contain dots".to_owned()
        } else {
            let rule = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                        start and end with an alphanumeric character";
            mismatch(rule, LABEL_FORMAT, &["my-name", "123-abc"])
        });
    }
    errors
}

/// Returns the errors for a `name` that is not a DNS-1035 label, which starts with a letter. A prefix may end in a
/// dash.
pub(crate) fn dns1035_label(name: &str, is_prefix: bool) -> Vec<String> {
    let masked = mask_trailing_dash(name.as_bytes(), is_prefix);
    let mut errors = too_long(masked.len(), LABEL_MAX, "characters");
    if !is_label(&masked) || !masked[0].is_ascii_lowercase() {
        let rule = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                    alphabetic character, and end with an alphanumeric character";
        errors.push(mismatch(rule, "[a-z]([-a-z0-9]*[a-z0-9])?", &["my-name", "abc-123"]));
    }
    errors
}

/// Returns the errors for a `name` that is not a URL path segment, which must not contain `/` or `%`.
pub(crate) fn path_segment(name: &str, is_prefix: bool) -> Vec<String> {
    if !is_prefix && (name == "." || name == "..") {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"]
        .into_iter()
        .filter(|bad| name.contains(bad))
        .map(|bad| format!("may not contain '{bad}'"))
        .collect()
}

/// Checks a path with a domain as its prefix, such as `acme.io/foo` (`IsDomainPrefixedPath`). Returns the wrong parts,
/// each with its error message.
pub(crate) fn domain_prefixed_path(value: &str) -> Vec<(&str, String)> {
    let parts = value.split_once('/');
    let Some((host, rest)) = parts.filter(|(host, rest)| !host.is_empty() && !rest.is_empty()) else {
        let text = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return vec![(value, text.to_owned())];
    };
    let problems = dns1123_subdomain(host, false).into_iter();
    let mut wrong: Vec<(&str, String)> = problems.map(|text| (host, text)).collect();
    let is_path = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    if !rest.bytes().all(is_path) {
        let text = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        wrong.push((rest, text.to_owned()));
    }
    wrong
}

/// Returns the errors for an invalid wildcard host; `*.example.com` is valid.
pub(crate) fn wildcard_dns1123_subdomain(name: &str) -> Vec<String> {
    let mut errors = too_long(name.len(), SUBDOMAIN_MAX, "characters");
    if !name
        .strip_prefix("*.")
        .is_some_and(|rest| is_subdomain(rest.as_bytes()))
    {
        let rule = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must \
                    consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
        errors.push(mismatch(rule, &format!("\\*\\.{SUBDOMAIN_FORMAT}"), &["*.example.com"]));
    }
    errors
}

/// Returns the errors for an invalid qualified name. Qualified names have the form `[prefix/]name`, and are used for
/// label keys and finalizers.
pub(crate) fn qualified_name(value: &str) -> Vec<String> {
    const RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                        alphanumeric character";
    const FORMAT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
    const EXAMPLES: [&str; 3] = ["MyName", "my.name", "123-abc"];
    if is_qualified_name(value) {
        return Vec::new();
    }
    let mut errors = Vec::new();
    let mut parts = value.split('/');
    let first = parts.next().unwrap_or_default();
    let name = match (parts.next(), parts.next()) {
        (None, _) => first,
        (Some(name), None) => {
            if first.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            }
            if !first.is_empty() {
                let texts = subdomain_errors(first.as_bytes(), "bytes");
                errors.extend(texts.into_iter().map(|text| format!("prefix part {text}")));
            }
            name
        }
        (Some(_), Some(_)) => {
            let text = mismatch(&format!("a valid label key {RULE}"), FORMAT, &EXAMPLES);
            return vec![format!(
                "{text} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    }
    let texts = too_long(name.len(), LABEL_MAX, "bytes");
    errors.extend(texts.into_iter().map(|text| format!("name part {text}")));
    if !is_label_word(name.as_bytes()) {
        errors.push(mismatch(&format!("name part {RULE}"), FORMAT, &EXAMPLES));
    }
    errors
}

/// Returns the errors for an invalid label value.
pub(crate) fn label_value(value: &str) -> Vec<String> {
    if is_label_value(value) {
        return Vec::new();
    }
    let mut errors = too_long(value.len(), LABEL_MAX, "bytes");
    if !value.is_empty() && !is_label_word(value.as_bytes()) {
        let rule = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
                    must start and end with an alphanumeric character";
        let format = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
        errors.push(mismatch(rule, format, &["MyValue", "my_value", "12345"]));
    }
    errors
}

/// Returns the errors for an invalid key of a ConfigMap or a Secret.
pub(crate) fn config_map_key(key: &str) -> Vec<String> {
    let mut errors = too_long(key.len(), SUBDOMAIN_MAX, "characters");
    if key.is_empty()
        || !key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
    {
        let rule = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        errors.push(mismatch(rule, "[-._a-zA-Z0-9]+", &["key.name", "KEY_NAME", "key-name"]));
    }
    errors.extend(parent_directory(key));
    errors
}

/// Returns the errors for an invalid port name, as in `targetPort`.
pub(crate) fn port_name(name: &str) -> Vec<String> {
    let mut errors = too_long(name.len(), 15, "characters");
    if name.is_empty() || !name.bytes().all(|b| is_alphanumeric(b) || b == b'-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.bytes().any(|b| b.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

/// Returns the error for an invalid port number.
pub(crate) fn port_number(port: i64) -> Option<&'static str> {
    (!(1..=65535).contains(&port)).then_some("must be between 1 and 65535, inclusive")
}

/// Returns the error for an invalid percentage; `25%` is valid.
pub(crate) fn percent(value: &str) -> Option<String> {
    let digits = value.strip_suffix('%').unwrap_or_default();
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let rule = "a valid percent string must be a numeric string followed by an ending '%'";
    Some(mismatch(rule, "[0-9]+%", &["1%", "93%"]))
}

/// Returns the errors for an invalid name of an environment variable.
pub(crate) fn env_var_name(name: &str) -> Vec<String> {
    if name.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    if name.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=') {
        return Vec::new();
    }
    let text = "a valid environment variable name must consist only of printable ASCII characters other than '='";
    vec![text.to_owned()]
}

/// Returns the error for an invalid HTTP header name.
pub(crate) fn http_header_name(value: &str) -> Option<String> {
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return None;
    }
    let rule = "a valid HTTP header must consist of alphanumeric characters or '-'";
    Some(mismatch(rule, "[-A-Za-z0-9]+", &["X-Header-Name"]))
}

/// Returns the error for a key that is not a valid file name: `.`, `..` and names that start with `..`.
pub(crate) fn parent_directory(value: &str) -> Option<String> {
    match value {
        "." | ".." => Some(format!("must not be '{value}'")),
        _ if value.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    }
}

/// Returns `true` for a qualified name.
pub(crate) fn is_qualified_name(value: &str) -> bool {
    let name = match value.split_once('/') {
        None => value,
        Some((prefix, name)) => {
            if prefix.len() > SUBDOMAIN_MAX || !is_subdomain(prefix.as_bytes()) {
                return false;
            }
            name
        }
    };
    name.len() <= LABEL_MAX && is_label_word(name.as_bytes())
}

/// Returns `true` for a label value.
pub(crate) fn is_label_value(value: &str) -> bool {
    value.is_empty() || (value.len() <= LABEL_MAX && is_label_word(value.as_bytes()))
}

/// Returns `true` for a DNS-1123 label of any length.
pub(crate) fn is_label(name: &[u8]) -> bool {
    match (name.first(), name.last()) {
        (Some(&first), Some(&last)) => {
            is_alphanumeric(first) && is_alphanumeric(last) && name.iter().all(|&b| is_alphanumeric(b) || b == b'-')
        }
        _ => false,
    }
}

/// Returns `true` for a DNS-1123 subdomain of any length.
pub(crate) fn is_subdomain(name: &[u8]) -> bool {
    // Each label starts after a dot. The characters before and after a dot must be alphanumeric.
    let mut before = b'.';
    for &b in name {
        let fits = match b {
            b'-' => before != b'.',
            b'.' => is_alphanumeric(before),
            _ => is_alphanumeric(b),
        };
        if !fits {
            return false;
        }
        before = b;
    }
    is_alphanumeric(before)
}

/// Returns `true` for a match of `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`.
fn is_label_word(value: &[u8]) -> bool {
    match (value.first(), value.last()) {
        (Some(first), Some(last)) => {
            first.is_ascii_alphanumeric()
                && last.is_ascii_alphanumeric()
                && value
                    .iter()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        }
        _ => false,
    }
}

fn is_alphanumeric(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn subdomain_errors(name: &[u8], unit: &str) -> Vec<String> {
    let mut errors = too_long(name.len(), SUBDOMAIN_MAX, unit);
    if !is_subdomain(name) {
        let rule = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                    and must start and end with an alphanumeric character";
        errors.push(mismatch(rule, SUBDOMAIN_FORMAT, &["example.com"]));
    }
    errors
}

/// Replaces the last two bytes of a prefix that ends in a dash with a byte that is always valid, like kube-apiserver. A
/// prefix may end in a dash, because the generated name continues after it.
fn mask_trailing_dash(name: &[u8], is_prefix: bool) -> std::borrow::Cow<'_, [u8]> {
    match name {
        [kept @ .., _, b'-'] if is_prefix => [kept, b"a"].concat().into(),
        _ => name.into(),
    }
}

fn too_long(length: usize, max: usize, unit: &str) -> Vec<String> {
    if length > max {
        vec![format!("must be no more than {max} {unit}")]
    } else {
        Vec::new()
    }
}

/// Returns the error message for a string that does not match a regular expression. As in Kubernetes, there are two
/// spaces before each `or`.
pub(crate) fn mismatch(rule: &str, format: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    let examples = examples.join(" or ");
    format!("{rule} (e.g. {examples}regex used for validation is '{format}')")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
        '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
        '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    const WORD: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
        alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
        '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

    #[rstest]
    #[case("a.b-c.9", true)]
    #[case("a", true)]
    #[case("a--b", true)]
    #[case("", false)]
    #[case("a..b", false)]
    #[case(".a", false)]
    #[case("a.", false)]
    #[case("a-.b", false)]
    #[case("a.-b", false)]
    #[case("-a", false)]
    #[case("a-", false)]
    #[case("Bad_Name", false)]
    #[case("ä", false)]
    fn b26_subdomains_are_validated(#[case] name: &str, #[case] fits: bool) {
        let expected = if fits { vec![] } else { vec![SUBDOMAIN.to_owned()] };
        assert_eq!(dns1123_subdomain(name, false), expected);
    }

    #[test]
    fn b26_lengths_of_names_are_limited() {
        assert_eq!(
            dns1123_subdomain(&"a".repeat(254), false),
            ["must be no more than 253 characters"]
        );
        assert_eq!(
            dns1123_label(&"a".repeat(64), false),
            ["must be no more than 63 characters"]
        );
        assert_eq!(label_value(&"a".repeat(64)), ["must be no more than 63 bytes"]);
        assert_eq!(dns1123_label("a.b", false), ["must not contain dots"]);
    }

    #[rstest]
    #[case("a-", true)]
    #[case("-", false)]
    #[case("ä-", true)]
    #[case("Bad_", false)]
    fn b26_prefixes_of_generated_names_are_validated(#[case] name: &str, #[case] fits: bool) {
        // The cut inside `ä` leaves a byte that is not valid in any name.
        assert_eq!(dns1123_subdomain(name, true).is_empty(), fits && name.is_ascii());
    }

    #[rstest]
    #[case("system:Some_Role", &[])]
    #[case("a/b", &["may not contain '/'"])]
    #[case("..", &["may not be '..'"])]
    #[case("a%/b", &["may not contain '/'", "may not contain '%'"])]
    fn b26_path_segments_are_validated(#[case] name: &str, #[case] expected: &[&str]) {
        assert_eq!(path_segment(name, false), expected);
    }

    #[rstest]
    #[case("app.kubernetes.io/name", String::new())]
    #[case("-a", format!("name part {WORD}"))]
    #[case("a/b/c", format!("a valid label key {WORD} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"))]
    #[case("Example.COM/x", format!("prefix part {SUBDOMAIN}"))]
    #[case("", format!("name part must be non-empty; name part {WORD}"))]
    #[case("/a", "prefix part must be non-empty".to_owned())]
    fn b25_qualified_names_are_validated(#[case] name: &str, #[case] expected: String) {
        assert_eq!(qualified_name(name).join("; "), expected);
    }

    #[rstest]
    #[case("a b", 1)]
    #[case("..", 1)]
    #[case("..a", 1)]
    #[case(".a", 0)]
    #[case("", 1)]
    fn config_map_keys_are_validated(#[case] key: &str, #[case] errors: usize) {
        assert_eq!(config_map_key(key).len(), errors);
    }
}
