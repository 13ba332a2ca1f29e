//! Runs the command in another process: starts it, waits until it is ready, and stops it at the end of the test.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

/// Returns the command with these arguments.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fake-apiserver"));
    command.args(args).stdin(Stdio::null());
    command
}

/// A separate, empty directory for one test.
pub(crate) fn folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!(
        "{}-{}-{}",
        env!("CARGO_CRATE_NAME"),
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("the target directory is writable");
    folder
}

/// A running command.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) url: String,
    pub(crate) stdout: BufReader<ChildStdout>,
}

impl Server {
    /// Starts the command on a free port, and waits for the line that reports readiness.
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut child = command(args)
            .stdout(Stdio::piped())
            .spawn()
            .expect("cargo has built the command");
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("stdout is text");
        let url = line
            .strip_prefix("listening on ")
            .and_then(|it| it.strip_suffix('\n'))
            .unwrap_or_else(|| panic!("the line does not report a ready server: {line:?}"));
        let url = url.to_owned();
        Self { child, url, stdout }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ignore errors: nothing is left to stop.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns `true` if a value matches a schema of the document. Supports the part of JSON Schema that the document uses.
pub(crate) fn fits(value: &Value, schema: &Value, document: &Value) -> bool {
    if let Some(reference) = schema["$ref"].as_str() {
        let found = document.pointer(&reference[1..]).expect("the reference is resolvable");
        return fits(value, found, document);
    }
    if let Some(variants) = schema["oneOf"].as_array() {
        return variants.iter().filter(|it| fits(value, it, document)).count() == 1;
    }
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("unknown type {other}"),
    };
    let of_type = match &schema["type"] {
        Value::String(name) => is(name),
        Value::Array(names) => names.iter().any(|it| is(it.as_str().expect("the type is a string"))),
        _ => true,
    };
    let listed = schema["enum"].as_array().is_none_or(|all| all.contains(value));
    let smallest = schema["minimum"]
        .as_f64()
        .is_none_or(|least| value.as_f64().is_none_or(|it| it >= least));
    let items = value.as_array().into_iter().flatten();
    let mut items = items.map(|item| fits(item, &schema["items"], document));
    let members = value.as_object().into_iter().flatten();
    let closed = schema["additionalProperties"] == false;
    let mut members = members.map(|(name, member)| match schema["properties"].get(name) {
        Some(property) => fits(member, property, document),
        None => !closed,
    });
    let required = schema["required"].as_array().into_iter().flatten();
    let mut required = required.map(|name| value.get(name.as_str().expect("the name is a string")).is_some());
    of_type && listed && smallest && items.all(|it| it) && members.all(|it| it) && required.all(|it| it)
}
