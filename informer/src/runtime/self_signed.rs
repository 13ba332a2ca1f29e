//! `SelfSigned`: a generated certificate authority, and a certificate signed by it.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

use super::cert_watcher::Certificate;
use crate::Error;

/// A generated certificate authority and a certificate signed by it, for tests and for clusters without cert-manager.
/// The authority can be used as the `caBundle` of a webhook configuration.
///
/// ```
/// use informer::runtime::SelfSigned;
///
/// let made = SelfSigned::new(["webhooks.shop.svc"])?;
/// assert!(made.ca_bundle().starts_with("-----BEGIN CERTIFICATE-----"));
/// let certificate = made.certificate()?;
/// # let _ = certificate;
/// # Ok::<(), informer::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SelfSigned {
    ca: String,
    certificate: String,
    key: String,
}

impl SelfSigned {
    /// Generates a certificate for these host names and IP addresses. The host name of a Service is
    /// `NAME.NAMESPACE.svc`.
    ///
    /// # Errors
    ///
    /// Fails if a name is invalid.
    pub fn new(names: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, Error> {
        let names = names.into_iter().map(Into::into).collect();
        make(names).map_err(|err| Error::refused(format!("certificate: {err}")))
    }

    /// Returns the certificate of the authority, in PEM.
    pub fn ca_bundle(&self) -> &str {
        &self.ca
    }

    /// Returns the certificate, in PEM.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate
    }

    /// Returns the private key of the certificate, in PEM.
    pub fn key_pem(&self) -> &str {
        &self.key
    }

    /// Returns the certificate with its key, for a server.
    ///
    /// # Errors
    ///
    /// Fails if the generated certificate or key cannot be parsed, which does not happen in practice.
    pub fn certificate(&self) -> Result<Certificate, Error> {
        Certificate::from_pem(self.certificate.as_bytes(), self.key.as_bytes())
    }
}

fn make(names: Vec<String>) -> Result<SelfSigned, rcgen::Error> {
    let named = |name: &str| {
        let mut subject = DistinguishedName::new();
        subject.push(DnType::CommonName, name);
        subject
    };
    let mut authority = CertificateParams::default();
    authority.distinguished_name = named("informer-ca");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = named("informer");
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &authority)?;
    Ok(SelfSigned {
        ca: authority.pem(),
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}
