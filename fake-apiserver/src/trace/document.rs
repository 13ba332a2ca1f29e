//! The types of the trace document.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::changes::Change;

/// Version of the format, incremented by changes that older viewers do not support.
pub const VERSION: u32 = 1;

/// A failing test, or the journal of a server, as one document.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    /// Name of the test or of the server.
    pub title: String,
    /// The failure in one sentence.
    pub headline: String,
    /// The failures, most certain first; empty for the journal of a server.
    pub failures: Vec<Failure>,
    /// The runs, to which failures refer by their index.
    pub runs: Vec<Run>,
    /// Named lines, such as the coverage and the seed.
    pub facts: Vec<(String, String)>,
    /// Notes for the author of the test.
    pub notes: Vec<String>,
}

/// A failure of a test.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// The failure in one sentence.
    pub headline: String,
    /// Name of the check that failed, such as `end state`.
    pub oracle: String,
    /// The full description of the failure.
    pub what: String,
    /// Descriptions of the injected faults.
    pub plan: Vec<String>,
    /// Notes about this failure.
    pub notes: Vec<String>,
    /// The value with which the test replays the run, if the run can be replayed.
    pub replay: Option<String>,
    /// The command that replays the run, if the run can be replayed.
    pub command: Option<String>,
    /// Index of the run without faults, for comparison; `None` if it was not performed.
    pub reference: Option<usize>,
    /// Index of the failing run.
    pub failing: usize,
    /// The steps of both runs side by side; empty without a reference.
    pub rows: Vec<Row>,
    /// Index of the row that is selected at first: the first row in which the runs differ. Without a reference, this is
    /// the index of a step.
    pub first: usize,
}

/// Corresponding steps of two runs, to be shown next to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Index of the step of the reference run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<usize>,
    /// Index of the step of the failing run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub right: Option<usize>,
    /// Set if both runs performed the same step with the same outcome.
    pub same: bool,
}

/// The steps of one run.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Name of the run, such as `failing run`.
    pub name: String,
    /// The steps, oldest first.
    pub steps: Vec<Step>,
    /// Groups of steps, such as the reconciles of a controller.
    pub groups: Vec<Group>,
    /// Tracing output, oldest first.
    pub logs: Vec<Log>,
    /// The versions of each object, oldest first. The keys have the form `resource namespace/name`.
    pub objects: BTreeMap<String, Vec<Version>>,
    /// Description of the omitted part of the run, in one line; empty if the run is complete.
    pub left_out: String,
}

/// Kind of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum StepKind {
    /// A request and its response.
    #[default]
    Request,
    /// An event of a watch.
    Event,
    /// A call of an external system.
    Call,
    /// Any other event, such as a crash.
    Note,
}

/// Outcome of a step, which determines its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Tone {
    /// The step succeeded.
    #[default]
    Ok,
    /// The request was refused with 404, 409 or 410, which a controller must expect.
    Refused,
    /// The request failed, or its response was lost.
    Failed,
}

/// A step of a run.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Seconds since the run began, on the server's clock.
    pub at: f64,
    /// Name of the client; `the test` for the test itself.
    pub client: String,
    /// Ordinal of the client's run; 2 after its first restart.
    #[serde(skip_serializing_if = "is_zero_or_one")]
    pub life: u32,
    /// Kind of the step.
    pub kind: StepKind,
    /// Description of the step, such as `PATCH configmaps/status default/a`.
    pub text: String,
    /// The object, as a key of [`Run::objects`]; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub object: String,
    /// Description of the outcome.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub outcome: String,
    /// The colour of the outcome.
    pub tone: Tone,
    /// Set if the step may change an object.
    #[serde(skip_serializing_if = "is_false")]
    pub is_write: bool,
    /// Set for a read.
    #[serde(skip_serializing_if = "is_false")]
    pub is_read: bool,
    /// Set for bookmarks, Events, Leases and successful watch requests.
    #[serde(skip_serializing_if = "is_false")]
    pub is_quiet: bool,
    /// Set if a worker of the server performed the step.
    #[serde(skip_serializing_if = "is_false")]
    pub is_worker: bool,
    /// Set if an injected fault affects this step.
    #[serde(skip_serializing_if = "is_false")]
    pub is_fault: bool,
    /// The server's `resourceVersion` after the step.
    pub state: u64,
    /// The `resourceVersion` of the write or the event; 0 for other steps.
    #[serde(skip_serializing_if = "is_zero")]
    pub revision: u64,
    /// The fields that the write changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// The newest `resourceVersion` that the client had observed before this step, and the server's newest
    /// `resourceVersion` at the time of the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saw: Option<(u64, u64)>,
    /// Index in [`Run::groups`] of the group to which the step belongs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<usize>,
    /// The request body, shortened.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub body: String,
    /// The response body, shortened.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub answer: String,
}

/// Steps that belong together, such as the steps of one reconcile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// The client that performed the steps.
    pub client: String,
    /// Title of the group: `reconcile Pod shop/web-0`, or the event before the steps.
    pub name: String,
    /// Reason for the reconcile, such as `object updated`; may be empty.
    pub reason: String,
    /// Set if the reconcile was identified by a tracing span of the controller. Otherwise it is derived from the order
    /// of the steps.
    pub is_certain: bool,
}

/// A line of tracing output.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Log {
    /// Seconds since the run began, on the server's clock.
    pub at: f64,
    /// Number of steps before the line.
    pub step: usize,
    /// Index in [`Run::groups`] of the group to which the line belongs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<usize>,
    /// `ERROR`, `WARN`, `INFO`, `DEBUG` or `TRACE`.
    pub level: String,
    /// The module that wrote the line.
    pub target: String,
    /// The message and its fields.
    pub text: String,
}

/// A version of an object.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// The `resourceVersion` of the object.
    pub revision: u64,
    /// Index of the step that wrote the version; `None` if it is not a step of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<usize>,
    /// Client or worker that wrote the version; empty if it could not be determined.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// The object without `managedFields` and `resourceVersion`; `None` if it was deleted or is omitted.
    pub value: Option<Value>,
    /// Set if the object is omitted because its versions are too many or too large.
    #[serde(skip_serializing_if = "is_false")]
    pub is_left_out: bool,
}

impl Trace {
    /// Returns the document as JSON. `docs/trace.md` of the testkit describes its fields.
    pub fn to_json(&self) -> Value {
        // This cannot fail, because all maps have string keys.
        let mut json = serde_json::to_value(self).unwrap_or_default();
        json["drydock"] = "trace".into();
        json["version"] = VERSION.into();
        json
    }
}

fn is_false(it: &bool) -> bool {
    !it
}

fn is_zero_or_one(it: &u32) -> bool {
    *it <= 1
}

fn is_zero(it: &u64) -> bool {
    *it == 0
}
