//! Objects as rows of a Table, which kubectl shows: columns and cells are the server's choice (rules M2, M4, E19).
//! It knows no HTTP and no storage: objects come in, a Table goes out.

mod tables;
mod columns;
mod printers;
mod custom;
mod jsonpath;
mod read;
mod duration;

pub(crate) use custom::PrinterColumn;
pub(crate) use tables::{Columns, IncludeObject, Tables};
