//! `Compressed`: compressed JSON text of an object. Objects of one type are similar, so the first object that an
//! informer receives becomes the dictionary for all other objects.

use std::fmt;
use std::sync::{Arc, OnceLock};

use lz4_flex::block::{compress_with_dict, decompress_with_dict};

/// Dictionary of an informer, set by its first object. Clones share the dictionary.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dictionary(Arc<OnceLock<Arc<str>>>);

/// Compressed text of an object.
pub(crate) struct Compressed {
    bytes: Box<[u8]>,
    /// Length of the uncompressed text.
    length: u32,
    dictionary: Arc<str>,
}

impl Compressed {
    /// Compresses a text. Returns `None` if the text is longer than 4 GiB.
    pub(crate) fn new(text: &str, dictionary: &Dictionary) -> Option<Self> {
        let dictionary = Arc::clone(dictionary.0.get_or_init(|| text.into()));
        Some(Self {
            bytes: compress_with_dict(text.as_bytes(), dictionary.as_bytes()).into_boxed_slice(),
            length: u32::try_from(text.len()).ok()?,
            dictionary,
        })
    }

    /// Returns the uncompressed text.
    pub(crate) fn text(&self) -> String {
        let bytes = decompress_with_dict(&self.bytes, self.length as usize, self.dictionary.as_bytes());
        let text = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok());
        text.expect("compressed data is never modified")
    }
}

impl fmt::Debug for Compressed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {}", self.bytes.len(), self.length)
    }
}
