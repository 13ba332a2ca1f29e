//! `read`: parses JSON text in one pass, and records duplicate keys, depth and fractions.

use std::cell::Cell;

use serde_json::Number;

use crate::api::json::{Encoded, Map, SmolStr, Value, encoded_len, plain_len};

/// Maximum nesting depth, as in serde_json.
const LEVELS_MAX: usize = 127;

/// The path of the field that stays encoded: each field name with the nesting level of its object.
const TO_ENCODED: [(usize, &str); 3] = [(1, "metadata"), (2, "managedFields"), (4, "fieldsV1")];

/// A parsed value.
#[derive(Debug)]
pub(crate) struct Read {
    /// The value. If a key occurs twice, the last value is kept.
    pub(crate) value: Value,
    /// Set if an object has a duplicate key.
    pub(crate) repeats_key: bool,
    /// Nesting depth of lists and objects.
    pub(crate) levels: usize,
    /// Set if a number is a float: it has a fraction or an exponent, is -0, or does not fit into 64 bits.
    pub(crate) has_fraction: bool,
}

/// Parses JSON text like serde_json, but replaces an unpaired surrogate with U+FFFD, as Go does. Returns `None` for
/// other input that serde_json refuses.
pub(crate) fn read(text: &str) -> Option<Read> {
    let (entries, items) = ROOM.try_with(Cell::take).unwrap_or_default();
    let mut reader = Reader {
        text,
        at: 0,
        entries,
        items,
        level: 0,
        levels: 0,
        steps: 0,
        repeats_key: false,
        has_fraction: false,
    };
    let value = reader.value().filter(|_| reader.peek().is_none());
    let (mut entries, mut items) = (reader.entries, reader.items);
    if entries.capacity().max(items.capacity()) <= ROOM_MAX {
        entries.clear();
        items.clear();
        // The buffers no longer exist while the thread exits.
        let _ = ROOM.try_with(|room| room.set((entries, items)));
    }
    Some(Read {
        value: value?,
        repeats_key: reader.repeats_key,
        levels: reader.levels,
        has_fraction: reader.has_fraction,
    })
}

/// Returns an object that remains text until it is accessed. The JSON text must be in the server's format, and the
/// object must contain only objects.
pub(crate) fn encoded(text: &str, levels: usize) -> Map {
    let map = |text: &str| match read(text).map(|it| it.value) {
        Some(Value::Object(map)) => map,
        // Unreachable: the text is always an object.
        _ => Map::new(),
    };
    Map::from(Encoded::new(text, levels, map))
}

/// Maximum capacity of the buffers that a thread keeps for reuse, in entries and items.
const ROOM_MAX: usize = 1024;

/// Buffers for entries and items during parsing.
type Room = (Vec<(SmolStr, Value)>, Vec<Value>);

thread_local! {
    static ROOM: Cell<Room> = const { Cell::new((Vec::new(), Vec::new())) };
}

struct Reader<'a> {
    text: &'a str,
    /// Position of the next byte.
    at: usize,
    /// The entries of all open objects, so that each object is allocated once, at its final size.
    entries: Vec<(SmolStr, Value)>,
    /// Items of the lists that are being parsed.
    items: Vec<Value>,
    level: usize,
    levels: usize,
    /// Number of leading fields of `TO_ENCODED` that contain the current position.
    steps: usize,
    repeats_key: bool,
    has_fraction: bool,
}

impl Reader<'_> {
    /// Returns the next byte after white space, without consuming it.
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while matches!(bytes.get(self.at), Some(b' ' | b'\n' | b'\t' | b'\r')) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    /// Returns the next byte after white space, and consumes it.
    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn value(&mut self) -> Option<Value> {
        match self.next()? {
            b'"' => self.string().map(Value::String),
            b'{' => self.object(),
            b'[' => self.list(),
            b't' => self.literal("rue", Value::Bool(true)),
            b'f' => self.literal("alse", Value::Bool(false)),
            b'n' => self.literal("ull", Value::Null),
            b'-' | b'0'..=b'9' => self.number(),
            _ => None,
        }
    }

    fn value_of(&mut self, key: &str) -> Option<Value> {
        if TO_ENCODED.get(self.steps) != Some(&(self.level, key)) {
            return self.value();
        }
        self.steps += 1;
        let value = match self.steps == TO_ENCODED.len() {
            true => self.encoded(),
            false => self.value(),
        };
        self.steps -= 1;
        value
    }

    /// Parses a value. An object that contains only objects and has the server's format remains text.
    fn encoded(&mut self) -> Option<Value> {
        self.peek()?;
        let rest = self.text.get(self.at..)?;
        let Some((len, levels)) = encoded_len(rest, LEVELS_MAX - self.level) else {
            return self.value();
        };
        self.at += len;
        self.levels = self.levels.max(self.level + levels);
        Some(Value::Object(encoded(&rest[..len], levels)))
    }

    fn literal(&mut self, rest: &str, value: Value) -> Option<Value> {
        let is_whole = self.text.as_bytes()[self.at..].starts_with(rest.as_bytes());
        self.at += rest.len();
        is_whole.then_some(value)
    }

    fn object(&mut self) -> Option<Value> {
        self.enter()?;
        let start = self.entries.len();
        if self.peek()? == b'}' {
            self.at += 1;
        } else {
            loop {
                let key = (self.next()? == b'"').then(|| self.string())??;
                let value = (self.next()? == b':').then(|| self.value_of(&key))??;
                self.entries.push((key, value));
                match self.next()? {
                    b',' => {}
                    b'}' => break,
                    _ => return None,
                }
            }
        }
        self.level -= 1;
        let entries = self.entries.split_off(start);
        let count = entries.len();
        let map = Map::of_entries(entries);
        self.repeats_key |= map.len() < count;
        Some(Value::Object(map))
    }

    fn list(&mut self) -> Option<Value> {
        self.enter()?;
        let start = self.items.len();
        if self.peek()? == b']' {
            self.at += 1;
        } else {
            loop {
                let item = self.value()?;
                self.items.push(item);
                match self.next()? {
                    b',' => {}
                    b']' => break,
                    _ => return None,
                }
            }
        }
        self.level -= 1;
        Some(Value::Array(self.items.split_off(start)))
    }

    fn enter(&mut self) -> Option<()> {
        self.level += 1;
        self.levels = self.levels.max(self.level);
        (self.level <= LEVELS_MAX).then_some(())
    }

    /// Parses a string. Its opening quote was already consumed.
    fn string(&mut self) -> Option<SmolStr> {
        let start = self.at;
        let mut has_escapes = false;
        loop {
            let rest = self.text.as_bytes().get(self.at..)?;
            let len = plain_len(rest);
            self.at += len + 1;
            match *rest.get(len)? {
                b'"' => break,
                b'\\' => {
                    has_escapes = true;
                    self.at += 1;
                }
                _ => return None,
            }
        }
        let end = self.at - 1;
        match has_escapes {
            false => self.text.get(start..end).map(SmolStr::new),
            true => unescaped(self.text.get(start - 1..=end)?),
        }
    }

    /// Parses a number. Its first byte was already consumed.
    fn number(&mut self) -> Option<Value> {
        let start = self.at - 1;
        let rest = &self.text.as_bytes()[self.at..];
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
        self.at += rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        let text = self.text.get(start..self.at)?;
        let is_small = text.len() < 19 && !text.starts_with(['-', '0']) && text.bytes().all(|it| it.is_ascii_digit());
        if is_small {
            return text.parse::<u64>().ok().map(Value::from);
        }
        let number: Number = serde_json::from_str(text).ok()?;
        self.has_fraction |= number.is_f64();
        Some(Value::Number(number))
    }
}

/// Decodes a quoted string with escapes.
fn unescaped(quoted: &str) -> Option<SmolStr> {
    let read = serde_json::from_str(quoted);
    read.or_else(|_| serde_json::from_str(&with_whole_pairs(quoted))).ok()
}

/// Replaces each unpaired surrogate in a quoted string with U+FFFD.
fn with_whole_pairs(quoted: &str) -> String {
    let mut whole = String::with_capacity(quoted.len());
    let mut rest = quoted;
    while let Some(at) = rest.find('\\') {
        let (before, escaped) = rest.split_at(at);
        whole.push_str(before);
        let len = match (unit(escaped), escaped.get(6..).and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                whole.push('\u{fffd}');
                rest = &escaped[6..];
                continue;
            }
            // Keeps the character after the backslash, which may be a backslash as well.
            _ => 1 + escaped[1..].chars().next().map_or(0, char::len_utf8),
        };
        let (kept, behind) = escaped.split_at(len);
        whole.push_str(kept);
        rest = behind;
    }
    whole.push_str(rest);
    whole
}

/// Parses the UTF-16 code unit of the escape at the start of a string.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let are_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    are_hex.then(|| u16::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::api::nesting;

    fn agrees(text: &str) {
        let expected = serde_json::from_str::<Value>(text).ok();
        let expected = expected.map(|value| (nesting::levels(&value), value));
        assert_eq!(read(text).map(|it| (it.levels, it.value)), expected, "{text}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn random_json_is_parsed_or_refused_as_in_serde_json(
            text in r#"([\[\]{}:, "]|"a"|"b":|\{"a":|\\|\\u00e9|\\n|é|-|0|1|9{18}|\.|e|\+|true|false|null|nul|\n){0,12}"#,
        ) {
            agrees(&text);
        }
    }

    #[rstest]
    #[case::empty_input("")]
    #[case::space("  \n")]
    #[case::values(" { \"a\" : [ 1 , -2 , 0 , \"x\\\"y\\u00e9\\\\\" , true , false , null , { } , [ ] ] } ")]
    #[case::numbers(
        "[0, -0, 18446744073709551615, 18446744073709551616, -9223372036854775808, 1.50, 1e3, 100000000000000000]"
    )]
    #[case::leading_zeros("[01]")]
    #[case::two_values("{} {}")]
    #[case::control("\"a\u{1}b\"")]
    #[case::surrogates("\"\\ud83d\\ude00\"")]
    #[case::truncated("{\"a\":\"b\\")]
    #[case::trailing_comma("[1,]")]
    fn json_is_parsed_or_refused_as_in_serde_json(#[case] text: &str) {
        agrees(text);
    }

    #[rstest]
    #[case::high_surrogate(r#""a\ud800b""#, "a\u{fffd}b")]
    #[case::low_surrogate(r#""\uDC00""#, "\u{fffd}")]
    #[case::before_a_character(r#""\ud800\u0041""#, "\u{fffd}A")]
    #[case::before_a_pair(r#""\ud800\ud83d\ude00""#, "\u{fffd}\u{1f600}")]
    #[case::surrogates_in_reverse_order(r#""\ude00\ud83d""#, "\u{fffd}\u{fffd}")]
    #[case::before_a_backslash(r#""\ud800\\ud800é""#, "\u{fffd}\\ud800é")]
    fn unpaired_surrogate_is_replaced(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(read(text).expect("the text is valid JSON").value, expected);
    }

    #[rstest]
    #[case::unknown_escape(r#""\ud800\x""#)]
    #[case::too_few_digits(r#""\ud800\ud8""#)]
    #[case::sign_instead_of_a_digit(r#""\ud800\u+123""#)]
    fn invalid_escape_after_an_unpaired_surrogate_is_refused(#[case] text: &str) {
        assert!(read(text).is_none());
    }

    #[rstest]
    #[case::compact(
        r#"{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{".":{},"k:{\"b\":1}":{}}}}]}}"#,
        true
    )]
    #[case::with_spaces(r#"{"metadata":{"managedFields":[{"fieldsV1": {"f:a": {}}}]}}"#, false)]
    #[case::with_values(r#"{"metadata":{"managedFields":[{"fieldsV1":{"f:a":[1.5]}}]}}"#, false)]
    #[case::outside_of_metadata(r#"{"spec":{"managedFields":[{"fieldsV1":{"f:a":{}}}]}}"#, false)]
    #[case::metadata_of_a_nested_object(r#"{"a":{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{}}}]}}}"#, false)]
    fn only_compact_managed_fields_in_metadata_stay_encoded(#[case] text: &str, #[case] is_encoded: bool) {
        agrees(text);
        let value = read(text).expect("the text is valid JSON").value;
        let fields = &value["metadata"]["managedFields"][0]["fieldsV1"];
        let encoded = fields.as_object().and_then(Map::encoded);
        assert_eq!(encoded.is_some(), is_encoded);
    }

    #[rstest]
    #[case(r#"{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{},"f:a":{}}}]}}"#)]
    #[case(r#"{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{"f:b":{},"f:b":{}}}}]}}"#)]
    fn duplicate_keys_in_managed_fields_are_detected(#[case] text: &str) {
        assert!(read(text).expect("the text is valid JSON").repeats_key);
    }

    #[test]
    fn depth_limit_equals_the_limit_of_serde_json() {
        for levels in [127, 128, 100_000] {
            agrees(&format!("{}{}", "[".repeat(levels), "]".repeat(levels)));
        }
    }

    #[rstest]
    #[case("[{\"a\":1},{\"a\":1}]", false, false)]
    #[case("{\"a\":1,\"b\":1,\"a\":2}", true, false)]
    #[case("{\"b\":{\"a\":1,\"\\u0061\":2}}", true, false)]
    #[case("[{\"a\":1.0}]", false, true)]
    fn duplicate_keys_and_fractions_are_detected(
        #[case] text: &str,
        #[case] repeats: bool,
        #[case] has_fraction: bool,
    ) {
        let read = read(text).expect("the text is valid JSON");
        assert_eq!((read.repeats_key, read.has_fraction), (repeats, has_fraction));
    }
}
