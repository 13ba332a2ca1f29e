//! Types shared by all layers, without clocks or HTTP. This layer does not depend on any other layer.

pub mod kubernetes_version;
pub mod resource;
pub mod request_info;
pub mod user;
pub(crate) mod arrival;
pub(crate) mod front_proxy;
pub(crate) mod token;
pub(crate) mod streams;
pub mod rbac;
pub mod admission;
pub mod options;
pub(crate) mod object;
pub(crate) mod field;
pub mod json;
pub(crate) mod nesting;
pub(crate) mod print;
pub(crate) mod read;
pub(crate) mod yaml;
pub(crate) mod protobuf;
pub(crate) mod duration;
pub mod selector;
pub mod status;
