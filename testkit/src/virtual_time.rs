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

#[cfg(all(test, feature = "tracing-subscriber"))]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;
    use crate::lock::lock;

    /// The lines that a subscriber has written.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            lock(&self.0).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lines_of_a_subscriber_begin_with_the_virtual_time() {
        let cluster = TestCluster::start();
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_timer(cluster.virtual_time())
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        cluster.advance(Duration::from_secs(12)).await;
        tracing::subscriber::with_default(subscriber, || tracing::info!("reconciled"));
        let text = String::from_utf8(lock(&lines.0).clone()).expect("the lines are UTF-8");
        assert!(text.starts_with("12.0"), "{text}");
        assert!(
            text.ends_with("s  INFO testkit::virtual_time::tests: reconciled\n"),
            "{text}"
        );
    }
}
