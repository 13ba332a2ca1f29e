//! `RequestKey`: the requirements of a controller's key.

use std::fmt;
use std::hash::Hash;

/// Requirements of a controller's key.
pub trait RequestKey: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static {}

impl<R: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static> RequestKey for R {}
