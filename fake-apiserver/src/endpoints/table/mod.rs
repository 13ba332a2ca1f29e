//! Converts objects to rows of a Table, which kubectl prints. The server chooses the columns and cells (rules M2, M4,
//! E19). This module depends on neither HTTP nor storage.

mod tables;
mod columns;
mod printers;
mod custom;
pub(crate) mod jsonpath;
mod read;
mod duration;

pub(crate) use custom::PrinterColumn;
pub(crate) use tables::{Columns, IncludeObject, Tables};
