//! `Point`: identifies the target of a fault, as a string.

use std::borrow::Cow;
use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// Characters with a meaning in a replay string, or in the single quotes around it in a shell.
const SIGNS: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'#')
    .add(b'%')
    .add(b'\'')
    .add(b':')
    .add(b';')
    .add(b'@');

/// Escapes a name, such as the name of a client or a step, for points and replay strings.
pub(crate) fn escaped(name: &str) -> Cow<'_, str> {
    utf8_percent_encode(name, SIGNS).into()
}

/// Returns the original of an escaped name.
pub(crate) fn given(name: &str) -> Cow<'_, str> {
    percent_decode_str(name).decode_utf8_lossy()
}

/// The target of a fault: the n-th message of a type about an object, or, for some faults, a client, the server or the
/// test.
///
/// The format of a message is `client:verb:resource:namespace/name#n`; the verb of a watch event is `event`, and the
/// verb of a call outside of the API is `call`. A point refers to an object and not to a position in the run, so it
/// stays valid if messages arrive in a different order.
pub(crate) type Point = String;

/// Returns the point of the first message of its kind about an object in a named step of the scenario; steps are
/// counted from 1. In real time, the number of earlier messages differs between runs.
pub(crate) fn first_in_step(stem: &str, step: usize) -> Point {
    format!("{stem}#{IN_STEP}{step}")
}

const IN_STEP: &str = "step";

/// Returns the point of the next message of the same kind about the same object; `None` if the point is not numbered.
pub(crate) fn next(point: &str) -> Option<Point> {
    let (stem, number) = point.rsplit_once('#')?;
    let number: u64 = number.parse().ok()?;
    Some(format!("{stem}#{}", number + 1))
}

/// The parts of a point for descriptions.
pub(crate) struct Words<'a> {
    pub(crate) client: Cow<'a, str>,
    pub(crate) verb: &'a str,
    /// Description of the message: `patch configmaps default/volume (number 2)`.
    pub(crate) what: String,
}

/// Describes a point. `names` contains the names of created objects by the points of their create requests.
pub(crate) fn words<'a>(point: &'a str, names: &BTreeMap<Point, String>) -> Words<'a> {
    let mut parts = point.splitn(4, ':');
    let client = given(parts.next().unwrap_or_default());
    let verb = parts.next().unwrap_or_default();
    let resource = parts.next().unwrap_or_default();
    let (object, nth) = parts.next().unwrap_or_default().rsplit_once('#').unwrap_or_default();
    let nth = match nth {
        "1" | "" => String::new(),
        nth => match nth.strip_prefix(IN_STEP) {
            Some(step) => format!(" (the first in step {step})"),
            None => format!(" (number {nth})"),
        },
    };
    let what = match (verb, object.split_once('/')) {
        ("call", _) if object.is_empty() => format!("{}{nth}", given(resource)),
        ("call", _) => format!("{} {}{nth}", given(resource), given(object)),
        ("event", Some(("", ""))) => format!("the bookmark of {resource}{nth}"),
        ("event", Some(("", name))) => format!("the event for {resource} {name}{nth}"),
        ("event", _) => format!("the event for {resource} {object}{nth}"),
        ("list" | "watch", _) => format!("{verb} {resource}{nth}"),
        (_, Some(("", ""))) if !names.contains_key(point) => format!("{verb} {resource}{nth}"),
        (_, Some((namespace, ""))) if names.contains_key(point) => {
            let name = format!("{namespace}/{}", names[point]);
            format!("{verb} {resource} {}{nth}", name.trim_start_matches('/'))
        }
        // The server will generate the name.
        (_, Some((namespace, ""))) => format!("{verb} {resource} in {namespace}{nth}"),
        (_, Some(("", name))) => format!("{verb} {resource} {name}{nth}"),
        _ => format!("{verb} {resource} {object}{nth}"),
    };
    Words { client, verb, what }
}
