//! Writes one string or number in the style that go-yaml 2 selects: plain, quoted or as a literal block.

use super::emitter::Emitter;
use super::resolve::{Resolved, is_base_60, resolve};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    Literal,
}

/// Writes a string. Lines after the first are indented by `indent`. With `is_key`, the string is written on one line.
pub(super) fn write(emitter: &mut Emitter, text: &str, indent: usize, is_key: bool) {
    match style(text, is_key) {
        Style::Plain => plain(emitter, text, indent, !is_key),
        Style::SingleQuoted => single_quoted(emitter, text, indent, !is_key),
        Style::DoubleQuoted => double_quoted(emitter, text, indent, !is_key),
        Style::Literal => literal(emitter, text, indent),
    }
}

fn style(text: &str, is_key: bool) -> Style {
    let form = Form::of(text);
    let means_string = resolve(text) == Resolved::String && !is_base_60(text);
    if text.contains('\n') {
        if form.block_allowed && !is_key {
            Style::Literal
        } else {
            Style::DoubleQuoted
        }
    } else if !means_string {
        Style::DoubleQuoted
    } else if form.plain_allowed {
        Style::Plain
    } else if form.single_quoted_allowed {
        Style::SingleQuoted
    } else {
        Style::DoubleQuoted
    }
}

/// The styles that libyaml's emitter permits for a string.
struct Form {
    plain_allowed: bool,
    single_quoted_allowed: bool,
    block_allowed: bool,
}

impl Form {
    fn of(text: &str) -> Self {
        let mut indicators = text.starts_with("---") || text.starts_with("...");
        let (mut special, mut line_breaks, mut break_space, mut space_break) = (false, false, false, false);
        let mut previous = None;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            let blank_follows = chars.peek().is_none_or(|it| matches!(it, ' ' | '\t'));
            indicators |= match (c, previous) {
                (
                    '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`',
                    None,
                ) => true,
                ('?' | ':' | '-', None) | (':', Some(_)) => blank_follows,
                ('#', Some(before)) => before == ' ' || before == '\t' || is_break(before),
                _ => false,
            };
            special |= !is_printable(c);
            line_breaks |= is_break(c);
            break_space |= c == ' ' && previous.is_some_and(is_break);
            space_break |= is_break(c) && previous == Some(' ');
            previous = Some(c);
        }
        let at_edge = |c: Option<char>| c.is_some_and(|c| c == ' ' || is_break(c));
        let loose = at_edge(text.chars().next()) || at_edge(previous);
        let broken = break_space || space_break || special;
        Self {
            plain_allowed: !(indicators || loose || broken || line_breaks),
            single_quoted_allowed: !broken,
            block_allowed: !(text.ends_with(' ') || space_break || special || text.is_empty()),
        }
    }
}

fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Returns `true` for characters that libyaml writes unescaped. libyaml escapes all characters beyond U+FFFF.
fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{fffd}') && c != '\u{feff}'
}

fn plain(emitter: &mut Emitter, text: &str, indent: usize, may_fold: bool) {
    if !emitter.whitespace {
        emitter.push(' ');
    }
    let mut after_space = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == ' ' {
            if may_fold && !after_space && emitter.is_beyond_width() && chars.peek() != Some(&' ') {
                emitter.indent(indent);
            } else {
                emitter.push(c);
            }
            after_space = true;
        } else {
            emitter.push(c);
            emitter.indention = false;
            after_space = false;
        }
    }
    emitter.whitespace = false;
    emitter.indention = false;
}

fn single_quoted(emitter: &mut Emitter, text: &str, indent: usize, may_fold: bool) {
    emitter.indicator("'", true, false);
    let mut after_space = false;
    let mut is_first = true;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == ' ' {
            let is_inner = !is_first && chars.peek().is_some_and(|it| *it != ' ');
            if may_fold && !after_space && emitter.is_beyond_width() && is_inner {
                emitter.indent(indent);
            } else {
                emitter.push(c);
            }
            after_space = true;
        } else {
            if c == '\'' {
                emitter.push('\'');
            }
            emitter.push(c);
            emitter.indention = false;
            after_space = false;
        }
        is_first = false;
    }
    emitter.indicator("'", false, false);
}

fn double_quoted(emitter: &mut Emitter, text: &str, indent: usize, may_fold: bool) {
    emitter.indicator("\"", true, false);
    let mut after_space = false;
    let mut is_first = true;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if !is_printable(c) || is_break(c) || matches!(c, '"' | '\\') {
            escape(emitter, c);
            after_space = false;
        } else if c == ' ' {
            if may_fold && !after_space && emitter.is_beyond_width() && !is_first && chars.peek().is_some() {
                emitter.indent(indent);
                if chars.peek() == Some(&' ') {
                    emitter.push('\\');
                }
            } else {
                emitter.push(c);
            }
            after_space = true;
        } else {
            emitter.push(c);
            after_space = false;
        }
        is_first = false;
    }
    emitter.indicator("\"", false, false);
}

fn escape(emitter: &mut Emitter, c: char) {
    let code = c as u32;
    let text = match c {
        '\0' => "\\0".to_owned(),
        '\u{7}' => "\\a".to_owned(),
        '\u{8}' => "\\b".to_owned(),
        '\t' => "\\t".to_owned(),
        '\n' => "\\n".to_owned(),
        '\u{b}' => "\\v".to_owned(),
        '\u{c}' => "\\f".to_owned(),
        '\r' => "\\r".to_owned(),
        '\u{1b}' => "\\e".to_owned(),
        '"' => "\\\"".to_owned(),
        '\\' => "\\\\".to_owned(),
        '\u{85}' => "\\N".to_owned(),
        '\u{a0}' => "\\_".to_owned(),
        '\u{2028}' => "\\L".to_owned(),
        '\u{2029}' => "\\P".to_owned(),
        _ if code <= 0xff => format!("\\x{code:02X}"),
        _ if code <= 0xffff => format!("\\u{code:04X}"),
        _ => format!("\\U{code:08X}"),
    };
    for c in text.chars() {
        emitter.push(c);
    }
}

fn literal(emitter: &mut Emitter, text: &str, indent: usize) {
    emitter.indicator("|", true, false);
    if text.starts_with(|c| c == ' ' || is_break(c)) {
        emitter.indicator("2", false, false);
    }
    let mut from_end = text.chars().rev();
    match (from_end.next().is_some_and(is_break), from_end.next()) {
        (false, _) => emitter.indicator("-", false, false),
        (true, None) => emitter.indicator("+", false, false),
        (true, Some(before)) if is_break(before) => emitter.indicator("+", false, false),
        (true, Some(_)) => {}
    }
    emitter.line_break();
    emitter.whitespace = true;
    emitter.indention = true;
    let mut after_break = true;
    for c in text.chars() {
        if c == '\n' {
            emitter.line_break();
            emitter.indention = true;
            after_break = true;
        } else {
            if after_break {
                emitter.indent(indent);
            }
            emitter.push(c);
            emitter.indention = false;
            after_break = is_break(c);
        }
    }
}

/// Formats a float like Go's `%g` with the fewest digits. go-yaml reads the JSON of the object, so a float is formatted
/// as an integer if its JSON is an integer of at most 64 bits.
pub(super) fn float(value: f64) -> String {
    let digits = format!("{value}");
    if let Ok(integer) = digits.parse::<i64>() {
        return integer.to_string();
    }
    if digits.parse::<u64>().is_ok() {
        return digits;
    }
    let text = format!("{value:e}");
    let Some((digits, exponent)) = text.split_once('e') else {
        return text;
    };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::float;

    #[rstest]
    #[case(1e6, "1000000")]
    #[case(1_234_567.5, "1.2345675e+06")]
    #[case(1e18, "1000000000000000000")]
    #[case(-1e18, "-1000000000000000000")]
    #[case(1e19, "10000000000000000000")]
    #[case(9_223_372_036_854_775_808.0, "9223372036854776000")]
    #[case(-9_223_372_036_854_775_808.0, "-9.223372036854776e+18")]
    #[case(18_446_744_073_709_551_616.0, "1.8446744073709552e+19")]
    #[case(1e20, "1e+20")]
    #[case(1e-7, "1e-07")]
    #[case(-0.0, "0")]
    fn floats_become_integers_if_their_json_is_a_64_bit_integer(#[case] value: f64, #[case] expected: &str) {
        assert_eq!(float(value), expected);
    }
}
