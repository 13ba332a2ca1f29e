//! The command `fake-apiserver` as a user or a script meets it: what it prints, and how it ends.

mod common;

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Output;

use common::{Server, command, folder};
use rstest::rstest;

fn run(args: &[&str]) -> Output {
    command(args).output().expect("cargo has built the command")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the command writes text")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("the target folder has a plain name")
}

#[cfg(unix)]
#[rstest]
#[case::interrupted("INT", &[])]
#[case::terminated("TERM", &["--tls"])]
fn it_says_when_it_is_ready_and_ends_cleanly(#[case] signal: &str, #[case] args: &[&str]) {
    let mut server = Server::start(args);
    let scheme = if args.is_empty() { "http" } else { "https" };
    assert!(
        server.url.starts_with(&format!("{scheme}://127.0.0.1:")),
        "{}",
        server.url
    );

    let pid = server.child.id().to_string();
    let sent = std::process::Command::new("kill").args(["-s", signal, &pid]).status();
    assert!(sent.expect("unix has kill").success());
    assert_eq!(server.child.wait().expect("it is our child").code(), Some(0));
    let mut rest = String::new();
    server.stdout.read_to_string(&mut rest).expect("stdout is text");
    assert_eq!(rest, "", "the ready line is the only one");
}

#[rstest]
#[case::unknown_flag(&["--no-such-flag"], "--no-such-flag")]
#[case::no_address(&["--listen", "here"], "--listen")]
#[case::no_number(&["--seed", "x"], "--seed")]
fn wrong_usage_is_2(#[case] args: &[&str], #[case] named: &str) {
    let output = run(args);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains(named));
}

#[test]
fn what_cannot_be_read_is_named() {
    let file = folder().join("bad.yaml");
    fs::write(&file, "kind: A\napiVersion: v1\n---\n- no object\n").expect("the folder is there");
    let output = run(&["--load", path(&file)]);
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("error: {}, document 2: expected an object, found a list\n", path(&file));
    assert_eq!(text(&output.stderr), expected);
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn crd_takes_nothing_but_definitions() {
    let file = folder().join("map.yaml");
    fs::write(&file, "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\n").expect("the folder is there");
    let output = run(&["--crd", path(&file)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("\"ConfigMap\" is not a CustomResourceDefinition"));
}

#[test]
fn a_port_that_is_taken_is_named() {
    let server = Server::start(&[]);
    let address = server.url.trim_start_matches("http://");
    let output = run(&["--listen", address]);
    assert_eq!(output.status.code(), Some(1));
    let start = format!("error: cannot listen on {address}: ");
    assert!(text(&output.stderr).starts_with(&start), "{}", text(&output.stderr));
}

#[test]
fn its_own_kubeconfig_is_replaced_and_no_other() {
    let file = folder().join("kubeconfig");
    for _ in 0..2 {
        let server = Server::start(&["--kubeconfig", path(&file)]);
        let config = fs::read_to_string(&file).expect("it is written before the server is ready");
        assert!(config.contains(&format!("server: {}\n", server.url)), "{config}");
    }

    fs::write(&file, "current-context: production\n").expect("the folder is there");
    let output = run(&["--kubeconfig", path(&file)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("was not written by fake-apiserver"));
    let kept = fs::read_to_string(&file).expect("it is still there");
    assert_eq!(kept, "current-context: production\n");
}
