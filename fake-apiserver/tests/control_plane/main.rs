//! Operation of a control plane beside its objects: metrics, limits, audit logs and served versions.

mod ask;
mod metrics;
mod protobuf;
