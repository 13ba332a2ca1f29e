//! Steps that run a program, mostly kubectl, against the server's port.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use fake_apiserver::Serving;
use regex::Regex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::kubectl;

/// Time limit of a program.
const SECONDS_MAX: u64 = 90;

/// Returns the directory to prepend to the PATH, so that `kubectl` has the right version. The error is the reason why a
/// test is skipped.
pub(crate) fn kubectl_folder() -> Result<&'static Path, &'static str> {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let program = kubectl::kubectl()?;
    let folder = FOLDER.get_or_init(|| {
        let folder = scratch("bin");
        // The program may have a different file name.
        let launcher = folder.join("kubectl");
        let script = format!("#!/bin/sh\nexec '{}' \"$@\"\n", program.display());
        std::fs::write(&launcher, script).expect("the target directory is writable");
        let made = Command::new("chmod").arg("+x").arg(&launcher).status();
        assert!(
            made.is_ok_and(|it| it.success()),
            "{} cannot be made executable",
            launcher.display()
        );
        folder
    });
    Ok(folder)
}

/// Creates a directory.
fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("conformance-{}", std::process::id()));
    let folder = folder.join(name);
    std::fs::create_dir_all(&folder).expect("the target directory is writable");
    folder
}

/// Runs a command line. `unique` is the name of its scenario. The result has the recorded form: exit code and lines.
pub(crate) async fn run(
    serving: &Serving,
    unique: &str,
    line: &str,
    stdin: &str,
    masked: &[String],
) -> Result<Value, String> {
    let text = |why: std::io::Error| why.to_string();
    let folder = scratch(unique);
    let file = |name: &str| folder.join(name);
    std::fs::write(file("config"), kubeconfig(&serving.url())).map_err(text)?;
    File::create(file("in"))
        .and_then(|mut it| it.write_all(stdin.as_bytes()))
        .map_err(text)?;
    let path = std::env::var("PATH").unwrap_or_default();
    let kubectl = kubectl_folder()?;
    let mut child = Command::new("bash")
        .args(["-c", line])
        .env("PATH", format!("{}:{path}", kubectl.display()))
        .env("KUBECONFIG", file("config"))
        .env("KUBECACHEDIR", file("cache"))
        .env("HOME", "/nonexistent")
        .stdin(Stdio::from(File::open(file("in")).map_err(text)?))
        .stdout(Stdio::from(File::create(file("out")).map_err(text)?))
        .stderr(Stdio::from(File::create(file("err")).map_err(text)?))
        .spawn()
        .map_err(text)?;
    let deadline = Instant::now() + Duration::from_secs(SECONDS_MAX);
    let exit = loop {
        if let Some(exit) = child.try_wait().map_err(text)? {
            break exit;
        }
        if Instant::now() > deadline {
            child.kill().and_then(|()| child.wait()).map_err(text)?;
            return Err(format!("the command has not ended after {SECONDS_MAX} s: {line}"));
        }
        sleep(Duration::from_millis(5)).await;
    };
    let lines = |name: &str| std::fs::read(file(name)).map(|it| lines(&String::from_utf8_lossy(&it), masked));
    Ok(json!({"exit": exit.code(), "stdout": lines("out").map_err(text)?, "stderr": lines("err").map_err(text)?}))
}

/// Returns a kubeconfig in the recorder's format, because some scenarios parse it as JSON.
fn kubeconfig(url: &str) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": crate::TOKEN}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    })
    .to_string()
}

/// Returns the lines of an output, without parts that change from run to run.
fn lines(text: &str, masked: &[String]) -> Vec<String> {
    static SPACES: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\s+").expect("the pattern is valid"));
    static AGE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(^|[^\w-])(?:\d+d)?(?:\d+h)?(?:\d+m)?\d+s\b").expect("the pattern is valid"));
    // kubectl's log depends on a race, for example if a watch times out.
    static LOG: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^[IWEF]\d{4} [\d:.]+ ").expect("the pattern is valid"));
    let masked: Vec<Regex> = masked.iter().filter_map(|it| Regex::new(it).ok()).collect();
    text.lines()
        .map(|line| SPACES.replace_all(line, " ").trim_end().to_owned())
        .map(|line| AGE.replace_all(&line, "${1}<age>").into_owned())
        .filter(|line| !LOG.is_match(line) && !masked.iter().any(|it| it.is_match(line)))
        .collect()
}
