//! Tests helm, the official Python client, kopf and `@kubernetes/client-node` against the command, and the counterparts
//! of Go's envtest in other languages.
//!
//! Opt-in with `DRYDOCK_CLIENTS=1`, because the clients are fetched from package registries. Otherwise the test prints
//! that it is skipped. `clients/run` installs them in the target directory and runs them; `../clients/test` does so
//! with this project's own packages for Python, Go and JavaScript, `starters/run` with kube-api-test and jenvtest for
//! Java and envtest for Rust.

use std::path::Path;
use std::process::Command;

#[test]
fn clients_in_other_languages_work() {
    run("clients_in_other_languages_work", "tests/clients/run", "clients");
}

#[test]
fn packages_for_other_languages_work() {
    run("packages_for_other_languages_work", "clients/test", "packages");
}

#[test]
fn control_plane_starters_start_the_server() {
    run(
        "control_plane_starters_start_the_server",
        "tests/starters/run",
        "starters",
    );
}

/// Runs a script with the program and a directory with this name.
#[expect(clippy::print_stderr, reason = "a test that is left out has to say so")]
fn run(test: &str, script: &str, folder: &str) {
    if std::env::var_os("DRYDOCK_CLIENTS").is_none_or(|it| it != "1") {
        eprintln!("skipped: {test} needs DRYDOCK_CLIENTS=1, python3, node and package registries");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
    // The command of the testkit, if it has been built: `cargo build -p drydock-testkit --features processes`.
    let drydock = Path::new(env!("CARGO_BIN_EXE_fake-apiserver")).with_file_name("drydock");
    let status = Command::new("bash")
        .arg(script)
        .arg(env!("CARGO_BIN_EXE_fake-apiserver"))
        .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder))
        .envs(drydock.is_file().then_some(("DRYDOCK", &drydock)))
        .status()
        .expect("bash is installed");
    assert!(status.success(), "the test of a client failed; see its output above");
}
