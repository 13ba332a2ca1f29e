//! Prints objects of built-in types like Go: the fields of structs in the order of their declaration, and maps sorted
//! by key (rule A32).

use serde::{Serialize, Serializer};

use super::schema::builtin::{Kind, Shape, StructType, shape_of};
use crate::api::json::{Map, SmolStr, Value};
use crate::api::print::Printer;

/// An entry to print: its position in the Go struct, its name, and its value.
#[derive(Clone, Copy)]
struct Entry<'a> {
    place: u8,
    name: &'a str,
    value: &'a Value,
    shape: Option<&'static Shape>,
}

/// A writer of typed values. `entries` is a stack of the sorted entries of the enclosing objects.
pub(crate) struct TypedPrinter<'a> {
    entries: Vec<Entry<'a>>,
}

impl<'a> TypedPrinter<'a> {
    /// Creates a printer.
    pub(crate) fn new() -> Self {
        Self {
            entries: Vec::with_capacity(64),
        }
    }

    /// Writes the entries of an object in Go's order, without its braces and without the entries in `omitted`. Calls
    /// `each` with the position of each entry before the entry is written.
    pub(crate) fn entries(
        &mut self,
        shape: &'static Shape,
        map: &'a Map,
        omitted: &[&str],
        out: &mut Printer,
        each: &mut dyn FnMut(u8, &Printer),
    ) {
        let start = self.entries.len();
        let mut fields = shape.structure().map(StructType::fields_in_order);
        let values = shape.values();
        for (name, value) in map {
            let name = name.as_str();
            if omitted.contains(&name) {
                continue;
            }
            let field = match &mut fields {
                Some(fields) => fields.find(name),
                None => None,
            };
            self.entries.push(Entry {
                place: match field {
                    Some(field) => field.place(),
                    // Fields that the type does not declare are printed last.
                    None if fields.is_some() => u8::MAX,
                    None => 0,
                },
                name,
                value,
                shape: match field {
                    Some(field) => Some(field.shape()),
                    None => values,
                },
            });
            self.sink(start);
        }
        for at in start..self.entries.len() {
            let Entry {
                place,
                name,
                value,
                shape,
            } = self.entries[at];
            each(place, out);
            out.key(name);
            match shape {
                Some(shape) => self.value(shape, value, out),
                None => out.value(value),
            }
            out.comma();
        }
        self.entries.truncate(start);
    }

    /// Moves the last entry before the entries from `start` that follow it in Go's order. Entries with equal positions
    /// remain sorted by name. A struct has few fields, so a sort would cost more than these comparisons.
    fn sink(&mut self, start: usize) {
        let entries = &mut self.entries[start..];
        let mut at = entries.len() - 1;
        let last = entries[at];
        while at > 0 && entries[at - 1].place > last.place {
            entries[at] = entries[at - 1];
            at -= 1;
        }
        entries[at] = last;
    }

    /// Writes a value of this type.
    fn value(&mut self, shape: &'static Shape, value: &'a Value, out: &mut Printer) {
        match (shape.kind(), value) {
            (Kind::Struct(_) | Kind::Map(_), Value::Object(map)) => {
                out.open(b'{');
                self.entries(shape, map, &[], out, &mut |_, _| {});
                out.close(b'}');
            }
            (Kind::List(_), Value::Array(items)) => {
                let of = shape.items();
                out.open(b'[');
                for item in items {
                    match of {
                        Some(of) => self.value(of, item, out),
                        None => out.value(item),
                    }
                    out.comma();
                }
                out.close(b']');
            }
            (Kind::SchemaOrArray(_) | Kind::SchemaOrBool(_) | Kind::SchemaOrStrings(_), Value::Object(_)) => {
                match shape.alternative() {
                    Some(schema) => self.value(schema, value, out),
                    None => out.value(value),
                }
            }
            _ => out.value(value),
        }
    }
}

/// A value that is serialized with its fields in Go's order. Built-in objects have the order of their types. Lists of
/// built-in objects and objects of `meta.k8s.io` begin with `kind`, `apiVersion` and `metadata`. Other values have
/// sorted keys.
pub(crate) struct AsGoPrints<'a>(pub(crate) &'a Value);

impl Serialize for AsGoPrints<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const FIRST: [&str; 3] = ["kind", "apiVersion", "metadata"];
        let Some(map) = self.0.as_object() else {
            return self.0.serialize(serializer);
        };
        let text = |name: &str| map.get(name).and_then(Value::as_str).unwrap_or_default();
        let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
        let kind = text("kind");
        if let Some(shape) = shape_of(group, version, kind) {
            let value = self.0;
            return Typed { shape, value }.serialize(serializer);
        }
        let item = kind.strip_suffix("List").and_then(|it| shape_of(group, version, it));
        if item.is_none() && group != "meta.k8s.io" {
            return self.0.serialize(serializer);
        }
        let list = shape_of("meta.k8s.io", "v1", "ListMeta");
        let first = FIRST.iter().filter_map(|key| map.get_key_value(key));
        let rest = map.iter().filter(|(key, _)| !FIRST.contains(&key.as_str()));
        serializer.collect_map(first.chain(rest).map(|(key, value)| {
            let part = match key.as_str() {
                "metadata" => Part::Of(list, value),
                "items" => Part::Items(item, value),
                _ => Part::Of(None, value),
            };
            (key, part)
        }))
    }
}

/// A value in a printed map: a single value, or the items of a list.
enum Part<'a> {
    Of(Option<&'static Shape>, &'a Value),
    Items(Option<&'static Shape>, &'a Value),
}

impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Of(Some(shape), value) => Typed { shape, value }.serialize(serializer),
            Self::Items(Some(shape), Value::Array(items)) => {
                serializer.collect_seq(items.iter().map(|value| Typed { shape, value }))
            }
            Self::Of(None, value) | Self::Items(_, value) => value.serialize(serializer),
        }
    }
}

/// A value of a built-in type.
struct Typed<'a> {
    shape: &'static Shape,
    value: &'a Value,
}

impl Serialize for Typed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { shape, value } = *self;
        match (shape.kind(), value) {
            (Kind::Struct(_) | Kind::Map(_), Value::Object(map)) => {
                let structure = shape.structure();
                let mut entries: Vec<(u8, &SmolStr, Part<'_>)> = map
                    .iter()
                    .map(
                        |(name, value)| match (structure, structure.and_then(|it| it.field(name))) {
                            (_, Some(field)) => (field.place(), name, Part::Of(Some(field.shape()), value)),
                            (Some(_), None) => (u8::MAX, name, Part::Of(None, value)),
                            (None, None) => (0, name, Part::Of(shape.values(), value)),
                        },
                    )
                    .collect();
                entries.sort_by_key(|it| it.0);
                serializer.collect_map(entries.iter().map(|(_, name, part)| (name, part)))
            }
            (Kind::List(_), _) => Part::Items(shape.items(), value).serialize(serializer),
            (Kind::SchemaOrArray(_) | Kind::SchemaOrBool(_) | Kind::SchemaOrStrings(_), Value::Object(_)) => {
                Part::Of(shape.alternative(), value).serialize(serializer)
            }
            _ => value.serialize(serializer),
        }
    }
}
