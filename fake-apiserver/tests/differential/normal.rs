//! Normalises a response: replaces values that differ between any two runs.
//!
//! Recorded responses are already normalised, and the recorder must use the same algorithm.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::Value;

/// Patterns of strings that are always replaced.
struct Texts {
    generated: Regex,
    time: Regex,
    uid: Regex,
    version: Regex,
    version_field: Regex,
    ip: Regex,
    token: Regex,
    server: Regex,
    age: Regex,
    cell_ip: Regex,
}

static TEXTS: LazyLock<Texts> = LazyLock::new(|| {
    let regex = |text: &str| Regex::new(text).expect("the pattern is valid");
    Texts {
        generated: regex(r#""generateName": ?"([^"]+)""#),
        time: regex(r"\b20(?:2[6-9]|[3-9]\d)-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z| \+0000 UTC)?"),
        uid: regex(r"\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"),
        version: regex(r#"(in object meta: |current: |resourceVersion: |in record \()"?\d+"?"#),
        version_field: regex(r#"(resourceVersion\\*": ?\\*")\d+"#),
        ip: regex(r"\b10\.0\.\d+\.\d+\b"),
        token: regex(r"\beyJ[\w-]+\.[\w-]+\.[\w-]+"),
        server: regex(r"\b(?:https?://)?127\.0\.0\.1:\d{4,5}"),
        age: regex(r"^(?:(?:\d+[smhdy])+|<invalid>)$"),
        cell_ip: regex(r"^10(?:\.\d+){3}$"),
    }
});

/// Fields of `/version` and the address of the server, which always differ.
const OF_THE_SERVER: [&str; 12] = [
    "gitCommit",
    "buildDate",
    "goVersion",
    "compiler",
    "platform",
    "gitTreeState",
    "gitVersion",
    "minCompatibilityMinor",
    "minCompatibilityMajor",
    "emulationMajor",
    "emulationMinor",
    "serverAddress",
];

/// Normalises the response to a request with this body.
pub(crate) fn form(raw: &[u8], request: &str) -> Value {
    let mut text = String::from_utf8_lossy(raw).into_owned();
    for found in TEXTS.generated.captures_iter(request) {
        let prefix = &found[1];
        let cut: String = prefix.chars().take(58).collect();
        for start in [prefix, cut.as_str()] {
            let name = format!(r"{}[bcdfghjklmnpqrstvwxz2456789]{{5}}\b", regex::escape(start));
            let name = Regex::new(&name).expect("an escaped text is a valid pattern");
            text = name
                .replace_all(&text, format!("{start}<gen>").replace('$', "$$"))
                .into_owned();
        }
    }
    match serde_json::from_str(&text) {
        Ok(value) => walk(value, "", request),
        Err(_) => clean(&text).into(),
    }
}

fn clean(text: &str) -> String {
    let texts = &*TEXTS;
    let text = texts.time.replace_all(text, "<time>");
    let text = texts.uid.replace_all(&text, |found: &Captures<'_>| {
        let first = &found[1];
        // A uid with a single repeated digit, such as 11111111-…, is from the request.
        let is_made_up = first.bytes().all(|byte| Some(byte) == first.bytes().next());
        if is_made_up {
            found[0].to_owned()
        } else {
            "<uid>".to_owned()
        }
    });
    let text = texts.version.replace_all(&text, "${1}<rv>");
    let text = texts.version_field.replace_all(&text, "${1}<rv>");
    let text = texts.ip.replace_all(&text, "<ip>");
    let text = texts.token.replace_all(&text, "<jwt>");
    texts.server.replace_all(&text, "<server>").into_owned()
}

fn walk(value: Value, key: &str, request: &str) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .map(|(key, value)| {
                let value = walk(value, &key, request);
                (key, value)
            })
            .collect(),
        Value::Array(list) => walk_list(list, key, request),
        Value::String(text) => walk_text(text, key, request).into(),
        Value::Number(port) if matches!(key, "nodePort" | "healthCheckNodePort") => {
            let text = port.to_string();
            match text == "0" || request.contains(&text) {
                true => Value::Number(port),
                false => "<port>".into(),
            }
        }
        other => other,
    }
}

fn walk_list(mut list: Vec<Value>, key: &str, request: &str) -> Value {
    if matches!(key, "managedFields" | "conditions") {
        // A controller in kube-apiserver writes FlowSchemas shortly after the start.
        list.retain(|it| it["manager"] != "api-priority-and-fairness-config-consumer-v1" && it["type"] != "Dangling");
    }
    if key == "cells" {
        return list.into_iter().map(|cell| walk_cell(cell, request)).collect();
    }
    let is_rules = matches!(key, "resourceRules" | "nonResourceRules");
    if is_rules && request.contains("SelfSubjectRulesReview") {
        let mut rules: Vec<Value> = list.into_iter().map(|rule| walk(rule, key, "")).collect();
        rules.sort_by_cached_key(Value::to_string);
        return rules.into();
    }
    let is_conflicts = key == "causes" && list.iter().all(|it| it["reason"] == "FieldManagerConflict");
    if is_conflicts {
        // The order in kube-apiserver is random, because it iterates over a map.
        list.sort_by_cached_key(|it| (it["field"].to_string(), it["message"].to_string()));
    }
    list.into_iter().map(|item| walk(item, key, request)).collect()
}

fn walk_cell(cell: Value, request: &str) -> Value {
    match cell.as_str() {
        Some(text) if TEXTS.age.is_match(text) => "<age>".into(),
        Some(text) if TEXTS.cell_ip.is_match(text) => "<ip>".into(),
        Some(_) | None => walk(cell, "", request),
    }
}

fn walk_text(text: String, key: &str, request: &str) -> String {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match key {
        "resourceVersion" if is_number && text != "0" => "<rv>".to_owned(),
        "continue" if !text.is_empty() => "<continue>".to_owned(),
        "clusterIP" | "clusterIPs" if !text.is_empty() && text != "None" && !request.contains(&text) => {
            "<ip>".to_owned()
        }
        "reason" if text.starts_with("RBAC: allowed by") => "RBAC: allowed by <binding>".to_owned(),
        _ if OF_THE_SERVER.contains(&key) => "<server>".to_owned(),
        _ => clean(&text),
    }
}
