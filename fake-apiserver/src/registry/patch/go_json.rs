//! Reading JSON with the errors Go's decoder gives, and finding duplicate fields.

use std::fmt::Write as _;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::api::field::quote;

/// Parses a body; the error is Go's text, such as `unexpected end of JSON input`.
pub(crate) fn parse_json(body: &[u8]) -> Result<Value, String> {
    parse_with_duplicates(body).map(|(value, _)| value)
}

/// Parses a body, and names the fields that occur twice in it, such as `data.k`, each once.
pub(crate) fn parse_with_duplicates(body: &[u8]) -> Result<(Value, Vec<String>), String> {
    // Go reads invalid UTF-8 as replacement characters.
    let text = String::from_utf8_lossy(body);
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
        .map_err(|error| match Scanner::new(body).scan() {
            Err(text) => text,
            Ok(()) if error.to_string().starts_with("recursion limit") => "exceeded max depth".to_owned(),
            Ok(()) => error.to_string(),
        })
}

/// The error texts of duplicate fields, such as `duplicate field "data.k"`.
pub(super) fn duplicate_fields(found: &[String]) -> Vec<String> {
    found
        .iter()
        .map(|path| format!("duplicate field {}", quote(path)))
        .collect()
}

/// Reads a value and remembers the paths of duplicate fields. The last of them wins, as everywhere.
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
            if fields.insert(key, value).is_some() && !self.found.contains(self.path) {
                self.found.push(self.path.clone());
            }
        }
        self.path.truncate(length);
        Ok(Value::Object(fields))
    }
}

/// Go's checker of JSON syntax, for its words only.
struct Scanner<'a> {
    body: &'a [u8],
    at: usize,
}

const END: &str = "unexpected end of JSON input";

/// The deepest nesting Go accepts.
const GO_MAX_DEPTH: usize = 10_000;

impl<'a> Scanner<'a> {
    fn new(body: &'a [u8]) -> Self {
        Self { body, at: 0 }
    }

    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// The error at the current byte.
    fn invalid(&self, context: &str) -> String {
        match self.peek() {
            Some(byte) => format!("invalid character {} {context}", quote_char(byte)),
            None => END.to_owned(),
        }
    }

    fn scan(mut self) -> Result<(), String> {
        // Whether each open container is an object.
        let mut open: Vec<bool> = Vec::new();
        'value: loop {
            self.skip_space();
            match self.peek() {
                Some(b'{') => {
                    self.at += 1;
                    self.skip_space();
                    if self.peek() == Some(b'}') {
                        self.at += 1;
                    } else {
                        open.push(true);
                        self.key("looking for beginning of object key string")?;
                        continue 'value;
                    }
                }
                Some(b'[') => {
                    self.at += 1;
                    self.skip_space();
                    if self.peek() == Some(b']') {
                        self.at += 1;
                    } else {
                        open.push(false);
                        continue 'value;
                    }
                }
                _ => self.scalar()?,
            }
            if open.len() > GO_MAX_DEPTH {
                return Err("exceeded max depth".to_owned());
            }
            loop {
                self.skip_space();
                match (open.last(), self.peek()) {
                    (None, None) => return Ok(()),
                    (None, Some(_)) => return Err(self.invalid("after top-level value")),
                    (Some(_), Some(b',')) => {
                        self.at += 1;
                        if open.last() == Some(&true) {
                            self.key("looking for beginning of object key string")?;
                        }
                        continue 'value;
                    }
                    (Some(true), Some(b'}')) | (Some(false), Some(b']')) => {
                        self.at += 1;
                        open.pop();
                    }
                    (Some(true), _) => return Err(self.invalid("after object key:value pair")),
                    (Some(false), _) => return Err(self.invalid("after array element")),
                }
            }
        }
    }

    fn key(&mut self, context: &str) -> Result<(), String> {
        self.skip_space();
        if self.peek() != Some(b'"') {
            return Err(self.invalid(context));
        }
        self.string()?;
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(self.invalid("after object key"));
        }
        self.at += 1;
        Ok(())
    }

    fn scalar(&mut self) -> Result<(), String> {
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.invalid("looking for beginning of value")),
        }
    }

    fn string(&mut self) -> Result<(), String> {
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => self.at += 1,
                        Some(b'u') => {
                            for _ in 0..4 {
                                self.at += 1;
                                if !self.peek().is_some_and(|it| it.is_ascii_hexdigit()) {
                                    return Err(self.invalid("in \\u hexadecimal character escape"));
                                }
                            }
                            self.at += 1;
                        }
                        _ => return Err(self.invalid("in string escape code")),
                    }
                }
                Some(0..=0x1f) | None => return Err(self.invalid("in string literal")),
                Some(_) => self.at += 1,
            }
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), String> {
        for (i, expected) in word.bytes().enumerate() {
            if self.peek() != Some(expected) && i > 0 {
                let context = format!("in literal {word} (expecting {})", quote_char(expected));
                return Err(self.invalid(&context));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|it| it.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn number(&mut self) -> Result<(), String> {
        if self.peek() == Some(b'-') {
            self.at += 1;
            if !self.peek().is_some_and(|it| it.is_ascii_digit()) {
                return Err(self.invalid("in numeric literal"));
            }
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits();
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if !self.peek().is_some_and(|it| it.is_ascii_digit()) {
                return Err(self.invalid("after decimal point in numeric literal"));
            }
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !self.peek().is_some_and(|it| it.is_ascii_digit()) {
                return Err(self.invalid("in exponent of numeric literal"));
            }
            self.digits();
        }
        Ok(())
    }
}

/// A byte as Go quotes the character that starts with it.
fn quote_char(byte: u8) -> String {
    match byte {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        byte => {
            let quoted = quote(&char::from(byte).to_string());
            format!("'{}'", &quoted[1..quoted.len() - 1])
        }
    }
}
