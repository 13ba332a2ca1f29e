//! HTTP in, HTTP out. The one layer that knows axum.

mod accept;
pub(crate) mod negotiation;
pub(crate) mod yaml;
pub(crate) mod partial;
pub(crate) mod status_protobuf;
pub(crate) mod table;
