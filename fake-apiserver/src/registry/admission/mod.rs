//! Admission: what may change a write before it is checked, and refuse it after. The chain is the API server's: its own
//! plugins, closures of the test, policies and webhooks, first those that change, then those that validate (rule P1).
//! It knows the vocabulary and the registry; webhooks are reached through [`Transport`].
//!
//! In the order in which to read them: `attributes` is what a request is for admission, `chain` the order, `plugins`
//! the server's own, `hooks` closures, `config` what configuration objects say, `matching` which requests they mean,
//! `review` what a webhook is asked and answers, `annotations` what its call leaves in the audit event, `policies`
//! admission by expressions.

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

/// Admission options of a server, beside the objects in its storage.
#[derive(Clone, Debug)]
pub(crate) struct AdmissionSetup {
    /// Closures of the test.
    pub(crate) hooks: Hooks,
    /// Transport to webhooks.
    pub(crate) transport: Arc<dyn Transport>,
    /// The server's own plugins that are on.
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

/// Admission of one server.
#[derive(Debug)]
pub(crate) struct Admission {
    reader: Arc<Reader>,
    writer: Arc<Writer>,
    authorization: Arc<Authorization>,
    /// Options from the builder.
    setup: AdmissionSetup,
    /// Raised when a configuration object is written.
    generation: AtomicU64,
    /// Configuration objects, read at a generation.
    configured: Mutex<Option<(u64, Arc<Configured>)>>,
    /// Usage of ResourceQuotas, where it is counted.
    quota_controller: QuotaController,
}

impl Admission {
    /// Admission as the builder wants it.
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

    /// Says that configuration objects may have changed.
    pub(crate) fn invalidate(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the current configuration, which is read once a change.
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
