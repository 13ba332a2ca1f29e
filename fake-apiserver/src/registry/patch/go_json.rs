//! Parses JSON with the errors of Go's decoder, and finds duplicate fields.

use std::fmt::Write as _;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::api::field::quote;
use crate::api::json::syntax_error;
use crate::api::json::{Map, Value};
use crate::api::nesting;
use crate::api::read::read;
use crate::registry::types::decode::MOST_ERRORS;

/// Parses a body. Fails with Go's message, such as `unexpected end of JSON input`.
#[cfg(test)]
pub(crate) fn parse_json(body: &[u8]) -> Result<Value, String> {
    parse_with_duplicates(body).map(|(value, _)| value)
}

/// Parses a body, and returns its first duplicate fields, such as `data.k`, each once.
pub(crate) fn parse_with_duplicates(body: &[u8]) -> Result<(Value, Vec<String>), String> {
    // Go reads invalid UTF-8 as replacement characters.
    let text = String::from_utf8_lossy(body);
    if let Some(read) = read(&text).filter(|it| !it.repeats_key) {
        return Ok((read.value, Vec::new()));
    }
    let mut found = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_str(&text);
    let seed = Reader {
        path: &mut String::new(),
        found: &mut found,
    };
    let value = seed.deserialize(&mut deserializer);
    let value = value.and_then(|value| deserializer.end().map(|()| value));
    value
        .map(|value| (value, found))
        .map_err(|error| match syntax_error(body) {
            Some(text) => text,
            None if error.to_string().starts_with("recursion limit") => nesting::EXCEEDED.to_owned(),
            None => error.to_string(),
        })
}

/// Returns the error messages for duplicate fields, such as `duplicate field "data.k"`.
pub(super) fn duplicate_fields(found: &[String]) -> Vec<String> {
    found
        .iter()
        .map(|path| format!("duplicate field {}", quote(path)))
        .collect()
}

/// Parses a value, and records the paths of duplicate fields. The last value of a field is kept, as in other bodies.
struct Reader<'a> {
    path: &'a mut String,
    found: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, it: bool) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_i64<E>(self, it: i64) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_u64<E>(self, it: u64) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_f64<E>(self, it: f64) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_str<E>(self, it: &str) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_string<E>(self, it: String) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let length = self.path.len();
        let mut items = Vec::new();
        for index in 0usize.. {
            self.path.truncate(length);
            let _ = write!(self.path, "[{index}]");
            let inner = Reader {
                path: &mut *self.path,
                found: &mut *self.found,
            };
            match list.next_element_seed(inner)? {
                Some(item) => items.push(item),
                None => break,
            }
        }
        self.path.truncate(length);
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let length = self.path.len();
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            self.path.truncate(length);
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(&key);
            let value = map.next_value_seed(Reader {
                path: &mut *self.path,
                found: &mut *self.found,
            })?;
            let is_duplicate = fields.insert(key.into(), value).is_some();
            if is_duplicate && self.found.len() < MOST_ERRORS && !self.found.contains(self.path) {
                self.found.push(self.path.clone());
            }
        }
        self.path.truncate(length);
        Ok(Value::Object(fields))
    }
}
