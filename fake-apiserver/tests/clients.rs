//! helm, the official Python client, kopf and `@kubernetes/client-node` against the command, and what other languages
//! have in the place of Go's envtest.
//!
//! Opt-in, because they are fetched from package registries: `DRYDOCK_CLIENTS=1`. Without it the test says that it is
//! skipped. `clients/run` sets them up in the target folder and runs them; `../clients/test` does so with this project's own
//! packages for Python, Go and JavaScript, `starters/run` with kube-api-test and jenvtest for Java and envtest for Rust.

use std::path::Path;
use std::process::Command;

#[test]
fn clients_of_other_languages() {
    run("clients_of_other_languages", "tests/clients/run", "clients");
}

#[test]
fn packages_for_other_languages() {
    run("packages_for_other_languages", "clients/test", "packages");
}

#[test]
fn starters_of_control_planes() {
    run("starters_of_control_planes", "tests/starters/run", "starters");
}

/// Runs a script with the program and a folder of this name.
#[expect(clippy::print_stderr, reason = "a test that is left out has to say so")]
fn run(test: &str, script: &str, folder: &str) {
    if std::env::var_os("DRYDOCK_CLIENTS").is_none_or(|it| it != "1") {
        eprintln!("skipped: {test} needs DRYDOCK_CLIENTS=1, python3, node and package registries");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
    let status = Command::new("bash")
        .arg(script)
        .arg(env!("CARGO_BIN_EXE_fake-apiserver"))
        .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder))
        .status()
        .expect("there is a bash");
    assert!(status.success(), "a client fails, see above");
}
