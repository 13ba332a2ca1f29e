//! `Authentication`: whose a token is, and who comes without one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Registry;
use super::authorization::Rbac;
use super::tokens::{TokenOptions, Tokens};
use crate::api::user::{Anonymous, UserInfo};

/// Who asks, and who may do what.
#[derive(Debug)]
pub(crate) struct Access {
    /// Who asks.
    pub(crate) authentication: Authentication,
    /// Makes and reads the tokens of ServiceAccounts.
    pub(crate) tokens: Tokens,
    /// Who may do what; `None`: everybody everything.
    pub(super) rbac: Option<Rbac>,
}

impl Access {
    /// `seed` is the server's, from which it makes a key if it was given none.
    pub(crate) fn new(authentication: Authentication, rbac: Option<Rbac>, tokens: TokenOptions, seed: u64) -> Self {
        Self {
            authentication,
            tokens: Tokens::new(tokens, seed),
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
        let own = self.access.tokens.audiences();
        let unknown = || TokenVerdict::Unknown("invalid bearer token".to_owned());
        if let Some(user) = self.access.authentication.tokens.get(token) {
            // Such a token is for the server itself.
            let common: Vec<String> = match audiences {
                [] => own.to_vec(),
                asked => own.iter().filter(|it| asked.contains(&it.as_str())).cloned().collect(),
            };
            return match common.is_empty() {
                true => unknown(),
                false => TokenVerdict::User(Arc::clone(user), common),
            };
        }
        match self.token_owner(token, audiences) {
            Ok(Some(owner)) => TokenVerdict::User(Arc::new(owner.user), owner.audiences),
            Ok(None) if !self.access.authentication.is_strict => {
                TokenVerdict::User(Arc::clone(&self.access.authentication.admin), own.to_vec())
            }
            Ok(None) => unknown(),
            Err(why) => TokenVerdict::Unknown(format!("[invalid bearer token, {why}]")),
        }
    }
}
