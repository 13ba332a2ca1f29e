//! `Authentication`: determines the user of a token, and the user of requests without a token.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::Registry;
use super::reader::Reader;
use super::tokens::{TokenOptions, Tokens};
use super::types::edit::ensure_object;
use crate::api::user::{Anonymous, UserInfo};
use crate::entropy;
use crate::storage::Key;

/// Authentication: users, and the tokens of ServiceAccounts.
#[derive(Debug)]
pub(crate) struct Access {
    pub(super) reader: Arc<Reader>,
    /// The configured users and their tokens.
    pub(crate) authentication: Authentication,
    /// Issues and verifies the tokens of ServiceAccounts.
    pub(crate) tokens: Tokens,
}

impl Access {
    pub(super) fn new(reader: Arc<Reader>, authentication: Authentication, tokens: TokenOptions) -> Self {
        // Without a configured key, one is derived from the server's seed.
        let tokens = Tokens::new(tokens, reader.entropy.seed());
        Self {
            reader,
            authentication,
            tokens,
        }
    }
}

/// The configured users, their tokens, and the treatment of requests without credentials.
#[derive(Clone, Debug)]
pub(crate) struct Authentication {
    /// User of requests without credentials, unless `anonymous` sets a different user, and of accepted unknown tokens.
    pub(crate) admin: Arc<UserInfo>,
    /// Set if permissions depend on the user.
    pub(crate) has_rights: bool,
    /// Users by their bearer tokens.
    pub(crate) tokens: BTreeMap<String, Arc<UserInfo>>,
    /// Identity of a request without credentials.
    pub(crate) anonymous: Anonymous,
}

impl Default for Authentication {
    fn default() -> Self {
        Self {
            admin: Arc::new(UserInfo::admin()),
            has_rights: false,
            tokens: BTreeMap::new(),
            anonymous: Anonymous::default(),
        }
    }
}

impl Authentication {
    /// Returns `true` if an unknown token is refused: if permissions depend on the user, or if anonymous requests are
    /// refused.
    pub(crate) fn is_strict(&self) -> bool {
        self.has_rights || self.anonymous == Anonymous::Refused
    }
}

/// Label of a token Secret with the day of the last use of its token.
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";

/// Length of the day in a time.
const DAY_CHARS: usize = "2006-01-02".len();

const ONE_DAY: SignedDuration = SignedDuration::from_hours(24);

/// Result of looking up a bearer token.
pub(crate) enum TokenVerdict {
    /// The token is valid. Contains its user, and the requested audiences for which it is valid.
    User(Arc<UserInfo>, Vec<String>),
    /// The token is invalid. Contains the reason, with kube-apiserver's message.
    Unknown(String),
}

impl Registry {
    /// Finds the user of a token: a configured user, a ServiceAccount, or the administrator if unknown tokens are
    /// accepted. `audiences` are the audiences to check for; if empty, the server's own audiences are used. A Secret
    /// that contains the token is labelled with the day of this use.
    pub(crate) fn judge_token(&self, token: &str, audiences: &[&str]) -> TokenVerdict {
        let access = &self.access;
        let own = access.tokens.audiences();
        let unknown = || TokenVerdict::Unknown("invalid bearer token".to_owned());
        if let Some(user) = access.authentication.tokens.get(token) {
            // A configured token is valid for the server's own audiences.
            let common: Vec<String> = match audiences {
                [] => own.to_vec(),
                asked => own.iter().filter(|it| asked.contains(&it.as_str())).cloned().collect(),
            };
            return match common.is_empty() {
                true => unknown(),
                false => TokenVerdict::User(Arc::clone(user), common),
            };
        }
        match access.token_owner(token, audiences) {
            Ok(Some(owner)) => {
                if let Some(secret) = &owner.secret {
                    self.label_used(secret);
                }
                TokenVerdict::User(Arc::new(owner.user), owner.audiences)
            }
            Ok(None) if !access.authentication.is_strict() => {
                TokenVerdict::User(Arc::clone(&access.authentication.admin), own.to_vec())
            }
            Ok(None) => unknown(),
            Err(why) => TokenVerdict::Unknown(format!("[invalid bearer token, {why}]")),
        }
    }
    /// Labels a token Secret with the current day, unless it already has this label (`patchSecretWithLastUsedDate`).
    fn label_used(&self, secret: &Key) {
        let Some(row) = self.reader.scheme().lookup("", "v1", "secrets") else {
            return;
        };
        let Some(stored) = self.reader.store.get(&row.storage, secret) else {
            return;
        };
        let now = self.reader.entropy.now();
        let day = |time: Timestamp| entropy::seconds(time).chars().take(DAY_CHARS).collect::<String>();
        let (today, tomorrow) = (day(now), day(now.saturating_add(ONE_DAY).unwrap_or(now)));
        let old = self.reader.decode(&row, &stored);
        if old
            .labels()
            .any(|label| label == (LAST_USED, &*today) || label == (LAST_USED, &*tomorrow))
        {
            return;
        }
        let mut next = old.clone();
        ensure_object(next.metadata_mut(), "labels").insert(LAST_USED.into(), today.into());
        self.update_own(&row, &stored, &old, next);
    }
}
