//! `RequestKey`: requirements for the type of a controller's keys.

use std::fmt;
use std::hash::Hash;

/// Requirements for the type of a controller's keys.
pub trait RequestKey: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static {}

impl<R: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static> RequestKey for R {}
