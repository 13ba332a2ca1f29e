//! The vocabulary: data only, no clock, no lock, no HTTP. It knows no other layer.

pub mod resource;
pub mod object;
pub mod field;
pub mod status;
pub mod selector;
