//! Functions that templates can call: Go's functions, the most common functions of sprig, and KWOK's functions.

use crate::api::json::{Map, Value, json};
use crate::api::yaml;

/// Values that template functions return, such as the time, and the name and address of the Node.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// The current time, with nanoseconds.
    pub(super) now: String,
    pub(super) node_name: String,
    pub(super) node_address: String,
    /// The current or future address of the Pod.
    pub(super) pod_address: String,
    pub(super) version: String,
}

/// Names of all supported functions.
const NAMES: [&str; 55] = [
    "add",
    "and",
    "coalesce",
    "contains",
    "default",
    "dict",
    "empty",
    "eq",
    "ge",
    "gt",
    "hasKey",
    "hasPrefix",
    "hasSuffix",
    "index",
    "int",
    "join",
    "le",
    "len",
    "list",
    "lower",
    "lt",
    "mul",
    "ne",
    "not",
    "or",
    "print",
    "printf",
    "quote",
    "replace",
    "sub",
    "ternary",
    "toJson",
    "toString",
    "trim",
    "trimPrefix",
    "trimSuffix",
    "upper",
    "NodeConditions",
    "NodeIP",
    "NodeIPWith",
    "NodeIPs",
    "NodeIPsWith",
    "NodeName",
    "NodePort",
    "Now",
    "PodIP",
    "PodIPWith",
    "PodIPs",
    "PodIPsWith",
    "Quote",
    "StartTime",
    "Version",
    "YAML",
    "println",
    "squote",
];

/// The conditions of a ready Node.
const NODE_CONDITIONS: [[&str; 4]; 5] = [
    ["Ready", "True", "KubeletReady", "kubelet is posting ready status"],
    [
        "MemoryPressure",
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ],
    [
        "DiskPressure",
        "False",
        "KubeletHasNoDiskPressure",
        "kubelet has no disk pressure",
    ],
    [
        "PIDPressure",
        "False",
        "KubeletHasSufficientPID",
        "kubelet has sufficient PID available",
    ],
    [
        "NetworkUnavailable",
        "False",
        "RouteCreated",
        "RouteController created a route",
    ],
];

/// Returns `true` if there is a function with this name.
pub(super) fn is_known(name: &str) -> bool {
    NAMES.contains(&name)
}

pub(super) fn call(name: &str, arguments: &[Value], facts: &Facts) -> Result<Value, String> {
    let argument = |at: usize| {
        arguments
            .get(at)
            .ok_or_else(|| format!("wrong number of args for {name}: {}", arguments.len()))
    };
    let text = |at: usize| argument(at).map(print);
    if let Some(fact) = fact(name, arguments, facts) {
        return Ok(fact);
    }
    Ok(match name {
        "Quote" => match argument(0)? {
            Value::String(text) => Value::String(text.clone()).to_string().into(),
            other => Value::from(other.to_string()).to_string().into(),
        },
        "YAML" => indented(argument(0)?, arguments.get(1)).into(),
        "index" => index(arguments)?,
        "and" => arguments
            .iter()
            .find(|it| !holds(it))
            .or(arguments.last())
            .cloned()
            .unwrap_or_default(),
        "or" => arguments
            .iter()
            .find(|it| holds(it))
            .or(arguments.last())
            .cloned()
            .unwrap_or_default(),
        "not" => (!holds(argument(0)?)).into(),
        "eq" => {
            let first = argument(0)?;
            arguments.iter().skip(1).any(|it| is_equal(first, it)).into()
        }
        "ne" => (!is_equal(argument(0)?, argument(1)?)).into(),
        "lt" | "le" | "gt" | "ge" => is_ordered(name, argument(0)?, argument(1)?)?.into(),
        "len" => length(argument(0)?)?,
        "print" => arguments.iter().map(print).collect::<Vec<_>>().join(" ").into(),
        "println" => (arguments.iter().map(print).collect::<Vec<_>>().join(" ") + "\n").into(),
        "printf" => formatted(&text(0)?, arguments.get(1..).unwrap_or_default())?.into(),
        "add" | "sub" | "mul" => number(name, arguments)?,
        "coalesce" => arguments.iter().find(|it| holds(it)).cloned().unwrap_or_default(),
        "default" => match arguments.get(1) {
            Some(value) if holds(value) => value.clone(),
            _ => argument(0)?.clone(),
        },
        "dict" => dict(arguments),
        "empty" => (!holds(argument(0)?)).into(),
        "hasKey" => {
            let key = text(1)?;
            argument(0)?.get(key.as_str()).is_some().into()
        }
        "int" => integer(argument(0)?).unwrap_or(0).into(),
        "list" => arguments.iter().cloned().collect(),
        "ternary" => argument(if holds(argument(2)?) { 0 } else { 1 })?.clone(),
        "toJson" => argument(0)?.to_string().into(),
        "toString" => text(0)?.into(),
        _ => on_text(name, arguments)?,
    })
}

/// Calls a function that returns one of the [`Facts`].
fn fact(name: &str, arguments: &[Value], facts: &Facts) -> Option<Value> {
    Some(match name {
        "NodeConditions" => node_conditions(),
        "NodeIP" | "NodeIPWith" => facts.node_address.as_str().into(),
        "NodeIPs" | "NodeIPsWith" => json!([facts.node_address]),
        "NodeName" => facts.node_name.as_str().into(),
        "NodePort" => 10250.into(),
        "Now" | "StartTime" => facts.now.as_str().into(),
        "PodIP" => facts.pod_address.as_str().into(),
        "PodIPWith" | "PodIPsWith" | "PodIPs" => {
            let uses_host = arguments.get(1).is_some_and(holds);
            let address = if uses_host {
                &facts.node_address
            } else {
                &facts.pod_address
            };
            match name {
                "PodIPWith" => address.as_str().into(),
                _ => json!([address]),
            }
        }
        "Version" => facts.version.as_str().into(),
        _ => return None,
    })
}

/// Calls a string function of sprig. The string to process is the last argument.
fn on_text(name: &str, arguments: &[Value]) -> Result<Value, String> {
    let texts: Vec<String> = arguments.iter().map(print).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    Ok(match (name, texts.as_slice()) {
        ("contains", [part, text]) => text.contains(part).into(),
        ("hasPrefix", [part, text]) => text.starts_with(part).into(),
        ("hasSuffix", [part, text]) => text.ends_with(part).into(),
        ("join", [between, _]) => {
            let list = arguments[1].as_array().into_iter().flatten();
            list.map(print).collect::<Vec<_>>().join(between).into()
        }
        ("lower", [text]) => text.to_lowercase().into(),
        ("upper", [text]) => text.to_uppercase().into(),
        ("quote", texts) => texts
            .iter()
            .map(|it| format!("{it:?}"))
            .collect::<Vec<_>>()
            .join(" ")
            .into(),
        ("squote", texts) => texts
            .iter()
            .map(|it| format!("'{it}'"))
            .collect::<Vec<_>>()
            .join(" ")
            .into(),
        ("replace", [from, to, text]) => text.replace(from, to).into(),
        ("trim", [text]) => text.trim().into(),
        ("trimPrefix", [part, text]) => text.strip_prefix(part).unwrap_or(text).into(),
        ("trimSuffix", [part, text]) => text.strip_suffix(part).unwrap_or(text).into(),
        (name, texts) => return Err(format!("wrong number of args for {name}: {}", texts.len())),
    })
}

/// Prints a value like Go.
pub(super) fn print(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.to_string(),
        Value::Array(list) => format!("[{}]", list.iter().map(print).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let entries: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{key}:{}", print(value)))
                .collect();
            format!("map[{}]", entries.join(" "))
        }
        other => other.to_string(),
    }
}

fn node_conditions() -> Value {
    let condition = |[kind, status, reason, message]: [&str; 4]| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": null, "lastTransitionTime": null,
        })
    };
    NODE_CONDITIONS.into_iter().map(condition).collect()
}

/// Formats a value as YAML; if it is indented, it begins on a new line.
fn indented(value: &Value, levels: Option<&Value>) -> String {
    let text = yaml::to_string(value);
    let levels = levels.and_then(integer).and_then(|it| usize::try_from(it).ok());
    match levels.filter(|it| *it > 0) {
        Some(levels) => format!("\n{text}").replace('\n', &format!("\n{}", " ".repeat(2 * levels.min(64)))),
        None => text,
    }
}

fn index(arguments: &[Value]) -> Result<Value, String> {
    let (of, keys) = arguments.split_first().ok_or("index of untyped nil")?;
    let mut found = of.clone();
    for key in keys {
        found = match (&found, key) {
            (Value::Array(list), key) => {
                let at = integer(key).and_then(|it| usize::try_from(it).ok());
                let item = at.and_then(|at| list.get(at));
                item.cloned()
                    .ok_or_else(|| format!("index out of range: {}", print(key)))?
            }
            (Value::Object(map), key) => map.get(&print(key)).cloned().unwrap_or_default(),
            _ => Value::Null,
        };
    }
    Ok(found)
}

fn is_equal(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one.total_cmp(&other).is_eq(),
        _ => one == other,
    }
}

fn is_ordered(name: &str, one: &Value, other: &Value) -> Result<bool, String> {
    let order = match (one.as_f64(), other.as_f64(), one.as_str(), other.as_str()) {
        (Some(one), Some(other), ..) => one.total_cmp(&other),
        (.., Some(one), Some(other)) => one.cmp(other),
        _ => return Err(format!("error calling {name}: incompatible types for comparison")),
    };
    Ok(match name {
        "lt" => order.is_lt(),
        "le" => order.is_le(),
        "gt" => order.is_gt(),
        _ => order.is_ge(),
    })
}

fn length(value: &Value) -> Result<Value, String> {
    let length = match value {
        Value::String(text) => text.len(),
        Value::Array(list) => list.len(),
        Value::Object(map) => map.len(),
        other => return Err(format!("error calling len: len of {}", print(other))),
    };
    Ok(length.into())
}

/// Parses an integer, which may be a number or a string.
fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

fn number(name: &str, arguments: &[Value]) -> Result<Value, String> {
    let mut numbers = arguments.iter().map(|it| integer(it).unwrap_or(0));
    let first = numbers
        .next()
        .ok_or_else(|| format!("wrong number of args for {name}: 0"))?;
    let result = numbers.try_fold(first, |sum, it| match name {
        "add" => sum.checked_add(it),
        "sub" => sum.checked_sub(it),
        _ => sum.checked_mul(it),
    });
    result
        .map(Value::from)
        .ok_or_else(|| format!("error calling {name}: overflow"))
}

fn dict(arguments: &[Value]) -> Value {
    let mut map = Map::new();
    for pair in arguments.chunks(2) {
        let value = pair.get(1).cloned().unwrap_or_else(|| "".into());
        map.insert(print(&pair[0]).into(), value);
    }
    Value::Object(map)
}

/// Implements `printf` with the verbs `%s`, `%d`, `%v`, `%q` and `%%`.
fn formatted(format: &str, arguments: &[Value]) -> Result<String, String> {
    let (mut text, mut rest, mut arguments) = (String::new(), format, arguments.iter());
    while let Some((before, after)) = rest.split_once('%') {
        text += before;
        let verb = after.chars().next().unwrap_or_default();
        rest = after.get(verb.len_utf8()..).unwrap_or_default();
        match verb {
            '%' => text.push('%'),
            's' | 'd' | 'v' => text += &arguments.next().map(print).unwrap_or_default(),
            'q' => text += &format!("{:?}", arguments.next().map(print).unwrap_or_default()),
            verb => return Err(format!("printf: %{verb} is not supported")),
        }
    }
    Ok(text + rest)
}

/// Returns `true` if a value is true in a condition, that is, if it is not empty.
pub(super) fn holds(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        other => match (other.as_bool(), other.as_str()) {
            (Some(flag), _) => flag,
            (_, Some(text)) => !text.is_empty(),
            _ => other.as_f64().is_some_and(|number| number != 0.0),
        },
    }
}
