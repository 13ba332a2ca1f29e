//! Estimates the recursion depth that a parser needs for an expression, without parsing it.

/// Nesting depth of operators, selections and conditions.
#[derive(Clone, Copy, Default)]
struct Levels {
    operators: usize,
    selections: usize,
    conditions: usize,
}

impl Levels {
    fn most(self) -> usize {
        self.operators.max(self.selections).max(self.conditions)
    }

    fn inside(self) -> Self {
        Self {
            operators: self.operators + 1,
            selections: self.selections + 1,
            conditions: self.conditions + 1,
        }
    }
}

/// An open bracket: its closing character, and the levels that are restored when it is closed.
struct Open {
    closes: u8,
    base: Levels,
    outer: Levels,
}

/// The state of a scan over an expression.
#[derive(Default)]
struct Scan {
    /// Maximum nesting of operators, brackets or selections, including chains of left-associative operators.
    deepest: usize,
    open: Vec<Open>,
    opened: usize,
    /// Levels at the start of the innermost open bracket.
    base: Levels,
    here: Levels,
    /// Set if the expression cannot be parsed. In this case a parser continues after the error, and may treat closed
    /// brackets as open.
    is_broken: bool,
}

/// Returns an upper bound of the recursion depth for an expression.
pub(crate) fn depth_of(expression: &str) -> usize {
    let mut scan = Scan::default();
    let bytes = expression.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        at = scan.token(bytes, at);
        scan.deepest = scan.deepest.max(scan.here.most());
    }
    if scan.is_broken || !scan.open.is_empty() {
        scan.deepest = scan.deepest.max(scan.opened);
    }
    scan.deepest
}

impl Scan {
    /// Reads the token at `at`, and returns the start of the next one.
    fn token(&mut self, bytes: &[u8], at: usize) -> usize {
        let next = bytes.get(at + 1).copied();
        match bytes[at] {
            b'"' | b'\'' => return self.text(bytes, at, false),
            byte if is_word(byte) => return self.word(bytes, at),
            b'/' if next == Some(b'/') => {
                let length = bytes[at..].iter().position(|&it| it == b'\n');
                return length.map_or(bytes.len(), |length| at + length);
            }
            b'(' => self.open(b')'),
            b'[' => self.open(b']'),
            b'{' => self.open(b'}'),
            byte @ (b')' | b']' | b'}') => self.close(byte),
            b'.' => {
                self.here.selections += 1;
            }
            b'<' | b'>' | b'=' | b'!' if next == Some(b'=') => {
                self.operator();
                return at + 2;
            }
            b'+' | b'-' | b'*' | b'/' | b'%' | b'<' | b'>' | b'!' => self.operator(),
            b'?' => {
                // The `?` in `a.?b` and `[?a]` is not the conditional operator.
                let before = at.checked_sub(1).map_or(b' ', |at| bytes[at]);
                if !b".[{,".contains(&before) {
                    self.opened += 1;
                    self.restart(1);
                }
            }
            byte @ (b'&' | b'|') if next == Some(byte) => {
                self.restart(0);
                return at + 2;
            }
            b',' => self.here = self.base,
            b':' => self.restart(0),
            b' ' | b'\t' | b'\r' | b'\n' | b'\x0c' => {}
            b'`' => return self.quoted_name(bytes, at),
            byte => {
                self.is_broken = true;
                // The parser skips an incomplete operator together with the next byte.
                return at + 1 + usize::from(b"=&|".contains(&byte));
            }
        }
        at + 1
    }

    fn operator(&mut self) {
        self.here.operators += 1;
        self.here.selections = self.base.selections;
    }

    /// Resets the levels of operators and selections to those at the start of the bracket, and adds `conditions` to the
    /// level of conditions.
    fn restart(&mut self, conditions: usize) {
        self.here = Levels {
            conditions: self.here.conditions + conditions,
            ..self.base
        };
    }

    fn open(&mut self, closes: u8) {
        self.opened += 1;
        // The bracket may select from the preceding expression, as in `a[0][0]`.
        self.here.selections += 1;
        self.open.push(Open {
            closes,
            base: self.base,
            outer: self.here,
        });
        self.base = self.here.inside();
        self.here = self.base;
    }

    fn close(&mut self, byte: u8) {
        let open = self.open.pop();
        self.is_broken |= open.as_ref().is_none_or(|it| it.closes != byte);
        (self.base, self.here) = open.map_or_else(Default::default, |it| (it.base, it.outer));
    }

    /// Reads a name, a number, a keyword, or a string literal with a prefix, such as `r'a'`.
    fn word(&mut self, bytes: &[u8], at: usize) -> usize {
        let length = bytes[at..].iter().position(|&it| !is_word(it));
        let end = length.map_or(bytes.len(), |length| at + length);
        let word = &bytes[at..end];
        // A number ends at the first character that cannot continue it: `1in` and `1r'a'` are two tokens each.
        let is_number = word[0].is_ascii_digit();
        if word == b"in" || is_number && word.ends_with(b"in") {
            self.operator();
        }
        let is_text = matches!(bytes.get(end), Some(b'"' | b'\''));
        let is_raw = matches!(word, [b'r' | b'R'] | [b'b' | b'B', b'r' | b'R'])
            || is_number && matches!(word.last(), Some(b'r' | b'R'));
        match is_text {
            true => self.text(bytes, end, is_raw),
            false => end,
        }
    }

    /// Reads a name in backquotes.
    fn quoted_name(&mut self, bytes: &[u8], at: usize) -> usize {
        let is_inside = |it: u8| is_word(it) || b".-/ ".contains(&it);
        let length = bytes[at + 1..].iter().position(|&it| !is_inside(it));
        let end = length.map_or(bytes.len(), |length| at + 1 + length);
        self.is_broken |= bytes.get(end) != Some(&b'`');
        end + 1
    }

    /// Reads the string literal that begins at `start`. If it is unterminated or has an invalid escape, reading
    /// continues after the invalid part. A raw literal is then read again as a name and a string.
    fn text(&mut self, bytes: &[u8], start: usize, is_raw: bool) -> usize {
        let quote = bytes[start];
        if bytes[start..].starts_with(&[quote; 3]) {
            return self.long_text(bytes, start, is_raw);
        }
        let mut at = start + 1;
        while let Some(&byte) = bytes.get(at) {
            match byte {
                _ if byte == quote => return at + 1,
                b'\n' | b'\r' => break,
                b'\\' if !is_raw => match escape(&bytes[at + 1..]) {
                    Ok(length) => at += 1 + length,
                    Err(length) => {
                        at += 1 + length;
                        break;
                    }
                },
                _ => at += 1,
            }
        }
        self.is_broken = true;
        match is_raw {
            true => self.text(bytes, start, false),
            false => at + 1,
        }
    }

    /// Reads a string literal in triple quotes. If it is unterminated, its first two quotes are an empty string.
    fn long_text(&mut self, bytes: &[u8], start: usize, is_raw: bool) -> usize {
        let quotes = [bytes[start]; 3];
        let mut at = start + 3;
        while at < bytes.len() {
            match bytes[at] {
                _ if bytes[at..].starts_with(&quotes) => return at + 3,
                b'\\' if !is_raw => match escape(&bytes[at + 1..]) {
                    Ok(length) => at += 1 + length,
                    Err(_) => break,
                },
                _ => at += 1,
            }
        }
        self.is_broken = true;
        start + 2
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns the length of an escape after its backslash; for an invalid escape, the error is the length of its valid
/// part.
fn escape(bytes: &[u8]) -> Result<usize, usize> {
    let (length, is_digit): (usize, fn(&u8) -> bool) = match bytes.first() {
        Some(b'x' | b'X') => (3, u8::is_ascii_hexdigit),
        Some(b'u') => (5, u8::is_ascii_hexdigit),
        Some(b'U') => (9, u8::is_ascii_hexdigit),
        Some(b'0'..=b'3') => (3, |it| matches!(it, b'0'..=b'7')),
        Some(b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`') => return Ok(1),
        _ => return Err(0),
    };
    let digits = bytes[1..].iter().take(length - 1).take_while(|it| is_digit(it)).count();
    match 1 + digits == length {
        true => Ok(length),
        false => Err(1 + digits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("a", 0)]
    #[case("1 + 2 * 3 - 4", 3)]
    #[case("a in b in c", 2)]
    #[case("inside.in_", 1)]
    #[case("1in[1]", 2)]
    #[case("a && b || c", 0)]
    #[case("((1))", 4)]
    #[case("a ? b : c ? d : e", 2)]
    #[case("a.?b == [?c, {?d: 1}]", 4)]
    #[case("'+ + +' + \"it's\" + '''a'b + '''", 2)]
    #[case(r"r'\' + 1", 1)]
    #[case(r"'\'+' + 1", 1)]
    #[case("// it's\n1 + (2)", 2)]
    #[case("1 // + 2", 0)]
    #[case("'a\n + (1) + 1", 2)]
    #[case("'\\q(1) + (2) + (3)'", 3)]
    #[case("(1} + (2}", 2)]
    #[case("'\\x' + 1", 1)]
    #[case("1 &'2 + 1", 1)]
    #[case("r'\\'\n + '", 1)]
    #[case("r'\\\n + 1", 1)]
    #[case("'''\n+ 1", 1)]
    #[case("self.`a//b-c` + 1", 1)]
    fn nesting_depth_of_expressions_is_counted(#[case] expression: &str, #[case] deepest: usize) {
        assert_eq!(depth_of(expression), deepest);
    }
}
