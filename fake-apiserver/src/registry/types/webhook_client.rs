//! Addresses of webhooks, as webhook configurations and CRDs say it (`k8s.io/apiserver/pkg/util/webhook`).

use serde_json::Value;

use super::cursor::Cursor;
use super::names;
use crate::api::field::{FieldErrors, quote};

const FORM: &str = "; desired format: https://host[/path]";

/// Checks that a client configuration has a right URL or a right service.
pub(crate) fn validate_client(client: &Cursor<'_>, errors: &mut FieldErrors) {
    let (url, service) = (client.at("url"), client.at("service"));
    match (url.is_set(""), service.is_set("")) {
        (true, false) => validate_url(&url, errors),
        (false, true) => validate_service(&service, errors),
        (true, true) | (false, false) => errors.required(client, "exactly one of url or service is required"),
    }
}

/// `ValidateWebhookService`, which is given the name for the namespace and the namespace for the name.
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
    // Go drops the first byte whatever it is.
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

/// `ValidateWebhookURL`
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
        if let Some(part) = part {
            errors.invalid(at, Value::from(part), text);
        }
    }
}

/// The parts of a URL, as Go's `url.Parse` finds them.
#[derive(Debug, Default, PartialEq)]
struct Url<'a> {
    scheme: String,
    user: Option<&'a str>,
    host: &'a str,
    query: Option<&'a str>,
    fragment: Option<&'a str>,
}

impl<'a> Url<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        if text.bytes().any(|b| b.is_ascii_control()) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        let (rest, fragment) = cut(text, '#');
        let (scheme, rest) = split_scheme(rest)?;
        let (rest, query) = cut(rest, '?');
        let mut url = Self {
            scheme: scheme.to_ascii_lowercase(),
            fragment,
            query,
            ..Self::default()
        };
        if !rest.starts_with('/') {
            if scheme.is_empty() && rest.split('/').next().is_some_and(|first| first.contains(':')) {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
            // With a scheme it is opaque, which has no host either.
            return check_escapes(rest).map(|()| url);
        }
        if let Some(after) = rest.strip_prefix("//")
            && (!scheme.is_empty() || !rest.starts_with("///"))
        {
            let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
            let (user, host) = match authority.rsplit_once('@') {
                Some((user, host)) => (Some(user), host),
                None => (None, authority),
            };
            check_host(host)?;
            check_escapes(path)?;
            (url.user, url.host) = (user, host);
            return Ok(url);
        }
        check_escapes(rest).map(|()| url)
    }
}

/// Splits a text at a mark; the second part is absent where it is empty.
fn cut(text: &str, mark: char) -> (&str, Option<&str>) {
    match text.split_once(mark) {
        Some((before, after)) => (before, Some(after).filter(|it| !it.is_empty())),
        None => (text, None),
    }
}

fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (index, b) in text.bytes().enumerate() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..index], &text[index + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn check_host(host: &str) -> Result<(), String> {
    let after_name = match host.starts_with('[') {
        true => host.rfind(']').map(|at| &host[at + 1..]).ok_or("missing ']' in host")?,
        false => host.rfind(':').map_or("", |at| &host[at..]),
    };
    let is_port = after_name
        .strip_prefix(':')
        .is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    if !after_name.is_empty() && !is_port {
        return Err(format!("invalid port {} after host", quote(after_name)));
    }
    match host.chars().find(|it| it.is_ascii() && " \\^{|}`".contains(*it)) {
        Some(bad) => Err(format!("invalid character {} in host name", quote(&bad.to_string()))),
        None => check_escapes(host),
    }
}

fn check_escapes(text: &str) -> Result<(), String> {
    for (at, _) in text.match_indices('%') {
        let digits = text.as_bytes().get(at + 1..at + 3);
        if !digits.is_some_and(|it| it.iter().all(u8::is_ascii_hexdigit)) {
            let shown: String = text[at..].chars().take(3).collect();
            return Err(format!("invalid URL escape {}", quote(&shown)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("https://a.example.com:8443/x", Ok(("https", "a.example.com:8443")))]
    #[case("HTTPS://a", Ok(("https", "a")))]
    #[case("a.example.com", Ok(("", "")))]
    #[case("https:a", Ok(("https", "")))]
    #[case("1a:b", Err("first path segment in URL cannot contain colon"))]
    #[case(":b", Err("missing protocol scheme"))]
    #[case("https://a b", Err("invalid character \" \" in host name"))]
    #[case("https://a:b", Err("invalid port \":b\" after host"))]
    #[case("https://a/%zz", Err("invalid URL escape \"%zz\""))]
    #[case("\n", Err("net/url: invalid control character in URL"))]
    fn urls_are_read_as_go_reads_them(#[case] text: &str, #[case] expected: Result<(&str, &str), &str>) {
        let url = Url::parse(text);
        let found = url
            .as_ref()
            .map(|it| (it.scheme.as_str(), it.host))
            .map_err(String::as_str);
        assert_eq!(found, expected);
    }
}
