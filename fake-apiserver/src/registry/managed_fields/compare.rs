//! Compares the fields of two states of an object.
//!
//! Comparing equal parts does not allocate; the sets borrow from the compared objects.

use std::sync::LazyLock;

use super::UNOWNED;
use super::element::{Element, same};
use super::items::item_element;
use super::set::FieldSet;
use crate::api::json::{Map, Value};
use crate::registry::types::schema::{ListType, SchemaRef, Unset};

/// The fields in which two objects differ.
#[derive(Debug, Default)]
pub(super) struct Changes<'a> {
    /// Fields that were added or modified.
    pub(super) touched: FieldSet<'a>,
    /// Fields that were removed.
    pub(super) removed: FieldSet<'a>,
    /// Set if an item of a new list cannot be identified, for example because its keys are missing. Go then stops
    /// tracking the object.
    pub(super) has_unknown_item: bool,
}

impl Changes<'_> {
    /// Creates an empty difference. If one side is empty, the sets get capacity for all fields of the other.
    fn between(old: usize, new: usize) -> Self {
        let room = |parts, others| if others == 0 { parts } else { 0 };
        Self {
            touched: FieldSet::with_capacity(room(new, old)),
            removed: FieldSet::with_capacity(room(old, new)),
            has_unknown_item: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.touched.is_empty() && self.removed.is_empty()
    }
}

/// Compares two objects. `old` is empty for a new object. Omits fields that cannot be owned, and the paths in `reset`
/// with the fields below them (rule H10).
pub(super) fn compare<'a>(schema: SchemaRef<'_>, old: &'a Map, new: &'a Map, reset: &[&[&'a str]]) -> Changes<'a> {
    let mut changes = Changes::between(old.len(), new.len());
    let mut fields = schema.walk();
    zip(old, new, |name, old, new| {
        if matches!(name, "apiVersion" | "kind") || reset.contains(&[name].as_slice()) || are_same(old, new) {
            return;
        }
        let (field, unset) = fields.field_and_unset(name);
        let field = field.unwrap_or(SchemaRef::Deduced);
        let mut diff = if name == "metadata" {
            compare_metadata(field, old, new)
        } else {
            diff_field(field, unset, old, new)
        };
        if name == "metadata" {
            diff.touched.member = false;
            diff.removed.member = false;
        }
        diff.attach(&mut changes, Element::field(name));
    });
    for path in reset.iter().filter(|path| path.len() > 1) {
        let hidden = FieldSet::of_path(path);
        changes.touched = std::mem::take(&mut changes.touched).recursive_difference(&hidden);
        changes.removed = std::mem::take(&mut changes.removed).recursive_difference(&hidden);
    }
    changes
}

fn compare_metadata<'a>(schema: SchemaRef<'_>, old: Option<&'a Value>, new: Option<&'a Value>) -> Diff<'a> {
    let empty = &*EMPTY_MAP;
    let map = |side: Option<&'a Value>| side.and_then(Value::as_object).unwrap_or(empty);
    let (left, right) = (map(old), map(new));
    let mut inner = Changes::between(left.len(), right.len());
    let mut fields = schema.walk();
    zip(left, right, |name, old, new| {
        if !are_same(old, new) && !UNOWNED.contains(&["metadata", name].as_slice()) {
            let (field, unset) = fields.field_and_unset(name);
            let field = field.unwrap_or(SchemaRef::Deduced);
            diff_field(field, unset, old, new).attach(&mut inner, Element::field(name));
        }
    });
    Diff::of(inner)
}

/// The added or removed fields at one path.
#[derive(Debug, Default)]
struct Part<'a> {
    /// Set if the path itself was added or removed.
    member: bool,
    children: FieldSet<'a>,
}

impl<'a> Part<'a> {
    fn of(children: FieldSet<'a>) -> Self {
        Self {
            member: false,
            children,
        }
    }
}

#[derive(Debug, Default)]
struct Diff<'a> {
    touched: Part<'a>,
    removed: Part<'a>,
    has_unknown_item: bool,
}

impl<'a> Diff<'a> {
    /// Inserts this difference into `changes`, below `element`.
    fn attach(self, changes: &mut Changes<'a>, element: Element<'a>) {
        changes.has_unknown_item |= self.has_unknown_item;
        let touched = self.touched.member || !self.touched.children.is_empty();
        let removed = self.removed.member || !self.removed.children.is_empty();
        match (touched, removed) {
            (true, true) => {
                changes
                    .touched
                    .push(element.clone(), self.touched.member, self.touched.children);
                changes
                    .removed
                    .push(element, self.removed.member, self.removed.children);
            }
            (true, false) => changes
                .touched
                .push(element, self.touched.member, self.touched.children),
            (false, true) => changes
                .removed
                .push(element, self.removed.member, self.removed.children),
            (false, false) => {}
        }
    }

    fn of(inner: Changes<'a>) -> Self {
        Self {
            touched: Part::of(inner.touched),
            removed: Part::of(inner.removed),
            has_unknown_item: inner.has_unknown_item,
        }
    }
}

static EMPTY_MAP: LazyLock<Map> = LazyLock::new(Map::new);
static EMPTY_OBJECT: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));
static NULL: Value = Value::Null;

/// Visits the keys of both maps in order.
fn zip<'a>(old: &'a Map, new: &'a Map, mut visit: impl FnMut(&'a str, Option<&'a Value>, Option<&'a Value>)) {
    let (mut left, mut right) = (old.iter().peekable(), new.iter().peekable());
    loop {
        match (left.peek(), right.peek()) {
            (Some((a, _)), Some((b, _))) if a == b => {
                let (old, new) = (left.next(), right.next());
                if let Some((name, value)) = old {
                    visit(name, Some(value), new.map(|(_, value)| value));
                }
            }
            (Some((a, _)), Some((b, _))) if a > b => {
                if let Some((name, value)) = right.next() {
                    visit(name, None, Some(value));
                }
            }
            (Some(_), _) => {
                if let Some((name, value)) = left.next() {
                    visit(name, Some(value), None);
                }
            }
            (None, Some(_)) => {
                if let Some((name, value)) = right.next() {
                    visit(name, None, Some(value));
                }
            }
            (None, None) => return,
        }
    }
}

fn are_same(old: Option<&Value>, new: Option<&Value>) -> bool {
    matches!((old, new), (Some(old), Some(new)) if same(old, new))
}

/// Compares one field of an object that exists on both sides. A field that Go's encoder always writes counts as present
/// even if the JSON omits it; `unset` is the value that it writes.
fn diff_field<'a>(field: SchemaRef<'_>, unset: Unset, old: Option<&'a Value>, new: Option<&'a Value>) -> Diff<'a> {
    match (old, new) {
        (None, Some(value)) => diff(field, unset_like(unset, value), new),
        (Some(value), None) => diff(field, old, unset_like(unset, value)),
        (Some(_), Some(_)) | (None, None) => diff(field, old, new),
    }
}

/// Returns the value that Go writes for an unset field; `None` if Go omits the field. `value` is the field's value in
/// the other object, which determines the type of a zero value.
fn unset_like(unset: Unset, value: &Value) -> Option<&'static Value> {
    static ZERO: LazyLock<[Value; 3]> = LazyLock::new(|| [Value::from(""), Value::from(0), Value::from(false)]);
    match (unset, value) {
        (Unset::Absent, _) => None,
        (Unset::Null, _) | (Unset::Zero, Value::Array(_) | Value::Null) => Some(&NULL),
        (Unset::Zero, Value::Object(_)) => Some(&EMPTY_OBJECT),
        (Unset::Zero, Value::String(_)) => Some(&ZERO[0]),
        (Unset::Zero, Value::Number(_)) => Some(&ZERO[1]),
        (Unset::Zero, Value::Bool(_)) => Some(&ZERO[2]),
    }
}

fn diff<'a>(schema: SchemaRef<'_>, old: Option<&'a Value>, new: Option<&'a Value>) -> Diff<'a> {
    let shape = |side: Option<&Value>| match side {
        None | Some(Value::Null) => Shape::Nothing,
        Some(Value::Object(_)) => Shape::Map,
        Some(Value::Array(_)) => Shape::List,
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => Shape::Scalar,
    };
    match (shape(old), shape(new)) {
        (Shape::Map, Shape::Map | Shape::Nothing) | (Shape::Nothing, Shape::Map) => diff_maps(schema, old, new),
        (Shape::List, Shape::List | Shape::Nothing) | (Shape::Nothing, Shape::List) => diff_lists(schema, old, new),
        (Shape::Scalar | Shape::Nothing, Shape::Scalar | Shape::Nothing) => diff_leaf(old, new),
        (Shape::Map | Shape::List | Shape::Scalar, Shape::Map | Shape::List | Shape::Scalar) => {
            diff_types(schema, old, new)
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Nothing,
    Map,
    List,
    Scalar,
}

/// Compares values of different types: all fields below the old value are removed, and all fields below the new value
/// are added.
fn diff_types<'a>(schema: SchemaRef<'_>, old: Option<&'a Value>, new: Option<&'a Value>) -> Diff<'a> {
    let gone = diff(schema, old, Some(&NULL)).removed.children;
    let come = diff(schema, Some(&NULL), new);
    let (come, has_unknown_item) = (come.touched.children, come.has_unknown_item);
    Diff {
        has_unknown_item,
        touched: Part {
            member: come.is_empty() || gone.is_empty(),
            children: come,
        },
        removed: Part::of(gone),
    }
}

fn diff_leaf<'a>(old: Option<&'a Value>, new: Option<&'a Value>) -> Diff<'a> {
    let mut diff = Diff::default();
    match (old, new) {
        (None, _) => diff.touched.member = new.is_some(),
        (Some(_), None) => diff.removed.member = true,
        (Some(old), Some(new)) => diff.touched.member = !same(old, new),
    }
    diff
}

fn diff_maps<'a>(schema: SchemaRef<'_>, old: Option<&'a Value>, new: Option<&'a Value>) -> Diff<'a> {
    let empty = &*EMPTY_MAP;
    let map = |side: Option<&'a Value>| side.and_then(Value::as_object).unwrap_or(empty);
    let (left, right) = (map(old), map(new));
    if schema.is_atomic_map() || (left.is_empty() && right.is_empty()) {
        return diff_leaf(old, new);
    }
    let both = old.is_some_and(Value::is_object) && new.is_some_and(Value::is_object);
    let mut inner = Changes::between(left.len(), right.len());
    let mut fields = schema.walk();
    zip(left, right, |name, old, new| {
        // Fast path: unchanged values do not need a schema.
        if are_same(old, new) {
            return;
        }
        let (field, unset) = fields.field_and_unset(name);
        let field = field.unwrap_or(SchemaRef::Deduced);
        let found = if both {
            diff_field(field, unset, old, new)
        } else {
            diff(field, old, new)
        };
        found.attach(&mut inner, Element::field(name));
    });
    let mut diff = Diff::of(inner);
    diff.touched.member = old.is_none();
    diff.removed.member = new.is_none();
    diff
}

fn diff_lists<'a>(schema: SchemaRef<'_>, old: Option<&'a Value>, new: Option<&'a Value>) -> Diff<'a> {
    let list = |side: Option<&'a Value>| side.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let (left, right) = (list(old), list(new));
    let atomic = schema.list_type() == ListType::Atomic;
    if atomic || (left.is_empty() && right.is_empty()) {
        return diff_leaf(old, new);
    }
    let equal = left.len() == right.len() && left.iter().zip(right).all(|(a, b)| same(a, b));
    let inner = if equal {
        Changes::default()
    } else {
        diff_items(schema, left, right)
    };
    let mut diff = Diff::of(inner);
    diff.touched.member = old.is_none();
    diff.removed.member = new.is_none();
    diff
}

/// Returns the items of a list, sorted by their path elements. Items without an identity are omitted.
fn indexed<'a>(schema: SchemaRef<'_>, list: &'a [Value]) -> Vec<(Element<'a>, &'a Value)> {
    let mut items: Vec<_> = list
        .iter()
        .filter_map(|item| Some((item_element(schema, item).ok()?, item)))
        .collect();
    items.sort_by(|(a, _), (b, _)| a.cmp(b));
    items
}

fn diff_items<'a>(schema: SchemaRef<'_>, old: &'a [Value], new: &'a [Value]) -> Changes<'a> {
    let (left, right) = (indexed(schema, old), indexed(schema, new));
    let items = schema.items();
    let mut changes = Changes::between(left.len(), right.len());
    changes.has_unknown_item = right.len() < new.len();
    let (mut i, mut j) = (0, 0);
    while i < left.len() || j < right.len() {
        let element = match (left.get(i), right.get(j)) {
            (Some((a, _)), Some((b, _))) => a.min(b),
            (Some((it, _)), None) | (None, Some((it, _))) => it,
            (None, None) => break,
        };
        let element = element.clone();
        let take = |list: &[(Element<'a>, &'a Value)], from: usize| {
            list[from..].iter().take_while(|(it, _)| *it == element).count()
        };
        let (lefts, rights) = (take(&left, i), take(&right, j));
        let (from_left, from_right) = (&left[i..i + lefts], &right[j..j + rights]);
        diff_group(items, from_left, from_right).attach(&mut changes, element);
        (i, j) = (i + lefts, j + rights);
    }
    changes
}

/// Compares the items that have the same path element. Several items on one side are duplicates, which are owned
/// together.
fn diff_group<'a>(
    items: SchemaRef<'_>,
    left: &[(Element<'a>, &'a Value)],
    right: &[(Element<'a>, &'a Value)],
) -> Diff<'a> {
    let first = |side: &[(Element<'a>, &'a Value)]| side.first().map(|(_, value)| *value);
    match (left.len(), right.len()) {
        (0 | 1, 0 | 1) => diff(items, first(left), first(right)),
        (0 | 1, _) => {
            let mut found = first(left).map(|old| diff(items, Some(old), None)).unwrap_or_default();
            found.touched.member = true;
            found
        }
        (_, 0 | 1) => {
            let mut found = first(right).map(|new| diff(items, None, Some(new))).unwrap_or_default();
            found.removed.member = true;
            found
        }
        (n, m) => {
            let equal = n == m && left.iter().zip(right).all(|((_, a), (_, b))| same(a, b));
            Diff {
                touched: Part {
                    member: !equal,
                    children: FieldSet::new(),
                },
                removed: Part::default(),
                has_unknown_item: false,
            }
        }
    }
}

/// Returns an empty map: the fields of an object that does not exist.
pub(super) fn no_fields() -> &'static Map {
    &EMPTY_MAP
}
