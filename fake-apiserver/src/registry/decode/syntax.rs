//! What Go's JSON scanner says of bytes that are no JSON.

/// What may come next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    CommaOrEnd,
    Nothing,
}

enum Container {
    Object,
    Array,
}

/// The error Go's decoder gives for these bytes; `None` if they are JSON.
pub(super) fn syntax_error(raw: &[u8]) -> Option<String> {
    Scanner { raw, at: 0 }.scan().err()
}

struct Scanner<'a> {
    raw: &'a [u8],
    at: usize,
}

type Scan = Result<(), String>;

impl Scanner<'_> {
    fn next(&mut self) -> Result<u8, String> {
        let byte = self.raw.get(self.at).copied();
        self.at += 1;
        byte.ok_or_else(|| "unexpected end of JSON input".to_owned())
    }

    fn peek(&self) -> Option<u8> {
        self.raw.get(self.at).copied()
    }

    fn scan(&mut self) -> Scan {
        let mut open: Vec<Container> = Vec::new();
        let mut expect = Expect::Value;
        loop {
            while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
                self.at += 1;
            }
            if expect == Expect::Nothing && self.peek().is_none() {
                return Ok(());
            }
            let byte = self.next()?;
            let after = |open: &[Container]| {
                if open.is_empty() {
                    Expect::Nothing
                } else {
                    Expect::CommaOrEnd
                }
            };
            expect = match (expect, byte) {
                (Expect::Value | Expect::ValueOrEnd, b'{') => {
                    open.push(Container::Object);
                    Expect::KeyOrEnd
                }
                (Expect::Value | Expect::ValueOrEnd, b'[') => {
                    open.push(Container::Array);
                    Expect::ValueOrEnd
                }
                (Expect::KeyOrEnd, b'}') | (Expect::ValueOrEnd, b']') => {
                    open.pop();
                    after(&open)
                }
                (Expect::Value | Expect::ValueOrEnd, _) => {
                    self.scalar(byte)?;
                    after(&open)
                }
                (Expect::Key | Expect::KeyOrEnd, b'"') => {
                    self.string()?;
                    Expect::Colon
                }
                (Expect::Key | Expect::KeyOrEnd, _) => {
                    return invalid(byte, "looking for beginning of object key string");
                }
                (Expect::Colon, b':') => Expect::Value,
                (Expect::Colon, _) => return invalid(byte, "after object key"),
                (Expect::CommaOrEnd, _) => match (open.last(), byte) {
                    (Some(Container::Object), b',') => Expect::Key,
                    (Some(Container::Array), b',') => Expect::Value,
                    (Some(Container::Object), b'}') | (Some(Container::Array), b']') => {
                        open.pop();
                        after(&open)
                    }
                    (Some(Container::Object), _) => return invalid(byte, "after object key:value pair"),
                    (Some(Container::Array), _) => return invalid(byte, "after array element"),
                    (None, _) => return invalid(byte, "after top-level value"),
                },
                (Expect::Nothing, _) => return invalid(byte, "after top-level value"),
            };
        }
    }

    fn scalar(&mut self, first: u8) -> Scan {
        match first {
            b'"' => self.string(),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            b'-' | b'0'..=b'9' => self.number(first),
            _ => invalid(first, "looking for beginning of value"),
        }
    }

    fn literal(&mut self, word: &str) -> Scan {
        for expected in word.bytes().skip(1) {
            let byte = self.next()?;
            if byte != expected {
                let context = format!("in literal {word} (expecting '{}')", char::from(expected));
                return invalid(byte, &context);
            }
        }
        Ok(())
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn digit(&mut self, context: &str) -> Result<u8, String> {
        let byte = self.next()?;
        if byte.is_ascii_digit() {
            return Ok(byte);
        }
        invalid(byte, context).map(|()| byte)
    }

    fn number(&mut self, first: u8) -> Scan {
        let leading = if first == b'-' {
            self.digit("in numeric literal")?
        } else {
            first
        };
        if leading != b'0' {
            self.digits();
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digit("after decimal point in numeric literal")?;
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digit("in exponent of numeric literal")?;
            self.digits();
        }
        Ok(())
    }

    fn string(&mut self) -> Scan {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => match self.next()? {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let byte = self.next()?;
                            if !byte.is_ascii_hexdigit() {
                                return invalid(byte, "in \\u hexadecimal character escape");
                            }
                        }
                    }
                    byte => return invalid(byte, "in string escape code"),
                },
                byte if byte < 0x20 => return invalid(byte, "in string literal"),
                _ => {}
            }
        }
    }
}

fn invalid(byte: u8, context: &str) -> Scan {
    let shown = match byte {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\\' => "'\\\\'".to_owned(),
        b'\n' => "'\\n'".to_owned(),
        b'\r' => "'\\r'".to_owned(),
        b'\t' => "'\\t'".to_owned(),
        0..0x20 | 0x7f => format!("'\\x{byte:02x}'"),
        _ => format!("'{}'", char::from(byte)),
    };
    Err(format!("invalid character {shown} {context}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("", "unexpected end of JSON input")]
    #[case("{", "unexpected end of JSON input")]
    #[case("hello", "invalid character 'h' looking for beginning of value")]
    #[case("{a:1}", "invalid character 'a' looking for beginning of object key string")]
    #[case("{\"a\" 1}", "invalid character '1' after object key")]
    #[case("{\"a\":1 2}", "invalid character '2' after object key:value pair")]
    #[case("{\"a\":1,}", "invalid character '}' looking for beginning of object key string")]
    #[case("[1 2]", "invalid character '2' after array element")]
    #[case("[1,]", "invalid character ']' looking for beginning of value")]
    #[case("{} x", "invalid character 'x' after top-level value")]
    #[case("nul", "unexpected end of JSON input")]
    #[case("nope", "invalid character 'o' in literal null (expecting 'u')")]
    #[case("01", "invalid character '1' after top-level value")]
    #[case("-a", "invalid character 'a' in numeric literal")]
    #[case("1.x", "invalid character 'x' after decimal point in numeric literal")]
    #[case("\"a\nb\"", "invalid character '\\n' in string literal")]
    #[case("\"\\q\"", "invalid character 'q' in string escape code")]
    fn a15_syntax_errors_are_gos(#[case] raw: &str, #[case] expected: &str) {
        assert_eq!(syntax_error(raw.as_bytes()).as_deref(), Some(expected));
    }

    #[test]
    fn json_has_no_syntax_error() {
        for raw in ["{}", " [ ] ", "{\"a\":[1,-2.5e+3,\"\\u00e9\",true,null]}"] {
            assert_eq!(syntax_error(raw.as_bytes()), None, "{raw}");
        }
    }
}
