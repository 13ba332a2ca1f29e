//! Validates client configurations in webhook configurations and CRDs (`k8s.io/apiserver/pkg/util/webhook`).

use super::cursor::Cursor;
use super::names;
use super::url::Url;
use crate::api::field::{FieldErrors, quote};

const FORM: &str = "; desired format: https://host[/path]";

/// Checks that a client configuration has either a valid URL or a valid service.
pub(crate) fn validate_client(client: &Cursor<'_>, errors: &mut FieldErrors) {
    let (url, service) = (client.at("url"), client.at("service"));
    match (url.is_set(""), service.is_set("")) {
        (true, false) => validate_url(&url, errors),
        (false, true) => validate_service(&service, errors),
        (true, true) | (false, false) => errors.required(client, "exactly one of url or service is required"),
    }
}

/// Checks a reference to a Service (`ValidateWebhookService`). As in kube-apiserver, a missing name is reported as a
/// missing namespace and vice versa.
fn validate_service(service: &Cursor<'_>, errors: &mut FieldErrors) {
    for (field, shown) in [("namespace", "name"), ("name", "namespace")] {
        if service.text(field).is_empty() {
            errors.required(service.at(shown), "");
        }
    }
    let port = service.integer("port").unwrap_or(0);
    if let Some(text) = names::port_number(port) {
        errors.invalid(service.at("port"), port, format!("port is not valid: {text}"));
    }
    let path = service.at("path");
    for text in wrong_in_path(path.as_text()) {
        errors.invalid(path, path.as_text(), text);
    }
}

fn wrong_in_path(path: &str) -> Vec<String> {
    if matches!(path, "" | "/") {
        return Vec::new();
    }
    if path == "//" {
        return vec!["segment[0] may not be empty".to_owned()];
    }
    let mut wrong = Vec::new();
    if !path.starts_with('/') {
        wrong.push("must start with a '/'".to_owned());
    }
    // Like kube-apiserver, drops the first byte even if it is not a slash.
    let rest = String::from_utf8_lossy(&path.as_bytes()[1..]).into_owned();
    let rest = rest.strip_suffix('/').unwrap_or(&rest);
    for (index, segment) in rest.split('/').enumerate() {
        if segment.is_empty() {
            wrong.push(format!("segment[{index}] may not be empty"));
            continue;
        }
        let texts = names::dns1123_subdomain(segment, false).into_iter();
        wrong.extend(texts.map(|text| format!("segment[{index}]: {text}")));
    }
    wrong
}

/// Checks the URL of a webhook (`ValidateWebhookURL`).
fn validate_url(at: &Cursor<'_>, errors: &mut FieldErrors) {
    let url = match Url::parse(at.as_text()) {
        Ok(url) => url,
        Err(why) => {
            let text = format!("url must be a valid URL: parse {}: {why}{FORM}", quote(at.as_text()));
            return errors.required(at, text);
        }
    };
    if url.scheme != "https" {
        let text = format!("'https' is the only allowed URL scheme{FORM}");
        errors.invalid(at, url.scheme.as_str(), text);
    }
    if url.host.is_empty() {
        errors.invalid(at, "", format!("host must be specified{FORM}"));
    }
    for (part, text) in [
        (url.user, "user information is not permitted in the URL"),
        (url.fragment, "fragments are not permitted in the URL"),
        (url.query, "query parameters are not permitted in the URL"),
    ] {
        if !part.is_empty() {
            errors.invalid(at, part, text);
        }
    }
}
