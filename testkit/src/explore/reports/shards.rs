//! `EXPLORE_MERGE`: combines the reports of all shards of a search.

use std::path::Path;

use serde_json::Value;

use crate::explore::files::file_name;
use crate::explore::search::{Coverage, Shard};

/// Environment variable with the directory of the reports of all shards.
pub(crate) const MERGE: &str = "EXPLORE_MERGE";

/// The combined reports of all shards of a test.
#[derive(Clone, Debug)]
pub(crate) struct Merged {
    pub(crate) coverage: Coverage,
    /// The replay strings of the failures, in the order of the number of schedules after which the shards found them.
    pub(crate) failures: Vec<String>,
    /// `sometimes` checks that held in no shard.
    pub(crate) never: Vec<String>,
    pub(crate) notes: Vec<String>,
}

/// Reads the reports of all shards of a test.
///
/// # Panics
///
/// If the directory cannot be read, or if a report is missing, cannot be parsed, or belongs to a search with a
/// different number of shards.
pub(crate) fn merged(directory: &Path, test: &str) -> Merged {
    let prefix = format!("{}.shard-", file_name(test));
    let entries = std::fs::read_dir(directory).unwrap_or_else(|err| panic!("{MERGE}={}: {err}", directory.display()));
    let mut reports: Vec<(u64, u64, Value)> = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let shard = name.strip_prefix(&prefix).and_then(|it| it.strip_suffix(".json"));
        let Some(shard) = shard.and_then(|it| Shard::parse(&it.replace("-of-", "/"))) else {
            continue;
        };
        let text = std::fs::read_to_string(entry.path()).unwrap_or_else(|err| panic!("{name}: {err}"));
        let report = serde_json::from_str(&text).unwrap_or_else(|err| panic!("{name}: {err}"));
        reports.push((shard.number, shard.of, report));
    }
    reports.sort_by_key(|(number, ..)| *number);
    let of = reports.first().map_or(0, |(_, of, _)| *of);
    let expected = (1..=of).collect::<Vec<u64>>();
    let found: Vec<u64> = reports.iter().map(|(number, ..)| *number).collect();
    let is_one = reports.iter().all(|(_, other, _)| *other == of);
    assert!(
        of > 0 && is_one && found == expected,
        "{MERGE}={}: there must be one report of each shard of {test}, named {prefix}1-of-N.json and so on; found \
         {:?}",
        directory.display(),
        reports
            .iter()
            .map(|(number, of, _)| format!("{number}/{of}"))
            .collect::<Vec<_>>()
    );
    together(reports.into_iter().map(|(.., report)| report).collect())
}

/// Combines the reports of all shards, which are in the order of the shards.
pub(crate) fn together(reports: Vec<Value>) -> Merged {
    let mut merged = Merged {
        coverage: Coverage {
            is_whole: true,
            ..Coverage::default()
        },
        failures: Vec::new(),
        never: Vec::new(),
        notes: Vec::new(),
    };
    let mut failures: Vec<(u64, String)> = Vec::new();
    for (at, report) in reports.iter().enumerate() {
        merged.coverage.add(&report["coverage"]);
        let texts = |field: &str| -> Vec<String> {
            let texts = report[field].as_array().into_iter().flatten();
            texts.filter_map(|it| it.as_str().map(str::to_owned)).collect()
        };
        // A `sometimes` check passes if it held in one shard.
        let never = texts("never");
        match at {
            0 => merged.never = never,
            _ => merged.never.retain(|it| never.contains(it)),
        }
        merged.notes.extend(texts("notes"));
        for failure in report["failures"].as_array().into_iter().flatten() {
            let schedules = failure["schedules"].as_u64().unwrap_or_default();
            failures.extend(failure["replay"].as_str().map(|it| (schedules, it.to_owned())));
        }
    }
    failures.sort();
    merged.failures = failures.into_iter().map(|(_, replay)| replay).collect();
    merged.notes.sort();
    merged.notes.dedup();
    merged
}

impl Coverage {
    /// Adds the coverage of another shard's report.
    fn add(&mut self, other: &Value) {
        let number = |field: &str| other[field].as_u64().unwrap_or_default();
        let pair = |field: &str| {
            let at = |place: usize| other[field][place].as_u64().unwrap_or_default();
            (at(0), at(1))
        };
        let seconds = |field: &str| {
            let seconds = other[field].as_f64().unwrap_or_default();
            std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default()
        };
        // Each shard executes the complete reference run.
        self.points = self.points.max(number("points"));
        self.write_points = self.write_points.max(number("writePoints"));
        // Reports contain the number of states, not the states themselves, so this is a lower bound.
        self.states = self.states.max(number("states"));
        for (sum, field) in [
            (&mut self.schedules, "schedules"),
            (&mut self.orders, "orders"),
            (&mut self.swarms, "swarms"),
            (&mut self.unjudged, "unjudged"),
            (&mut self.sequences, "sequences"),
            (&mut self.all_sequences, "allSequences"),
            (&mut self.messages, "messages"),
        ] {
            *sum += number(field);
        }
        for (sum, field) in [
            (&mut self.changes, "changes"),
            (&mut self.singles, "singles"),
            (&mut self.pairs, "pairs"),
        ] {
            let (tried, all) = pair(field);
            *sum = (sum.0 + tried, sum.1 + all);
        }
        self.is_whole &= other["isWhole"] == true;
        self.elapsed = self.elapsed.max(seconds("seconds"));
        self.processor_time += seconds("processorSeconds");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_plan_is_in_one_shard() {
        let shards: Vec<Shard> = (1..=3).filter_map(|it| Shard::parse(&format!("{it}/3"))).collect();
        for place in 0..10 {
            assert_eq!(shards.iter().filter(|it| it.has(place)).count(), 1, "{place}");
        }
        let shares: Vec<u64> = shards.iter().map(|it| it.share(10)).collect();
        assert_eq!(shares, [4, 3, 3]);
    }

    #[rstest::rstest]
    fn invalid_shards_are_refused(#[values("", "3", "0/2", "3/2", "a/b", "1/0")] text: &str) {
        assert_eq!(Shard::parse(text), None);
    }
}
