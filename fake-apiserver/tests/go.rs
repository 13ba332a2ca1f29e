//! Kubernetes' Go clients against the command: unmodified client-go and controller-runtime.
//!
//! The tests themselves are the Go module in `tests/go`. It fetches its modules, so it only runs if `DRYDOCK_GO=1` is
//! set and `go` is on the path. Otherwise the test prints that it is skipped.

#![expect(clippy::print_stderr, reason = "a test that is left out has to say so")]

mod common;

use std::path::Path;
use std::process::Command;

use common::{Server, folder};
use rstest::rstest;

#[rstest]
#[case::over_http(&[])]
#[case::over_https_and_http2(&["--tls"])]
fn go_clients_work_with_the_server(#[case] more: &[&str]) {
    if std::env::var_os("DRYDOCK_GO").is_none_or(|it| it != "1") {
        eprintln!("skipped: go_clients_work_with_the_server fetches Go modules, so it runs with DRYDOCK_GO=1");
        return;
    }
    if Command::new("go").arg("version").output().is_err() {
        eprintln!("skipped: go_clients_work_with_the_server needs go on the path");
        return;
    }
    let config = folder().join("config");
    let path = config.to_str().expect("the path is UTF-8");
    let mut args = vec!["--kubeconfig", path, "--workers", "gc,namespace"];
    args.extend(more);
    let _server = Server::start(&args);

    let output = Command::new("go")
        .args(["test", "-count=1", "-timeout=5m", "./..."])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go"))
        .env("KUBECONFIG", &config)
        .output()
        .expect("Go is installed");
    assert!(
        output.status.success(),
        "go test: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
