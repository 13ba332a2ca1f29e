//! Replaces values that differ between any two servers, so that responses can be compared. resourceVersions become
//! their rank within the scenario, and uids their order of appearance; times, generated names and continue tokens are
//! removed.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Map, Value};

use crate::replay::ORIGIN;
use crate::scenario::Variables;

const UUID_FORM: &str = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";

macro_rules! pattern {
    ($name:ident, $text:expr) => {
        static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($text).expect("the pattern is valid"));
    };
}

pattern!(UUID, UUID_FORM);
pattern!(WHOLE_UID, &format!("^(?:{UUID_FORM}|uid[0-9]+)$"));
pattern!(UID_LABEL, "uid[0-9]+");
pattern!(TIME, r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z");
pattern!(TOO_NEW, r"(resource version:? )\d+(, current: )\d+");
pattern!(TOO_OLD, r"(too old resource version: )\d+ \(\d+\)");
pattern!(IN_TEXT, r"((?i:resource ?version)[^0-9]{0,40}?)(\d+)");

/// Values in the responses of one run that differ between runs.
struct Run<'a> {
    variables: &'a Variables,
    origin: &'a str,
    versions: BTreeSet<u64>,
    uids: Vec<String>,
    /// Generated names and their replacements.
    names: Vec<(String, String)>,
}

/// Normalises the responses of a run, so that they can be compared. `origin` is the server's URL.
pub(crate) fn normalise(answers: &mut [(usize, Value)], variables: &Variables, origin: Option<&str>) {
    let mut run = Run {
        variables,
        origin: origin.unwrap_or(ORIGIN),
        versions: BTreeSet::new(),
        uids: Vec::new(),
        names: Vec::new(),
    };
    answers.iter().for_each(|(_, answer)| run.survey(answer));
    for (_, answer) in answers {
        *answer = run.walk(answer, "", false);
    }
}

/// Normalises recorded responses like [`normalise`]. They are already normalised, except that their uids are numbered
/// in the order in which the recorded server wrote its keys.
pub(crate) fn recorded(answers: &mut [(usize, Value)]) {
    let mut uids = Vec::new();
    answers.iter().for_each(|(_, answer)| survey_uids(answer, &mut uids));
    for (_, answer) in answers {
        relabel(answer, &uids);
    }
}

fn survey_uids(value: &Value, uids: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if let ("uid", Value::String(uid)) = (key.as_str(), value)
                    && WHOLE_UID.is_match(uid)
                    && !uids.contains(uid)
                {
                    uids.push(uid.clone());
                }
                survey_uids(value, uids);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| survey_uids(value, uids)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn relabel(value: &mut Value, uids: &[String]) {
    let label = |found: &Captures<'_>| match uids.iter().position(|uid| *uid == found[0]) {
        Some(at) => format!("uid{}", at + 1),
        None => found[0].to_owned(),
    };
    match value {
        Value::Object(map) => {
            let old = std::mem::take(map);
            for (key, mut value) in old {
                relabel(&mut value, uids);
                if matches!(key.as_str(), "causes" | "managedFields") {
                    sort(&mut value);
                }
                map.insert(UID_LABEL.replace_all(&key, label).into_owned(), value);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| relabel(value, uids)),
        Value::String(text) if text.contains("uid") => *text = UID_LABEL.replace_all(text, label).into_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Sorts lists that have a random order.
fn sort(value: &mut Value) {
    if let Value::Array(list) = value {
        list.sort_by_cached_key(ToString::to_string);
    }
}

impl Run<'_> {
    fn survey(&mut self, answer: &Value) {
        survey_uids(answer, &mut self.uids);
        self.survey_metadata(answer);
    }

    fn survey_metadata(&mut self, value: &Value) {
        match value {
            Value::Object(map) => {
                if let Some(Value::Object(metadata)) = map.get("metadata") {
                    if !is_collection(map) {
                        self.versions.extend(version_of(metadata));
                    }
                    self.names.extend(generated_name(metadata));
                }
                map.values().for_each(|value| self.survey_metadata(value));
            }
            Value::Array(list) => list.iter().for_each(|value| self.survey_metadata(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn rank(&self, version: &str) -> String {
        let number = version.parse().ok().filter(|it: &u64| it.to_string() == version);
        match number.filter(|it| self.versions.contains(it)) {
            Some(number) => format!("rv{}", self.versions.range(..=number).count()),
            None => version.to_owned(),
        }
    }

    fn walk(&self, value: &Value, key: &str, collection: bool) -> Value {
        match value {
            Value::Object(map) => {
                let whole = is_collection(map);
                let walked = map.iter().map(|(name, value)| {
                    let of_collection = (whole && name == "metadata") || (collection && key == "metadata");
                    (self.text(name), self.walk(value, name, of_collection))
                });
                Value::Object(walked.collect())
            }
            Value::Array(list) => {
                let mut out = Value::Array(list.iter().map(|value| self.walk(value, "", false)).collect());
                if matches!(key, "causes" | "managedFields") {
                    sort(&mut out);
                }
                out
            }
            Value::String(text) => Value::String(match key {
                "resourceVersion" if collection && !matches!(text.as_str(), "" | "0") => "<rv>".to_owned(),
                "resourceVersion" => self.rank(text),
                "continue" if !text.is_empty() => "<continue>".to_owned(),
                _ => self.text(text),
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, label) in &self.names {
            text = text.replace(name, label);
        }
        for (at, uid) in self.uids.iter().enumerate() {
            text = text.replace(uid, &format!("uid{}", at + 1));
        }
        text = UUID.replace_all(&text, "<uuid>").into_owned();
        text = text
            .replace(self.variables.get("ns"), "$ns")
            .replace(self.variables.get("u"), "$u");
        text = text.replace(self.origin, "$server");
        text = TIME.replace_all(&text, "<time>").into_owned();
        text = TOO_NEW.replace_all(&text, "$1<n>$2<n>").into_owned();
        text = TOO_OLD.replace_all(&text, "$1<n> (<n>)").into_owned();
        let ranked = |found: &Captures<'_>| format!("{}{}", &found[1], self.rank(&found[2]));
        IN_TEXT.replace_all(&text, ranked).into_owned()
    }
}

fn version_of(metadata: &Map<String, Value>) -> Option<u64> {
    metadata
        .get("resourceVersion")?
        .as_str()?
        .parse()
        .ok()
        .filter(|version| *version != 0)
}

fn generated_name(metadata: &Map<String, Value>) -> Option<(String, String)> {
    let (prefix, name) = (metadata.get("generateName")?.as_str()?, metadata.get("name")?.as_str()?);
    let base = prefix.get(..58).unwrap_or(prefix);
    let is_generated = name.starts_with(prefix) && name.len() == base.len() + 5;
    is_generated.then(|| (name.to_owned(), format!("{base}<rand>")))
}

/// Returns `true` for lists, tables and bookmarks, which have the revision of the store, not of an object.
fn is_collection(map: &Map<String, Value>) -> bool {
    let kind = map.get("kind").and_then(Value::as_str).unwrap_or_default();
    let of_no_object = |key: &String| matches!(key.as_str(), "resourceVersion" | "annotations" | "creationTimestamp");
    let is_bookmark = match map.get("metadata") {
        Some(Value::Object(metadata)) => metadata.keys().all(of_no_object),
        _ => false,
    };
    map.contains_key("items") || map.contains_key("rows") || kind.ends_with("List") || is_bookmark
}
