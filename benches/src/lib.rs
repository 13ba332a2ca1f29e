//! What the benchmarks share: the clock, the objects, and the operations that are measured.

pub mod measure;
pub mod cpu;
pub mod objects;
pub mod requests;
pub mod writes;
pub mod reads;
pub mod fanout;
pub mod controllers;
pub mod mirror;
pub mod informers;
pub mod reconciles;
pub mod explorations;
