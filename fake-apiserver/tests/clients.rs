//! Tests helm, the official Python client, kopf and `@kubernetes/client-node` against the command, and the counterparts
//! of Go's envtest in other languages.
//!
//! Opt-in with `DRYDOCK_CLIENTS=1`, because the clients are fetched from package registries. Otherwise the test prints
//! that it is skipped. `clients/run` installs them in the target directory and runs them; `../clients/test` does so
//! with this project's own packages for Python, Go and JavaScript, `starters/run` with kube-api-test and jenvtest for
//! Java and envtest for Rust.
//!
//! The tests that compare the methods of the packages with the control API only read source files, and always run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name of the directory for this project's own packages.
const PACKAGES: &str = "packages";

#[test]
fn clients_in_other_languages_work() {
    run("clients_in_other_languages_work", "tests/clients/run", "clients");
}

#[test]
fn packages_for_other_languages_work() {
    run("packages_for_other_languages_work", "clients/test", PACKAGES);
}

#[test]
fn control_plane_starters_start_the_server() {
    run(
        "control_plane_starters_start_the_server",
        "tests/starters/run",
        "starters",
    );
}

/// Returns the command of the testkit for the tests of explorations: the command that `DRYDOCK` names, or the command
/// in the folder of `fake-apiserver`.
///
/// # Panics
///
/// If it has not been built, because the packages would skip these tests.
fn drydock() -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_fake-apiserver")).with_file_name("drydock");
    let found = std::env::var_os("DRYDOCK").map_or(built, PathBuf::from);
    assert!(
        found.is_file(),
        "{} does not exist: run `cargo build -p drydock-testkit --features processes`",
        found.display()
    );
    found
}

/// Runs a script with the program and a directory with this name.
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
        .envs((folder == PACKAGES).then(|| ("DRYDOCK", drydock())))
        .status()
        .expect("bash is installed");
    assert!(status.success(), "the test of a client failed; see its output above");
}

#[test]
fn go_package_has_one_method_for_each_operation() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/go");
    let files = fs::read_dir(folder).expect("the folder exists").filter_map(Result::ok);
    let names = files.filter_map(|it| it.file_name().into_string().ok());
    let texts: Vec<_> = names
        .filter(|name| name.ends_with(".go"))
        .map(|name| package(&format!("go/{name}")))
        .collect();
    let methods = texts.iter().flat_map(|text| text.lines());
    let methods = methods.filter_map(|line| name_before_parenthesis(line.strip_prefix("func (s *Server) ")?));
    let exported = methods.filter(|name| name.starts_with(char::is_uppercase));
    assert_operations(exported.map(|name| format!("{}{}", name[..1].to_lowercase(), &name[1..])));
}

#[test]
fn python_package_has_one_method_for_each_operation() {
    let text = package("python/drydock/__init__.py");
    let methods = class(&text, "class Server:").filter_map(|line| line.strip_prefix("    def "));
    let methods = methods.filter_map(name_before_parenthesis);
    let public = methods.filter(|name| !name.starts_with('_') && !["api_client", "close", "log"].contains(name));
    assert_operations(public.map(camel_case));
}

#[test]
fn javascript_package_has_one_method_for_each_operation() {
    for file in ["javascript/index.mjs", "javascript/index.d.ts"] {
        let text = package(file);
        let lines = class(&text, "export class Server {").filter_map(|line| line.strip_prefix("  "));
        let methods = lines.filter_map(|line| name_before_parenthesis(line.trim_start_matches("async ")));
        let methods = methods.filter(|name| !["constructor", "close"].contains(name));
        assert_operations(methods.map(str::to_owned));
    }
}

/// Asserts that there is one method for each operation of the control API, and no other method.
#[track_caller]
fn assert_operations(methods: impl Iterator<Item = String>) {
    let document: serde_json::Value =
        serde_json::from_str(&read("src/control/openapi.json")).expect("the document is valid JSON");
    let paths = document["paths"].as_object().expect("the document has paths").values();
    let operations = paths.filter_map(|path| path.as_object()).flat_map(|path| path.values());
    let operations: BTreeSet<_> = operations
        .filter_map(|it| it["operationId"].as_str().map(str::to_owned))
        .collect();
    let methods: BTreeSet<_> = methods.collect();
    let missing: Vec<_> = operations.difference(&methods).collect();
    let other: Vec<_> = methods.difference(&operations).collect();
    assert!(
        missing.is_empty() && other.is_empty(),
        "operations without a method: {missing:?}, methods that are not operations: {other:?}"
    );
}

/// Returns the lines of a class up to the next line without indentation.
fn class<'t>(text: &'t str, head: &str) -> impl Iterator<Item = &'t str> {
    let (_, body) = text.split_once(head).expect("the file contains the class");
    body.lines()
        .skip(1)
        .take_while(|line| line.is_empty() || line.starts_with(' '))
}

/// Returns the name that a line begins with, if a parenthesis follows it.
fn name_before_parenthesis(line: &str) -> Option<&str> {
    let (name, _) = line.split_once('(')?;
    let is_name = !name.is_empty() && name.chars().all(|it| it.is_alphanumeric() || it == '_');
    is_name.then_some(name)
}

/// Returns `readEntry` for `read_entry`.
fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |text, word| text + &word[..1].to_uppercase() + &word[1..])
}

fn package(file: &str) -> String {
    read(&format!("clients/{file}"))
}

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
