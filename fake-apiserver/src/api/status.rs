//! `Status`: the errors that clients can receive, with Kubernetes' messages.

use std::borrow::Cow;

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize};

use super::field::{FieldError, FieldErrorKind, FieldErrors};
use super::rbac::Attributes;
use super::resource::{GroupKind, GroupResource};
use crate::api::print::Printer;

/// The `metav1.Status` in the response to a failed request (rule A1).
///
/// The error type of every layer below HTTP; only `endpoints` converts it to a response.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The HTTP status, and `code` of the body.
    pub code: u16,
    /// The machine-readable reason; empty if Kubernetes does not define one.
    pub reason: Cow<'static, str>,
    /// The human-readable message.
    pub message: String,
    /// Details of the error. `None` omits the field; empty details are encoded as `{}`.
    pub details: Option<Box<StatusDetails>>,
    /// `metadata.continue` of the response to an expired continue token (rule D11).
    pub continue_token: Option<String>,
    /// Warnings for the client, sent as `Warning` headers.
    pub warnings: Vec<String>,
}

/// `details` of a [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct StatusDetails {
    /// Name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// API group of the object; empty for the core group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The plural resource, or the kind for `Invalid` (rule A2).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// UID of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// One entry per error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// Seconds to wait before a retry; also the `Retry-After` header.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

/// One cause of a [`Status`]. Empty fields are omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct StatusCause {
    /// The machine-readable type, such as `FieldValueRequired`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The message without the field's path.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The field's path.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Status {
    /// Adds warnings to a failed request.
    #[must_use]
    pub fn warned(mut self, warnings: impl IntoIterator<Item = String>) -> Self {
        self.warnings.extend(warnings);
        self
    }

    /// Creates a failure without details.
    pub fn new(code: u16, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
            message: message.into(),
            details: None,
            continue_token: None,
            warnings: Vec::new(),
        }
    }

    fn about(self, resource: &GroupResource, name: &str) -> Self {
        self.with_details(StatusDetails {
            name: name.to_owned(),
            group: resource.group.to_string(),
            kind: resource.resource.to_string(),
            ..StatusDetails::default()
        })
    }

    /// Sets `details`.
    #[must_use]
    pub fn with_details(mut self, details: StatusDetails) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// Adds a cause.
    #[must_use]
    pub fn with_cause(mut self, reason: &str, message: impl Into<String>, field: &str) -> Self {
        self.details.get_or_insert_default().causes.push(StatusCause {
            reason: reason.to_owned(),
            message: message.into(),
            field: field.to_owned(),
        });
        self
    }

    /// Sets `retryAfterSeconds`, and with it the `Retry-After` header.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// Returns 400 (rule A15).
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// Returns 404 `pods "x" not found` (rule A3).
    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{resource} \"{name}\" not found")).about(resource, name)
    }

    /// Returns the router's 404 for an unknown path below a served group (rule A19).
    pub fn unknown_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
            .with_details(StatusDetails::default())
    }

    /// Returns the router's 405 (rule A18).
    pub fn method_not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .with_details(StatusDetails::default())
    }

    /// Returns a handler's 405 (rule A18).
    pub fn verb_not_supported(resource: &GroupResource, verb: &str) -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            format!("{verb} is not supported on resources of kind \"{resource}\""),
        )
        .about(resource, "")
    }

    /// Returns 409 AlreadyExists (rule A4).
    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{resource} \"{name}\" already exists")).about(resource, name)
    }

    /// Returns 409 Conflict with a reason (rules A6, A7).
    pub fn conflict(resource: &GroupResource, name: &str, why: impl std::fmt::Display) -> Self {
        Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}"),
        )
        .about(resource, name)
    }

    /// Returns 409 for a stale resourceVersion (rule A6).
    pub fn object_modified(resource: &GroupResource, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    /// Returns 403 `pods "x" is forbidden: why` (rule A23).
    pub fn forbidden(resource: &GroupResource, name: &str, why: impl std::fmt::Display) -> Self {
        let what = if name.is_empty() {
            format!("{resource}")
        } else {
            format!("{resource} \"{name}\"")
        };
        Self::new(403, "Forbidden", format!("{what} is forbidden: {why}")).about(resource, name)
    }

    /// Returns 403 for a request that is not authorized: `pods "x" is forbidden: User "u" cannot …`, with RBAC's reason
    /// (rule A23).
    pub(crate) fn not_allowed(request: &Attributes<'_>, user: &str, reason: &str) -> Self {
        let mut why = request.refusal(user);
        if !reason.is_empty() {
            why = format!("{why}: {reason}");
        }
        if !request.is_resource() {
            return Self::new(403, "Forbidden", format!("forbidden: {why}")).with_details(StatusDetails::default());
        }
        let resource = GroupResource {
            group: request.group.to_owned().into(),
            resource: request.resource.to_owned().into(),
        };
        Self::forbidden(&resource, request.name, why)
    }

    /// Returns 401 (rule A23).
    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// Returns 403 for a request over a socket with a host name that is not accepted. A web page may use a name that
    /// now resolves to this server (DNS rebinding).
    pub(crate) fn foreign_host(host: &str) -> Self {
        let why = format!(
            "host {host:?} is not accepted: this server accepts loopback names, its address and --accept-hosts"
        );
        Self::new(403, "Forbidden", why)
    }

    /// Returns 403 for a request from a web page of a different origin.
    pub(crate) fn foreign_origin(origin: &str) -> Self {
        Self::new(
            403,
            "Forbidden",
            format!("requests from pages of another origin are refused: {origin:?}"),
        )
    }

    /// Returns 403 for a request that a page of a different origin embeds, such as an image.
    pub(crate) fn embedded() -> Self {
        let why = "requests embedded in a page of another origin are refused";
        Self::new(403, "Forbidden", why)
    }

    /// Returns 415 for a browser's write that has a body but no Content-Type.
    pub(crate) fn no_content_type() -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            "a request with a body requires a Content-Type header",
        )
    }

    /// Returns 422 Invalid (rule A9). The message omits duplicate errors; `causes` has one entry per error.
    pub(crate) fn invalid(kind: &GroupKind, name: &str, errors: &FieldErrors) -> Self {
        let list = errors.aggregate();
        Self::new(
            422,
            "Invalid",
            format!("{kind} {} is invalid: {list}", super::field::quote(name)),
        )
        .with_details(StatusDetails {
            name: name.to_owned(),
            group: kind.group.to_string(),
            kind: kind.kind.to_string(),
            causes: errors.iter().map(super::field::FieldError::cause).collect(),
            ..StatusDetails::default()
        })
    }

    /// Returns 410 Expired (rule A13).
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// Returns 504 for a resourceVersion that the server has not reached (rule A14).
    pub fn too_large_resource_version(wanted: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        Self::new(504, "Timeout", message)
            .with_cause("ResourceVersionTooLarge", "Too large resource version", "")
            .with_retry_after(1)
    }

    /// Returns [`too_large_resource_version`](Self::too_large_resource_version) as etcd reports it: without
    /// `Retry-After`, because etcd does not wait for the revision.
    pub fn too_large_resource_version_of_etcd(wanted: u64, current: u64) -> Self {
        Self::too_large_resource_version(wanted, current).with_retry_after(0)
    }

    /// Returns 413 (rule A20).
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// Returns 415 (rule A16).
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let list = accepted.join(", ");
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {list}");
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// Returns 406 (rule A17).
    pub fn not_acceptable(accepted: &[&str]) -> Self {
        let list = accepted.join(", ");
        Self::new(
            406,
            "NotAcceptable",
            format!("only the following media types are accepted: {list}"),
        )
    }

    /// Returns 500 InternalError (rule A22).
    pub fn internal(error: impl std::fmt::Display) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {error}")).with_cause(
            "",
            error.to_string(),
            "",
        )
    }

    /// Writes the body, as [`Serialize`] does: in builds without optimisation, this takes a tenth of the instructions.
    pub(crate) fn write(&self, out: &mut Printer) {
        out.open(b'{');
        out.text_entry("kind", "Status");
        out.text_entry("apiVersion", "v1");
        out.key("metadata");
        out.open(b'{');
        if let Some(token) = &self.continue_token {
            out.text_entry("continue", token);
        }
        out.close(b'}');
        out.comma();
        out.text_entry("status", if self.code < 400 { "Success" } else { "Failure" });
        for (key, text) in [("message", &*self.message), ("reason", &*self.reason)] {
            if !text.is_empty() {
                out.text_entry(key, text);
            }
        }
        if let Some(details) = &self.details {
            out.key("details");
            details.write(out);
            out.comma();
        }
        if self.code != 0 {
            out.key("code");
            out.integer(self.code.into());
            out.comma();
        }
        out.close(b'}');
    }

    /// Returns the body: `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",…}`.
    pub fn to_value(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

impl StatusDetails {
    fn write(&self, out: &mut Printer) {
        out.open(b'{');
        let texts = [
            ("name", &self.name),
            ("group", &self.group),
            ("kind", &self.kind),
            ("uid", &self.uid),
        ];
        write_texts(&texts, out);
        if !self.causes.is_empty() {
            out.key("causes");
            out.open(b'[');
            for StatusCause { reason, message, field } in &self.causes {
                out.open(b'{');
                write_texts(&[("reason", reason), ("message", message), ("field", field)], out);
                out.close(b'}');
                out.comma();
            }
            out.close(b']');
            out.comma();
        }
        if self.retry_after_seconds != 0 {
            out.key("retryAfterSeconds");
            out.integer(self.retry_after_seconds.into());
            out.comma();
        }
        out.close(b'}');
    }
}

/// Writes the entries that are not empty.
fn write_texts(texts: &[(&str, &String)], out: &mut Printer) {
    for (key, text) in texts {
        if !text.is_empty() {
            out.text_entry(key, text);
        }
    }
}

/// Serializes the fields in the order of Go's struct, like kube-apiserver.
impl Serialize for Status {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Metadata<'a> {
            #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
            continue_token: Option<&'a str>,
        }
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", "Status")?;
        map.serialize_entry("apiVersion", "v1")?;
        map.serialize_entry(
            "metadata",
            &Metadata {
                continue_token: self.continue_token.as_deref(),
            },
        )?;
        map.serialize_entry("status", if self.code < 400 { "Success" } else { "Failure" })?;
        if !self.message.is_empty() {
            map.serialize_entry("message", &self.message)?;
        }
        if !self.reason.is_empty() {
            map.serialize_entry("reason", &self.reason)?;
        }
        if let Some(details) = &self.details {
            map.serialize_entry("details", details)?;
        }
        if self.code != 0 {
            map.serialize_entry("code", &self.code)?;
        }
        map.end()
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.code, self.reason, self.message)
    }
}

impl std::error::Error for Status {}

impl FieldError {
    /// Returns the `details.causes` entry of this error.
    pub(crate) fn cause(&self) -> StatusCause {
        use FieldErrorKind as Kind;
        let reason = match self.kind {
            Kind::Required => "FieldValueRequired",
            Kind::Invalid => "FieldValueInvalid",
            Kind::TypeInvalid => "FieldValueTypeInvalid",
            Kind::NotSupported => "FieldValueNotSupported",
            Kind::Forbidden => "FieldValueForbidden",
            Kind::Duplicate => "FieldValueDuplicate",
            Kind::NotFound => "FieldValueNotFound",
            Kind::TooLong => "FieldValueTooLong",
            Kind::TooMany => "FieldValueTooMany",
            Kind::Internal => "InternalError",
        };
        StatusCause {
            reason: reason.to_owned(),
            message: self.body(),
            field: self.path.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![Just(String::new()), "[a-c\n\"]{1,4}"]
    }

    prop_compose! {
        fn details()(
            texts in [text(), text(), text(), text()],
            causes in prop::collection::vec([text(), text(), text()], 0..3),
            retry_after_seconds in 0_u32..2,
        ) -> StatusDetails {
            let [name, group, kind, uid] = texts;
            let causes = causes.into_iter().map(|[reason, message, field]| StatusCause { reason, message, field });
            StatusDetails { name, group, kind, uid, causes: causes.collect(), retry_after_seconds }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn written_status_equals_the_serialized_status(
            code in prop_oneof![Just(0), Just(200), Just(404)], reason in text(), message in text(),
            details in prop::option::of(details()), token in prop::option::of(text()),
        ) {
            let mut status = Status::new(code, reason, message);
            status.details = details.map(Box::new);
            status.continue_token = token;
            let mut out = Printer::new(0);
            status.write(&mut out);
            prop_assert_eq!(Some(out.as_text().to_owned()), serde_json::to_string(&status).ok());
        }
    }
}
