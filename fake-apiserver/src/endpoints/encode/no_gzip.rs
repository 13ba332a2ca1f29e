//! Replaces `gzip` without the feature `serve`: large responses are not compressed.

/// Returns `None`: responses are not compressed.
pub(super) fn compressed(_: &[u8]) -> Option<Vec<u8>> {
    None
}
