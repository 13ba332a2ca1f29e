//! Tests the script `.ci/run`, which runs all checks.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::root;

#[test]
fn section_of_a_check_script_fails_if_any_of_its_commands_fails() {
    let passed = run_section("true; true");
    assert!(passed.status.success(), "{passed:?}");
    for commands in ["true; false", "false; true"] {
        let failed = run_section(commands);
        assert!(!failed.status.success(), "{commands}: {failed:?}");
        let errors = String::from_utf8_lossy(&failed.stderr);
        assert!(errors.contains("=== commands: FAILED"), "{commands}: {errors}");
    }
}

/// Runs `.ci/run` with a section that consists of these commands, in place of its own sections.
fn run_section(commands: &str) -> Output {
    let script = fs::read_to_string(root().join(".ci/run")).expect("the script exists");
    let (functions, _) = script.split_once("\nsection \"").expect("the script has sections");
    let script = format!("{functions}\ncommands() {{ {commands}; }}\nsection commands commands\n");
    // The script changes to the folder above its own.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("checks");
    let file = folder.join("ci/run");
    fs::create_dir_all(folder.join("ci")).expect("the folder can be created");
    fs::write(&file, script).expect("the script can be written");
    let command = Command::new("bash")
        .arg(&file)
        .env("CARGO_TARGET_DIR", &folder)
        .output();
    command.expect("bash is installed")
}
