//! The runs of a failure in the form that the trace viewer shows.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use fake_apiserver::trace::{Row, Run, Step, StepKind};
use serde::Deserialize;

use super::cell::Cell;
use crate::explore::outcomes::{Bodies, EndState, Recorded};

/// Maximum number of characters of a body that are shown.
const BODY_CHARS: usize = 4_096;

/// Returns the run that consists of these steps, with its reconciles, its tracing output and the versions of its
/// objects.
pub(crate) fn run_of(name: &str, cells: &[Arc<Cell>], end: &EndState, recorded: Recorded) -> Run {
    let Recorded { bodies, mut marks } = recorded;
    let mut run = Run {
        name: name.to_owned(),
        steps: cells
            .iter()
            .map(|it| step_of(it, &bodies, |place| marks.at(place)))
            .collect(),
        ..Run::default()
    };
    // Steps are in the order of their arrival. Tracing output follows the steps that were sent before it.
    let mut indexes: BTreeMap<usize, usize> = BTreeMap::new();
    for cell in cells {
        if let Some(place) = cell.place {
            indexes.insert(place, cell.index);
        }
    }
    for log in &mut marks.logs {
        let earlier = indexes.range(..log.step).next_back();
        let next = earlier.map_or(0, |(_, index)| index + 1);
        let until = cells.partition_point(|it| it.step.at <= log.at);
        log.step = next.min(until);
    }
    run.add_groups(&marks, |step| step);
    if let Some((server, base)) = end.history() {
        run.add_versions(server, *base);
    }
    run
}

fn step_of(cell: &Cell, bodies: &BTreeMap<usize, Bodies>, reconcile: impl Fn(usize) -> Option<usize>) -> Step {
    let mut step = cell.step.clone();
    let is_request = step.kind == StepKind::Request;
    let Some(place) = cell.place.filter(|_| is_request && !step.is_worker) else {
        return step;
    };
    step.group = reconcile(place);
    if let Some(Bodies { request, answer }) = bodies.get(&place) {
        step.body = text_of(request);
        let failed = serde_json::from_slice::<Failed>(answer).ok().filter(Failed::is_failure);
        if step.is_write || failed.is_some() {
            step.answer = text_of(answer);
        }
        for part in failed
            .iter()
            .flat_map(|it| [&it.reason, &it.message])
            .filter(|it| !it.is_empty())
        {
            step.outcome.push(' ');
            step.outcome.push_str(part);
        }
    }
    step
}

/// The fields of a Status that are read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Failed {
    kind: String,
    code: u16,
    reason: String,
    message: String,
}

impl Failed {
    fn is_failure(&self) -> bool {
        self.kind == "Status" && self.code >= 400
    }
}

fn text_of(body: &Bytes) -> String {
    let text = String::from_utf8_lossy(body);
    match text.char_indices().nth(BODY_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.trim_end().to_owned(),
    }
}

/// Returns the index of the row that is selected at first: the first row in which the runs differ. Without a reference
/// it is the last step that is not quiet.
pub(crate) fn first_row(rows: &[Row], reference: Option<&Run>, failing: &Run) -> usize {
    let is_seen = |step: &Step| !step.is_quiet || step.is_fault;
    let Some(reference) = reference else {
        let last = failing.steps.iter().rposition(|it| is_seen(it) && !it.is_worker);
        return last.unwrap_or_default();
    };
    let steps = |row: &Row| {
        let left = row.left.and_then(|it| reference.steps.get(it));
        [left, row.right.and_then(|it| failing.steps.get(it))]
    };
    let first = rows
        .iter()
        .position(|row| !row.same && steps(row).into_iter().flatten().any(is_seen));
    first.unwrap_or_default()
}
