//! Reading JSON with the errors Go's decoder gives, and finding duplicate fields.

use std::collections::BTreeSet;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::api::field::quote;
use crate::api::json::syntax_error;

/// Parses a body; the error is Go's text, such as `unexpected end of JSON input`.
pub(crate) fn parse_json(body: &[u8]) -> Result<Value, String> {
    // Go reads invalid UTF-8 as replacement characters.
    let text = String::from_utf8_lossy(body);
    serde_json::from_str(&text).map_err(|error| match syntax_error(body) {
        Some(text) => text,
        None if error.to_string().starts_with("recursion limit") => "exceeded max depth".to_owned(),
        None => error.to_string(),
    })
}

/// The error texts of duplicate fields, such as `duplicate field "data.k"`, each once.
pub(super) fn duplicate_fields(body: &[u8]) -> Vec<String> {
    let found = duplicates(body).into_iter();
    found.map(|path| format!("duplicate field {}", quote(&path))).collect()
}

fn duplicates(body: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut path = String::new();
    let text = String::from_utf8_lossy(body);
    let seed = Duplicates {
        path: &mut path,
        found: &mut found,
    };
    // The body has been parsed before; an error here would have been reported there.
    let _ = seed.deserialize(&mut serde_json::Deserializer::from_str(&text));
    found
}

struct Duplicates<'a> {
    path: &'a mut String,
    found: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Duplicates<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Duplicates<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let length = self.path.len();
        for index in 0usize.. {
            self.path.truncate(length);
            self.path.push_str(&format!("[{index}]"));
            let inner = Duplicates {
                path: &mut *self.path,
                found: &mut *self.found,
            };
            if list.next_element_seed(inner)?.is_none() {
                break;
            }
        }
        self.path.truncate(length);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let length = self.path.len();
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            self.path.truncate(length);
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(&key);
            if !seen.insert(key) {
                if !self.found.contains(self.path) {
                    self.found.push(self.path.clone());
                }
            }
            map.next_value_seed(Duplicates {
                path: &mut *self.path,
                found: &mut *self.found,
            })?;
        }
        self.path.truncate(length);
        Ok(())
    }
}
