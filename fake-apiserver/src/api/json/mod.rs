//! JSON: the representation of values in the server, and Go's rules for parsing and printing.

mod plain;
mod encoded;
mod map;
mod value;
mod go;

pub(crate) use encoded::{Encoded, encoded_len};
pub use go::syntax_error;
pub(crate) use go::{escape_html, marshal, type_name};
pub(crate) use plain::plain_len;
pub(crate) use smol_str::SmolStr;
pub(crate) use value::{Iter, Map, Value};

/// Creates a [`Value`] with the syntax of `serde_json::json!`.
macro_rules! json {
    ($($json:tt)+) => { $crate::api::json::Value::from(serde_json::json!($($json)+)) };
}

pub(crate) use json;
