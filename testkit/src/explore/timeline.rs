//! `Timeline`: the reference and the failing run side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Bound, Range};
use std::time::Duration;

use fake_apiserver::Verb;
use serde::Deserialize;
use serde_json::{Value, json};

use super::plan::{Plan, given};
use super::run::Outcome;
use super::trace::{self, BOOKMARK, Step, What};

/// Rows in a stretch in which nothing happens, for it to be folded.
const QUIET: usize = 3;

/// The signs that are added to a name to make it.
const CHANCE: usize = 5;

/// Rows shown around a difference, and in all.
const AROUND: usize = 6;
const SHOWN: usize = 60;

/// Rows that come again and again are folded after so many rounds, if a round has no more rows than this.
const ROUNDS: usize = 2;
const ROUND_ROWS: usize = 12;

/// The width of a column of text.
const COLUMN: usize = 88;

/// Two stretches of so many messages are brought together by a table of all their pairs, of four bytes each.
const STRETCH: usize = 2_000;

/// Pairs that are looked at for one timeline. What comes after them stands alone in its row, but for the end that both
/// have in common.
const PLACES: usize = 40_000_000;

/// The rows: what both did, or one of them.
#[derive(Debug)]
pub(crate) struct Timeline {
    pub(crate) rows: Vec<Row>,
}

/// A row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) reference: Option<Cell>,
    pub(crate) failing: Option<Cell>,
}

/// One step of one run.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) at: Duration,
    pub(crate) who: String,
    pub(crate) what: String,
    pub(crate) outcome: String,
    /// The revisions that the client's view is behind.
    pub(crate) lag: Option<(u64, u64)>,
    pub(crate) is_note: bool,
    /// A bookmark, or a watch that begins: nothing is learned from it.
    is_quiet: bool,
    /// The plan lets something go wrong here.
    pub(crate) is_struck: bool,
    pub(crate) is_write: bool,
    /// The object, for its life line.
    pub(crate) object: Option<String>,
    key: String,
}

impl Cell {
    fn of(step: &Step, plan: &Plan, made: &BTreeSet<&str>) -> Self {
        let (is_note, is_write, object) = match &step.what {
            What::Request(request) => {
                let name = format!("{} {}", request.base(), request.named());
                (false, request.is_write(), Some(name.replace(" /", " ")))
            }
            What::Event { resource, object, .. } => {
                (false, false, Some(format!("{resource} {object}").replace(" /", " ")))
            }
            What::Call { .. } => (false, false, None),
            What::Note(_) => (true, false, None),
        };
        let life = if step.life > 1 {
            format!(" ({})", step.life)
        } else {
            String::new()
        };
        let is_quiet = match &step.what {
            What::Request(request) => request.verb == Verb::Watch && request.outcome == trace::Outcome::Answered(200),
            What::Event { kind, .. } => kind == BOOKMARK,
            What::Call { .. } | What::Note(_) => false,
        };
        Self {
            is_quiet,
            at: step.told(),
            who: format!("{}{life}", given(&step.client)),
            what: step.subject(),
            outcome: step.outcome(),
            lag: (step.view > 0 && !is_note).then_some((step.view, step.truth)),
            is_note,
            is_struck: plan.faults.iter().any(|it| it.point == step.point),
            is_write,
            object,
            key: key(step, made),
        }
    }

    fn doing(at: Duration, what: &str) -> Self {
        Self {
            is_quiet: false,
            at,
            who: "the test".to_owned(),
            what: what.to_owned(),
            outcome: String::new(),
            lag: None,
            is_note: false,
            is_struck: false,
            is_write: true,
            object: what.split_once(' ').map(|(_, object)| object.to_owned()),
            key: format!("test {what}"),
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "at": self.at.as_secs_f64(), "who": self.who, "what": self.what, "object": self.object,
            "outcome": self.outcome, "isFault": self.is_struck || self.is_note,
            "saw": self.lag.map(|(view, _)| view), "truth": self.lag.map(|(_, truth)| truth),
        })
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8.3} {} {}", self.at.as_secs_f64(), self.who, self.what)?;
        if let Some((view, truth)) = self.lag.filter(|(view, truth)| view < truth) {
            write!(f, " [saw {view} of {truth}]")?;
        }
        if !self.outcome.is_empty() {
            write!(f, " → {}", self.outcome)?;
        }
        if self.is_struck {
            f.write_str(" ← here")?;
        }
        Ok(())
    }
}

/// Rows as they are shown.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shown<'a> {
    Row(&'a Row),
    /// Rows that are the same in both runs, or in which nothing happens.
    Same(&'a [Row]),
    /// Rows that come so many times more.
    Again(&'a [Row], usize),
}

impl<'a> Shown<'a> {
    /// The folded rows, with what is said of them: `3 identical rows`.
    pub(crate) fn folded(self) -> Option<(String, &'a [Row])> {
        match self {
            Self::Row(_) => None,
            Self::Same(rows) => Some((identical(rows), rows)),
            Self::Again(rows, times) => {
                let cells = rows.last().map(|it| [&it.failing, &it.reference]);
                let last = cells.iter().flatten().find_map(|it| it.as_ref());
                let until = last.map_or(String::new(), |it| format!(", until {:.3}", it.at.as_secs_f64()));
                Some((format!("the same {times} times more{until}"), rows))
            }
        }
    }
}

fn identical(rows: &[Row]) -> String {
    match (rows.len(), rows.iter().all(Row::is_same)) {
        (1, true) => "1 identical row".to_owned(),
        (count, true) => format!("{count} identical rows"),
        (count, false) => format!("{count} rows in which nothing happens"),
    }
}

/// The steps of two runs, brought together where they are the same.
pub(crate) fn rows(reference: &Outcome, failing: &Outcome, plan: &Plan) -> Vec<Row> {
    let traces = reference.trace.iter().chain(&failing.trace);
    let made: BTreeSet<&str> = traces.filter_map(made_from).collect();
    let (left, right) = (cells(reference, &Plan::default(), &made), cells(failing, plan, &made));
    let mut rows = Vec::new();
    let mut ahead = common(&left, &right).into_iter().peekable();
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        let (next_l, next_r) = ahead.peek().copied().unwrap_or((left.len(), right.len()));
        if l == next_l && r == next_r {
            ahead.next();
            rows.push(row(left.get(l), right.get(r)));
            (l, r) = (l + 1, r + 1);
            continue;
        }
        // Rows of one run alone, in the order of time.
        let is_left = l < next_l && (r >= next_r || left[l].at <= right[r].at);
        if is_left {
            rows.push(row(left.get(l), None));
            l += 1;
        } else {
            rows.push(row(None, right.get(r)));
            r += 1;
        }
    }
    rows
}

fn row(reference: Option<&Cell>, failing: Option<&Cell>) -> Row {
    Row {
        reference: reference.cloned(),
        failing: failing.cloned(),
    }
}

/// Returns the `generateName` of the object that a step creates.
fn made_from(step: &Step) -> Option<&str> {
    match &step.what {
        What::Request(request) => request.made_from.as_deref(),
        What::Event { .. } | What::Call { .. } | What::Note(_) => None,
    }
}

/// Returns the key by which a step is found in another run: its sender, verb and object, without its number. The random
/// end of a generated name does not count.
fn key(step: &Step, made: &BTreeSet<&str>) -> String {
    let stem = step.point.rsplit_once('#').map_or(&*step.point, |(stem, _)| stem);
    let (way, name) = stem.rsplit_once('/').unwrap_or((stem, ""));
    let prefixes = made.range::<str, _>((Bound::Unbounded, Bound::Included(name))).rev();
    let prefix = prefixes.take_while(|it| it.as_bytes().first() == name.as_bytes().first());
    let prefix = prefix
        .into_iter()
        .find(|it| name.len() == it.len() + CHANCE && name.starts_with(**it));
    let name = prefix.copied().unwrap_or(name);
    match &step.what {
        What::Request(_) => format!("{way}/{name}"),
        What::Event { kind, .. } => format!("{way}/{name} {kind}"),
        What::Call { .. } | What::Note(_) => format!("{stem}{}", step.subject()),
    }
}

fn cells(outcome: &Outcome, plan: &Plan, made: &BTreeSet<&str>) -> Vec<Cell> {
    let steps = outcome.trace.iter().flat_map(|step| {
        let told = Cell::of(step, plan, made);
        let came = (told.at > step.at).then(|| Cell {
            at: step.at,
            what: format!("{} is held", told.what),
            outcome: String::new(),
            key: format!("{} held", told.key),
            ..told.clone()
        });
        let is_struck = told.is_struck && came.is_none();
        came.into_iter().chain([Cell { is_struck, ..told }])
    });
    let doings = outcome.doings.iter().map(|(at, what)| Cell::doing(*at, what));
    // Steps of the test come first, since the others follow from them.
    let mut cells: Vec<Cell> = doings.chain(steps).collect();
    cells.sort_by_key(|it| it.at);
    cells
}

/// The places of what both did, in order: what is the same at the beginning and at the end, and between them stretch
/// by stretch.
fn common(left: &[Cell], right: &[Cell]) -> Vec<(usize, usize)> {
    let (left, right) = numbers(left, right);
    let same = |(l, r): &(&usize, &usize)| l == r;
    let before = left.iter().zip(&right).take_while(same).count();
    let (rest_l, rest_r) = (&left[before..], &right[before..]);
    let after = rest_l.iter().rev().zip(rest_r.iter().rev()).take_while(same).count();
    let (end_l, end_r) = (left.len() - after, right.len() - after);
    let mut common: Vec<(usize, usize)> = (0..before).map(|at| (at, at)).collect();
    let (mut l, mut r, mut places) = (before, before, PLACES);
    while l < end_l && r < end_r {
        let stretch_l = &left[l..end_l.min(l + STRETCH)];
        let stretch_r = &right[r..end_r.min(r + STRETCH)];
        let needed = (stretch_l.len() + 1) * (stretch_r.len() + 1);
        if needed > places {
            break;
        }
        places -= needed;
        let found = longest_common(stretch_l, stretch_r);
        common.extend(found.iter().map(|(in_l, in_r)| (l + in_l, r + in_r)));
        match found.last() {
            Some((last_l, last_r)) => (l, r) = (l + last_l + 1, r + last_r + 1),
            // The run of which more is left has something of its own here.
            None if end_r - r > end_l - l => r += stretch_r.len(),
            None => l += stretch_l.len(),
        }
    }
    common.extend((0..after).map(|at| (end_l + at, end_r + at)));
    common
}

/// A number for each key, so that comparing them is cheap.
fn numbers(left: &[Cell], right: &[Cell]) -> (Vec<usize>, Vec<usize>) {
    let mut known = BTreeMap::new();
    let mut numbers = left.iter().chain(right).map(|cell| {
        let next = known.len();
        *known.entry(cell.key.as_str()).or_insert(next)
    });
    let left = numbers.by_ref().take(left.len()).collect();
    (left, numbers.collect())
}

/// The places of the longest common subsequence.
fn longest_common(left: &[usize], right: &[usize]) -> Vec<(usize, usize)> {
    let width = right.len() + 1;
    // Length of the longest common sequence from a place in both, row by row.
    let mut lengths = vec![0_u32; (left.len() + 1) * width];
    for l in (0..left.len()).rev() {
        for r in (0..right.len()).rev() {
            let at = l * width + r;
            lengths[at] = match left[l] == right[r] {
                true => lengths[at + width + 1] + 1,
                false => lengths[at + width].max(lengths[at + 1]),
            };
        }
    }
    let (mut l, mut r, mut common) = (0, 0, Vec::new());
    while l < left.len() && r < right.len() {
        let at = l * width + r;
        if left[l] == right[r] {
            common.push((l, r));
            (l, r) = (l + 1, r + 1);
        } else if lengths[at + width] >= lengths[at + 1] {
            l += 1;
        } else {
            r += 1;
        }
    }
    common
}

impl Row {
    fn is_quiet(&self) -> bool {
        let mut cells = [&self.reference, &self.failing].into_iter().flatten();
        cells.all(|it| it.is_quiet && !it.is_struck)
    }

    /// The row without its times and revisions.
    fn says(&self) -> [Option<(&str, &str, &str, bool)>; 2] {
        [&self.reference, &self.failing].map(|cell| {
            let it = cell.as_ref()?;
            Some((&*it.who, &*it.what, &*it.outcome, it.is_struck))
        })
    }

    /// Returns `true` if both runs did the same with the same outcome.
    pub(crate) fn is_same(&self) -> bool {
        match (&self.reference, &self.failing) {
            (Some(reference), Some(failing)) => reference.outcome == failing.outcome && !failing.is_struck,
            (None, _) | (_, None) => false,
        }
    }
}

impl Timeline {
    /// The rows in order; those that are the same in both runs, with the same around them, are only counted, and so
    /// are stretches in which nothing happens, and rounds that repeat the ones before them.
    pub(crate) fn folded(&self) -> Vec<Shown<'_>> {
        let is_waiting = self.waiting();
        let differs = |at: &usize| !is_waiting[*at] && !self.rows[*at].is_same();
        let differing: Vec<usize> = (0..self.rows.len()).filter(differs).collect();
        let is_near = |at: usize| {
            let next = differing.partition_point(|it| *it + AROUND < at);
            !is_waiting[at] && differing.get(next).is_some_and(|it| *it <= at + AROUND)
        };
        let mut shown: Vec<Shown<'_>> = Vec::new();
        let mut again = self.again().into_iter().peekable();
        for (at, row) in self.rows.iter().enumerate() {
            again.next_if(|it| it.0.end <= at);
            if let Some((rows, times)) = again.peek().filter(|it| it.0.contains(&at)) {
                if at == rows.start {
                    shown.push(Shown::Again(&self.rows[rows.clone()], *times));
                }
                continue;
            }
            match (is_near(at), shown.last_mut()) {
                (true, _) => shown.push(Shown::Row(row)),
                (false, Some(Shown::Same(rows))) => *rows = &self.rows[at - rows.len()..=at],
                (false, _) => shown.push(Shown::Same(&self.rows[at..=at])),
            }
        }
        shown
    }

    /// Stretches of rows that repeat the rounds before them, in order, with the number of rounds. Rows in which nothing
    /// happens may stand anywhere between them, and those that are the same in both runs are folded as such.
    fn again(&self) -> Vec<(Range<usize>, usize)> {
        let is_told = |at: &usize| !self.rows[*at].is_quiet() && !self.rows[*at].is_same();
        let told: Vec<usize> = (0..self.rows.len()).filter(is_told).collect();
        let says: Vec<_> = told.iter().map(|at| self.rows[*at].says()).collect();
        let mut again = Vec::new();
        let mut from = 0;
        while from < told.len() {
            // The length of the stretch in which each row says what the one a round earlier says.
            let length = |round: &usize| {
                let pairs = says[from..].iter().zip(says[from..].iter().skip(*round));
                pairs.take_while(|(one, next)| one == next).count() / round * round
            };
            let rounds = 1..=ROUND_ROWS.min(told.len() - from);
            let found = rounds
                .map(|it| (length(&it), it))
                .find(|(length, it)| *length >= ROUNDS * it);
            let Some((length, round)) = found else {
                from += 1;
                continue;
            };
            let hidden = &told[from + ROUNDS * round..from + round + length];
            if let [first, .., last] = hidden {
                again.push((*first..last + 1, hidden.len() / round));
            }
            from += round + length;
        }
        again
    }

    /// Of each row whether it is one of several in which there is nothing but bookmarks and watches that begin.
    fn waiting(&self) -> Vec<bool> {
        let mut is_waiting = vec![false; self.rows.len()];
        let mut start = 0;
        for end in 0..=self.rows.len() {
            if self.rows.get(end).is_some_and(Row::is_quiet) {
                continue;
            }
            if end - start >= QUIET {
                is_waiting[start..end].fill(true);
            }
            start = end + 1;
        }
        is_waiting
    }

    pub(crate) fn to_json(&self) -> Value {
        let cell = |cell: &Option<Cell>| cell.as_ref().map(Cell::to_json);
        self.rows
            .iter()
            .map(|row| json!({"reference": cell(&row.reference), "failing": cell(&row.failing)}))
            .collect()
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = ["reference run", "failing run"];
        writeln!(f, "{:<COLUMN$} │ {}", heads[0], heads[1])?;
        writeln!(f, "{:─<COLUMN$}─┼─{:─<COLUMN$}", "", "")?;
        let folded = self.folded();
        for shown in folded.iter().take(SHOWN) {
            let text = |cell: &Option<Cell>| cell.as_ref().map(ToString::to_string).unwrap_or_default();
            let Shown::Row(row) = shown else {
                let told = shown.folded().map(|it| it.0).unwrap_or_default();
                writeln!(f, "{:<COLUMN$} │ ", format!("         {told}"))?;
                continue;
            };
            let left: String = text(&row.reference).chars().take(COLUMN).collect();
            writeln!(f, "{left:<COLUMN$} │ {}", text(&row.failing))?;
        }
        let more = folded.len().saturating_sub(SHOWN);
        if more > 0 {
            writeln!(f, "{:<COLUMN$} │ and {more} more", "")?;
        }
        Ok(())
    }
}

/// The name in a body, or what one is made from: `web-*`.
pub(crate) fn name_in(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        name: Option<String>,
        generate_name: Option<String>,
    }
    let Named { metadata } = serde_json::from_slice(body).ok()?;
    let made = || metadata.generate_name.map(|it| format!("{it}*"));
    metadata.name.filter(|it| !it.is_empty()).or_else(made)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A run whose messages are notes.
    fn run_of(texts: impl Iterator<Item = String>) -> Outcome {
        let step = |(at, text): (usize, String)| Step {
            at: Duration::from_millis(at as u64),
            client: Arc::from("operator"),
            life: 1,
            what: What::Note(text),
            view: 0,
            truth: 0,
            point: String::new(),
        };
        Outcome {
            trace: texts.enumerate().map(step).collect(),
            ..Outcome::default()
        }
    }

    fn numbered(range: std::ops::Range<usize>) -> impl Iterator<Item = String> + Clone {
        range.map(|it| it.to_string())
    }

    fn side_by_side(reference: &Outcome, failing: &Outcome) -> usize {
        let rows = rows(reference, failing, &Plan::default());
        rows.iter().filter(|row| row.is_same()).count()
    }

    #[test]
    fn equal_steps_around_differences_stand_side_by_side() {
        let reference = run_of(numbered(0..3_000));
        let lost = numbered(0..100)
            .chain(numbered(110..2_900))
            .chain(numbered(2_950..3_000));
        let failing = run_of(lost);
        assert_eq!(side_by_side(&reference, &failing), 2_940);
    }

    #[test]
    fn rounds_that_repeat_are_folded() {
        let reference = run_of(["a", "b"].map(str::to_owned).into_iter());
        let turns = ["x", "y", "z"].into_iter().cycle().take(3 * 50);
        let failing = run_of(["a"].into_iter().chain(turns).chain(["b"]).map(str::to_owned));
        let timeline = Timeline {
            rows: rows(&reference, &failing, &Plan::default()),
        };
        let text = timeline.to_string();
        assert!(text.contains(" the same 48 times more, until 0.150"), "{text}");
        assert_eq!(text.matches(" y").count(), 2, "{text}");
    }

    /// A table of all pairs would have 360 million places.
    #[test]
    fn a_hot_loop_of_sixty_thousand_messages_needs_little_memory() {
        let reference = run_of(numbered(0..6_000));
        let turns = numbered(100..110).cycle().take(60_000);
        let failing = run_of(numbered(0..110).chain(turns).chain(numbered(5_990..6_000)));
        assert_eq!(side_by_side(&reference, &failing), 120);
    }
}
