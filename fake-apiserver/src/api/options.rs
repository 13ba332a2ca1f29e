//! The options of a request, parsed from its query string and, for a delete, from its body.

use super::field::{FieldErrors, FieldPath, is_print};
use super::kubernetes_version::KubernetesVersion;
use super::resource::GroupKind;
use super::selector::{FieldSelector, LabelSelector};
use super::status::Status;
use crate::api::json::Value;

/// The parameters of a query string, decoded, in order.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

/// Returns `true` if a parameter contains neither a semicolon, which was a separator in the past, nor an invalid
/// escape.
fn is_readable(pair: &str) -> bool {
    let is_hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let mut escapes = pair.split('%').skip(1).map(str::as_bytes);
    !pair.contains(';') && escapes.all(|it| is_hex(it.first()) && is_hex(it.get(1)))
}

impl Query {
    /// Parses a query string. A `+` is a space. Parameters with an invalid escape or a semicolon are dropped.
    pub fn parse(query: Option<&str>) -> Self {
        let Some(query) = query.filter(|it| !it.is_empty()) else {
            return Self::default();
        };
        let decode = |text: &str| {
            let spaced = text.replace('+', " ");
            percent_encoding::percent_decode_str(&spaced)
                .decode_utf8_lossy()
                .into_owned()
        };
        // Go's `url.ParseQuery` drops malformed parameters, and kube-apiserver ignores its error.
        let pairs = query
            .split('&')
            .filter(|it| !it.is_empty() && is_readable(it))
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                (decode(name), decode(value))
            });
        Self(pairs.collect())
    }

    /// Returns the first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(it, _)| it == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns all values of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(it, _)| it == name)
            .map(|(_, value)| value.as_str())
    }

    /// Parses a boolean parameter: `false` in any case and `0` are false, all other values are true; `None` if it is
    /// absent (rule A34).
    pub fn flag(&self, name: &str) -> Option<bool> {
        let is_false = |value: &str| value == "0" || value.eq_ignore_ascii_case("false");
        self.get(name).map(|value| !is_false(value))
    }

    /// Parses an integer parameter, like Go's `strconv.ParseInt`.
    pub(crate) fn integer(&self, name: &str) -> Result<Option<i64>, Status> {
        let Some(text) = self.get(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|error: std::num::ParseIntError| {
            let why = match error.kind() {
                std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "value out of range",
                _ => "invalid syntax",
            };
            Status::bad_request(format!(
                "strconv.ParseInt: parsing {}: {why}",
                super::field::quote(text)
            ))
        })
    }
}

fn meta_kind(kind: &'static str) -> GroupKind {
    GroupKind {
        group: "meta.k8s.io".into(),
        kind: kind.into(),
    }
}

fn refuse(kind: &'static str, errors: &FieldErrors) -> Result<(), Status> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Status::invalid(&meta_kind(kind), "", errors))
    }
}

/// `resourceVersionMatch`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    /// The state must be at least as new as `resourceVersion`.
    NotOlderThan,
    /// The state must be exactly the state at `resourceVersion`.
    Exact,
}

/// Options of list, watch and deletecollection.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ListOptions {
    /// `labelSelector`
    pub labels: LabelSelector,
    /// `fieldSelector`
    pub fields: FieldSelector,
    /// `resourceVersion` as given; empty if absent.
    pub resource_version: String,
    /// `resourceVersionMatch`
    pub version_match: Option<VersionMatch>,
    /// `limit`; 0 means unlimited. Negative values are read as 0.
    pub limit: usize,
    /// `continue`; empty if absent.
    pub continue_token: String,
    /// `watch`
    pub watch: bool,
    /// `allowWatchBookmarks`
    pub allow_watch_bookmarks: bool,
    /// `sendInitialEvents`
    pub send_initial_events: Option<bool>,
    /// `timeoutSeconds`; 0 if it is unset or negative.
    pub timeout_seconds: u64,
}

impl ListOptions {
    /// Parses and checks the options (rules A34, D3, E5), with the rules of a version of Kubernetes. `watch` is set if
    /// the route has already determined that the request is a watch.
    pub(crate) fn parse(query: &Query, watch: bool, version: KubernetesVersion) -> Result<Self, Status> {
        // A path of the old form `/watch/` starts a watch, but its options are validated like the options of a list.
        let asks_watch = query.flag("watch").unwrap_or(false);
        let watch = watch || asks_watch;
        let text = |name| query.get(name).unwrap_or_default().to_owned();
        // Parsed in the order of Go's fields, so that the first malformed integer is reported.
        let timeout_seconds = query.integer("timeoutSeconds")?.unwrap_or(0);
        let limit = query.integer("limit")?.unwrap_or(0);
        let labels =
            LabelSelector::parse(query.get("labelSelector").unwrap_or_default()).map_err(Status::bad_request)?;
        let fields =
            FieldSelector::parse(query.get("fieldSelector").unwrap_or_default()).map_err(Status::bad_request)?;
        let version_match = query.get("resourceVersionMatch").unwrap_or_default();
        let mut options = Self {
            labels,
            fields,
            resource_version: text("resourceVersion"),
            version_match: None,
            limit: usize::try_from(limit).unwrap_or(0),
            continue_token: text("continue"),
            watch,
            allow_watch_bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
            send_initial_events: query.flag("sendInitialEvents"),
            timeout_seconds: u64::try_from(timeout_seconds).unwrap_or(0),
        };
        // With the feature gate WatchList, a watch without a version or from "0" implies `sendInitialEvents=true`
        // (rule E4).
        let mut version_match = version_match;
        if asks_watch
            && version.has_watch_list()
            && matches!(options.resource_version.as_str(), "" | "0")
            && version_match.is_empty()
            && options.send_initial_events.is_none()
        {
            options.send_initial_events = Some(true);
            version_match = "NotOlderThan";
        }
        options.check(version_match, asks_watch, version)?;
        options.version_match = match version_match {
            "Exact" => Some(VersionMatch::Exact),
            "NotOlderThan" => Some(VersionMatch::NotOlderThan),
            _ => None,
        };
        Ok(options)
    }

    /// Returns `true` if a watch starts with the current state.
    pub(crate) fn sends_state(&self) -> bool {
        let is_new = || matches!(self.resource_version.as_str(), "" | "0");
        self.send_initial_events.unwrap_or_else(is_new)
    }

    fn check(&self, version_match: &str, asks_watch: bool, version: KubernetesVersion) -> Result<(), Status> {
        let mut errors = FieldErrors::new();
        let path = || FieldPath::new("resourceVersionMatch");
        if asks_watch {
            self.check_watch(version_match, version, &mut errors);
            return refuse("ListOptions", &errors);
        }
        if !version_match.is_empty() {
            if self.resource_version.is_empty() {
                errors.forbidden(
                    path(),
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                );
            }
            if !self.continue_token.is_empty() {
                errors.forbidden(path(), "resourceVersionMatch is forbidden when continue is provided");
            }
            if !matches!(version_match, "Exact" | "NotOlderThan") {
                errors.not_supported(path(), version_match, &["Exact", "NotOlderThan", ""]);
            }
            if version_match == "Exact" && self.resource_version == "0" {
                errors.forbidden(
                    path(),
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                );
            }
        }
        if self.send_initial_events.is_some() {
            errors.forbidden(
                FieldPath::new("sendInitialEvents"),
                "sendInitialEvents is forbidden for list",
            );
        }
        refuse("ListOptions", &errors)
    }

    fn check_watch(&self, version_match: &str, version: KubernetesVersion, errors: &mut FieldErrors) {
        let path = || FieldPath::new("resourceVersionMatch");
        if self.send_initial_events.is_some() && version_match != "NotOlderThan" {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.forbidden(path(), why);
        }
        if self.send_initial_events.is_some() && !version.has_watch_list() {
            let why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
            errors.forbidden(FieldPath::new("sendInitialEvents"), why);
        }
        if version_match.is_empty() {
            return;
        }
        if self.send_initial_events.is_none() {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.forbidden(path(), why);
        }
        if version_match != "NotOlderThan" {
            errors.not_supported(path(), version_match, &["NotOlderThan"]);
        }
        if !self.continue_token.is_empty() {
            errors.forbidden(path(), "resourceVersionMatch is forbidden when continue is provided");
        }
    }
}

/// Maximum length of the name of a field manager, in bytes.
const MANAGER_BYTES_MAX: usize = 128;

/// `fieldValidation`: the treatment of unknown and duplicate fields (rules L1 to L5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Unknown fields are dropped silently. Of a duplicate field, only the last value is kept.
    Ignore,
    /// Same as `Ignore`, but the fields are reported in `Warning` headers. This is the default.
    #[default]
    Warn,
    /// Requests with unknown or duplicate fields are refused.
    Strict,
}

/// Options of create, update, patch and apply.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WriteOptions {
    /// `dryRun=All`
    pub dry_run: bool,
    /// `fieldManager`
    pub field_manager: Option<String>,
    /// `fieldValidation`
    pub field_validation: FieldValidation,
    /// `force`; only for apply.
    pub force: Option<bool>,
}

/// Type of write request. Errors contain the name of its options type, such as `CreateOptions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// POST
    Create,
    /// PUT
    Update,
    /// PATCH; `apply` is set for server-side apply.
    Patch {
        /// `application/apply-patch+yaml`
        apply: bool,
    },
}

impl WriteOptions {
    /// Reads and checks the options (rules G9, H1, K2, L5).
    pub fn parse(query: &Query, kind: WriteKind) -> Result<Self, Status> {
        let mut errors = FieldErrors::new();
        let (name, apply) = match kind {
            WriteKind::Create => ("CreateOptions", false),
            WriteKind::Update => ("UpdateOptions", false),
            WriteKind::Patch { apply } => ("PatchOptions", apply),
        };
        let force = query.flag("force");
        let manager = query.get("fieldManager").filter(|it| !it.is_empty());
        if matches!(kind, WriteKind::Patch { .. }) && !apply && force.is_some() {
            errors.forbidden(FieldPath::new("force"), "may not be specified for non-apply patch");
        }
        match manager {
            Some(manager) => check_manager(manager, &mut errors),
            None if apply => errors.required(FieldPath::new("fieldManager"), "is required for apply patch"),
            None => {}
        }
        let dry_run = check_dry_run(query.all("dryRun").collect(), &mut errors);
        let field_validation = match query.get("fieldValidation").unwrap_or_default() {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                errors.not_supported(
                    FieldPath::new("fieldValidation"),
                    other,
                    &["", "Ignore", "Strict", "Warn"],
                );
                FieldValidation::Warn
            }
        };
        refuse(name, &errors)?;
        Ok(Self {
            dry_run,
            field_manager: manager.map(str::to_owned),
            field_validation,
            force,
        })
    }
}

/// Checks the parameter `fieldManager` (rule H1).
fn check_manager(manager: &str, errors: &mut FieldErrors) {
    let path = || FieldPath::new("fieldManager");
    if manager.len() > MANAGER_BYTES_MAX {
        errors.too_long(path(), MANAGER_BYTES_MAX);
    }
    for (at, c) in manager.char_indices().filter(|(_, c)| !is_print(*c)) {
        let why = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        errors.invalid(path(), manager, why);
    }
}

fn check_dry_run(values: Vec<&str>, errors: &mut FieldErrors) -> bool {
    if values.iter().any(|it| *it != "All") {
        errors.not_supported(FieldPath::new("dryRun"), Value::from(values), &["All"]);
        return false;
    }
    !values.is_empty()
}

/// Options of delete and deletecollection, from the body if the request has one, otherwise from the query (rule B22).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeleteOptions {
    /// `gracePeriodSeconds`
    pub grace_period_seconds: Option<i64>,
    /// `preconditions.uid`
    pub uid: Option<String>,
    /// `preconditions.resourceVersion`
    pub resource_version: Option<String>,
    /// `orphanDependents`, deprecated.
    pub orphan_dependents: Option<bool>,
    /// `propagationPolicy`
    pub propagation_policy: Option<PropagationPolicy>,
    /// `dryRun=All`
    pub dry_run: bool,
}

/// `propagationPolicy`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropagationPolicy {
    /// Dependents are kept.
    Orphan,
    /// Dependents are deleted after the owner.
    Background,
    /// Dependents are deleted before the owner.
    Foreground,
}

impl DeleteOptions {
    /// Parses options that were sent as query parameters.
    pub fn from_query(query: &Query) -> Result<Self, Status> {
        let precondition = |name: &str| query.get(name).filter(|it| !it.is_empty()).map(str::to_owned);
        let options = Self {
            grace_period_seconds: query.integer("gracePeriodSeconds")?,
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
            orphan_dependents: query.flag("orphanDependents"),
            ..Self::default()
        };
        options.checked(query.get("propagationPolicy"), query.all("dryRun").collect())
    }

    /// Creates options from a body that was already validated as an object with the right kind and types.
    pub(crate) fn from_body(body: &Value) -> Result<Self, Status> {
        let text = |path: &str| body.pointer(path).and_then(Value::as_str);
        let options = Self {
            grace_period_seconds: body.get("gracePeriodSeconds").and_then(Value::as_i64),
            uid: text("/preconditions/uid").map(str::to_owned),
            resource_version: text("/preconditions/resourceVersion").map(str::to_owned),
            orphan_dependents: body.get("orphanDependents").and_then(Value::as_bool),
            ..Self::default()
        };
        let dry_run = body.get("dryRun").and_then(Value::as_array);
        // Go decodes null as an empty string.
        let dry_run = dry_run.into_iter().flatten().map(|it| it.as_str().unwrap_or_default());
        let dry_run = dry_run.collect();
        options.checked(text("/propagationPolicy"), dry_run)
    }

    fn checked(mut self, policy: Option<&str>, dry_run: Vec<&str>) -> Result<Self, Status> {
        let mut errors = FieldErrors::new();
        let path = || FieldPath::new("propagationPolicy");
        if let (Some(policy), Some(_)) = (policy, self.orphan_dependents) {
            errors.invalid(
                path(),
                policy,
                "orphanDependents and deletionPropagation cannot be both set",
            );
        }
        self.propagation_policy = match policy {
            None => None,
            Some("Orphan") => Some(PropagationPolicy::Orphan),
            Some("Background") => Some(PropagationPolicy::Background),
            Some("Foreground") => Some(PropagationPolicy::Foreground),
            Some(other) => {
                errors.not_supported(path(), other, &["Foreground", "Background", "Orphan", "nil"]);
                None
            }
        };
        self.dry_run = check_dry_run(dry_run, &mut errors);
        refuse("DeleteOptions", &errors)?;
        Ok(self)
    }
}

/// Content type of a PATCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// `application/json-patch+json`
    Json,
    /// `application/merge-patch+json`
    Merge,
    /// `application/strategic-merge-patch+json`; only for built-in kinds.
    Strategic,
    /// `application/apply-patch+yaml`
    Apply,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("fieldManager=one", true, "")]
    #[case("", false, "")]
    #[case("", true, "fieldManager: Required value: is required for apply patch")]
    #[case("fieldManager=", true, "fieldManager: Required value: is required for apply patch")]
    #[case(
        "fieldManager=a%07b",
        false,
        "fieldManager: Invalid value: \"a\\ab\": invalid character U+0007 (at position 1)"
    )]
    fn h1_field_manager_is_required_for_applies_and_must_be_printable(
        #[case] query: &str,
        #[case] apply: bool,
        #[case] refusal: &str,
    ) {
        let parsed = WriteOptions::parse(&Query::parse(Some(query)), WriteKind::Patch { apply });
        let text = parsed.err().map(|status| status.message).unwrap_or_default();
        assert_eq!(
            text.trim_start_matches("PatchOptions.meta.k8s.io \"\" is invalid: "),
            refusal
        );
    }

    #[test]
    fn h1_field_manager_is_limited_to_128_bytes() {
        let query = Query::parse(Some(format!("fieldManager={}", "a".repeat(129)).as_str()));
        let refused = WriteOptions::parse(&query, WriteKind::Create).expect_err("the name is too long");
        assert!(
            refused
                .message
                .ends_with("fieldManager: Too long: may not be more than 128 bytes"),
            "{refused}"
        );
    }
}
