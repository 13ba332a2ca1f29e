//! The steps of a run, as the gate saw them.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use fake_apiserver::Verb;

/// One message, or one action on a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Virtual time since the run began.
    pub(crate) at: Duration,
    /// The client, as points have it; `testkit` for the test itself.
    pub(crate) client: Arc<str>,
    /// The how-manieth life of the controller, counted from 1.
    pub(crate) life: u32,
    pub(crate) what: What,
    /// The newest revision of the resource that this client has observed, and the server's own.
    pub(crate) view: u64,
    pub(crate) truth: u64,
    /// Its text as a choice point.
    pub(crate) point: String,
}

/// Kind of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Request(Request),
    Event {
        kind: String,
        resource: String,
        object: String,
        revision: u64,
        /// Time of delivery, if it was delayed.
        told: Delivery,
    },
    /// A call of something outside of the API, named by the scenario.
    Call {
        name: String,
        /// Name of the object; may be empty.
        object: String,
        /// [`Unseen`](Outcome::Unseen) when it was done.
        outcome: Outcome,
    },
    /// A fault, a crash or a start, in words.
    Note(String),
}

/// Time at which a client received an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    AtOnce,
    /// At this time of the run.
    At(Duration),
    Never,
}

/// The kind of event that tells a revision and nothing else.
pub(crate) const BOOKMARK: &str = "BOOKMARK";

/// The same at the end of the initial state of a streaming list.
pub(crate) const INITIAL_END: &str = "BOOKMARK (initial events end)";

/// A request and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) verb: Verb,
    /// The plural, with its subresource.
    pub(crate) resource: String,
    /// `namespace/name`, as the path has it: without the name of what is created.
    pub(crate) object: String,
    /// The name of what is created: that of the answer, else that of the body.
    pub(crate) creates: Option<String>,
    /// `metadata.generateName` of what is created.
    pub(crate) made_from: Option<String>,
    /// The time at which it reached the server, if that was later than it was sent.
    pub(crate) reached: Option<Duration>,
    /// The uid that the client had seen under the name when it sent it.
    pub(crate) saw: Option<String>,
    /// The object has another uid than the one that the client had seen under this name.
    pub(crate) is_of_another: bool,
    /// The request names the version it expects, so that 409 is a possible answer at any time.
    pub(crate) may_conflict: bool,
    /// A replica that lags may answer it.
    pub(crate) may_be_stale: bool,
    /// A list that goes on from a page, or is of an exact revision: history may have been forgotten.
    pub(crate) may_expire: bool,
    /// A watch that begins with the state.
    pub(crate) streams_list: bool,
    pub(crate) outcome: Outcome,
}

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// No answer yet, or none at all.
    Open,
    Answered(u16),
    /// Done or not; the client does not know.
    Broken,
    /// A request of one of the server's own workers, whose answers are not recorded.
    Unseen,
}

/// Returns the name of an object in points. Those of Events end in the machine's time when they were made, as kube's
/// and client-go's recorders name them, so that they are others in each run: `web-0.18ea917da6092dad` → `web-0.*`.
pub(crate) fn timeless<'a>(resource: &str, name: &'a str) -> Cow<'a, str> {
    let is_time = |it: &str| it.len() > 11 && it.bytes().all(|it| it.is_ascii_hexdigit());
    match name.rsplit_once('.') {
        Some((about, time)) if matches!(resource, "events" | "events.events.k8s.io") && is_time(time) => {
            Cow::Owned(format!("{about}.*"))
        }
        _ => Cow::Borrowed(name),
    }
}

impl Request {
    /// The resource without its subresource.
    pub(crate) fn base(&self) -> &str {
        self.resource.split('/').next().unwrap_or_default()
    }

    /// `namespace/name`, with the name of what is created.
    pub(crate) fn named(&self) -> String {
        let name = self.creates.as_deref().filter(|_| self.object.ends_with('/'));
        format!("{}{}", self.object, name.unwrap_or_default())
    }

    pub(crate) fn is_write(&self) -> bool {
        match self.verb {
            Verb::Get | Verb::List | Verb::Watch => false,
            Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => true,
        }
    }
}

impl Step {
    /// The step without what differs between runs that are otherwise the same, for comparing two runs.
    pub(crate) fn signature(&self) -> String {
        let what = match &self.what {
            What::Request(request) => match request.outcome {
                Outcome::Open => "open".to_owned(),
                Outcome::Answered(code) => code.to_string(),
                Outcome::Broken => "broken".to_owned(),
                Outcome::Unseen => String::new(),
            },
            What::Event { kind, .. } => kind.clone(),
            What::Call { outcome, .. } => format!("{outcome:?}"),
            What::Note(note) => note.clone(),
        };
        format!("{}µs {} {what} @{}", self.at.as_micros(), self.point, self.view)
    }

    /// Returns the class of a message: the verb or the kind of event, and the resource.
    pub(crate) fn class(&self) -> (&str, &str) {
        match &self.what {
            What::Request(request) => (request.verb.as_str(), &request.resource),
            What::Event { kind, resource, .. } => (kind, resource),
            What::Call { name, .. } => (name, ""),
            What::Note(note) => (note, ""),
        }
    }

    /// `PATCH configmaps default/volume`, or the event, or the note.
    pub(crate) fn subject(&self) -> String {
        match &self.what {
            What::Request(request) => {
                let verb = request.verb.as_str().to_uppercase();
                let object = request.named();
                let object = object.trim_matches('/');
                format!("{verb} {} {object}", request.resource).trim_end().to_owned()
            }
            What::Event {
                kind,
                resource,
                object,
                revision,
                ..
            } => {
                let object = format!("{resource} {}", object.trim_matches('/'));
                format!("event {kind} {} @{revision}", object.trim_end())
            }
            What::Call { name, object, .. } => format!("call {name} {object}").trim_end().to_owned(),
            What::Note(note) => note.clone(),
        }
    }

    /// Describes the outcome for people.
    pub(crate) fn outcome(&self) -> String {
        match &self.what {
            What::Request(request) => {
                let outcome = match request.outcome {
                    Outcome::Open => "no answer".to_owned(),
                    Outcome::Answered(code) => code.to_string(),
                    Outcome::Broken => "connection broken".to_owned(),
                    Outcome::Unseen => String::new(),
                };
                match request.is_of_another {
                    true => format!("{outcome}, another object than it had seen"),
                    false => outcome,
                }
            }
            What::Event {
                told: Delivery::At(at), ..
            } => format!("held for {:?}", at.saturating_sub(self.at)),
            What::Event {
                told: Delivery::Never, ..
            } => "never told".to_owned(),
            What::Call {
                outcome: Outcome::Unseen,
                ..
            } => "done".to_owned(),
            What::Call { .. } => "not done".to_owned(),
            What::Event {
                told: Delivery::AtOnce, ..
            }
            | What::Note(_) => String::new(),
        }
    }

    /// Returns the time at which the client learned of the step, or took it.
    pub(crate) fn told(&self) -> Duration {
        match &self.what {
            What::Event {
                told: Delivery::At(at), ..
            } => *at,
            What::Request(request) => request.reached.unwrap_or(self.at),
            What::Event { .. } | What::Call { .. } | What::Note(_) => self.at,
        }
    }
}
