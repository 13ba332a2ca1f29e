//! Columns of built-in kinds, and columns shared by many kinds.

use crate::api::json::{Value, json};

/// One column of a built-in kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    /// `string`, `integer`, `boolean` or `date`.
    pub(super) kind: &'static str,
    /// `name` for the object's name, otherwise empty.
    pub(super) format: &'static str,
    pub(super) description: &'static str,
    /// 1 for columns that are only shown in wide output, otherwise 0.
    pub(super) priority: i64,
}

impl Column {
    /// Defines a column of strings.
    pub(super) const fn text(name: &'static str, description: &'static str) -> Self {
        Self::of("string", name, description)
    }

    /// Defines a column of integers.
    pub(super) const fn integer(name: &'static str, description: &'static str) -> Self {
        Self::of("integer", name, description)
    }

    /// Defines a column of booleans.
    pub(super) const fn boolean(name: &'static str, description: &'static str) -> Self {
        Self::of("boolean", name, description)
    }

    const fn of(kind: &'static str, name: &'static str, description: &'static str) -> Self {
        Self {
            name,
            kind,
            format: "",
            description,
            priority: 0,
        }
    }

    /// Restricts the column to wide output.
    pub(super) const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }

    /// Sets the format `name`.
    pub(super) const fn with_name_format(self) -> Self {
        Self { format: "name", ..self }
    }

    pub(super) fn definition(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }
}

/// Description of `name` in ObjectMeta.
pub(super) const NAME_DOC: &str = "Name must be unique within a namespace. Is required when creating resources, \
     although some resources may \
     allow a client to request the generation of an appropriate name automatically. Name is primarily intended \
     for creation idempotence and configuration definition. Cannot be updated. More info: \
     https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
/// Description of `creationTimestamp` in ObjectMeta.
pub(super) const CREATED_DOC: &str = "CreationTimestamp is a timestamp representing the server time when this object \
     was created. It is not \
     guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It \
     is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More \
     info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

pub(super) const NAME: Column = Column::text("Name", NAME_DOC).with_name_format();
pub(super) const AGE: Column = Column::text("Age", CREATED_DOC);
pub(super) const CREATED_AT: Column = Column::of("date", "Created At", CREATED_DOC);
/// The column `Age` of custom resources that do not declare columns.
pub(super) const CUSTOM_AGE: Column = Column::of("date", "Age", CREATED_DOC);
pub(super) const CONTAINERS: Column = Column::text("Containers", "Names of each container in the template.").wide();
pub(super) const IMAGES: Column = Column::text("Images", "Images referenced by each container in the template.").wide();
