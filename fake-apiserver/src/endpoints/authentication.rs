//! Authentication, impersonation and authorization, in this order, before any other check (rules A23, Q1, Q2).

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use http::request::Parts;
use http::{HeaderMap, Method};

use super::Endpoints;
use super::call::{Call, selected_name};
use super::{audit, impersonation, upgrade};
use crate::api::front_proxy::UnknownCertificate;
use crate::api::rbac::Attributes;
use crate::api::request_info::{ResourcePath, Verb};
use crate::api::status::Status;
use crate::api::user::{Anonymous, MASTERS, SentBy, UserInfo};
use crate::registry::authentication::TokenVerdict;

/// Authenticates and authorizes the user, and applies the limit on concurrent requests.
pub(super) fn admit(server: &Endpoints, call: &mut Call) -> Result<(), Refused> {
    let authenticated = authenticate(server, &call.parts);
    let wanted = match &authenticated {
        Ok(_) => impersonation::wanted(&call.parts.headers)?,
        Err(_) => None,
    };
    let is_plain = wanted.is_none() && !server.registry.authorization.has_rbac() && authenticated.is_ok();
    if is_plain && server.audit.is_none() {
        return admit_plain(server, call, authenticated?);
    }
    let path = percent_encoding::percent_decode_str(call.parts.uri.path())
        .decode_utf8_lossy()
        .into_owned();
    let method = call.parts.method.as_str().to_lowercase();
    let selected = selected_name(&call.query);
    let request = attributes(call, &path, &method, &selected);
    match authenticated {
        Ok(user) => call.user = user.unwrap_or_else(|| Arc::clone(&call.user)),
        Err(status) => {
            audit::unauthenticated(server, call, &path, &request, &status);
            return Err(status.into());
        }
    }
    audit::begin(server, call, &path, &request);
    if call.parts.extensions.get::<SentBy>().is_some() {
        // The server's own workers have all permissions, because this server does not have the ClusterRoles of
        // Kubernetes' controllers.
        call.is_admitted = true;
        return Ok(());
    }
    if let Some(wanted) = wanted {
        let (user, constraint) = impersonation::become_user(&server.registry, &call.user, wanted, &request)?;
        call.user = Arc::new(user);
        if let Some(record) = &mut call.record {
            record.impersonated(&call.user, constraint);
        }
    }
    take_seat(server, call)?;
    match &mut call.record {
        None => server.registry.authorization.authorize(&call.user, &request)?,
        Some(record) => {
            let decision = server.registry.authorization.decide(&call.user, &request);
            record.authorized(decision.is_allowed, &decision.reason);
            if !decision.is_allowed {
                return Err(Status::not_allowed(&request, &call.user.name, &decision.reason).into());
            }
        }
    }
    call.is_admitted = true;
    Ok(())
}

/// Admits any user, because authorization is off.
fn admit_plain(server: &Endpoints, call: &mut Call, user: Option<Arc<UserInfo>>) -> Result<(), Refused> {
    if let Some(user) = user {
        call.user = user;
    }
    if call.parts.extensions.get::<SentBy>().is_none() {
        take_seat(server, call)?;
    }
    call.is_admitted = true;
    Ok(())
}

/// Reason why a request is not admitted.
#[derive(Debug)]
pub(super) enum Refused {
    /// The request is refused with 400, 401 or 403.
    Status(Box<Status>),
    /// The request is refused because too many requests are in progress.
    TooMany,
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

/// Counts a request as in progress, except watches and connections. Fails if the limit is reached, except for
/// administrators.
fn take_seat(server: &Endpoints, call: &mut Call) -> Result<(), Refused> {
    if call.is_long_running {
        return Ok(());
    }
    call.seat = server.metrics.take_seat(call.is_mutating(), call.started);
    match call.seat.is_some() || call.user.is_in(MASTERS) {
        true => Ok(()),
        false => Err(Refused::TooMany),
    }
}

/// Fails with 401 or 403 unless the user is in `system:masters` and does not impersonate another user. Roles do not
/// apply to the control API, because it can write Roles without any checks.
pub(super) fn admit_master(server: &Endpoints, parts: &Parts) -> Result<(), Status> {
    let user = authenticate(server, parts)?;
    let user = user.unwrap_or_else(|| Arc::clone(&server.registry.access.authentication.admin));
    if user.is_in(MASTERS) && impersonation::wanted(&parts.headers)?.is_none() {
        return Ok(());
    }
    let method = parts.method.as_str().to_lowercase();
    let request = Attributes {
        verb: &method,
        path: parts.uri.path(),
        ..Attributes::default()
    };
    let reason = "only system:masters may use the control API";
    Err(Status::not_allowed(&request, &user.name, reason))
}

/// Authenticates the user of a request; returns `None` for the administrator.
fn authenticate(server: &Endpoints, parts: &Parts) -> Result<Option<Arc<UserInfo>>, Status> {
    let authentication = &server.registry.access.authentication;
    if let Some(user) = parts.extensions.get::<Arc<UserInfo>>() {
        let mut user = Arc::clone(user);
        Arc::make_mut(&mut user).authenticate();
        return Ok(Some(user));
    }
    if let Some(user) = parts.extensions.get::<UserInfo>() {
        return Ok(Some(Arc::new(user.clone())));
    }
    // Without authorization, unknown and expired tokens are accepted as tokens of the administrator.
    let unknown = || match authentication.is_strict() {
        true => Err(Status::unauthorized()),
        false => Ok(None),
    };
    match token(&parts.headers) {
        Ok(None) => {}
        Ok(Some(token)) => {
            return match server.registry.judge_token(&token, &[]) {
                TokenVerdict::User(user, _) => Ok(Some(user)),
                TokenVerdict::Unknown(_) => unknown(),
            };
        }
        Err(MalformedToken) => return unknown(),
    }
    match authentication.anonymous {
        _ if !authentication.is_strict() => Ok(None),
        _ if parts.extensions.get::<UnknownCertificate>().is_some() => Err(Status::unauthorized()),
        Anonymous::Admin => Ok(None),
        Anonymous::Allowed => Ok(Some(Arc::new(UserInfo::anonymous()))),
        Anonymous::Refused => Err(Status::unauthorized()),
    }
}

/// Returns the token of a request, from `Authorization` or from the subprotocols of a WebSocket
/// (`ProtocolAuthenticator`).
fn token(headers: &HeaderMap) -> Result<Option<Cow<'_, str>>, MalformedToken> {
    if let Some(token) = bearer_token(headers) {
        return Ok(Some(Cow::Borrowed(token)));
    }
    if !headers.contains_key(SEC_WEBSOCKET_PROTOCOL) || !upgrade::is_asked_for(headers) {
        return Ok(None);
    }
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let protocols = values.filter_map(|it| it.to_str().ok()).flat_map(|it| it.split(','));
    let (mut found, mut has_others) = (None, false);
    for protocol in protocols.map(str::trim) {
        let Some(encoded) = protocol.strip_prefix(upgrade::BEARER_PROTOCOL) else {
            has_others = true;
            continue;
        };
        let token = BASE64_URL_SAFE_NO_PAD.decode(encoded).map_err(|_| MalformedToken)?;
        let token = String::from_utf8(token).map_err(|_| MalformedToken)?;
        if found.replace(token).is_some() {
            return Err(MalformedToken);
        }
    }
    match found.filter(|it| !it.is_empty()) {
        // The client must also offer a subprotocol other than the token, which the response can select.
        Some(_) if !has_others => Err(MalformedToken),
        found => Ok(found.map(Cow::Owned)),
    }
}

/// A malformed token among the subprotocols of a WebSocket.
struct MalformedToken;

/// Returns the token of `Authorization: Bearer …`; other schemes are ignored.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut words = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split(' ');
    let scheme = words.next()?;
    let token = words.next().filter(|it| !it.is_empty())?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

/// Returns the verb of a request for a resource, even if the resource is not served.
pub(super) fn verb(call: &Call, found: &ResourcePath<'_>) -> Verb {
    let watching = found.legacy_watch || call.query.flag("watch").unwrap_or(false);
    match (&call.parts.method, found.name.is_empty()) {
        (&Method::GET | &Method::HEAD, false) if !found.legacy_watch => Verb::Get,
        (&Method::GET | &Method::HEAD, _) if watching => Verb::Watch,
        (&Method::GET | &Method::HEAD, _) => Verb::List,
        (&Method::POST, _) => Verb::Create,
        (&Method::PUT, _) => Verb::Update,
        (&Method::PATCH, _) => Verb::Patch,
        (&Method::DELETE, true) => Verb::DeleteCollection,
        (_, _) => Verb::Delete,
    }
}

/// Returns the attributes for authorization, even if the path does not exist (rule A26).
fn attributes<'a>(call: &Call, path: &'a str, method: &'a str, selected: &'a str) -> Attributes<'a> {
    let Some(found) = ResourcePath::parse(path) else {
        return Attributes {
            verb: method,
            path,
            ..Attributes::default()
        };
    };
    let verb = verb(call, &found);
    let is_namespace = found.group.is_empty() && found.resource == "namespaces";
    let selects = matches!(verb, Verb::List | Verb::Watch) && !found.legacy_watch;
    Attributes {
        verb: verb.as_str(),
        group: found.group,
        resource: found.resource,
        subresource: found.subresource.split('/').next().unwrap_or_default(),
        namespace: if is_namespace { found.name } else { found.namespace },
        // The name in a field selector is treated as the request's name, so that `resourceNames` can allow a list or a
        // watch, but not the deletion of a collection or a path that begins with `/watch/` (`RequestInfoFactory`).
        name: if found.name.is_empty() && selects {
            selected
        } else {
            found.name
        },
        path: "",
    }
}
