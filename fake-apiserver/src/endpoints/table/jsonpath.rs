//! JSONPath as in printer columns and in `kubectl wait`: `.spec.list[0].name`,
//! `.status.conditions[?(@.type=="Ready")].status`.

use crate::api::json::{Map, Value};

/// Maximum number of steps in a path.
const MAX_STEPS: usize = 100;
/// Maximum nesting depth of filters.
const MAX_FILTERS: usize = 8;
/// Maximum number of values that one evaluation visits.
const MAX_VISITS: usize = 100_000;

/// A path, parsed once and evaluated for every row.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// `.name`
    Field(String),
    /// `[0]`; negative indices count from the end.
    Index(i64),
    /// `['a',2]`: the values of each path in turn.
    Union(Vec<JsonPath>),
    /// `[1:5:2]` or `[*]`
    Slice(Option<i64>, Option<i64>, i64),
    /// `.*`
    All,
    /// `..`: the value itself and everything below it.
    Descend,
    /// `[?(@.a=="b")]`
    Filter(Operand, Option<(Comparison, Operand)>),
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    /// `@.a.b`, relative to the item.
    Path(JsonPath),
    Literal(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Parses a path such as `.spec.replicas`. The error describes the problem.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser {
            rest: text.trim(),
            filters: 0,
        };
        parser.rest = parser.rest.strip_prefix('$').unwrap_or(parser.rest);
        let path = parser.steps()?;
        if parser.rest.is_empty() {
            Ok(path)
        } else {
            Err(format!("unrecognized character in action: {}", parser.rest))
        }
    }

    /// Returns the first value at the path.
    pub(crate) fn first<'a>(&self, root: &'a Value) -> Option<&'a Value> {
        first(&self.steps, root, &mut { MAX_VISITS })
    }

    /// Returns all values at the path, in depth-first order.
    #[cfg(any(feature = "cel", test))]
    pub(crate) fn all<'a>(&self, root: &'a Value) -> Vec<&'a Value> {
        let mut all = Vec::new();
        follow(&self.steps, root, &mut { MAX_VISITS }, &mut |value| {
            all.push(value);
            false
        });
        all
    }

    /// Returns the first value at the path; `None` if the path is not found or only selects the object itself.
    pub(super) fn first_of<'a>(&self, root: &'a Map) -> Option<&'a Value> {
        first_below(&self.steps, root, &mut { MAX_VISITS })
    }
}

/// Returns the first value that `steps` select below an object; `None` if there is none or if they only select the
/// object itself.
fn first_below<'a>(steps: &[Step], root: &'a Map, visits: &mut usize) -> Option<&'a Value> {
    *visits = visits.checked_sub(1)?;
    let (step, rest) = steps.split_first()?;
    match step {
        Step::Field(name) => first(rest, root.get(name)?, visits),
        Step::Union(paths) => paths.iter().find_map(|path| {
            let steps: Vec<Step> = path.steps.iter().chain(rest).cloned().collect();
            first_below(&steps, root, visits)
        }),
        Step::All => root.values().find_map(|it| first(rest, it, visits)),
        // The object itself is the first match: apply the next step to it.
        Step::Descend => match first_below(rest, root, visits) {
            None => root.values().find_map(|it| first(steps, it, visits)),
            found => found,
        },
        Step::Index(_) | Step::Slice(..) | Step::Filter(..) => None,
    }
}

/// Returns the first value that `steps` select, in depth-first order.
fn first<'a>(steps: &[Step], value: &'a Value, visits: &mut usize) -> Option<&'a Value> {
    let mut found = None;
    follow(steps, value, visits, &mut |value| {
        found = Some(value);
        true
    });
    found
}

/// Calls `take` with the values that `steps` select, in depth-first order, until `take` returns `true`; then returns
/// `true`. `visits` limits the search, because the number of combinations grows exponentially with the number of `..`
/// in a path.
fn follow<'a>(steps: &[Step], value: &'a Value, visits: &mut usize, take: &mut dyn FnMut(&'a Value) -> bool) -> bool {
    let Some(left) = visits.checked_sub(1) else {
        return false;
    };
    *visits = left;
    let Some((step, rest)) = steps.split_first() else {
        return take(value);
    };
    let mut next = |it: &'a Value| follow(rest, it, visits, take);
    match step {
        Step::Field(name) => value.get(name).is_some_and(next),
        Step::Index(index) => {
            let list = list(value);
            position(*index, list.len())
                .and_then(|at| list.get(at))
                .is_some_and(next)
        }
        Step::Union(paths) => paths.iter().any(|path| {
            let mut found = Vec::new();
            follow(&path.steps, value, visits, &mut |it| {
                found.push(it);
                false
            });
            found.into_iter().any(|it| follow(rest, it, visits, take))
        }),
        Step::Slice(from, to, step) => slice(list(value), *from, *to, *step).any(next),
        Step::All => children(value).any(next),
        Step::Descend => next(value) || children(value).any(|it| follow(steps, it, visits, take)),
        Step::Filter(left, right) => {
            let mut items = list(value).iter().filter(|item| holds(left, right.as_ref(), item));
            items.any(next)
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(list) => Box::new(list.iter()),
        Value::Object(map) => Box::new(map.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Box::new(std::iter::empty()),
    }
}

fn position(index: i64, length: usize) -> Option<usize> {
    if index >= 0 {
        usize::try_from(index).ok()
    } else {
        length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?)
    }
}

fn slice(list: &[Value], from: Option<i64>, to: Option<i64>, step: i64) -> impl Iterator<Item = &Value> {
    let bound = |index: i64| position(index, list.len()).unwrap_or(0).min(list.len());
    let (from, to) = (from.map_or(0, bound), to.map_or(list.len(), bound));
    let step = usize::try_from(step).unwrap_or(1).max(1);
    list.get(from..to).unwrap_or_default().iter().step_by(step)
}

fn holds(left: &Operand, rest: Option<&(Comparison, Operand)>, item: &Value) -> bool {
    let left = left.value(item);
    match rest {
        None => left.is_some(),
        Some((comparison, right)) => match (left, right.value(item)) {
            (Some(left), Some(right)) => comparison.holds(left, right),
            _ => false,
        },
    }
}

impl Operand {
    fn value<'a>(&'a self, item: &'a Value) -> Option<&'a Value> {
        match self {
            Operand::Path(path) => path.first(item),
            Operand::Literal(value) => Some(value),
        }
    }
}

impl Comparison {
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = match (left, right) {
            (Value::Number(l), Value::Number(r)) => l.as_f64().partial_cmp(&r.as_f64()),
            (Value::String(l), Value::String(r)) => Some(l.cmp(r)),
            (l, r) if l == r => Some(std::cmp::Ordering::Equal),
            _ => None,
        };
        match self {
            Comparison::Equal => order.is_some_and(std::cmp::Ordering::is_eq),
            Comparison::NotEqual => !order.is_some_and(std::cmp::Ordering::is_eq),
            Comparison::Less => order.is_some_and(std::cmp::Ordering::is_lt),
            Comparison::LessOrEqual => order.is_some_and(std::cmp::Ordering::is_le),
            Comparison::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
            Comparison::GreaterOrEqual => order.is_some_and(std::cmp::Ordering::is_ge),
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
    /// Number of enclosing filters.
    filters: usize,
}

impl Parser<'_> {
    fn eat(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn steps(&mut self) -> Result<JsonPath, String> {
        let mut steps = Vec::new();
        loop {
            if self.eat("..") {
                steps.push(Step::Descend);
                if !self.rest.is_empty() && !self.rest.starts_with('[') {
                    steps.push(self.name()?);
                }
            } else if self.eat(".") {
                // A single dot selects the value itself.
                if !self.rest.is_empty() && !self.rest.starts_with('[') {
                    steps.push(self.name()?);
                }
            } else if self.eat("[") {
                steps.extend(self.bracket()?);
            } else {
                break;
            }
            if steps.len() > MAX_STEPS {
                return Err("path too long".to_owned());
            }
        }
        Ok(JsonPath { steps })
    }

    /// Parses a name up to the next `.` or `[`; a backslash escapes the character after it.
    fn name(&mut self) -> Result<Step, String> {
        let mut name = String::new();
        let mut chars = self.rest.char_indices();
        let mut end = self.rest.len();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => name.extend(chars.next().map(|(_, c)| c)),
                '.' | '[' | ' ' | '=' | '!' | '<' | '>' | ')' | '|' | '+' | '&' => {
                    end = at;
                    break;
                }
                c => name.push(c),
            }
        }
        self.rest = &self.rest[end..];
        match name.as_str() {
            "" => Err(format!("unexpected char after dot: {}", self.rest)),
            "*" => Ok(Step::All),
            _ => Ok(Step::Field(name)),
        }
    }

    /// Parses the rest of a bracketed step, after `[`.
    fn bracket(&mut self) -> Result<Vec<Step>, String> {
        if self.eat("?(") {
            let step = self.filter()?;
            self.filters -= 1;
            return if self.eat(")]") {
                Ok(vec![step])
            } else {
                Err("unterminated filter".to_owned())
            };
        }
        let (inner, rest) = self.rest.split_once(']').ok_or("unterminated array")?;
        self.rest = rest;
        let parts: Vec<&str> = inner.split(',').collect();
        if let [part] = parts.as_slice() {
            return Self::part(part);
        }
        let paths = parts.into_iter().map(|part| {
            let steps = Self::part(part.trim_matches(' '))?;
            Ok(JsonPath { steps })
        });
        let paths: Result<_, String> = paths.collect();
        Ok(vec![Step::Union(paths?)])
    }

    /// Parses the part of a bracket between commas. As in Go, a key in single quotes is parsed as a path, so its dots
    /// must be escaped.
    fn part(text: &str) -> Result<Vec<Step>, String> {
        let invalid = || format!("invalid array index {text}");
        if let Some(key) = text.strip_prefix('\'').and_then(|it| it.strip_suffix('\'')) {
            let path = format!(".{key}");
            return match key.contains('\'') {
                true => Err(invalid()),
                false => JsonPath::parse(&path).map(|it| it.steps),
            };
        }
        if text == "*" {
            return Ok(vec![Step::Slice(None, None, 1)]);
        }
        let number = |text: &str| text.parse::<i64>().map_err(|_| invalid());
        if !text.contains(':') {
            return Ok(vec![Step::Index(number(text)?)]);
        }
        let mut bounds = text.splitn(3, ':').map(|it| match it {
            "" => Ok(None),
            it => number(it).map(Some),
        });
        let mut bound = || bounds.next().unwrap_or(Ok(None));
        Ok(vec![Step::Slice(bound()?, bound()?, bound()?.unwrap_or(1))])
    }

    fn filter(&mut self) -> Result<Step, String> {
        self.filters += 1;
        if self.filters > MAX_FILTERS {
            return Err("too many filters".to_owned());
        }
        let left = self.operand()?;
        let comparisons = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        let found = comparisons.iter().find(|(sign, _)| self.rest.starts_with(sign));
        let Some((sign, comparison)) = found else {
            return Ok(Step::Filter(left, None));
        };
        self.eat(sign);
        Ok(Step::Filter(left, Some((*comparison, self.operand()?))))
    }

    fn operand(&mut self) -> Result<Operand, String> {
        self.rest = self.rest.trim_start();
        let operand = if self.eat("@") {
            Operand::Path(self.steps()?)
        } else if let Some(text) = self.quoted() {
            Operand::Literal(Value::String(text.into()))
        } else {
            let end = self
                .rest
                .find([')', '=', '!', '<', '>', ' '])
                .unwrap_or(self.rest.len());
            let word = &self.rest[..end];
            let literal = serde_json::from_str(word).map_err(|_| format!("unrecognized identifier {word}"))?;
            self.rest = &self.rest[end..];
            Operand::Literal(literal)
        };
        self.rest = self.rest.trim_start();
        Ok(operand)
    }

    /// Parses a string in single or double quotes.
    fn quoted(&mut self) -> Option<String> {
        let quote = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            if c == quote {
                self.rest = &self.rest[at + 1..];
                return Some(text);
            }
            text.push(if c == '\\' { chars.next()?.1 } else { c });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use crate::api::json::json;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(".spec.list[0].name", json!("x"))]
    #[case(".spec.list[-1].name", json!("y"))]
    #[case(".spec.list[*].name", json!("x"))]
    #[case(".spec.list[1:].name", json!("y"))]
    #[case(".spec.list", json!([{"name": "x"}, {"name": "y", "n": 5}]))]
    #[case(".spec.list[?(@.name==\"y\")].n", json!(5))]
    #[case(".spec.list[?(@.n > 4)].name", json!("y"))]
    #[case(".spec.list[?(@.n)].name", json!("y"))]
    #[case(".status.conditions[?(@.type=='Ready')].status", json!("True"))]
    #[case(".metadata.labels.example\\.com/role", json!("db"))]
    #[case(".metadata.labels['example\\.com/role']", json!("db"))]
    #[case(".metadata.labels['example.com/role']", Value::Null)]
    #[case(".spec.list[0,'none',1].n", json!(5))]
    #[case("$.spec['list'][0]['name']", json!("x"))]
    #[case("..n", json!(5))]
    #[case(".spec.none", Value::Null)]
    #[case(".spec.list[7].name", Value::Null)]
    fn o12_json_paths_select_values(#[case] path: &str, #[case] expected: Value) {
        let object = json!({
            "metadata": {"labels": {"example.com/role": "db"}},
            "spec": {"list": [{"name": "x"}, {"name": "y", "n": 5}]},
            "status": {"conditions": [{"type": "Synced", "status": "False"}, {"type": "Ready", "status": "True"}]},
        });
        let found = JsonPath::parse(path).expect("the path is valid");
        assert_eq!(found.first(&object).cloned().unwrap_or_default(), expected);
        let first = object.as_object().and_then(|map| found.first_of(map));
        assert_eq!(first.cloned().unwrap_or_default(), expected);
    }

    #[test]
    fn json_path_returns_all_values_in_order() {
        let object = json!({"spec": {"list": [{"name": "x"}, {"name": "y", "n": 5}]}});
        let path = JsonPath::parse(".spec.list[*].name").expect("the path is valid");
        assert_eq!(path.all(&object), [&json!("x"), &json!("y")]);
        let path = JsonPath::parse(".spec.list[?(@.name!=\"z\")].n").expect("the path is valid");
        assert_eq!(path.all(&object), [&json!(5)]);
    }

    #[test]
    fn o12_json_path_evaluation_is_bounded() {
        let nested = (0..100).fold(json!(1), |below, _| json!({"a": below, "b": 1}));
        let path = JsonPath::parse(&"..a".repeat(40)).expect("the path is valid");
        let Value::Object(root) = json!({"a": nested}) else {
            unreachable!()
        };
        assert!(path.first_of(&root).is_some());
        let path = JsonPath::parse(&format!("{}..none", "..a".repeat(30))).expect("the path is valid");
        assert_eq!(path.first_of(&root), None);
        // The paths of these unions are empty, so that each union doubles the number of combinations.
        let path = JsonPath::parse(&"['','']".repeat(60)).expect("the path is valid");
        assert_eq!(path.first_of(&root), None);
        assert!(JsonPath::parse(&"[?(@".repeat(100_000)).is_err());
    }

    #[rstest]
    #[case(".spec[")]
    #[case(".spec[a]")]
    #[case(".spec[\"a\"]")]
    #[case(".spec['a]b']")]
    #[case("spec")]
    #[case(".spec[?(@.a==\"b)]")]
    #[case(".a..")]
    #[case(".a b")]
    fn o12_invalid_json_paths_are_refused(#[case] path: &str) {
        let parsed = JsonPath::parse(path);
        assert!(parsed.is_err() || path == ".a..", "{parsed:?}");
    }
}
