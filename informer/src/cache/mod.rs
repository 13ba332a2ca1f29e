//! Local caches of objects: reflectors, stores, listers and informers.
//!
//! This module accesses the server only through [`ListWatch`], and does not depend on queues or controllers.
//!
//! ```
//! use informer::cache::{ApiListWatch, SharedInformer};
//! use informer::handler::{Event, HandlerFn};
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use testkit::{TestCluster, objects::config_map};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), informer::Error> {
//! let cluster = TestCluster::builder().object(config_map("settings")).start(); // or any cluster's client
//! let maps = SharedInformer::<ConfigMap>::new(ApiListWatch::all::<ConfigMap>(cluster.client(), &()));
//! maps.add_handler(HandlerFn::new(|event: &Event<ConfigMap>| println!("{event:?}")))?;
//! let runs = maps.clone();
//! cluster.run(async move { runs.run(std::future::pending()).await });
//!
//! maps.synced().await?;
//! assert!(maps.lister().namespace("default").get("settings").is_some());
//! # Ok(())
//! # }
//! ```

mod list_watch;
mod reflector;
mod delta_queue;
mod sorted;
mod index;
mod indexer;
mod lister;
mod handler_failures;
mod listener;
mod processor;
mod phase;
mod informer;
mod by_object;
mod factory;
mod fake_source;
mod expiring;

pub use by_object::ByObject;
pub use delta_queue::QueueOrder;
pub use expiring::ExpiringCache;
pub(crate) use factory::{CACHE_SYNC_TIMEOUT, Whose, late_caches};
pub use factory::{SharedInformerFactory, SharedInformerFactoryBuilder};
pub use fake_source::FakeSource;
pub use index::{IndexFn, indexes};
pub use indexer::Indexer;
pub(crate) use informer::WeakInformer;
pub use informer::{SharedInformer, SharedInformerBuilder};
pub use list_watch::{ApiListWatch, Body, ListOptions, ListWatch, VersionMatch, WatchOptions};
pub(crate) use listener::merge;
pub use listener::{HandlerOptions, HandlerQueue, HandlerRegistration};
pub use lister::{CacheSnapshot, Lister, NamespaceLister};
pub use reflector::{Backoff, Reflector, ReflectorOptions};
