//! What a verb means. It knows storage and the vocabulary, and nothing of HTTP.

pub(crate) mod schema;
pub(crate) mod strategy;
pub(crate) mod metadata;
pub(crate) mod kinds;
pub(crate) mod custom;
pub(crate) mod patch;
pub(crate) mod managed_fields;
