//! The trace of a test without exploration: every step as a document, and as a page that is written if the test fails.

use std::path::PathBuf;

use fake_apiserver::trace::{Failure, Marks, Run, Trace};

use crate::output::TRACE;
use crate::panics::{Panicked, last_panic};
use crate::test_cluster::{TEST_CLIENT, TestCluster, TestClusterBuilder};
use crate::text::shortened;

/// Maximum number of characters in a headline.
const HEADLINE_CHARS: usize = 300;

impl TestClusterBuilder {
    /// Records the test. If it fails, writes a page with every step to `target/trace/CRATE-TEST.html`, and the document
    /// as JSON next to it. The failure message contains the path of the page. The environment variable
    /// `DRYDOCK_TRACE=1` has the same effect for all tests; any other value, except for `0`, is the directory to write
    /// to.
    ///
    /// The page includes the tracing output of controllers, down to `DEBUG`. While the cluster exists, other
    /// subscribers of the thread do not receive it.
    pub fn trace(mut self) -> Self {
        self.is_traced = true;
        self
    }
}

impl TestCluster {
    /// Returns all steps so far as a document, which [`Trace::to_html`] converts to a page: requests, events, the
    /// changes of each write and the versions of objects. It includes the tracing output of controllers if the cluster
    /// [records it](TestClusterBuilder::trace).
    ///
    /// ```
    /// use testkit::{TestCluster, objects::config_map};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// cluster.create(config_map("settings").data("mode", "fast")).await;
    /// let trace = cluster.trace();
    /// let step = &trace.runs[0].steps[0];
    /// assert_eq!(step.text, "CREATE configmaps default/settings");
    /// assert_eq!(step.changes[0].to_string(), "+ data.mode: \"fast\"");
    /// # }
    /// ```
    #[must_use]
    pub fn trace(&self) -> Trace {
        let marks = self.output.as_ref().map_or_else(Marks::default, |it| it.marks());
        let name = test_name();
        Trace {
            headline: format!("{name}: no failure so far"),
            title: name,
            runs: vec![Run::of(&self.server, "this test", self.base, TEST_CLIENT, &marks)],
            facts: vec![("seed".to_owned(), self.seed().to_string())],
            notes: self.injections.idle(),
            ..Trace::default()
        }
    }

    /// Writes the page of a failing test. Returns a line with the path of the page, with the reason why it cannot be
    /// written, or with an explanation of how to enable it.
    pub(crate) fn traced(&self, ended: &str) -> String {
        if self.output.is_none() {
            return format!("{TRACE}=1 writes a page that shows every step, with the fields that each write changed");
        }
        let mut trace = self.trace();
        let Panicked { place, text } = last_panic().unwrap_or_default();
        let headline = shortened(text.lines().next().unwrap_or("the test fails"), HEADLINE_CHARS);
        let steps = &trace.runs[0].steps;
        let first = steps.iter().rposition(|it| !it.is_quiet && !it.is_worker);
        let name = trace.title.clone();
        trace.headline.clone_from(&headline);
        trace.failures.push(Failure {
            headline,
            oracle: "the test fails".to_owned(),
            what: format!("{place}\n{text}"),
            notes: ended.lines().map(str::to_owned).collect(),
            command: Some(format!("{TRACE}=1 SEED={} cargo test -- --exact {name}", self.seed())),
            first: first.unwrap_or_default(),
            ..Failure::default()
        });
        match write(&trace) {
            Ok(path) => format!("all steps: {}", path.display()),
            Err(why) => format!("the page with its steps cannot be written: {why}"),
        }
    }
}

/// Returns the name of the test, which is the name of its thread.
fn test_name() -> String {
    std::thread::current().name().unwrap_or("test").to_owned()
}

fn write(trace: &Trace) -> Result<PathBuf, String> {
    let folder = folder().ok_or("no target directory was found: set DRYDOCK_TRACE to a directory")?;
    std::fs::create_dir_all(&folder).map_err(|err| format!("{}: {err}", folder.display()))?;
    let name = file_name(&trace.title);
    let path = folder.join(format!("{name}.html"));
    for (extension, text) in [("json", format!("{:#}\n", trace.to_json())), ("html", trace.to_html())] {
        let path = folder.join(format!("{name}.{extension}"));
        std::fs::write(&path, text).map_err(|err| format!("{}: {err}", path.display()))?;
    }
    Ok(path)
}

/// Returns the name of the files that belong to a test: `crate-module-test`.
fn file_name(test: &str) -> String {
    let program = std::env::current_exe().ok();
    let program = program
        .as_ref()
        .and_then(|it| it.file_stem()?.to_str())
        .unwrap_or("test");
    // Remove the hash that Cargo appends.
    let program = program.rsplit_once('-').map_or(program, |(name, _)| name);
    format!("{program}-{test}").replace("::", "-").replace(['/', ' '], "-")
}

/// Returns the directory in the environment variable, or else `target/trace` for a test in a directory such as
/// `target/debug/deps`.
fn folder() -> Option<PathBuf> {
    match std::env::var_os(TRACE).filter(|it| !it.is_empty() && it != "1" && it != "0") {
        Some(folder) => Some(folder.into()),
        None => {
            let test = std::env::current_exe().ok()?;
            let deps = test.parent().filter(|it| it.ends_with("deps"))?;
            Some(deps.parent()?.parent()?.join("trace"))
        }
    }
}
