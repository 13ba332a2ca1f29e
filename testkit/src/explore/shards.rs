//! `EXPLORE_SHARD`: a search that is divided over machines, and the reports of its shards as one.

use std::fmt;
use std::path::Path;

use serde_json::Value;

use super::report::{Coverage, file_name};

/// Environment variable with the part of the search that this process makes: `2/8`.
pub(crate) const SHARD: &str = "EXPLORE_SHARD";

/// Environment variable with the directory of the reports of all shards.
pub(crate) const MERGE: &str = "EXPLORE_MERGE";

/// One part of a search: every n-th plan of each kind, where n is the number of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    /// Counted from 1.
    number: u64,
    of: u64,
}

impl Shard {
    /// The whole search.
    pub(crate) const WHOLE: Self = Self { number: 1, of: 1 };

    /// Reads the environment variable.
    pub(crate) fn of_environment() -> Self {
        let Ok(text) = std::env::var(SHARD) else {
            return Self::WHOLE;
        };
        Self::parse(&text).unwrap_or_else(|| panic!("{SHARD} must be like 2/8, a number from 1 on; it is {text:?}"))
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (number, of) = text.split_once('/')?;
        let (number, of) = (number.trim().parse().ok()?, of.trim().parse().ok()?);
        (1..=of).contains(&number).then_some(Self { number, of })
    }

    pub(crate) fn is_whole(self) -> bool {
        self.of == 1
    }

    /// Returns `true` if the plan at this position belongs to this shard.
    pub(crate) fn has(self, place: u64) -> bool {
        place % self.of == self.number - 1
    }

    /// Selects the plans of this shard. The plans that follow from them belong to this shard, too.
    pub(crate) fn part<T>(self, all: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
        let numbered = all.zip(0..);
        numbered.filter(move |(_, place)| self.has(*place)).map(|(it, _)| it)
    }

    /// Returns the number of plans of this shard.
    pub(crate) fn share(self, all: u64) -> u64 {
        all / self.of + u64::from(all % self.of >= self.number)
    }

    /// Returns the seed of this shard's random plans, which differs from those of the others.
    pub(crate) fn seed(self, seed: u64) -> u64 {
        seed.wrapping_add((self.number - 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The name of the report's file.
    pub(crate) fn file(self, test: &str) -> String {
        match self.is_whole() {
            true => file_name(test),
            false => format!("{}.shard-{}-of-{}", file_name(test), self.number, self.of),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

/// The reports of all shards of a test, summed up.
#[derive(Debug)]
pub(crate) struct Merged {
    pub(crate) coverage: Coverage,
    /// The replay string of the failure that a search on one machine would find first.
    pub(crate) failure: Option<String>,
    /// `sometimes` checks that held in no shard.
    pub(crate) never: Vec<String>,
    pub(crate) notes: Vec<String>,
}

/// Reads the reports of all shards of a test.
///
/// # Panics
///
/// If one is missing, cannot be read, or is of another division of the search.
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
        "{MERGE}={}: there must be one report of each shard of {test}, named {prefix}1-of-N.json and so on; there are \
         those of {:?}",
        directory.display(),
        reports
            .iter()
            .map(|(number, of, _)| format!("{number}/{of}"))
            .collect::<Vec<_>>()
    );
    together(reports.into_iter().map(|(.., report)| report).collect())
}

fn together(reports: Vec<Value>) -> Merged {
    let mut merged = Merged {
        coverage: Coverage {
            is_whole: true,
            ..Coverage::default()
        },
        failure: None,
        never: Vec::new(),
        notes: Vec::new(),
    };
    let mut first = u64::MAX;
    for (at, report) in reports.iter().enumerate() {
        merged.coverage.add(&report["coverage"]);
        let texts = |field: &str| -> Vec<String> {
            let texts = report[field].as_array().into_iter().flatten();
            texts.filter_map(|it| it.as_str().map(str::to_owned)).collect()
        };
        // A `sometimes` check that held in one shard has held.
        let never = texts("never");
        match at {
            0 => merged.never = never,
            _ => merged.never.retain(|it| never.contains(it)),
        }
        merged.notes.extend(texts("notes"));
        let failure = &report["failure"];
        let schedules = report["coverage"]["schedules"].as_u64().unwrap_or_default();
        if let Some(replay) = failure["replay"].as_str().filter(|_| schedules < first) {
            first = schedules;
            merged.failure = Some(replay.to_owned());
        }
    }
    merged.notes.sort();
    merged.notes.dedup();
    merged
}

impl Coverage {
    /// Adds the coverage in the report of another shard.
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
        // Each shard makes the whole reference run.
        self.points = self.points.max(number("points"));
        self.write_points = self.write_points.max(number("writePoints"));
        // The shards do not say which states they have in common, so this is a lower bound.
        self.states = self.states.max(number("states"));
        for (sum, field) in [
            (&mut self.schedules, "schedules"),
            (&mut self.orders, "orders"),
            (&mut self.swarms, "swarms"),
            (&mut self.sequences, "sequences"),
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
    fn what_is_no_shard_is_refused(#[values("", "3", "0/2", "3/2", "a/b", "1/0")] text: &str) {
        assert_eq!(Shard::parse(text), None);
    }
}
