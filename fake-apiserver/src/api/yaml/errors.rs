//! YAML syntax errors with libyaml's messages, as Go prints them.

use granit_parser::{ErrorKind, ScanError};

/// The component of libyaml that finds an error. The scanner and the parser count lines differently.
enum Finder {
    Scanner,
    Parser,
}

/// Returns the message of a syntax error in `text`: `yaml: line 1: did not find expected node content`.
pub(super) fn message(error: &ScanError, text: &str) -> String {
    if let ErrorKind::UnknownAnchor = error.kind() {
        return format!("yaml: unknown anchor '{}' referenced", alias_at(error, text));
    }
    let (finder, problem) = match error.kind() {
        ErrorKind::InvalidQuotedScalarIndent if is_at_end(error, text) => {
            problem(&ErrorKind::UnclosedQuotedScalar, text)
        }
        ErrorKind::MismatchedFlowCollectionEnd { open, .. } => {
            // The message depends on the token before the bracket.
            let before = error
                .marker()
                .byte_offset()
                .and_then(|at| text.get(..at))
                .unwrap_or(text);
            (Finder::Parser, unclosed(*open, before).to_owned())
        }
        kind => problem(kind, text),
    };
    let mut line = error.marker().line().saturating_sub(1);
    if let ErrorKind::TabInPlainScalar = error.kind() {
        // The error's marker is at the start of the scalar, not at the tab.
        let is_abuse =
            |it: &str| it.len() > it.trim_start().len() && it[..it.len() - it.trim_start().len()].contains('\t');
        line += text.lines().skip(line).position(is_abuse).unwrap_or_default();
    }
    let last = text.matches('\n').count();
    // The line after the last line, counted from 0. libyaml's parser reports a missing end there.
    let behind_last = if text.ends_with('\n') { last } else { last + 1 };
    if let ErrorKind::SimpleKeyExpected = error.kind() {
        // libyaml reports a missing colon at the next token.
        let is_token = |it: &str| !it.trim_start().is_empty() && !it.trim_start().starts_with('#');
        let next = text.lines().skip(line + 1).position(is_token);
        line = next.map_or(behind_last, |at| line + 1 + at);
    } else if is_at_end(error, text) {
        line = match finder {
            Finder::Scanner => last,
            Finder::Parser => behind_last,
        };
    }
    let line = match finder {
        Finder::Parser => line,
        Finder::Scanner if line == 0 => 0,
        Finder::Scanner => line + 1,
    };
    if line == 0 {
        format!("yaml: {problem}")
    } else {
        format!("yaml: line {line}: {problem}")
    }
}

fn is_at_end(error: &ScanError, text: &str) -> bool {
    is_end_error(error.kind())
        || error
            .marker()
            .byte_offset()
            .is_some_and(|at| text.get(at..).is_none_or(|rest| rest.trim().is_empty()))
}

fn is_end_error(kind: &ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::UnclosedFlowCollection { .. }
            | ErrorKind::UnexpectedEofFlowSequence
            | ErrorKind::UnexpectedEofFlowMapping
            | ErrorKind::UnexpectedEofImplicitFlowMapping
            | ErrorKind::UnexpectedEofBlockSequence
            | ErrorKind::UnexpectedEofBlockMapping
            | ErrorKind::UnexpectedEof
            | ErrorKind::UnclosedQuotedScalar
    )
}

/// Returns the name of the alias at the position of the error.
fn alias_at<'a>(error: &ScanError, text: &'a str) -> &'a str {
    let line = text
        .lines()
        .nth(error.marker().line().saturating_sub(1))
        .unwrap_or_default();
    let rest = line
        .char_indices()
        .nth(error.marker().col())
        .map_or(line, |(at, _)| &line[at..]);
    let name = rest.split_once('*').map_or(rest, |(_, name)| name);
    let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
    &name[..end.unwrap_or(name.len())]
}

fn problem(kind: &ErrorKind, text: &str) -> (Finder, String) {
    use Finder::{Parser, Scanner};
    let found = match kind {
        ErrorKind::UnclosedFlowCollection { open } => (Parser, unclosed(*open, text)),
        ErrorKind::UnexpectedEofFlowSequence => (Parser, unclosed('[', text)),
        ErrorKind::UnexpectedEofFlowMapping | ErrorKind::UnexpectedEofImplicitFlowMapping => {
            (Parser, unclosed('{', text))
        }
        ErrorKind::ExpectedFlowSequenceSeparator => (Parser, "did not find expected ',' or ']'"),
        ErrorKind::MismatchedFlowCollectionEnd { open: '[', .. } => (Parser, "did not find expected ',' or ']'"),
        ErrorKind::MismatchedFlowCollectionEnd { .. } => (Parser, "did not find expected ',' or '}'"),
        ErrorKind::MisplacedFlowCollectionEnd => (Parser, "did not find expected node content"),
        ErrorKind::MappingValueNotAllowed | ErrorKind::InvalidColonPlacement => {
            (Scanner, "mapping values are not allowed in this context")
        }
        ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey => (Scanner, "could not find expected ':'"),
        ErrorKind::UnclosedQuotedScalar => (Scanner, "found unexpected end of stream"),
        ErrorKind::TabInIndentation
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabNotAllowed
        | ErrorKind::UnexpectedCharacter { .. } => (Scanner, "found character that cannot start any token"),
        ErrorKind::TabAtBlockScalarStart => (Scanner, "found a tab character where an indentation space is expected"),
        ErrorKind::TabInPlainScalar => (Scanner, "found a tab character that violates indentation"),
        ErrorKind::BlockEntryInFlowCollection | ErrorKind::BlockSequenceEntryNotAllowed => {
            (Scanner, "block sequence entries are not allowed in this context")
        }
        ErrorKind::InvalidIndentation | ErrorKind::UnexpectedEofBlockMapping => (Parser, "did not find expected key"),
        ErrorKind::UnexpectedEofBlockSequence => (Parser, "did not find expected '-' indicator"),
        ErrorKind::UndeclaredTagHandle => (Parser, "found undefined tag handle"),
        ErrorKind::DuplicateVersionDirective => (Parser, "found duplicate %YAML directive"),
        ErrorKind::UnsupportedYamlMajorVersion => (Parser, "found incompatible YAML document"),
        other => {
            // Usually the message is libyaml's, prefixed by a context and a comma.
            let text = other.to_string();
            let finder = if text.starts_with("while parsing a block") || text.starts_with("while parsing a node") {
                Parser
            } else {
                Scanner
            };
            let problem = text.strip_prefix("while ").and_then(|it| it.split_once(", "));
            return (finder, problem.map_or(text.as_str(), |(_, problem)| problem).to_owned());
        }
    };
    (found.0, found.1.to_owned())
}

/// Returns the error for an unclosed flow collection: libyaml expects a node after a bracket, comma or colon, and a
/// separator after a node.
fn unclosed(open: char, text: &str) -> &'static str {
    match text.trim_end().chars().next_back() {
        Some('[' | '{' | ',' | ':') | None => "did not find expected node content",
        Some(_) if open == '[' => "did not find expected ',' or ']'",
        Some(_) => "did not find expected ',' or '}'",
    }
}
