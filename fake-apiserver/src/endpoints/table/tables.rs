//! `Tables`: builds the Tables of a request.

use jiff::Timestamp;

use super::columns::{CREATED_AT, Column, NAME};
use super::custom::{self, PrinterColumn};
use super::printers;
use super::read::TableRow;
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::api::status::Status;
use crate::endpoints::negotiation::MetaVersion;
use crate::endpoints::partial;
use crate::registry::scheme::Row;

/// Source of the columns of a Table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Columns<'a> {
    /// A built-in kind, including the Scale of a built-in resource.
    Builtin {
        /// API group of the kind.
        group: &'a str,
        /// The kind of one object.
        kind: &'a str,
    },
    /// The columns of a custom resource's version, from [`PrinterColumn::all`].
    Custom(&'a [PrinterColumn]),
}

/// The part of the object that a row contains: the `includeObject` parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    /// Nothing.
    None,
    /// The metadata of the object.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// Parses the parameter. The default for an absent or empty parameter is `Metadata`.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, Status> {
        match text.unwrap_or_default() {
            "None" => Ok(Self::None),
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            other => {
                let quoted = crate::api::field::quote(other);
                let why =
                    format!("includeObject: Invalid value: {quoted}: must be 'Metadata', 'Object', 'None', or empty");
                Err(Status::bad_request(format!(
                    "Unable to convert to Table as requested: {why}"
                )))
            }
        }
    }
}

/// Options of the Tables of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables<'a> {
    /// The columns of the kind.
    pub(crate) columns: Columns<'a>,
    /// Row of the requested version, if the cells and metadata are taken from a different, stored version.
    pub(crate) converted: Option<&'a Row>,
    /// The requested version of Table.
    pub(crate) version: MetaVersion,
    /// The part of the object that a row contains.
    pub(crate) include: IncludeObject,
    /// The current time, from which ages are computed.
    pub(crate) now: Timestamp,
}

impl Tables<'_> {
    /// Returns the Table of one object. A Status is returned unchanged, because it is not an object of the kind (rule
    /// M5).
    pub(crate) fn of_object(&self, object: &Object) -> Value {
        if object.kind() == "Status" && object.api_version() == "v1" {
            return Value::Object(object.0.clone());
        }
        self.one_row(object, self.column_definitions())
    }

    /// Returns the Table of a watch event's object; only the Table of the first event contains the column definitions.
    /// A bookmark also has a row, with its annotations in the metadata. The Status of an error is returned unchanged.
    pub(crate) fn of_event(&self, object: &Object, is_first: bool) -> Value {
        if is_first {
            self.of_object(object)
        } else if object.kind() == "Status" && object.api_version() == "v1" {
            Value::Object(object.0.clone())
        } else {
            self.one_row(object, Value::Null)
        }
    }

    /// Returns the Table of a list; `metadata` is the metadata of the list, `items` have kind and apiVersion.
    pub(crate) fn of_list<'o>(&self, metadata: Option<&Map>, items: impl IntoIterator<Item = &'o Object>) -> Value {
        let mut items: Vec<&Object> = items.into_iter().collect();
        if matches!(self.columns, Columns::Builtin { kind: "FlowSchema", .. }) {
            // kubectl shows FlowSchemas in the order in which the server evaluates them.
            let precedence = |it: &&Object| it.get("spec").and_then(|spec| spec.get("matchingPrecedence")?.as_i64());
            items.sort_by_key(precedence);
        }
        let rows: Vec<Value> = items.into_iter().map(|it| self.row(it)).collect();
        let rows = match self.columns {
            // Go's default table converter returns null instead of an empty list.
            Columns::Builtin { group, kind } if rows.is_empty() && printers::printer_of(group, kind).is_none() => {
                Value::Null
            }
            Columns::Builtin { .. } | Columns::Custom(_) => rows.into(),
        };
        self.table(partial::list_metadata(metadata), self.column_definitions(), rows)
    }

    fn one_row(&self, object: &Object, definitions: Value) -> Value {
        let mut metadata = Map::new();
        let version = object.meta_str("resourceVersion");
        if !version.is_empty() {
            metadata.insert("resourceVersion".into(), version.into());
        }
        self.table(Value::Object(metadata), definitions, vec![self.row(object)].into())
    }

    fn table(&self, metadata: Value, definitions: Value, rows: Value) -> Value {
        json!({
            "kind": "Table",
            "apiVersion": self.version.api_version(),
            "metadata": metadata,
            "columnDefinitions": definitions,
            "rows": rows,
        })
    }

    /// Returns the definitions of the columns: name, type, format, description and priority.
    pub(crate) fn column_definitions(&self) -> Value {
        Value::Array(match self.columns {
            Columns::Custom(columns) => custom::definitions(columns),
            Columns::Builtin { group, kind } => {
                let columns = printers::printer_of(group, kind).map_or(&[NAME, CREATED_AT][..], |it| it.columns);
                columns.iter().map(Column::definition).collect()
            }
        })
    }

    /// Returns one cell for each column.
    pub(crate) fn cells(&self, object: &Object) -> Vec<Value> {
        match self.columns {
            Columns::Custom(columns) => custom::cells(columns, object, self.now),
            Columns::Builtin { group, kind } => {
                let row = TableRow { object, now: self.now };
                match printers::printer_of(group, kind) {
                    Some(printer) => (printer.cells)(row),
                    None => vec![row.name(), created_at(object)],
                }
            }
        }
    }

    fn row(&self, object: &Object) -> Value {
        let stored = self.converted.map(|row| {
            let mut stored = object.clone();
            row.to_storage(&mut stored);
            stored
        });
        let whole = object;
        let object = stored.as_ref().unwrap_or(object);
        let mut row = Map::new();
        row.insert("cells".into(), self.cells(object).into());
        if matches!(self.columns, Columns::Builtin { group: "", kind: "Pod" }) {
            let conditions = printers::pod_row_conditions(TableRow { object, now: self.now });
            row.extend(conditions.map(|it| ("conditions".to_owned(), it)));
        }
        let object = match self.include {
            IncludeObject::None => Value::Null,
            IncludeObject::Metadata => partial::object(object, self.version),
            IncludeObject::Object => Value::Object(whole.0.clone()),
        };
        row.insert("object".into(), object);
        Value::Object(row)
    }
}

/// Returns the creation time as stored. Objects without a creation time get Go's zero time.
fn created_at(object: &Object) -> Value {
    match object.meta_str("creationTimestamp") {
        "" => "0001-01-01T00:00:00Z".into(),
        time => time.into(),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
