//! Splits an action of a template into tokens.

use crate::api::json::Value;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Dot,
    /// `.a.b`
    Field(Vec<String>),
    /// Fields directly after a variable or a group.
    Chain(Vec<String>),
    /// `$name`; the name is empty for `$`.
    Variable(String),
    Word(String),
    Literal(Value),
    Open,
    Close,
    Pipe,
    Comma,
    /// `:=`
    Declare,
    /// `=`
    Assign,
}

/// Splits an action into tokens up to `}}`. Returns the text after it, and `true` if the leading spaces of that text
/// are trimmed.
pub(super) fn scan(text: &str) -> Result<(Vec<Token>, &str, bool), String> {
    let (mut tokens, mut rest) = (Vec::new(), text);
    loop {
        let trimmed = rest.trim_start();
        let is_glued = trimmed.len() == rest.len();
        if let Some(after) = trimmed.strip_prefix("}}") {
            return Ok((tokens, after, false));
        }
        if let Some(after) = trimmed.strip_prefix("-}}").filter(|_| !is_glued) {
            return Ok((tokens, after, true));
        }
        let letter = trimmed.chars().next().ok_or("unclosed action")?;
        let simple = [
            (":=", Token::Declare),
            ("=", Token::Assign),
            ("(", Token::Open),
            (")", Token::Close),
            ("|", Token::Pipe),
            (",", Token::Comma),
        ];
        let found = simple.into_iter().find(|(text, _)| trimmed.starts_with(text));
        if let Some((text, token)) = found {
            tokens.push(token);
            rest = &trimmed[text.len()..];
            continue;
        }
        let (token, after) = match letter {
            '.' => {
                let (names, after) = fields(trimmed);
                let follows = matches!(tokens.last(), Some(Token::Variable(_) | Token::Close));
                let token = match names.is_empty() {
                    true => Token::Dot,
                    false if is_glued && follows => Token::Chain(names),
                    false => Token::Field(names),
                };
                (token, after)
            }
            '$' => {
                let (name, after) = word(&trimmed[1..]);
                (Token::Variable(name.to_owned()), after)
            }
            '"' => string(trimmed)?,
            '`' => {
                let (text, after) = trimmed[1..].split_once('`').ok_or("unterminated raw quoted string")?;
                (Token::Literal(text.into()), after)
            }
            '0'..='9' | '-' | '+' => number(trimmed)?,
            letter if letter.is_alphabetic() || letter == '_' => {
                let (name, after) = word(trimmed);
                (Token::Word(name.to_owned()), after)
            }
            letter => return Err(format!("unexpected {letter:?} in an action")),
        };
        tokens.push(token);
        rest = after;
    }
}

/// Splits off the word at the start of a string.
fn word(text: &str) -> (&str, &str) {
    let end = text.find(|it: char| !it.is_alphanumeric() && it != '_');
    text.split_at(end.unwrap_or(text.len()))
}

/// Splits off fields such as `.a.b`. Returns no names for a single `.`, which is the current value.
fn fields(text: &str) -> (Vec<String>, &str) {
    let (mut names, mut rest) = (Vec::new(), text);
    while let Some(after) = rest.strip_prefix('.') {
        let (name, after) = word(after);
        if name.is_empty() {
            break;
        }
        names.push(name.to_owned());
        rest = after;
    }
    match names.is_empty() {
        true => (names, &text[1..]),
        false => (names, rest),
    }
}

/// Splits off a string, with the escapes that JSON and Go have in common.
fn string(text: &str) -> Result<(Token, &str), String> {
    let mut is_escaped = false;
    let end = text.char_indices().skip(1).find(|(_, letter)| {
        let ends = *letter == '"' && !is_escaped;
        is_escaped = *letter == '\\' && !is_escaped;
        ends
    });
    let (end, _) = end.ok_or("unterminated quoted string")?;
    let (quoted, after) = text.split_at(end + 1);
    let value: String = serde_json::from_str(quoted).map_err(|_| format!("{quoted} has an unsupported escape"))?;
    Ok((Token::Literal(value.into()), after))
}

fn number(text: &str) -> Result<(Token, &str), String> {
    let end = text[1..].find(|it: char| !it.is_alphanumeric() && it != '.');
    let (number, after) = text.split_at(end.map_or(text.len(), |end| end + 1));
    let value = match number.parse::<i64>() {
        Ok(whole) => Some(whole.into()),
        Err(_) => number.parse::<f64>().ok().map(Value::from),
    };
    let value = value.ok_or_else(|| format!("bad number syntax: {number:?}"))?;
    Ok((Token::Literal(value), after))
}
