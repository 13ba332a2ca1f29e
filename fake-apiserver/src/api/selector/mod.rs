//! Label and field selectors, which select the objects of a list, watch or deletecollection (rules F1 to F3).

mod label;
mod label_parser;
mod field;
mod syntax;

pub use field::{FieldOperator, FieldSelector, FieldTerm};
pub use label::{LabelOperator, LabelRequirement, LabelSelector};
