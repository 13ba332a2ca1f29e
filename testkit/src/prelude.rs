//! Names that most tests use: `use testkit::prelude::*;`.
//!
//! Imports the cluster, the builders of objects, faults and exploration. A name of your own takes precedence over a
//! name imported by `*`.
//!
//! ```
//! use testkit::prelude::*;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() { // in a test: #[tokio::test]
//! let cluster = TestCluster::start();
//! cluster.create(pod("web-0")).await; //               calls that write or let time pass are async,
//! cluster.settle().await;
//! cluster.assert_has(pod("web-0")); //                 reads, assertions and faults are not
//! cluster.inject(faults::conflict().on(Verb::Update, "pods").once()).forget();
//! # }
//! ```

#[cfg(feature = "explore")]
pub use crate::explore::{Explore, explore};
pub use crate::objects::*;
pub use crate::{Object, RestartLog, Running, TestCluster, Verb, WatchEventKind, Worker, faults};
