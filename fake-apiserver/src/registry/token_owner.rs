//! `TokenOwner`: the ServiceAccount of a token, which is only valid while the objects to which it is bound exist.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::authentication::Access;
use super::tokens::LEGACY_ISSUER;
use crate::api::json::Value;
use crate::api::object::Object;
use crate::api::user::{CREDENTIAL_ID, UserInfo};
use crate::storage::Key;

/// Time for which a token is accepted before its validity begins, after it has expired, and after the deletionTimestamp
/// of a bound object, to allow for clock skew.
const LEEWAY_SECONDS: i64 = 60;

/// Owner of a token, and its audiences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenOwner {
    pub(crate) user: UserInfo,
    /// The requested audiences for which the token is valid.
    pub(crate) audiences: Vec<String>,
    /// The Secret that contains the token, if it is not from a TokenRequest.
    pub(crate) secret: Option<Key>,
}

impl Access {
    /// Returns the owner of a token; `Ok(None)` if this server did not sign the token or does not accept its issuer.
    /// Fails with the reason if the token is not valid. `audiences` are the audiences to check for; if empty, the
    /// server's own audiences are used.
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
            return Err(format!("service account {namespace}/{name} has been deleted"));
        }
        let mut user = UserInfo::service_account(namespace, name);
        uid.clone_into(&mut user.uid);
        let credential = format!("JTI={}", at("/jti"));
        user.extra.insert(CREDENTIAL_ID.to_owned(), vec![credential]);
        for kind in ["secret", "pod", "node"] {
            let (name, uid) = (
                at(&format!("/kubernetes.io/{kind}/name")),
                at(&format!("/kubernetes.io/{kind}/uid")),
            );
            if name.is_empty() {
                continue;
            }
            let namespace = if kind == "node" { "" } else { namespace };
            // A Pod's token also contains its Node, but the token remains valid as long as the Pod exists.
            let is_bound = kind != "node" || claims.pointer("/kubernetes.io/pod").is_none();
            if is_bound {
                let bound = self.reader.stored_object(&format!("{kind}s"), namespace, name);
                self.check_bound(kind, bound.as_ref(), uid)?;
            }
            if kind != "secret" {
                add(&mut user, &format!("{kind}-name"), name);
                if !uid.is_empty() {
                    add(&mut user, &format!("{kind}-uid"), uid);
                }
            }
        }
        Ok(Some(TokenOwner {
            user,
            audiences,
            secret: None,
        }))
    }

    /// Checks that the object to which a token is bound still exists.
    fn check_bound(&self, kind: &str, bound: Option<&Object>, uid: &str) -> Result<(), String> {
        match bound {
            Some(bound) if bound.uid() != uid => Err(format!(
                "{kind} UID ({}) does not match service account {kind} ref claim ({uid})",
                bound.uid()
            )),
            Some(bound) if !self.is_long_gone(bound) => Ok(()),
            Some(_) | None => Err("service account token has been invalidated".to_owned()),
        }
    }

    /// Returns the owner of a token that kube-controller-manager wrote into a Secret. The token does not expire, and is
    /// valid while the Secret contains it and the ServiceAccount exists.
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
        let holds = |secret: &Object| {
            let data = secret.get("data")?.get("token")?.as_str()?;
            Some(BASE64_STANDARD.decode(data).ok()? == token.as_bytes())
        };
        let stored = self.reader.stored_object("secrets", &namespace, &secret);
        let stored = stored
            .filter(|it| !it.is_terminating())
            .ok_or("Token has been invalidated")?;
        if holds(&stored) != Some(true) {
            return Err("Token does not match server's copy".to_owned());
        }
        let account = self.reader.stored_object("serviceaccounts", &namespace, &name);
        let account = account.ok_or_else(|| format!("serviceaccounts {name:?} not found"))?;
        if account.is_terminating() {
            return Err(format!("ServiceAccount {namespace}/{name} has been deleted"));
        }
        if account.uid() != uid {
            let found = account.uid();
            return Err(format!("ServiceAccount UID ({found}) does not match claim ({uid})"));
        }
        if stored
            .labels()
            .any(|(key, value)| key == INVALID_SINCE && !value.is_empty())
        {
            return Err(format!(
                "the token in secret {namespace}/{secret} for service account {namespace}/{name} has been marked invalid. \
                 Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the \
                 '{INVALID_SINCE}' label from the secret to temporarily allow use of this token"
            ));
        }
        let mut user = UserInfo::service_account(&namespace, &name);
        user.uid = uid;
        let secret = Some(Key::new(&namespace, &secret));
        Ok(TokenOwner {
            user,
            audiences,
            secret,
        })
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

/// Label of a token Secret whose token is no longer accepted.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

fn add(user: &mut UserInfo, key: &str, value: &str) {
    let key = format!("authentication.kubernetes.io/{key}");
    user.extra.insert(key, vec![value.to_owned()]);
}

/// Returns the requested audiences for which the token is valid; fails if it is not valid for any.
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
