//! The mutex for state that threads change in more than one critical section. In unit tests, it is replaced with a
//! mutex that interleaves these sections.

#[cfg(test)]
pub(crate) use crate::interleave::Mutex;
#[cfg(not(test))]
pub(crate) use std::sync::Mutex;
