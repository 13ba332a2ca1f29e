//! `Lines`: the progress of a search, as lines for a terminal and for logs of CI.

use std::time::Duration;

use crate::explore::Coverage;

/// Interval between the lines of a search without a terminal.
const EVERY: Duration = Duration::from_secs(30);

/// Formats the progress of a search.
#[derive(Debug)]
pub(crate) struct Lines {
    /// Time limit of the search.
    limit: Duration,
    /// Time of the search at which the next line is due.
    next: Duration,
}

impl Lines {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, next: EVERY }
    }

    /// Returns the line for a search that has taken this time.
    pub(crate) fn line(&self, coverage: &Coverage, failures: usize, elapsed: Duration) -> String {
        let failures = match failures {
            0 => "no failure yet".to_owned(),
            1 => "1 failure".to_owned(),
            more => format!("{more} failures"),
        };
        let (elapsed, limit) = (elapsed.as_secs(), self.limit.as_secs());
        format!("{elapsed} s of {limit} s: {}, {failures}", coverage.line())
    }

    /// Returns a line every 30 s; `None` in between.
    pub(crate) fn due(&mut self, coverage: &Coverage, failures: usize, elapsed: Duration) -> Option<String> {
        (elapsed >= self.next).then(|| {
            self.next = elapsed + EVERY;
            self.line(coverage, failures, elapsed)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_due_every_30_seconds() {
        let mut lines = Lines::new(Duration::from_secs(300));
        let coverage = Coverage {
            singles: (12, 345),
            ..Coverage::default()
        };
        let mut at = |seconds, failures| lines.due(&coverage, failures, Duration::from_secs(seconds));
        assert_eq!(at(29, 0), None);
        let line = "31 s of 300 s: 12 of 345 single faults, no failure yet";
        assert_eq!(at(31, 0).as_deref(), Some(line));
        assert_eq!(at(60, 0), None);
        let line = "61 s of 300 s: 12 of 345 single faults, 2 failures";
        assert_eq!(at(61, 2).as_deref(), Some(line));
    }
}
