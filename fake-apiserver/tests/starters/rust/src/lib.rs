//! A crate with only one test: `tests/starts.rs`.
