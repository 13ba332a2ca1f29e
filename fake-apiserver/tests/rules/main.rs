//! Rules that hold whatever the kind, at the HTTP boundary, as kube-apiserver 1.36 answers.

mod ask;
mod definitions;
mod deletes;
mod devices;
mod documents;
mod hidden;
mod key_order;
mod kinds;
mod nesting;
mod patches;
mod pods;
mod requests;
mod revisions;
mod scales;
mod services;
mod tokens;
mod uids;
