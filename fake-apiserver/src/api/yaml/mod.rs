//! YAML input and output: parses YAML 1.1 and writes YAML like Go's `sigs.k8s.io/yaml`.

mod errors;
mod parse;
mod resolve;
mod emit;
mod emitter;
mod scalar;

pub(crate) use emit::to_string;
pub(crate) use parse::{documents, parse};
