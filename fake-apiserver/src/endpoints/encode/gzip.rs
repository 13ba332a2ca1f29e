//! Compresses large responses.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

/// Compresses the bytes with gzip.
pub(super) fn compressed(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok()
}
