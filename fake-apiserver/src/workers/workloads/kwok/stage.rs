//! `Stage`: a step in the life cycle of a Pod or a Node, as defined by `kwok.x-k8s.io/v1alpha1`.

use jiff::{SignedDuration, Timestamp};

use super::functions::is_known;
use super::manifest::{self, StageError};
use super::query::Query;
use super::template::Template;
use crate::api::duration;
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::api::options::PatchKind;
use crate::workers::hash::long_hex;
use crate::workers::workloads::resource::Resource;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stage {
    pub(crate) name: String,
    pub(crate) resource: Resource,
    labels: Vec<(String, String)>,
    annotations: Vec<(String, String)>,
    expressions: Vec<Requirement>,
    weight: i64,
    weight_from: Option<Query>,
    delay: Option<Delay>,
    pub(super) steps: Vec<Step>,
}

/// A condition on the values of a query.
#[derive(Clone, Debug, PartialEq)]
struct Requirement {
    query: Query,
    operator: manifest::Operator,
    values: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
struct Delay {
    fixed: Option<SignedDuration>,
    from: Option<Query>,
    jitter: Option<SignedDuration>,
    jitter_from: Option<Query>,
}

/// A write of a Stage.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Event {
        is_warning: bool,
        reason: String,
        message: String,
    },
    Finalizers {
        add: Vec<String>,
        remove: Vec<String>,
        empties: bool,
    },
    Delete,
    Patch {
        subresource: String,
        root: String,
        template: Template,
        kind: PatchKind,
    },
}

impl Stage {
    /// Parses a manifest; `None` if it lacks a selector.
    pub(super) fn read(manifest: manifest::Stage) -> Result<Option<Self>, StageError> {
        let name = manifest.metadata.name;
        let failed = |why: String| StageError::new(&name, why);
        let spec = manifest.spec;
        let resource = match (&*spec.resource_ref.api_group, &*spec.resource_ref.kind) {
            ("v1" | "", "Pod") => Resource::Pod,
            ("v1" | "", "Node") => Resource::Node,
            (group, kind) => {
                return Err(failed(format!(
                    "stages of {group} {kind} are not supported, only stages of Pods and Nodes"
                )));
            }
        };
        let Some(selector) = spec.selector else { return Ok(None) };
        let query = |text: String| Query::parse(&text).map_err(failed);
        let from = |it: Option<manifest::From>| it.map(|it| query(it.text().map_err(failed)?)).transpose();
        let mut expressions = Vec::new();
        for it in selector.match_expressions {
            let it = it.requirement().map_err(failed)?;
            expressions.push(Requirement {
                query: query(it.key)?,
                operator: it.operator,
                values: it.values,
            });
        }
        let milliseconds = |it: Option<i64>| it.map(SignedDuration::from_millis);
        let delay = match spec.delay {
            None => None,
            Some(it) => Some(Delay {
                fixed: milliseconds(it.duration_milliseconds),
                from: from(it.duration_from)?,
                jitter: milliseconds(it.jitter_duration_milliseconds),
                jitter_from: from(it.jitter_duration_from)?,
            }),
        };
        let mut steps = Vec::new();
        for step in manifest::steps(spec.next, spec.steps).map_err(failed)? {
            steps.push(Step::read(step).map_err(failed)?);
        }
        Ok(Some(Self {
            resource,
            labels: selector.match_labels.into_iter().collect(),
            annotations: selector.match_annotations.into_iter().collect(),
            expressions,
            weight: spec.weight,
            weight_from: from(spec.weight_from)?,
            delay,
            steps,
            name,
        }))
    }

    /// Returns `true` if the Stage selects an object.
    pub(super) fn matches(&self, value: &Value) -> bool {
        let has = |field: &str, wanted: &[(String, String)]| {
            let map = value.pointer(&format!("/metadata/{field}"));
            let found = |key: &str| map.and_then(|it| it.get(key)).and_then(Value::as_str);
            wanted.iter().all(|(key, value)| found(key) == Some(value))
        };
        has("labels", &self.labels)
            && has("annotations", &self.annotations)
            && self.expressions.iter().all(|it| it.holds(value))
    }

    /// Returns the weight of the Stage for an object; `None` if the weight is not a number.
    pub(super) fn weight(&self, value: &Value) -> Option<i64> {
        let found = self
            .weight_from
            .as_ref()
            .and_then(|it| it.values(value).into_iter().next());
        match found {
            None => Some(self.weight),
            Some(found) => found.as_i64().or_else(|| found.as_str()?.parse().ok()),
        }
    }

    /// Returns the time between a change of the object and the Stage, including a pseudo-random part (jitter). The same
    /// version of an object always has the same delay.
    pub(super) fn delay(&self, object: &Object, value: &Value, now: Timestamp) -> SignedDuration {
        let Some(delay) = &self.delay else {
            return SignedDuration::ZERO;
        };
        let from = |query: &Option<Query>, fixed: Option<SignedDuration>| {
            let found = query.as_ref().and_then(|it| it.values(value).into_iter().next());
            match found.as_ref().and_then(Value::as_str) {
                None => fixed,
                Some(text) => match text.parse::<Timestamp>() {
                    Ok(time) => Some(time.duration_since(now)),
                    Err(_) => duration::parse(text).ok().or(fixed),
                },
            }
        };
        let least = from(&delay.from, Some(delay.fixed.unwrap_or_default())).unwrap_or_default();
        let Some(most) = from(&delay.jitter_from, delay.jitter) else {
            return least;
        };
        match u64::try_from(most.as_millis() - least.as_millis()) {
            Ok(range @ 1..) => {
                let more = chance(object, &self.name) % range;
                least.saturating_add(SignedDuration::from_millis(i64::try_from(more).unwrap_or_default()))
            }
            Ok(0) | Err(_) => most,
        }
    }
}

/// Returns a pseudo-random number that depends on the version of an object and on `purpose`.
pub(super) fn chance(object: &Object, purpose: &str) -> u64 {
    let hex = long_hex(&[object.uid(), object.meta_str("resourceVersion"), purpose]);
    u64::from_str_radix(&hex[..15], 16).unwrap_or_default()
}

impl Requirement {
    fn holds(&self, value: &Value) -> bool {
        let found = self.query.values(value);
        let is_meant = |it: &Value| {
            let text = match it {
                Value::String(text) => text.to_string(),
                Value::Bool(_) | Value::Number(_) => it.to_string(),
                Value::Null | Value::Array(_) | Value::Object(_) => return false,
            };
            self.values.contains(&text)
        };
        match self.operator {
            manifest::Operator::In => found.iter().any(is_meant),
            manifest::Operator::NotIn => !found.iter().any(is_meant),
            manifest::Operator::Exists => !found.is_empty(),
            manifest::Operator::DoesNotExist => found.is_empty(),
        }
    }
}

impl Step {
    fn read(step: manifest::Step) -> Result<Self, String> {
        Ok(match step {
            manifest::Step::Delete => Self::Delete,
            manifest::Step::Event(event) => Self::Event {
                is_warning: event.kind == "Warning",
                reason: event.reason,
                message: event.message,
            },
            manifest::Step::Finalizers(it) => Self::Finalizers {
                add: it.add.into_iter().map(|it| it.value).collect(),
                remove: it.remove.into_iter().map(|it| it.value).collect(),
                empties: it.empty,
            },
            manifest::Step::Patch(patch) => Self::Patch {
                template: Template::parse(&patch.template, &is_known)?,
                kind: match patch.kind.as_deref() {
                    None | Some("strategic") => PatchKind::Strategic,
                    Some("merge") => PatchKind::Merge,
                    Some("json") => PatchKind::Json,
                    Some(other) => return Err(format!("unknown patch type {other}")),
                },
                subresource: patch.subresource,
                root: patch.root,
            },
        })
    }
}

/// Nests a patch below the field `root`.
pub(super) fn below(root: &str, kind: PatchKind, mut patch: Value) -> Value {
    if root.is_empty() {
        return patch;
    }
    if kind == PatchKind::Json {
        for operation in patch.as_array_mut().into_iter().flatten() {
            let path = operation.get("path").and_then(Value::as_str).unwrap_or_default();
            operation["path"] = format!("/{root}{path}").into();
        }
        return patch;
    }
    let mut map = Map::new();
    map.insert(root.into(), patch);
    Value::Object(map)
}
