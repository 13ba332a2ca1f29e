//! A copy of what the cluster has of a type: how it comes, is kept, is read, and who is told.
//!
//! It speaks to the server through [`ListWatch`] alone, and knows nothing of queues and controllers.

mod list_watch;
mod reflector;
mod delta_queue;
mod sorted;
mod index;
mod indexer;
mod lister;
mod listener;
mod processor;
mod informer;
mod factory;
mod fake_source;

pub use delta_queue::QueueOrder;
pub use factory::{SharedInformerFactory, SharedInformerFactoryBuilder};
pub use fake_source::FakeSource;
pub use index::{IndexFn, indexes};
pub use indexer::Indexer;
pub use informer::{SharedInformer, SharedInformerBuilder};
pub use list_watch::{ApiListWatch, Body, ListOptions, ListWatch, VersionMatch, WatchOptions};
pub use listener::{HandlerOptions, HandlerQueue, HandlerRegistration};
pub use lister::{Lister, NamespaceLister, Snapshot};
pub use reflector::{Backoff, Reflector, ReflectorOptions, ReflectorStore};
