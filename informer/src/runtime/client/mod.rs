//! A client that reads from caches and writes to the server (controller-runtime's `client.Client`).

mod cached_client;
mod kind_client;
mod list;
mod write;
mod backend;
mod write_options;
mod unseen;

pub use cached_client::CachedClient;
pub use kind_client::{KindClient, Subresource};
pub use list::{DeleteAllOf, ListRequest};
