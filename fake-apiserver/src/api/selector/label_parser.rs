//! The grammar of the parameter `labelSelector`, with Go's error messages (rule F2).

use super::label::{LabelOperator, LabelRequirement, LabelSelector};
use super::syntax::key_error;
use crate::api::field::quote;

impl LabelSelector {
    /// Parses a `labelSelector` parameter. Returns the message of the 400 response as the error.
    pub fn parse(text: &str) -> Result<Self, String> {
        parse(text).map(Self::sorted)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    End,
    OpenParenthesis,
    ClosedParenthesis,
    Comma,
    Not,
    Operator(LabelOperator),
    Identifier,
}

/// Reads tokens with a lookahead of one. After the end, all tokens are [`Token::End`].
struct Parser<'a> {
    text: &'a str,
    at: usize,
    next: (Token, &'a str),
}

fn parse(text: &str) -> Result<Vec<LabelRequirement>, String> {
    let mut parser = Parser {
        text,
        at: 0,
        next: (Token::End, ""),
    };
    parser.consume();
    let mut requirements = Vec::new();
    loop {
        match parser.next {
            (Token::End, _) => return Ok(requirements),
            (token, _) if parser.is_value() || token == Token::Not => {}
            (_, text) => return Err(format!("found '{text}', expected: !, identifier, or 'end of string'")),
        }
        let requirement = parser.requirement();
        requirements.push(requirement.map_err(|error| format!("unable to parse requirement: {error}"))?);
        match parser.consume() {
            (Token::End, _) => return Ok(requirements),
            (Token::Comma, _) if parser.is_value() || parser.next.0 == Token::Not => {}
            (Token::Comma, _) => {
                return Err(format!("found '{}', expected: identifier after ','", parser.next.1));
            }
            (_, text) => return Err(format!("found '{text}', expected: ',' or 'end of string'")),
        }
    }
}

impl<'a> Parser<'a> {
    /// Consumes the next token.
    fn consume(&mut self) -> (Token, &'a str) {
        let following = self.scan();
        std::mem::replace(&mut self.next, following)
    }

    /// Returns `true` if the next token can be a key or value: the words `in` and `notin` are only operators after a
    /// key.
    fn is_value(&self) -> bool {
        is_value(self.next.0)
    }

    fn scan(&mut self) -> (Token, &'a str) {
        let rest = &self.text[self.at..];
        let rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let start = self.text.len() - rest.len();
        let (token, length) = match rest.as_bytes() {
            [] | [0, ..] => (Token::End, 0),
            [b'(', ..] => (Token::OpenParenthesis, 1),
            [b')', ..] => (Token::ClosedParenthesis, 1),
            [b',', ..] => (Token::Comma, 1),
            [b'=', b'=', ..] => (Token::Operator(LabelOperator::DoubleEquals), 2),
            [b'=', ..] => (Token::Operator(LabelOperator::Equals), 1),
            [b'!', b'=', ..] => (Token::Operator(LabelOperator::NotEquals), 2),
            [b'!', ..] => (Token::Not, 1),
            [b'>', ..] => (Token::Operator(LabelOperator::GreaterThan), 1),
            [b'<', ..] => (Token::Operator(LabelOperator::LessThan), 1),
            _ => {
                let end = rest
                    .find(['=', '!', '(', ')', ',', '>', '<', ' ', '\t', '\r', '\n', '\0'])
                    .unwrap_or(rest.len());
                let token = match &rest[..end] {
                    "in" => Token::Operator(LabelOperator::In),
                    "notin" => Token::Operator(LabelOperator::NotIn),
                    _ => Token::Identifier,
                };
                (token, end)
            }
        };
        self.at = start + length;
        (token, &rest[..length])
    }

    fn requirement(&mut self) -> Result<LabelRequirement, String> {
        let negated = self.next.0 == Token::Not;
        if negated {
            self.consume();
        }
        let (token, key) = self.consume();
        if !is_value(token) {
            return Err(format!("found '{key}', expected: identifier"));
        }
        if let Some(error) = key_error(key) {
            return Err(format!("<nil>: Invalid value: {}: {error}", quote(key)));
        }
        let key = key.to_owned();
        if negated {
            return LabelRequirement::new(key, LabelOperator::DoesNotExist, Vec::new());
        }
        if matches!(self.next.0, Token::End | Token::Comma) {
            return LabelRequirement::new(key, LabelOperator::Exists, Vec::new());
        }
        let operator = match self.consume() {
            (Token::Operator(operator), _) => operator,
            (_, text) => return Err(format!("found '{text}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        let values = match operator {
            LabelOperator::In | LabelOperator::NotIn => self.set()?,
            LabelOperator::Equals
            | LabelOperator::DoubleEquals
            | LabelOperator::NotEquals
            | LabelOperator::GreaterThan
            | LabelOperator::LessThan
            | LabelOperator::Exists
            | LabelOperator::DoesNotExist => vec![self.exact_value()?],
        };
        LabelRequirement::new(key, operator, values)
    }

    /// Parses `(a, b)`. An empty list, and an empty item, are parsed as the empty value.
    fn set(&mut self) -> Result<Vec<String>, String> {
        let (token, text) = self.consume();
        if token != Token::OpenParenthesis {
            return Err(format!("found '{text}' expected: '('"));
        }
        if self.next.0 == Token::ClosedParenthesis {
            self.consume();
            return Ok(vec![String::new()]);
        }
        if !self.is_value() && self.next.0 != Token::Comma {
            return Err(format!("found '{}', expected: ',', ')' or identifier", self.next.1));
        }
        let mut values = Vec::new();
        loop {
            match self.consume() {
                (Token::Comma, _) => {
                    if values.is_empty() || self.next.0 == Token::Comma {
                        values.push(String::new());
                    }
                    if self.next.0 == Token::ClosedParenthesis {
                        values.push(String::new());
                        break;
                    }
                }
                (token, text) if is_value(token) => {
                    values.push(text.to_owned());
                    match self.next {
                        (Token::Comma, _) => {}
                        (Token::ClosedParenthesis, _) => break,
                        (_, text) => return Err(format!("found '{text}', expected: ',' or ')'")),
                    }
                }
                (_, text) => return Err(format!("found '{text}', expected: ',', or identifier")),
            }
        }
        self.consume();
        Ok(values)
    }

    /// Parses the value after `=`; it may be empty.
    fn exact_value(&mut self) -> Result<String, String> {
        if matches!(self.next.0, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.consume() {
            (token, text) if is_value(token) => Ok(text.to_owned()),
            (_, text) => Err(format!("found '{text}', expected: identifier")),
        }
    }
}

fn is_value(token: Token) -> bool {
    matches!(
        token,
        Token::Identifier | Token::Operator(LabelOperator::In | LabelOperator::NotIn)
    )
}
