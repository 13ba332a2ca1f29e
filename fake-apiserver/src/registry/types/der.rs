//! Parses the DER of certificates and certificate requests: the outer structures, with the errors of Go's
//! `encoding/asn1`, the type of public keys, the organizations, and the basic constraints.

// Tags of DER elements.
const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const BMP_STRING: u8 = 0x1e;

// Tags of the version and the extensions of a certificate.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

/// The object identifier 2.5.29.19 (`basicConstraints`).
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 29, 19];
/// The object identifier 1.2.840.113549.1.1.1 (`rsaEncryption`).
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
/// The object identifier 1.2.840.10045.2.1 (`ecPublicKey`).
const ELLIPTIC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
/// The object identifier 1.3.101.112 (`Ed25519`).
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

/// The object identifier 2.5.4.10 (`organizationName`).
const ORGANIZATION: &[u8] = &[0x55, 4, 10];

/// Returns the error of Go's `x509.ParseCertificateRequest` for a malformed request. Only the outermost elements of
/// names, keys and signatures are parsed, and the signature is not verified.
pub(crate) fn certificate_request_error(der: &[u8]) -> Option<String> {
    read_request(der).err()
}

fn read_request(der: &[u8]) -> Result<(), String> {
    let mut outer = Reader { rest: der, offset: 0 };
    let mut request = outer.element(SEQUENCE, "certificateRequest")?;
    let mut signed = request.element(SEQUENCE, "tbsCertificateRequest")?;
    signed.element(INTEGER, "int")?;
    signed.element(SEQUENCE, "RawValue")?;
    signed.element(SEQUENCE, "publicKeyInfo")?;
    request.element(SEQUENCE, "AlgorithmIdentifier")?;
    request.element(BIT_STRING, "BitString")?;
    match outer.rest {
        [] => Ok(()),
        _ => Err("asn1: syntax error: trailing data".to_owned()),
    }
}

/// The type of a public key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PublicKey {
    /// RSA, with the length of the modulus.
    Rsa {
        /// Length in bits, rounded up to a multiple of 8.
        bits: usize,
    },
    /// Ed25519 or an elliptic curve.
    Known,
    /// A type that kube-apiserver does not support.
    Other,
}

/// Returns the type of the public key of a certificate request; `None` if the request is malformed.
pub(crate) fn request_key(der: &[u8]) -> Option<PublicKey> {
    read_request(der).ok()?;
    read_request_key(der).ok()
}

fn read_request_key(der: &[u8]) -> Result<PublicKey, String> {
    let mut request = Reader { rest: der, offset: 0 }.element(SEQUENCE, "certificateRequest")?;
    let mut signed = request.element(SEQUENCE, "tbsCertificateRequest")?;
    signed.element(INTEGER, "int")?;
    signed.element(SEQUENCE, "RawValue")?;
    let mut info = signed.element(SEQUENCE, "publicKeyInfo")?;
    let mut algorithm = info.element(SEQUENCE, "AlgorithmIdentifier")?;
    let key = info.element(BIT_STRING, "BitString")?;
    match algorithm.element(OBJECT_IDENTIFIER, "ObjectIdentifier")?.rest {
        RSA => {
            // The first byte is the number of unused bits.
            let rest = key.rest.get(1..).unwrap_or_default();
            let mut numbers = Reader { rest, offset: 0 }.element(SEQUENCE, "pkcs1PublicKey")?;
            let modulus = numbers.element(INTEGER, "big.Int")?.rest;
            let zeros = modulus.iter().take_while(|it| **it == 0).count();
            Ok(PublicKey::Rsa {
                bits: (modulus.len() - zeros) * 8,
            })
        }
        ELLIPTIC | ED25519 => Ok(PublicKey::Known),
        _ => Ok(PublicKey::Other),
    }
}

/// Returns `true` if a certificate has the CA bit set; `None` if it is malformed. Only its structure is checked.
pub(crate) fn is_authority(der: &[u8]) -> Option<bool> {
    read_authority(der).ok()
}

fn read_authority(der: &[u8]) -> Result<bool, String> {
    let mut outer = Reader { rest: der, offset: 0 };
    let mut certificate = outer.element(SEQUENCE, "certificate")?;
    let mut signed = certificate.element(SEQUENCE, "tbsCertificate")?;
    certificate.element(SEQUENCE, "AlgorithmIdentifier")?;
    certificate.element(BIT_STRING, "BitString")?;
    if !outer.rest.is_empty() {
        return Err("x509: trailing data".to_owned());
    }
    if signed.rest.first() == Some(&VERSION) {
        signed.element(VERSION, "int")?;
    }
    signed.element(INTEGER, "big.Int")?;
    for name in [
        "AlgorithmIdentifier",
        "RawValue",
        "validity",
        "RawValue",
        "publicKeyInfo",
    ] {
        signed.element(SEQUENCE, name)?;
    }
    while let Some(tag) = signed.rest.first().copied().filter(|it| *it != EXTENSIONS) {
        signed.element(tag, "BitString")?;
    }
    if signed.rest.is_empty() {
        return Ok(false);
    }
    let mut extensions = signed
        .element(EXTENSIONS, "[]Extension")?
        .element(SEQUENCE, "[]Extension")?;
    let mut is_authority = false;
    while !extensions.rest.is_empty() {
        let mut extension = extensions.element(SEQUENCE, "Extension")?;
        let id = extension.element(OBJECT_IDENTIFIER, "ObjectIdentifier")?.rest;
        if extension.rest.first() == Some(&BOOLEAN) {
            extension.element(BOOLEAN, "bool")?;
        }
        let mut value = extension.element(OCTET_STRING, "[]uint8")?;
        if id == BASIC_CONSTRAINTS {
            let mut constraints = value.element(SEQUENCE, "basicConstraints")?;
            let is_set = constraints.rest.first() == Some(&BOOLEAN);
            is_authority = is_set && constraints.element(BOOLEAN, "bool")?.rest != [0];
        }
    }
    Ok(is_authority)
}

/// Returns the organizations in the subject of a certificate request. They become the groups of the user.
pub(crate) fn organizations(der: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    // Validation refuses malformed requests, so the error is ignored here.
    let _ = read_organizations(der, &mut found);
    found
}

fn read_organizations(der: &[u8], found: &mut Vec<String>) -> Result<(), String> {
    let mut request = Reader { rest: der, offset: 0 }.element(SEQUENCE, "certificateRequest")?;
    let mut signed = request.element(SEQUENCE, "tbsCertificateRequest")?;
    signed.element(INTEGER, "int")?;
    let mut names = signed.element(SEQUENCE, "RDNSequence")?;
    while !names.rest.is_empty() {
        let mut set = names.element(SET, "RelativeDistinguishedNameSET")?;
        while !set.rest.is_empty() {
            let mut attribute = set.element(SEQUENCE, "AttributeTypeAndValue")?;
            let kind = attribute.element(OBJECT_IDENTIFIER, "ObjectIdentifier")?;
            let tag = attribute.rest.first().copied().unwrap_or_default();
            let value = attribute.element(tag, "interface {}")?;
            if kind.rest == ORGANIZATION {
                found.push(text(tag, value.rest));
            }
        }
    }
    Ok(())
}

/// Decodes the contents of a string element with this tag.
fn text(tag: u8, bytes: &[u8]) -> String {
    if tag != BMP_STRING {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let units = bytes.chunks_exact(2).map(|it| u16::from_be_bytes([it[0], it[1]]));
    String::from_utf16_lossy(&units.collect::<Vec<_>>())
}

/// A reader of the elements in one DER structure.
struct Reader<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    /// Reads the next element, which must have this tag. `name` is the Go type of the element in error messages.
    fn element(&mut self, tag: u8, name: &str) -> Result<Reader<'a>, String> {
        if self.rest.is_empty() {
            return Err("asn1: syntax error: sequence truncated".to_owned());
        }
        let truncated = || "asn1: syntax error: truncated tag or length".to_owned();
        let (&[found, first], mut rest) = self.rest.split_first_chunk().ok_or_else(truncated)?;
        let mut length = usize::from(first);
        if first == 0x80 {
            return Err("asn1: syntax error: indefinite length found (not DER)".to_owned());
        }
        if first > 0x80 {
            let (bytes, after) = rest.split_at_checked(usize::from(first & 0x7f)).ok_or_else(truncated)?;
            if bytes.len() > 4 {
                return Err("asn1: structure error: length too large".to_owned());
            }
            length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
            if bytes[0] == 0 {
                return Err("asn1: structure error: superfluous leading zeros in length".to_owned());
            }
            if length < 0x80 {
                return Err("asn1: structure error: non-minimal length".to_owned());
            }
            rest = after;
        }
        let start = self.offset + self.rest.len() - rest.len();
        if found != tag {
            let (class, number, compound) = (found >> 6, found & 0x1f, found & 0x20 != 0);
            return Err(format!(
                "asn1: structure error: tags don't match ({} vs {{class:{class} tag:{number} length:{length} \
                 isCompound:{compound}}}) {{optional:false explicit:false application:false private:false \
                 defaultValue:<nil> tag:<nil> stringType:0 timeType:0 set:false omitEmpty:false}} {name} @{start}",
                tag & 0x1f
            ));
        }
        let (content, rest) = rest
            .split_at_checked(length)
            .ok_or_else(|| "asn1: syntax error: data truncated".to_owned())?;
        (self.rest, self.offset) = (rest, start + length);
        Ok(Reader {
            rest: content,
            offset: 0,
        })
    }
}
