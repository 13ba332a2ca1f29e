//! Reads the user from a client certificate: CN is the name, each O is a group, and Kubernetes has an OID for the UID.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use super::der::{SEQUENCE, SET, any_element, element};
use crate::api::user::{CREDENTIAL_ID, UserInfo};

/// Tag of `version`, which is absent from certificates of version 1.
const VERSION: u8 = 0xa0;

/// OID 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
/// OID 1.3.6.1.4.1.57683.2
const UID: &[u8] = &[0x2b, 6, 1, 4, 1, 0x83, 0xc2, 0x53, 2];
/// OID 2.5.4.10
const ORGANIZATION: &[u8] = &[0x55, 4, 10];

/// Returns the credential ID of a certificate, which is its hash.
fn credential_id(certificate: &[u8]) -> String {
    let hash = Sha256::digest(certificate);
    hash.iter().fold("X509SHA256=".to_owned(), |mut id, byte| {
        let _ = write!(id, "{byte:02x}");
        id
    })
}

/// Returns the user of a verified certificate (DER); `None` without a CN, or if the UID is empty or repeated
/// (`CommonNameUserConversion`).
pub(super) fn user(certificate: &[u8]) -> Option<UserInfo> {
    let mut user = UserInfo::default();
    let mut names = subject(certificate)?;
    while let Some((set, rest)) = element(names, SET) {
        names = rest;
        let mut attributes = set;
        while let Some((attribute, rest)) = element(attributes, SEQUENCE) {
            attributes = rest;
            let (_, kind, value) = any_element(attribute)?;
            let (_, text, _) = any_element(value)?;
            let text = String::from_utf8_lossy(text).into_owned();
            match kind {
                COMMON_NAME => user.name = text,
                ORGANIZATION => user.groups.push(text),
                UID if text.is_empty() || !user.uid.is_empty() => return None,
                UID => user.uid = text,
                _ => {}
            }
        }
    }
    user.extra
        .insert(CREDENTIAL_ID.to_owned(), vec![credential_id(certificate)]);
    (!user.name.is_empty()).then_some(user)
}

/// Returns the names within `subject` of `tbsCertificate`.
fn subject(certificate: &[u8]) -> Option<&[u8]> {
    Some(element(from_subject(certificate)?, SEQUENCE)?.0)
}

/// Returns `subjectPublicKeyInfo` of a certificate, including tag and length.
pub(super) fn public_key(certificate: &[u8]) -> Option<&[u8]> {
    let (_, _, key) = any_element(from_subject(certificate)?)?;
    let (_, rest) = element(key, SEQUENCE)?;
    Some(&key[..key.len() - rest.len()])
}

/// Returns the part of `tbsCertificate` that begins at `subject` (RFC 5280, 4.1).
fn from_subject(certificate: &[u8]) -> Option<&[u8]> {
    let (certificate, _) = element(certificate, SEQUENCE)?;
    let (mut fields, _) = element(certificate, SEQUENCE)?;
    if let Some((_, rest)) = element(fields, VERSION) {
        fields = rest;
    }
    for _before in ["serialNumber", "signature", "issuer", "validity"] {
        (_, _, fields) = any_element(fields)?;
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};
    use rstest::rstest;

    use super::*;

    fn certificate(names: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = crate::tls::subject_name(names);
        let key = KeyPair::generate().expect("the crypto provider generates keys");
        let certificate = params
            .self_signed(&key)
            .expect("the certificate parameters are complete");
        certificate.der().to_vec()
    }

    #[test]
    fn common_name_is_the_user_and_organization_is_a_group() {
        let der = certificate(&[
            (DnType::CountryName, "CH"),
            (DnType::OrganizationName, "system:masters"),
            (DnType::CommonName, "zoë"),
        ]);
        let expected = UserInfo {
            name: "zoë".to_owned(),
            groups: vec!["system:masters".to_owned()],
            extra: [(CREDENTIAL_ID.to_owned(), vec![credential_id(&der)])].into(),
            ..UserInfo::default()
        };
        assert_eq!(user(&der), Some(expected));
    }

    #[test]
    fn credential_id_of_a_certificate_is_its_hash() {
        let expected = "X509SHA256=ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(credential_id(b"abc"), expected);
    }

    #[rstest]
    #[case::one(&["u"], Some("u"))]
    #[case::empty(&[""], None)]
    fn certificate_may_contain_one_uid(#[case] uids: &[&str], #[case] expected: Option<&str>) {
        let oid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
        let mut names = vec![(DnType::CommonName, "a")];
        names.extend(uids.iter().map(|uid| (oid.clone(), *uid)));
        let found = user(&certificate(&names));
        assert_eq!(found.as_ref().map(|it| it.uid.as_str()), expected);
    }

    #[test]
    fn certificate_without_a_common_name_has_no_user() {
        assert_eq!(user(&certificate(&[(DnType::OrganizationName, "x")])), None);
    }

    #[test]
    fn truncated_certificate_has_no_user() {
        let der = certificate(&[(DnType::CommonName, "a")]);
        for length in 0..der.len() {
            assert_eq!(user(&der[..length]), None);
        }
    }
}
