//! `Scenario`: the content of a transcript, and the language of its steps.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// The areas that have scenarios, one file each.
pub(crate) const AREAS: [&str; 25] = [
    "admission",
    "apply",
    "builtin_validation",
    "crd",
    "crd_cel",
    "crd_schema",
    "crd_versions",
    "crud",
    "defaulting",
    "delete",
    "discovery",
    "errors",
    "field_validation",
    "kubectl",
    "list",
    "managed_fields",
    "metadata",
    "patch",
    "selectors",
    "sequences",
    "subresources",
    "table",
    "watch",
    "workers_gc",
    "workers_namespace",
];

/// A recorded scenario.
#[derive(Debug, Deserialize)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) steps: Vec<Step>,
    /// The recorded responses by step number; setup steps are not recorded.
    pub(crate) answers: BTreeMap<usize, Value>,
    /// Set if the scenario has its own namespace.
    #[serde(default = "yes")]
    pub(crate) namespace: bool,
}

/// A step. Its fields determine its form; the README lists the forms.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    #[serde(rename = "do")]
    pub(crate) method: Option<String>,
    pub(crate) watch: Option<String>,
    pub(crate) read: Option<String>,
    pub(crate) close: Option<String>,
    pub(crate) sleep: Option<f64>,
    pub(crate) sh: Option<String>,
    #[serde(default)]
    pub(crate) path: String,
    /// The unmodified JSON, because the order of its keys can matter.
    pub(crate) body: Option<Box<RawValue>>,
    #[serde(rename = "type")]
    pub(crate) content_type: Option<String>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Option<String>>,
    #[serde(default)]
    pub(crate) capture: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) mask: Vec<String>,
    pub(crate) until: Option<Value>,
    pub(crate) timeout: Option<f64>,
    pub(crate) count: Option<usize>,
    pub(crate) quiet: Option<f64>,
    #[serde(default = "yes")]
    pub(crate) record: bool,
    #[serde(default)]
    pub(crate) may_fail: bool,
    pub(crate) stdin: Option<String>,
    #[serde(default)]
    pub(crate) mask_lines: Vec<String>,
}

fn yes() -> bool {
    true
}

impl Scenario {
    /// Returns the scenarios of an area, by name.
    pub(crate) fn of_area(area: &str) -> Vec<Self> {
        let file = folder().join("transcripts").join(format!("{area}.jsonl"));
        let text = std::fs::read_to_string(&file).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
        let scenario = |line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{area}: {why} in {line:.80}"));
        text.lines().map(scenario).collect()
    }

    /// Returns `true` if the scenario runs programs, which need real time and a port.
    pub(crate) fn needs_programs(&self) -> bool {
        self.steps.iter().any(|step| step.sh.is_some())
    }
}

/// Directory of the transcripts and the known differences.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/conformance")
}

/// The variables of a run: `ns`, `u` and the captured values.
#[derive(Debug)]
pub(crate) struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Creates the variables of a scenario: a unique suffix, and the namespace.
    pub(crate) fn of(scenario: &str) -> Self {
        const LETTERS: &[u8; 19] = b"bcdfghjkmnpqrstvwxz";
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in scenario.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        let letter = |nth: u32| char::from(LETTERS[(hash / 19_u64.pow(nth) % 19) as usize]);
        let unique: String = (0..8).map(letter).collect();
        let namespace = format!("t-{unique}");
        Self([("u".to_owned(), unique), ("ns".to_owned(), namespace)].into())
    }

    /// Returns the body of the request that creates the namespace of the run.
    pub(crate) fn namespace(&self) -> String {
        serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.get("ns")}}).to_string()
    }

    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Captures values of the response to a step.
    pub(crate) fn capture(&mut self, wanted: &BTreeMap<String, String>, got: &Value) {
        for (name, path) in wanted {
            let value = match lookup(got, path) {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
            };
            self.0.insert(name.clone(), value);
        }
    }

    /// Replaces variables; unknown variables are kept.
    pub(crate) fn fill(&self, text: &str) -> String {
        static VARIABLE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\$\{(\w+)\}").expect("the pattern is valid"));
        let value = |found: &Captures<'_>| self.0.get(&found[1]).unwrap_or(&found[0].to_owned()).clone();
        VARIABLE.replace_all(text, value).into_owned()
    }

    /// Replaces variables in all strings of a value.
    pub(crate) fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.fill(text).into(),
            Value::Array(list) => list.iter().map(|value| self.fill_value(value)).collect(),
            Value::Object(map) => map
                .iter()
                .map(|(key, value)| (self.fill(key), self.fill_value(value)))
                .collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    /// Returns the bytes of a body: a string is sent unchanged, other values in the recorder's JSON format.
    pub(crate) fn fill_body(&self, body: &RawValue) -> String {
        static NUMBER: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r#""\$\{(\w+):int\}""#).expect("the pattern is valid"));
        static VARIABLE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\$\{(\w+)\}").expect("the pattern is valid"));
        if let Ok(text) = serde_json::from_str::<String>(body.get()) {
            return self.fill(&text);
        }
        let text = NUMBER.replace_all(body.get(), |found: &Captures<'_>| self.get(&found[1]).to_owned());
        let escaped = |found: &Captures<'_>| match self.0.get(&found[1]) {
            None => found[0].to_owned(),
            Some(value) => {
                let quoted = Value::from(value.as_str()).to_string();
                quoted[1..quoted.len() - 1].to_owned()
            }
        };
        as_recorded(&VARIABLE.replace_all(&text, escaped))
    }
}

/// Formats minified JSON like the recorder, because some responses repeat the body: with spaces, and only ASCII.
fn as_recorded(json: &str) -> String {
    let (mut out, mut in_string, mut is_escaped) = (String::with_capacity(json.len() * 2), false, false);
    for letter in json.chars() {
        if letter.is_ascii() {
            out.push(letter);
        } else {
            let mut units = [0; 2];
            out.extend(
                letter
                    .encode_utf16(&mut units)
                    .iter()
                    .map(|unit| format!("\\u{unit:04x}")),
            );
        }
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => in_string = !in_string,
            ',' | ':' if !in_string => out.push(' '),
            _ => {}
        }
    }
    out
}

/// Follows a dotted path; `\.` is a dot in a key. A number is a list index; negative indexes count from the end.
pub(crate) fn lookup<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    const DOT: &str = "\u{0}";
    path.replace("\\.", DOT)
        .split('.')
        .try_fold(value, |value, part| match value {
            Value::Array(list) => {
                let index: isize = part.parse().ok()?;
                let from_end = || list.len().checked_sub(index.unsigned_abs());
                list.get(if index < 0 { from_end()? } else { index.unsigned_abs() })
            }
            Value::Object(map) => map.get(&part.replace(DOT, ".")),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        })
}

/// Returns `true` if a response satisfies the condition of a step.
pub(crate) fn is_awaited(body: &Value, condition: &Value) -> bool {
    let got = lookup(body, condition["path"].as_str().unwrap_or_default()).unwrap_or(&Value::Null);
    match (condition.get("equals"), condition.get("exists")) {
        (Some(wanted), _) => got == wanted,
        (None, Some(_)) => !got.is_null(),
        (None, None) => got.is_null(),
    }
}

/// Masks a field that a step excludes from the comparison; `*` matches every key or item.
pub(crate) fn mask(value: &mut Value, path: &[&str]) {
    let Some((head, rest)) = path.split_first() else {
        return;
    };
    let children: Vec<&mut Value> = match value {
        Value::Array(list) if *head == "*" => list.iter_mut().collect(),
        Value::Object(map) if *head == "*" => map.values_mut().collect(),
        Value::Array(list) => head
            .parse()
            .ok()
            .and_then(|at: usize| list.get_mut(at))
            .into_iter()
            .collect(),
        Value::Object(map) => map.get_mut(*head).into_iter().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    for child in children {
        match rest {
            [] if *head == "*" => {}
            [] => *child = "<masked>".into(),
            rest => mask(child, rest),
        }
    }
}
