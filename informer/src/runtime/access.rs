//! `Access`: authenticates and authorizes HTTP requests with the API server.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::{Instant, timeout};

use super::health::EndpointResponse;
use crate::Error;

/// Cache durations of permissions and of refusals. The first is controller-runtime's cache duration for token reviews.
const REMEMBERED: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(30));

/// Maximum number of cached decisions. If it is reached, all decisions are dropped before the next one is added.
const ANSWERS: usize = 1024;

/// Time limit for the API server's decision.
const PATIENCE: Duration = Duration::from_secs(10);

/// Authorizes requests with TokenReviews and SubjectAccessReviews.
pub(super) struct Access {
    client: Client,
    /// Guards the cached decisions, by token and path.
    known: Mutex<BTreeMap<(String, String), Known>>,
}

#[derive(Clone)]
struct Known {
    refusal: Option<EndpointResponse>,
    until: Instant,
}

impl Access {
    pub(super) fn new(client: &Client) -> Self {
        Self {
            client: client.clone(),
            known: Mutex::default(),
        }
    }

    /// Returns the error response if the caller is not permitted to read this path; `None` if the caller is permitted.
    pub(super) async fn refusal(&self, headers: &HeaderMap, path: &str) -> Option<EndpointResponse> {
        let token = headers.get(header::AUTHORIZATION).and_then(|it| it.to_str().ok());
        let Some(token) = token.and_then(bearer) else {
            return Some(text(401, "Unauthorized\n"));
        };
        let key = (token.to_owned(), path.to_owned());
        if let Some(known) = self.look(&key) {
            return known.refusal;
        }
        let Ok(decided) = timeout(PATIENCE, self.ask(token, path)).await else {
            return Some(text(500, "Authentication failed\n"));
        };
        match decided {
            Ok(refusal) => {
                let ttl = if refusal.is_none() { REMEMBERED.0 } else { REMEMBERED.1 };
                let until = Instant::now() + ttl;
                let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                if known.len() >= ANSWERS {
                    known.clear();
                }
                let refused = refusal.clone();
                known.insert(key, Known { refusal, until });
                refused
            }
            Err(error) => {
                tracing::error!(%error, path, "a caller could not be authenticated");
                Some(text(500, "Authentication failed\n"))
            }
        }
    }

    fn look(&self, key: &(String, String)) -> Option<Known> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|it| it.until > Instant::now()).cloned()
    }

    async fn ask(&self, token: &str, path: &str) -> Result<Option<EndpointResponse>, Error> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let status = reviews
            .create(&PostParams::default(), &review)
            .await?
            .status
            .unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(Some(text(401, "Unauthorized\n")));
        };
        let name = user.username.clone().unwrap_or_default();
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review = reviews.create(&PostParams::default(), &may_get(path, user)).await?;
        if review.status.is_some_and(|it| it.allowed) {
            return Ok(None);
        }
        Ok(Some(text(403, &format!("Authorization denied for user {name}\n"))))
    }
}

/// Builds a review that checks whether a user may `get` a non-resource path.
fn may_get(path: &str, user: UserInfo) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(path.to_owned()),
                verb: Some("get".to_owned()),
            }),
            user: user.username,
            groups: user.groups,
            uid: user.uid,
            extra: user.extra,
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.trim())
}

fn text(code: u16, body: &str) -> EndpointResponse {
    EndpointResponse {
        code,
        content_type: "text/plain; charset=utf-8",
        body: body.to_owned(),
    }
}
