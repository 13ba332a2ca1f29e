//! Parses the templates in Stages, in the syntax of Go's `text/template`: text with actions that print, assign, branch
//! and loop. `define`, `template` and `block` are refused with an error that names them.

use super::scan::{Token, scan};
use crate::api::json::Value;

/// Maximum depth of nested actions and groups.
const DEPTH_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Template(pub(super) Vec<Node>);

/// A part of a template.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Text(String),
    Pipeline(Pipeline),
    /// Branches with their conditions and bodies, and the body of `else`. The first body with a true condition is
    /// rendered.
    If(Vec<(Pipeline, Vec<Node>)>, Vec<Node>),
    With(Pipeline, Vec<Node>, Vec<Node>),
    Range(Pipeline, Vec<Node>, Vec<Node>),
    Break,
    Continue,
}

/// A chain of commands, each of which passes its result to the next one, and the variables to which the last result is
/// assigned.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pipeline {
    pub(super) variables: Vec<String>,
    /// Set if the variables are declared (`:=`).
    pub(super) declares: bool,
    pub(super) commands: Vec<Vec<Operand>>,
}

/// A part of a command: a value or a function.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operand {
    Dot,
    Variable(String),
    Literal(Value),
    Function(String),
    Group(Pipeline),
    Field(Box<Operand>, Vec<String>),
}

/// A piece of a template's text.
enum Piece {
    Text(String),
    Action(Vec<Token>),
}

impl Template {
    /// Parses a template; `is_known` returns `true` for the names of functions.
    pub(super) fn parse(text: &str, is_known: &dyn Fn(&str) -> bool) -> Result<Self, String> {
        let pieces = pieces(text.trim())?;
        let mut parser = Parser {
            pieces: pieces.into_iter(),
            is_known,
            depth: 0,
        };
        match parser.list()? {
            (nodes, Stop::OfText) => Ok(Self(nodes)),
            (_, Stop::Else(_)) => Err("unexpected {{else}}".to_owned()),
            (_, Stop::End) => Err("unexpected {{end}}".to_owned()),
        }
    }
}

/// Splits the text at `{{` and `}}`.
fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let (mut pieces, mut rest, mut trims) = (Vec::new(), text, false);
    while let Some((before, after)) = rest.split_once("{{") {
        let trims_before = after.starts_with("- ") || after.starts_with("-\n");
        let before = if trims { before.trim_start() } else { before };
        let before = if trims_before { before.trim_end() } else { before };
        pieces.push(Piece::Text(before.to_owned()));
        let after = if trims_before { &after[1..] } else { after };
        let trimmed = after.trim_start();
        if trimmed.starts_with("/*") {
            let (_, after) = trimmed.split_once("*/").ok_or("unclosed comment")?;
            let after = after.trim_start();
            trims = after.starts_with('-');
            rest = after
                .trim_start_matches('-')
                .strip_prefix("}}")
                .ok_or("comment ends before closing delimiter")?;
            continue;
        }
        let (tokens, after, trims_after) = scan(after)?;
        pieces.push(Piece::Action(tokens));
        (rest, trims) = (after, trims_after);
    }
    let last = if trims { rest.trim_start() } else { rest };
    pieces.push(Piece::Text(last.to_owned()));
    Ok(pieces)
}

struct Parser<'a> {
    pieces: std::vec::IntoIter<Piece>,
    is_known: &'a dyn Fn(&str) -> bool,
    depth: usize,
}

/// The end of a list of nodes.
enum Stop {
    OfText,
    End,
    /// `else`, with the tokens after it.
    Else(Vec<Token>),
}

impl Parser<'_> {
    fn list(&mut self) -> Result<(Vec<Node>, Stop), String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("actions are nested too deeply".to_owned());
        }
        let mut nodes = Vec::new();
        let end = loop {
            let tokens = match self.pieces.next() {
                None => break Stop::OfText,
                Some(Piece::Text(text)) => {
                    nodes.push(Node::Text(text));
                    continue;
                }
                Some(Piece::Action(tokens)) => tokens,
            };
            let (word, rest) = match tokens.split_first() {
                Some((Token::Word(word), rest)) => (word.as_str(), rest),
                _ => ("", tokens.as_slice()),
            };
            match word {
                "end" => break Stop::End,
                "else" => break Stop::Else(rest.to_vec()),
                "if" => nodes.push(self.branch(rest)?),
                "with" | "range" => {
                    let pipeline = self.pipeline(rest)?;
                    let (body, otherwise) = self.bodies()?;
                    nodes.push(match word {
                        "with" => Node::With(pipeline, body, otherwise),
                        _ => Node::Range(pipeline, body, otherwise),
                    });
                }
                "break" => nodes.push(Node::Break),
                "continue" => nodes.push(Node::Continue),
                "define" | "template" | "block" => return Err(format!("{word} is not supported")),
                _ => nodes.push(Node::Pipeline(self.pipeline(&tokens)?)),
            }
        };
        self.depth -= 1;
        Ok((nodes, end))
    }

    /// Parses the bodies of `with` and `range`.
    fn bodies(&mut self) -> Result<(Vec<Node>, Vec<Node>), String> {
        let (body, end) = self.list()?;
        let otherwise = match end {
            Stop::End => Vec::new(),
            Stop::Else(rest) if rest.is_empty() => match self.list()? {
                (otherwise, Stop::End) => otherwise,
                _ => return Err("unexpected EOF".to_owned()),
            },
            Stop::Else(rest) => match rest.split_first() {
                Some((Token::Word(word), rest)) if word == "with" => {
                    let pipeline = self.pipeline(rest)?;
                    let (body, otherwise) = self.bodies()?;
                    vec![Node::With(pipeline, body, otherwise)]
                }
                _ => return Err("unexpected text after {{else".to_owned()),
            },
            Stop::OfText => return Err("unexpected EOF".to_owned()),
        };
        Ok((body, otherwise))
    }

    fn branch(&mut self, condition: &[Token]) -> Result<Node, String> {
        let mut cases = Vec::new();
        let mut condition = self.pipeline(condition)?;
        loop {
            let (body, end) = self.list()?;
            cases.push((condition, body));
            match end {
                Stop::End => return Ok(Node::If(cases, Vec::new())),
                Stop::Else(rest) if rest.is_empty() => {
                    return match self.list()? {
                        (otherwise, Stop::End) => Ok(Node::If(cases, otherwise)),
                        _ => Err("unexpected EOF".to_owned()),
                    };
                }
                Stop::Else(rest) => match rest.split_first() {
                    Some((Token::Word(word), rest)) if word == "if" => condition = self.pipeline(rest)?,
                    _ => return Err("unexpected text after {{else".to_owned()),
                },
                Stop::OfText => return Err("unexpected EOF".to_owned()),
            }
        }
    }

    /// Parses a pipeline that consists of all tokens.
    fn pipeline(&mut self, tokens: &[Token]) -> Result<Pipeline, String> {
        let (pipeline, rest) = self.pipeline_until(tokens)?;
        match rest.first() {
            None => Ok(pipeline),
            Some(token) => Err(format!("unexpected {token:?}")),
        }
    }

    /// Parses a pipeline that ends at the end of the tokens, or before a closing parenthesis.
    fn pipeline_until<'t>(&mut self, tokens: &'t [Token]) -> Result<(Pipeline, &'t [Token]), String> {
        let mut pipeline = Pipeline::default();
        let mut rest = tokens;
        let names: Vec<String> = match tokens {
            [Token::Variable(one), Token::Declare | Token::Assign, ..] => vec![one.clone()],
            [
                Token::Variable(one),
                Token::Comma,
                Token::Variable(other),
                Token::Declare | Token::Assign,
                ..,
            ] => {
                vec![one.clone(), other.clone()]
            }
            _ => Vec::new(),
        };
        if !names.is_empty() {
            let at = 2 * names.len() - 1;
            pipeline.declares = tokens[at] == Token::Declare;
            pipeline.variables = names;
            rest = &tokens[at + 1..];
        }
        loop {
            let mut command = Vec::new();
            while let Some((token, after)) = rest.split_first() {
                if matches!(token, Token::Pipe | Token::Close) {
                    break;
                }
                let (operand, after) = self.operand(token, after)?;
                command.push(operand);
                rest = after;
            }
            if command.is_empty() {
                return Err("missing value for command".to_owned());
            }
            pipeline.commands.push(command);
            match rest.split_first() {
                Some((Token::Pipe, after)) => rest = after,
                _ => return Ok((pipeline, rest)),
            }
        }
    }

    fn operand<'t>(&mut self, token: &Token, mut rest: &'t [Token]) -> Result<(Operand, &'t [Token]), String> {
        let operand = match token {
            Token::Dot => Operand::Dot,
            Token::Field(names) => Operand::Field(Box::new(Operand::Dot), names.clone()),
            Token::Variable(name) => Operand::Variable(name.clone()),
            Token::Literal(value) => Operand::Literal(value.clone()),
            Token::Word(name) => match name.as_str() {
                "true" | "false" => Operand::Literal((name == "true").into()),
                "nil" => Operand::Literal(Value::Null),
                name if (self.is_known)(name) => Operand::Function(name.to_owned()),
                name => return Err(format!("function {name:?} is not supported")),
            },
            Token::Open => {
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return Err("groups are nested too deeply".to_owned());
                }
                let (pipeline, after) = self.pipeline_until(rest)?;
                self.depth -= 1;
                rest = match after.split_first() {
                    Some((Token::Close, after)) => after,
                    _ => return Err("unclosed left paren".to_owned()),
                };
                Operand::Group(pipeline)
            }
            Token::Pipe | Token::Close | Token::Comma | Token::Declare | Token::Assign | Token::Chain(_) => {
                return Err(format!("unexpected {token:?} in operand"));
            }
        };
        match rest.split_first() {
            Some((Token::Chain(names), after)) => Ok((Operand::Field(Box::new(operand), names.clone()), after)),
            _ => Ok((operand, rest)),
        }
    }
}
