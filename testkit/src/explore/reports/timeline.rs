//! `Timeline`: the reference and the failing run side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use fake_apiserver::trace;
use serde_json::{Value, json};

use super::cell::{Cell, cells, made_from};
use crate::explore::outcomes::Outcome;
use crate::explore::plans::Plan;

/// Minimum number of consecutive quiet rows that are folded.
const QUIET: usize = 3;

/// Number of rows shown before and after a difference, and maximum number of rows in total.
const AROUND: usize = 6;
const SHOWN: usize = 60;

/// Number of rounds that are shown before repetitions are folded, and maximum number of rows in a round.
const ROUNDS: usize = 2;
const ROUND_ROWS: usize = 12;

/// Width of a column in characters.
const COLUMN: usize = 88;

/// Maximum number of messages of each run that are aligned in one pass, in a table with four bytes per pair of
/// messages.
const STRETCH: usize = 2_000;

/// Maximum number of pairs compared for one timeline. Later steps get separate rows, except for the common end.
const PLACES: usize = 40_000_000;

/// The aligned steps of two runs: each row contains a step of one run, or matching steps of both runs.
#[derive(Debug)]
pub(crate) struct Timeline {
    /// The steps of the reference run.
    pub(crate) left: Vec<Arc<Cell>>,
    /// The steps of the failing run.
    pub(crate) right: Vec<Arc<Cell>>,
    pub(crate) rows: Vec<Row>,
}

/// A row: a step of one run, or matching steps of both runs.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) reference: Option<Arc<Cell>>,
    pub(crate) failing: Option<Arc<Cell>>,
}

/// A row, or several folded rows, as displayed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shown<'a> {
    Row(&'a Row),
    /// Rows that are the same in both runs, or in which nothing happens.
    Same(&'a [Row]),
    /// Rows that repeat the preceding round this number of times.
    Again(&'a [Row], usize),
}

impl<'a> Shown<'a> {
    /// Returns the folded rows with a summary, such as `3 identical rows`.
    pub(crate) fn folded(self) -> Option<(String, &'a [Row])> {
        match self {
            Self::Row(_) => None,
            Self::Same(rows) => Some((identical(rows), rows)),
            Self::Again(rows, times) => {
                let cells = rows.last().map(|it| [&it.failing, &it.reference]);
                let last = cells.iter().flatten().find_map(|it| it.as_ref());
                let until = last.map_or(String::new(), |it| format!(", until {:.3}", it.step.at));
                Some((format!("repeated {times} more times{until}"), rows))
            }
        }
    }
}

fn identical(rows: &[Row]) -> String {
    match (rows.len(), rows.iter().all(Row::is_same)) {
        (1, true) => "1 identical row".to_owned(),
        (count, true) => format!("{count} identical rows"),
        (count, false) => format!("{count} rows without a change"),
    }
}

/// Aligns the steps of two runs.
pub(crate) fn timeline(reference: &Outcome, failing: &Outcome, plan: &Plan) -> Timeline {
    let traces = reference.trace.iter().chain(&failing.trace);
    let made: BTreeSet<&str> = traces.filter_map(made_from).collect();
    let (left, right) = (cells(reference, &Plan::default(), &made), cells(failing, plan, &made));
    let rows = side_by_side(&left, &right);
    Timeline { left, right, rows }
}

fn side_by_side(left: &[Arc<Cell>], right: &[Arc<Cell>]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut ahead = common(left, right).into_iter().peekable();
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        let (next_l, next_r) = ahead.peek().copied().unwrap_or((left.len(), right.len()));
        if l == next_l && r == next_r {
            ahead.next();
            rows.push(row(left.get(l), right.get(r)));
            (l, r) = (l + 1, r + 1);
            continue;
        }
        // Steps that only one run has are sorted by time.
        let is_left = l < next_l && (r >= next_r || left[l].step.at <= right[r].step.at);
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

fn row(reference: Option<&Arc<Cell>>, failing: Option<&Arc<Cell>>) -> Row {
    Row {
        reference: reference.cloned(),
        failing: failing.cloned(),
    }
}

/// Returns the indexes of matching steps, in order: of the common beginning, of the common end, and of the steps in
/// between, which are aligned in stretches of limited length.
fn common(left: &[Arc<Cell>], right: &[Arc<Cell>]) -> Vec<(usize, usize)> {
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
            // The run with more remaining steps has additional steps at this position.
            None if end_r - r > end_l - l => r += stretch_r.len(),
            None => l += stretch_l.len(),
        }
    }
    common.extend((0..after).map(|at| (end_l + at, end_r + at)));
    common
}

/// Assigns the same number to equal keys, so that comparisons are cheap.
fn numbers(left: &[Arc<Cell>], right: &[Arc<Cell>]) -> (Vec<usize>, Vec<usize>) {
    let mut known = BTreeMap::new();
    let mut numbers = left.iter().chain(right).map(|cell| {
        let next = known.len();
        *known.entry(cell.key.as_str()).or_insert(next)
    });
    let left = numbers.by_ref().take(left.len()).collect();
    (left, numbers.collect())
}

/// Returns the indexes of the longest common subsequence.
fn longest_common(left: &[usize], right: &[usize]) -> Vec<(usize, usize)> {
    let width = right.len() + 1;
    // Length of the longest common subsequence of the remainders of both lists, by the indexes at which they begin.
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
        cells.all(|it| it.is_quiet && !it.step.is_fault)
    }

    /// Returns the parts of the row to compare with other rows, without times and revisions.
    fn content(&self) -> impl PartialEq + use<'_> {
        [&self.reference, &self.failing].map(|cell| cell.as_ref().map(|it| it.content()))
    }

    /// Returns `true` if both runs made the same step with the same outcome, and no fault affected the step.
    pub(crate) fn is_same(&self) -> bool {
        match (&self.reference, &self.failing) {
            (Some(reference), Some(failing)) => reference.is_same(failing) && !failing.step.is_fault,
            (None, _) | (_, None) => false,
        }
    }
}

impl Timeline {
    /// Returns the rows in order. Folds rows that are the same in both runs and far from any difference, stretches of
    /// quiet rows, and repeated rounds.
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

    /// Finds ranges of rows that repeat the preceding round, and the number of repetitions. Quiet rows may occur
    /// anywhere in between; rows that are the same in both runs are ignored.
    fn again(&self) -> Vec<(Range<usize>, usize)> {
        let is_told = |at: &usize| !self.rows[*at].is_quiet() && !self.rows[*at].is_same();
        let told: Vec<usize> = (0..self.rows.len()).filter(is_told).collect();
        let says: Vec<_> = told.iter().map(|at| self.rows[*at].content()).collect();
        let mut again = Vec::new();
        let mut from = 0;
        while from < told.len() {
            // Length of the stretch in which each row equals the row one round before it.
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

    /// Returns for each row whether it belongs to a stretch of quiet rows that is folded.
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

    /// Returns the rows as indexes of steps, for the trace viewer.
    pub(crate) fn places(&self) -> Vec<trace::Row> {
        let index = |cell: &Option<Arc<Cell>>| cell.as_ref().map(|it| it.index);
        let rows = self.rows.iter().map(|row| trace::Row {
            left: index(&row.reference),
            right: index(&row.failing),
            same: row.is_same(),
        });
        rows.collect()
    }

    pub(crate) fn to_json(&self) -> Value {
        let cell = |cell: &Option<Arc<Cell>>| cell.as_ref().map(|it| it.to_json());
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
            let text = |cell: &Option<Arc<Cell>>| cell.as_ref().map(ToString::to_string).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use fake_apiserver::Verb;

    use crate::explore::trace::{DISCOVERY, Outcome as Answer, Request, Step, What};

    /// Returns a run with these notes as its steps.
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
        let rows = timeline(reference, failing, &Plan::default()).rows;
        rows.iter().filter(|row| row.is_same()).count()
    }

    #[test]
    fn equal_steps_around_differences_are_aligned() {
        let reference = run_of(numbered(0..3_000));
        let lost = numbered(0..100)
            .chain(numbered(110..2_900))
            .chain(numbered(2_950..3_000));
        let failing = run_of(lost);
        assert_eq!(side_by_side(&reference, &failing), 2_940);
    }

    #[test]
    fn repeated_rounds_are_folded() {
        let reference = run_of(["a", "b"].map(str::to_owned).into_iter());
        let turns = ["x", "y", "z"].into_iter().cycle().take(3 * 50);
        let failing = run_of(["a"].into_iter().chain(turns).chain(["b"]).map(str::to_owned));
        let text = timeline(&reference, &failing, &Plan::default()).to_string();
        assert!(text.contains(" repeated 48 more times, until 0.150"), "{text}");
        assert_eq!(text.matches(" y").count(), 2, "{text}");
    }

    /// Go clients read discovery documents concurrently, so the order differs between runs.
    #[test]
    fn discovery_documents_are_folded_in_any_order() {
        let run = |groups: [&str; 3]| {
            let mut run = run_of(["starts", "1", "2", "3", "ends"].map(str::to_owned).into_iter());
            for (step, group) in run.trace[1..4].iter_mut().zip(groups) {
                step.point = format!("get discovery {group}");
                step.what = What::Request(Request {
                    object: group.to_owned(),
                    outcome: Answer::Answered(200),
                    ..Request::new(Verb::Get, DISCOVERY)
                });
            }
            run
        };
        let text = timeline(
            &run(["api", "apps", "batch"]),
            &run(["batch", "api", "apps"]),
            &Plan::default(),
        );
        assert!(!text.to_string().contains("discovery"), "{text}");
    }

    /// A table of all pairs would have 360 million entries.
    #[test]
    fn hot_loop_of_sixty_thousand_messages_uses_little_memory() {
        let reference = run_of(numbered(0..6_000));
        let turns = numbered(100..110).cycle().take(60_000);
        let failing = run_of(numbered(0..110).chain(turns).chain(numbered(5_990..6_000)));
        assert_eq!(side_by_side(&reference, &failing), 120);
    }
}
