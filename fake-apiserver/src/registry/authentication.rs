//! `Authentication`: whose a token is, and who comes without one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Registry;
use super::authorization::Rbac;
use super::tokens::{ISSUER, TokenKey};
use crate::api::user::{Anonymous, UserInfo};

/// Who asks, and who may do what.
#[derive(Debug)]
pub(crate) struct Access {
    /// Who asks.
    pub(crate) authentication: Authentication,
    /// What tokens of ServiceAccounts are signed with.
    pub(super) token_key: TokenKey,
    /// Who may do what; `None`: everybody everything.
    pub(super) rbac: Option<Rbac>,
}

impl Access {
    /// `seed` is the server's, from which it makes its key.
    pub(crate) fn new(authentication: Authentication, rbac: Option<Rbac>, seed: u64) -> Self {
        Self {
            authentication,
            token_key: TokenKey::from_seed(seed),
            rbac,
        }
    }
}

/// What the server was told of users.
#[derive(Clone, Debug)]
pub(crate) struct Authentication {
    /// Who everyone is who shows no credentials, unless `anonymous` says otherwise.
    pub(crate) admin: Arc<UserInfo>,
    /// Whether a token nobody knows is refused: where somebody asks who may do what.
    pub(crate) is_strict: bool,
    /// The users of tokens.
    pub(crate) tokens: BTreeMap<String, Arc<UserInfo>>,
    /// Who a request without credentials is.
    pub(crate) anonymous: Anonymous,
}

impl Default for Authentication {
    fn default() -> Self {
        Self {
            admin: Arc::new(UserInfo::admin()),
            is_strict: false,
            tokens: BTreeMap::new(),
            anonymous: Anonymous::default(),
        }
    }
}

/// What came of a bearer token.
pub(crate) enum TokenVerdict {
    /// It is this user's; with the audiences that were asked about and that it is for.
    User(Arc<UserInfo>, Vec<String>),
    /// It is nobody's; why, in the server's words.
    Unknown(String),
}

impl Registry {
    /// Whose token this is: one the server was given, or one it handed out for a ServiceAccount. `audiences` are those
    /// asked about, the server's own if there are none.
    pub(crate) fn judge_token(&self, token: &str, audiences: &[&str]) -> TokenVerdict {
        let unknown = || TokenVerdict::Unknown("invalid bearer token".to_owned());
        if let Some(user) = self.access.authentication.tokens.get(token) {
            // Such a token is for the server itself.
            if !audiences.is_empty() && !audiences.contains(&ISSUER) {
                return unknown();
            }
            return TokenVerdict::User(Arc::clone(user), vec![ISSUER.to_owned()]);
        }
        match self.token_owner(token, audiences) {
            Ok(Some(owner)) => TokenVerdict::User(Arc::new(owner.user), owner.audiences),
            Ok(None) if !self.access.authentication.is_strict => {
                TokenVerdict::User(Arc::clone(&self.access.authentication.admin), vec![ISSUER.to_owned()])
            }
            Ok(None) => unknown(),
            Err(why) => TokenVerdict::Unknown(format!("[invalid bearer token, {why}]")),
        }
    }
}
