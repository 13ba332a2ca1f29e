//! `SelfSigned`: an authority and a certificate of it, made for one process.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

use super::cert_watcher::Certificate;
use crate::Error;

/// A self-made certificate authority and a certificate that it signed, for tests and for clusters without cert-manager:
/// the authority is the `caBundle` of a configuration.
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
    /// For these host names and addresses; for a service that is `NAME.NAMESPACE.svc`.
    ///
    /// # Errors
    ///
    /// If a name is none.
    pub fn new(names: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, Error> {
        let names = names.into_iter().map(Into::into).collect();
        make(names).map_err(|err| Error::refused(format!("certificate: {err}")))
    }

    /// The authority, in PEM.
    pub fn ca_bundle(&self) -> &str {
        &self.ca
    }

    /// The certificate, in PEM.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate
    }

    /// Its key, in PEM.
    pub fn key_pem(&self) -> &str {
        &self.key
    }

    /// The certificate with its key, for a server.
    ///
    /// # Errors
    ///
    /// None that is known: what was made can be read.
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
