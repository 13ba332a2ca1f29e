//! `Trace`: a failing test as one document, and the page that shows it.
//!
//! A [`Trace`] contains the steps of one run, or of two runs side by side, the fields that each write changed, and the
//! versions of every object. [`Trace::to_json`] returns the document (`docs/trace.md` of the testkit describes its
//! format); [`Trace::to_html`] returns a self-contained page. [`Run::of`] reads a run from the journal of a server.

mod changes;
mod document;
mod journal;
mod page;
mod versions;

pub use changes::{Change, changes};
pub use document::{Failure, Group, Log, Row, Run, Step, StepKind, Tone, Trace, VERSION, Version};
pub use journal::{Mark, Marks, steps};
pub use versions::{Writes, Written};
