//! Controllers as operator authors write them, for the examples to test: nothing in them knows that it is tested.

pub mod document;
pub mod web;
pub mod web_on_kube_runtime;
