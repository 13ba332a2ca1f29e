//! Checks the syntax of JSON, and formats JSON, like Go's `encoding/json`. Its errors are part of messages to clients.

use super::Value;

/// Returns the error that Go's `encoding/json` reports for `text`; `None` for a single well-formed JSON value.
///
/// ```
/// use fake_apiserver::api::json::syntax_error;
///
/// assert_eq!(syntax_error(b"{\"a\":1}"), None);
/// assert_eq!(syntax_error(b"").as_deref(), Some("unexpected end of JSON input"));
/// assert_eq!(syntax_error(b"[1 2]").as_deref(), Some("invalid character '2' after array element"));
/// ```
pub fn syntax_error(text: &[u8]) -> Option<String> {
    let mut scan = Scan { text, at: 0 };
    scan.document().err()
}

/// Maximum nesting depth that Go accepts.
const DEPTH_MAX: usize = 10_000;

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

/// Type of a container (list or object) that is not closed yet.
enum Open {
    Array,
    Object,
}

impl Scan<'_> {
    /// Returns the next byte after white space, without consuming it.
    fn peek(&mut self) -> Option<u8> {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn unexpected(&self, context: &str) -> String {
        let Some(byte) = self.text.get(self.at) else {
            return "unexpected end of JSON input".to_owned();
        };
        let shown = match byte {
            b'\'' => "'\\''".to_owned(),
            b'"' => "'\"'".to_owned(),
            b'\\' => "'\\\\'".to_owned(),
            b'\n' => "'\\n'".to_owned(),
            b'\r' => "'\\r'".to_owned(),
            b'\t' => "'\\t'".to_owned(),
            0x20..=0x7e => format!("'{}'", char::from(*byte)),
            // Go quotes the byte as the character with this code point; these characters are printable.
            0xa1..=0xac | 0xae..=0xff => format!("'{}'", char::from(*byte)),
            0x80..=0xff => format!("'\\u{byte:04x}'"),
            other => format!("'\\x{other:02x}'"),
        };
        format!("invalid character {shown} {context}")
    }

    /// Checks one value and the end of the text. A stack of open containers replaces recursion, because clients
    /// determine the depth.
    fn document(&mut self) -> Result<(), String> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            // A value begins here.
            match self.peek() {
                Some(b'{') => {
                    self.at += 1;
                    if self.peek() == Some(b'}') {
                        self.at += 1;
                    } else {
                        self.key()?;
                        open.push(Open::Object);
                        self.bound(&open)?;
                        continue;
                    }
                }
                Some(b'[') => {
                    self.at += 1;
                    if self.peek() == Some(b']') {
                        self.at += 1;
                    } else {
                        open.push(Open::Array);
                        self.bound(&open)?;
                        continue;
                    }
                }
                Some(b'"') => self.string()?,
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.literal("true")?,
                Some(b'f') => self.literal("false")?,
                Some(b'n') => self.literal("null")?,
                _ => return Err(self.unexpected("looking for beginning of value")),
            }
            // After a value: close the lists and objects that end here, and then continue with the next value.
            loop {
                match (open.last(), self.peek()) {
                    (None, None) => return Ok(()),
                    (None, Some(_)) => return Err(self.unexpected("after top-level value")),
                    (Some(Open::Array), Some(b',')) => {
                        self.at += 1;
                        break;
                    }
                    (Some(Open::Object), Some(b',')) => {
                        self.at += 1;
                        self.peek();
                        self.key()?;
                        break;
                    }
                    (Some(Open::Array), Some(b']')) | (Some(Open::Object), Some(b'}')) => {
                        self.at += 1;
                        open.pop();
                    }
                    (Some(Open::Array), _) => return Err(self.unexpected("after array element")),
                    (Some(Open::Object), _) => return Err(self.unexpected("after object key:value pair")),
                }
            }
        }
    }

    fn bound(&self, open: &[Open]) -> Result<(), String> {
        if open.len() <= DEPTH_MAX {
            return Ok(());
        }
        let opened = match open.last() {
            Some(Open::Object) => '{',
            Some(Open::Array) | None => '[',
        };
        Err(format!("invalid character '{opened}' exceeded max depth"))
    }

    /// Parses a key and its colon.
    fn key(&mut self) -> Result<(), String> {
        if self.peek() != Some(b'"') {
            return Err(self.unexpected("looking for beginning of object key string"));
        }
        self.string()?;
        if self.peek() != Some(b':') {
            return Err(self.unexpected("after object key"));
        }
        self.at += 1;
        Ok(())
    }

    fn string(&mut self) -> Result<(), String> {
        self.at += 1;
        loop {
            match self.text.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.text.get(self.at) {
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
                        Some(b'u') => {
                            self.at += 1;
                            for _ in 0..4 {
                                if !self.text.get(self.at).is_some_and(u8::is_ascii_hexdigit) {
                                    return Err(self.unexpected("in \\u hexadecimal character escape"));
                                }
                                self.at += 1;
                            }
                        }
                        _ => return Err(self.unexpected("in string escape code")),
                    }
                }
                Some(0..0x20) | None => return Err(self.unexpected("in string literal")),
                Some(_) => self.at += 1,
            }
        }
    }

    fn digits(&mut self, context: &str) -> Result<(), String> {
        if !self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            return Err(self.unexpected(context));
        }
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), String> {
        if self.text.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        if self.text.get(self.at) == Some(&b'0') {
            self.at += 1;
        } else {
            self.digits("in numeric literal")?;
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.text.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        Ok(())
    }

    fn literal(&mut self, word: &str) -> Result<(), String> {
        for expected in word.bytes() {
            if self.text.get(self.at) != Some(&expected) {
                let context = format!("in literal {word} (expecting '{}')", char::from(expected));
                return Err(self.unexpected(&context));
            }
            self.at += 1;
        }
        Ok(())
    }
}

/// Escapes characters that are special in HTML, like Go's `encoding/json`.
pub(crate) fn escape_html(json: &str) -> String {
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

/// Returns the name of a value's JSON type in the errors of Go's decoder.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Formats JSON like Go's `json.Marshal`.
pub(crate) fn marshal(value: &impl serde::Serialize) -> String {
    escape_html(&compact(&serde_json::to_string(value).unwrap_or_default()))
}

/// Removes white space outside strings. Only the JSON of `RawValue`s contains white space there.
fn compact(json: &str) -> String {
    let (mut is_text, mut is_escaped) = (false, false);
    let keep = |c: &char| {
        if is_text {
            is_text = is_escaped || *c != '"';
            is_escaped = !is_escaped && *c == '\\';
            return true;
        }
        is_text = *c == '"';
        !c.is_ascii_whitespace()
    };
    json.chars().filter(keep).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("{\"a\"", "unexpected end of JSON input")]
    #[case("{\"a\" 1}", "invalid character '1' after object key")]
    #[case("{\"a\":1 \"b\"", "invalid character '\"' after object key:value pair")]
    #[case("{,", "invalid character ',' looking for beginning of object key string")]
    #[case("nope", "invalid character 'o' in literal null (expecting 'u')")]
    #[case("x", "invalid character 'x' looking for beginning of value")]
    #[case("1 1", "invalid character '1' after top-level value")]
    #[case("\"\\x\"", "invalid character 'x' in string escape code")]
    fn syntax_errors_have_the_same_messages_as_in_go(#[case] text: &str, #[case] want: &str) {
        assert_eq!(syntax_error(text.as_bytes()).as_deref(), Some(want));
    }

    proptest! {
        /// Both parsers accept the same input. Neither checks the range of numbers here.
        #[test]
        fn go_parser_agrees_with_serde_json(text in "[\\[\\]{}:,\"a1 .e-]{0,12}") {
            let parsed: Result<serde::de::IgnoredAny, _> = serde_json::from_str(&text);
            prop_assert_eq!(syntax_error(text.as_bytes()).is_none(), parsed.is_ok(), "{}", text);
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = syntax_error(&text);
        }
    }

    #[rstest]
    #[case(0x81, "\\u0081")]
    #[case(0xad, "\\u00ad")]
    #[case(0xc2, "\u{c2}")]
    fn non_ascii_bytes_are_quoted_as_latin_1_characters(#[case] byte: u8, #[case] quoted: &str) {
        let expected = format!("invalid character '{quoted}' looking for beginning of value");
        assert_eq!(syntax_error(&[byte]), Some(expected));
    }
}
