//! The message of a failing test: the location, the failure and the last requests.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use fake_apiserver::trace::{Step, steps};
use fake_apiserver::{Entry, RecordedRequest};
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use crate::target::ObjectId;
use crate::test_cluster::{TEST_CLIENT, TestCluster};
use crate::text::{fields, shortened};

/// Maximum number of lines about requests and events that a failing test prints.
const JOURNAL_LINES: usize = 40;

/// Maximum number of journal entries that are searched for entries to print.
const JOURNAL_ENTRIES: usize = 4_000;

/// Environment variable. With the value `all`, failing tests also print messages that are otherwise omitted, such as
/// bookmarks.
pub(crate) const JOURNAL: &str = "DRYDOCK_JOURNAL";

/// Maximum number of lines in a repeated round of lines that is folded.
const ROUND_LINES: usize = 8;

/// Maximum number of characters of a line.
const LINE_CHARS: usize = 240;

/// Maximum number of different requests in a message about too many requests.
const CULPRITS: usize = 8;

impl TestCluster {
    /// Fails the test. The requests are printed when the cluster is dropped.
    #[track_caller]
    pub(crate) fn fail(&self, what: &str) -> ! {
        fail(what)
    }
}

impl TestCluster {
    /// Fails the test because of an object, with the object's history in the message.
    #[track_caller]
    pub(crate) fn fail_about(&self, id: &ObjectId, what: &str) -> ! {
        fail(&format!("{what}{}", self.history_of(id)))
    }
}

/// Fails the test at the line that called a function of the testkit.
#[track_caller]
pub(crate) fn fail(what: &str) -> ! {
    panic!("{}", message_at(Location::caller(), what))
}

/// Failure of an async function, which is raised at the line of the test that awaits it.
#[derive(Debug)]
pub(crate) struct Failed(pub(crate) String);

impl Failed {
    /// Returns a failure at a location in the test, which the caller of an async function passes.
    pub(crate) fn at(place: &Location<'_>, what: &str) -> Self {
        Self(message_at(place, what))
    }
}

/// Result type of the testkit's async functions before a failure is raised.
pub(crate) type Checked<T> = Result<T, Failed>;

/// A future that raises failures at the line that awaits it. A panic within an async function would have a line of the
/// testkit as its location, because `#[track_caller]` only applies to the function that creates the future.
struct AtTheTest<F>(Pin<Box<F>>);

/// Raises the failure of an async function at the line that awaits it.
pub(crate) fn at_the_test<T>(body: impl Future<Output = Checked<T>>) -> impl Future<Output = T> {
    AtTheTest(Box::pin(body))
}

impl<T, F: Future<Output = Checked<T>>> Future for AtTheTest<F> {
    type Output = T;

    #[track_caller]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match ready!(self.0.as_mut().poll(cx)) {
            Ok(done) => Poll::Ready(done),
            Err(Failed(message)) => panic!("{message}"),
        }
    }
}

/// Formats a failure at a location in the test.
pub(crate) fn message_at(place: &Location<'_>, what: &str) -> String {
    format!("{}:{}: {what}", place.file(), place.line())
}

/// Prints the context of a failing test: the seed, the controllers that have ended, the injected faults and the last
/// requests.
#[expect(
    clippy::print_stderr,
    reason = "a failing test is read there; the test runner captures it"
)]
pub(crate) fn print_after_failure(cluster: &TestCluster, ended: &str) {
    let seed = cluster.seed();
    eprintln!("\ntest cluster: the seed was {seed}; SEED={seed} repeats the run");
    eprint!("{ended}{}", cluster.injections);
    eprintln!("{}", last_requests(cluster));
    eprintln!("{}", cluster.traced(ended));
}

/// Prints the faults that matched no request, at the end of a passing test.
#[expect(
    clippy::print_stderr,
    reason = "a test that tests less than it appears to must be visible"
)]
pub(crate) fn print_idle_faults(cluster: &TestCluster) {
    for line in cluster.injections.idle() {
        eprintln!("test cluster: {line}");
    }
}

/// Formats the end of the journal, up to a limit: one line per request and event, with its client and the fields that a
/// write changed. Repeated lines, and repeated rounds of several lines, are counted. Omits messages of workers,
/// bookmarks and messages about Events and Leases, unless the environment variable enables them.
fn last_requests(cluster: &TestCluster) -> String {
    let journal = cluster.server.journal();
    let (first, steps) = steps(&cluster.server, cluster.base, TEST_CLIENT, JOURNAL_ENTRIES);
    let entries = journal.since(first as u64);
    let shows_all = std::env::var_os(JOURNAL).is_some_and(|it| it == "all");
    let mut left_out: BTreeMap<&str, usize> = BTreeMap::new();
    let mut lines: Vec<Line> = Vec::new();
    for (entry, step) in entries.iter().zip(&steps) {
        match beside(entry, step).filter(|_| !shows_all) {
            Some(what) => *left_out.entry(what).or_default() += 1,
            None => lines.push(Line::of(entry, step)),
        }
    }
    if entries.is_empty() {
        return "there were no requests".to_owned();
    }
    let lines = folded(lines);
    let skipped = lines.len().saturating_sub(JOURNAL_LINES);
    let mut text = match skipped {
        0 => "the requests and events:".to_owned(),
        more => format!("the last requests and events, {more} earlier ones omitted:"),
    };
    for (time, what) in lines.iter().skip(skipped) {
        let _ = write!(text, "\n{time:>11} {}", shortened(what, LINE_CHARS));
    }
    if !left_out.is_empty() {
        let parts: Vec<String> = left_out.iter().map(|(what, count)| format!("{count} {what}")).collect();
        let _ = write!(text, "\nomitted: {}; {JOURNAL}=all shows them", parts.join(", "));
    }
    text
}

/// Returns the category of a message that is omitted because it is rarely related to a failure.
fn beside(entry: &Entry, step: &Step) -> Option<&'static str> {
    let resource = match entry {
        Entry::Request(it) if it.worker.is_some() => return Some("of workers"),
        Entry::Event(it) if it.kind == "BOOKMARK" => return Some("bookmarks"),
        Entry::Request(it) => it.info.as_ref().map_or("", |it| &it.resource),
        Entry::Event(it) => &it.resource,
    };
    // Lists and watches of reflectors are not omitted.
    let is_object = !step.object.is_empty();
    match resource {
        "events" if is_object => Some("about Events"),
        "leases" if is_object => Some("about Leases"),
        _ => None,
    }
}

/// A line for a request or an event.
struct Line {
    time: String,
    /// The line without changes, by which repeated lines are recognised.
    what: String,
    /// The fields that a write changed, which differ between rounds.
    changes: String,
}

impl Line {
    fn of(entry: &Entry, step: &Step) -> Self {
        let line = entry.to_string();
        let (time, what) = line.trim_start().split_once(' ').unwrap_or(("", &line));
        // Names in paths are escaped, such as `system%3Anode`.
        let what = percent_decode_str(what).decode_utf8_lossy();
        Self {
            time: time.to_owned(),
            what: format!(" {:<10} {}", step.client, what.trim_start()),
            changes: fields(step),
        }
    }
}

/// Folds repeated lines and rounds of lines: shows the first round, and counts the others.
fn folded(lines: Vec<Line>) -> Vec<(String, String)> {
    let mut shown = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        // Returns the number of times that the next `round` lines are repeated.
        let repeats = |round: usize| {
            let pairs = lines[at..].iter().zip(lines[at..].iter().skip(round));
            pairs.take_while(|(one, next)| one.what == next.what).count() / round
        };
        let mut rounds = 1..=ROUND_LINES.min(lines.len() - at);
        let found = rounds.find(|round| repeats(*round) * round >= 2);
        let round = found.unwrap_or(1);
        let times = found.map_or(0, repeats);
        for line in &lines[at..at + round] {
            shown.push((line.time.clone(), format!("{}{}", line.what, line.changes)));
        }
        at += round * (times + 1);
        let last = &lines[at - 1];
        let these = match round {
            1 => "this line".to_owned(),
            _ => format!("these {round} lines"),
        };
        if times > 0 {
            let what = format!(" {these} repeated {times} more times{}", last.changes);
            shown.push((last.time.clone(), what));
        }
    }
    shown
}

/// Lists the most frequent requests with their counts, one per line. Requests that fail repeatedly are first.
pub(crate) fn most_frequent(entries: &[Entry]) -> String {
    let mut counts = BTreeMap::new();
    for entry in entries {
        if let Entry::Request(request) = entry {
            let path = request.path.split('?').next().unwrap_or_default();
            let why = refusal(request).map_or(String::new(), |it| format!(" {it}"));
            let what = format!(
                "{} {path} by {:?}: {}{}",
                request.method,
                request.user_agent,
                request.code,
                shortened(&why, LINE_CHARS)
            );
            // A read of a missing object is not a failure.
            let is_failing = request.code >= 400 && !(request.code == 404 && request.method == "GET");
            counts.entry(what).or_insert((is_failing, 0_usize)).1 += 1;
        }
    }
    let mut counts: Vec<_> = counts
        .into_iter()
        .map(|(what, (is_failing, count))| (what, is_failing, count))
        .collect();
    let is_cause = |is_failing: bool, count: usize| is_failing && count > 1;
    counts.sort_by_key(|(_, is_failing, count)| (!is_cause(*is_failing, *count), std::cmp::Reverse(*count)));
    let counts: Vec<_> = counts.into_iter().map(|(what, _, count)| (what, count)).collect();
    let left_out = counts.len().saturating_sub(CULPRITS);
    let mut text = String::new();
    for (what, count) in counts.into_iter().take(CULPRITS) {
        let _ = write!(text, "\n{count:>7} × {what}");
    }
    if left_out > 0 {
        let _ = write!(text, "\n        and {left_out} others");
    }
    text
}

/// Returns the message in a response that refuses a request.
fn refusal(request: &RecordedRequest) -> Option<String> {
    #[derive(Deserialize)]
    struct Refused {
        message: String,
    }
    let answer = request.answer.as_ref().filter(|_| request.code >= 400)?;
    let Refused { message } = serde_json::from_slice(answer).ok()?;
    Some(message)
}
