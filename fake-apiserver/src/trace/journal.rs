//! Reads a run from the journal of a server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::versions::Writes;
use super::{Group, Log, Run, Step, StepKind, Tone};
use crate::api::request_info::Verb;
use crate::endpoints::journal::{Entry, RecordedEvent, RecordedRequest};
use crate::server::ApiServer;

/// Maximum number of steps of a run; only the last ones are kept.
const STEPS: usize = 20_000;

/// Maximum number of characters of a request or response body.
const BODY_CHARS: usize = 4_096;

/// Idle time of a client after which its next request starts a new group.
const PAUSE: Duration = Duration::from_millis(500);

/// Reconciles and tracing output of a run, with their positions in the journal or in another list of steps.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// The starts, resumptions and pauses of reconciles, oldest first.
    pub marks: Vec<Mark>,
    /// Tracing output. [`Log::step`] is the position, and [`Log::group`] the index of a reconcile.
    pub logs: Vec<Log>,
    /// The reconciles of the run.
    pub reconciles: Vec<Group>,
}

/// Assigns the following steps to a reconcile, or marks them as outside of any reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Number of steps before the mark.
    pub place: usize,
    /// Index in [`Marks::reconciles`]; `None` for steps outside of reconciles.
    pub reconcile: Option<usize>,
}

impl Marks {
    /// Returns the index of the reconcile to which a step belongs.
    pub fn at(&self, place: usize) -> Option<usize> {
        let next = self.marks.partition_point(|it| it.place <= place);
        self.marks[..next].last()?.reconcile
    }
}

/// Reads the last `most` steps, or all if there are fewer, from the journal of a server, with the fields that each
/// write changed. Also returns the journal number of the first step. `since` is the `resourceVersion` at the start of
/// the run, and `test` is the client name of the test itself.
pub fn steps(server: &ApiServer, since: u64, test: &str, most: usize) -> (usize, Vec<Step>) {
    let journal = server.journal();
    let entries = journal.since(journal.total().saturating_sub(most as u64));
    let first = usize::try_from(journal.total()).unwrap_or(usize::MAX) - entries.len();
    let mut reader = Reader {
        writes: Writes::after(server, since),
        taken: BTreeSet::new(),
        state: since,
        test,
    };
    let steps = entries.iter().map(|entry| match entry {
        Entry::Request(it) => reader.request(it),
        Entry::Event(it) => reader.event(it),
    });
    (first, steps.collect())
}

impl Run {
    /// Reads a run from the journal of a server: its requests and events, the fields that each write changed, and the
    /// versions of objects. `since` is the `resourceVersion` at the start of the run, and `test` is the client name of
    /// the test itself.
    pub fn of(server: &ApiServer, name: &str, since: u64, test: &str, marks: &Marks) -> Self {
        let (mut first, mut steps) = steps(server, since, test, STEPS + 1);
        let is_cut = steps.len() > STEPS;
        if is_cut {
            steps.remove(0);
            first += 1;
        }
        for (at, step) in steps.iter_mut().enumerate() {
            step.group = marks.at(first + at);
        }
        let mut run = Self {
            name: name.to_owned(),
            left_out: match is_cut {
                true => format!("only the last {STEPS} steps are shown"),
                false => String::new(),
            },
            steps,
            ..Self::default()
        };
        run.add_groups(marks, |place| place.saturating_sub(first));
        run.add_versions(server, since);
        run
    }

    /// Adds the groups and the tracing output. The group of a step must already be the index of its reconcile.
    /// `step_of` returns the index of the step at a position. For clients without recorded reconciles, steps are
    /// grouped by the preceding event.
    pub fn add_groups(&mut self, marks: &Marks, step_of: impl Fn(usize) -> usize) {
        self.groups = marks.reconciles.clone();
        for step in &self.steps {
            if let Some(group) = step.group.and_then(|it| self.groups.get_mut(it))
                && group.client.is_empty()
            {
                group.client = step.client.clone();
            }
        }
        self.logs = marks.logs.clone();
        for log in &mut self.logs {
            log.step = step_of(log.step).min(self.steps.len());
        }
        self.guess_groups();
    }

    /// Groups the requests of clients without recorded reconciles.
    fn guess_groups(&mut self) {
        let known: BTreeSet<String> = self.groups.iter().map(|it| it.client.clone()).collect();
        // For each client: the last event, the time of the last step, and the current group.
        let mut clients: BTreeMap<String, (Option<String>, f64, Option<usize>)> = BTreeMap::new();
        for step in &mut self.steps {
            if step.kind == StepKind::Note || step.is_worker || known.contains(&step.client) {
                continue;
            }
            let (event, last, group) = clients.entry(step.client.clone()).or_insert((None, step.at, None));
            let pause = step.at - std::mem::replace(last, step.at);
            if step.kind == StepKind::Event {
                if !step.is_quiet {
                    (*event, *group) = (Some(step.text.clone()), None);
                }
                continue;
            }
            // A reflector lists and watches independently of reconciles.
            if step.is_quiet || step.text.starts_with("LIST") {
                continue;
            }
            if pause > PAUSE.as_secs_f64() && event.is_none() {
                *group = None;
            }
            let mut name = || match event.take() {
                Some(event) => format!("after {event}"),
                None if pause > PAUSE.as_secs_f64() => format!("{pause:.1} s later"),
                None => "at first".to_owned(),
            };
            let index = *group.get_or_insert_with(|| {
                self.groups.push(Group {
                    client: step.client.clone(),
                    name: name(),
                    ..Group::default()
                });
                self.groups.len() - 1
            });
            step.group = Some(index);
        }
    }
}

/// State while journal entries are read in order.
struct Reader<'a> {
    writes: Writes,
    /// Revisions of writes that are already assigned to a step.
    taken: BTreeSet<u64>,
    state: u64,
    test: &'a str,
}

impl Reader<'_> {
    fn request(&mut self, request: &RecordedRequest) -> Step {
        let mut step = Step {
            at: request.answered.as_secs_f64(),
            client: match request.worker {
                Some(worker) => worker.to_owned(),
                None => client(&request.client, self.test),
            },
            text: text_of(request),
            object: object_of(request),
            is_write: request.is_write(),
            is_read: matches!(request.verb(), Some(Verb::Get | Verb::List)),
            is_quiet: request.verb() == Some(Verb::Watch) && request.code == 200 || is_beside(request),
            is_worker: request.worker.is_some(),
            is_fault: !request.faults.is_empty(),
            body: cut(&request.request_body),
            ..Step::default()
        };
        let answer = request.answer_bytes();
        if step.is_write || request.code >= 400 {
            step.answer = cut(&answer);
        }
        (step.outcome, step.tone) = outcome(request, &answer);
        if step.is_write && (200..300).contains(&request.code) {
            self.find_write(request, &answer, &mut step);
        }
        self.state = self.state.max(step.revision);
        step.state = self.state;
        step
    }

    /// Finds the write of a request, and adds its revision and the changed fields to the step.
    fn find_write(&mut self, request: &RecordedRequest, answer: &[u8], step: &mut Step) {
        let revision = revision_of(answer);
        let is_free = |it: &u64| !self.taken.contains(it);
        let found = match revision.filter(|it| self.writes.has(*it) && is_free(it)) {
            Some(revision) => Some(revision),
            // The response to a delete has no revision of the write: it is a Status, or the object before the delete.
            None if request.verb() == Some(Verb::Delete) => {
                self.writes.deletions(&step.object, self.state).find(is_free)
            }
            None => None,
        };
        match found.and_then(|it| Some((it, self.writes.get(it)?))) {
            Some((revision, written)) => {
                self.taken.insert(revision);
                step.revision = revision;
                step.changes = written.changes;
                if written.is_deletion {
                    step.outcome += ", the object is gone";
                }
                // The name may have been generated.
                step.object = written.object;
            }
            None if revision.is_some() => step.outcome += ", nothing changed",
            None => {}
        }
    }

    fn event(&mut self, event: &RecordedEvent) -> Step {
        let dot = if event.group.is_empty() { "" } else { "." };
        let resource = format!("{}{dot}{}", event.resource, event.group);
        let object = format!("{resource} {}/{}", event.namespace, event.name).replace(" /", " ");
        let is_bookmark = event.kind == "BOOKMARK";
        self.state = self.state.max(event.revision);
        Step {
            at: event.at.as_secs_f64(),
            client: client(&event.client, self.test),
            kind: StepKind::Event,
            text: match event.name.is_empty() {
                true => format!("{} {resource}", event.kind),
                false => format!("{} {object}", event.kind),
            },
            object: if event.name.is_empty() { String::new() } else { object },
            is_quiet: is_bookmark || matches!(&*resource, "events" | "events.events.k8s.io") || is_lease(&resource),
            revision: event.revision,
            state: self.state,
            ..Step::default()
        }
    }
}

fn client(name: &Arc<str>, test: &str) -> String {
    match **name == *test {
        true => "the test".to_owned(),
        false => name.to_string(),
    }
}

/// Describes a request like `PATCH deployments.apps/status shop/blog`, or by its method and path.
fn text_of(request: &RecordedRequest) -> String {
    let Some(info) = &request.info else {
        return format!("{} {}", request.method, request.path);
    };
    let mut text = format!("{} {}", info.verb.as_str().to_uppercase(), resource_of(request));
    if !info.subresource.is_empty() {
        text = format!("{text}/{}", info.subresource);
    }
    let place = match (&*info.namespace, name_of(request)) {
        ("", name) => name,
        (namespace, name) if name.is_empty() => format!("{namespace}/"),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    format!("{text} {place}").trim_end().to_owned()
}

fn object_of(request: &RecordedRequest) -> String {
    let Some(info) = &request.info else {
        return String::new();
    };
    let name = name_of(request);
    match name.is_empty() {
        true => String::new(),
        false => format!("{} {}/{name}", resource_of(request), info.namespace).replace(" /", " "),
    }
}

fn resource_of(request: &RecordedRequest) -> String {
    let Some(info) = &request.info else {
        return String::new();
    };
    match info.group.is_empty() {
        true => info.resource.to_string(),
        false => format!("{}.{}", info.resource, info.group),
    }
}

/// Returns the name in the path, or the name of the created object.
fn name_of(request: &RecordedRequest) -> String {
    let Some(info) = &request.info else {
        return String::new();
    };
    if !info.name.is_empty() || info.verb != Verb::Create {
        return info.name.to_string();
    }
    let named = |body: &[u8]| serde_json::from_slice::<Answer>(body).ok().map(|it| it.metadata.name);
    named(&request.answer_bytes())
        .filter(|it| !it.is_empty())
        .or_else(|| named(&request.request_body))
        .unwrap_or_default()
}

/// Returns `true` for requests that are not part of a controller's main work: requests for Events and Leases.
fn is_beside(request: &RecordedRequest) -> bool {
    let resource = resource_of(request);
    matches!(&*resource, "events" | "events.events.k8s.io") || is_lease(&resource)
}

fn is_lease(resource: &str) -> bool {
    resource == "leases.coordination.k8s.io"
}

/// The relevant parts of a response.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    metadata: Metadata,
    reason: Option<serde_json::Value>,
    message: Option<serde_json::Value>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    resource_version: String,
}

fn revision_of(answer: &[u8]) -> Option<u64> {
    let answer: Answer = serde_json::from_slice(answer).ok()?;
    answer.metadata.resource_version.parse().ok()
}

/// Returns the description of the outcome, and its tone.
fn outcome(request: &RecordedRequest, answer: &[u8]) -> (String, Tone) {
    let mut text = match request.code {
        0 => "no response".to_owned(),
        code => code.to_string(),
    };
    if request.code >= 400
        && let Ok(status) = serde_json::from_slice::<Answer>(answer)
    {
        for part in [&status.reason, &status.message] {
            if let Some(part) = part
                .as_ref()
                .and_then(serde_json::Value::as_str)
                .filter(|it| !it.is_empty())
            {
                text += &format!(" {part}");
            }
        }
    }
    for fault in &request.faults {
        text += &format!(" [fault: {fault}]");
    }
    let is_expected = matches!(request.code, 404 | 409 | 410);
    let tone = match request.code {
        200..400 => Tone::Ok,
        _ if is_expected => Tone::Refused,
        _ => Tone::Failed,
    };
    (text, tone)
}

fn cut(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    match text.char_indices().nth(BODY_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.trim_end().to_owned(),
    }
}
