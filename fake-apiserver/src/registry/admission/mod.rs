//! Admission, which may change a write before validation, and may refuse it. The chain follows kube-apiserver: its
//! plugins, closures of the test, policies and webhooks; first the mutating ones, then the validating ones (rule P1).
//! It calls webhooks through [`Transport`].
//!
//! Reading order: `attributes` (a request as admission receives it), `chain` (the order), `plugins` (the server's own),
//! `hooks` (closures), `config` (parsed configuration objects), `matching` (the requests they select), `review` (the
//! messages sent to webhooks), `annotations` (of the audit event), `policies` (admission by expressions).

pub(crate) mod attributes;
mod chain;
pub(crate) mod plugins;
pub(crate) mod hooks;
mod config;
mod matching;
mod review;
mod annotations;
mod reinvocation;
mod webhooks;
mod status;
mod result;
#[cfg_attr(not(feature = "cel"), path = "policies/absent.rs")]
mod policies;

#[cfg(feature = "workers")]
pub(crate) use policies::type_warnings;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use config::Configured;
use hooks::Hooks;
use plugins::PluginSet;
use plugins::quota_controller::QuotaController;

use super::authorization::Authorization;
use super::reader::Reader;
use super::webhook::transport::{Transport, Unreachable};
use super::writer::Writer;

/// Admission options of a server, in addition to the objects in its storage.
#[derive(Clone, Debug)]
pub(crate) struct AdmissionSetup {
    /// Closures of a test.
    pub(crate) hooks: Hooks,
    /// Transport to webhooks.
    pub(crate) transport: Arc<dyn Transport>,
    /// The enabled plugins of the server.
    pub(crate) plugins: PluginSet,
}

impl Default for AdmissionSetup {
    fn default() -> Self {
        Self {
            hooks: Hooks::default(),
            transport: Arc::new(Unreachable),
            plugins: PluginSet::default(),
        }
    }
}

/// Admission control of one server: plugins, closures, policies and webhooks.
#[derive(Debug)]
pub(crate) struct Admission {
    reader: Arc<Reader>,
    writer: Arc<Writer>,
    authorization: Arc<Authorization>,
    /// The options set with the builder.
    setup: AdmissionSetup,
    /// Incremented when a configuration object is written.
    generation: AtomicU64,
    /// The parsed configuration objects, with the generation at which they were read.
    configured: Mutex<Option<(u64, Arc<Configured>)>>,
    /// Usage of ResourceQuotas, if the server updates it.
    quota_controller: QuotaController,
}

impl Admission {
    /// Creates the admission control with the options of the builder.
    pub(super) fn new(
        (reader, writer): (Arc<Reader>, Arc<Writer>),
        authorization: Arc<Authorization>,
        setup: AdmissionSetup,
    ) -> Self {
        Self {
            reader,
            writer,
            authorization,
            setup,
            generation: AtomicU64::new(0),
            configured: Mutex::default(),
            quota_controller: QuotaController::default(),
        }
    }

    /// Marks the parsed configuration as outdated.
    pub(crate) fn invalidate(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the current configuration. Parses it again after a change.
    fn configured(&self) -> Arc<Configured> {
        let generation = self.generation.load(Ordering::Acquire);
        let mut kept = self.configured.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, configured)) = kept.as_ref().filter(|(at, _)| *at == generation) {
            return Arc::clone(configured);
        }
        let configured = Arc::new(self.read_configuration());
        *kept = Some((generation, Arc::clone(&configured)));
        configured
    }
}
