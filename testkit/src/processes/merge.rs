//! Combines the JSON reports of all shards of a search.

use std::path::PathBuf;

use serde_json::Value;

use super::report::Report;
use crate::explore::parts::{Merged, Shard, together};

/// The combined reports of all shards.
#[derive(Clone, Debug)]
pub(crate) struct Shards {
    merged: Merged,
    /// Replay strings of plans that failed only in some of their runs, with descriptions of the failures.
    unsure: Vec<(String, String)>,
    /// Set if a shard was interrupted.
    is_interrupted: bool,
}

impl Shards {
    /// Reads the reports. The error identifies a report that is missing or belongs to a different search.
    pub(crate) fn read(paths: &[PathBuf]) -> Result<Self, String> {
        let mut reports: Vec<(Shard, String, Value)> = Vec::new();
        for path in paths {
            let file = path.display().to_string();
            let wrong = |err: String| format!("{file}: {err}");
            let text = std::fs::read_to_string(path).map_err(|err| wrong(err.to_string()))?;
            let report: Value =
                serde_json::from_str(&text).map_err(|err| wrong(format!("the report is not JSON: {err}")))?;
            let shard = report["shard"].as_str().and_then(Shard::parse);
            let shard =
                shard.ok_or_else(|| wrong("the file is not a report written with --shard and --json".to_owned()))?;
            reports.push((shard, file, report));
        }
        reports.sort_by_key(|(shard, ..)| shard.number);
        let of = reports.first().map_or(0, |(shard, ..)| shard.of);
        if let Some((shard, file, _)) = reports.iter().find(|(shard, ..)| shard.of != of) {
            return Err(format!(
                "{file}: this is shard {shard}, but other reports divide the search into {of} shards"
            ));
        }
        for (number, pair) in (1..).zip(reports.windows(2)) {
            if let [(one, first, _), (other, second, _)] = pair
                && one == other
            {
                return Err(format!("{first} and {second} are both reports of shard {number}/{of}"));
            }
        }
        let has = |number: &u64| reports.iter().any(|(shard, ..)| shard.number == *number);
        if let Some(missing) = (1..=of).find(|it| !has(it)) {
            return Err(format!("the report of shard {missing}/{of} is missing"));
        }
        let reports: Vec<Value> = reports.into_iter().map(|(.., report)| report).collect();
        let unsure = reports
            .iter()
            .flat_map(|it| it["unsure"].as_array().into_iter().flatten());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(Self {
            unsure: unsure.map(|it| (text(&it["replay"]), text(&it["what"]))).collect(),
            is_interrupted: reports.iter().any(|it| it["isInterrupted"] == true),
            merged: together(reports),
        })
    }

    /// Returns the replay strings of the plans that failed in the shards.
    pub(crate) fn replays(&self) -> &[String] {
        &self.merged.failures
    }

    /// Adds the other findings of the shards to the report about the replays of the shards' failures.
    pub(crate) fn add_to(self, report: &mut Report) {
        report.coverage = self.merged.coverage;
        report.notes.extend(self.merged.notes);
        report.unsure.extend(self.unsure);
        report.is_interrupted |= self.is_interrupted;
        report.is_replay = false;
        if report.found.is_empty() {
            report.never = self.merged.never;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    /// Writes the reports to numbered files, and reads these files.
    fn read(name: &str, reports: &[Value]) -> Result<Shards, String> {
        let folder = std::env::temp_dir().join(format!("drydock-merge-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("the directory can be created");
        let paths: Vec<PathBuf> = (0..reports.len()).map(|it| folder.join(format!("{it}.json"))).collect();
        for (path, report) in paths.iter().zip(reports) {
            fs::write(path, report.to_string()).expect("the file is writable");
        }
        let read = Shards::read(&paths);
        let _ = fs::remove_dir_all(&folder);
        let prefix = format!("{}/", folder.display());
        read.map_err(|err| err.replace(&prefix, ""))
    }

    #[rstest::rstest]
    #[case::missing_shard(&["1/3", "3/3"], "the report of shard 2/3 is missing")]
    #[case::another_number_of_shards(&["1/2", "2/3"],
        "1.json: this is shard 2/3, but other reports divide the search into 2 shards")]
    #[case::duplicate_shard(&["1/2", "1/2"], "0.json and 1.json are both reports of shard 1/2")]
    #[case::report_without_a_shard(&["all"], "0.json: the file is not a report written with --shard and --json")]
    fn incomplete_shard_reports_are_refused(#[case] shards: &[&str], #[case] error: &str) {
        let reports: Vec<Value> = shards.iter().map(|it| json!({"shard": it})).collect();
        let name = error.replace(|it: char| !it.is_ascii_alphanumeric(), "");
        assert_eq!(read(&name, &reports).err().as_deref(), Some(error));
    }

    #[test]
    fn findings_of_all_shards_are_combined() {
        let report = |number: u64, never: &[&str]| {
            json!({
                "shard": format!("{number}/2"),
                "failures": [{"replay": format!("crash-after=1000@a:create:pods:default/x#{number}")}],
                "unsure": [{"replay": "r", "what": format!("w{number}")}],
                "never": never,
                "notes": ["n"],
                "coverage": {"schedules": 10},
            })
        };
        let shards = read("all", &[report(1, &["a", "b"]), report(2, &["b"])]).expect("the reports are complete");
        assert_eq!(shards.replays().len(), 2);
        let mut merged = Report::new("scenario.yaml");
        shards.add_to(&mut merged);
        assert_eq!(merged.coverage.schedules, 20);
        assert_eq!(merged.never, ["b"]);
        assert_eq!(merged.unsure().collect::<Vec<_>>(), ["w1", "w2"]);
        assert_eq!(merged.notes, ["n"]);
    }
}
