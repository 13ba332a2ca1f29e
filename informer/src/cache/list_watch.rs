//! `ListWatch`: a source of objects as JSON text, which the reflector decodes.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use http::Request;
use http::header::{ACCEPT, ACCEPT_ENCODING};
use http_body_util::BodyExt;
use kube::core::{Expression, Selector, SelectorExt, Status};
use kube::{Client, Resource};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{Error, ObjectKey, ResourceVersion};

/// Body of a response, in chunks of any size.
pub type Body = Pin<Box<dyn Stream<Item = Result<Bytes, Error>> + Send>>;

/// Lists and watches the objects of one type (client-go's `ListerWatcher`).
///
/// [`ApiListWatch`] sends requests to an API server. Custom sources must return the same documents: a list as a JSON
/// `List`, and a watch as one line of JSON per event. [`FakeSource`](crate::cache::FakeSource) is an in-memory source.
pub trait ListWatch: Send + Sync + 'static {
    /// Requests a list, or one page of it. The body is one JSON document.
    fn list(&self, options: &ListOptions) -> impl Future<Output = Result<Body, Error>> + Send;

    /// Requests a watch. The body contains one JSON document per line: `{"type": "ADDED", "object": {…}}`.
    fn watch(&self, options: &WatchOptions) -> impl Future<Output = Result<Body, Error>> + Send;

    /// Returns `true` if the source supports streaming lists (`sendInitialEvents`); otherwise the reflector calls
    /// [`list`](Self::list). Default: `true`.
    fn can_stream_lists(&self) -> bool {
        true
    }

    /// Returns `true` if lists of the source may contain an object with this key and these labels; `labels` is `None`
    /// if they are unknown. Controllers wait for their own writes only in caches that may contain them. Default:
    /// `true`.
    fn may_have(&self, key: &ObjectKey, labels: Option<&BTreeMap<String, String>>) -> bool {
        let _ = (key, labels);
        true
    }

    /// Returns the name of the source for messages. [`ApiListWatch`] returns its URL path.
    fn name(&self) -> String;
}

/// Rule by which the server interprets the requested version (`resourceVersionMatch`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VersionMatch {
    /// The state at the requested version or a newer one.
    NotOlderThan,
    /// The state at exactly the requested version.
    Exact,
}

impl VersionMatch {
    fn as_str(self) -> &'static str {
        match self {
            Self::NotOlderThan => "NotOlderThan",
            Self::Exact => "Exact",
        }
    }
}

/// Options of a list request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListOptions {
    /// Requested version. An empty version requests the newest state, and `"0"` any state that the server has cached.
    pub resource_version: ResourceVersion,
    /// Rule by which the server interprets the requested version. Default: the server's default.
    pub version_match: Option<VersionMatch>,
    /// Maximum number of objects in a page; 0 for all.
    pub limit: u32,
    /// `continue` token from the previous page; empty for the first page.
    pub continue_token: String,
}

/// Options of a watch request. Bookmarks are always requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchOptions {
    /// Version after which changes are sent.
    pub resource_version: ResourceVersion,
    /// Requests the existing objects first, at `resource_version` or newer, followed by a bookmark.
    pub send_initial_events: bool,
    /// Number of seconds after which the server ends the watch; 0 uses the server's default.
    pub timeout_seconds: u32,
}

/// Function that changes the query parameters of each request, given as pairs of name and value.
type Tweak = Arc<dyn Fn(&mut Vec<(String, String)>) + Send + Sync>;

/// Requested representation of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Whole,
    Metadata,
}

/// Lists and watches objects of an API server.
///
/// ```
/// use informer::cache::ApiListWatch;
/// use k8s_openapi::api::core::v1::Pod;
///
/// # fn sources(client: kube::Client) {
/// let source = ApiListWatch::all::<Pod>(client, &()).labels("app=web").fields("status.phase=Running");
/// # }
/// ```
#[derive(Clone)]
pub struct ApiListWatch {
    client: Client,
    path: String,
    label_selector: String,
    /// The parsed label selector; `None` if no selector was set, or if it could not be parsed.
    selector: Option<Selector>,
    field_selector: String,
    shape: Shape,
    tweak: Option<Tweak>,
}

impl ApiListWatch {
    /// Creates a source of all objects of a type, in all namespaces.
    pub fn all<K: Resource>(client: Client, resource: &K::DynamicType) -> Self {
        Self::at(client, K::url_path(resource, None))
    }

    /// Creates a source of all objects of a type in one namespace.
    pub fn namespaced<K: Resource>(client: Client, namespace: &str, resource: &K::DynamicType) -> Self {
        Self::at(client, K::url_path(resource, Some(namespace)))
    }

    pub(crate) fn at(client: Client, path: String) -> Self {
        Self {
            client,
            path,
            label_selector: String::new(),
            selector: None,
            field_selector: String::new(),
            shape: Shape::Whole,
            tweak: None,
        }
    }

    /// Selects objects by labels, in the syntax of the API server: `app=web,tier!=cache`.
    #[must_use]
    pub fn labels(mut self, selector: &str) -> Self {
        selector.clone_into(&mut self.label_selector);
        self.selector = (!selector.is_empty()).then(|| read_selector(selector)).flatten();
        self
    }

    /// Selects objects by labels, with a [`Selector`].
    #[must_use]
    pub fn labels_from(self, selector: &Selector) -> Self {
        Self {
            selector: Some(selector.clone()),
            ..self.labels(&selector.to_string())
        }
    }

    /// Selects objects by fields, in the syntax of the API server: `status.phase=Running`.
    #[must_use]
    pub fn fields(mut self, selector: &str) -> Self {
        selector.clone_into(&mut self.field_selector);
        self
    }

    /// Requests only metadata. The type of the informer must then be
    /// [`PartialObjectMeta`](kube::core::PartialObjectMeta).
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.shape = Shape::Metadata;
        self
    }

    /// Sets a function that changes the query parameters of each request (client-go's `TweakListOptions`). The
    /// parameters are pairs of name and value, and are not escaped yet.
    #[must_use]
    pub fn tweak(mut self, tweak: impl Fn(&mut Vec<(String, String)>) + Send + Sync + 'static) -> Self {
        self.tweak = Some(Arc::new(tweak));
        self
    }
}

/// Characters that are not escaped in a query.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

impl ApiListWatch {
    /// Returns the query string, which contains the selectors and the parameters in `own`, except for empty values.
    fn parameters(&self, own: Vec<(&str, String)>) -> String {
        let shared = [
            ("labelSelector", self.label_selector.clone()),
            ("fieldSelector", self.field_selector.clone()),
        ];
        let all = shared.into_iter().chain(own).filter(|(_, value)| !value.is_empty());
        let mut pairs: Vec<_> = all.map(|(name, value)| (name.to_owned(), value)).collect();
        if let Some(tweak) = &self.tweak {
            tweak(&mut pairs);
        }
        let encode = |(name, value): &(String, String)| format!("{name}={}", utf8_percent_encode(value, PLAIN));
        pairs.iter().map(encode).collect::<Vec<_>>().join("&")
    }

    async fn ask(&self, query: &str, accept: &str, is_watch: bool) -> Result<Body, Error> {
        let uri = if query.is_empty() {
            self.path.clone()
        } else {
            format!("{}?{query}", self.path)
        };
        let mut request = Request::get(uri).header(ACCEPT, accept);
        if is_watch {
            // Request watches without compression, because many decoders do not support events that are compressed
            // separately.
            request = request.header(ACCEPT_ENCODING, "identity");
        }
        let request = request
            .body(kube::client::Body::empty())
            .map_err(kube::Error::HttpError)?;
        let response = self.client.send(request).await?;
        let code = response.status();
        let body = response.into_body();
        if code.is_client_error() || code.is_server_error() {
            let text = body.collect().await?.to_bytes();
            return Err(Error::from_status(status_of(code.as_u16(), &text)));
        }
        let frames = body.into_data_stream().map_err(Error::from);
        Ok(Box::pin(frames))
    }
}

/// Returns the Status of a failed request, or a generated one if the body is not a Status.
fn status_of(code: u16, text: &[u8]) -> Status {
    match serde_json::from_slice::<Status>(text) {
        Ok(status) if !status.reason.is_empty() || status.code != 0 => status,
        // The server responds with plain text if it does not serve the path.
        Ok(_) | Err(_) if code == 404 => {
            Status::failure("the server could not find the requested resource", "NotFound").with_code(code)
        }
        Ok(_) | Err(_) => {
            let text = String::from_utf8_lossy(text);
            Status::failure(&format!("the server returned {code}: {text}"), "Unknown").with_code(code)
        }
    }
}

impl ListWatch for ApiListWatch {
    async fn list(&self, options: &ListOptions) -> Result<Body, Error> {
        // The token contains the version; servers refuse requests that contain both.
        let is_first = options.continue_token.is_empty();
        let version = if is_first {
            options.resource_version.to_string()
        } else {
            String::new()
        };
        let version_match = options
            .version_match
            .filter(|_| is_first)
            .map_or("", VersionMatch::as_str);
        let limit = if options.limit == 0 {
            String::new()
        } else {
            options.limit.to_string()
        };
        let query = self.parameters(vec![
            ("limit", limit),
            ("continue", options.continue_token.clone()),
            ("resourceVersion", version),
            ("resourceVersionMatch", version_match.to_owned()),
        ]);
        let accept = match self.shape {
            Shape::Whole => "application/json",
            Shape::Metadata => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        };
        self.ask(&query, accept, false).await
    }

    async fn watch(&self, options: &WatchOptions) -> Result<Body, Error> {
        let timeout = match options.timeout_seconds {
            0 => String::new(),
            seconds => seconds.to_string(),
        };
        let (initial, version_match) = if options.send_initial_events {
            ("true", VersionMatch::NotOlderThan.as_str())
        } else {
            ("", "")
        };
        let query = self.parameters(vec![
            ("watch", "true".to_owned()),
            ("allowWatchBookmarks", "true".to_owned()),
            ("resourceVersion", options.resource_version.to_string()),
            ("resourceVersionMatch", version_match.to_owned()),
            ("sendInitialEvents", initial.to_owned()),
            ("timeoutSeconds", timeout),
        ]);
        let accept = match self.shape {
            Shape::Whole => "application/json",
            Shape::Metadata => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        };
        self.ask(&query, accept, true).await
    }

    fn may_have(&self, key: &ObjectKey, labels: Option<&BTreeMap<String, String>>) -> bool {
        if namespace_of(&self.path).is_some_and(|it| key.namespace() != Some(it)) {
            return false;
        }
        match (&self.selector, labels, &self.tweak) {
            (Some(selector), Some(labels), None) => selector.matches(labels),
            // A tweak may have changed the selector, so the source may contain the object.
            (None, _, _) | (_, None, _) | (_, _, Some(_)) => true,
        }
    }

    fn name(&self) -> String {
        self.path.clone()
    }
}

/// Returns the namespace in a URL path: `shop` in `/api/v1/namespaces/shop/pods`.
fn namespace_of(path: &str) -> Option<&str> {
    let (_, rest) = path.split_once("/namespaces/")?;
    rest.split_once('/').map(|(namespace, _)| namespace)
}

/// Parses a label selector; `None` if its syntax is not supported.
fn read_selector(text: &str) -> Option<Selector> {
    let mut depth = 0_usize;
    let parts = text.split(|it| {
        match it {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        it == ',' && depth == 0
    });
    parts.map(|it| read_expression(it.trim())).collect()
}

fn read_expression(text: &str) -> Option<Expression> {
    let name = |name: &str| {
        let name = name.trim();
        let is_name = !name.is_empty() && !name.contains(|it: char| it.is_whitespace() || "()=!,<>".contains(it));
        is_name.then(|| name.to_owned())
    };
    if let Some(absent) = text.strip_prefix('!') {
        return Some(Expression::DoesNotExist(name(absent)?));
    }
    if let Some(set) = text.strip_suffix(')') {
        let (before, values) = set.split_once('(')?;
        let values = values.split(',').map(|it| it.trim().to_owned()).collect();
        let (label, operator) = before.trim().rsplit_once(char::is_whitespace)?;
        return match operator {
            "in" => Some(Expression::In(name(label)?, values)),
            "notin" => Some(Expression::NotIn(name(label)?, values)),
            _ => None,
        };
    }
    if let Some((label, value)) = text.split_once("!=") {
        return Some(Expression::NotEqual(name(label)?, value.trim().to_owned()));
    }
    if let Some((label, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Some(Expression::Equal(name(label)?, value.trim().to_owned()));
    }
    Some(Expression::Exists(name(text)?))
}

impl fmt::Debug for ApiListWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ApiListWatch({}, labels {:?}, fields {:?})",
            self.path, self.label_selector, self.field_selector
        )
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("", "app=web", true)]
    #[case("app=web", "app=web", true)]
    #[case("app==web", "app=api", false)]
    #[case("app!=web", "app=api", true)]
    #[case("app!=web", "", true)]
    #[case("app in (web, api),tier", "app=api", false)]
    #[case("app in (web, api), tier", "app=api,tier=x", true)]
    #[case("app notin (web,api)", "app=api", false)]
    #[case("!app", "app=api", false)]
    #[case("app", "tier=x", false)]
    #[case::unsupported_operator_matches_all_labels("size > 3", "size=1", true)]
    #[case::invalid_selector_matches_all_labels("app in web", "app=api", true)]
    fn parsed_selector_matches_labels(#[case] selector: &str, #[case] labels: &str, #[case] expected: bool) {
        let labels: BTreeMap<_, _> = labels
            .split(',')
            .filter_map(|it| it.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let expressions = read_selector(selector).map(|it| it.matches(&labels));
        let may_have = selector.is_empty() || expressions.unwrap_or(true);
        assert_eq!(may_have, expected);
    }
}
