//! Keys of objects and of contents of external systems in end states, such as `deployments.apps shop/web`.

/// Returns the resource of a key.
pub(crate) fn resource_of(key: &str) -> &str {
    key.split(' ').next().unwrap_or_default()
}
