//! The columns that a CustomResourceDefinition declares.

use jiff::Timestamp;

use super::columns::{CUSTOM_AGE, NAME};
use super::duration;
use super::jsonpath::JsonPath;
use crate::api::json::escape_html;
use crate::api::json::{Value, json};
use crate::api::object::Object;

/// An entry of `additionalPrinterColumns`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PrinterColumn {
    name: String,
    kind: Kind,
    format: String,
    description: String,
    priority: i64,
    json_path: JsonPath,
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Integer,
    Number,
    String,
    Boolean,
    Date,
}

impl PrinterColumn {
    /// Returns the columns of a version of a CRD; only the age if the CRD does not declare any columns. As in Go, the
    /// columns end before the first column with an invalid path. `declared` is the value of `additionalPrinterColumns`.
    pub(crate) fn all(declared: &[Value]) -> Vec<Self> {
        if declared.is_empty() {
            return Self::age().into_iter().collect();
        }
        declared.iter().map_while(|it| Self::parse(it).ok()).collect()
    }

    /// Returns the columns of the scale of a custom resource.
    pub(crate) fn of_scale() -> Result<Vec<Self>, String> {
        let replicas = |name: &str, description: &str, json_path: &str| {
            Self::parse(&json!({
                "name": name, "type": "integer", "description": description, "jsonPath": json_path,
            }))
        };
        Ok(vec![
            replicas("Desired", "Number of desired replicas", ".spec.replicas")?,
            replicas("Available", "Number of actual replicas", ".status.replicas")?,
            Self::age()?,
        ])
    }

    fn age() -> Result<Self, String> {
        Ok(Self {
            name: CUSTOM_AGE.name.to_owned(),
            kind: Kind::Date,
            format: String::new(),
            description: CUSTOM_AGE.description.to_owned(),
            priority: 0,
            json_path: JsonPath::parse(".metadata.creationTimestamp")?,
        })
    }

    fn parse(column: &Value) -> Result<Self, String> {
        let text = |name: &str| column.get(name).and_then(Value::as_str).unwrap_or_default();
        let path = text("jsonPath");
        let json_path = JsonPath::parse(path)?;
        let description = match text("description") {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            description => description.to_owned(),
        };
        Ok(Self {
            name: text("name").to_owned(),
            kind: match text("type") {
                "integer" => Kind::Integer,
                "number" => Kind::Number,
                "boolean" => Kind::Boolean,
                "date" => Kind::Date,
                _ => Kind::String,
            },
            format: text("format").to_owned(),
            description,
            priority: column.get("priority").and_then(Value::as_i64).unwrap_or_default(),
            json_path,
        })
    }

    fn definition(&self) -> Value {
        json!({
            "name": self.name,
            "type": match self.kind {
                Kind::Integer => "integer",
                Kind::Number => "number",
                Kind::String => "string",
                Kind::Boolean => "boolean",
                Kind::Date => "date",
            },
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }

    /// Returns the cell of an object; null if the path does not exist or its value has a different type.
    fn cell(&self, object: &Object, now: Timestamp) -> Value {
        let Some(value) = self.json_path.first_of(object) else {
            return Value::Null;
        };
        match (self.kind, value) {
            (Kind::String, value) => print(value).into(),
            (Kind::Integer, Value::Number(it)) => it.as_i64().or_else(|| it.as_f64().map(|it| it as i64)).into(),
            (Kind::Number, Value::Number(_)) | (Kind::Boolean, Value::Bool(_)) => value.clone(),
            (Kind::Date, Value::String(text)) => match text.as_str() {
                "" | "null" => "<unknown>".into(),
                text => match duration::parse_time(text) {
                    Some(then) => duration::between(then, now).into(),
                    None => "<invalid>".into(),
                },
            },
            _ => Value::Null,
        }
    }
}

pub(super) fn definitions(columns: &[PrinterColumn]) -> Vec<Value> {
    let name = std::iter::once(NAME.definition());
    name.chain(columns.iter().map(PrinterColumn::definition)).collect()
}

pub(super) fn cells(columns: &[PrinterColumn], object: &Object, now: Timestamp) -> Vec<Value> {
    let name = std::iter::once(object.name().into());
    name.chain(columns.iter().map(|it| it.cell(object, now))).collect()
}

/// Formats a value for a column of strings, like Go.
fn print(value: &Value) -> String {
    match value {
        Value::String(text) => text.to_string(),
        Value::Null => "<no value>".to_owned(),
        Value::Bool(it) => it.to_string(),
        Value::Number(it) => match it.as_f64() {
            Some(float) if it.is_f64() => print_float(float),
            _ => it.to_string(),
        },
        Value::Array(_) | Value::Object(_) => escape_html(&value.to_string()),
    }
}

/// Formats a float like Go's `%v`: in scientific notation if its decimal exponent is below -4 or at least 21.
fn print_float(value: f64) -> String {
    let text = format!("{value:e}");
    match text
        .split_once('e')
        .map(|(digits, exponent)| (digits, exponent.parse::<i32>()))
    {
        Some((digits, Ok(exponent))) if !(-4..21).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => format!("{value}"),
    }
}
