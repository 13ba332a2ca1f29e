//! Tokens of ServiceAccounts: signed JSON Web Tokens, which TokenRequest issues and authentication verifies. Unless a
//! signer is configured, they are signed with HMAC and a key derived from the server's seed, so only servers with the
//! same seed can verify them.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::api::json::Value;
use crate::api::token::TokenSigner;

/// Default issuer, which is also the default audience of tokens.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// The issuer of the tokens that kube-controller-manager writes into Secrets.
pub(super) const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// The header `{"alg":"HS256"}`, encoded as base64url.
const HEADER: &str = "eyJhbGciOiJIUzI1NiJ9";

/// Options of the server's tokens.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenOptions {
    /// Signer of tokens; `None` to derive a key from the seed.
    pub(crate) signer: Option<Arc<dyn TokenSigner>>,
    /// Issuer of tokens, followed by further accepted issuers. If empty, [`ISSUER`] is used.
    pub(crate) issuers: Vec<String>,
    /// Audiences of accepted tokens. If empty, the issuers are used.
    pub(crate) audiences: Vec<String>,
}

/// Issues tokens and verifies them.
#[derive(Clone, Debug)]
pub(crate) struct Tokens {
    pub(super) signer: Arc<dyn TokenSigner>,
    pub(super) issuers: Vec<String>,
    pub(super) audiences: Vec<String>,
}

impl Tokens {
    /// Creates the state for issuing and verifying tokens. The key is derived from `seed` if the options do not contain
    /// a signer.
    pub(crate) fn new(options: TokenOptions, seed: u64) -> Self {
        let issuers = match options.issuers.is_empty() {
            true => vec![ISSUER.to_owned()],
            false => options.issuers,
        };
        Self {
            signer: options.signer.unwrap_or_else(|| Arc::new(TokenKey::from_seed(seed))),
            audiences: match options.audiences.is_empty() {
                true => issuers.clone(),
                false => options.audiences,
            },
            issuers,
        }
    }

    /// Returns the issuer of new tokens.
    pub(crate) fn issuer(&self) -> &str {
        self.issuers.first().map_or(ISSUER, String::as_str)
    }

    /// Returns the audiences of accepted tokens, which are also the default audiences of requested tokens.
    pub(crate) fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Returns a token with these claims.
    pub(crate) fn sign(&self, claims: &Value) -> Result<String, String> {
        self.signer.sign(claims)
    }

    /// Returns the public keys and their algorithms, if there are any.
    pub(crate) fn key_set(&self) -> Option<(Value, Vec<&'static str>)> {
        self.signer.key_set()
    }
}

/// A key for HMAC.
#[derive(Clone)]
pub(crate) struct TokenKey([u8; 32]);

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenKey")
    }
}

impl TokenKey {
    /// Derives the key of a server from its seed.
    pub(crate) fn from_seed(seed: u64) -> Self {
        let digest = Sha256::new()
            .chain_update(b"service account tokens")
            .chain_update(seed.to_be_bytes());
        Self(digest.finalize().into())
    }

    fn mac(&self, text: &str) -> [u8; 32] {
        hmac_sha256(&self.0, text.as_bytes())
    }
}

/// Computes HMAC with SHA-256 (RFC 2104), for keys as long as a digest.
fn hmac_sha256(key: &[u8; 32], text: &[u8]) -> [u8; 32] {
    let pad = |byte: u8| {
        let mut block = [byte; 64];
        block.iter_mut().zip(key).for_each(|(it, key)| *it ^= key);
        block
    };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(text).finalize();
    let outer = Sha256::new().chain_update(pad(0x5c)).chain_update(inner);
    outer.finalize().into()
}

impl TokenSigner for TokenKey {
    fn sign(&self, claims: &Value) -> Result<String, String> {
        let payload = BASE64_URL_SAFE_NO_PAD.encode(claims.to_string());
        let signed = format!("{HEADER}.{payload}");
        let signature = BASE64_URL_SAFE_NO_PAD.encode(self.mac(&signed));
        Ok(format!("{signed}.{signature}"))
    }

    fn claims(&self, token: &str) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
        // Compares in constant time.
        let difference = self
            .mac(signed)
            .iter()
            .zip(&signature)
            .fold(0, |it, (a, b)| it | (a ^ b));
        if signature.len() != 32 || std::hint::black_box(difference) != 0 {
            return None;
        }
        let claims = BASE64_URL_SAFE_NO_PAD
            .decode(payload)
            .ok()
            .filter(|_| header == HEADER)?;
        serde_json::from_slice(&claims).ok()
    }

    fn key_set(&self) -> Option<(Value, Vec<&'static str>)> {
        None
    }
}

#[cfg(test)]
mod tests {
    use crate::api::json::json;

    use super::*;

    #[test]
    fn token_can_only_be_verified_with_the_key_that_signed_it() {
        let (key, claims) = (TokenKey::from_seed(1), json!({"sub": "x"}));
        let token = key.sign(&claims).unwrap();
        assert_eq!(key.claims(&token), Some(claims));
        assert_eq!(TokenKey::from_seed(2).claims(&token), None);
        let (head, tail) = token.split_at(token.len() / 2);
        assert_eq!(key.claims(&format!("{head}x{tail}")), None);
        for text in ["", ".", "..", "a.b.c", HEADER] {
            assert_eq!(key.claims(text), None, "{text}");
        }
    }

    #[test]
    fn hmac_sha256_matches_a_test_vector_of_rfc_4231() {
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let code = hmac_sha256(&key, b"Hi There").map(|it| format!("{it:02x}")).concat();
        assert_eq!(code, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    }
}
