//! Maps path and method of a request to a resource and a verb (rules A18, A19, A26, A27).

use std::borrow::Cow;
use std::sync::Arc;

use http::Method;
use http::header::CONTENT_TYPE;

use super::call::Call;
use super::{decode, negotiation};
use crate::api::request_info::{RequestInfo, ResourcePath, Verb};
use crate::api::status::Status;
use crate::registry::scheme::{Row, Scheme};

/// Target of a request.
#[derive(Debug)]
pub(crate) enum Target {
    /// An unknown path: plain text 404.
    NotFound,
    /// A path that does not belong to a resource, such as discovery, OpenAPI, version or health.
    Document,
    /// A resource.
    Resource(Arc<Row>, RequestInfo),
}

/// Finds the target of a request, or returns an error.
pub(crate) fn find(scheme: &Scheme, call: &mut Call) -> Result<Target, Status> {
    // A copy, because the path is compared while the call is changed.
    let mut decoded = call.parts.uri.path().to_owned();
    if decoded.as_bytes().contains(&b'%') {
        let bytes = percent_encoding::percent_decode_str(&decoded);
        decoded = bytes.decode_utf8_lossy().into_owned();
    }
    let Some(path) = ResourcePath::parse(&decoded) else {
        return Ok(Target::Document);
    };
    let Some(row) = scheme.lookup(path.group, path.version, path.resource) else {
        return unknown(scheme, &path);
    };
    let found = find_in(&row, &path, call);
    // A path without a route has no warning.
    if !row.is_custom() && found.as_ref().is_err_and(|status| status.code == 404) {
        call.deprecation = None;
    }
    let info = match found? {
        Some(info) => info,
        None => return Ok(Target::NotFound),
    };
    Ok(Target::Resource(row, info))
}

/// Returns the request for a path of a resource; `None` if the response is a plain-text 404.
fn find_in(row: &Arc<Row>, path: &ResourcePath<'_>, call: &mut Call) -> Result<Option<RequestInfo>, Status> {
    call.has_routes = !row.is_custom();
    call.deprecation = row.deprecation().map(str::to_owned);
    // The errors differ: built-in resources have routes, custom resources share one handler for all paths.
    let missing = || {
        if row.is_custom() {
            Ok(None)
        } else {
            Err(Status::unknown_path())
        }
    };
    if row.info.is_namespaced() {
        if path.namespace.is_empty() && !path.name.is_empty() {
            return missing();
        }
    } else if !path.namespace.is_empty() {
        return missing();
    }
    // The handler of custom resources only supports list and watch across namespaces.
    let across_namespaces = row.info.is_namespaced() && path.namespace.is_empty();
    let reads = matches!(call.parts.method, Method::GET | Method::HEAD);
    if row.is_custom() && across_namespaces && !reads {
        return missing();
    }
    let conversion = row.custom_resource().and_then(|it| it.conversion.as_ref());
    if conversion.is_some_and(|it| it.has_invalid_bundle) {
        call.deprecation = None;
        return Err(Status::internal("error resolving resource"));
    }
    // A built-in resource without the verb list has no path for all namespaces.
    if !row.is_custom() && across_namespaces && !row.info.allows("list") {
        return Err(Status::unknown_path());
    }
    let subresource = path.subresource.split('/').next().unwrap_or_default();
    // The handler of custom resources ignores the rest of the path.
    let is_longer = !row.is_custom() && path.subresource.len() > subresource.len() && subresource != "proxy";
    if !path.subresource.is_empty() && (is_longer || row.info.subresource(subresource).is_none()) {
        return match row.is_custom() {
            true => Err(Status::not_found(&row.info.group_resource(), path.name)),
            false => Err(Status::unknown_path()),
        };
    }
    let verb = verb(row, path, subresource, call)?;
    let info = RequestInfo {
        verb,
        group: row.info.group.clone(),
        version: row.info.version.clone(),
        resource: row.info.resource.clone(),
        subresource: match row.is_custom() {
            true => subresource.to_owned(),
            false => path.subresource.to_owned(),
        },
        namespace: path.namespace.to_owned(),
        name: path.name.to_owned(),
    };
    Ok(Some(info))
}

/// Returns the target or the error for the path of a resource that is not served.
fn unknown(scheme: &Scheme, path: &ResourcePath<'_>) -> Result<Target, Status> {
    let builtin = |row: &&Arc<Row>| row.info.group == path.group && !row.is_custom();
    match scheme.rows().any(|row| builtin(&row)) {
        true => Err(Status::unknown_path()),
        false => Ok(Target::NotFound),
    }
}

fn verb(row: &Row, path: &ResourcePath<'_>, subresource: &str, call: &Call) -> Result<Verb, Status> {
    let one = !path.name.is_empty();
    let verbs: &[Cow<'static, str>] = match row.info.subresource(subresource) {
        Some(sub) => &sub.verbs,
        None => &row.info.verbs,
    };
    // Discovery omits verbs for a CRD that is being deleted, but requests with these verbs are still handled.
    let is_custom_itself = row.is_custom() && subresource.is_empty();
    let has = |verb: Verb| is_custom_itself || verbs.iter().any(|it| it == verb.as_str());
    let watching = path.legacy_watch || call.query.flag("watch").unwrap_or(false);
    // The handler of custom resources treats HEAD like GET.
    let method = match call.parts.method {
        Method::HEAD if row.is_custom() => &Method::GET,
        _ => &call.parts.method,
    };
    let verb = match (method, one) {
        // For a path with a name, watch=true is ignored, except under the legacy prefix (rule A28).
        (&Method::GET, true) if !path.legacy_watch => Verb::Get,
        (&Method::GET, _) if watching => {
            if !has(Verb::Watch) && has(Verb::List) {
                return Err(Status::verb_not_supported(&row.info.group_resource(), "watch"));
            }
            Verb::Watch
        }
        (&Method::GET, _) => Verb::List,
        (&Method::POST, false) => Verb::Create,
        (&Method::POST, true) if !subresource.is_empty() || row.is_custom() => Verb::Create,
        (&Method::PUT, true) => Verb::Update,
        (&Method::PATCH, false) if row.is_custom() => {
            // The form of the body is checked before the name.
            negotiation::patch_form(call.header(&CONTENT_TYPE), decode::served(row))?;
            return Err(Status::bad_request("name must be provided"));
        }
        (&Method::PUT, false) if row.is_custom() => return Err(Status::bad_request("name must be provided")),
        (&Method::PATCH, true) => Verb::Patch,
        (&Method::DELETE, true) => Verb::Delete,
        (&Method::DELETE, false) => Verb::DeleteCollection,
        _ => return Err(Status::method_not_allowed()),
    };
    let across_namespaces = row.info.is_namespaced() && path.namespace.is_empty();
    if across_namespaces && matches!(verb, Verb::Create | Verb::DeleteCollection) {
        return Err(Status::method_not_allowed());
    }
    if has(verb) {
        Ok(verb)
    } else if row.is_custom() {
        // Custom resources share a handler, which includes the verb in its error; for built-in resources, the router
        // refuses the method.
        Err(Status::verb_not_supported(&row.info.group_resource(), verb.as_str()))
    } else {
        Err(Status::method_not_allowed())
    }
}
