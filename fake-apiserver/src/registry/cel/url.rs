//! The functions of URLs in CEL, after `k8s.io/apiserver/pkg/cel/library/urls.go`: URLs are what Go's
//! `url.ParseRequestURI` reads, an absolute URI or an absolute path.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::{Key, Map, Opaque};
use kube_cel::cel::{Context, ExecutionError, Value};

use crate::registry::types::url::{Url, is_port, unescape};

impl Opaque for Url {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.URL"
    }
}

/// Adds the functions to those of the library.
pub(crate) fn register(context: &mut Context<'_>) {
    context.add_function("url", |text: Arc<String>| match Url::parse_request_uri(&text) {
        Ok(url) => Ok(Value::Opaque(Arc::new(url))),
        Err(why) => {
            let quoted = crate::api::field::quote(&text);
            let why = format!("URL parse error during conversion from string: parse {quoted}: {why}");
            Err(ExecutionError::function_error("url", why))
        }
    });
    context.add_function("isURL", |text: Arc<String>| -> Result<Value, ExecutionError> {
        Ok(Value::Bool(Url::parse_request_uri(&text).is_ok()))
    });
    let mut getter = |name: &'static str, get: fn(&Url) -> &str| {
        context.add_function(name, move |This(this): This<Value>| {
            Ok::<_, ExecutionError>(Value::String(Arc::new(get(url_of(&this)?).to_owned())))
        });
    };
    getter("getScheme", |url| &url.scheme);
    getter("getHost", |url| &url.host);
    getter("getHostname", |url| host_and_port(url).0);
    getter("getPort", |url| host_and_port(url).1);
    getter("getEscapedPath", |url| &url.escaped_path);
    context.add_function("getQuery", |This(this): This<Value>| {
        let mut map: HashMap<Key, Vec<Value>> = HashMap::new();
        for (name, value) in query_pairs(url_of(&this)?) {
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

/// The host without brackets, and the port; each empty where there is none.
fn host_and_port(url: &Url) -> (&str, &str) {
    let port_at = url.host.rfind(':').filter(|at| is_port(&url.host[*at..]));
    let (host, port) = match port_at {
        Some(at) => (&url.host[..at], &url.host[at + 1..]),
        None => (url.host.as_str(), ""),
    };
    let inner = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    (inner.unwrap_or(host), port)
}

/// Names and values of the query; what cannot be read is left out.
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

    use crate::registry::cel::library::FUNCTIONS;
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
    fn urls_are_those_of_go(#[case] expression: &str) {
        let program = Program::parse(expression).expect("an expression");
        let (value, _) = FUNCTIONS.with(|functions| {
            program.evaluate(&Bindings {
                values: &[],
                variables: &[],
                authorizer: &ProgramOutcome(super::Value::Null),
                functions,
            })
        });
        assert_eq!(value.map(|it| it.as_bool()), Ok(Some(true)), "{expression}");
    }
}
