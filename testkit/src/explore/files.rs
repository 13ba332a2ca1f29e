//! Names and paths of the files that an exploration writes.

use std::path::PathBuf;

/// Returns the name of the files that belong to a test: `crate-module-test`.
pub(crate) fn file_name(test: &str) -> String {
    let program = std::env::current_exe().ok();
    let program = program
        .as_ref()
        .and_then(|it| it.file_stem()?.to_str())
        .unwrap_or("test");
    // Remove the hash that Cargo appends.
    let program = program.rsplit_once('-').map_or(program, |(name, _)| name);
    format!("{program}-{test}").replace("::", "-").replace(['/', ' '], "-")
}

/// Environment variable that contains the directory of the reports.
const REPORTS: &str = "EXPLORE_REPORTS";

/// Returns the directory of the reports: `EXPLORE_REPORTS`, or else `target/explore` if the test's executable is in
/// `target/debug/deps`.
pub(crate) fn directory() -> Option<PathBuf> {
    if let Some(directory) = std::env::var_os(REPORTS) {
        return Some(directory.into());
    }
    let test = std::env::current_exe().ok()?;
    let deps = test.parent().filter(|it| it.ends_with("deps"))?;
    Some(deps.parent()?.parent()?.join("explore"))
}
