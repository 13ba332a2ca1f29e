//! TLS: a certificate authority and a server certificate, created for one server and dropped with it.

mod clients;
mod der;
mod keys;
mod subject;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

use crate::api::front_proxy::FrontProxy;
use crate::kubeconfig::Credentials;
pub(crate) use clients::Clients;
pub use keys::ServiceAccountKeys;

type Authority = CertifiedIssuer<'static, KeyPair>;

/// Names for which every generated server certificate is valid.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Name of the administrator, as in kubeadm's `admin.conf`, and a group that has all permissions.
const ADMIN: (&str, &str) = ("kubernetes-admin", "system:masters");

/// TLS identity of a server, and the credentials of its clients.
#[derive(Debug)]
pub(crate) struct TlsIdentity {
    /// Credentials for clients.
    pub(crate) credentials: Credentials,
    /// TLS configuration of the server.
    pub(crate) config: Arc<ServerConfig>,
    /// Verifies the certificates of clients.
    pub(crate) clients: Clients,
}

impl TlsIdentity {
    /// Creates a new authority, and certificates signed by it: one for loopback and `address`, and one for the
    /// administrator. A server certificate in the options replaces the generated one.
    ///
    /// Keys are generated with the system's random number generator, not from the server's seed, because they do not
    /// affect a run.
    pub(crate) fn new(options: &TlsOptions, address: IpAddr) -> io::Result<Self> {
        let failed = io::Error::other::<rcgen::Error>;
        let authority = authority().map_err(failed)?;
        let (admin, admin_key) = admin_certificate(&authority).map_err(failed)?;
        let (ca, chain, key) = match &options.certificate {
            Some((chain, key)) => {
                let certificates = certificates(chain)?;
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|err| invalid(&format!("invalid private key of the certificate: {err:?}")))?;
                (String::from_utf8_lossy(chain).into_owned(), certificates, key)
            }
            None => {
                let (server, key) = server_certificate(&authority, address).map_err(failed)?;
                let key = PrivatePkcs8KeyDer::from(key.serialize_der());
                (authority.pem(), vec![server.der().clone()], key.into())
            }
        };
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).map_err(io::Error::other)?;
        if let Some(pem) = &options.client_ca {
            add_authorities(&mut roots, pem)?;
        }
        let (mut all, mut proxies) = (roots.clone(), None);
        if let Some(proxy) = &options.front_proxy {
            let mut roots = RootCertStore::empty();
            add_authorities(&mut roots, &proxy.client_ca)?;
            add_authorities(&mut all, &proxy.client_ca)?;
            proxies = Some((roots, Arc::clone(proxy)));
        }
        let provider = Arc::new(ring::default_provider());
        let clients = Clients::new(roots, proxies, &provider).map_err(io::Error::other)?;
        let config = server_config(all, chain, key, provider).map_err(io::Error::other)?;
        Ok(Self {
            credentials: Credentials {
                ca,
                certificate: admin.pem(),
                key: key_pem(&admin_key),
            },
            config: Arc::new(config),
            clients,
        })
    }
}

/// TLS options of a server. Without a certificate, one is generated.
#[derive(Clone, Default)]
pub(crate) struct TlsOptions {
    /// The server's certificate chain and the key of its first certificate, in PEM.
    pub(crate) certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// Authorities of client certificates in addition to the generated one, in PEM.
    pub(crate) client_ca: Option<Vec<u8>>,
    /// Certificates and headers of front proxies.
    pub(crate) front_proxy: Option<Arc<FrontProxy>>,
}

impl std::fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsOptions").finish_non_exhaustive()
    }
}

/// Returns a certificate for loopback and `address`, followed by the generated authority that signed it, and the key of
/// the certificate, all in PEM. The keys come from the system's random number generator.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (certificate, key) = fake_apiserver::self_signed_certificate([192, 0, 2, 7].into())?;
/// let options = fake_apiserver::ServeOptions::tls().certificate(certificate, key);
/// # Ok(())
/// # }
/// ```
pub fn self_signed_certificate(address: IpAddr) -> io::Result<(String, String)> {
    let authority = authority().map_err(io::Error::other)?;
    let (certificate, key) = server_certificate(&authority, address).map_err(io::Error::other)?;
    Ok((certificate.pem() + &authority.pem(), key_pem(&key)))
}

/// Creates a certificate for these hosts and for loopback, its key, and the authority that signs it, all in PEM. The
/// keys come from the system's random number generator. The testkit uses it for processes that serve webhooks.
#[doc(hidden)]
pub fn signed_certificate(hosts: &[String]) -> io::Result<[String; 3]> {
    let sign = || {
        let authority = authority()?;
        let names = NAMES.map(String::from).into_iter().chain(hosts.iter().cloned());
        let mut params = CertificateParams::new(names.collect::<Vec<_>>())?;
        params.distinguished_name = subject_name(&[(DnType::CommonName, "webhooks")]);
        let (certificate, key) = sign(&authority, params, ExtendedKeyUsagePurpose::ServerAuth)?;
        Ok([certificate.pem(), key_pem(&key), authority.pem()])
    };
    sign().map_err(io::Error::other::<rcgen::Error>)
}

/// Creates a bearer token of 128 bits with the system's random number generator.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// assert_eq!(fake_apiserver::random_token()?.len(), 32);
/// # Ok(())
/// # }
/// ```
pub fn random_token() -> io::Result<String> {
    let mut bytes = [0; 16];
    let random = ring::default_provider().secure_random;
    random
        .fill(&mut bytes)
        .map_err(|_| io::Error::other("the system does not provide random numbers"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns the certificates in a PEM file. Fails if the file does not contain any.
fn certificates(pem: &[u8]) -> io::Result<Vec<CertificateDer<'static>>> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(found) if found.is_empty() => Err(invalid("the PEM text does not contain a certificate")),
        Ok(found) => Ok(found),
        Err(err) => Err(invalid(&format!("the text is not valid PEM: {err:?}"))),
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Adds the authorities of a PEM file. Fails if the file does not contain any.
fn add_authorities(roots: &mut RootCertStore, pem: &[u8]) -> io::Result<()> {
    match roots.add_parsable_certificates(certificates(pem)?) {
        (0, _) => Err(invalid("the PEM text does not contain a valid certificate authority")),
        _ => Ok(()),
    }
}

/// Returns a key in PEM form: SEC 1, for clients that cannot read PKCS #8.
fn key_pem(key: &KeyPair) -> String {
    let Some(der) = keys::sec1(&key.serialize_der()) else {
        return key.serialize_pem();
    };
    let text = BASE64_STANDARD.encode(der);
    let lines: Vec<&str> = (0..text.len())
        .step_by(64)
        .map(|at| &text[at..text.len().min(at + 64)])
        .collect();
    format!(
        "-----BEGIN EC PRIVATE KEY-----\n{}\n-----END EC PRIVATE KEY-----\n",
        lines.join("\n")
    )
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
    clients: RootCertStore,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    provider: Arc<CryptoProvider>,
) -> Result<ServerConfig, rustls::Error> {
    // Client certificates are optional; they determine the user of requests.
    let clients = Arc::new(clients::AnyCertificate(clients::verifier(clients, &provider)?));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)?;
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
