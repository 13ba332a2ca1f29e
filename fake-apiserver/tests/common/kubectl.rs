//! The kubectl that tests run: one version from an explicit location, never from the PATH.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The minor version that the tests expect. The output of other versions differs.
const MINOR: &str = "1.37";

/// The directory of `.ci/kubectl`, inside the target directory.
const INSTALLED: &str = "kubectl-1.37.1/bin/kubectl";

/// Returns kubectl 1.37 from `$KUBECTL`, or from the directory of `.ci/kubectl`. The error is the reason why a test is
/// skipped.
pub(crate) fn kubectl() -> Result<&'static Path, &'static str> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| match std::env::var_os("KUBECTL") {
        Some(program) => right_version(PathBuf::from(program)),
        None => match Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name(INSTALLED) {
            program if program.exists() => right_version(program),
            _ => Err(format!("needs kubectl {MINOR}: run .ci/kubectl, or set KUBECTL")),
        },
    });
    found.as_deref().map_err(String::as_str)
}

fn right_version(program: PathBuf) -> Result<PathBuf, String> {
    let output = Command::new(&program)
        .args(["version", "--client", "-o", "json"])
        .output()
        .map_err(|err| format!("cannot run {}: {err}", program.display()))?;
    let version: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let text = version["clientVersion"]["gitVersion"].as_str().unwrap_or_default();
    let is_right = text
        .strip_prefix('v')
        .and_then(|it| it.strip_prefix(MINOR))
        .is_some_and(|rest| rest.starts_with('.'));
    match is_right {
        true => Ok(program),
        false => Err(format!("needs kubectl {MINOR}, and {} is {text:?}", program.display())),
    }
}
