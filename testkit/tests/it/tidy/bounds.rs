//! The tables of bounds in ARCHITECTURE.md and in the documentation of `informer`, compared with the constants.

use std::fs;
use std::path::{Path, PathBuf};

use super::root;

/// The first line of the table.
const HEADER: &str = "| bound on | where | limit | at the limit |";

#[test]
fn table_of_bounds_agrees_with_the_constants() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md exists");
    let table = text.lines().skip_while(|line| *line != HEADER).skip(2);
    let rows: Vec<_> = table.take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 50, "the table of bounds has {} rows", rows.len());
    let faults: Vec<String> = rows.into_iter().flat_map(check).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// The first line of the table in `informer/src/lib.rs`.
const INFORMER_HEADER: &str = "//! | bound | value | beyond it |";

/// Files in `informer/src`, separated by spaces, and an expression of their constants and default fields.
type Limit = (&'static str, &'static str);

/// The beginnings of all rows of the table in `informer/src/lib.rs`, and the limits that the rows contain.
const INFORMER: &[(&str, &[Limit])] = &[
    ("keys in a", &[]),
    ("a read of", &[("runtime/client/kind_client.rs", "PATIENCE")]),
    ("objects of a type", &[("runtime/client/unseen.rs", "REMEMBERED")]),
    (
        "opening a watch",
        &[
            ("cache/reflector/watch.rs", "FIRST_BOOKMARK"),
            ("cache/reflector/options.rs", "REQUEST_TIMEOUT / 2"),
        ],
    ),
    (
        "a page of a list",
        &[
            ("cache/reflector/options.rs", "REQUEST_TIMEOUT"),
            (
                "cache/reflector/options.rs cache/reflector/list.rs",
                "REQUEST_TIMEOUT * PAGE_SLACK",
            ),
        ],
    ),
    (
        "a watch of a server",
        &[("cache/reflector/watch.rs", "BOOKMARK_SILENCE")],
    ),
    (
        "a request for a Lease",
        &[
            ("runtime/leader_election.rs", "LEAST_REQUEST_TIMEOUT"),
            ("runtime/sharding/member.rs", "LEAST_REQUEST_TIMEOUT"),
        ],
    ),
    ("a key held back", &[("reconcile/gate.rs", "PATIENCE")]),
    ("sync of a cache", &[("cache/factory.rs", "CACHE_SYNC_TIMEOUT")]),
    ("sync of the Leases", &[("cache/factory.rs", "CACHE_SYNC_TIMEOUT")]),
    (
        "a replica without a valid Lease",
        &[("runtime/sharding/config.rs", "lease_duration + hand_over_timeout")],
    ),
    (
        "a replica that cannot renew",
        &[
            ("runtime/sharding/config.rs", "renew_deadline"),
            ("runtime/sharding/config.rs", "lease_duration"),
        ],
    ),
    ("recorded keys", &[("runtime/sharding/handle.rs", "MEMORY")]),
    ("a shutdown", &[("runtime/manager.rs", "grace")]),
    ("queued events", &[("runtime/recorder.rs", "QUEUE")]),
    (
        "events in progress",
        &[("runtime/recorder.rs", "QUEUE"), ("runtime/event_sink.rs", "LANES")],
    ),
    ("recorded series", &[("runtime/event_series.rs", "REMEMBERED")]),
    (
        "attempts to write",
        &[
            ("runtime/event_sink.rs", "TRIES.0"),
            ("runtime/event_sink.rs", "TRIES.1"),
        ],
    ),
];

#[test]
fn table_of_bounds_of_the_informer_agrees_with_the_constants() {
    let folder = root().join("informer/src");
    let text = fs::read_to_string(folder.join("lib.rs")).expect("the crate has a lib.rs");
    let table = text.lines().skip_while(|line| *line != INFORMER_HEADER).skip(2);
    let rows: Vec<&str> = table.map_while(|line| line.strip_prefix("//! | ")).collect();
    assert_eq!(
        rows.len(),
        INFORMER.len(),
        "the number of rows differs from the list in bounds.rs"
    );
    let mut faults = Vec::new();
    for (row, (bound, limits)) in rows.into_iter().zip(INFORMER) {
        if !row.starts_with(bound) {
            faults.push(format!("{row:?} does not begin with {bound:?}"));
        }
        let (_, columns) = row.split_once(" | ").expect("the row has several columns");
        for (files, expression) in *limits {
            let read = |file: &str| fs::read_to_string(folder.join(file)).expect("the file exists");
            let source: String = files.split(' ').map(read).collect();
            match evaluate(&source, expression) {
                Some(value) if value.texts().iter().any(|text| contains(columns, text)) => {}
                value => faults.push(format!("{bound}: {expression} is {value:?}, the table has {columns}")),
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Evaluates constants, default fields, numbers and operators, from left to right. `NAME.1` is the second part of a
/// tuple.
fn evaluate(source: &str, expression: &str) -> Option<Value> {
    let operand = |word: &str| {
        if let Ok(number) = word.parse() {
            return Some(Value::Number(number));
        }
        let (name, part) = word.split_once('.').unwrap_or((word, "0"));
        match values(source, name) {
            Some(values) => values.get(part.parse::<usize>().ok()?).copied(),
            None => default_of(source, name),
        }
    };
    let words: Vec<&str> = expression.split_whitespace().collect();
    let (first, rest) = words.split_first()?;
    let mut result = operand(first)?;
    for pair in rest.chunks(2) {
        let [operator, right] = *pair else { return None };
        result = match (result, operator, operand(right)?) {
            (Value::Milliseconds(left), "+", Value::Milliseconds(right)) => Value::Milliseconds(left + right),
            (Value::Milliseconds(left), "*", Value::Number(right)) => Value::Milliseconds(left * right),
            (Value::Milliseconds(left), "/", Value::Number(right)) => Value::Milliseconds(left / right),
            _ => return None,
        };
    }
    Some(result)
}

/// Returns the duration of a field in a struct literal.
fn default_of(source: &str, field: &str) -> Option<Value> {
    let field = format!(" {field}: ");
    let mut values = source.split(field.as_str()).skip(1);
    values.find_map(|it| {
        let value = it.strip_prefix("Some(").unwrap_or(it);
        let (seconds, _) = value.strip_prefix("Duration::from_secs(")?.split_once(')')?;
        Some(Value::Milliseconds(seconds.parse::<f64>().ok()? * 1e3))
    })
}

/// Returns the errors in a row.
fn check(row: &str) -> Vec<String> {
    let columns: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
    let [bound, place, limit, _] = columns[..] else {
        return vec![format!("not four columns: {row}")];
    };
    let mut faults = Vec::new();
    let mut names = 0;
    for part in place.split("; ") {
        let words: Vec<&str> = part.split('`').skip(1).step_by(2).collect();
        let files: Vec<&str> = words
            .iter()
            .copied()
            .filter(|it| it.ends_with(".rs") || it.ends_with(".js"))
            .collect();
        let sources: Vec<String> = files
            .iter()
            .filter_map(|it| fs::read_to_string(path(it)).ok())
            .collect();
        if sources.len() < files.len() {
            faults.push(format!("{bound}: a file of {files:?} does not exist"));
        }
        for name in words.iter().filter(|it| !files.contains(it)) {
            names += 1;
            let is_constant = name
                .chars()
                .all(|it| it.is_ascii_uppercase() || it.is_ascii_digit() || it == '_');
            if !is_constant {
                let is_there = sources.is_empty() || sources.iter().any(|it| it.contains(name.trim_end_matches("()")));
                let fault = format!("{bound}: {name} is not in {files:?}");
                faults.extend((!is_there).then_some(fault));
            }
            for source in sources.iter().filter(|_| is_constant) {
                let Some(values) = values(source, name) else {
                    faults.push(format!("{bound}: {files:?} has no number {name}"));
                    continue;
                };
                let missing = values
                    .iter()
                    .find(|it| !it.texts().iter().any(|text| contains(limit, text)));
                faults.extend(missing.map(|it| format!("{bound}: {name} is {it:?}, the table has {limit}")));
            }
        }
    }
    if names == 0 {
        faults.push(format!("{bound}: no constant and no option is named"));
    }
    faults
}

/// Returns the file that the table refers to: below the workspace, or below `fake-apiserver/src`.
fn path(name: &str) -> PathBuf {
    let whole = root().join(name);
    match Path::new(name).components().count() > 1 && whole.exists() {
        true => whole,
        false => root().join("fake-apiserver/src").join(name),
    }
}

/// Returns `true` if `text` occurs in `limit` and is not a part of a longer number.
fn contains(limit: &str, text: &str) -> bool {
    limit.match_indices(text).any(|(at, _)| {
        let before = limit[..at].chars().next_back();
        let mut after = limit[at + text.len()..].chars();
        let (next, second) = (after.next(), after.next());
        let goes_on = next.is_some_and(char::is_alphanumeric)
            || (matches!(next, Some(',' | '.')) && second.is_some_and(|it| it.is_ascii_digit()));
        !goes_on && !before.is_some_and(|it| it.is_ascii_digit() || it == ',' || it == '.')
    })
}

/// Numbers that the tables may contain as words.
const WORDS: [(f64, &str); 3] = [(2.0, "two"), (4.0, "four"), (8.0, "eight")];

/// Value of a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Number(f64),
    Milliseconds(f64),
}

impl Value {
    /// Returns the forms in which the table may contain the number.
    fn texts(self) -> Vec<String> {
        let units: &[(&str, f64)] = match self {
            Self::Number(_) => &[
                ("", 1.0),
                (" million", 1e6),
                (" KiB", 1024.0),
                (" MiB", 1024.0 * 1024.0),
                (" s", 1.0),
            ],
            Self::Milliseconds(_) => &[
                (" ms", 1.0),
                (" s", 1e3),
                (" minute", 60e3),
                (" minutes", 60e3),
                (" hour", 3600e3),
                (" virtual hours", 3600e3),
            ],
        };
        let (Self::Number(value) | Self::Milliseconds(value)) = self;
        let digits = units
            .iter()
            .map(|(unit, size)| format!("{}{unit}", grouped(value / size)));
        let word = WORDS.iter().find(|(number, _)| self == Self::Number(*number));
        digits.chain(word.map(|(_, word)| (*word).to_owned())).collect()
    }
}

/// Formats the number with a comma between thousands.
fn grouped(number: f64) -> String {
    let text = number.to_string();
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

/// Returns the values of a constant; several if the constant is a tuple.
fn values(source: &str, name: &str) -> Option<Vec<Value>> {
    // Constants of JavaScript do not have a type.
    let definition = [format!("const {name}:"), format!("const {name} =")];
    let (_, definition) = definition
        .iter()
        .find_map(|it| source.split_once(it.trim_end_matches('=')))?;
    let (_, definition) = definition.split_once("= ")?;
    let (expression, _) = definition.split_once(';')?;
    match expression.strip_prefix('(') {
        Some(tuple) => tuple
            .strip_suffix(')')?
            .split(", ")
            .map(|it| value(source, it))
            .collect(),
        None => Some(vec![value(source, expression)?]),
    }
}

fn value(source: &str, expression: &str) -> Option<Value> {
    for (call, factor) in [("Duration::from_secs(", 1e3), ("Duration::from_millis(", 1.0)] {
        if let Some(inner) = expression.strip_prefix(call) {
            return Some(Value::Milliseconds(number(source, inner.strip_suffix(')')?)? * factor));
        }
    }
    number(source, expression).map(Value::Number)
}

/// Evaluates numbers, names of constants and operators, from left to right.
fn number(source: &str, expression: &str) -> Option<f64> {
    let words: Vec<&str> = expression.split_whitespace().collect();
    let operand = |word: &str| match word.replace('_', "").parse() {
        Ok(number) => Some(number),
        Err(_) => match values(source, word.rsplit("::").next()?)?[..] {
            [Value::Number(number)] => Some(number),
            _ => None,
        },
    };
    let (first, rest) = words.split_first()?;
    let mut result = operand(first)?;
    for pair in rest.chunks(2) {
        let [operator, right] = *pair else { return None };
        let right = operand(right)?;
        match operator {
            "*" => result *= right,
            "/" => result /= right,
            "<<" => result *= 2_f64.powf(right),
            _ => return None,
        }
    }
    Some(result)
}

#[test]
fn constants_are_evaluated_and_shown_as_in_the_table() {
    let source = "const A: usize = 3 * 1024 * 1024 / 2;\nconst B: u32 = 10 * Meter::C;\npub const C: u32 = 1_000;\n\
                  const D: (u32, Duration) = (12, Duration::from_secs(4 * 3600));";
    let limit = "1.5 MiB, 10,000, and 12 in 4 virtual hours";
    for name in ["A", "B", "D"] {
        let values = values(source, name).expect("the constant is a number");
        let is_shown = |it: &Value| it.texts().iter().any(|text| contains(limit, text));
        assert!(values.iter().all(is_shown), "{name}: {values:?}");
    }
    assert!(!contains("110,000", "10,000") && !contains("10,000", "10"));
    let source = "const T: Duration = Duration::from_secs(60);\nconst P: (u32, u32) = (3, 8);\n\
                  Self { wait: Some(Duration::from_secs(15)), rest: Duration::from_secs(1) }";
    for (expression, text) in [
        ("T + wait", "75 s"),
        ("T / 2", "30 s"),
        ("rest", "1 s"),
        ("P.1", "eight"),
    ] {
        let value = evaluate(source, expression).expect("the expression has a value");
        assert!(value.texts().iter().any(|it| it == text), "{expression}: {value:?}");
    }
}
