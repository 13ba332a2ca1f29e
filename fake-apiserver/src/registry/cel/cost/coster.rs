//! `Coster`: traverses an expression and adds up its estimated cost.

use std::rc::Rc;
use std::sync::Arc;

use super::decl::Decl;
use super::range::CostRange;
use super::types::Type;
use crate::registry::cel::ast::{
    ComprehensionExpr, EntryExpr, Expr, Expression, ListExpr, LiteralValue, MapExpr, SelectExpr,
};
use crate::registry::cel::costs;
use crate::registry::cel::syntax::OPTIONAL_TARGET;

/// Cost of creating a list.
const LIST: CostRange = CostRange::exactly(costs::LIST);
/// Cost of creating a map.
const MAP: CostRange = CostRange::exactly(costs::MAP);
/// Cost of creating an object.
const OBJECT: CostRange = CostRange::exactly(40);

/// Returns the estimated maximum cost of an expression for a value of type `root`.
pub(crate) fn cost(program: &Expression, root: &Arc<Decl>, has_optional_old: bool) -> u64 {
    let mut coster = Coster {
        root: Arc::clone(root),
        has_optional_old,
        locals: Vec::new(),
    };
    coster.part(program).cost.max
}

/// Position of a value within the object that the variable `self` contains.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// The value is computed by the expression.
    Nowhere,
    At(Arc<Decl>),
    /// The value has a position, but no declared type.
    Lost,
}

impl Place {
    /// Returns the position of a field or an item of the value at this position. From `Nowhere`, the first step returns
    /// the root, as in kube-apiserver's estimate.
    fn step(&self, root: &Arc<Decl>, step: impl FnOnce(&Decl) -> Option<Arc<Decl>>) -> Self {
        match self {
            Self::Nowhere => Self::At(Arc::clone(root)),
            Self::At(decl) => step(decl).map_or(Self::Lost, Self::At),
            Self::Lost => Self::Lost,
        }
    }

    fn size(&self) -> Option<CostRange> {
        match self {
            Self::At(decl) => Some(CostRange {
                min: 0,
                max: decl.max_elements,
            }),
            Self::Nowhere | Self::Lost => None,
        }
    }

    /// Returns the size of a list's items, if their type is declared.
    pub(crate) fn element_size(&self) -> Option<CostRange> {
        match self {
            Self::At(decl) => decl.element().and_then(|it| Self::At(it).size()),
            Self::Nowhere | Self::Lost => None,
        }
    }
}

/// Sizes of the keys and of the values of a list or a map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entries {
    is_list: bool,
    keys: CostRange,
    pub(crate) values: CostRange,
}

impl Entries {
    /// Returns the smallest range that includes both ranges; `None` if one is unknown.
    pub(crate) fn or(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (one, other) = one.zip(other)?;
        Some(Self {
            is_list: one.is_list,
            keys: one.keys.or(other.keys),
            values: one.values.or(other.values),
        })
    }
}

/// Estimated cost, type and size of a node.
#[derive(Clone, Debug)]
pub(crate) struct PartCost {
    pub(crate) cost: CostRange,
    pub(crate) kind: Type,
    pub(crate) place: Place,
    pub(crate) size: Option<CostRange>,
    pub(crate) entries: Option<Entries>,
    /// The value of an integer literal.
    pub(crate) number: Option<i64>,
    /// The value of a string literal.
    pub(crate) text: Option<String>,
}

impl PartCost {
    fn new(cost: CostRange, kind: Type) -> Self {
        let size = kind.is_scalar().then_some(CostRange::ONE);
        Self {
            cost,
            kind,
            place: Place::Nowhere,
            size,
            entries: None,
            number: None,
            text: None,
        }
    }

    fn at(mut self, place: Place) -> Self {
        self.size = place.size().or(self.size);
        self.place = place;
        self
    }

    fn is_list(&self) -> bool {
        match &self.entries {
            Some(entries) => entries.is_list,
            None => matches!(self.kind, Type::List(_)),
        }
    }

    /// Returns the size. If the size is unknown, returns [`CostRange::ANY`]; if the type is unknown as well,
    /// [`CostRange::ONE`].
    pub(crate) fn size_or_any(&self) -> CostRange {
        match (self.size, &self.kind) {
            (Some(size), _) => size,
            (None, Type::Unknown) => CostRange::ONE,
            (None, _) => CostRange::ANY,
        }
    }
}

/// A variable of a macro.
struct Local {
    name: String,
    /// Cost of reading the variable.
    cost: CostRange,
    kind: Type,
    place: Place,
    size: Option<CostRange>,
    entries: Option<Entries>,
}

/// The state of estimating the cost of one expression.
pub(crate) struct Coster {
    pub(crate) root: Arc<Decl>,
    has_optional_old: bool,
    locals: Vec<Local>,
}

impl Coster {
    pub(crate) fn part(&mut self, expression: &Expression) -> PartCost {
        match &expression.expr {
            Expr::Literal(literal) => self::literal(literal),
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => stacker::maybe_grow(costs::STACK_LEFT, costs::STACK_MORE, || self.call(call)),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Comprehension(it) => self.comprehension(it),
            Expr::Struct(made) => {
                let values = made.entries.iter().map(|entry| match &entry.expr {
                    EntryExpr::StructField(field) => self.part(&field.value).cost,
                    EntryExpr::MapEntry(entry) => self.part(&entry.value).cost,
                });
                let cost = values.fold(OBJECT, std::ops::Add::add);
                PartCost::new(cost, Type::Unknown)
            }
            Expr::Unspecified => PartCost::new(CostRange::ZERO, Type::Unknown),
        }
    }

    fn ident(&self, name: &str) -> PartCost {
        let name = name.strip_prefix('.').unwrap_or(name);
        if let Some(local) = self.locals.iter().rev().find(|it| it.name == name) {
            let mut part = PartCost::new(local.cost, local.kind.clone()).at(local.place.clone());
            part.size = part.size.or(local.size);
            part.entries = local.entries;
            return part;
        }
        let kind = match name {
            "self" => Type::of(&self.root),
            "oldSelf" if self.has_optional_old => Type::optional(Type::of(&self.root)),
            "oldSelf" => Type::of(&self.root),
            _ => Type::Named("type"),
        };
        PartCost::new(CostRange::ONE, kind).at(Place::At(Arc::clone(&self.root)))
    }

    fn select(&mut self, select: &SelectExpr) -> PartCost {
        // A qualified type name costs as much as one name.
        if let Expr::Select(package) = &select.operand.expr
            && matches!(&package.operand.expr, Expr::Ident(name) if name == "google")
        {
            return PartCost::new(CostRange::ONE, Type::Named("type")).at(Place::At(Arc::clone(&self.root)));
        }
        let operand = self.part(&select.operand);
        if select.test {
            return PartCost::new(operand.cost, Type::Bool);
        }
        let own = match operand.kind {
            Type::Map(..) | Type::Object(_) => CostRange::ONE,
            _ => CostRange::ZERO,
        };
        let place = operand.place.step(&self.root, |decl| decl.field(&select.field));
        let kind = match &operand.kind {
            Type::Optional(inner) => Type::optional(inner.field(&select.field)),
            other => other.field(&select.field),
        };
        PartCost::new(operand.cost + own, kind).at(place)
    }

    fn list(&mut self, list: &ListExpr) -> PartCost {
        let items: Vec<PartCost> = list.elements.iter().map(|it| self.part(it)).collect();
        let cost = items.iter().fold(LIST, |sum, item| sum + item.cost);
        let kind = items.first().map_or(Type::Unknown, |item| item.kind.clone());
        let mut part = PartCost::new(cost, Type::list(kind));
        part.size = Some(CostRange::exactly(items.len() as u64));
        part.entries = Some(Entries {
            is_list: true,
            keys: CostRange::ONE,
            values: sizes(items.iter()),
        });
        part
    }

    fn map(&mut self, map: &MapExpr) -> PartCost {
        let entries = map.entries.iter().map(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => (self.part(&entry.key), self.part(&entry.value)),
            EntryExpr::StructField(field) => (PartCost::new(CostRange::ZERO, Type::String), self.part(&field.value)),
        });
        let entries: Vec<(PartCost, PartCost)> = entries.collect();
        let cost = entries
            .iter()
            .fold(MAP, |sum, (key, value)| sum + key.cost + value.cost);
        let (key, value) = entries.first().map_or((Type::Unknown, Type::Unknown), |(key, value)| {
            (key.kind.clone(), value.kind.clone())
        });
        let mut part = PartCost::new(cost, Type::Map(Rc::new(key), Rc::new(value)));
        part.size = Some(CostRange::exactly(entries.len() as u64));
        part.entries = Some(Entries {
            is_list: false,
            keys: sizes(entries.iter().map(|(key, _)| key)),
            values: sizes(entries.iter().map(|(_, value)| value)),
        });
        part
    }

    fn comprehension(&mut self, it: &ComprehensionExpr) -> PartCost {
        if it.accu_var == OPTIONAL_TARGET {
            return self.optional_macro(it);
        }
        let range = self.part(&it.iter_range);
        let start = self.part(&it.accu_init);
        let depth = self.locals.len();
        self.locals.push(Local {
            name: it.accu_var.clone(),
            cost: CostRange::ONE,
            kind: start.kind.clone(),
            place: start.place.clone(),
            size: start.size,
            entries: start.entries,
        });
        match &it.iter_var2 {
            None => self.push_variable(&it.iter_var, &range),
            Some(second) => self.push_variables(&it.iter_var, second, &range),
        }
        let condition = self.part(&it.loop_cond);
        let step = self.part(&it.loop_step);
        self.locals.truncate(depth + 1);
        // The first step that adds an item determines the item type of the list or map.
        if let (Some(local), Type::List(_) | Type::Map(..)) = (self.locals.last_mut(), &step.kind) {
            local.kind = step.kind.clone();
        }
        let result = self.part(&it.result);
        self.locals.truncate(depth);

        let count = range.size_or_any();
        let cost = range.cost + start.cost + result.cost + count.times(step.cost + condition.cost);
        let mut part = PartCost::new(cost, result.kind);
        match &it.accu_init.expr {
            Expr::Literal(_) => part.size = start.size,
            Expr::List(_) | Expr::Map(_) => {
                part.size = Some(count);
                part.entries = step.entries;
            }
            _ => {}
        }
        part
    }

    /// Estimates a macro on an optional value. cel-go inserts a copy of the target at each use of the macro's variable.
    fn optional_macro(&mut self, it: &ComprehensionExpr) -> PartCost {
        let target = self.part(&it.accu_init);
        let depth = self.locals.len();
        self.locals.push(Local {
            name: it.accu_var.clone(),
            cost: target.cost,
            kind: target.kind,
            place: target.place,
            size: target.size,
            entries: target.entries,
        });
        let result = self.part(&it.result);
        self.locals.truncate(depth);
        result
    }

    /// Adds the variable of a macro that iterates over `range`.
    fn push_variable(&mut self, name: &str, range: &PartCost) {
        let is_list = range.is_list();
        let place = range.place.step(&self.root, |decl| match is_list {
            true => decl.element(),
            false => decl.key(),
        });
        let size = range.entries.map(|it| if is_list { it.values } else { it.keys });
        self.push_local(name, range.kind.iterated(), place, size);
    }

    /// Adds the variables of a macro that iterates over `range` with two variables: index and item, or key and value.
    fn push_variables(&mut self, first: &str, second: &str, range: &PartCost) {
        let is_list = range.is_list();
        let key = range
            .place
            .step(&self.root, |decl| if is_list { None } else { decl.key() });
        let kind = if is_list { Type::Int } else { range.kind.iterated() };
        self.push_local(first, kind, key, range.entries.map(|it| it.keys));
        let value = range.place.step(&self.root, Decl::element);
        self.push_local(second, range.kind.element(), value, range.entries.map(|it| it.values));
    }

    fn push_local(&mut self, name: &str, kind: Type, place: Place, size: Option<CostRange>) {
        self.locals.push(Local {
            name: name.to_owned(),
            cost: CostRange::ONE,
            kind,
            place,
            size,
            entries: None,
        });
    }

    /// Returns the estimate of a call, from its cost and the type and size of its result.
    pub(crate) fn called(
        &self,
        cost: CostRange,
        kind: Type,
        size: Option<CostRange>,
        entries: Option<Entries>,
        of: Option<&Place>,
    ) -> PartCost {
        let mut part = PartCost::new(cost, kind);
        if let Some(place) = of {
            part = part.at(place.step(&self.root, Decl::element));
        }
        part.size = size.or(part.size);
        part.entries = entries;
        part
    }
}

fn literal(literal: &LiteralValue) -> PartCost {
    let (kind, size) = match literal {
        LiteralValue::Boolean(_) => (Type::Bool, 1),
        LiteralValue::Bytes(bytes) => (Type::Bytes, bytes.len()),
        LiteralValue::Double(_) => (Type::Double, 1),
        LiteralValue::Int(_) => (Type::Int, 1),
        LiteralValue::Null => (Type::Null, 1),
        LiteralValue::String(text) => (Type::String, text.chars().count()),
        LiteralValue::UInt(_) => (Type::Uint, 1),
    };
    let mut part = PartCost::new(CostRange::ZERO, kind);
    part.size = Some(CostRange::exactly(size as u64));
    match literal {
        LiteralValue::Int(number) => part.number = Some(*number),
        LiteralValue::String(text) => part.text = Some(text.clone()),
        _ => {}
    }
    part
}

/// Returns the smallest range that includes the sizes of all parts.
fn sizes<'a>(parts: impl Iterator<Item = &'a PartCost>) -> CostRange {
    parts
        .map(PartCost::size_or_any)
        .reduce(CostRange::or)
        .unwrap_or(CostRange::ZERO)
}
