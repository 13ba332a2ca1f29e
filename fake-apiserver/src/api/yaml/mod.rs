//! YAML input and output: parses YAML 1.1 like Go's `sigs.k8s.io/yaml`, and writes its style.

mod errors;
mod parse;
mod resolve;
mod emit;
mod emitter;
mod scalar;

pub(crate) use emit::to_string;
pub(crate) use parse::{documents, parse};
