//! `Asked`: asks the server for the present state after a write whose outcome is unknown.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use http::Request;
use http::header::ACCEPT;
use kube::Client;
use serde::Deserialize;
use tokio::time::timeout;

use super::writes::Written;
use crate::{Error, ResourceVersion};

/// Time for the server to report the present state.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// Most objects whose own versions are compared; for a larger collection the version of the list is used.
const ASKED_MOST: usize = 500;

/// The request made when the outcome of a write is unknown.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(super) client: Client,
    /// Path of the collection.
    pub(super) path: String,
    pub(super) about: About,
}

#[derive(Clone)]
pub(super) enum About {
    Object(String),
    /// The whole collection: the server chose the name.
    Made,
    /// The whole collection: some of its objects were deleted.
    Deleted,
}

impl Asked {
    /// Returns the state that a cache must have reached to include the present one.
    pub(super) async fn present(&self) -> Result<Written, Error> {
        let asking = async {
            match &self.about {
                About::Object(name) => self.object(name).await,
                About::Made => self.newest(ASKED_MOST).await,
                // Only the version of a list covers objects that are gone.
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
            Err(err) if err.is_not_found() => Ok(Written::Absent),
            Err(err) => Err(err),
        }
    }

    /// Returns the newest version of an object in the collection. The version of the list is that of the whole server,
    /// which a cache reaches only with its next bookmark; it is used for more than `most` objects.
    async fn newest(&self, most: usize) -> Result<Written, Error> {
        let uri = format!("{}?limit={}", self.path, most.max(1));
        let answer = self.get(&uri, "PartialObjectMetadataList").await?;
        if most == 0 || !answer.metadata.more.is_empty() {
            return Ok(Written::Version(answer.metadata.version()));
        }
        let versions = answer.items.iter().flatten().map(|it| it.metadata.version());
        let newest = versions.reduce(|one, other| if other > one { other } else { one });
        Ok(newest.map_or(Written::Absent, Written::Version))
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

/// The parts of an answer that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Answer {
    pub(super) kind: String,
    pub(super) metadata: Metadata,
    pub(super) details: Details,
    /// A list of nothing may say `null`.
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
