//! Patches: JSON, merge and strategic.
