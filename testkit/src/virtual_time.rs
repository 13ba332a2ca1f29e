//! The cluster's virtual time as a string, for log lines.

use std::fmt;

use tokio::time::Instant;

use crate::test_cluster::TestCluster;

/// The virtual time of a cluster, from [`TestCluster::virtual_time`]: seconds since its start, such as `12.345s`.
///
/// With the feature `tracing-subscriber` it implements `FormatTime`: `fmt().with_timer(cluster.virtual_time())` writes
/// the same times as the messages of a failing test and its trace.
#[derive(Clone, Copy, Debug)]
pub struct VirtualTime {
    began: Instant,
}

impl TestCluster {
    /// Returns the clock that messages and traces of this cluster use.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use testkit::TestCluster;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// let clock = cluster.virtual_time();
    /// cluster.advance(Duration::from_secs(12)).await;
    /// assert!(clock.to_string().starts_with("12.0"));
    /// # }
    /// ```
    pub fn virtual_time(&self) -> VirtualTime {
        VirtualTime { began: self.started }
    }
}

impl fmt::Display for VirtualTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}s", self.began.elapsed().as_secs_f64())
    }
}

#[cfg(feature = "tracing-subscriber")]
impl tracing_subscriber::fmt::time::FormatTime for VirtualTime {
    fn format_time(&self, writer: &mut tracing_subscriber::fmt::format::Writer<'_>) -> fmt::Result {
        fmt::Write::write_fmt(writer, format_args!("{self}"))
    }
}
