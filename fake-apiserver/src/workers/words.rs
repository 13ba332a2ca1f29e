//! The names of workers on the command line.

use std::fmt;

use super::row::Runs;
use super::worker::Worker;
use super::workloads::WorkloadController;

/// Error for an unknown name of a worker.
#[derive(Clone, Debug, thiserror::Error)]
#[error("unknown worker {word:?}; the accepted names are {}", Worker::words())]
pub struct UnknownWorker {
    word: String,
}

impl Worker {
    /// The controllers of workloads, the scheduler and the kubelets: all workers except the garbage collector and the
    /// controllers of namespaces, quotas, ClusterRoles and policies.
    pub const WORKLOADS: &'static [Worker] = {
        let mut first = 0;
        while !matches!(Self::ALL[first].row().runs, Runs::Workloads(_)) {
            first += 1;
        }
        Self::ALL.split_at(first).1
    };

    /// Returns the worker's controllers of workloads.
    pub(super) fn workloads(self) -> &'static [WorkloadController] {
        match self.row().runs {
            Runs::Workloads(controllers) => controllers,
            Runs::InWrites | Runs::Alone(_) => &[],
        }
    }

    /// Returns the worker's name on the command line.
    pub fn as_str(self) -> &'static str {
        self.row().word
    }

    /// Parses a list such as `gc,namespace`. `workloads` stands for all of [`Worker::WORKLOADS`], and `all` for every
    /// worker.
    ///
    /// # Errors
    ///
    /// Fails if a name is unknown; the error lists the accepted names.
    ///
    /// ```
    /// use fake_apiserver::Worker;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let gc = Worker::parse_list("gc,namespace")?;
    /// assert_eq!(gc, [Worker::GarbageCollector, Worker::Namespace]);
    /// assert!(Worker::parse_list("all")?.contains(&Worker::Namespace));
    /// assert!(Worker::parse_list("gx").unwrap_err().to_string().contains("gc, namespace"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn parse_list(text: &str) -> Result<Vec<Worker>, UnknownWorker> {
        let mut found = Vec::new();
        for word in text.split(',').map(str::trim) {
            match word {
                "all" => found.extend_from_slice(Self::ALL),
                "workloads" => found.extend_from_slice(Self::WORKLOADS),
                _ => {
                    let worker = Self::ALL.iter().find(|it| it.as_str() == word);
                    let unknown = || UnknownWorker { word: word.to_owned() };
                    found.push(*worker.ok_or_else(unknown)?);
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Returns the accepted names, separated by commas, for error messages.
    fn words() -> String {
        let own = Self::ALL.iter().map(|it| it.as_str());
        own.chain(["workloads", "all"]).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
