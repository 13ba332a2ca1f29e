//! Counts the instructions of the most important paths with valgrind. The counts do not depend on load, and are nearly
//! the same on other machines with the same compiler and C library, so they are suitable for comparisons between
//! commits.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The paths that are counted, by their names in the program `write`.
pub const PATHS: [&str; 13] = [
    "create ConfigMap",
    "create Pod",
    "update Pod",
    "merge patch Pod",
    "strategic patch Pod",
    "apply Pod",
    "apply Pod of five managers",
    "apply ConfigMap of 200 managers",
    "create custom resource",
    "update custom resource",
    "get Pod",
    "whole controller test",
    "explored run",
];

/// Numbers of repetitions. Only the difference between them is used, which excludes one-time costs.
const TIMES: [u64; 2] = [8, 24];

/// Counts the instructions of one pass over a path in `program`, which must be `write`. Returns `None` if valgrind is
/// not available.
pub fn count(program: &Path, path: &str) -> Option<u64> {
    let [few, many] = TIMES.map(|times| collected(program, path, times));
    Some(many?.saturating_sub(few?) / (TIMES[1] - TIMES[0]))
}

fn collected(program: &Path, path: &str, times: u64) -> Option<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    let output = valgrind.arg(program).args([path, &times.to_string()]).output().ok()?;
    let told = String::from_utf8_lossy(&output.stderr);
    let (_, number) = told.lines().find_map(|line| line.split_once("Collected : "))?;
    number.trim().parse().ok()
}

/// Counts the instructions of all [`PATHS`], two at a time, because valgrind uses one processor. Returns `None` if
/// valgrind is not available.
pub fn count_all(program: &Path) -> Option<BTreeMap<String, u64>> {
    let (first, second) = PATHS.split_at(PATHS.len() / 2);
    let count_paths = |paths: &[&str]| -> Option<Vec<(String, u64)>> {
        let counted = paths
            .iter()
            .map(|path| Some((String::from(*path), count(program, path)?)));
        counted.collect()
    };
    std::thread::scope(|scope| {
        let others = scope.spawn(|| count_paths(second));
        let mut counts = count_paths(first)?;
        counts.extend(others.join().ok()??);
        Some(counts.into_iter().collect())
    })
}

/// Returns the profile and the versions of the compiler, the C library and valgrind, on which the counts depend.
pub fn tools() -> Vec<String> {
    let version = |program: &str| {
        let output = Command::new(program).arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines().next().map(str::to_owned)
    };
    let programs = ["rustc", "ldd", "valgrind"];
    let unknown = |program: &str| format!("{program} has an unknown version");
    let profile = if cfg!(debug_assertions) {
        "not optimized"
    } else {
        "optimized"
    };
    let versions = programs.map(|it| version(it).unwrap_or_else(|| unknown(it)));
    std::iter::once(profile.to_owned()).chain(versions).collect()
}

/// A path that needs more instructions than before.
#[derive(Clone, Debug, PartialEq)]
pub struct Regression {
    /// Name of the path.
    pub path: String,
    /// Number of instructions before.
    pub before: u64,
    /// Number of instructions now.
    pub now: u64,
}

/// Returns the paths whose number of instructions has increased by more than `tolerance` (0.05 is 5 %). Ignores new
/// paths.
pub fn regressions(before: &BTreeMap<String, u64>, now: &BTreeMap<String, u64>, tolerance: f64) -> Vec<Regression> {
    let regression = |(path, &now): (&String, &u64)| {
        let before = *before.get(path)?;
        let is_worse = now as f64 > before as f64 * (1.0 + tolerance);
        is_worse.then(|| Regression {
            path: path.clone(),
            before,
            now,
        })
    };
    now.iter().filter_map(regression).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
        pairs.iter().map(|(path, count)| ((*path).to_owned(), *count)).collect()
    }

    #[test]
    fn growth_beyond_the_tolerance_is_a_regression() {
        let before = counts(&[("a", 100), ("b", 100), ("gone", 1)]);
        let now = counts(&[("a", 105), ("b", 106), ("new", 9)]);
        let expected = Regression {
            path: "b".to_owned(),
            before: 100,
            now: 106,
        };
        assert_eq!(regressions(&before, &now, 0.05), [expected]);
    }
}
