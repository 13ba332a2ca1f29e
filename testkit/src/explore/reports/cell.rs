//! `Cell`: a step of a run in the form that reports show.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use fake_apiserver::Verb;
use fake_apiserver::trace::{Change, Step as Shown, StepKind, Tone, Writes};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::explore::outcomes::{Doing, Outcome, resource_of};
use crate::explore::plans::{Plan, given};
use crate::explore::trace;
use crate::explore::trace::{BOOKMARK, LEASES, Step, What};
use crate::test_cluster::TEST_CLIENT;
use crate::text::fields;

/// Number of random characters appended to a generated name.
const CHANCE: usize = 5;

/// Name of the test in reports.
const THE_TEST: &str = "the test";

/// One step of one run.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    /// Index among the cells of the run.
    pub(crate) index: usize,
    /// Index in the trace of the run; `None` for writes of the test.
    pub(crate) place: Option<usize>,
    /// Description of the step without its outcome, for text reports.
    what: String,
    /// Set for steps of little interest: a bookmark, the start of a watch, or a discovery request.
    pub(crate) is_quiet: bool,
    /// Identifies the step across runs: the same step has the same key in every run.
    pub(crate) key: String,
    pub(crate) step: Shown,
}

/// Returns the steps of a run in the order in which they reached the server or the client, with the changes that each
/// write made.
pub(crate) fn cells(outcome: &Outcome, plan: &Plan, made: &BTreeSet<&str>) -> Vec<Arc<Cell>> {
    let steps = outcome.trace.iter().enumerate().flat_map(|(place, step)| {
        let told = Cell::of(place, step, plan, made);
        let sent = step.at.as_secs_f64();
        let came = (told.step.at > sent).then(|| told.held(sent));
        let is_struck = told.step.is_fault && came.is_none();
        let told = Cell {
            step: Shown {
                is_fault: is_struck,
                ..told.step
            },
            ..told
        };
        came.into_iter().chain([told])
    });
    let doings = outcome.doings.iter().map(Cell::doing);
    // Steps of the test precede other steps at the same time, because they cause them.
    let mut cells: Vec<Cell> = doings.chain(steps).collect();
    cells.sort_by(|one, other| one.step.at.total_cmp(&other.step.at));
    if let Some((server, base)) = outcome.end.history() {
        add_writes(&mut cells, &Writes::after(server, *base), *base);
    }
    for (index, cell) in cells.iter_mut().enumerate() {
        cell.index = index;
    }
    cells.into_iter().map(Arc::new).collect()
}

/// Adds the fields that each write changed, and the server's revision at each step.
fn add_writes(cells: &mut [Cell], writes: &Writes, base: u64) {
    let (mut taken, mut state) = (BTreeSet::new(), base);
    let answers = cells
        .iter()
        .map(|it| &it.step)
        .filter(|it| it.is_write && it.revision > 0);
    let answered: BTreeSet<u64> = answers.map(|it| it.revision).collect();
    for cell in cells {
        let (is_delete, step) = (cell.what.starts_with("DELETE"), &mut cell.step);
        let truth = std::mem::take(&mut step.state).max(base);
        if step.is_write {
            let is_free = |it: &u64| !taken.contains(it) && !answered.contains(it);
            let found = match step.revision {
                revision if writes.has(revision) && !taken.contains(&revision) => Some(revision),
                _ if is_delete => writes.deletions(&step.object, truth + 1).find(is_free),
                // Responses to workers are not recorded.
                _ if step.is_worker => writes.of(&step.object, truth + 1).find(is_free),
                _ => None,
            };
            let had_answer = std::mem::take(&mut step.revision) > 0;
            match found.and_then(|it| Some((it, writes.get(it)?))) {
                Some((revision, written)) => {
                    taken.insert(revision);
                    step.revision = revision;
                    step.changes = written.changes;
                    step.object = written.object;
                    if written.is_deletion {
                        step.outcome.push_str(", the object is gone");
                    }
                }
                None if had_answer && !is_delete => step.outcome.push_str(", nothing changed"),
                None => {}
            }
        }
        state = state.max(truth).max(step.revision);
        step.state = state;
    }
}

impl Cell {
    fn of(place: usize, step: &Step, plan: &Plan, made: &BTreeSet<&str>) -> Self {
        let is_note = matches!(step.what, What::Note(_));
        let object = match &step.what {
            What::Request(request) => format!("{} {}", request.base(), request.named()),
            What::Event { resource, object, .. } => format!("{resource} {object}"),
            What::Call { .. } | What::Note(_) => String::new(),
        };
        let is_quiet = match &step.what {
            What::Request(request) => {
                (request.verb == Verb::Watch || request.is_discovery())
                    && request.outcome == trace::Outcome::Answered(200)
            }
            What::Event { kind, .. } => kind == BOOKMARK,
            What::Call { .. } | What::Note(_) => false,
        };
        let subject = step.subject();
        let text = match &step.what {
            What::Event {
                kind, object, resource, ..
            } => format!("{kind} {resource} {}", object.trim_matches('/'))
                .trim_end()
                .to_owned(),
            What::Request(_) | What::Call { .. } | What::Note(_) => subject.clone(),
        };
        let shown = Shown {
            at: step.told().as_secs_f64(),
            client: client(&step.client),
            life: step.life,
            kind: kind(step),
            text,
            object: object_key(&object),
            outcome: step.outcome(),
            tone: tone(step),
            is_write: step.is_write(),
            is_read: [Verb::Get, Verb::List].into_iter().any(|it| step.is_request_of(it)),
            is_quiet: is_quiet || is_by_product(&object),
            is_worker: matches!(&step.what, What::Request(it) if it.outcome == trace::Outcome::Unseen),
            is_fault: plan.faults.iter().any(|it| it.point == step.point),
            state: step.truth,
            revision: revision(step),
            saw: (step.view > 0 && !is_note).then_some((step.view, step.truth)),
            ..Shown::default()
        };
        Self {
            index: 0,
            place: Some(place),
            what: subject,
            is_quiet,
            key: key(step, made),
            step: shown,
        }
    }

    /// Returns a step that shows the message as held between its sending and its arrival.
    fn held(&self, sent: f64) -> Self {
        let words = |text: &str| format!("{text} is held");
        Self {
            what: words(&self.what),
            key: format!("{} held", self.key),
            step: Shown {
                at: sent,
                text: words(&self.step.text),
                kind: StepKind::Note,
                outcome: String::new(),
                tone: Tone::Ok,
                is_write: false,
                is_read: false,
                revision: 0,
                ..self.step.clone()
            },
            ..self.clone()
        }
    }

    fn doing(doing: &Doing) -> Self {
        let object = format!("{} {}", doing.resource, doing.object);
        let what = doing.text();
        Self {
            index: 0,
            place: None,
            is_quiet: false,
            key: format!("test {what}"),
            step: Shown {
                at: doing.at.as_secs_f64(),
                client: THE_TEST.to_owned(),
                text: what.clone(),
                object: object_key(&object),
                outcome: doing.code.to_string(),
                tone: tone_of(doing.code),
                is_write: true,
                is_quiet: is_by_product(&object),
                revision: doing.wrote.unwrap_or_default(),
                ..Shown::default()
            },
            what,
        }
    }

    /// Returns `true` if the step is a fault, a crash or another note, but not a held message.
    pub(crate) fn is_note(&self) -> bool {
        self.step.kind == StepKind::Note && !self.what.ends_with(" is held")
    }

    /// Returns `true` if the outcome and the changes of `other`, the matching step of another run, are the same, apart
    /// from times and uids.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let (one, other) = (&self.step, &other.step);
        one.outcome == other.outcome
            && one.changes.len() == other.changes.len()
            && one
                .changes
                .iter()
                .zip(&other.changes)
                .all(|(one, other)| is_alike(one, other))
    }

    /// Returns the parts of the step to compare with other steps, without its time and its revisions.
    pub(crate) fn content(&self) -> impl PartialEq + use<'_> {
        let step = &self.step;
        (&step.client, step.life, &self.what, &step.outcome, step.is_fault)
    }

    pub(crate) fn to_json(&self) -> Value {
        let step = &self.step;
        json!({
            "at": step.at, "who": self.who(), "what": self.what, "outcome": step.outcome, "changes": step.changes,
            "object": Some(&step.object).filter(|it| !it.is_empty()), "isFault": step.is_fault || self.is_note(),
            "saw": step.saw.map(|(view, _)| view), "truth": step.saw.map(|(_, truth)| truth),
        })
    }

    /// Returns the client's name, with the ordinal of its run after a restart.
    fn who(&self) -> String {
        match self.step.life {
            0 | 1 => self.step.client.clone(),
            life => format!("{} ({life})", self.step.client),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = &self.step;
        write!(f, "{:>8.3} {} {}", step.at, self.who(), self.what)?;
        if let Some((view, truth)) = step.saw.filter(|(view, truth)| view < truth) {
            write!(f, " [view {view}, newest {truth}]")?;
        }
        if !step.outcome.is_empty() {
            write!(f, " → {}{}", step.outcome, fields(step))?;
        } else {
            f.write_str(&fields(step))?;
        }
        if step.is_fault {
            f.write_str(" ← here")?;
        }
        Ok(())
    }
}

/// Returns the object of a step: `deployments.apps shop/blog`; empty if the step is not about a single object.
fn object_key(object: &str) -> String {
    match object.ends_with('/') || !object.contains(' ') {
        true => String::new(),
        false => object.replace(" /", " "),
    }
}

/// Returns `true` for Events and Leases, which are by-products of work.
fn is_by_product(object: &str) -> bool {
    let resource = resource_of(object);
    matches!(resource, "events" | "events.events.k8s.io" | LEASES)
}

fn client(name: &str) -> String {
    match name {
        TEST_CLIENT => THE_TEST.to_owned(),
        name => given(name).into_owned(),
    }
}

fn kind(step: &Step) -> StepKind {
    match step.what {
        What::Request(_) => StepKind::Request,
        What::Event { .. } => StepKind::Event,
        What::Call { .. } => StepKind::Call,
        What::Note(_) => StepKind::Note,
    }
}

fn revision(step: &Step) -> u64 {
    match &step.what {
        What::Request(request) => request.wrote.unwrap_or_default(),
        What::Event { revision, .. } => *revision,
        What::Call { .. } | What::Note(_) => 0,
    }
}

fn tone(step: &Step) -> Tone {
    let outcome = match &step.what {
        What::Request(request) => &request.outcome,
        What::Call { outcome, .. } => outcome,
        What::Event {
            told: trace::Delivery::Never,
            ..
        } => return Tone::Refused,
        What::Note(note) if note == "crash" || note == "restart" => return Tone::Failed,
        What::Event { .. } | What::Note(_) => return Tone::Ok,
    };
    match outcome {
        trace::Outcome::Answered(code) => tone_of(*code),
        trace::Outcome::Unseen => Tone::Ok,
        trace::Outcome::Open | trace::Outcome::Broken => Tone::Failed,
    }
}

fn tone_of(code: u16) -> Tone {
    match code {
        200..400 => Tone::Ok,
        404 | 409 | 410 => Tone::Refused,
        _ => Tone::Failed,
    }
}

/// Returns the `generateName` of the object that a step creates.
pub(crate) fn made_from(step: &Step) -> Option<&str> {
    match &step.what {
        What::Request(request) => request.made_from.as_deref(),
        What::Event { .. } | What::Call { .. } | What::Note(_) => None,
    }
}

/// Returns the key that matches the same step in another run: its client, verb and object, without its ordinal. The
/// random suffix of a generated name is ignored.
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

fn is_alike(one: &Change, other: &Change) -> bool {
    let is_alike = |one: &Option<Value>, other: &Option<Value>| match (one, other) {
        (Some(one), Some(other)) => one == other || (is_generated(one) && is_generated(other)),
        (one, other) => one.is_none() == other.is_none(),
    };
    one.path == other.path && is_alike(&one.before, &other.before) && is_alike(&one.after, &other.after)
}

/// Returns `true` if the value is a time or a uid.
fn is_generated(value: &Value) -> bool {
    let Some(text) = value.as_str() else { return false };
    let is_uid = || text.len() == 36 && text.bytes().all(|it| it.is_ascii_hexdigit() || it == b'-');
    text.parse::<Timestamp>().is_ok() || is_uid()
}
