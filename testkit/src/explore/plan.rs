//! Plans: a plan is a list of perturbations, and its text is the replay string.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// The signs of a name that mean something in a replay string, or in the single quotes a shell has around it.
const SIGNS: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'#')
    .add(b'%')
    .add(b'\'')
    .add(b':')
    .add(b';')
    .add(b'@');

/// Escapes the name of a client or a step for points and replay strings.
pub(crate) fn escaped(name: &str) -> Cow<'_, str> {
    utf8_percent_encode(name, SIGNS).into()
}

/// The name that people gave.
pub(crate) fn given(name: &str) -> Cow<'_, str> {
    percent_decode_str(name).decode_utf8_lossy()
}

/// A place between a client and the server where something may go wrong: the n-th message of its kind about an object.
///
/// Its text is `client:verb:resource:namespace/name#n`, where the verb of a watch event is `event`. It names the object
/// rather than a position in the run, so that it means the same when messages come in another order.
pub(crate) type Point = String;

/// A revision that fits neither into 32 bits nor, exactly, into a floating-point number.
pub(crate) const LARGE: u64 = (1 << 53) + 1;

/// The most objects of a small page.
pub(crate) const SMALL_PAGE: u32 = 2;

/// Fault at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Action {
    /// The controller dies before the request reaches the server, or before it sees the event, and is started anew,
    /// with empty caches, after this time.
    CrashBefore(Duration),
    /// The controller dies when the request is done and before it has the answer.
    CrashAfter(Duration),
    /// The server answers with this HTTP status and does nothing.
    Fail(u16),
    /// Another writer writes the object just before, so that the server refuses a request that names the version from
    /// before (409). What is written changes nothing but the version.
    Conflict,
    /// The request is done, and the connection breaks before the answer.
    Lose,
    /// The request does not reach the server; the connection breaks after this time.
    Silence(Duration),
    /// The request is done; the connection breaks after this time.
    SilenceAfter(Duration),
    /// The request reaches the server this much later.
    Delay(Duration),
    /// The connection breaks at once, and the request reaches the server this much later all the same.
    Late(Duration),
    /// The controller dies and is started anew a second later; the request it has sent reaches the server after this
    /// time.
    CrashLate(Duration),
    /// The test does not wait in `settle` for what goes wrong to be over.
    Early,
    /// From this request on, nothing goes from or to the client for this time: a partition.
    Pause(Duration),
    /// The read shows an older state, as of a replica that lags, and the watch that follows a list is silent for a
    /// while; only lists and reads of one object that allow it. The state is as old as so many percent of all revisions
    /// of the run.
    Stale(u8),
    /// From this event on, the watch is silent for this time, and then tells all.
    Hold(Duration),
    /// From this event on, the watch is silent for this time, and then is 410 Expired: the client lists again and never
    /// sees what was in between.
    Miss(Duration),
    /// The watch ends before this event; the client resumes.
    Cut,
    /// The watch is 410 Expired in place of this event.
    Expire,
    /// The event comes twice.
    Twice,
    /// From this event on, nothing comes any more, not even an end; the connection breaks after this time.
    HalfOpen(Duration),
    /// The bookmark does not come.
    Drop,
    /// The clock of the client is ahead by so many milliseconds, from the beginning to the end.
    Skew(i64),
    /// The server answers lists that have a limit by smaller pages.
    SmallPages,
    /// The server counts its revisions from a number that neither 32 bits nor a floating-point number hold.
    LargeVersions,
    /// The controller is restarted when everything is done.
    RestartAtEnd,
}

/// Kinds of faults, for mixing and choosing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Crash,
    Error,
    Watch,
    Delay,
    Pause,
    Clock,
    Variant,
}

impl Action {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::CrashBefore(_) | Self::CrashAfter(_) | Self::CrashLate(_) | Self::RestartAtEnd => Kind::Crash,
            // A server without streaming lists says so.
            Self::Fail(422) | Self::LargeVersions | Self::SmallPages => Kind::Variant,
            Self::Skew(_) => Kind::Clock,
            Self::Fail(_) | Self::Conflict | Self::Lose | Self::Silence(_) | Self::SilenceAfter(_) => Kind::Error,
            Self::Hold(_)
            | Self::Miss(_)
            | Self::HalfOpen(_)
            | Self::Cut
            | Self::Expire
            | Self::Twice
            | Self::Drop
            | Self::Stale(_) => Kind::Watch,
            Self::Delay(_) | Self::Late(_) | Self::Early => Kind::Delay,
            Self::Pause(_) => Kind::Pause,
        }
    }

    /// Returns the duration of the fault.
    pub(crate) fn window(self) -> Option<Duration> {
        match self {
            Self::CrashBefore(time)
            | Self::CrashAfter(time)
            | Self::Silence(time)
            | Self::SilenceAfter(time)
            | Self::Delay(time)
            | Self::Late(time)
            | Self::CrashLate(time)
            | Self::Pause(time)
            | Self::Hold(time)
            | Self::Miss(time)
            | Self::HalfOpen(time) => Some(time),
            Self::Fail(_)
            | Self::Conflict
            | Self::Lose
            | Self::Stale(_)
            | Self::Cut
            | Self::Expire
            | Self::Twice
            | Self::Drop
            | Self::Skew(_)
            | Self::Early
            | Self::SmallPages
            | Self::LargeVersions
            | Self::RestartAtEnd => None,
        }
    }

    /// The same for another time; for those that last.
    pub(crate) fn lasting(self, time: Duration) -> Self {
        match self {
            Self::CrashBefore(_) => Self::CrashBefore(time),
            Self::CrashAfter(_) => Self::CrashAfter(time),
            Self::Silence(_) => Self::Silence(time),
            Self::SilenceAfter(_) => Self::SilenceAfter(time),
            Self::Delay(_) => Self::Delay(time),
            Self::Late(_) => Self::Late(time),
            Self::CrashLate(_) => Self::CrashLate(time),
            Self::Pause(_) => Self::Pause(time),
            Self::Hold(_) => Self::Hold(time),
            Self::Miss(_) => Self::Miss(time),
            Self::HalfOpen(_) => Self::HalfOpen(time),
            Self::Fail(_)
            | Self::Conflict
            | Self::Lose
            | Self::Stale(_)
            | Self::Cut
            | Self::Expire
            | Self::Twice
            | Self::Drop
            | Self::Skew(_)
            | Self::Early
            | Self::SmallPages
            | Self::LargeVersions
            | Self::RestartAtEnd => self,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::CrashBefore(_) => "crash",
            Self::CrashAfter(_) => "crash-after",
            Self::Fail(_) => "fail",
            Self::Conflict => "conflict",
            Self::Lose => "lose",
            Self::Silence(_) => "silence",
            Self::SilenceAfter(_) => "silence-after",
            Self::Delay(_) => "delay",
            Self::Late(_) => "late",
            Self::CrashLate(_) => "crash-late",
            Self::Early => "early",
            Self::SmallPages => "small-pages",
            Self::Pause(_) => "pause",
            Self::Stale(_) => "stale",
            Self::Hold(_) => "hold",
            Self::Miss(_) => "miss",
            Self::Cut => "cut",
            Self::Expire => "expire",
            Self::Twice => "twice",
            Self::HalfOpen(_) => "half-open",
            Self::Drop => "drop",
            Self::Skew(_) => "skew",
            Self::LargeVersions => "large-versions",
            Self::RestartAtEnd => "restart",
        }
    }

    fn parse(name: &str, value: Option<&str>) -> Option<Self> {
        let time = || value?.parse().ok().map(Duration::from_millis);
        Some(match name {
            "crash" => Self::CrashBefore(time()?),
            "crash-after" => Self::CrashAfter(time()?),
            "fail" => Self::Fail(value?.parse().ok()?),
            "conflict" => Self::Conflict,
            "lose" => Self::Lose,
            "silence" => Self::Silence(time()?),
            "silence-after" => Self::SilenceAfter(time()?),
            "delay" => Self::Delay(time()?),
            "late" => Self::Late(time()?),
            "crash-late" => Self::CrashLate(time()?),
            "early" => Self::Early,
            "small-pages" => Self::SmallPages,
            "pause" => Self::Pause(time()?),
            "stale" => Self::Stale(value?.parse().ok()?),
            "hold" => Self::Hold(time()?),
            "miss" => Self::Miss(time()?),
            "cut" => Self::Cut,
            "expire" => Self::Expire,
            "twice" => Self::Twice,
            "half-open" => Self::HalfOpen(time()?),
            "drop" => Self::Drop,
            "skew" => Self::Skew(value?.parse().ok()?),
            "large-versions" => Self::LargeVersions,
            "restart" => Self::RestartAtEnd,
            _ => return None,
        })
    }
}

/// One fault: a point, and the action that strikes there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Perturbation {
    pub(crate) point: Point,
    pub(crate) action: Action,
}

impl fmt::Display for Perturbation {
    /// `crash-after=1000@operator:patch:configmaps:default/volume#1`; times are milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.action, self.action.window()) {
            (Action::Fail(code), _) => write!(f, "fail={code}@{}", self.point),
            (Action::Skew(ahead), _) => write!(f, "skew={ahead}@{}", self.point),
            (Action::Stale(percent), _) => write!(f, "stale={percent}@{}", self.point),
            (action, Some(time)) => write!(f, "{}={}@{}", action.name(), time.as_millis(), self.point),
            (action, None) => write!(f, "{}@{}", action.name(), self.point),
        }
    }
}

/// Everything that goes wrong in a run. Its text is the replay string.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Plan {
    pub(crate) faults: Vec<Perturbation>,
    /// Steps of the workload that are left out, where the scenario names its steps: the names people gave.
    pub(crate) skipped: Vec<String>,
    /// The changes of the spec that is explored, in order, by their names.
    pub(crate) changes: Vec<String>,
    /// The object to create in place of the one that is explored, as JSON; in references alone.
    pub(crate) fresh: Option<String>,
    /// The server's time of day at the start of the run, in replay strings; else that of the exploration.
    pub(crate) start: Option<Timestamp>,
}

impl Plan {
    pub(crate) fn single(point: &str, action: Action) -> Self {
        let point = point.to_owned();
        Self {
            faults: vec![Perturbation { point, action }],
            ..Self::default()
        }
    }

    /// Returns `true` if the plan contains such a fault.
    pub(crate) fn has(&self, is_it: impl Fn(Action) -> bool) -> bool {
        self.faults.iter().any(|it| is_it(it.action))
    }

    /// This and one more.
    pub(crate) fn and(&self, point: &str, action: Action) -> Self {
        let mut plan = self.clone();
        plan.faults.push(Perturbation {
            point: point.to_owned(),
            action,
        });
        plan
    }

    /// Reads a replay string.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut plan = Self::default();
        for part in text.split(';').map(str::trim).filter(|it| !it.is_empty()) {
            if let Some(step) = part.strip_prefix("skip=") {
                plan.skipped.push(given(step).into_owned());
                continue;
            }
            if let Some(change) = part.strip_prefix("change=") {
                plan.changes.push(given(change).into_owned());
                continue;
            }
            let wrong = || format!("`{part}` in the replay string is not a known fault");
            if let Some(time) = part.strip_prefix("time=") {
                plan.start = Some(time.parse().map_err(|_| wrong())?);
                continue;
            }
            let (action, point) = part.split_once('@').ok_or_else(wrong)?;
            let (name, value) = match action.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (action, None),
            };
            let action = Action::parse(name, value).ok_or_else(wrong)?;
            plan.faults.push(Perturbation {
                point: point.to_owned(),
                action,
            });
        }
        Ok(plan)
    }

    /// Returns whether nothing goes wrong.
    pub(crate) fn is_empty(&self) -> bool {
        self.faults.is_empty() && self.skipped.is_empty() && self.changes.is_empty()
    }

    /// Returns whether the spec is changed and nothing else goes wrong.
    pub(crate) fn is_sequence(&self) -> bool {
        self.faults.is_empty() && !self.changes.is_empty()
    }

    /// In words, one line a fault. `names` has those of what requests create, by their points.
    pub(crate) fn words(&self, names: &BTreeMap<Point, String>) -> Vec<String> {
        let skipped = self.skipped.iter().map(|step| format!("leave out the step {step:?}"));
        let changes = self.changes.iter().map(|change| format!("change {change}"));
        let faults = self.faults.iter().map(|it| words(it, names));
        changes.chain(faults).chain(skipped).collect()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults = self.faults.iter().map(ToString::to_string);
        let skipped = self.skipped.iter().map(|step| format!("skip={}", escaped(step)));
        let changes = self.changes.iter().map(|change| format!("change={}", escaped(change)));
        let start = self.start.map(|it| format!("time={it}"));
        f.write_str(
            &changes
                .chain(faults)
                .chain(skipped)
                .chain(start)
                .collect::<Vec<_>>()
                .join(";"),
        )
    }
}

/// `crash the operator after patch configmaps default/volume; it restarts 1s later`
fn words(fault: &Perturbation, names: &BTreeMap<Point, String>) -> String {
    let mut parts = fault.point.splitn(4, ':');
    let client = given(parts.next().unwrap_or_default());
    let verb = parts.next().unwrap_or_default();
    let resource = parts.next().unwrap_or_default();
    let (object, nth) = parts.next().unwrap_or_default().rsplit_once('#').unwrap_or_default();
    let nth = match nth {
        "1" | "" => String::new(),
        nth => format!(" (number {nth})"),
    };
    let what = match (verb, object.split_once('/')) {
        ("call", _) if object.is_empty() => format!("{}{nth}", given(resource)),
        ("call", _) => format!("{} {}{nth}", given(resource), given(object)),
        ("event", Some(("", ""))) => format!("the bookmark of {resource}{nth}"),
        ("event", Some(("", name))) => format!("the event of {resource} {name}{nth}"),
        ("event", _) => format!("the event of {resource} {object}{nth}"),
        ("list" | "watch", _) => format!("{verb} {resource}{nth}"),
        (_, Some(("", ""))) if !names.contains_key(&fault.point) => format!("{verb} {resource}{nth}"),
        (_, Some((namespace, ""))) if names.contains_key(&fault.point) => {
            let name = format!("{namespace}/{}", names[&fault.point]);
            format!("{verb} {resource} {}{nth}", name.trim_start_matches('/'))
        }
        // Its name is yet to be made.
        (_, Some((namespace, ""))) => format!("{verb} {resource} in {namespace}{nth}"),
        (_, Some(("", name))) => format!("{verb} {resource} {name}{nth}"),
        _ => format!("{verb} {resource} {object}{nth}"),
    };
    let again = |time: Duration| format!("; it restarts {time:?} later");
    match fault.action {
        Action::CrashBefore(time) => format!("crash {client} before {what}{}", again(time)),
        Action::CrashAfter(time) => format!("crash {client} after {what}{}", again(time)),
        Action::Fail(code) => format!("answer {what} of {client} with {code}, and do nothing"),
        Action::Conflict => format!("let another writer precede {what} of {client}: 409 if it names a version"),
        Action::Lose => format!("do {what} of {client}, and lose the answer"),
        Action::Silence(time) => format!("lose {what} of {client}; the connection breaks after {time:?}"),
        Action::SilenceAfter(time) => {
            format!("do {what} of {client}, and do not answer; the connection breaks after {time:?}")
        }
        Action::Late(time) => {
            format!("break the connection of {client} at {what}, which reaches the server {time:?} later")
        }
        Action::CrashLate(time) => {
            format!("crash {client} at {what}, which reaches the server {time:?} later; it restarts 1s after the crash")
        }
        Action::Early => "let the test continue during the fault".to_owned(),
        Action::SmallPages => format!("the server answers lists that have a limit by pages of {SMALL_PAGE}"),
        Action::Delay(time) => format!("delay {what} of {client} by {time:?}"),
        Action::Pause(time) => format!("cut {client} off for {time:?} from {what} on"),
        Action::Stale(_) if verb == "get" => format!("answer {what} of {client} from a replica that lags"),
        Action::Stale(_) => format!("answer {what} of {client} from a replica that lags, which catches up 12s later"),
        Action::Hold(time) => format!("hold the watch of {client} for {time:?} from {what} on"),
        Action::Miss(time) => {
            format!("hold the watch of {client} for {time:?} from {what} on, then expire it (410): it lists again")
        }
        Action::Cut => format!("end the watch of {client} before {what}"),
        Action::Expire => format!("expire (410) the watch of {client} before {what}: it lists again"),
        Action::Twice => format!("tell {client} {what} twice"),
        Action::HalfOpen(time) => {
            format!("deliver nothing to {client} from {what} on; the connection of the watch breaks after {time:?}")
        }
        Action::Drop => format!("leave out {what} of {client}"),
        Action::Skew(ahead) => {
            let direction = if ahead < 0 { "behind" } else { "ahead" };
            let time = Duration::from_millis(ahead.unsigned_abs());
            format!("the clock of {client} is {time:?} {direction}")
        }
        Action::LargeVersions => format!("the server counts its revisions from {LARGE} on"),
        Action::RestartAtEnd => format!("restart {client} when all work is done"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::in_a_namespace("lose@b:patch:pods:shop/a#2", "patch pods shop/a (number 2)")]
    #[case::of_the_cluster("lose@b:patch:nodes:/a#1", "patch nodes a")]
    #[case::a_generated_name("lose@b:create:pods:shop/#1", "create pods in shop")]
    #[case::of_the_cluster_whose_name_is_made("lose@b:create:nodes:/#1", "create nodes")]
    fn requests_are_described_in_words(#[case] replay: &str, #[case] told: &str) {
        let words = Plan::parse(replay).expect("it is one").words(&BTreeMap::new());
        assert_eq!(words, [format!("do {told} of b, and lose the answer")]);
    }

    #[test]
    fn a_replay_string_is_read_as_it_was_written() {
        let text = "crash-after=1000@operator:patch:configmaps:default/volume#1;conflict@b:update:pods:shop/a#2;\
                    hold=12000@operator:event:pods:default/web-0#1;restart@operator;skew=-30000@operator;\
                    half-open=300000@operator:event:pods:default/web-0#2;drop@operator:event:pods:/#1;\
                    large-versions@server;skip=scale%20down%3B%20wait;time=2026-11-22T05:00:00Z";
        let plan = Plan::parse(text).expect("it is one");
        assert_eq!(plan.to_string(), text);
        assert_eq!(
            plan.words(&BTreeMap::new())[0],
            "crash operator after patch configmaps default/volume; it restarts 1s later"
        );
        let last = plan.words(&BTreeMap::new()).pop();
        assert_eq!(last.as_deref(), Some("leave out the step \"scale down; wait\""));
    }

    #[test]
    fn an_unknown_fault_is_refused_by_name() {
        let error = Plan::parse("explode@a:b:c:d#1").expect_err("there is no such fault");
        assert_eq!(error, "`explode@a:b:c:d#1` in the replay string is not a known fault");
    }
}
