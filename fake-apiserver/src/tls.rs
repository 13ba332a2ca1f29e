//! TLS: a certificate authority and a server certificate made for one server, and gone with it.

mod subject;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig, ServerConnection};

use crate::api::user::UserInfo;
use crate::kubeconfig::Credentials;

type Authority = CertifiedIssuer<'static, KeyPair>;

/// The names every certificate is good for.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The administrator, as kubeadm names it.
const ADMIN: (&str, &str) = ("kubernetes-admin", "system:masters");

/// What a server needs to speak TLS, and what its clients need for it.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The client's side.
    pub(crate) credentials: Credentials,
    /// The server's side of the handshake.
    pub(crate) config: Arc<ServerConfig>,
}

impl Identity {
    /// A new authority, a certificate of it for loopback and for `address`, and one for the administrator.
    ///
    /// Keys are drawn from the system's randomness, not from the server's seed: they are no part of what a run does.
    pub(crate) fn generate(address: IpAddr) -> io::Result<Self> {
        let failed = io::Error::other::<rcgen::Error>;
        let authority = authority().map_err(failed)?;
        let (server, server_key) = server_certificate(&authority, address).map_err(failed)?;
        let (admin, admin_key) = admin_certificate(&authority).map_err(failed)?;
        let config = server_config(&authority, server.der().clone(), &server_key).map_err(io::Error::other)?;
        Ok(Self {
            credentials: Credentials {
                ca: authority.pem(),
                certificate: admin.pem(),
                key: admin_key.serialize_pem(),
            },
            config: Arc::new(config),
        })
    }
}

/// The user whose certificate was verified in the handshake, if the client showed one.
pub(crate) fn user(connection: &ServerConnection) -> Option<UserInfo> {
    subject::user(connection.peer_certificates()?.first()?)
}

fn authority() -> Result<Authority, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject_name(&[(DnType::CommonName, "fake-apiserver-ca")]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
    ];
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

fn server_certificate(authority: &Authority, address: IpAddr) -> Result<(Certificate, KeyPair), rcgen::Error> {
    let mut names: Vec<String> = NAMES.map(String::from).into();
    if !address.is_loopback() && !address.is_unspecified() {
        names.push(address.to_string());
    }
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = subject_name(&[(DnType::CommonName, "fake-apiserver")]);
    sign(authority, params, ExtendedKeyUsagePurpose::ServerAuth)
}

fn admin_certificate(authority: &Authority) -> Result<(Certificate, KeyPair), rcgen::Error> {
    let (user, group) = ADMIN;
    let mut params = CertificateParams::default();
    params.distinguished_name = subject_name(&[(DnType::OrganizationName, group), (DnType::CommonName, user)]);
    sign(authority, params, ExtendedKeyUsagePurpose::ClientAuth)
}

fn sign(
    authority: &Authority,
    mut params: CertificateParams,
    purpose: ExtendedKeyUsagePurpose,
) -> Result<(Certificate, KeyPair), rcgen::Error> {
    // Strict clients (Python since 3.13) refuse a chain without the authority's key identifier.
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, authority)?;
    Ok((certificate, key))
}

fn server_config(
    authority: &Authority,
    certificate: CertificateDer<'static>,
    key: &KeyPair,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone())?;
    // A client may show a certificate; one that the authority did not sign fails the handshake.
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .map_err(|err| rustls::Error::General(err.to_string()))?;
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![certificate], key.into())?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn subject_name(parts: &[(DnType, &str)]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    for (kind, text) in parts {
        name.push(kind.clone(), *text);
    }
    name
}
