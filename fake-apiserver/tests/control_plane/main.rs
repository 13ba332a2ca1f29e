//! Operation of a control plane: metrics, limits, audit logs, served versions and encodings.

mod ask;
mod audit;
mod metrics;
mod optional_apis;
mod protobuf;
mod served;
