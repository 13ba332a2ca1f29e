//! `Difference`: a field in which two end states differ.

use std::sync::Arc;

use serde_json::Value;

/// A field that has different values in two end states.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) key: Arc<str>,
    pub(crate) path: String,
    pub(crate) text: String,
    /// Both values, if the difference is in a field of a single object.
    pub(crate) values: Option<(Value, Value)>,
    /// Set if the reference's object also contains the expected value in another field, which does not differ.
    pub(crate) is_copied: bool,
    /// Set if the server's workers derived the value from the writes of controllers.
    pub(crate) is_derived: bool,
}

impl Difference {
    pub(crate) fn line(&self) -> String {
        format!("{}{}: {}", self.key.replace(" /", " "), prefixed(&self.path), self.text)
    }
}

fn prefixed(path: &str) -> String {
    if path.is_empty() {
        String::new()
    } else {
        format!(" {path}")
    }
}
