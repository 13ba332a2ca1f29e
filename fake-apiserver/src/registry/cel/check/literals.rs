//! Errors in literals that can be found without evaluating an expression: malformed times, durations and regular
//! expressions, and lists and maps of mixed types.

use super::checked::Checked;
use super::formats;
use super::types::Type;
use crate::registry::cel::ast::{CallExpr, EntryExpr, Expr, Expression, ListExpr, LiteralValue, MapExpr};
use crate::registry::cel::costs;
use crate::registry::cel::parse::parts;
use crate::registry::cel::syntax::Parsed;
use crate::registry::cel::times::{Duration, SECONDS, Time};
use crate::registry::types::pattern::Pattern;

type Problem = (usize, String);

/// Returns the errors in the literals of an expression, in the order of cel-go.
pub(super) fn problems(parsed: &Parsed, checked: &Checked) -> Vec<Problem> {
    let mut found = Found {
        parsed,
        checked,
        durations: Vec::new(),
        timestamps: Vec::new(),
        patterns: Vec::new(),
        lists: Vec::new(),
        maps: Vec::new(),
        formats: Vec::new(),
        within_format: false,
    };
    found.visit(&parsed.expression);
    [
        found.durations,
        found.timestamps,
        found.patterns,
        found.lists,
        found.maps,
        found.formats,
    ]
    .concat()
}

struct Found<'a> {
    parsed: &'a Parsed,
    checked: &'a Checked,
    durations: Vec<Problem>,
    timestamps: Vec<Problem>,
    patterns: Vec<Problem>,
    lists: Vec<Problem>,
    maps: Vec<Problem>,
    formats: Vec<Problem>,
    /// Set inside the arguments of `format`, which may have different types.
    within_format: bool,
}

impl Found<'_> {
    fn visit(&mut self, part: &Expression) {
        let within = self.within_format;
        match &part.expr {
            Expr::Call(call) => {
                self.call(part.id, call);
                self.within_format |= call.func_name == "format";
            }
            Expr::List(list) if !within => self.list(list),
            Expr::Map(map) if !within => self.map(map),
            _ => {}
        }
        stacker::maybe_grow(costs::STACK_LEFT, costs::STACK_MORE, || {
            parts(part, &mut |it| self.visit(it))
        });
        self.within_format = within;
    }

    fn call(&mut self, id: u64, call: &CallExpr) {
        if call.func_name == "format"
            && let Some((part, error)) = formats::problem(id, call, self.checked)
        {
            self.formats.push((self.parsed.place(part), error));
        }
        let Some(first) = call.args.first() else { return };
        let text = match &first.expr {
            Expr::Literal(LiteralValue::String(text)) => text,
            Expr::Literal(LiteralValue::Int(seconds)) if call.func_name == "timestamp" => {
                if !SECONDS.contains(seconds) {
                    let error = "invalid timestamp argument".to_owned();
                    self.timestamps.push((self.parsed.place(first.id), error));
                }
                return;
            }
            Expr::Literal(LiteralValue::Int(_)) if call.func_name == "duration" => {
                let error = "invalid duration argument".to_owned();
                self.durations.push((self.parsed.place(first.id), error));
                return;
            }
            _ => return,
        };
        let (list, is_valid) = match call.func_name.as_str() {
            "duration" => (&mut self.durations, Duration::parse(text).is_some()),
            "timestamp" => (&mut self.timestamps, Time::parse(text).is_some()),
            "matches" => (&mut self.patterns, Pattern::new(text).error().is_none()),
            _ => return,
        };
        if !is_valid {
            let error = format!("invalid {} argument", call.func_name);
            list.push((self.parsed.place(first.id), error));
        }
    }

    fn mismatch(&self, id: u64, expected: &Type, found: &Type) -> Problem {
        let text = format!("expected type '{expected}' but found '{found}'");
        (self.parsed.place(id), text)
    }

    fn type_of(&self, part: &Expression, is_optional: bool) -> Type {
        let kind = self.checked.type_of(part.id);
        match kind.inner() {
            Some(inner) if is_optional => inner.clone(),
            _ => kind.clone(),
        }
    }

    fn list(&mut self, list: &ListExpr) {
        let mut first: Option<Type> = None;
        for (index, element) in list.elements.iter().enumerate() {
            let kind = self.type_of(element, list.optional_indices.contains(&index));
            match &first {
                None => first = Some(kind),
                Some(first) if first.is_exactly(&kind) => {}
                Some(first) => {
                    let problem = self.mismatch(element.id, first, &kind);
                    return self.lists.push(problem);
                }
            }
        }
    }

    fn map(&mut self, map: &MapExpr) {
        let mut first: Option<(Type, Type)> = None;
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                continue;
            };
            let key = self.type_of(&entry.key, false);
            let value = self.type_of(&entry.value, entry.optional);
            let Some((keys, values)) = &first else {
                first = Some((key, value));
                continue;
            };
            let wrong_key = (!keys.is_exactly(&key)).then(|| self.mismatch(entry.key.id, keys, &key));
            let wrong_value = (!values.is_exactly(&value)).then(|| self.mismatch(entry.value.id, values, &value));
            self.maps.extend(wrong_key.into_iter().chain(wrong_value));
        }
    }
}
