//! `Coverage`: the extent of a search.

use std::fmt;
use std::time::Duration;

/// Coverage of an exploration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Coverage {
    /// Number of runs that tried a plan or a replay. Reference runs, and runs that confirm or minimise a failure, are
    /// not counted.
    pub schedules: u64,
    /// Number of messages of the reference run at which a fault could take effect.
    pub points: u64,
    /// Number of writes among `points`.
    pub write_points: u64,
    /// Single changes of the spec: number tried, and total number. Only for explorations of a spec.
    pub changes: (u64, u64),
    /// Number of sequences of changes that were tried.
    pub sequences: u64,
    /// Total number of sequences of changes: each change reverted, and each pair of changes of different fields.
    pub all_sequences: u64,
    /// Single faults: number tried, and total number.
    pub singles: (u64, u64),
    /// Pairs of faults of different kinds, pairs of crashes, and the most likely other pairs: number tried, and total
    /// number.
    pub pairs: (u64, u64),
    /// Number of delivery orders that were tried.
    pub orders: u64,
    /// Number of random schedules that were tried.
    pub swarms: u64,
    /// Number of runs that could not be checked: an assertion of the scenario failed before the end of the faults, and
    /// the reference does not contain the state to compare with.
    pub unjudged: u64,
    /// Number of different combinations of client, verb, object, lag of the client's view, and outcome among the
    /// requests.
    pub states: u64,
    /// Number of requests, events and calls outside of the API in the runs of `schedules`.
    pub messages: u64,
    /// Set if all single faults, pairs and delivery orders were tried, or, in explorations of a spec, all changes,
    /// sequences and single faults. Random schedules are unlimited and do not count. Always `false` for replays.
    pub is_whole: bool,
    /// Real time of the exploration.
    pub elapsed: Duration,
    /// Processor time of the runs, which [`Explore::budget`](crate::explore::Explore::budget) limits.
    pub processor_time: Duration,
}

impl Coverage {
    /// Describes the coverage in one line.
    pub(crate) fn line(&self) -> String {
        let Self { singles, pairs, .. } = self;
        let mut line = String::new();
        if self.changes.1 > 0 {
            let (tried, all) = self.changes;
            line = format!(
                "{} of {} changes, {} of {} sequences, ",
                counted(tried),
                counted(all),
                counted(self.sequences),
                counted(self.all_sequences)
            );
        }
        line.push_str(&format!(
            "{} of {} single faults",
            counted(singles.0),
            counted(singles.1)
        ));
        if pairs.1 > 0 {
            line.push_str(&format!(", {} of {} pairs", counted(pairs.0), counted(pairs.1)));
        }
        for (count, what) in [
            (self.orders, "orderings"),
            (self.swarms, "random plans"),
            (self.unjudged, "runs that could not be judged"),
        ] {
            if count > 0 {
                line.push_str(&format!(", {} {what}", counted(count)));
            }
        }
        line
    }
}

/// Formats a number with thousands separators: `12,345`.
pub(crate) fn counted(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<String> = groups.map(|it| String::from_utf8_lossy(it).into_owned()).collect();
    groups.join(",")
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match (self.is_whole, self.singles.1) {
            (true, _) => "exhaustive: single faults, pairs, orderings",
            // Only replays were executed.
            (false, 0) => "not searched",
            (false, _) => "truncated",
        };
        write!(
            f,
            "{}, {:.1?} ({} schedules; {end}; {} points, {} of them writes; {} states)",
            self.line(),
            self.elapsed,
            counted(self.schedules),
            counted(self.points),
            counted(self.write_points),
            counted(self.states)
        )
    }
}
