//! `Printer`: writes JSON values as text in one pass, and records their depth and whether they contain fractions.

use std::cell::Cell;
use std::fmt;

use serde_json::Number;

use crate::api::json::{Map, Value, plain_len};

/// Maximum capacity of the print buffer that a thread keeps for reuse, in bytes.
const ROOM_MAX: usize = 64 * 1024;

thread_local! {
    /// Print buffer of the thread. Reusing it avoids the copies that a new buffer makes each time it grows; only the
    /// finished text is copied.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Writes values byte for byte as serde_json does.
#[derive(Debug)]
pub(crate) struct Printer {
    out: Vec<u8>,
    level: usize,
    deepest: usize,
    has_fraction: bool,
}

impl Drop for Printer {
    fn drop(&mut self) {
        if self.out.capacity() <= ROOM_MAX {
            self.out.clear();
            let _ = ROOM.try_with(|room| room.set(std::mem::take(&mut self.out)));
        }
    }
}

impl Printer {
    /// Creates a printer for values that are nested in `level` lists or objects.
    pub(crate) fn new(level: usize) -> Self {
        Self {
            // The buffer no longer exists while the thread exits.
            out: ROOM.try_with(Cell::take).unwrap_or_default(),
            level,
            deepest: level,
            has_fraction: false,
        }
    }

    /// Writes a value.
    pub(crate) fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.out.extend_from_slice(b"null"),
            Value::Bool(true) => self.out.extend_from_slice(b"true"),
            Value::Bool(false) => self.out.extend_from_slice(b"false"),
            Value::Number(number) => self.number(number),
            Value::String(text) => self.text(text),
            Value::Array(items) => {
                self.open(b'[');
                for item in items {
                    self.value(item);
                    self.out.push(b',');
                }
                self.close(b']');
            }
            Value::Object(map) => self.map(map),
        }
    }

    /// Writes an object.
    pub(crate) fn map(&mut self, map: &Map) {
        if let Some(encoded) = map.encoded() {
            self.deepest = self.deepest.max(self.level + encoded.levels());
            return self.out.extend_from_slice(encoded.text().as_bytes());
        }
        self.open(b'{');
        for (key, value) in map {
            self.entry(key, value);
        }
        self.close(b'}');
    }

    /// Writes an entry of an object, followed by a comma.
    pub(crate) fn entry(&mut self, key: &str, value: &Value) {
        self.key(key);
        self.value(value);
        self.out.push(b',');
    }

    /// Writes an entry with a string, followed by a comma.
    pub(crate) fn text_entry(&mut self, key: &str, text: &str) {
        self.key(key);
        self.text(text);
        self.comma();
    }

    /// Writes an integer.
    pub(crate) fn integer(&mut self, number: u64) {
        write_number(number, &mut self.out);
    }

    /// Writes the key of an entry.
    pub(crate) fn key(&mut self, key: &str) {
        self.text(key);
        self.out.push(b':');
    }

    /// Begins a list or an object.
    pub(crate) fn open(&mut self, bracket: u8) {
        self.level += 1;
        self.deepest = self.deepest.max(self.level);
        self.out.push(bracket);
    }

    /// Closes a list or an object, and removes the comma after its last item.
    pub(crate) fn close(&mut self, bracket: u8) {
        self.level -= 1;
        match self.out.last_mut() {
            Some(last) if *last == b',' => *last = bracket,
            _ => self.out.push(bracket),
        }
    }

    /// Writes the comma after an item.
    pub(crate) fn comma(&mut self) {
        self.out.push(b',');
    }

    /// Returns the number of bytes written so far.
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    /// Returns the maximum number of levels that were open at the same time, including the levels of [`Printer::new`].
    pub(crate) fn deepest(&self) -> usize {
        self.deepest
    }

    /// Returns `true` if the output contains a number with a fraction or an exponent, which may change when it is
    /// parsed and printed again.
    pub(crate) fn has_fraction(&self) -> bool {
        self.has_fraction
    }

    /// Returns the bytes, without unused capacity.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.out.as_slice().to_vec()
    }

    /// Returns the output as a string.
    pub(crate) fn as_text(&self) -> &str {
        // Always valid UTF-8: the buffer consists of strings and of serde_json's output.
        std::str::from_utf8(&self.out).unwrap_or_default()
    }

    fn number(&mut self, number: &Number) {
        self.has_fraction |= number.is_f64();
        match number.as_u64() {
            Some(number) => write_number(number, &mut self.out),
            // Writing JSON to memory cannot fail.
            None => serde_json::to_writer(&mut self.out, number).unwrap_or_default(),
        }
    }

    /// Writes a string.
    pub(crate) fn text(&mut self, text: &str) {
        let mut rest = text.as_bytes();
        self.out.reserve(rest.len() + 2);
        self.out.push(b'"');
        loop {
            let len = plain_len(rest);
            self.out.extend_from_slice(&rest[..len]);
            if len == rest.len() {
                break;
            }
            self.escaped(rest[len]);
            rest = &rest[len + 1..];
        }
        self.out.push(b'"');
    }

    /// Writes the escape of a quote, a backslash or a control character.
    fn escaped(&mut self, byte: u8) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let letter = match byte {
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x08 => b'b',
            0x0c => b'f',
            0..0x20 => {
                self.out.extend_from_slice(b"\\u00");
                self.out.push(HEX[usize::from(byte >> 4)]);
                return self.out.push(HEX[usize::from(byte & 15)]);
            }
            other => other,
        };
        self.out.push(b'\\');
        self.out.push(letter);
    }
}

/// Prints compact JSON; `{:#}` prints indented lines.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return f.write_str(&serde_json::to_string_pretty(self).map_err(|_| fmt::Error)?);
        }
        let mut printer = Printer::new(0);
        printer.value(self);
        f.write_str(printer.as_text())
    }
}

/// Writes a number in decimal.
pub(crate) fn write_number(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use crate::api::json::json;
    use proptest::prelude::*;

    use super::*;
    use crate::api::nesting;

    fn value() -> impl Strategy<Value = Value> {
        let number = prop_oneof![
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(|it| json!(it)),
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            number,
            any::<String>().prop_map(Value::from),
            "[ -~\\n\"]{0,30}".prop_map(Value::from),
            "[\\x00-\\x23\\\\é]{0,20}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 6, |inner| {
            let map = proptest::collection::btree_map(".{0,12}", inner.clone(), 0..6);
            prop_oneof![
                proptest::collection::vec(inner, 0..6).prop_map(Value::from),
                map.prop_map(|it| Value::Object(it.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn values_are_printed_as_in_serde_json(value in value()) {
            let mut printer = Printer::new(0);
            printer.value(&value);
            prop_assert_eq!(printer.deepest(), nesting::levels(&value));
            let text = String::from_utf8(printer.to_bytes()).expect("JSON is UTF-8");
            prop_assert_eq!(Some(text), serde_json::to_string(&value).ok());
        }
    }

    #[test]
    fn numbers_with_a_fraction_are_detected() {
        let has_fraction = |value: Value| {
            let mut printer = Printer::new(0);
            printer.value(&value);
            printer.has_fraction()
        };
        assert!(has_fraction(json!([{"a": 1.5}])) && has_fraction(json!(-0.0)));
        assert!(!has_fraction(json!([{"a": -7, "b": u64::MAX}, "1.5"])));
    }
}
