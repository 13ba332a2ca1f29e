//! A crate of one test: `tests/starts.rs`.
