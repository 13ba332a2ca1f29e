//! helm, the official Python client, kopf and `@kubernetes/client-node` against the command.
//!
//! Opt-in, because they are fetched from package registries: `DRYDOCK_CLIENTS=1`. Without it the test says that it is
//! skipped. `clients/run` sets them up in the target folder and runs them.

use std::path::Path;
use std::process::Command;

#[test]
#[expect(clippy::print_stderr, reason = "a test that is left out has to say so")]
fn clients_of_other_languages() {
    if std::env::var_os("DRYDOCK_CLIENTS").is_none_or(|it| it != "1") {
        eprintln!("skipped: clients_of_other_languages needs DRYDOCK_CLIENTS=1, python3, node and package registries");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/run");
    let status = Command::new("bash")
        .arg(script)
        .arg(env!("CARGO_BIN_EXE_fake-apiserver"))
        .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients"))
        .status()
        .expect("there is a bash");
    assert!(status.success(), "a client fails, see above");
}
