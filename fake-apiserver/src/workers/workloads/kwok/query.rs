//! Parses and runs the jq queries of Stages: paths, `.[]`, `|`, `select(…)`, comparisons, `and`, `or`, `not` and
//! `length`. Other parts of the language are refused with an error that names them.

use crate::api::json::Value;

/// Maximum depth of nested groups.
const DEPTH_MAX: usize = 32;
/// Maximum number of parts of a query: names, indexes and operators. Each part may nest the query more deeply.
const PARTS_MAX: usize = 256;
/// Maximum number of values that a query returns.
const VALUES_MAX: usize = 10_000;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Query {
    Identity,
    Literal(Value),
    /// The field or the item at `Place` of each value of the query.
    At(Box<Query>, Place),
    /// All items of each value of the query.
    Items(Box<Query>),
    Pipe(Box<Query>, Box<Query>),
    Select(Box<Query>),
    Equal(Box<Query>, Box<Query>, bool),
    Both(Box<Query>, Box<Query>),
    Either(Box<Query>, Box<Query>),
    Length,
    Not,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Place {
    Field(String),
    Item(usize),
}

impl Query {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser {
            rest: text,
            depth: 0,
            parts: 0,
        };
        let query = parser.pipe()?;
        match parser.rest.trim_start() {
            "" => Ok(query),
            rest => Err(format!("{rest:?} is not supported in {text:?}")),
        }
    }

    /// Returns the values of a query except nulls. Returns an empty list if the query fails, for example because it
    /// selects the items of null.
    pub(super) fn values(&self, object: &Value) -> Vec<Value> {
        let mut values = self.run(object).unwrap_or_default();
        values.retain(|it| !it.is_null());
        values
    }

    fn run(&self, input: &Value) -> Option<Vec<Value>> {
        let found = match self {
            Self::Identity => vec![input.clone()],
            Self::Literal(value) => vec![value.clone()],
            Self::At(of, place) => {
                let at = |value: Value| match (&value, place) {
                    (Value::Null, _) => Some(Value::Null),
                    (Value::Object(map), Place::Field(name)) => Some(map.get(name).cloned().unwrap_or_default()),
                    (Value::Array(list), Place::Item(at)) => Some(list.get(*at).cloned().unwrap_or_default()),
                    _ => None,
                };
                of.run(input)?.into_iter().map(at).collect::<Option<_>>()?
            }
            Self::Items(of) => {
                let mut all = Vec::new();
                for value in of.run(input)? {
                    match value {
                        Value::Array(list) => all.extend(list),
                        Value::Object(map) => all.extend(map.iter().map(|(_, it)| it.clone())),
                        _ => return None,
                    }
                }
                all
            }
            Self::Pipe(first, second) => {
                let mut all = Vec::new();
                for value in first.run(input)? {
                    all.extend(second.run(&value)?);
                }
                all
            }
            Self::Select(condition) => match condition.run(input)?.iter().any(holds) {
                true => vec![input.clone()],
                false => Vec::new(),
            },
            Self::Equal(one, other, is_equal) => {
                let (one, other) = (one.run(input)?, other.run(input)?);
                let pairs = other.iter().flat_map(|other| one.iter().map(move |one| one == other));
                pairs.map(|it| Value::from(it == *is_equal)).collect()
            }
            Self::Both(one, other) => {
                let holds = one.run(input)?.iter().any(holds) && other.run(input)?.iter().any(holds);
                vec![holds.into()]
            }
            Self::Either(one, other) => {
                let holds = one.run(input)?.iter().any(holds) || other.run(input)?.iter().any(holds);
                vec![holds.into()]
            }
            Self::Length => match input {
                Value::Null => vec![0.into()],
                Value::Array(list) => vec![list.len().into()],
                Value::Object(map) => vec![map.len().into()],
                Value::String(text) => vec![text.chars().count().into()],
                _ => return None,
            },
            Self::Not => vec![(!holds(input)).into()],
        };
        (found.len() <= VALUES_MAX).then_some(found)
    }
}

/// Returns `true` if a value is true in a condition of jq: neither null nor false.
fn holds(value: &Value) -> bool {
    !value.is_null() && value.as_bool() != Some(false)
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
    /// Number of the parts so far.
    parts: usize,
}

impl Parser<'_> {
    /// Skips a symbol; returns `true` if it was found.
    fn skip(&mut self, symbol: &str) -> bool {
        let rest = self.rest.trim_start();
        let after = rest.strip_prefix(symbol);
        self.rest = after.unwrap_or(rest);
        after.is_some()
    }

    /// Counts another part of the query.
    fn count(&mut self) -> Result<(), String> {
        self.parts += 1;
        match self.parts > PARTS_MAX {
            true => Err(format!("the query has more than {PARTS_MAX} parts")),
            false => Ok(()),
        }
    }

    /// Skips a word; returns `true` if it was found.
    fn skip_word(&mut self, word: &str) -> bool {
        let rest = self.rest.trim_start();
        let after = rest.strip_prefix(word);
        let after = after.filter(|it| !it.starts_with(|c: char| c.is_alphanumeric() || c == '_'));
        self.rest = after.unwrap_or(rest);
        after.is_some()
    }

    fn pipe(&mut self) -> Result<Query, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("the query is nested too deeply".to_owned());
        }
        let mut query = self.either()?;
        while self.skip("|") {
            query = Query::Pipe(Box::new(query), Box::new(self.either()?));
        }
        self.depth -= 1;
        Ok(query)
    }

    fn either(&mut self) -> Result<Query, String> {
        let mut query = self.both()?;
        while self.skip_word("or") {
            query = Query::Either(Box::new(query), Box::new(self.both()?));
        }
        Ok(query)
    }

    fn both(&mut self) -> Result<Query, String> {
        let mut query = self.comparison()?;
        while self.skip_word("and") {
            query = Query::Both(Box::new(query), Box::new(self.comparison()?));
        }
        Ok(query)
    }

    fn comparison(&mut self) -> Result<Query, String> {
        let query = self.term()?;
        for (symbol, is_equal) in [("==", true), ("!=", false)] {
            if self.skip(symbol) {
                return Ok(Query::Equal(Box::new(query), Box::new(self.term()?), is_equal));
            }
        }
        Ok(query)
    }

    fn term(&mut self) -> Result<Query, String> {
        self.count()?;
        let start = self.rest.trim_start();
        let mut query = if self.skip("(") {
            let inner = self.pipe()?;
            self.expect(")")?;
            inner
        } else if self.skip_word("select") {
            self.expect("(")?;
            let condition = self.pipe()?;
            self.expect(")")?;
            return Ok(Query::Select(Box::new(condition)));
        } else if self.skip_word("length") {
            return Ok(Query::Length);
        } else if self.skip_word("not") {
            return Ok(Query::Not);
        } else if let Some((_, value)) = [("true", true.into()), ("false", false.into()), ("null", Value::Null)]
            .into_iter()
            .find(|(word, _)| self.skip_word(word))
        {
            return Ok(Query::Literal(value));
        } else if start.starts_with('"') {
            return Ok(Query::Literal(self.string()?.into()));
        } else if start.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            return self.number();
        } else if start.starts_with('.') {
            self.rest = start;
            Query::Identity
        } else {
            return Err(format!("{start:?} is not supported"));
        };
        loop {
            self.count()?;
            query = match self.rest.chars().next() {
                Some('.') => {
                    self.rest = &self.rest[1..];
                    match self.rest.chars().next() {
                        Some('"') => Query::At(Box::new(query), Place::Field(self.string()?)),
                        Some(letter) if letter.is_alphabetic() || letter == '_' => {
                            let end = self.rest.find(|it: char| !it.is_alphanumeric() && it != '_');
                            let (name, after) = self.rest.split_at(end.unwrap_or(self.rest.len()));
                            self.rest = after;
                            Query::At(Box::new(query), Place::Field(name.to_owned()))
                        }
                        _ => query,
                    }
                }
                Some('[') => {
                    self.rest = &self.rest[1..];
                    self.brackets(query)?
                }
                _ => return Ok(query),
            };
        }
    }

    fn brackets(&mut self, of: Query) -> Result<Query, String> {
        if self.skip("]") {
            return Ok(Query::Items(Box::new(of)));
        }
        let place = match self.rest.trim_start().starts_with('"') {
            true => Place::Field(self.string()?),
            false => match self.number()? {
                Query::Literal(value) => {
                    let at = value.as_u64().and_then(|it| usize::try_from(it).ok());
                    Place::Item(at.ok_or("an index must be a non-negative number")?)
                }
                _ => return Err("an index must be a non-negative number".to_owned()),
            },
        };
        self.expect("]")?;
        Ok(Query::At(Box::new(of), place))
    }

    fn expect(&mut self, symbol: &str) -> Result<(), String> {
        match self.skip(symbol) {
            true => Ok(()),
            false => Err(format!("{symbol:?} is missing before {:?}", self.rest)),
        }
    }

    fn string(&mut self) -> Result<String, String> {
        let rest = self.rest.trim_start();
        let mut is_escaped = false;
        let end = rest.char_indices().skip(1).find(|(_, letter)| {
            let ends = *letter == '"' && !is_escaped;
            is_escaped = *letter == '\\' && !is_escaped;
            ends
        });
        let (end, _) = end.ok_or("a string is not terminated")?;
        let (quoted, after) = rest.split_at(end + 1);
        self.rest = after;
        serde_json::from_str(quoted).map_err(|_| format!("{quoted} is not a string"))
    }

    fn number(&mut self) -> Result<Query, String> {
        let rest = self.rest.trim_start();
        let end = rest.find(|it: char| !it.is_ascii_digit() && !matches!(it, '-' | '.' | 'e'));
        let (number, after) = rest.split_at(end.unwrap_or(rest.len()));
        self.rest = after;
        let value: serde_json::Value =
            serde_json::from_str(number).map_err(|_| format!("{rest:?} is not supported"))?;
        Ok(Query::Literal(value.into()))
    }
}
