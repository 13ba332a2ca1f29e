//! `Url`: parses URLs like Go's `net/url`, with the same errors.

use crate::api::field::quote;

/// A parsed URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) scheme: String,
    /// The part between the scheme and the query, if it does not begin with a slash, as in `mailto:jane@example.com`.
    pub(crate) opaque: String,
    /// The user information as written in the URL, still percent-encoded.
    pub(crate) user: String,
    /// The host and the port. IPv6 addresses are in brackets.
    pub(crate) host: String,
    pub(crate) escaped_path: String,
    pub(crate) query: String,
    pub(crate) fragment: String,
}

impl Url {
    /// Parses a URL or a relative reference (`url.Parse`).
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut url = Self::read(text, false)?;
        url.fragment = String::from_utf8_lossy(&unescape(fragment)?).into_owned();
        Ok(url)
    }

    /// Parses an absolute URI or an absolute path (`url.ParseRequestURI`).
    pub(crate) fn parse_request_uri(text: &str) -> Result<Self, String> {
        Self::read(text, true)
    }

    fn read(text: &str, is_request: bool) -> Result<Self, String> {
        if text.bytes().any(|b| b.is_ascii_control()) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        if text.is_empty() && is_request {
            return Err("empty url".to_owned());
        }
        if text == "*" {
            return Ok(Self {
                escaped_path: "*".to_owned(),
                ..Self::default()
            });
        }
        let (scheme, rest) = split_scheme(text)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url = Self {
            scheme: scheme.to_ascii_lowercase(),
            query: query.to_owned(),
            ..Self::default()
        };
        if !rest.starts_with('/') {
            if !scheme.is_empty() {
                url.opaque = rest.to_owned();
                return Ok(url);
            }
            if is_request {
                return Err("invalid URI for request".to_owned());
            }
            if rest.split('/').next().is_some_and(|first| first.contains(':')) {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        let may_have_authority = !scheme.is_empty() || !is_request && !rest.starts_with("///");
        let mut path = rest;
        if let Some(rest) = rest.strip_prefix("//").filter(|_| may_have_authority) {
            let (authority, after) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
            url.host = read_host(host)?;
            check_user(user)?;
            (url.user, path) = (user.to_owned(), after);
        }
        let bytes = unescape(path)?;
        url.escaped_path = match path.bytes().all(may_stand_in_path) {
            true => path.to_owned(),
            false => escape_path(&bytes),
        };
        Ok(url)
    }
}

/// Splits a URL into its scheme, which may be empty, and the rest.
fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    let is_part = |(at, b): (usize, u8)| {
        b.is_ascii_alphabetic() || (at > 0 && (b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.')))
    };
    let end = text.bytes().enumerate().position(|it| !is_part(it));
    match end.map(|at| (at, text.as_bytes()[at])) {
        Some((0, b':')) => Err("missing protocol scheme".to_owned()),
        Some((at, b':')) => Ok((&text[..at], &text[at + 1..])),
        Some(_) | None => Ok(("", text)),
    }
}

/// Returns `true` for an empty string, or a colon followed by any number of digits.
pub(crate) fn is_port(text: &str) -> bool {
    match text.strip_prefix(':') {
        Some(port) => port.bytes().all(|b| b.is_ascii_digit()),
        None => text.is_empty(),
    }
}

fn read_host(host: &str) -> Result<String, String> {
    let port = match (host.starts_with('['), host.rfind(']')) {
        (true, None) => return Err("missing ']' in host".to_owned()),
        (true, Some(end)) => &host[end + 1..],
        (false, _) => host.rfind(':').map_or("", |at| &host[at..]),
    };
    if !is_port(port) {
        let quoted = quote(port);
        return Err(format!("invalid port {quoted} after host"));
    }
    let zone = host.find("%25").filter(|_| host.starts_with('[')).unwrap_or(host.len());
    let is_allowed = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(c);
    if let Some(wrong) = host[..zone].chars().find(|c| !is_allowed(*c)) {
        let quoted = quote(&wrong.to_string());
        return Err(format!("invalid character {quoted} in host name"));
    }
    // A host name may only contain escapes of non-ASCII bytes, and `%25`.
    for (at, _) in host[..zone].match_indices('%') {
        let is_ascii = host.as_bytes().get(at + 1).is_some_and(|b| (b'0'..b'8').contains(b));
        let escape = host.get(at..at + 3).unwrap_or(&host[at..]);
        if is_ascii && escape != "%25" {
            return Err(invalid_escape(escape));
        }
    }
    Ok(String::from_utf8_lossy(&unescape(host)?).into_owned())
}

fn check_user(user: &str) -> Result<(), String> {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b);
    if !user.bytes().all(is_allowed) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    unescape(user).map(drop)
}

fn invalid_escape(escape: &str) -> String {
    format!("invalid URL escape {}", quote(escape))
}

/// Decodes the `%XX` escapes in a string.
pub(crate) fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            out.push(*first);
            continue;
        }
        let digit = |at: usize| after.get(at).and_then(|b| char::from(*b).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            let shown = &after[..after.len().min(2)];
            return Err(invalid_escape(&format!("%{}", String::from_utf8_lossy(shown))));
        };
        // Two hexadecimal digits fit into a byte.
        out.push((high * 16 + low) as u8);
        rest = &after[2..];
    }
    Ok(out)
}

/// Returns `true` if this byte may occur in an escaped path, which Go then keeps unchanged (`validEncoded`).
fn may_stand_in_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@[]%/".contains(&byte)
}

fn escape_path(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
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
    fn urls_are_parsed_as_in_go(#[case] text: &str, #[case] expected: Result<(&str, &str), &str>) {
        let url = Url::parse(text);
        let found = url
            .as_ref()
            .map(|it| (it.scheme.as_str(), it.host.as_str()))
            .map_err(String::as_str);
        assert_eq!(found, expected);
    }
}
