//! `Clients`: whose certificates are believed, and for what: users', and those of proxies that name the user.

use std::sync::Arc;

use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{self};
use tokio_rustls::rustls::{RootCertStore, ServerConnection, crypto::CryptoProvider, server::WebPkiClientVerifier};

use super::subject;
use crate::api::front_proxy::FrontProxy;
use crate::api::user::UserInfo;

/// The client at the other end of a connection, as its certificate says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peer {
    /// The user, if the certificate is one of users.
    pub(crate) user: Option<Arc<UserInfo>>,
    /// Set if it is a proxy that may name the user.
    pub(crate) proxy: Option<Arc<FrontProxy>>,
    /// Set if there is a certificate that says neither.
    pub(crate) is_unknown: bool,
}

/// Verifiers of client certificates, by what these are believed for.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    users: Arc<dyn ClientCertVerifier>,
    proxies: Option<(Arc<dyn ClientCertVerifier>, Arc<FrontProxy>)>,
}

impl Clients {
    pub(super) fn new(
        users: RootCertStore,
        proxies: Option<(RootCertStore, Arc<FrontProxy>)>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, rustls::Error> {
        let proxies = match proxies {
            Some((roots, proxy)) => Some((verifier(roots, provider)?, proxy)),
            None => None,
        };
        Ok(Self {
            users: verifier(users, provider)?,
            proxies,
        })
    }

    /// The client of a connection whose handshake is done.
    pub(crate) fn peer(&self, connection: &ServerConnection) -> Peer {
        let Some([certificate, between @ ..]) = connection.peer_certificates() else {
            return Peer::default();
        };
        let named = subject::user(certificate);
        let Some((proxies, proxy)) = &self.proxies else {
            return Peer {
                user: named.map(Arc::new),
                ..Peer::default()
            };
        };
        let believes = |verifier: &Arc<dyn ClientCertVerifier>| is_believed(&**verifier, certificate, between);
        let name = named.as_ref().map_or("", |it| &it.name);
        let is_proxy = proxy.allows(name) && believes(proxies);
        let user = named.filter(|_| believes(&self.users)).map(Arc::new);
        Peer {
            is_unknown: user.is_none(),
            user,
            proxy: is_proxy.then(|| Arc::clone(proxy)),
        }
    }
}

/// The handshake has verified the certificate against all authorities together, this against some of them.
fn is_believed(
    verifier: &dyn ClientCertVerifier,
    certificate: &CertificateDer<'_>,
    between: &[CertificateDer<'_>],
) -> bool {
    verifier
        .verify_client_cert(certificate, between, UnixTime::now())
        .is_ok()
}

/// A verifier of certificates that clients need not show.
pub(super) fn verifier(
    roots: RootCertStore,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, rustls::Error> {
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .allow_unauthenticated()
        .build()
        .map_err(|err| rustls::Error::General(err.to_string()))
}
