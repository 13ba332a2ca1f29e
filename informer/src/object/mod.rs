//! Objects as the cache holds them: encoded, with the few facts that indexes, predicates and queues ask for.
//!
//! It knows neither sources nor handlers.

mod scan;
mod header;
mod body;
mod read;
#[cfg(feature = "compression")]
mod compressed;
mod facts;
#[expect(clippy::module_inception, reason = "`Object` is what the folder is about")]
mod object;

pub(crate) use body::Keep;
pub use body::Storage;
pub(crate) use body::{Managed, cut_managed_fields};
pub use facts::OwnerRef;
pub(crate) use header::{Header, Text, plain_text};
pub(crate) use object::type_name;
pub use object::{Cacheable, Object};
