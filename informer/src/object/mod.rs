//! Objects as caches store them: by default as JSON text, together with the metadata that indexes, predicates and
//! queues need.
//!
//! This module does not depend on the sources of objects or on handlers.

mod scan;
mod header;
mod body;
mod read;
#[cfg(feature = "compression")]
mod compressed;
mod facts;
mod cached_object;
mod item_types;

pub(crate) use body::Keep;
pub use body::Storage;
pub(crate) use body::{Managed, cut_managed_fields};
pub(crate) use cached_object::type_name;
pub use cached_object::{Cacheable, CachedObject};
pub use facts::OwnerRef;
pub(crate) use header::{Header, Text, plain_text};
pub(crate) use item_types::ItemTypes;
