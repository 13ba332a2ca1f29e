//! Validation of the DNS search domains of a pod.

use crate::registry::types::names;

/// Returns the errors for an invalid search domain. The labels of a search domain may contain underscores.
pub(super) fn search_domain(domain: &str) -> Vec<String> {
    const LABEL: &str = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut troubles = Vec::new();
    if domain.len() > 253 {
        troubles.push("must be no more than 253 characters".to_owned());
    }
    let fits = domain.split('.').all(|label| {
        let bytes = label.strip_prefix('_').unwrap_or(label).as_bytes();
        bytes.first().is_some_and(|byte| alphanumeric(*byte))
            && bytes.last().is_some_and(|byte| alphanumeric(*byte))
            && bytes
                .iter()
                .all(|byte| alphanumeric(*byte) || matches!(byte, b'-' | b'_'))
    });
    if !fits {
        let rule = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or \
                    '.', and must start and end with an alphanumeric character";
        troubles.push(names::mismatch(
            rule,
            &format!("{LABEL}(\\.{LABEL})*"),
            &["example.com"],
        ));
    }
    troubles
}
