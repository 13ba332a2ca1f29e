//! The mutex for state that several threads change in more than one critical section. Unit tests interleave these
//! sections.

#[cfg(test)]
pub(crate) use crate::interleave::Mutex;
#[cfg(not(test))]
pub(crate) use std::sync::Mutex;
