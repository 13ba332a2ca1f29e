//! YAML as the server reads and writes it: YAML 1.1 in, as Go's `sigs.k8s.io/yaml` resolves it, and its style out.

mod errors;
mod parse;
mod resolve;
mod emit;
mod emitter;
mod scalar;

pub(crate) use emit::to_string;
pub(crate) use parse::{documents, parse};
