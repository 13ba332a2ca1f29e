//! HTTP in, HTTP out. The one layer that knows axum.

pub(crate) mod table;
