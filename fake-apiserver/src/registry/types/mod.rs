//! The types of Kubernetes: the generated table of fields, typed decoding, quantities, times, names, and a cursor for
//! reading JSON objects. This module depends on values and paths, but not on kinds, verbs or storage.

pub(crate) mod review_version;
pub(crate) mod cursor;
pub(crate) mod edit;
pub(crate) mod schema;
pub(crate) mod no_version;
pub(crate) mod version_order;
pub(crate) mod hidden;
pub(crate) mod decode;
pub(crate) mod gated;
pub(crate) mod print;
pub(crate) mod go_text;
pub(crate) mod quantity;
pub(crate) mod pattern;
pub(crate) mod endpoint;
pub(crate) mod remote_server;
pub(crate) mod plugins;
pub(crate) mod names;
pub(crate) mod net;
pub(crate) mod pem;
pub(crate) mod der;
pub(crate) mod url;
pub(crate) mod webhook_client;
pub(crate) mod labels;
pub(crate) mod check;
pub(crate) mod declarative;
pub(crate) mod conditions;
