//! The checks of the Pod Security Standards.
