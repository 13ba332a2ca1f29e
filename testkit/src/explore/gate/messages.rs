//! Parses requests, responses and events for the gate.

use bytes::Bytes;
use fake_apiserver::Verb;
use fake_apiserver::api::request_info::ResourcePath;
use http::{Method, Uri};
use memchr::memmem;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::decide::Gate;
use super::life::{Life, Shown};
use super::owners::{Deletion, Owner, is_garbage};
use super::pages::Page;
use crate::explore::plans::escaped;
use crate::explore::trace::{DISCOVERY, Request, timeless};

/// Query parameter for the revision of a read.
pub(crate) const REVISION: &str = "resourceVersion";

/// First bytes of a body in protobuf, which the gate does not parse.
const PROTOBUF: &[u8] = b"k8s\0";

/// Parses the verb, the resource and the object of a request from its path. A GET of any other path counts as
/// discovery. Returns `None` for all other requests.
pub(crate) fn read(method: &Method, uri: &Uri) -> Option<Request> {
    let Some(path) = ResourcePath::parse(uri.path()) else {
        return (method == Method::GET).then(|| of_discovery(uri.path().trim_end_matches('/')));
    };
    let query = uri.query().unwrap_or_default();
    let parameter = |name: &str| query.split('&').find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
    let is_collection = path.name.is_empty();
    let is_watch = path.legacy_watch || matches!(parameter("watch"), Some("true" | "1"));
    let verb = match (method, is_collection) {
        (&Method::GET, true) if is_watch => Verb::Watch,
        (&Method::GET, true) => Verb::List,
        (&Method::GET, false) => Verb::Get,
        (&Method::POST, _) => Verb::Create,
        (&Method::PUT, _) => Verb::Update,
        (&Method::PATCH, _) => Verb::Patch,
        (&Method::DELETE, true) => Verb::DeleteCollection,
        (&Method::DELETE, false) => Verb::Delete,
        _ => return None,
    };
    let mut resource = path.resource.to_owned();
    if !path.group.is_empty() {
        resource = format!("{resource}.{}", path.group);
    }
    if !path.subresource.is_empty() {
        resource = format!("{resource}/{}", path.subresource);
    }
    Some(Request {
        object: format!("{}/{}", path.namespace, timeless(&resource, path.name)),
        may_be_stale: matches!(verb, Verb::List | Verb::Get) && parameter(REVISION) == Some("0"),
        may_expire: verb == Verb::List
            && (parameter("continue").is_some() || parameter("resourceVersionMatch") == Some("Exact")),
        streams_list: verb == Verb::Watch && parameter("sendInitialEvents") == Some("true"),
        ..Request::new(verb, &resource)
    })
}

/// Returns a discovery or version request. Its path is stored instead of an object's name.
fn of_discovery(path: &str) -> Request {
    Request {
        object: format!("/{}", escaped(path.trim_start_matches('/'))),
        ..Request::new(Verb::Get, DISCOVERY)
    }
}

/// Adds information from the body, and from the client's view of the object, to a request.
pub(crate) fn look_inside(about: &mut Request, life: &Life, body: &Bytes) {
    about.may_conflict = match about.verb {
        // Protobuf bodies are not parsed. Updates usually contain the version of the object that was read before.
        Verb::Update if body.starts_with(PROTOBUF) => true,
        Verb::Update | Verb::Patch | Verb::Delete => contains(body, b"\"resourceVersion\""),
        Verb::Get | Verb::List | Verb::Watch | Verb::Create | Verb::DeleteCollection => false,
    };
    if about.verb == Verb::Create {
        about.creates = name_in(body);
        about.made_from = about
            .creates
            .as_ref()
            .and_then(|it| it.strip_suffix('*'))
            .map(str::to_owned);
        about.creates = about
            .creates
            .take()
            .map(|it| timeless(&about.resource, &it).into_owned());
    } else if about.is_write() {
        let (namespace, name) = about.object.split_once('/').unwrap_or_default();
        about.saw = life.uid(&about.resource, namespace, name);
    }
}

/// A response of the server, with its request.
pub(crate) struct Answer<'a> {
    pub(crate) about: &'a Request,
    /// Index of the request in the trace.
    pub(crate) index: usize,
    pub(crate) deletion: Deletion,
    pub(crate) is_success: bool,
    pub(crate) is_created: bool,
    pub(crate) body: &'a Bytes,
}

impl Gate {
    /// Records a response: the object that a write changed, and the objects that the client observes. If `page` is
    /// `None`, the client does not receive the response and observes nothing.
    pub(crate) fn answered(&self, life: &Life, answer: Answer<'_>, page: Option<Page>) {
        let Answer {
            about, index, deletion, ..
        } = answer;
        self.keep(index, answer.body, |it| &mut it.answer);
        if !answer.is_success {
            return;
        }
        let Ok(read) = serde_json::from_slice::<Answered>(answer.body) else {
            return;
        };
        let mut shown = read.shown();
        if shown.generate_name.is_empty() {
            shown.generate_name = deletion.generate_name;
        }
        let metadata = &read.metadata;
        let is_created = answer.is_created && !is_garbage(self, metadata.namespace, &metadata.owner_references);
        self.struck(about, index, &shown);
        self.done(life, about, is_created, &shown, deletion.has_precondition);
        let Some(page) = page else { return };
        self.paged(life, about, page, metadata.go_on);
        match &read.items {
            Some(items) => {
                life.told(&about.resource, &shown);
                items.iter().for_each(|item| life.told(&about.resource, &item.shown()));
            }
            None if about.verb == Verb::Delete => {}
            None => life.told_of_object(&about.resource, &shown),
        }
    }
}

/// The fields of a response that the gate reads.
#[derive(Deserialize)]
struct Answered<'a> {
    #[serde(borrow, default)]
    metadata: Metadata<'a, Vec<Owner<'a>>>,
    #[serde(borrow)]
    items: Option<Vec<Item<'a>>>,
    #[serde(borrow)]
    details: Option<Details<'a>>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
}

/// Metadata of an object or a list. Owners are not read from list items or from the objects of events.
#[derive(Default, Deserialize)]
#[serde(
    rename_all = "camelCase",
    default,
    bound(deserialize = "O: Default + Deserialize<'de>")
)]
struct Metadata<'a, O = IgnoredAny> {
    name: &'a str,
    namespace: &'a str,
    generate_name: &'a str,
    uid: &'a str,
    resource_version: &'a str,
    #[serde(rename = "continue")]
    go_on: &'a str,
    owner_references: O,
}

/// The details in the Status that is the response to a delete.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Details<'a> {
    name: &'a str,
    uid: &'a str,
}

impl<O> Metadata<'_, O> {
    fn shown(&self) -> Shown {
        Shown {
            namespace: self.namespace.to_owned(),
            name: self.name.to_owned(),
            generate_name: self.generate_name.to_owned(),
            uid: self.uid.to_owned(),
            revision: self.resource_version.parse().unwrap_or_default(),
        }
    }
}

impl Item<'_> {
    fn shown(&self) -> Shown {
        self.metadata.shown()
    }
}

impl Answered<'_> {
    fn shown(&self) -> Shown {
        let mut shown = self.metadata.shown();
        if let Some(details) = &self.details {
            (shown.name, shown.uid) = (details.name.to_owned(), details.uid.to_owned());
        }
        shown
    }
}

/// An event of a watch.
#[derive(Deserialize)]
pub(crate) struct Line<'a> {
    #[serde(rename = "type")]
    pub(crate) kind: &'a str,
    #[serde(borrow)]
    object: Item<'a>,
}

impl Line<'_> {
    pub(crate) fn shown(&self) -> Shown {
        self.object.shown()
    }
}

pub(crate) fn contains(text: &Bytes, what: &[u8]) -> bool {
    memmem::find(text, what).is_some()
}

/// Returns the name of the object in a body; for a generated name, its prefix and `*`, such as `web-*`.
pub(crate) fn name_in(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        name: Option<String>,
        generate_name: Option<String>,
    }
    let Named { metadata } = serde_json::from_slice(body).ok()?;
    let made = || metadata.generate_name.map(|it| format!("{it}*"));
    metadata.name.filter(|it| !it.is_empty()).or_else(made)
}
