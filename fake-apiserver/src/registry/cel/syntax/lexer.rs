//! Splits an expression into tokens, following the lexer rules of cel-go's `CEL.g4`.

/// A token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Ident(&'a str),
    /// The content of a name in backquotes.
    Quoted(&'a str),
    Int(&'a str),
    Uint(&'a str),
    Double(&'a str),
    String(&'a str),
    /// A bytes literal, without the prefix `b`.
    Bytes(&'a str),
    /// An operator, a bracket or other punctuation, or one of the keywords `in`, `true`, `false` and `null`.
    Mark(&'static str),
    End,
}

/// A token and its byte offset.
pub(super) type Placed<'a> = (usize, Token<'a>);

const MARKS: [&str; 27] = [
    "==", "!=", "<=", ">=", "&&", "||", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":", "+", "*", "/", "%",
    "<", ">", "in", "true", "false",
];

const WORDS: [&str; 4] = ["in", "true", "false", "null"];

/// Splits an expression into tokens, followed by an end token; returns `None` if a part of it is not a token.
pub(super) fn tokens(text: &str) -> Option<Vec<Placed<'_>>> {
    let mut found = Vec::with_capacity(text.len() / 3 + 1);
    let mut at = 0;
    loop {
        at += blank(&text[at..]);
        if at == text.len() {
            found.push((at, Token::End));
            return Some(found);
        }
        let (token, length) = token(&text[at..])?;
        found.push((at, token));
        at += length;
    }
}

/// Returns the length of the white space and comments at the start of `text`.
pub(super) fn blank(text: &str) -> usize {
    let mut rest = text;
    loop {
        let trimmed = rest.trim_start_matches([' ', '\t', '\r', '\n', '\u{c}']);
        match trimmed.strip_prefix("//") {
            Some(comment) => rest = &comment[comment.find('\n').unwrap_or(comment.len())..],
            None => return text.len() - trimmed.len(),
        }
    }
}

pub(super) fn token(text: &str) -> Option<(Token<'_>, usize)> {
    let first = text.bytes().next()?;
    let second = text.as_bytes().get(1).copied().unwrap_or_default();
    if first == b'`' {
        let end = text[1..].find('`')? + 1;
        let is_inside = |c: char| c.is_ascii_alphanumeric() || "_.-/ ".contains(c);
        let name = &text[1..end];
        let is_name = !name.is_empty() && name.chars().all(is_inside);
        return is_name.then_some((Token::Quoted(name), end + 1));
    }
    if first.is_ascii_digit() || (first == b'.' && second.is_ascii_digit()) {
        return Some(number(text));
    }
    if let Some(length) = string(text) {
        return Some((Token::String(&text[..length]), length));
    }
    if matches!(first, b'b' | b'B')
        && let Some(length) = string(&text[1..])
    {
        return Some((Token::Bytes(&text[1..=length]), length + 1));
    }
    if first.is_ascii_alphabetic() || first == b'_' {
        let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_';
        let length = text.find(|it| !is_part(it)).unwrap_or(text.len());
        let word = &text[..length];
        let token = match WORDS.iter().find(|it| **it == word) {
            Some(word) => Token::Mark(word),
            None => Token::Ident(word),
        };
        return Some((token, length));
    }
    let mark = MARKS.iter().find(|it| text.starts_with(**it))?;
    Some((Token::Mark(mark), mark.len()))
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// Returns the number literal at the start of `text`, and its length.
fn number(text: &str) -> (Token<'_>, usize) {
    let bytes = text.as_bytes();
    let is_unsigned = |at: usize| matches!(bytes.get(at), Some(b'u' | b'U'));
    let whole = |end: usize| match is_unsigned(end) {
        true => (Token::Uint(&text[..=end]), end + 1),
        false => (Token::Int(&text[..end]), end),
    };
    if let Some(rest) = text.strip_prefix("0x") {
        let length = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if length > 0 {
            return whole(length + 2);
        }
    }
    let mut end = digits(text);
    let is_whole = !is_unsigned(end) || end == 0;
    let fraction = match bytes.get(end) {
        Some(b'.') if is_whole => digits(&text[end + 1..]),
        _ => 0,
    };
    if fraction > 0 {
        end += 1 + fraction;
    }
    let exponent = exponent(&bytes[end..]);
    if fraction == 0 && exponent == 0 {
        return whole(end);
    }
    end += exponent;
    (Token::Double(&text[..end]), end)
}

/// Returns the length of an exponent such as `e-10`; 0 without an exponent.
fn exponent(bytes: &[u8]) -> usize {
    let [b'e' | b'E', rest @ ..] = bytes else { return 0 };
    let sign = usize::from(matches!(rest.first(), Some(b'+' | b'-')));
    match rest[sign..].iter().take_while(|it| it.is_ascii_digit()).count() {
        0 => 0,
        length => 1 + sign + length,
    }
}

/// Returns the length of the string literal at the start of `text`.
fn string(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_raw = matches!(bytes.first(), Some(b'r' | b'R'));
    let start = usize::from(is_raw);
    let quote = *bytes.get(start).filter(|it| matches!(it, b'"' | b'\''))?;
    let long = [quote; 3];
    if bytes[start..].starts_with(&long)
        && let Some(end) = body(bytes, start + 3, is_raw, |rest| rest.starts_with(&long))
    {
        return Some(end + 3);
    }
    let end = body(bytes, start + 1, is_raw, |rest| rest[0] == quote)?;
    let is_line = !bytes[start..end].iter().any(|it| matches!(it, b'\n' | b'\r'));
    is_line.then_some(end + 1)
}

/// Returns the end of the body of a string literal.
fn body(bytes: &[u8], mut at: usize, is_raw: bool, is_end: impl Fn(&[u8]) -> bool) -> Option<usize> {
    while at < bytes.len() {
        if is_end(&bytes[at..]) {
            return Some(at);
        }
        at += match bytes[at] {
            b'\\' if !is_raw => 1 + escape(&bytes[at + 1..])?,
            _ => 1,
        };
    }
    None
}

/// Returns the length of an escape after its backslash; `None` if it is invalid.
fn escape(bytes: &[u8]) -> Option<usize> {
    let hex = |length: usize| {
        let digits = bytes.get(1..=length)?;
        digits.iter().all(u8::is_ascii_hexdigit).then_some(length + 1)
    };
    match bytes.first()? {
        b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`' => Some(1),
        b'x' | b'X' => hex(2),
        b'u' => hex(4),
        b'U' => hex(8),
        b'0'..=b'3' => {
            let digits = bytes.get(1..3)?;
            digits.iter().all(|it| matches!(it, b'0'..=b'7')).then_some(3)
        }
        _ => None,
    }
}
