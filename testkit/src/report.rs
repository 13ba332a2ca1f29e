//! Message of a failing test: the place, the failure and the last requests.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::Location;

use fake_apiserver::{Entry, RecordedRequest};
use serde::Deserialize;

use crate::test_cluster::TestCluster;

/// Number of journal entries that a failing test prints.
const JOURNAL_LINES: usize = 40;

/// The longest line of it.
const LINE_CHARS: usize = 200;

/// Most different requests that are named when there were too many.
const CULPRITS: usize = 8;

impl TestCluster {
    /// Fails the test. The requests are printed when the cluster is dropped.
    #[track_caller]
    pub(crate) fn fail(&self, what: &str) -> ! {
        fail_at(Location::caller(), what)
    }
}

/// Fails the test at a place in it: an async function is not where its caller stands.
pub(crate) fn fail_at(place: &Location<'_>, what: &str) -> ! {
    panic!("{}", message_at(place, what))
}

/// The message of a failure at a place in the test.
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
    eprintln!("\ntest cluster: the seed was {seed}; SEED={seed} makes the same run");
    eprint!("{ended}{}", cluster.injections);
    eprintln!("{}", last_requests(cluster));
}

/// Prints the faults that struck nothing, for a test that passes.
#[expect(clippy::print_stderr, reason = "a test that does less than it says must be seen to")]
pub(crate) fn print_idle_faults(cluster: &TestCluster) {
    for line in cluster.injections.idle() {
        eprintln!("test cluster: {line}");
    }
}

/// The end of the journal, bounded. A line that repeats the one before it, but for the time, is counted instead.
fn last_requests(cluster: &TestCluster) -> String {
    let mut lines: Vec<(String, String, usize)> = Vec::new();
    for entry in cluster.server.journal().entries() {
        let line = entry.to_string();
        let (time, what) = line.trim_start().split_once(' ').unwrap_or(("", &line));
        match lines.last_mut() {
            Some((last, known, count)) if known == what => (*last, *count) = (time.to_owned(), *count + 1),
            _ => lines.push((time.to_owned(), what.to_owned(), 1)),
        }
    }
    let mut text = match lines.len().checked_sub(JOURNAL_LINES) {
        None if lines.is_empty() => return "there were no requests".to_owned(),
        None | Some(0) => "the requests and events:".to_owned(),
        Some(more) => format!("the last requests and events, {more} earlier ones left out:"),
    };
    for (time, what, count) in lines.iter().skip(lines.len().saturating_sub(JOURNAL_LINES)) {
        let _ = write!(text, "\n{time:>11} {}", shortened(what, LINE_CHARS));
        if *count > 1 {
            let _ = write!(text, " (the last of {count})");
        }
    }
    text
}

/// The requests that came most often, each with its number, one a line; first those that fail again and again.
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
            // A read that finds nothing is no failure.
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

/// The message of an answer that refuses a request.
fn refusal(request: &RecordedRequest) -> Option<String> {
    #[derive(Deserialize)]
    struct Refused {
        message: String,
    }
    let answer = request.answer.as_ref().filter(|_| request.code >= 400)?;
    let Refused { message } = serde_json::from_slice(answer).ok()?;
    Some(message)
}

/// A text cut after so many characters.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
