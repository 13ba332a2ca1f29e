//! The informer and controller library.
