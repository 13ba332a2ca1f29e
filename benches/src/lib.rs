//! Shared code of the benchmarks: the clock, the objects, and the measured operations.

pub mod measure;
pub mod counting;
pub mod cpu;
pub mod objects;
pub mod requests;
pub mod writes;
pub mod server_writes;
pub mod reads;
pub mod fanout;
pub mod controllers;
pub mod our_controllers;
pub mod mirror;
pub mod informers;
pub mod reconciles;
pub mod written;
pub mod explorations;
pub mod instructions;
pub mod growth;
pub mod plot;
