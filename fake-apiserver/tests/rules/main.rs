//! Rules for all kinds at the HTTP boundary, with the responses of kube-apiserver 1.36.

mod aggregation;
mod ask;
mod definitions;
mod delete_options;
mod deletes;
mod devices;
mod documents;
mod evictions;
mod faults;
mod hidden;
mod key_order;
mod kinds;
mod nesting;
mod patches;
mod pod_options;
mod pods;
mod requests;
mod revisions;
mod scales;
mod services;
mod terminating;
mod tokens;
mod uids;
mod validations;
mod versions;
mod warnings;
