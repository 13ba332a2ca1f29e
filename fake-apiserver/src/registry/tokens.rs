//! Tokens of ServiceAccounts: signed JSON Web Tokens, as TokenRequest hands them out and as they are judged when they
//! come back. Unless the server was given keys they are signed with HMAC by a key made from the seed, so only the
//! server that made one can check it.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::authentication::Access;
use crate::api::object::Object;
use crate::api::token::TokenSigner;
use crate::api::user::UserInfo;

/// Default issuer, which is also the default audience of tokens.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// The issuer of the tokens that kube-controller-manager writes into Secrets.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// Time past its end for which a token is still accepted, for clocks that differ; also an object's past its deletion.
const LEEWAY_SECONDS: i64 = 60;

/// `{"alg":"HS256"}`
const HEADER: &str = "eyJhbGciOiJIUzI1NiJ9";

/// Options of tokens.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenOptions {
    /// Signer of tokens; `None`: a key made from the seed.
    pub(crate) signer: Option<Arc<dyn TokenSigner>>,
    /// Issuer of tokens, and further accepted issuers; empty for [`ISSUER`].
    pub(crate) issuers: Vec<String>,
    /// For whom a token must be; empty for the issuers.
    pub(crate) audiences: Vec<String>,
}

/// Makes tokens and reads them.
#[derive(Clone, Debug)]
pub(crate) struct Tokens {
    signer: Arc<dyn TokenSigner>,
    issuers: Vec<String>,
    audiences: Vec<String>,
}

impl Tokens {
    /// `seed` is that of the key if the options name none.
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

    /// For whom a token is that is asked for without audiences.
    pub(crate) fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// A token that says `claims`.
    pub(crate) fn sign(&self, claims: &Value) -> Result<String, String> {
        self.signer.sign(claims)
    }

    /// The public keys and their algorithms; `None` if there are none.
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

/// Owner of a token, and its audiences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenOwner {
    pub(crate) user: UserInfo,
    /// The audiences of the token that were asked about.
    pub(crate) audiences: Vec<String>,
}

impl TokenKey {
    /// The key of a server with this seed.
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

/// HMAC with SHA-256 (RFC 2104), for keys of a digest's length.
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
        // In constant time.
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

impl Access {
    /// Returns the owner of a token. `Ok(None)`: no token of this server; an error gives the reason for which one is no
    /// longer valid. `audiences` are those to check for, the server's own if there are none.
    pub(crate) fn token_owner(&self, token: &str, audiences: &[&str]) -> Result<Option<TokenOwner>, String> {
        let tokens = &self.tokens;
        let Some(claims) = tokens.signer.claims(token) else {
            return Ok(None);
        };
        if claims["iss"] == LEGACY_ISSUER {
            return self.legacy_owner(token, &claims, audiences).map(Some);
        }
        if !claims["iss"]
            .as_str()
            .is_some_and(|it| tokens.issuers.iter().any(|issuer| issuer == it))
        {
            return Ok(None);
        }
        self.check_times(&claims)?;
        let audiences = common_audiences(&claims, audiences, &tokens.audiences)?;
        let at = |path: &str| claims.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (namespace, name) = (at("/kubernetes.io/namespace"), at("/kubernetes.io/serviceaccount/name"));
        let uid = at("/kubernetes.io/serviceaccount/uid");
        let account = self.reader.stored_object("serviceaccounts", namespace, name);
        let account = account.ok_or_else(|| format!("serviceaccounts {name:?} not found"))?;
        if account.uid() != uid {
            let found = account.uid();
            return Err(format!("service account UID ({found}) does not match claim ({uid})"));
        }
        if self.is_long_gone(&account) {
            return Err(INVALIDATED.to_owned());
        }
        let mut user = UserInfo::service_account(namespace, name);
        uid.clone_into(&mut user.uid);
        let credential = format!("JTI={}", at("/jti"));
        add(&mut user, "credential-id", &credential);
        for kind in ["node", "pod", "secret"] {
            let (name, uid) = (
                at(&format!("/kubernetes.io/{kind}/name")),
                at(&format!("/kubernetes.io/{kind}/uid")),
            );
            if name.is_empty() {
                continue;
            }
            let namespace = if kind == "node" { "" } else { namespace };
            let bound = self.reader.stored_object(&format!("{kind}s"), namespace, name);
            let is_there = bound.is_some_and(|bound| bound.uid() == uid && !self.is_long_gone(&bound));
            // A Pod's token names its node, too; it lives as long as the Pod.
            let is_bound = kind != "node" || claims.pointer("/kubernetes.io/pod").is_none();
            if is_bound && !is_there {
                return Err(INVALIDATED.to_owned());
            }
            if kind != "secret" {
                add(&mut user, &format!("{kind}-name"), name);
                if !uid.is_empty() {
                    add(&mut user, &format!("{kind}-uid"), uid);
                }
            }
        }
        Ok(Some(TokenOwner { user, audiences }))
    }

    /// The same of a token that kube-controller-manager wrote into a Secret. It has no end: it is good while the Secret
    /// holds it.
    fn legacy_owner(&self, token: &str, claims: &Value, audiences: &[&str]) -> Result<TokenOwner, String> {
        let at = |name: &str| {
            let name = format!("kubernetes.io/serviceaccount/{name}");
            claims.get(&name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let (namespace, name, uid) = (at("namespace"), at("service-account.name"), at("service-account.uid"));
        let (secret, own) = (at("secret.name"), &self.tokens.audiences);
        let audiences: Vec<String> = match audiences.is_empty() {
            true => own.clone(),
            false => own
                .iter()
                .filter(|it| audiences.contains(&it.as_str()))
                .cloned()
                .collect(),
        };
        if audiences.is_empty() {
            return Err("token is for other audiences".to_owned());
        }
        let holds = |secret: Object| {
            let data = secret.get("data")?.get("token")?.as_str()?;
            Some(BASE64_STANDARD.decode(data).ok()? == token.as_bytes())
        };
        let stored = self.reader.stored_object("secrets", &namespace, &secret);
        let stored = stored.ok_or("service account token has been invalidated")?;
        if self.is_long_gone(&stored) || holds(stored) != Some(true) {
            return Err("service account token does not match server's copy".to_owned());
        }
        let account = self.reader.stored_object("serviceaccounts", &namespace, &name);
        let account = account.ok_or_else(|| format!("serviceaccounts {name:?} not found"))?;
        if account.uid() != uid {
            let found = account.uid();
            return Err(format!("service account UID ({found}) does not match claim ({uid})"));
        }
        let mut user = UserInfo::service_account(&namespace, &name);
        user.uid = uid;
        Ok(TokenOwner { user, audiences })
    }

    fn check_times(&self, claims: &Value) -> Result<(), String> {
        let now = self.reader.entropy.now().as_second();
        let time = |name: &str| claims.get(name).and_then(Value::as_i64);
        if time("exp").is_none_or(|end| now > end.saturating_add(LEEWAY_SECONDS)) {
            return Err("service account token has expired".to_owned());
        }
        if time("nbf").is_some_and(|start| now < start.saturating_sub(LEEWAY_SECONDS)) {
            return Err("service account token is not valid yet".to_owned());
        }
        Ok(())
    }

    fn is_long_gone(&self, object: &Object) -> bool {
        let time = object.meta_str("deletionTimestamp").parse::<jiff::Timestamp>();
        time.is_ok_and(|time| self.reader.entropy.now().as_second() > time.as_second().saturating_add(LEEWAY_SECONDS))
    }
}

/// Error for a token whose object is gone.
const INVALIDATED: &str = "service account token has been invalidated";

fn add(user: &mut UserInfo, key: &str, value: &str) {
    let key = format!("authentication.kubernetes.io/{key}");
    user.extra.insert(key, vec![value.to_owned()]);
}

/// The audiences of a token that were asked about; an error if there is none.
fn common_audiences(claims: &Value, asked: &[&str], own: &[String]) -> Result<Vec<String>, String> {
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let asked = if asked.is_empty() { &own[..] } else { asked };
    let audiences = claims.get("aud").and_then(Value::as_array);
    let audiences: Vec<String> = audiences
        .into_iter()
        .flatten()
        .filter_map(|it| Some(it.as_str()?.to_owned()))
        .collect();
    let common: Vec<String> = audiences
        .iter()
        .filter(|it| asked.contains(&it.as_str()))
        .cloned()
        .collect();
    if common.is_empty() {
        let asked: Vec<String> = asked.iter().map(|it| (*it).to_owned()).collect();
        let quoted = crate::api::rbac::quoted;
        return Err(format!(
            "token audiences {} is invalid for the target audiences {}",
            quoted(&audiences),
            quoted(&asked)
        ));
    }
    Ok(common)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_token_is_read_by_its_own_key_alone() {
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
    fn codes_are_those_of_rfc_4231() {
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let code = hmac_sha256(&key, b"Hi There").map(|it| format!("{it:02x}")).concat();
        assert_eq!(code, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    }
}
