//! Regular expressions of schemas and CEL: translates Go's RE2 syntax for the `regex` crate.

use std::sync::OnceLock;

use regex::Regex;

/// A regular expression in Go's syntax. It is compiled once, on first use.
#[derive(Debug)]
pub(crate) struct Pattern {
    text: String,
    compiled: OnceLock<Result<Regex, String>>,
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            compiled: OnceLock::new(),
        }
    }

    /// Returns the pattern in Go's syntax.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns `true` if the pattern matches a part of `value`. Fails with Go's error if the pattern is invalid.
    pub(crate) fn is_match(&self, value: &str) -> Result<bool, &str> {
        self.compiled().map(|regex| regex.is_match(value))
    }

    /// Returns the first `most` matches in `value`. Fails with Go's error if the pattern is invalid.
    pub(crate) fn find_all(&self, value: &str, most: usize) -> Result<Vec<String>, &str> {
        let found = |regex: &Regex| {
            regex
                .find_iter(value)
                .take(most)
                .map(|it| it.as_str().to_owned())
                .collect()
        };
        self.compiled().map(found)
    }

    /// Returns Go's error for the pattern, if it is invalid.
    pub(crate) fn error(&self) -> Option<&str> {
        self.compiled().err()
    }

    fn compiled(&self) -> Result<&Regex, &str> {
        self.compiled
            .get_or_init(|| Regex::new(&translate(&self.text)).map_err(|error| explain(&self.text, &error)))
            .as_ref()
            .map_err(String::as_str)
    }
}

/// Rewrites syntax that Go and Rust interpret differently: `\d` and similar classes are ASCII-only in Go, Go's classes
/// do not support set operators, and a brace that does not begin a repetition is a literal in Go.
fn translate(pattern: &str) -> String {
    let chars: Vec<char> = pattern.chars().collect();
    let mut out = String::with_capacity(pattern.len() + 8);
    // The end of a POSIX class such as `[:alpha:]` is only searched for before the last `:]`, because searches up to
    // the end of the pattern would take quadratic time.
    let last_end = chars.windows(2).rposition(|it| it == [':', ']']);
    let mut at = 0;
    let mut in_class = false;
    // `]` is a literal directly after `[` or `[^`.
    let mut class_start = false;
    while let Some(&c) = chars.get(at) {
        at += 1;
        let starts_class = std::mem::take(&mut class_start);
        match c {
            '\\' => {
                let escaped = chars.get(at).copied();
                at += 1;
                translate_escape(escaped, in_class, &mut out);
            }
            '[' if in_class => {
                let has_end = chars.get(at) == Some(&':') && last_end.is_some_and(|end| end > at);
                let mut places = (at + 1..).take_while(|_| has_end);
                match places.find(|&i| chars[i..].starts_with(&[':', ']'])) {
                    Some(end) => {
                        out.extend(&chars[at - 1..end + 2]);
                        at = end + 2;
                    }
                    None => out.push_str("\\["),
                }
            }
            '[' => {
                in_class = true;
                class_start = true;
                out.push('[');
                if chars.get(at) == Some(&'^') {
                    out.push('^');
                    at += 1;
                }
            }
            ']' if in_class && starts_class => out.push_str("\\]"),
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            '-' if in_class && chars.get(at) == Some(&'-') => {
                out.push_str("-\\-");
                at += 1;
            }
            '{' if !in_class && !is_repetition(&chars[at..]) => out.push_str("\\{"),
            other => out.push(other),
        }
    }
    out
}

fn translate_escape(escaped: Option<char>, in_class: bool, out: &mut String) {
    match escaped {
        Some('d') => out.push_str("[0-9]"),
        Some('D') => out.push_str("[^0-9]"),
        Some('w') => out.push_str("[0-9A-Za-z_]"),
        Some('W') => out.push_str("[^0-9A-Za-z_]"),
        Some('s') => out.push_str("[\\t\\n\\f\\r ]"),
        Some('S') => out.push_str("[^\\t\\n\\f\\r ]"),
        Some('b') if !in_class => out.push_str("(?-u:\\b)"),
        Some('B') if !in_class => out.push_str("(?-u:\\B)"),
        Some(c @ ('<' | '>')) => out.push(c),
        Some(c) => {
            out.push('\\');
            out.push(c);
        }
        None => out.push('\\'),
    }
}

/// Returns `true` if `rest`, the characters after a `{`, form a repetition such as `{2,}`. Otherwise, Go treats the
/// brace as a literal.
fn is_repetition(rest: &[char]) -> bool {
    let digits = |from: usize| rest[from..].iter().take_while(|c| c.is_ascii_digit()).count();
    let min = digits(0);
    if min == 0 {
        return false;
    }
    match rest.get(min) {
        Some('}') => true,
        Some(',') => rest.get(min + 1 + digits(min + 1)) == Some(&'}'),
        _ => false,
    }
}

/// Returns Go's error message for common errors, and a generic message for other errors.
fn explain(pattern: &str, error: &regex::Error) -> String {
    let text = error.to_string();
    let why = if text.contains("unclosed character class") {
        let from = pattern.rfind('[').unwrap_or(0);
        format!("missing closing ]: `{}`", &pattern[from..])
    } else if text.contains("unclosed group") {
        format!("missing closing ): `{pattern}`")
    } else if text.contains("unopened group") {
        format!("unexpected ): `{pattern}`")
    } else if text.contains("repetition operator missing expression") {
        let operator = pattern.chars().find(|c| matches!(c, '*' | '+' | '?')).unwrap_or('*');
        format!("missing argument to repetition operator: `{operator}`")
    } else if text.contains("look-around") {
        let from = pattern.find("(?").unwrap_or(0);
        let end = pattern.len().min(from + 3);
        format!(
            "invalid or unsupported Perl syntax: `{}`",
            pattern.get(from..end).unwrap_or(pattern)
        )
    } else if text.contains("unrecognized escape sequence") || text.contains("backreferences") {
        let escape: String = pattern
            .find('\\')
            .map(|from| pattern[from..].chars().take(2).collect())
            .unwrap_or_default();
        format!("invalid escape sequence: `{escape}`")
    } else if text.contains("invalid character class range") {
        format!("invalid character class range: `{pattern}`")
    } else {
        format!("invalid regular expression: `{pattern}`")
    };
    format!("error parsing regexp: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("^\\d+$", "12", true)]
    #[case("^\\d+$", "\u{0661}", false)]
    #[case("^[\\w-]+$", "a-b_1", true)]
    #[case("^[[]a]$", "[a]", true)]
    #[case("^[]a]+$", "]a", true)]
    #[case("^[[:alpha:]]+$", "ab", true)]
    #[case("^[[:a]+$", "[:a", true)]
    #[case("^[:]+[[:digit:]]$", ":1", true)]
    #[case("^[[:digit:][:a]+$", "[:a1", true)]
    #[case("^{.*}$", "{x}", true)]
    #[case("^a{2,3}$", "aaa", true)]
    #[case("^[a&&b]+$", "a&b", true)]
    #[case("^[+--]+$", "+,-", true)]
    fn go_regex_syntax_is_translated(#[case] pattern: &str, #[case] value: &str, #[case] expected: bool) {
        assert_eq!(Pattern::new(pattern).is_match(value), Ok(expected));
    }

    #[rstest::rstest]
    #[case("([", "error parsing regexp: missing closing ]: `[`")]
    #[case("(a", "error parsing regexp: missing closing ): `(a`")]
    #[case("a(?=b)", "error parsing regexp: invalid or unsupported Perl syntax: `(?=`")]
    fn pattern_errors_have_the_same_messages_as_in_go(#[case] pattern: &str, #[case] text: &str) {
        assert_eq!(Pattern::new(pattern).error(), Some(text));
    }
}
