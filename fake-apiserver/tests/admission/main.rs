//! Admission at the HTTP boundary: what changes a write, what refuses it, and in which words. Webhooks are services in
//! this process, called under the configuration objects a real cluster would have; the clock stands still.

mod annotations;
mod ask;
mod closures;
mod conversion;
mod hostile;
#[cfg(feature = "tls")]
mod network;
mod plugins;
#[cfg(feature = "cel")]
mod policies;
mod webhooks;
