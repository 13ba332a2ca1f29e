//! Changes of a single field that the schema of a custom resource permits.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value, json};

/// Maximum number of changes of one object; further changes are dropped.
const MOST: usize = 400;

/// Maximum depth to which missing fields are generated.
const DEEP: u32 = 4;

/// Maximum depth to which a schema is searched.
const DEPTH: usize = 12;

/// A change of one field of the spec.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    /// Description of the change, used as its name in replay strings: `spec.replicas: 2 → 3`.
    pub(crate) name: String,
    /// The path to the field: names and list indexes.
    path: Vec<String>,
    /// The new value; `None` removes the field.
    value: Option<Value>,
}

impl Change {
    /// Applies the change to an object. Does nothing if the parent of the field no longer exists.
    pub(crate) fn apply(&self, object: &mut Value) {
        let Some((last, way)) = self.path.split_last() else {
            return;
        };
        let mut place = object;
        for step in way {
            let next = match place {
                Value::Object(fields) => fields.get_mut(step),
                Value::Array(items) => step.parse::<usize>().ok().and_then(|it| items.get_mut(it)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
            };
            let Some(next) = next else { return };
            place = next;
        }
        match (place, &self.value) {
            (Value::Object(fields), Some(value)) => drop(fields.insert(last.clone(), value.clone())),
            (Value::Object(fields), None) => drop(fields.remove(last)),
            (Value::Array(items), Some(value)) => {
                if let Some(item) = last.parse::<usize>().ok().and_then(|it| items.get_mut(it)) {
                    *item = value.clone();
                }
            }
            (Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_), _) => {}
        }
    }
}

/// Returns the changes that a schema permits to an object's spec, in rounds that change each top-level field of the
/// spec at most once. Within a round, less nested fields are first.
pub(crate) fn changes(schema: &Value, object: &Value) -> Vec<Change> {
    let mut found = Vec::new();
    let spec = &schema["properties"]["spec"];
    of_fields(spec, &object["spec"], &mut vec!["spec".to_owned()], &mut found);
    found.sort_by_key(|it| it.path.len());
    let mut names = std::collections::BTreeSet::new();
    found.retain(|it| names.insert(it.name.clone()));
    let mut found = in_turns(found);
    found.truncate(MOST);
    found
}

/// Sorts changes so that each field of the spec (with all fields below it) is changed once before a field is changed
/// again.
fn in_turns(changes: Vec<Change>) -> Vec<Change> {
    let mut rounds: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    let mut numbered: Vec<(usize, Change)> = changes
        .into_iter()
        .map(|change| {
            let round = rounds.entry(change.path.iter().take(2).cloned().collect()).or_default();
            *round += 1;
            (*round, change)
        })
        .collect();
    // The sort is stable, so the order within a round is kept.
    numbered.sort_by_key(|(round, _)| *round);
    numbered.into_iter().map(|(_, change)| change).collect()
}

/// Collects the changes of the fields of an object that the schema permits.
fn of_fields(schema: &Value, value: &Value, path: &mut Vec<String>, found: &mut Vec<Change>) {
    if path.len() > DEPTH {
        return;
    }
    let required = |name: &str| {
        let required = schema["required"].as_array();
        required.is_some_and(|it| it.iter().any(|it| it.as_str() == Some(name)))
    };
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        path.push(name.clone());
        match value.get(name).filter(|it| !it.is_null()) {
            Some(value) => {
                of_value(field, value, path, found);
                if !required(name) {
                    found.push(change(path, value, None));
                }
            }
            None => {
                for made in made_up(field, DEEP) {
                    found.push(change(path, &Value::Null, Some(made)));
                }
            }
        }
        path.pop();
    }
}

/// Collects the changes of an existing value that the schema permits.
fn of_value(schema: &Value, value: &Value, path: &mut Vec<String>, found: &mut Vec<Change>) {
    let others: Vec<Value> = match value {
        Value::Bool(is_so) => vec![json!(!is_so)],
        Value::Number(number) => numbers(schema, Some(number)),
        Value::String(text) => texts(schema, Some(text)),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                path.push(at.to_string());
                match item {
                    Value::Object(_) => of_fields(&schema["items"], item, path, found),
                    item => of_value(&schema["items"], item, path, found),
                }
                path.pop();
            }
            lists(schema, items)
        }
        Value::Object(fields) => {
            of_fields(schema, value, path, found);
            maps(schema, fields)
        }
        Value::Null => Vec::new(),
    };
    let others = others.into_iter().filter(|it| it != value);
    found.extend(others.map(|it| change(path, value, Some(it))));
}

/// Returns the values of an enum, or else the neighbours of the value, zero, one, and the ends of the range. Omits
/// negative numbers if there is no minimum, and a maximum that is greater than 1,000.
fn numbers(schema: &Value, value: Option<&Number>) -> Vec<Value> {
    if let Some(values) = schema["enum"].as_array() {
        return values.clone();
    }
    let (least, most) = (schema["minimum"].as_f64(), schema["maximum"].as_f64());
    let here = value.and_then(Number::as_f64);
    let is_whole = schema["type"] != "number";
    let next_to = |it: f64| [it - 1.0, it + 1.0];
    let wanted = here.into_iter().flat_map(next_to).chain([0.0, 1.0]);
    let wanted = wanted.chain(least).chain(most.filter(|it| *it <= 1_000.0));
    let is_in = |it: &f64| least.is_none_or(|least| *it >= least) && most.is_none_or(|most| *it <= most);
    let mut numbers: Vec<Value> = Vec::new();
    for number in wanted.filter(|it| is_in(it) && (*it >= 0.0 || least.is_some())) {
        let number = match is_whole {
            true => json!(number as i64),
            false => json!(number),
        };
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    numbers
}

/// Returns the values of an enum, or else a similar string and an empty one.
fn texts(schema: &Value, value: Option<&str>) -> Vec<Value> {
    if let Some(values) = schema["enum"].as_array() {
        return values.clone();
    }
    let longest = schema["maxLength"].as_u64().unwrap_or(u64::MAX);
    let shortest = schema["minLength"].as_u64().unwrap_or(0);
    let mut texts = vec![match (schema["format"].as_str(), value) {
        (Some("date-time"), _) => "2030-01-01T00:00:00Z".to_owned(),
        (Some("ipv4"), _) => "192.0.2.7".to_owned(),
        (Some("uri"), _) => "http://example.com/other".to_owned(),
        (_, Some(text)) if text.chars().count() as u64 >= longest => text.chars().rev().collect(),
        // Keep the form of quantities and durations, such as `5Gi` and `10s`.
        (_, Some(text)) if text.starts_with(|it: char| it.is_ascii_digit()) => format!("1{text}"),
        (_, Some(text)) => format!("{text}2"),
        (_, None) => "made-up"
            .chars()
            .take(usize::try_from(longest).unwrap_or(usize::MAX))
            .collect(),
    }];
    if shortest == 0 && schema["pattern"].is_null() && schema["format"].is_null() {
        texts.push(String::new());
    }
    texts.into_iter().map(Value::String).collect()
}

/// Returns lists with one more item, with one fewer item, without items, and in reverse order.
fn lists(schema: &Value, items: &[Value]) -> Vec<Value> {
    let least = schema["minItems"].as_u64().unwrap_or(0) as usize;
    let most = schema["maxItems"].as_u64().map_or(usize::MAX, |it| it as usize);
    let mut lists = Vec::new();
    let key = schema["x-kubernetes-list-map-keys"][0].as_str().unwrap_or("name");
    let one_more = match items.last() {
        Some(last) => Some(another(last, key)),
        None => made_up(&schema["items"], DEEP).into_iter().next(),
    };
    if let Some(item) = one_more.filter(|_| items.len() < most) {
        let mut longer = items.to_vec();
        longer.push(item);
        lists.push(longer);
    }
    if items.len() > least {
        lists.push(items[..items.len() - 1].to_vec());
    }
    if items.len() > 1 && least == 0 {
        lists.push(Vec::new());
    }
    if items.len() > 1 && schema["x-kubernetes-list-type"] != "set" {
        lists.push(items.iter().rev().cloned().collect());
    }
    lists.into_iter().map(Value::Array).collect()
}

/// Returns a copy of an item with a different key.
fn another(item: &Value, key: &str) -> Value {
    match item {
        Value::String(text) => json!(format!("{text}2")),
        Value::Number(number) => json!(number.as_i64().unwrap_or_default() + 1),
        Value::Object(fields) => {
            let mut fields = fields.clone();
            if let Some(name) = fields.get(key).cloned() {
                fields.insert(key.to_owned(), another(&name, key));
            }
            Value::Object(fields)
        }
        item => item.clone(),
    }
}

/// Returns the map with an additional entry, and the map without its last entry.
fn maps(schema: &Value, fields: &Map<String, Value>) -> Vec<Value> {
    let Some(values) = schema.get("additionalProperties").filter(|it| it.is_object()) else {
        return Vec::new();
    };
    let mut maps = Vec::new();
    if let Some(value) = made_up(values, DEEP).into_iter().next() {
        let mut more = fields.clone();
        more.insert("made-up".to_owned(), value);
        maps.push(more);
    }
    if let Some(name) = fields.keys().next_back() {
        let mut less = fields.clone();
        less.remove(name);
        maps.push(less);
    }
    maps.into_iter().map(Value::Object).collect()
}

/// Returns values for a missing field: all values of an enum or boolean; several numbers or strings; or a single list
/// or object.
fn made_up(schema: &Value, depth: u32) -> Vec<Value> {
    if let Some(value) = schema.get("default") {
        // The server has already set the default, so only a boolean has a different value to try.
        return match value {
            Value::Bool(is_so) => vec![json!(!is_so)],
            _ => Vec::new(),
        };
    }
    if depth == 0 {
        return Vec::new();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return vec![json!(1)];
    }
    match schema["type"].as_str() {
        Some("boolean") => vec![json!(true), json!(false)],
        Some("integer" | "number") => numbers(schema, None),
        Some("string") => texts(schema, None),
        Some("array") => {
            let item = made_up(&schema["items"], depth - 1).into_iter().next();
            item.map(|it| json!([it])).into_iter().collect()
        }
        Some("object") => with_required(schema, depth).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Returns the smallest object that a schema permits; `None` if a required field cannot be generated.
fn with_required(schema: &Value, depth: u32) -> Option<Value> {
    let mut fields = Map::new();
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str()?;
        let field = &schema["properties"][name];
        let value = match field.get("default") {
            Some(value) => value.clone(),
            None => made_up(field, depth - 1).into_iter().next()?,
        };
        fields.insert(name.to_owned(), value);
    }
    let values = schema.get("additionalProperties").filter(|it| it.is_object());
    if let Some(value) = values.and_then(|it| made_up(it, depth - 1).into_iter().next()) {
        fields.insert("made-up".to_owned(), value);
    }
    Some(Value::Object(fields))
}

fn change(path: &[String], from: &Value, value: Option<Value>) -> Change {
    let shown = |it: &Value| crate::text::shortened(&it.to_string(), 60);
    let field = path.join(".");
    let name = match (&value, from) {
        (None, from) => format!("{field}: {} → nothing", shown(from)),
        (Some(value), Value::Null) => format!("{field}: nothing → {}", shown(value)),
        (Some(value), from) => format!("{field}: {} → {}", shown(from), shown(value)),
    };
    Change {
        name,
        path: path.to_vec(),
        value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the names of the changes of an object with one field.
    fn names(field: &Value, value: &Value) -> Vec<String> {
        let schema = json!({"properties": {"spec": {"properties": {"x": field}}}});
        let changes = changes(&schema, &json!({"spec": {"x": value}}));
        changes.into_iter().map(|it| it.name).collect()
    }

    #[rstest::rstest]
    #[case::range(
        json!({"type": "integer", "minimum": 1, "maximum": 5}), json!(3),
        &["spec.x: 3 → 2", "spec.x: 3 → 4", "spec.x: 3 → 1", "spec.x: 3 → 5", "spec.x: 3 → nothing"],
    )]
    #[case::no_negative_number_without_a_minimum(
        json!({"type": "integer"}), json!(0), &["spec.x: 0 → 1", "spec.x: 0 → nothing"],
    )]
    #[case::enumeration(
        json!({"type": "string", "enum": ["a", "b"]}), json!("a"),
        &[r#"spec.x: "a" → "b""#, r#"spec.x: "a" → nothing"#],
    )]
    #[case::absent_field(
        json!({"type": "boolean"}), Value::Null, &["spec.x: nothing → true", "spec.x: nothing → false"],
    )]
    #[case::list(
        json!({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}), json!(["a", "b"]),
        &[
            r#"spec.x: ["a","b"] → ["a","b","b2"]"#, r#"spec.x: ["a","b"] → ["a"]"#, r#"spec.x: ["a","b"] → []"#,
            r#"spec.x: ["a","b"] → ["b","a"]"#, r#"spec.x: ["a","b"] → nothing"#,
            r#"spec.x.0: "a" → "b""#, r#"spec.x.1: "b" → "a""#,
        ],
    )]
    #[case::smallest_valid_object(
        json!({
            "type": "object", "required": ["name"],
            "properties": {"name": {"type": "string", "minLength": 1}, "port": {"type": "integer"}},
        }),
        Value::Null, &[r#"spec.x: nothing → {"name":"made-up"}"#],
    )]
    fn spec_changes_cover_schema_bounds_and_enumerations(
        #[case] field: Value,
        #[case] value: Value,
        #[case] expected: &[&str],
    ) {
        assert_eq!(names(&field, &value), expected);
    }
}
