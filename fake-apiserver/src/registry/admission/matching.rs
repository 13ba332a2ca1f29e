//! Selection of requests by webhooks and policies: rules, selectors, and equivalent versions (rule P5).

use std::sync::Arc;

use super::attributes::{Attributes, kind_of};
use crate::api::admission::{GroupVersionKind, Operation};
use crate::api::object::Object;
use crate::api::resource::ResourceInfo;
use crate::api::selector::LabelSelector;
use crate::registry::reader::Reader;
use crate::registry::scheme::Row;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;

/// Wildcard for all groups, versions, resources or operations.
const ALL: &str = "*";

/// A rule that selects requests by operation and resource.
#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
    /// Object names that match, for policies; empty for all names.
    names: Vec<String>,
}

/// The criteria by which a webhook, policy or binding selects requests.
#[derive(Debug, Default)]
pub(super) struct Match {
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    /// Set if one of the rules must match; a binding may omit rules.
    needs_rule: bool,
    /// Set for `matchPolicy: Exact`.
    is_exact: bool,
    namespaces: Option<LabelSelector>,
    objects: Option<LabelSelector>,
    /// The `matchConditions`: pairs of a name and an expression.
    pub(super) conditions: Vec<(String, String)>,
}

/// The version in which a request matched: its own version, or an equivalent one.
#[derive(Clone, Debug)]
pub(super) enum Matched {
    AsRequested,
    As(Arc<Row>),
}

fn strings(map: &Cursor<'_>, field: &str) -> Vec<String> {
    map.texts(field).map(str::to_owned).collect()
}

impl Rule {
    fn all(map: &Cursor<'_>, field: &str) -> Vec<Self> {
        let rule = |rule: Cursor<'_>| Self {
            operations: strings(&rule, "operations"),
            groups: strings(&rule, "apiGroups"),
            versions: strings(&rule, "apiVersions"),
            resources: strings(&rule, "resources"),
            scope: rule.text("scope").to_owned(),
            names: strings(&rule, "resourceNames"),
        };
        map.items(field).map(rule).collect()
    }

    fn matches(&self, info: &ResourceInfo, attributes: &Attributes<'_>) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|it| it == ALL || it == wanted);
        has(&self.operations, attributes.operation.as_str())
            && has(&self.groups, &info.group)
            && has(&self.versions, &info.version)
            && self.has_resource(&info.resource, attributes.subresource)
            && self.has_scope(info, attributes)
            && (self.names.is_empty() || self.names.contains(&attributes.name))
    }

    fn has_resource(&self, resource: &str, subresource: &str) -> bool {
        self.resources.iter().any(|it| {
            let (first, second) = it.split_once('/').unwrap_or((it, ""));
            (first == ALL || first == resource) && (second == ALL || second == subresource)
        })
    }

    /// Returns `true` if the request is in the scope of the rule. Namespaces are cluster-scoped, although their
    /// requests have a namespace.
    fn has_scope(&self, info: &ResourceInfo, attributes: &Attributes<'_>) -> bool {
        let is_namespaced = info.is_namespaced() && !attributes.namespace.is_empty();
        match self.scope.as_str() {
            "Namespaced" => is_namespaced,
            "Cluster" => !is_namespaced,
            _ => true,
        }
    }
}

fn selector(map: &Cursor<'_>, field: &str) -> Option<LabelSelector> {
    // Validation has already refused malformed selectors.
    let selector = LabelSelector::from_object(map.get(field)?).ok().flatten()?;
    (!selector.is_empty()).then_some(selector)
}

/// Reads the `matchConditions` of a webhook or a policy: names and expressions.
pub(super) fn conditions(map: &Cursor<'_>) -> Vec<(String, String)> {
    map.items("matchConditions")
        .map(|it| (it.text("name").to_owned(), it.text("expression").to_owned()))
        .collect()
}

impl Match {
    pub(super) fn of_webhook(webhook: &Cursor<'_>) -> Self {
        Self {
            rules: Rule::all(webhook, "rules"),
            conditions: conditions(webhook),
            needs_rule: true,
            ..Self::selectors(webhook)
        }
    }

    /// Reads the `matchConstraints` of a policy, or the `matchResources` of a binding, which may omit rules.
    pub(super) fn of_resources(resources: &Cursor<'_>, needs_rule: bool) -> Self {
        let rules = Rule::all(resources, "resourceRules");
        Self {
            needs_rule: needs_rule || !rules.is_empty(),
            rules,
            excluded: Rule::all(resources, "excludeResourceRules"),
            ..Self::selectors(resources)
        }
    }

    fn selectors(map: &Cursor<'_>) -> Self {
        Self {
            is_exact: map.text("matchPolicy") == "Exact",
            namespaces: selector(map, "namespaceSelector"),
            objects: selector(map, "objectSelector"),
            ..Self::default()
        }
    }

    /// Returns the version in which a request matches; `None` if it does not match. Match conditions are not evaluated
    /// yet.
    pub(super) fn find(&self, reader: &Reader, attributes: &Attributes<'_>) -> Option<Matched> {
        if self.find_rule(&self.excluded, reader, attributes).is_some() {
            return None;
        }
        let matched = match self.needs_rule {
            true => self.find_rule(&self.rules, reader, attributes)?,
            false => Matched::AsRequested,
        };
        (self.selects_namespace(reader, attributes) && self.selects_object(attributes)).then_some(matched)
    }

    /// Returns the version in which one of the rules matches. Among equivalent versions, the first rule that matches
    /// one decides.
    fn find_rule(&self, rules: &[Rule], reader: &Reader, attributes: &Attributes<'_>) -> Option<Matched> {
        if rules.iter().any(|it| it.matches(&attributes.row.info, attributes)) {
            return Some(Matched::AsRequested);
        }
        if self.is_exact || rules.is_empty() {
            return None;
        }
        let scheme = reader.scheme();
        let same = |row: &&Arc<Row>| {
            let info = &attributes.row.info;
            row.storage == attributes.row.storage && (row.info.group != info.group || row.info.version != info.version)
        };
        let rows: Vec<&Arc<Row>> = scheme.rows().filter(same).collect();
        let matching = |rule: &Rule| rows.iter().find(|row| rule.matches(&row.info, attributes));
        rules.iter().find_map(matching).map(|row| Matched::As(Arc::clone(row)))
    }

    fn selects_namespace(&self, reader: &Reader, attributes: &Attributes<'_>) -> bool {
        let Some(selector) = &self.namespaces else {
            return true;
        };
        let is_namespace = attributes.is_about("", "namespaces");
        if !is_namespace && (attributes.namespace.is_empty() || !attributes.row.info.is_namespaced()) {
            return true;
        }
        let is_written = matches!(attributes.operation, Operation::Create | Operation::Update);
        if let (true, true, "", Some(object)) = (is_namespace, is_written, attributes.subresource, &attributes.object) {
            return selects(selector, object);
        }
        let stored = reader.store.get("namespaces", &Key::new("", &attributes.namespace));
        stored.is_some_and(|stored| selector.matches(|key| stored.label(key)))
    }

    fn selects_object(&self, attributes: &Attributes<'_>) -> bool {
        let Some(selector) = &self.objects else {
            return true;
        };
        // The options of a connection do not have metadata, and therefore no labels to compare.
        if attributes.operation == Operation::Connect {
            return false;
        }
        let is_selected = |object: &Option<Object>| object.as_ref().is_some_and(|it| selects(selector, it));
        is_selected(&attributes.object) || is_selected(&attributes.old)
    }
}

/// Returns `true` if a selector selects an object.
pub(super) fn selects(selector: &LabelSelector, object: &Object) -> bool {
    let labels: Vec<(&str, &str)> = object.labels().collect();
    selector.matches(|key| labels.iter().find(|(it, _)| *it == key).map(|(_, value)| *value))
}

impl Matched {
    /// Returns the kind in which objects are sent to the webhook or policy. Subresources with their own kind are never
    /// converted.
    pub(super) fn kind(&self, attributes: &Attributes<'_>) -> GroupVersionKind {
        match self {
            Matched::As(row) if attributes.kind == kind_of(&attributes.row.info) => kind_of(&row.info),
            Matched::As(_) | Matched::AsRequested => attributes.kind.clone(),
        }
    }
}
