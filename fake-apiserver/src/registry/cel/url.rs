//! The functions of URLs in CEL, after `k8s.io/apiserver/pkg/cel/library/urls.go`: URLs are what Go's
//! `url.ParseRequestURI` reads, an absolute URI or an absolute path.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::{Key, Map, Opaque};
use kube_cel::cel::{Context, ExecutionError, Value};

/// A URL that has been read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Url {
    scheme: String,
    /// The part after a scheme without a slash, as in `mailto:jane@example.com`.
    opaque: String,
    /// With the port, and with the brackets of an IPv6 address.
    host: String,
    escaped_path: String,
    query: String,
}

impl Opaque for Url {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.URL"
    }
}

/// Adds the functions to those of the library.
pub(crate) fn register(context: &mut Context<'_>) {
    context.add_function("url", |text: Arc<String>| match Url::parse(&text) {
        Ok(url) => Ok(Value::Opaque(Arc::new(url))),
        Err(why) => {
            let quoted = crate::api::field::quote(&text);
            let why = format!("URL parse error during conversion from string: parse {quoted}: {why}");
            Err(ExecutionError::function_error("url", why))
        }
    });
    context.add_function("isURL", |text: Arc<String>| -> Result<Value, ExecutionError> {
        Ok(Value::Bool(Url::parse(&text).is_ok()))
    });
    let mut getter = |name: &'static str, get: fn(&Url) -> &str| {
        context.add_function(name, move |This(this): This<Value>| {
            Ok::<_, ExecutionError>(Value::String(Arc::new(get(url_of(&this)?).to_owned())))
        });
    };
    getter("getScheme", |url| &url.scheme);
    getter("getHost", |url| &url.host);
    getter("getHostname", |url| url.host_and_port().0);
    getter("getPort", |url| url.host_and_port().1);
    getter("getEscapedPath", |url| &url.escaped_path);
    context.add_function("getQuery", |This(this): This<Value>| {
        let mut map: HashMap<Key, Vec<Value>> = HashMap::new();
        for (name, value) in url_of(&this)?.query_pairs() {
            let values = map.entry(Key::String(Arc::new(name))).or_default();
            values.push(Value::String(Arc::new(value)));
        }
        let lists = map
            .into_iter()
            .map(|(name, values)| (name, Value::List(Arc::new(values))));
        let map = Arc::new(lists.collect());
        Ok::<_, ExecutionError>(Value::Map(Map { map }))
    });
}

fn url_of(value: &Value) -> Result<&Url, ExecutionError> {
    let url = match value {
        Value::Opaque(it) => it.downcast_ref::<Url>(),
        _ => None,
    };
    url.ok_or_else(|| ExecutionError::function_error("url", "no such overload"))
}

impl Url {
    /// Reads an absolute URI or an absolute path; the error is Go's.
    fn parse(text: &str) -> Result<Self, String> {
        if text.bytes().any(|b| b.is_ascii_control()) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        match text {
            "" => return Err("empty url".to_owned()),
            "*" => {
                return Ok(Self {
                    escaped_path: "*".to_owned(),
                    ..Self::default()
                });
            }
            _ => {}
        }
        let (scheme, rest) = split_scheme(text)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url = Self {
            scheme: scheme.to_ascii_lowercase(),
            query: query.to_owned(),
            ..Self::default()
        };
        let mut path = rest;
        if !rest.starts_with('/') {
            if scheme.is_empty() {
                return Err("invalid URI for request".to_owned());
            }
            url.opaque = rest.to_owned();
            return Ok(url);
        }
        if let Some(rest) = rest.strip_prefix("//").filter(|_| !scheme.is_empty()) {
            let end = rest.find('/').unwrap_or(rest.len());
            let authority = &rest[..end];
            path = &rest[end..];
            let (user, host) = authority
                .rsplit_once('@')
                .map_or((None, authority), |(user, host)| (Some(user), host));
            url.host = read_host(host)?;
            if let Some(user) = user {
                check_user(user)?;
            }
        }
        let bytes = unescape(path)?;
        url.escaped_path = match path.bytes().all(may_stand_in_path) {
            true => path.to_owned(),
            false => escape_path(&bytes),
        };
        Ok(url)
    }

    /// The host without brackets, and the port; each empty where there is none.
    fn host_and_port(&self) -> (&str, &str) {
        let port_at = self.host.rfind(':').filter(|at| is_port(&self.host[*at..]));
        let (host, port) = match port_at {
            Some(at) => (&self.host[..at], &self.host[at + 1..]),
            None => (self.host.as_str(), ""),
        };
        let inner = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        (inner.unwrap_or(host), port)
    }

    /// Names and values of the query; what cannot be read is left out.
    fn query_pairs(&self) -> impl Iterator<Item = (String, String)> {
        let pairs = self.query.split('&').filter(|it| !it.is_empty() && !it.contains(';'));
        pairs.filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let text = |it: &str| {
                let bytes = unescape(&it.replace('+', " ")).ok()?;
                Some(String::from_utf8_lossy(&bytes).into_owned())
            };
            Some((text(name)?, text(value)?))
        })
    }
}

/// The scheme, empty where there is none, and what follows it.
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

/// Returns `true` if a text is empty, or a colon and a number.
fn is_port(text: &str) -> bool {
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
        let quoted = crate::api::field::quote(port);
        return Err(format!("invalid port {quoted} after host"));
    }
    let zone = host.find("%25").filter(|_| host.starts_with('[')).unwrap_or(host.len());
    let is_allowed = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(c);
    if let Some(wrong) = host[..zone].chars().find(|c| !is_allowed(*c)) {
        let quoted = crate::api::field::quote(&wrong.to_string());
        return Err(format!("invalid character {quoted} in host name"));
    }
    // Only what is not ASCII may be escaped in a name, and `%25` before a zone.
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
    format!("invalid URL escape {}", crate::api::field::quote(escape))
}

/// The bytes that a text with `%XX` means.
fn unescape(text: &str) -> Result<Vec<u8>, String> {
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
        // Two hexadecimal digits are a byte.
        out.push((high * 16 + low) as u8);
        rest = &after[2..];
    }
    Ok(out)
}

/// Returns `true` if Go leaves this byte of a path unescaped.
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

    use crate::registry::cel::library::FUNCTIONS;
    use crate::registry::cel::program::{Bindings, Outcome, Program};

    #[rstest]
    #[case("url('https://a.example:443/x').getPort() == '443'")]
    #[case("url('https://a.example/x').getPort() == ''")]
    #[case("url('http://localhost/x').getScheme() == 'http'")]
    #[case("url('HTTPS://a').getScheme() == 'https'")]
    #[case("url('/path').getScheme() == '' && url('/path').getHost() == ''")]
    #[case("url('https://[::1]:80/').getHost() == '[::1]:80'")]
    #[case("url('https://[::1]:80/').getHostname() == '::1'")]
    #[case("url('https://jane:pw@a.example').getHost() == 'a.example'")]
    #[case("url('https://a.example').getEscapedPath() == ''")]
    #[case("url('https://a.example/with space').getEscapedPath() == '/with%20space'")]
    #[case("url('https://a.example/with%20space').getEscapedPath() == '/with%20space'")]
    #[case("url('/x#y').getEscapedPath() == '/x%23y'")]
    #[case("url('https://a.example/x?k=a&k=b+c&l=%41').getQuery() == {'k': ['a', 'b c'], 'l': ['A']}")]
    #[case("url('mailto:jane@a.example').getHost() == ''")]
    #[case("url('https://a/x') == url('https://a/x')")]
    #[case("isURL('*')")]
    #[case("!isURL('https://a.example:port/')")]
    #[case("!isURL('https://a b/')")]
    #[case("!isURL('../up')")]
    #[case("!isURL('https://a.example/%zz')")]
    #[case("!isURL('https://[::1')")]
    #[case("!isURL(':80/x')")]
    #[case("!isURL('')")]
    #[case("!isURL('https://user name@a/')")]
    fn urls_are_those_of_go(#[case] expression: &str) {
        let program = Program::parse(expression).expect("an expression");
        let (value, _) = FUNCTIONS.with(|functions| {
            program.evaluate(&Bindings {
                values: &[],
                variables: &[],
                authorizer: &Outcome(super::Value::Null),
                functions,
            })
        });
        assert_eq!(value.map(|it| it.as_bool()), Ok(Some(true)), "{expression}");
    }
}
