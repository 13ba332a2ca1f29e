//! Admission at the HTTP boundary: mutations, refusals, and their messages. Webhooks are services in this process,
//! called for the same configuration objects as in a real cluster, with a paused clock.

mod annotations;
mod ask;
mod closures;
mod conversion;
mod hostile;
mod mutations;
#[cfg(feature = "tls")]
mod network;
mod order;
mod plugins;
mod pod_security;
#[cfg(feature = "cel")]
mod policies;
mod quotas;
mod references;
mod service_accounts;
mod webhooks;
