//! Typed access to the fields of an object, with fallbacks for fields of unexpected types.

use jiff::Timestamp;

use super::duration;
use crate::api::json::Value;
use crate::api::object::Object;
use crate::api::selector::LabelSelector;

/// An object that is converted to a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableRow<'a> {
    pub(super) object: &'a Object,
    pub(super) now: Timestamp,
}

/// A field, which may be absent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a>(Option<&'a Value>);

impl<'a> TableRow<'a> {
    /// Returns the field at a path such as `spec.template.spec`.
    pub(super) fn at(self, path: &str) -> Field<'a> {
        let (first, rest) = path
            .split_once('.')
            .map_or((path, None), |(first, rest)| (first, Some(rest)));
        let field = Field(self.object.get(first));
        rest.map_or(field, |rest| field.at(rest))
    }

    /// Returns the cell with the object's name.
    pub(super) fn name(self) -> Value {
        self.object.name().into()
    }

    /// Returns the name, with the suffix `(default)` if one of these annotations makes the class the default.
    pub(super) fn class_name(self, annotations: &[&str]) -> Value {
        let mut entries = self.at("metadata.annotations").entries();
        match entries.any(|(key, value)| annotations.contains(&key) && value.text() == "true") {
            true => format!("{} (default)", self.object.name()).into(),
            false => self.name(),
        }
    }

    /// Returns the cell with the object's age.
    pub(super) fn age(self) -> Value {
        self.since(self.at("metadata.creationTimestamp")).into()
    }

    /// Formats the time that has passed since `time`; `<unknown>` if it is absent.
    pub(super) fn since(self, time: Field<'_>) -> String {
        time.time()
            .map_or_else(|| "<unknown>".to_owned(), |then| duration::between(then, self.now))
    }

    pub(super) fn is_terminating(self) -> bool {
        self.object.is_terminating()
    }
}

impl<'a> Field<'a> {
    pub(super) fn at(self, path: &str) -> Field<'a> {
        let mut field = self.0;
        for name in path.split('.') {
            field = field.and_then(|it| it.get(name));
        }
        Field(field)
    }

    /// Returns `true` if the field exists and is not null.
    pub(super) fn is_set(self) -> bool {
        self.0.is_some_and(|it| !it.is_null())
    }

    /// Returns the string; empty for values of other types.
    pub(super) fn text(self) -> &'a str {
        self.0.and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the string, or `other` if it is empty.
    pub(super) fn text_or(self, other: &'a str) -> &'a str {
        match self.text() {
            "" => other,
            text => text,
        }
    }

    /// Returns the number as an integer, truncating floats; 0 for values of other types.
    pub(super) fn int(self) -> i64 {
        self.0
            .and_then(|it| it.as_i64().or_else(|| it.as_f64().map(|it| it as i64)))
            .unwrap_or_default()
    }

    pub(super) fn flag(self) -> bool {
        self.0.and_then(Value::as_bool).unwrap_or_default()
    }

    /// Formats a quantity, an int-or-string or similar value: strings without quotes, other values as JSON.
    pub(super) fn print(self) -> String {
        match self.0 {
            Some(Value::String(text)) => text.to_string(),
            Some(other) => other.to_string(),
            None => String::new(),
        }
    }

    /// Returns the items of a list.
    pub(super) fn items(self) -> impl DoubleEndedIterator<Item = Field<'a>> + ExactSizeIterator {
        let list = self.0.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        list.iter().map(|it| Field(Some(it)))
    }

    /// Returns the entries of a map, sorted by key.
    pub(super) fn entries(self) -> impl Iterator<Item = (&'a str, Field<'a>)> {
        let map = self.0.and_then(Value::as_object);
        map.into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str(), Field(Some(value))))
    }

    /// Returns the number of items or entries.
    pub(super) fn count(self) -> usize {
        match self.0 {
            Some(Value::Array(list)) => list.len(),
            Some(Value::Object(map)) => map.len(),
            _ => 0,
        }
    }

    /// Joins the strings of a list.
    pub(super) fn join(self, separator: &str) -> String {
        let texts: Vec<&str> = self.items().map(Field::text).collect();
        texts.join(separator)
    }

    /// Parses the time in an RFC 3339 string.
    pub(super) fn time(self) -> Option<Timestamp> {
        duration::parse_time(self.text())
    }

    /// Returns the first item in which `key` has `value`.
    pub(super) fn find(self, key: &str, value: &str) -> Option<Field<'a>> {
        self.items().find(|it| it.at(key).text() == value)
    }

    /// Formats a map of labels as `a=b,c=d`; `<none>` if it is empty.
    pub(super) fn labels(self) -> String {
        let labels: Vec<String> = self
            .entries()
            .map(|(key, value)| format!("{key}={}", value.text()))
            .collect();
        or_none(labels.join(","))
    }

    /// Formats a LabelSelector object like a query parameter; `<none>` if it selects everything or nothing, `<error>`
    /// if it is invalid.
    pub(super) fn selector(self) -> String {
        self.plain_selector().map_or_else(|()| "<error>".to_owned(), or_none)
    }

    /// Formats a LabelSelector object like a query parameter. Fails if it is invalid.
    pub(super) fn plain_selector(self) -> Result<String, ()> {
        let selector = LabelSelector::from_object(self.0.unwrap_or(&Value::Null)).map_err(|_| ())?;
        Ok(selector.map(|it| it.to_string()).unwrap_or_default())
    }

    /// Returns names and images of containers, each joined with commas.
    pub(super) fn containers(self) -> (String, String) {
        let column = |name: &str| {
            let texts: Vec<&str> = self.items().map(|it| it.at(name).text()).collect();
            texts.join(",")
        };
        (column("name"), column("image"))
    }
}

/// Replaces an empty string with `<none>`.
pub(super) fn or_none(text: String) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text }
}

/// Joins the first `max` items, and adds the number of the others: `a,b,c + 2 more...`.
pub(super) fn with_more(list: &[String], max: usize) -> String {
    let shown = list[..list.len().min(max)].join(",");
    if list.len() > max {
        format!("{shown} + {} more...", list.len() - max)
    } else {
        shown
    }
}
