//! HTTP in, HTTP out. The one layer that knows axum.

pub(crate) mod discovery;
pub(crate) mod openapi;
pub(crate) mod table;
