//! `CertWatcher`: a certificate that is reloaded when its files change (controller-runtime's `certwatcher`).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::sleep;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::metrics::{Collect, Metrics, Samples};

/// Interval at which the files are checked.
const INTERVAL: Duration = Duration::from_secs(10);

/// A server certificate with its private key.
#[derive(Clone)]
pub struct Certificate(Arc<CertifiedKey>);

impl Certificate {
    /// Parses a certificate chain and its private key, both in PEM.
    ///
    /// # Errors
    ///
    /// Fails if the chain or the key cannot be parsed, or if the key does not match the certificate.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, Error> {
        let refused = |err: &dyn fmt::Display| Error::refused(format!("certificate: {err}"));
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
        let chain = chain.map_err(|err| refused(&err))?;
        if chain.is_empty() {
            return Err(Error::refused("certificate: the text does not contain a certificate"));
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|err| Error::refused(format!("key: {err}")))?;
        let key = ring::sign::any_supported_type(&key).map_err(|err| Error::refused(format!("key: {err}")))?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {}
            Err(err) => return Err(refused(&err)),
        }
        Ok(Self(Arc::new(certified)))
    }
}

/// A certificate that is reloaded when its files change, so that servers do not have to be restarted. While it
/// [runs](Self::run), it checks the files every 10 s. If the files cannot be read or do not match, it keeps the current
/// certificate. Clones share the certificate.
///
/// ```
/// use informer::runtime::CertWatcher;
///
/// # fn read() -> Result<(), informer::Error> {
/// let certificates = CertWatcher::new("certs/tls.crt", "certs/tls.key")?;
/// println!("read {} times", certificates.reads());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CertWatcher(Arc<Inner>);

struct Inner {
    /// Files of the certificate and the key; `None` for a fixed certificate.
    files: Option<(PathBuf, PathBuf)>,
    /// Guards the certificate.
    state: Mutex<State>,
}

struct State {
    current: Arc<CertifiedKey>,
    /// Contents of both files when they were last read.
    texts: (Vec<u8>, Vec<u8>),
    reads: u64,
    errors: u64,
}

impl CertWatcher {
    /// Reads a certificate and its private key from PEM files.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read or parsed, or if the key does not match the certificate.
    pub fn new(certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Self, Error> {
        let files = (certificate.as_ref().to_owned(), key.as_ref().to_owned());
        let texts = read(&files)?;
        let current = Certificate::from_pem(&texts.0, &texts.1)?.0;
        Ok(Self::of(Some(files), current, texts))
    }

    fn of(files: Option<(PathBuf, PathBuf)>, current: Arc<CertifiedKey>, texts: (Vec<u8>, Vec<u8>)) -> Self {
        Self(Arc::new(Inner {
            files,
            state: Mutex::new(State {
                current,
                texts,
                reads: 1,
                errors: 0,
            }),
        }))
    }

    /// Registers the metrics `certwatcher_read_certificate_total` and `certwatcher_read_certificate_errors_total`.
    #[must_use]
    pub fn metrics(self, metrics: &Metrics) -> Self {
        let collector: Arc<dyn Collect> = self.0.clone();
        metrics.register(&collector);
        self
    }

    /// Returns the number of times that a certificate was loaded, including the first one.
    pub fn reads(&self) -> u64 {
        self.with(|state| state.reads)
    }

    /// Checks the files every 10 s until `stop` is cancelled.
    pub async fn run(&self, stop: CancellationToken) {
        while stop.run_until_cancelled(sleep(INTERVAL)).await.is_some() {
            if let Err(error) = self.reload() {
                tracing::error!(%error, "the certificate could not be reloaded");
            }
        }
    }

    /// Checks the files immediately. Returns `true` if the certificate has changed.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read or parsed, or if certificate and key do not match, for example because only one
    /// of the files has been replaced.
    pub fn reload(&self) -> Result<bool, Error> {
        let Some(files) = &self.0.files else {
            return Ok(false);
        };
        let read = read(files).and_then(|texts| {
            if self.with(|state| state.texts == texts) {
                return Ok(None);
            }
            let current = Certificate::from_pem(&texts.0, &texts.1)?.0;
            Ok(Some((current, texts)))
        });
        self.with(|state| match read {
            Ok(None) => Ok(false),
            Ok(Some((current, texts))) => {
                (state.current, state.texts) = (current, texts);
                state.reads += 1;
                Ok(true)
            }
            Err(err) => {
                state.errors += 1;
                Err(err)
            }
        })
    }

    /// Returns the TLS configuration for a server that does not request client certificates.
    pub(crate) fn server_config(&self) -> Arc<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder
            .with_safe_default_protocol_versions()
            .expect("the crypto provider has cipher suites for both TLS versions");
        let resolver = Arc::new(Resolver(Arc::clone(&self.0)));
        let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }

    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl From<Certificate> for CertWatcher {
    fn from(certificate: Certificate) -> Self {
        Self::of(None, certificate.0, <(Vec<u8>, Vec<u8>)>::default())
    }
}

fn read(files: &(PathBuf, PathBuf)) -> Result<(Vec<u8>, Vec<u8>), Error> {
    let read = |path: &Path| std::fs::read(path).map_err(|err| Error::refused(format!("{}: {err}", path.display())));
    Ok((read(&files.0)?, read(&files.1)?))
}

/// Returns the current certificate during TLS handshakes.
struct Resolver(Arc<Inner>);

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&state.current))
    }
}

impl Collect for Inner {
    fn collect(&self, samples: &mut Samples) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let help = "Total number of certificate reads";
        let reads = (state.reads + state.errors) as f64;
        samples.counter("certwatcher_read_certificate_total", help, &[], reads);
        let help = "Total number of certificate read errors";
        samples.counter(
            "certwatcher_read_certificate_errors_total",
            help,
            &[],
            state.errors as f64,
        );
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificate")
    }
}

impl fmt::Debug for CertWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertWatcher")
            .field("files", &self.0.files)
            .field("reads", &self.reads())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}
