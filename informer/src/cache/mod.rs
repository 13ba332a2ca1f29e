//! A copy of what the cluster has of a type: how it comes, is kept, is read, and who is told.
//!
//! It speaks to the server through [`ListWatch`] alone, and knows nothing of queues and controllers.

mod list_watch;
mod lister;
mod indexer;
mod informer;
mod factory;

pub use factory::SharedInformerFactory;
pub use indexer::{IndexFn, Indexer, indexes};
pub use informer::{HandlerOptions, HandlerQueue, HandlerRegistration, SharedInformer, SharedInformerBuilder};
pub use list_watch::{ApiListWatch, Body, ListOptions, ListWatch, VersionMatch, WatchOptions};
pub use lister::{Lister, NamespaceLister};
