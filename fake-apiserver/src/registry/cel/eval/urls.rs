//! Functions of URLs, modelled on `k8s.io/apiserver/pkg/cel/library/urls.go`. A URL is a string that Go's
//! `url.ParseRequestURI` accepts: an absolute URI or an absolute path.

use std::collections::HashMap;
use std::sync::Arc;

use super::values::{EvalFailure, Evaluated};
use crate::registry::cel::objects::{Key, Map, Opaque, Value};
use crate::registry::types::url::{Url, is_port, unescape};

impl Opaque for Url {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.URL"
    }
}

/// Calls a function of URLs; returns `None` for other functions.
pub(super) fn call(name: &str, is_method: bool, args: &[Value]) -> Option<Evaluated> {
    match args {
        [Value::String(text)] if !is_method => match name {
            "url" => Some(parse(text)),
            "isURL" => Some(Ok(Value::Bool(Url::parse_request_uri(text).is_ok()))),
            _ => None,
        },
        [Value::Opaque(opaque)] if is_method => {
            let url = opaque.downcast_ref()?;
            part(name, url).map(Ok)
        }
        _ => None,
    }
}

fn parse(text: &str) -> Evaluated {
    match Url::parse_request_uri(text) {
        Ok(url) => Ok(Value::Opaque(Arc::new(url))),
        Err(why) => {
            let quoted = crate::api::field::quote(text);
            let why = format!("URL parse error during conversion from string: parse {quoted}: {why}");
            Err(EvalFailure::Error(why))
        }
    }
}

fn part(name: &str, url: &Url) -> Option<Value> {
    let text = match name {
        "getScheme" => url.scheme.as_str(),
        "getHost" => &url.host,
        "getHostname" => host_and_port(url).0,
        "getPort" => host_and_port(url).1,
        "getEscapedPath" => &url.escaped_path,
        "getQuery" => return Some(query(url)),
        _ => return None,
    };
    Some(Value::String(Arc::new(text.to_owned())))
}

/// Returns the values of each parameter in the query.
fn query(url: &Url) -> Value {
    let mut map: HashMap<Key, Vec<Value>> = HashMap::new();
    for (name, value) in query_pairs(url) {
        let values = map.entry(Key::String(Arc::new(name))).or_default();
        values.push(Value::String(Arc::new(value)));
    }
    let lists = map
        .into_iter()
        .map(|(name, values)| (name, Value::List(Arc::new(values))));
    Value::Map(Map::from(lists.collect::<HashMap<Key, Value>>()))
}

/// Returns the host without brackets, and the port; either may be empty.
fn host_and_port(url: &Url) -> (&str, &str) {
    let port_at = url.host.rfind(':').filter(|at| is_port(&url.host[*at..]));
    let (host, port) = match port_at {
        Some(at) => (&url.host[..at], &url.host[at + 1..]),
        None => (url.host.as_str(), ""),
    };
    let inner = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    (inner.unwrap_or(host), port)
}

/// Returns the names and values in the query, without malformed pairs.
fn query_pairs(url: &Url) -> impl Iterator<Item = (String, String)> {
    let pairs = url.query.split('&').filter(|it| !it.is_empty() && !it.contains(';'));
    pairs.filter_map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let text = |it: &str| {
            let bytes = unescape(&it.replace('+', " ")).ok()?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        Some((text(name)?, text(value)?))
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use crate::registry::cel::eval::no_more_functions;
    use crate::registry::cel::program::{Bindings, Program, ProgramOutcome};

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
    fn cel_urls_are_parsed_as_in_go(#[case] expression: &str) {
        let program = Program::parse(expression).expect("the expression is valid");
        let (value, _) = program.evaluate(&Bindings {
            values: &[],
            variables: &[],
            authorizer: &ProgramOutcome(super::Value::Null),
            functions: no_more_functions,
        });
        assert_eq!(value.map(|it| it.as_bool()), Ok(Some(true)), "{expression}");
    }
}
