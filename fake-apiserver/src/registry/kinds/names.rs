//! Name rules (rule B26).

/// What is wrong with `name` as a DNS-1123 subdomain.
pub(crate) fn dns1123_subdomain(_name: &str, _is_prefix: bool) -> Vec<String> {
    Vec::new()
}
