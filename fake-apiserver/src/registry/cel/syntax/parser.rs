//! The parser, following the grammar in cel-go's `CEL.g4`. Each node of the tree has a number that maps to its
//! position.

use super::builder::{Builder, global};
use super::lexer::{Placed, Token, tokens};
use super::{Dialect, OPTIONAL_INDEX, OPTIONAL_SELECT, literal, macros};
use crate::registry::cel::ast::{
    CallExpr, EntryExpr, EntryPart, Expr, Expression, ListExpr, LiteralValue, MapEntryExpr, MapExpr, SelectExpr,
    StructExpr, StructFieldExpr,
};
use crate::registry::cel::costs;
use crate::registry::types::names::CEL_RESERVED;

/// An expression with the positions of its nodes.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) expression: Expression,
    places: Vec<usize>,
}

impl Parsed {
    /// Returns the byte offset at which the errors of a node are reported.
    pub(crate) fn place(&self, id: u64) -> usize {
        let id = usize::try_from(id).unwrap_or(usize::MAX);
        self.places.get(id).copied().unwrap_or_default()
    }
}

/// Reason why an expression cannot be parsed.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The expression does not match the grammar.
    Syntax,
    /// Errors in literals and macros, with their positions.
    Errors(Vec<(usize, String)>),
}

/// Error: the expression does not match the grammar.
struct SyntaxError;

type Result<T> = std::result::Result<T, SyntaxError>;

/// Parses an expression.
pub(crate) fn parse(text: &str, dialect: Dialect) -> std::result::Result<Parsed, Refused> {
    let tokens = tokens(text).ok_or(Refused::Syntax)?;
    let mut parser = Parser {
        tokens,
        at: 0,
        builder: Builder::new(),
        dialect,
    };
    let expression = parser.expression().map_err(|SyntaxError| Refused::Syntax)?;
    if parser.peek() != Token::End {
        return Err(Refused::Syntax);
    }
    let (places, errors) = parser.builder.finish();
    match errors.is_empty() {
        true => Ok(Parsed { expression, places }),
        false => Err(Refused::Errors(errors)),
    }
}

struct Parser<'a> {
    tokens: Vec<Placed<'a>>,
    at: usize,
    builder: Builder,
    dialect: Dialect,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens[self.at].1
    }

    fn place(&self) -> usize {
        self.tokens[self.at].0
    }

    /// Returns the token that is `count` positions after the next one.
    fn ahead(&self, count: usize) -> Token<'a> {
        self.tokens.get(self.at + count).map_or(Token::End, |it| it.1)
    }

    fn next(&mut self) -> Placed<'a> {
        let token = self.tokens[self.at];
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn has(&self, mark: &str) -> bool {
        matches!(self.peek(), Token::Mark(it) if it == mark)
    }

    /// Consumes a mark if it is the next token; returns its position.
    fn take(&mut self, mark: &str) -> Option<usize> {
        self.has(mark).then(|| self.next().0)
    }

    /// Consumes the next token if it is one of these marks.
    fn take_one_of(&mut self, marks: &[&'static str]) -> Option<(usize, &'static str)> {
        match self.peek() {
            Token::Mark(mark) if marks.contains(&mark) => Some((self.next().0, mark)),
            _ => None,
        }
    }

    fn expect(&mut self, mark: &str) -> Result<usize> {
        self.take(mark).ok_or(SyntaxError)
    }

    fn expression(&mut self) -> Result<Expression> {
        stacker::maybe_grow(costs::STACK_LEFT, costs::STACK_MORE, || self.conditional())
    }

    fn conditional(&mut self) -> Result<Expression> {
        let condition = self.junction("||", "_||_", |it| it.junction("&&", "_&&_", Self::relation))?;
        let Some(place) = self.take("?") else {
            return Ok(condition);
        };
        let id = self.builder.id(place);
        let yes = self.junction("||", "_||_", |it| it.junction("&&", "_&&_", Self::relation))?;
        self.expect(":")?;
        let no = self.expression()?;
        Ok(global(id, "_?_:_", vec![condition, yes, no]))
    }

    /// Parses operands of `&&` or `||` into a balanced tree.
    fn junction(
        &mut self,
        mark: &str,
        name: &str,
        mut term: impl FnMut(&mut Self) -> Result<Expression>,
    ) -> Result<Expression> {
        let mut terms = vec![term(self)?];
        let mut ids = Vec::new();
        while let Some(place) = self.take(mark) {
            terms.push(term(self)?);
            ids.push(self.builder.id(place));
        }
        let mut terms: Vec<Option<Expression>> = terms.into_iter().map(Some).collect();
        balanced(name, &mut terms, &ids).ok_or(SyntaxError)
    }

    fn relation(&mut self) -> Result<Expression> {
        let operators = ["<", "<=", ">=", ">", "==", "!=", "in"];
        self.binary(&operators, |it| {
            it.binary(&["+", "-"], |it| it.binary(&["*", "/", "%"], Self::unary))
        })
    }

    /// Parses operands and left-associative operators.
    fn binary(
        &mut self,
        operators: &[&'static str],
        mut operand: impl FnMut(&mut Self) -> Result<Expression>,
    ) -> Result<Expression> {
        let mut left = operand(self)?;
        while let Some((place, mark)) = self.take_one_of(operators) {
            let id = self.builder.id(place);
            let right = operand(self)?;
            let name = match mark {
                "in" => "@in".to_owned(),
                other => format!("_{other}_"),
            };
            left = global(id, &name, vec![left, right]);
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expression> {
        // A sign before a number is part of the number.
        let is_number = matches!(self.ahead(1), Token::Int(_) | Token::Double(_));
        let (mark, name) = match self.peek() {
            Token::Mark("!") => ("!", "!_"),
            Token::Mark("-") if !is_number => ("-", "-_"),
            _ => return self.member(),
        };
        let (first, mut count) = (self.place(), 0);
        while self.take(mark).is_some() {
            count += 1;
        }
        if count % 2 == 0 {
            return self.member();
        }
        let id = self.builder.id(first);
        let operand = self.member()?;
        Ok(global(id, name, vec![operand]))
    }

    fn member(&mut self) -> Result<Expression> {
        let mut target = self.primary()?;
        loop {
            if let Some(dot) = self.take(".") {
                target = self.selection(target, dot)?;
            } else if let Some(bracket) = self.take("[") {
                let id = self.builder.id(bracket);
                let is_optional = self.take("?").is_some();
                let index = self.expression()?;
                self.expect("]")?;
                let name = if is_optional { OPTIONAL_INDEX } else { "_[_]" };
                target = global(id, name, vec![target, index]);
            } else {
                return Ok(target);
            }
        }
    }

    /// Parses a field or a method call after its dot.
    fn selection(&mut self, target: Expression, dot: usize) -> Result<Expression> {
        let is_optional = self.take("?").is_some();
        let (place, token) = self.next();
        let field = match token {
            Token::Ident(name) => {
                if !is_optional && let Some(open) = self.take("(") {
                    let id = self.builder.id(open);
                    let args = self.arguments()?;
                    return Ok(self.method_or_macro(id, name, target, args));
                }
                name.to_owned()
            }
            Token::Quoted(_) => return Ok(self.builder.wrong(place, "unsupported syntax: '`'")),
            _ => return Err(SyntaxError),
        };
        if is_optional {
            let id = self.builder.id(dot);
            let field = self.builder.made(place, Expr::Literal(LiteralValue::String(field)));
            return Ok(global(id, OPTIONAL_SELECT, vec![target, field]));
        }
        Ok(self.builder.made(
            dot,
            Expr::Select(SelectExpr {
                operand: Box::new(target),
                field,
                test: false,
            }),
        ))
    }

    /// Parses the arguments of a call after its opening parenthesis.
    fn arguments(&mut self) -> Result<Vec<Expression>> {
        let mut args = Vec::new();
        if self.take(")").is_some() {
            return Ok(args);
        }
        loop {
            args.push(self.expression()?);
            if self.take(",").is_none() {
                self.expect(")")?;
                return Ok(args);
            }
        }
    }

    fn primary(&mut self) -> Result<Expression> {
        let place = self.place();
        match self.peek() {
            Token::Mark("(") => {
                self.next();
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Mark("[") => self.list(),
            Token::Mark("{") => self.map(),
            Token::Mark(".") => {
                self.next();
                self.name(place, ".")
            }
            Token::Ident(_) => self.name(place, ""),
            _ => self.literal(place),
        }
    }

    fn literal(&mut self, place: usize) -> Result<Expression> {
        let sign = if self.take("-").is_some() { "-" } else { "" };
        let value = match (self.next().1, sign) {
            (Token::Int(text), sign) => literal::int(sign, text),
            (Token::Double(text), sign) => literal::double(sign, text),
            (_, "-") => return Err(SyntaxError),
            (Token::Uint(text), _) => literal::uint(text),
            (Token::String(text), _) => literal::string(text),
            (Token::Bytes(text), _) => literal::bytes(text),
            (Token::Mark("true"), _) => Ok(LiteralValue::Boolean(true)),
            (Token::Mark("false"), _) => Ok(LiteralValue::Boolean(false)),
            (Token::Mark("null"), _) => Ok(LiteralValue::Null),
            _ => return Err(SyntaxError),
        };
        Ok(match value {
            Ok(value) => self.builder.made(place, Expr::Literal(value)),
            Err(error) => self.builder.wrong(place, error),
        })
    }

    /// Parses a variable, a call or a struct that begins with a name.
    fn name(&mut self, start: usize, dot: &str) -> Result<Expression> {
        if let Some(length) = self.struct_name() {
            return self.made_struct(dot, length);
        }
        let (place, Token::Ident(name)) = self.next() else {
            return Err(SyntaxError);
        };
        let full = format!("{dot}{name}");
        let is_reserved = CEL_RESERVED.contains(&name);
        if let Some(open) = self.take("(") {
            let id = self.builder.id(open);
            let args = self.arguments()?;
            return Ok(match is_reserved {
                true => self.builder.wrong(start, format!("reserved identifier: {name}")),
                false => self.function_or_macro(id, full, args),
            });
        }
        Ok(match is_reserved {
            true => self.builder.wrong(start, format!("reserved identifier: {name}")),
            false => self.builder.made(place, Expr::Ident(full)),
        })
    }

    /// Returns the number of tokens in a struct's name, if a struct begins here.
    fn struct_name(&self) -> Option<usize> {
        let mut length = 0;
        loop {
            let Token::Ident(_) = self.ahead(length) else {
                return None;
            };
            match self.ahead(length + 1) {
                Token::Mark("{") => return Some(length + 1),
                Token::Mark(".") => length += 2,
                _ => return None,
            }
        }
    }

    fn made_struct(&mut self, dot: &str, length: usize) -> Result<Expression> {
        let mut type_name = dot.to_owned();
        for _ in 0..length {
            match self.next().1 {
                Token::Ident(name) => type_name.push_str(name),
                _ => type_name.push('.'),
            }
        }
        let brace = self.expect("{")?;
        let id = self.builder.id(brace);
        let mut entries = Vec::new();
        while self.take("}").is_none() {
            let optional = self.take("?").is_some();
            let (place, token) = self.next();
            let field = match token {
                Token::Ident(name) => name.to_owned(),
                Token::Quoted(name) => {
                    self.builder.report(place, "unsupported syntax: '`'");
                    name.to_owned()
                }
                _ => return Err(SyntaxError),
            };
            let colon = self.expect(":")?;
            let id = self.builder.id(colon);
            let value = self.expression()?;
            let expr = EntryExpr::StructField(StructFieldExpr { field, value, optional });
            entries.push(EntryPart { id, expr });
            self.separator("}")?;
        }
        Ok(Expression {
            id,
            expr: Expr::Struct(StructExpr { type_name, entries }),
        })
    }

    /// Consumes the comma between two entries. A trailing comma is permitted.
    fn separator(&mut self, end: &str) -> Result<()> {
        match self.take(",").is_some() || self.has(end) {
            true => Ok(()),
            false => Err(SyntaxError),
        }
    }

    fn list(&mut self) -> Result<Expression> {
        let bracket = self.expect("[")?;
        let id = self.builder.id(bracket);
        let (mut elements, mut optional) = (Vec::new(), Vec::new());
        // `[,]` is an empty list.
        if self.has(",") && self.ahead(1) == Token::Mark("]") {
            self.next();
        }
        while self.take("]").is_none() {
            if self.take("?").is_some() {
                optional.push(elements.len());
            }
            elements.push(self.expression()?);
            self.separator("]")?;
        }
        let expr = Expr::List(ListExpr {
            elements,
            optional_indices: optional,
        });
        Ok(Expression { id, expr })
    }

    fn map(&mut self) -> Result<Expression> {
        let brace = self.expect("{")?;
        let id = self.builder.id(brace);
        let mut entries = Vec::new();
        if self.has(",") && self.ahead(1) == Token::Mark("}") {
            self.next();
        }
        while self.take("}").is_none() {
            let optional = self.take("?").is_some();
            let key = self.expression()?;
            let colon = self.expect(":")?;
            let id = self.builder.id(colon);
            let value = self.expression()?;
            let expr = EntryExpr::MapEntry(MapEntryExpr { key, value, optional });
            entries.push(EntryPart { id, expr });
            self.separator("}")?;
        }
        let expr = Expr::Map(MapExpr { entries });
        Ok(Expression { id, expr })
    }

    fn function_or_macro(&mut self, id: u64, name: String, args: Vec<Expression>) -> Expression {
        match (name.as_str(), args.len()) {
            ("has", 1) => macros::has(&mut self.builder, id, args),
            _ => global(id, &name, args),
        }
    }

    fn method_or_macro(&mut self, id: u64, name: &str, target: Expression, args: Vec<Expression>) -> Expression {
        let place = self.builder.place_of(id);
        let is_binding = name == "bind" && args.len() == 3 && self.dialect.binds;
        if is_binding && matches!(&target.expr, Expr::Ident(it) if it == "cel") {
            return macros::bind(&mut self.builder, place, args);
        }
        match macros::of(name, args.len(), self.dialect) {
            Some(expand) => expand(&mut self.builder, place, target, args),
            None => Expression {
                id,
                expr: Expr::Call(CallExpr {
                    func_name: name.to_owned(),
                    target: Some(Box::new(target)),
                    args,
                }),
            },
        }
    }
}

/// Combines the operands of `&&` or `||` into a balanced tree, which limits the depth for long chains. `ids` are the
/// numbers of the operators between them.
fn balanced(name: &str, terms: &mut [Option<Expression>], ids: &[u64]) -> Option<Expression> {
    let Some(last) = ids.len().checked_sub(1) else {
        return terms.first_mut()?.take();
    };
    let middle = last.div_ceil(2);
    let (left, right) = terms.split_at_mut(middle + 1);
    let left = balanced(name, left, &ids[..middle])?;
    let right = balanced(name, right, &ids[middle + 1..])?;
    Some(global(ids[middle], name, vec![left, right]))
}
