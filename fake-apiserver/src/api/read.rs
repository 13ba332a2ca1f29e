//! `read`: parses JSON text in one pass, and notes repeated keys, depth and fractions on the way.

use serde_json::Number;

use crate::api::json::{Map, SmolStr, Value};

/// The most levels of lists and objects, as serde_json has it.
const LEVELS_MAX: usize = 127;

/// A value that was read.
#[derive(Debug)]
pub(crate) struct Read {
    /// The value; of a key that stands twice the last one.
    pub(crate) value: Value,
    /// Set if some object has a key twice.
    pub(crate) repeats_key: bool,
    /// Levels of lists and objects.
    pub(crate) levels: usize,
    /// Set if some number is no integer.
    pub(crate) has_fraction: bool,
}

/// Parses a text as serde_json does. `None` if serde_json refuses it, too, which then words the error.
pub(crate) fn read(text: &str) -> Option<Read> {
    let mut reader = Reader {
        text,
        at: 0,
        entries: Vec::with_capacity(32),
        items: Vec::new(),
        level: 0,
        levels: 0,
        repeats_key: false,
        has_fraction: false,
    };
    let value = reader.value()?;
    reader.peek().is_none().then_some(Read {
        value,
        repeats_key: reader.repeats_key,
        levels: reader.levels,
        has_fraction: reader.has_fraction,
    })
}

/// Returns the number of bytes up to the first that does not stand for itself in a string: a quote, a backslash or a
/// control character.
pub(crate) fn plain_len(text: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    // The high bit of each byte below `limit`, at least up to the first such byte.
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word;
    let is = |word: u64, byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    let special = |word: &[u8; 8]| {
        let word = u64::from_le_bytes(*word);
        (below(word, 0x20) | is(word, b'"') | is(word, b'\\')) & HIGH
    };
    let place = |found: u64| found.trailing_zeros() as usize / 8;
    let Some(last) = text.last_chunk() else {
        let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
        return text.iter().position(is_special).unwrap_or(text.len());
    };
    let (words, _) = text.as_chunks();
    for (at, word) in words.iter().enumerate() {
        let found = special(word);
        if found != 0 {
            return at * 8 + place(found);
        }
    }
    // The rest, and some of what was looked at already.
    match special(last) {
        0 => text.len(),
        found => text.len() - 8 + place(found),
    }
}

struct Reader<'a> {
    text: &'a str,
    /// The next byte.
    at: usize,
    /// The entries of the objects that are open, so that each object is allocated once and has no room to spare.
    entries: Vec<(SmolStr, Value)>,
    /// The same of lists.
    items: Vec<Value>,
    level: usize,
    levels: usize,
    repeats_key: bool,
    has_fraction: bool,
}

impl Reader<'_> {
    /// The next byte behind white space.
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while matches!(bytes.get(self.at), Some(b' ' | b'\n' | b'\t' | b'\r')) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    /// The same, and goes past it.
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
                let value = (self.next()? == b':').then(|| self.value())??;
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

    /// The string that has begun.
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
            true => serde_json::from_str(self.text.get(start - 1..=end)?).ok(),
        }
    }

    /// The number whose first byte is behind.
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
        fn texts_are_read_as_serde_json_reads_them(
            text in r#"([\[\]{}:, "]|"a"|"b":|\{"a":|\\|\\u00e9|\\n|é|-|0|1|9{18}|\.|e|\+|true|false|null|nul|\n){0,12}"#,
        ) {
            agrees(&text);
        }
    }

    #[test]
    fn plain_bytes_end_at_the_first_special_one() {
        for special in [b'"', b'\\', 0, 0x1f] {
            for len in 0..20 {
                let mut text = [b'!', b' ', 0x7f, 0x80, 0xff, b'#', b'[', b']'].repeat(3);
                assert_eq!(plain_len(&text[..len]), len);
                text[len] = special;
                assert_eq!(plain_len(&text), len, "{special}");
            }
        }
    }

    #[rstest]
    #[case::nothing("")]
    #[case::space("  \n")]
    #[case::values(" { \"a\" : [ 1 , -2 , 0 , \"x\\\"y\\u00e9\\\\\" , true , false , null , { } , [ ] ] } ")]
    #[case::numbers(
        "[0, -0, 18446744073709551615, 18446744073709551616, -9223372036854775808, 1.50, 1e3, 100000000000000000]"
    )]
    #[case::leading_zeros("[01]")]
    #[case::two_values("{} {}")]
    #[case::control("\"a\u{1}b\"")]
    #[case::surrogates("\"\\ud83d\\ude00\"")]
    #[case::half_a_surrogate("\"\\ud83d\"")]
    #[case::unfinished("{\"a\":\"b\\")]
    #[case::trailing_comma("[1,]")]
    fn a_text_is_read_as_serde_json_reads_it(#[case] text: &str) {
        agrees(text);
    }

    #[test]
    fn as_many_levels_as_serde_json_reads() {
        for levels in [127, 128, 100_000] {
            agrees(&format!("{}{}", "[".repeat(levels), "]".repeat(levels)));
        }
    }

    #[rstest]
    #[case("[{\"a\":1},{\"a\":1}]", false, false)]
    #[case("{\"a\":1,\"b\":1,\"a\":2}", true, false)]
    #[case("{\"b\":{\"a\":1,\"\\u0061\":2}}", true, false)]
    #[case("[{\"a\":1.0}]", false, true)]
    fn repeated_keys_and_fractions_are_noticed(#[case] text: &str, #[case] repeats: bool, #[case] has_fraction: bool) {
        let read = read(text).expect("it is JSON");
        assert_eq!((read.repeats_key, read.has_fraction), (repeats, has_fraction));
    }
}
