//! A crate with a single test: `tests/starts.rs`.
