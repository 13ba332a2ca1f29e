//! Splits an expression into tokens, and reports and skips invalid parts.

use std::ops::Range;

use super::grammar::{self, END, Tokens};
use crate::registry::cel::syntax::lexer::{Token, blank, token};

/// A token: its kind and byte range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) kind: Tokens,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// An expression and its tokens.
#[derive(Debug)]
pub(super) struct Source<'a> {
    text: &'a str,
    /// The tokens; the last one marks the end.
    pub(super) tokens: Vec<Placed>,
    /// Byte ranges of the expression that are not part of a token.
    wrong: Vec<Range<usize>>,
}

impl Source<'_> {
    /// Returns the part of the expression between two byte offsets, including white space but without invalid parts.
    pub(super) fn text(&self, range: Range<usize>) -> String {
        let mut text = String::new();
        let mut at = range.start;
        let inside = |it: &&Range<usize>| range.contains(&it.start);
        for wrong in self.wrong.iter().filter(inside) {
            text.push_str(&self.text[at..wrong.start]);
            at = wrong.end;
        }
        text.push_str(&self.text[at..range.end]);
        text
    }
}

/// Splits an expression into tokens. Returns the tokens and the errors for invalid parts.
pub(super) fn tokens(text: &str) -> (Source<'_>, Vec<(usize, String)>) {
    let (mut found, mut wrong, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    let mut at = 0;
    loop {
        at += blank(&text[at..]);
        let rest = &text[at..];
        if rest.is_empty() {
            let (start, end) = (at, at);
            found.push(Placed { kind: END, start, end });
            let tokens = found;
            return (Source { text, tokens, wrong }, errors);
        }
        let length = match token(rest) {
            Some((token, length)) => {
                let (start, end) = (at, at + length);
                let kind = kind(token);
                found.push(Placed { kind, start, end });
                length
            }
            None => {
                let length = wrong_length(rest);
                errors.push((at, format!("token recognition error at: '{}'", &rest[..length])));
                wrong.push(at..at + length);
                length
            }
        };
        at += length;
    }
}

fn kind(token: Token<'_>) -> Tokens {
    match token {
        Token::Ident(_) => grammar::kind("IDENTIFIER"),
        Token::Quoted(_) => grammar::kind("ESC_IDENTIFIER"),
        Token::Int(_) => grammar::kind("NUM_INT"),
        Token::Uint(_) => grammar::kind("NUM_UINT"),
        Token::Double(_) => grammar::kind("NUM_FLOAT"),
        Token::String(_) => grammar::kind("STRING"),
        Token::Bytes(_) => grammar::kind("BYTES"),
        Token::Mark(mark) => grammar::mark(mark),
        Token::End => END,
    }
}

/// Returns the length of an incomplete token at the start of `text`, including the character that makes it invalid.
fn wrong_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let before = match bytes[0] {
        quote @ (b'"' | b'\'') => string(bytes, quote),
        b'`' => {
            let is_part = |it: &&u8| it.is_ascii_alphanumeric() || b"_.-/ ".contains(it);
            1 + bytes[1..].iter().take_while(is_part).count()
        }
        b'&' | b'|' | b'=' => 1,
        _ => 0,
    };
    before + text[before..].chars().next().map_or(0, char::len_utf8)
}

/// Returns the length of an unterminated string literal at the start of `bytes`.
fn string(bytes: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => match escape(&bytes[at + 1..]) {
                (length, true) => at += 1 + length,
                (length, false) => return at + 1 + length,
            },
            b'\n' | b'\r' => return at,
            it if *it == quote => return at,
            _ => at += 1,
        }
    }
    at
}

/// Returns the length of the valid part of an escape after its backslash, and `true` if the entire escape is valid.
fn escape(bytes: &[u8]) -> (usize, bool) {
    let digits = |count: usize, is_digit: fn(&u8) -> bool| {
        let found = bytes[1..].iter().take(count).take_while(|it| is_digit(it)).count();
        (1 + found, found == count)
    };
    match bytes.first() {
        Some(b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`') => (1, true),
        Some(b'x' | b'X') => digits(2, u8::is_ascii_hexdigit),
        Some(b'u') => digits(4, u8::is_ascii_hexdigit),
        Some(b'U') => digits(8, u8::is_ascii_hexdigit),
        Some(b'0'..=b'3') => digits(2, |it| matches!(it, b'0'..=b'7')),
        _ => (0, false),
    }
}
