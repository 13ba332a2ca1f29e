//! A controller as an operator author writes it, for the examples to test: nothing in it knows that it is tested.

pub mod document;
