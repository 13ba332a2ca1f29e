//! JSON: the form of values that the server works on, and what Go makes of texts.

mod map;
mod value;
mod go;

pub use go::syntax_error;
pub(crate) use go::{escape_html, marshal, type_name};
pub(crate) use smol_str::SmolStr;
pub(crate) use value::{Iter, Map, Value};

/// A [`Value`], written as `serde_json::json!` takes it.
macro_rules! json {
    ($($json:tt)+) => { $crate::api::json::Value::from(serde_json::json!($($json)+)) };
}

pub(crate) use json;
