//! Controllers as operator authors write them, which the examples test. They do not depend on the testkit.

pub mod document;
pub mod mailbox;
pub mod web;
pub mod web_on_kube_runtime;
