//! Subresources with their own behaviour, and virtual resources. Requests for unsupported subresources fail with an
//! error that contains the subresource.

mod binding;
mod connect;
mod containers;
mod eviction;
mod log;
mod review_selectors;
mod reviews;
mod scale;
mod token;

use super::Registry;
use super::answer::{Answer, SuccessStatus, Written};
use super::request::{Remarks, WriteRequest};
use super::scheme::Row;
use super::scheme::body::{self, Decoded};
use super::types::decode;
use crate::api::json::Value;
use crate::api::object::Object;
use crate::api::options::{PatchKind, Query, WriteKind, WriteOptions};
use crate::api::request_info::{RequestInfo, Verb};
use crate::api::status::Status;
use crate::api::user::UserInfo;

/// A request for a subresource, as parsed by `endpoints`.
pub(crate) struct SubresourceRequest<'a> {
    /// The resource in the requested version.
    pub(crate) row: &'a Row,
    /// Verb, namespace, name and subresource.
    pub(crate) info: &'a RequestInfo,
    /// The query parameters.
    pub(crate) query: &'a Query,
    /// Type of a PATCH; `None` for other verbs.
    pub(crate) patch: Option<PatchKind>,
    /// The body of POST, PUT and apply; empty for other requests.
    pub(crate) object: Object,
    /// The body as JSON, with details that are lost in `object`. For a PATCH, the unchanged patch.
    pub(crate) text: decode::Text<'a>,
    /// Warnings and annotations of the request.
    pub(crate) remarks: &'a Remarks,
    /// Value of the header `User-Agent`.
    pub(crate) user_agent: &'a str,
    /// User that sent the request.
    pub(crate) user: &'a UserInfo,
}

/// Returns `true` if requests to the subresource do not send an object: connections and logs.
pub(crate) fn is_connection(subresource: &str) -> bool {
    matches!(first(subresource), "log" | "exec" | "attach" | "portforward" | "proxy")
}

/// Returns the subresource without the path after `proxy`.
fn first(subresource: &str) -> &str {
    subresource.split('/').next().unwrap_or_default()
}

impl SubresourceRequest<'_> {
    fn unsupported(&self) -> Status {
        let resource = self.row.info.group_resource();
        let sub = &self.info.subresource;
        let why = format!(
            "the fake API server does not serve {} of {resource}/{sub}",
            self.info.verb
        );
        Status::new(501, "NotImplemented", why)
    }

    fn write_options(&self) -> Result<WriteOptions, Status> {
        let kind = match (self.info.verb, self.patch) {
            (Verb::Create, _) => WriteKind::Create,
            (_, Some(kind)) => WriteKind::Patch {
                apply: kind == PatchKind::Apply,
            },
            _ => WriteKind::Update,
        };
        WriteOptions::parse(self.query, kind)
    }

    fn write<'b>(&'b self, options: &'b WriteOptions) -> WriteRequest<'b> {
        WriteRequest {
            row: self.row,
            info: self.info,
            options,
            user_agent: self.user_agent,
            user: self.user,
            remarks: self.remarks,
        }
    }

    /// Decodes the body as a built-in object of a kind other than the row's.
    fn read(&self, mut object: Object, wanted: decode::Wanted<'_>, options: &WriteOptions) -> Result<Decoded, Status> {
        let (warnings, hidden) = decode::decode(wanted, &mut object, self.text, None, options.field_validation)?;
        Ok(Decoded {
            object,
            warnings,
            hidden,
        })
    }
}

impl Registry {
    /// Handles a request for a subresource other than `status`.
    pub(crate) async fn subresource(&self, request: &SubresourceRequest<'_>) -> Result<Written, Status> {
        match (first(&request.info.subresource), request.info.verb) {
            ("scale", Verb::Get | Verb::Update | Verb::Patch) => self.scale(request).await,
            ("token", Verb::Create) => self.request_token(request).await,
            ("binding", Verb::Create) => self.bind(request).await,
            ("eviction", Verb::Create) => self.evict(request).await,
            ("finalize" | "approval" | "ephemeralcontainers" | "resize", Verb::Get) => self.whole(request).await,
            ("finalize" | "approval" | "ephemeralcontainers" | "resize", Verb::Update | Verb::Patch) => {
                self.write_whole(request).await
            }
            ("log", Verb::Get) => self.log(request).await,
            ("exec" | "attach" | "portforward" | "proxy", _) => self.connect(request).await,
            _ => Err(request.unsupported()),
        }
    }

    /// Handles a GET of a subresource that returns the object itself.
    async fn whole(&self, request: &SubresourceRequest<'_>) -> Result<Written, Status> {
        let version = request.query.get("resourceVersion").unwrap_or_default();
        let stored = self.reader.get(request.row, request.info, version).await?;
        Ok(Written::updated(Answer::Stored(stored)))
    }

    /// Handles a write to a subresource that has the same kind as the object. The strategy restores all parts that the
    /// subresource may not change.
    async fn write_whole(&self, request: &SubresourceRequest<'_>) -> Result<Written, Status> {
        let options = request.write_options()?;
        let write = request.write(&options);
        match request.patch {
            Some(PatchKind::Apply) => self.apply(&write, &request.object).await,
            Some(kind) => self.patch(&write, kind, request.text.raw).await,
            None => {
                let object = request.object.clone();
                let decoded = body::read(request.row, object, request.text, None, options.field_validation)?;
                self.update(&write, decoded).await
            }
        }
    }
}

/// Returns the response `{"kind":"Status",…,"status":"Success","code":201}`.
fn created() -> Written {
    let status = SuccessStatus {
        details: None,
        code: 201,
    };
    Written {
        answer: Answer::Status(Box::new(status)),
        code: 201,
    }
}

/// Returns the string at a path, or an empty string.
fn text_at<'a>(object: &'a Object, path: &[&str]) -> &'a str {
    value_at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the value at a path.
fn value_at<'a>(object: &'a Object, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(object.get(first)?, |value, key| value.get(*key))
}
