//! TLS to a webhook or an aggregated API server. Certificates are verified only with `caBundle`, and not at all if an
//! APIService sets `insecureSkipTLSVerify`.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::trust::Trust;

const UNKNOWN_AUTHORITY: &str = "tls: failed to verify certificate: x509: certificate signed by unknown authority";

/// Performs the handshake. Errors have Go's message, if Go has an equivalent error.
pub(super) async fn secure(stream: TcpStream, host: &str, trust: &Trust<'_>) -> Result<TlsStream<TcpStream>, String> {
    let config = config(trust)?;
    let name = ServerName::try_from(host.to_owned()).map_err(|_| format!("invalid server name {host:?}"))?;
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    connected.map_err(|error| {
        let inner = error.get_ref().and_then(|it| it.downcast_ref::<Error>());
        match inner {
            Some(Error::InvalidCertificate(why)) => match why {
                // An authority with the same name but a different key is also reported as unknown.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => UNKNOWN_AUTHORITY.to_owned(),
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "tls: failed to verify certificate: x509: certificate has expired or is not yet valid".to_owned()
                }
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    format!("tls: failed to verify certificate: x509: certificate is not valid for {host}")
                }
                other => format!("tls: failed to verify certificate: {other}"),
            },
            Some(other) => format!("tls: {other}"),
            None => error.to_string(),
        }
    })
}

fn config(trust: &Trust<'_>) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    let mut bundle = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(trust.ca_bundle) {
        let certificate = certificate.map_err(|_| "unable to load root certificates".to_owned())?;
        // A certificate that is not an authority can still be the server's own certificate.
        let _ = roots.add(certificate.clone());
        bundle.push(certificate);
    }
    if bundle.is_empty() && !trust.skips_checks {
        // The system's authorities are not used: without a bundle, no server is trusted.
        return Err(UNKNOWN_AUTHORITY.to_owned());
    }
    let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
    let verifier = Bundle {
        bundle,
        chain: chain.ok(),
        accepts_all: trust.skips_checks,
        provider: Arc::clone(&provider),
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let Some(identity) = trust.identity else {
        return Ok(config.with_no_client_auth());
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&identity.certificate).collect();
    let chain = chain.map_err(|error| error.to_string())?;
    let key = PrivateKeyDer::from_pem_slice(&identity.key).map_err(|error| error.to_string())?;
    config
        .with_client_auth_cert(chain, key)
        .map_err(|error| error.to_string())
}

/// Trusts certificates signed by an authority in the bundle, and the certificates in the bundle themselves. Webhooks in
/// development often serve the same certificate that is in the bundle, which Go accepts and webpki refuses.
#[derive(Debug)]
struct Bundle {
    bundle: Vec<CertificateDer<'static>>,
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// Set by `insecureSkipTLSVerify` of an APIService.
    accepts_all: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Bundle {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.accepts_all {
            return Ok(ServerCertVerified::assertion());
        }
        if self.bundle.iter().any(|it| it == end_entity) {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        match &self.chain {
            Some(chain) => chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now),
            None => Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        tokio_rustls::rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        tokio_rustls::rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
