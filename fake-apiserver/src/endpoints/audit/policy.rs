//! `AuditPolicy`: the level of each request, modelled on `policyRuleEvaluator` of k8s.io/apiserver/pkg/audit/policy.

use std::fmt;

use serde::Deserialize;

use crate::api::json::Value;
use crate::api::rbac::Attributes;
use crate::api::user::UserInfo;
use crate::api::yaml;

/// Rules for the recording of requests: a `Policy` of `audit.k8s.io/v1`.
///
/// ```
/// use fake_apiserver::AuditPolicy;
///
/// let text = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}";
/// assert!(AuditPolicy::parse(text).is_ok());
/// let wrong = AuditPolicy::parse("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: All}]}").unwrap_err();
/// assert!(wrong.to_string().starts_with("rules[0].level: Unsupported value: \"All\""));
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuditPolicy {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(rename = "metadata", default)]
    _metadata: Value,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    omit_stages: Vec<String>,
    #[serde(default)]
    omit_managed_fields: bool,
}

/// Reason why a policy is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditPolicyError(String);

impl fmt::Display for AuditPolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AuditPolicyError {}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    #[serde(default)]
    level: String,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<GroupResources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<String>,
    omit_managed_fields: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GroupResources {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

/// Level of detail of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Metadata,
    Request,
    RequestResponse,
}

/// Stage of a request at which an event is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    RequestReceived,
    ResponseStarted,
    ResponseComplete,
    Panic,
}

const LEVELS: [&str; 4] = ["None", "Metadata", "Request", "RequestResponse"];

const STAGES: [&str; 4] = ["RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"];

impl Level {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

impl Stage {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// A policy's decision for one request.
#[derive(Clone, Debug)]
pub(super) struct Extent {
    pub(super) level: Level,
    omitted: Vec<String>,
    pub(super) omit_managed_fields: bool,
}

impl Extent {
    pub(super) fn omits(&self, stage: Stage) -> bool {
        self.omitted.iter().any(|it| it == stage.as_str())
    }
}

impl AuditPolicy {
    /// Parses a policy in YAML or JSON. Unknown fields are errors.
    pub fn parse(text: &str) -> Result<Self, AuditPolicyError> {
        let parsed = yaml::parse(text.as_bytes()).map_err(AuditPolicyError)?;
        let names = |name: &str| parsed.value[name].as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (names("apiVersion"), names("kind"));
        if (api_version.as_str(), kind.as_str()) != ("audit.k8s.io/v1", "Policy") {
            let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
            let found = format!("{group}/{version}, Kind={kind}");
            return Err(AuditPolicyError(format!(
                "unknown group version field {found} in policy"
            )));
        }
        if let Some(error) = parsed.strict_error() {
            return Err(AuditPolicyError(error));
        }
        let policy: Self =
            serde_json::from_value(parsed.value.into()).map_err(|err| AuditPolicyError(err.to_string()))?;
        let mut errors = Vec::new();
        check_stages("omitStages", &policy.omit_stages, &mut errors);
        for (index, rule) in policy.rules.iter().enumerate() {
            rule.check(&format!("rules[{index}]"), &mut errors);
        }
        match errors.as_slice() {
            [] if policy.rules.is_empty() => Err(AuditPolicyError("loaded illegal policy with 0 rules".to_owned())),
            [] => Ok(policy),
            [one] => Err(AuditPolicyError(one.clone())),
            several => Err(AuditPolicyError(format!("[{}]", several.join(", ")))),
        }
    }

    /// Returns the level and stages at which a request is recorded; `None` if it is not recorded. The first matching
    /// rule applies.
    pub(super) fn extent(&self, user: Option<&UserInfo>, request: &Attributes<'_>) -> Option<Extent> {
        let rule = self.rules.iter().find(|it| it.matches(user, request))?;
        let level = match rule.level.as_str() {
            "Metadata" => Level::Metadata,
            "Request" => Level::Request,
            "RequestResponse" => Level::RequestResponse,
            _ => return None,
        };
        Some(Extent {
            level,
            omitted: self.omit_stages.iter().chain(&rule.omit_stages).cloned().collect(),
            omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
        })
    }
}

/// Checks the omitted stages (`validateOmitStages`).
fn check_stages(path: &str, stages: &[String], errors: &mut Vec<String>) {
    for (index, stage) in stages.iter().enumerate() {
        if !STAGES.contains(&stage.as_str()) {
            let allowed = STAGES.join(",");
            errors.push(format!(
                "{path}[{index}]: Invalid value: {stage:?}: allowed stages are {allowed}"
            ));
        }
    }
}

impl Rule {
    /// Checks a rule (`validatePolicyRule`).
    fn check(&self, path: &str, errors: &mut Vec<String>) {
        match self.level.as_str() {
            "" => errors.push(format!("{path}.level: Required value")),
            level if !LEVELS.contains(&level) => {
                let mut levels = LEVELS.map(|it| format!("{it:?}"));
                levels.sort_unstable();
                let levels = levels.join(", ");
                errors.push(format!(
                    "{path}.level: Unsupported value: {level:?}: supported values: {levels}"
                ));
            }
            _ => {}
        }
        for (index, url) in self.non_resource_urls.iter().enumerate().filter(|(_, url)| *url != "*") {
            let mut refuse = |why: &str| {
                errors.push(format!(
                    "{path}.nonResourceURLs[{index}]: Invalid value: {url:?}: {why}"
                ));
            };
            if !url.starts_with('/') {
                refuse("non-resource URL rules must begin with a '/' character");
            }
            if url.strip_suffix('*').unwrap_or(url).contains('*') {
                refuse("non-resource URL wildcards '*' must be the final character of the rule");
            }
        }
        for it in &self.resources {
            let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-');
            if it.group != "*" && !it.group.chars().all(is_name) {
                errors.push(format!(
                    "{path}.resources.group: Invalid value: {:?}: a group is a DNS subdomain, without a version",
                    it.group
                ));
            }
            if !it.resource_names.is_empty() && it.resources.is_empty() {
                errors.push(format!(
                    "{path}.resources.resourceNames: Invalid value: {:?}: using resourceNames requires at least one \
                     resource",
                    it.resource_names
                ));
            }
        }
        check_stages(&format!("{path}.omitStages"), &self.omit_stages, errors);
        let has_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if has_resources && !self.non_resource_urls.is_empty() {
            errors.push(format!(
                "{path}.nonResourceURLs: Invalid value: {:?}: rules cannot apply to both regular resources and \
                 non-resource URLs",
                self.non_resource_urls
            ));
        }
    }

    /// Returns `true` if the rule matches a request (`ruleMatches`).
    fn matches(&self, user: Option<&UserInfo>, request: &Attributes<'_>) -> bool {
        let has = |list: &[String], value: &str| list.iter().any(|it| it == value);
        let is_user = || user.is_some_and(|user| has(&self.users, &user.name));
        let is_member = || user.is_some_and(|user| user.groups.iter().any(|group| has(&self.user_groups, group)));
        if !(self.users.is_empty() || is_user())
            || !(self.user_groups.is_empty() || is_member())
            || !(self.verbs.is_empty() || has(&self.verbs, request.verb))
        {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return request.is_resource()
                && (self.namespaces.is_empty() || has(&self.namespaces, request.namespace))
                && (self.resources.is_empty() || self.resources.iter().any(|it| it.match_request(request)));
        }
        if !self.non_resource_urls.is_empty() {
            return !request.is_resource() && self.non_resource_urls.iter().any(|it| covers(it, request.path));
        }
        true
    }
}

impl GroupResources {
    /// Returns `true` if group, resource and name of a request match (a part of `ruleMatchesResource`).
    fn match_request(&self, request: &Attributes<'_>) -> bool {
        let Attributes {
            resource, subresource, ..
        } = *request;
        if self.group != request.group && self.group != "*" {
            return false;
        }
        let is_named = self.resource_names.is_empty() || self.resource_names.iter().any(|it| it == request.name);
        let is_it = |wanted: &String| match wanted.split_once('/') {
            _ if wanted == "*" => true,
            None => wanted == resource && subresource.is_empty(),
            Some(("*", wanted)) => !subresource.is_empty() && wanted == subresource,
            Some((wanted, "*")) => wanted == resource,
            Some((wanted, sub)) => wanted == resource && sub == subresource,
        };
        self.resources.is_empty() || (is_named && self.resources.iter().any(is_it))
    }
}

/// Returns `true` if a path in a rule matches a request's path (`pathMatches`).
fn covers(rule: &str, path: &str) -> bool {
    rule == path || rule.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
}
