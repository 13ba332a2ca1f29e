//! `Clients`: verifies the client certificates of users and of front proxies.

use std::sync::Arc;

use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{self, DigitallySignedStruct, DistinguishedName, SignatureScheme};
use tokio_rustls::rustls::{RootCertStore, ServerConnection, crypto::CryptoProvider, server::WebPkiClientVerifier};

use super::subject;
use crate::api::front_proxy::FrontProxy;
use crate::api::user::UserInfo;

/// The client of a connection, identified by its certificate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peer {
    /// The user, if an authority of users signed the certificate.
    pub(crate) user: Option<Arc<UserInfo>>,
    /// Set if the client is a front proxy, which may set the user in headers.
    pub(crate) proxy: Option<Arc<FrontProxy>>,
    /// Set if the client sent a certificate that does not identify a user.
    pub(crate) is_unknown: bool,
}

/// Verifiers of client certificates, one for users and one for proxies.
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

    /// Returns the client of a connection after the handshake.
    pub(crate) fn peer(&self, connection: &ServerConnection) -> Peer {
        let Some([certificate, between @ ..]) = connection.peer_certificates() else {
            return Peer::default();
        };
        let named = subject::user(certificate);
        let believes = |verifier: &Arc<dyn ClientCertVerifier>| is_believed(&**verifier, certificate, between);
        let name = named.as_ref().map_or("", |it| &it.name);
        let proxies = self.proxies.as_ref();
        let proxy = proxies.filter(|(proxies, proxy)| proxy.allows(name) && believes(proxies));
        let user = named.filter(|_| believes(&self.users)).map(Arc::new);
        Peer {
            is_unknown: user.is_none(),
            user,
            proxy: proxy.map(|(_, proxy)| Arc::clone(proxy)),
        }
    }
}

/// Verifies that a certificate was issued by a trusted authority and has not expired. The handshake has already
/// verified that the client has the private key.
fn is_believed(
    verifier: &dyn ClientCertVerifier,
    certificate: &CertificateDer<'_>,
    between: &[CertificateDer<'_>],
) -> bool {
    verifier
        .verify_client_cert(certificate, between, UnixTime::now())
        .is_ok()
}

/// Returns a verifier of optional client certificates.
pub(super) fn verifier(
    roots: RootCertStore,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, rustls::Error> {
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .allow_unauthenticated()
        .build()
        .map_err(|err| rustls::Error::General(err.to_string()))
}

/// Accepts any certificate in the handshake, like Go's `tls.RequestClientCert`. If the server checks credentials, a
/// request with a certificate that is expired or from an unknown authority fails with 401, unless a token authenticates
/// it.
#[derive(Debug)]
pub(super) struct AnyCertificate(pub(super) Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for AnyCertificate {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
