//! HTTP in, HTTP out. The one layer that knows axum.

mod accept;
pub(crate) mod negotiation;
pub(crate) mod table;
