//! TLS: a certificate authority and a server certificate made for one server, and gone with it.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

/// The names every certificate is good for.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// What a server needs to speak TLS, and what its clients need to trust it.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The certificate of the authority, as PEM.
    pub(crate) ca: String,
    /// The server's side of the handshake.
    pub(crate) config: Arc<ServerConfig>,
}

impl Identity {
    /// A new authority and a certificate of it for loopback and for `address`.
    ///
    /// Keys are drawn from the system's randomness, not from the server's seed: they are no part of what a run does.
    pub(crate) fn generate(address: IpAddr) -> io::Result<Self> {
        let authority = authority().map_err(io::Error::other)?;
        let config = server_config(&authority, address)?;
        Ok(Self {
            ca: authority.pem(),
            config: Arc::new(config),
        })
    }
}

fn authority() -> Result<CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name("fake-apiserver-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
    ];
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

fn server_config(authority: &CertifiedIssuer<'_, KeyPair>, address: IpAddr) -> io::Result<ServerConfig> {
    let mut names: Vec<String> = NAMES.map(String::from).into();
    if !address.is_loopback() && !address.is_unspecified() {
        names.push(address.to_string());
    }
    let mut params = CertificateParams::new(names).map_err(io::Error::other)?;
    params.distinguished_name = common_name("fake-apiserver");
    // Strict clients (Python since 3.13) refuse a chain without the authority's key identifier.
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().map_err(io::Error::other)?;
    let certificate = params.signed_by(&key, authority).map_err(io::Error::other)?;

    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        // Client certificates are not asked for; a verifier for them goes here, and `serve::Peer` hands on what it saw.
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        )
        .map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished_name = DistinguishedName::new();
    distinguished_name.push(DnType::CommonName, name);
    distinguished_name
}
