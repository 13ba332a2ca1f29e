//! `ServiceAccountKeys`: the keys that sign and verify ServiceAccount tokens, like kube-apiserver's
//! `--service-account-signing-key-file` and `--service-account-key-file`.

use std::io;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rcgen::KeyPair;
use sha2::{Digest as _, Sha256};
use tokio_rustls::rustls::SignatureScheme;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer,
};
use tokio_rustls::rustls::sign::SigningKey;

use super::{der, subject};
use crate::api::json::{Value, json};
use crate::api::token::TokenSigner;

/// The keys that sign and verify ServiceAccount tokens.
///
/// Tokens are signed with RS256, ES256 or ES384, depending on the type of the key, and `/openid/v1/jwks` contains the
/// public keys.
///
/// ```
/// use fake_apiserver::{ApiServer, ServiceAccountKeys};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = ApiServer::builder().service_account_keys(ServiceAccountKeys::generate()?).start();
/// let request = http::Request::get("/openid/v1/jwks").body("")?;
/// assert_eq!(server.call(request).await.status(), 200);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ServiceAccountKeys {
    signer: Arc<dyn SigningKey>,
    /// Public keys, beginning with the signer's.
    public: Vec<PublicKey>,
}

/// The supported algorithms, with their names from RFC 7518.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Rs256,
    Es256,
    Es384,
}

/// A key that verifies signatures.
#[derive(Clone)]
struct PublicKey {
    algorithm: Algorithm,
    /// The key id, computed as in Kubernetes: a hash of the key.
    id: String,
    /// The bits of `subjectPublicKey`.
    bits: Vec<u8>,
    verifier: &'static dyn SignatureVerificationAlgorithm,
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PublicKey")
            .field("algorithm", &self.algorithm)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl ServiceAccountKeys {
    /// Creates a new key for ES256 with the system's random number generator.
    pub fn generate() -> io::Result<Self> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        Self::of(&PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der())))
    }

    /// Reads the key that signs tokens: the first private key in `pem`, as PKCS #8, PKCS #1 or SEC 1 (RSA, P-256 or
    /// P-384).
    pub fn from_pem(pem: &[u8]) -> io::Result<Self> {
        let key = PrivateKeyDer::from_pem_slice(pem);
        let key = key.map_err(|err| invalid(&format!("the text does not contain a private key: {err:?}")))?;
        Self::of(&key)
    }

    /// Also accepts tokens signed by the keys in `pem`: public keys, certificates, or private keys (only their public
    /// part is kept). Fails if `pem` does not contain a key.
    pub fn trust_pem(&mut self, pem: &[u8]) -> io::Result<()> {
        let before = self.public.len();
        let mut found = false;
        for section in <(pem::SectionKind, Vec<u8>)>::pem_slice_iter(pem) {
            let (kind, content) = section.map_err(|err| invalid(&format!("the text is not valid PEM: {err:?}")))?;
            let key = match kind {
                pem::SectionKind::PublicKey => PublicKey::of(&content)?,
                pem::SectionKind::Certificate => {
                    let key = subject::public_key(&CertificateDer::from(content)).map(PublicKey::of);
                    key.ok_or_else(|| invalid("the certificate has no key"))??
                }
                pem::SectionKind::PrivateKey | pem::SectionKind::RsaPrivateKey | pem::SectionKind::EcPrivateKey => {
                    let key = <PrivateKeyDer<'_> as pem::PemObject>::from_pem(kind, content);
                    let key = key.ok_or_else(|| invalid("the PEM section is not a private key"))?;
                    Self::of(&key)?.public.remove(0)
                }
                _ => continue,
            };
            found = true;
            if !self.public[..before].iter().any(|it| it.id == key.id) {
                self.public.push(key);
            }
        }
        match found {
            true => Ok(()),
            false => Err(invalid("the text does not contain a key")),
        }
    }

    fn of(key: &PrivateKeyDer<'_>) -> io::Result<Self> {
        let signer = ring::sign::any_supported_type(key).map_err(|err| invalid(&err.to_string()))?;
        let public = signer
            .public_key()
            .ok_or_else(|| invalid("the key has no public part"))?;
        Ok(Self {
            public: vec![PublicKey::of(&public)?],
            signer,
        })
    }
}

impl TokenSigner for ServiceAccountKeys {
    fn sign(&self, claims: &Value) -> Result<String, String> {
        let key = &self.public[0];
        let header = json!({"alg": key.algorithm.name(), "kid": key.id});
        let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(&header), encode(claims));
        let signer = self.signer.choose_scheme(&[key.algorithm.scheme()]);
        let signer = signer.ok_or("the key cannot sign tokens")?;
        let signature = signer.sign(signed.as_bytes()).map_err(|err| err.to_string())?;
        let signature = key
            .algorithm
            .to_jose(signature)
            .ok_or("the signature cannot be decoded")?;
        Ok(format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
    }

    fn claims(&self, token: &str) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        let header: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
        let (algorithm, id) = (header["alg"].as_str()?, header["kid"].as_str());
        let fits = |key: &&PublicKey| key.algorithm.name() == algorithm && id.is_none_or(|id| id == key.id);
        self.public
            .iter()
            .filter(fits)
            .find(|key| key.verifies(signed, &signature))?;
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
    }

    fn key_set(&self) -> Option<(Value, Vec<&'static str>)> {
        let keys: Vec<Value> = self.public.iter().filter_map(PublicKey::to_jwk).collect();
        let mut algorithms: Vec<_> = self.public.iter().map(|key| key.algorithm.name()).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        Some((json!({"keys": keys}), algorithms))
    }
}

impl PublicKey {
    /// Parses the key in a `SubjectPublicKeyInfo`.
    fn of(der: &[u8]) -> io::Result<Self> {
        Self::parse(der).ok_or_else(|| invalid("the public key is neither RSA, P-256 nor P-384"))
    }

    fn parse(info: &[u8]) -> Option<Self> {
        let (content, _) = der::element(info, der::SEQUENCE)?;
        let (_, bits) = der::element(content, der::SEQUENCE)?;
        let kind = &content[..content.len() - bits.len()];
        let (bits, _) = der::bit_string(bits)?;
        let algorithms = [Algorithm::Rs256, Algorithm::Es256, Algorithm::Es384];
        let known = ring::default_provider().signature_verification_algorithms;
        let (algorithm, verifier) = algorithms.into_iter().find_map(|algorithm| {
            let (_, verifiers) = known.mapping.iter().find(|(scheme, _)| *scheme == algorithm.scheme())?;
            let fits = |it: &&&dyn SignatureVerificationAlgorithm| {
                der::element(kind, der::SEQUENCE).is_some_and(|(kind, _)| kind == it.public_key_alg_id().as_ref())
            };
            Some((algorithm, *verifiers.iter().find(fits)?))
        })?;
        let digest = Sha256::digest(SubjectPublicKeyInfoDer::from(info));
        Some(Self {
            algorithm,
            id: BASE64_URL_SAFE_NO_PAD.encode(digest),
            bits: bits.to_vec(),
            verifier,
        })
    }

    fn verifies(&self, signed: &str, signature: &[u8]) -> bool {
        let signature = self.algorithm.to_der(signature);
        let verified = signature.map(|signature| {
            self.verifier
                .verify_signature(&self.bits, signed.as_bytes(), &signature)
        });
        matches!(verified, Some(Ok(())))
    }

    /// Returns the key in the format of RFC 7517.
    fn to_jwk(&self) -> Option<Value> {
        let text = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let mut key = match self.algorithm.curve() {
            None => {
                let (content, _) = der::element(&self.bits, der::SEQUENCE)?;
                let (modulus, rest) = der::integer(content)?;
                let (exponent, _) = der::integer(rest)?;
                json!({"kty": "RSA", "n": text(modulus), "e": text(exponent)})
            }
            Some((curve, size)) => {
                let (x, y) = self.bits.strip_prefix(&[4])?.split_at_checked(size)?;
                json!({"kty": "EC", "crv": curve, "x": text(x), "y": text(y)})
            }
        };
        key["use"] = "sig".into();
        key["kid"] = self.id.clone().into();
        key["alg"] = self.algorithm.name().into();
        Some(key)
    }
}

impl Algorithm {
    fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
        }
    }

    fn scheme(self) -> SignatureScheme {
        match self {
            Self::Rs256 => SignatureScheme::RSA_PKCS1_SHA256,
            Self::Es256 => SignatureScheme::ECDSA_NISTP256_SHA256,
            Self::Es384 => SignatureScheme::ECDSA_NISTP384_SHA384,
        }
    }

    /// Returns the curve, and the size of a coordinate in bytes.
    fn curve(self) -> Option<(&'static str, usize)> {
        match self {
            Self::Rs256 => None,
            Self::Es256 => Some(("P-256", 32)),
            Self::Es384 => Some(("P-384", 48)),
        }
    }

    /// Converts a signature to the format of tokens: for ECDSA the concatenation of both integers (RFC 7518, 3.4).
    fn to_jose(self, signature: Vec<u8>) -> Option<Vec<u8>> {
        let Some((_, size)) = self.curve() else {
            return Some(signature);
        };
        let (content, _) = der::element(&signature, der::SEQUENCE)?;
        let (r, rest) = der::integer(content)?;
        let (s, _) = der::integer(rest)?;
        let mut both = Vec::with_capacity(2 * size);
        for number in [r, s] {
            both.resize(both.len() + size.checked_sub(number.len())?, 0);
            both.extend(number);
        }
        Some(both)
    }

    /// Converts a signature in a token to the format that ring verifies.
    fn to_der(self, signature: &[u8]) -> Option<Vec<u8>> {
        let Some((_, size)) = self.curve() else {
            return Some(signature.to_vec());
        };
        let (r, s) = signature.split_at_checked(size).filter(|(_, s)| s.len() == size)?;
        Some(der::write(
            der::SEQUENCE,
            &[&der::write_integer(r), &der::write_integer(s)],
        ))
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Converts a P-256 private key to SEC 1, for clients that do not support PKCS #8, such as fabric8.
///
/// `pkcs8` is a `PrivateKeyInfo` as written by ring. Returns `None` for other formats.
pub(super) fn sec1(pkcs8: &[u8]) -> Option<Vec<u8>> {
    const PARAMETERS: u8 = 0xa0;
    const PUBLIC_KEY: u8 = 0xa1;
    let (info, _) = der::element(pkcs8, der::SEQUENCE)?;
    let (_version, rest) = der::element(info, der::INTEGER)?;
    let (algorithm, rest) = der::element(rest, der::SEQUENCE)?;
    let (_ec_public_key, _, curve) = der::any_element(algorithm)?;
    let (key, _) = der::element(rest, der::OCTET_STRING)?;
    let (key, _) = der::element(key, der::SEQUENCE)?;
    let (_version, rest) = der::element(key, der::INTEGER)?;
    let (secret, rest) = der::element(rest, der::OCTET_STRING)?;
    let mut parts = vec![
        der::write(der::INTEGER, &[&[1]]),
        der::write(der::OCTET_STRING, &[secret]),
        der::write(PARAMETERS, &[curve]),
    ];
    if let Some((public, _)) = der::element(rest, PUBLIC_KEY) {
        parts.push(der::write(PUBLIC_KEY, &[public]));
    }
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    Some(der::write(der::SEQUENCE, &parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 2048-bit RSA key, generated for these tests.
    const RSA: &str = include_str!("../../tests/data/rsa.pem");

    fn rsa() -> ServiceAccountKeys {
        ServiceAccountKeys::from_pem(RSA.as_bytes()).expect("the text is a key")
    }

    #[test]
    fn token_is_only_accepted_by_the_key_that_signed_it() {
        for signer in [
            rsa(),
            ServiceAccountKeys::generate().expect("the crypto provider generates keys"),
        ] {
            let claims = json!({"sub": "x"});
            let token = signer.sign(&claims).expect("the key can sign tokens");
            assert_eq!(signer.claims(&token), Some(claims.clone()));
            let other = ServiceAccountKeys::generate().expect("the crypto provider generates keys");
            assert_eq!(other.claims(&token), None);
            let (head, tail) = token.split_at(token.len() / 2);
            assert_eq!(signer.claims(&format!("{head}x{tail}")), None);
            for text in ["", ".", "..", "a.b.c"] {
                assert_eq!(signer.claims(text), None, "{text}");
            }
        }
    }

    #[test]
    fn token_is_accepted_if_its_public_key_is_trusted() {
        let token = rsa().sign(&json!({"sub": "x"})).expect("the key can sign tokens");
        let mut keys = ServiceAccountKeys::generate().expect("the crypto provider generates keys");
        keys.trust_pem(RSA.as_bytes()).expect("the text is a key");
        assert!(keys.claims(&token).is_some());
        let (set, algorithms) = keys.key_set().expect("the keys are public");
        assert_eq!(algorithms, ["ES256", "RS256"]);
        assert_eq!(set["keys"][1]["e"], "AQAB");
        assert_eq!(set["keys"][0]["x"].as_str().map(str::len), Some(43));
        assert!(keys.trust_pem(b"nothing").is_err());
    }

    #[test]
    fn sec_1_and_pkcs_8_encodings_contain_the_same_key() {
        let pkcs8 = KeyPair::generate()
            .expect("the crypto provider generates keys")
            .serialize_der();
        let one = ServiceAccountKeys::of(&PrivateKeyDer::from(PrivatePkcs8KeyDer::from(pkcs8.clone())));
        let sec1 = tokio_rustls::rustls::pki_types::PrivateSec1KeyDer::from(
            sec1(&pkcs8).expect("the key was generated by ring"),
        );
        let other = ServiceAccountKeys::of(&PrivateKeyDer::from(sec1));
        assert_eq!(
            one.expect("the text is a key").public[0].id,
            other.expect("the text is a key").public[0].id
        );
        for length in 0..pkcs8.len() {
            assert!(super::sec1(&pkcs8[..length]).is_none(), "{length}");
        }
    }
}
