//! Operation of a control plane, apart from its objects: metrics, limits, audit logs, served versions and encodings.

mod ask;
mod audit;
mod metrics;
mod protobuf;
mod served;
