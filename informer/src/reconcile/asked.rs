//! `Asked`: reads the current state from the server after a write with an unknown outcome.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use http::Request;
use http::header::ACCEPT;
use kube::Client;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio::time::timeout;

use super::write::Written;
use crate::{Error, ResourceVersion};

/// Time limit for reading the current state.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of objects to read after a create with a generated name. For larger collections, the version of the
/// list is used instead.
const ASKED_MOST: usize = 500;

/// The request that reads the current state after a write with an unknown outcome.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(super) client: Client,
    /// Path of the collection, such as `/api/v1/namespaces/shop/pods`.
    pub(super) path: String,
    pub(super) about: About,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) enum About {
    Object(String),
    /// The whole collection, because the server generated the name of the created object.
    Made,
    /// The whole collection, because objects in it were deleted.
    Deleted,
}

impl Asked {
    /// Creates a request for the current state of an object; of the whole collection if `name` is empty.
    pub(crate) fn new(client: Client, path: String, name: &str) -> Self {
        let about = if name.is_empty() {
            About::Deleted
        } else {
            About::Object(name.to_owned())
        };
        Self { client, path, about }
    }

    /// Returns the current version of a collection. It is lower than the versions of earlier writes only if the server
    /// was restored from a backup.
    pub(crate) async fn current(client: Client, path: String) -> Result<ResourceVersion, Error> {
        match Self::new(client, path, "").present().await? {
            Written::Version(version) => Ok(version),
            Written::Terminating { .. }
            | Written::Gone { .. }
            | Written::Deleted { .. }
            | Written::Absent { .. }
            | Written::Unknown(_) => Ok(ResourceVersion::default()),
        }
    }

    /// Reads the current state. Returns the condition under which a cache includes this state.
    pub(super) async fn present(&self) -> Result<Written, Error> {
        let asking = async {
            match &self.about {
                About::Object(name) => self.object(name).await,
                About::Made => self.newest(ASKED_MOST).await,
                // Only the version of a list covers objects that no longer exist.
                About::Deleted => self.newest(0).await,
            }
        };
        let unanswered = |_| Err(Error::unanswered(format!("reading {self:?}"), ASK_TIMEOUT));
        timeout(ASK_TIMEOUT, asking).await.unwrap_or_else(unanswered)
    }

    async fn object(&self, name: &str) -> Result<Written, Error> {
        let uri = format!("{}/{name}", self.path);
        match self.get(&uri, "PartialObjectMetadata").await {
            Ok(answer) => Ok(Written::Version(answer.metadata.version())),
            Err(err) if err.is_not_found() => self.absent(name).await,
            Err(err) => Err(err),
        }
    }

    /// Lists the object to obtain a version at which it does not exist, because a 404 response does not contain a
    /// version. Returns the version of the object if it exists again.
    async fn absent(&self, name: &str) -> Result<Written, Error> {
        let name = utf8_percent_encode(name, NON_ALPHANUMERIC);
        let uri = format!("{}?fieldSelector=metadata.name%3D{name}&limit=1", self.path);
        let floor = match self.get(&uri, "PartialObjectMetadataList").await {
            Ok(answer) => match answer.items.iter().flatten().next() {
                // The object has been recreated since the first request.
                Some(item) => return Ok(Written::Version(item.metadata.version())),
                None => answer.metadata.version(),
            },
            Err(err) if err.code().is_some_and(|code| code != 429 && code < 500) => ResourceVersion::default(),
            Err(err) => return Err(err),
        };
        Ok(Written::Absent { floor })
    }

    /// Returns the highest version of the objects in the collection. If there are more than `most` objects, returns the
    /// version of the list instead. A cache may only reach the version of a list with its next bookmark, because this
    /// version may belong to a change of another resource.
    async fn newest(&self, most: usize) -> Result<Written, Error> {
        let uri = format!("{}?limit={}", self.path, most.max(1));
        let answer = self.get(&uri, "PartialObjectMetadataList").await?;
        if most == 0 || !answer.metadata.more.is_empty() {
            return Ok(Written::Version(answer.metadata.version()));
        }
        let versions = answer.items.iter().flatten().map(|it| it.metadata.version());
        let newest = versions.reduce(|one, other| if other > one { other } else { one });
        let floor = answer.metadata.version();
        Ok(newest.map_or(Written::Absent { floor }, Written::Version))
    }

    async fn get(&self, uri: &str, shape: &str) -> Result<Answer, Error> {
        let shape = format!("application/json;as={shape};g=meta.k8s.io;v=v1,application/json");
        let request = Request::get(uri).header(ACCEPT, shape);
        let request = request.body(Vec::new()).map_err(kube::Error::HttpError)?;
        Ok(self.client.request(request).await?)
    }
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.about {
            About::Object(name) => write!(f, "{}/{name}", self.path),
            About::Made | About::Deleted => f.write_str(&self.path),
        }
    }
}

/// The fields of a response that are used.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Answer {
    pub(super) kind: String,
    pub(super) metadata: Metadata,
    pub(super) details: Details,
    /// Objects of a list. May be `null` if the list is empty.
    pub(super) items: Option<Vec<Item>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Item {
    pub(super) metadata: Metadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) uid: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) resource_version: String,
    pub(super) deletion_timestamp: Option<String>,
    #[serde(rename = "continue")]
    pub(super) more: String,
}

impl Metadata {
    pub(super) fn version(&self) -> ResourceVersion {
        ResourceVersion::from(self.resource_version.as_str())
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Details {
    pub(super) uid: String,
}
