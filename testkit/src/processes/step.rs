//! `Step`: an action of users in a scenario, and the condition to wait for after it.

use std::time::Duration;

use fake_apiserver::expressions::FieldPath;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::time::Time;

/// A step: one action, then a wait. Without `wait`, the cluster settles after the action, unless it is a `pause`.
///
/// If the server is temporarily unable to handle an action (429, or 500 and above, for example while a webhook is
/// unavailable), the action is retried for 30s.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Step {
    /// Name of the step in reports, which also contain its file and line. Default: a description of the action.
    pub(crate) name: Option<String>,
    /// Files or directories with objects that are applied, as by `kubectl apply`.
    pub(crate) apply: Option<OneOrMany>,
    /// An object that is applied.
    pub(crate) object: Option<Value>,
    /// A patch of an object.
    pub(crate) patch: Option<Patch>,
    /// A change of the current object, as made by `kubectl edit`.
    pub(crate) edit: Option<Edit>,
    /// An object to scale.
    pub(crate) scale: Option<Scale>,
    /// Objects to delete: `RESOURCE/NAME`, such as `statefulsets/web`. Missing objects are ignored.
    pub(crate) delete: Option<OneOrMany>,
    /// A shell command, run with `sh`. `KUBECONFIG` in its environment grants the permissions of an administrator.
    pub(crate) run: Option<String>,
    /// A pause.
    pub(crate) pause: Option<Time>,
    /// User who takes the action, such as `jane` or `system:serviceaccount:shop:web`. Only with `cluster.rbac`.
    /// Default: an administrator.
    #[serde(rename = "as")]
    pub(crate) user: Option<String>,
    /// The action must be refused with an error that contains this string, such as `denied the request`.
    pub(crate) refused: Option<String>,
    /// Namespace of the objects of this step. Default `default`.
    pub(crate) namespace: Option<String>,
    /// A condition to wait for after the action.
    pub(crate) wait: Option<Wait>,
}

/// A patch of an object: one of `merge`, `json`, `strategic` and `apply`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Patch {
    /// The object, as `RESOURCE/NAME`.
    pub(crate) object: String,
    /// Subresource that is patched, such as `status`.
    pub(crate) subresource: Option<String>,
    /// The fields to change; `null` removes a field.
    pub(crate) merge: Option<Value>,
    /// Operations of a JSON patch: `[{op: remove, path: /spec/paused}]`.
    pub(crate) json: Option<Vec<Value>>,
    /// A strategic merge patch, which merges lists of built-in kinds by the keys of their items.
    pub(crate) strategic: Option<Value>,
    /// Fields for a server-side apply, which forces conflicts. `apiVersion`, `kind` and the name are filled in. Fields
    /// of an earlier `apply` patch that are missing are removed.
    pub(crate) apply: Option<Value>,
}

/// A change of the current object: one of `run` and `json`. If another client writes the object in between, the object
/// is read and changed again.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Edit {
    /// The object, as `RESOURCE/NAME`.
    pub(crate) object: String,
    /// A shell command that reads the object as JSON from standard input and writes the changed object, in JSON or
    /// YAML: `jq '.spec.replicas += 1'`.
    pub(crate) run: Option<String>,
    /// Operations of a JSON patch.
    pub(crate) json: Option<Vec<Value>>,
}

/// The new number of replicas of an object.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Scale {
    /// The object, as `RESOURCE/NAME`.
    pub(crate) object: String,
    /// The new number of replicas.
    pub(crate) replicas: u32,
}

/// A condition on an object: one of `for`, `condition`, `path` and `absent`. Without any of them, the object must
/// exist.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Wait {
    /// The object, as `RESOURCE/NAME`.
    pub(crate) object: String,
    /// The condition in the syntax of `kubectl wait --for`: `condition=Ready`, `jsonpath={.status.phase}=Running`,
    /// `create` or `delete`.
    #[serde(rename = "for")]
    pub(crate) kubectl: Option<String>,
    /// A condition in the object's status: `Ready`, or `Ready=False`. A condition that was observed for an older
    /// generation of the object does not count.
    pub(crate) condition: Option<String>,
    /// A field as JSONPath: `{.status.readyReplicas}`, `{.status.conditions[?(@.type=="Ready")].status}`,
    /// `{.metadata.labels.app\.kubernetes\.io/name}`. It must not match more than one value.
    pub(crate) path: Option<String>,
    /// The value of the field. Without a value, the field must exist.
    pub(crate) equals: Option<Value>,
    /// The object must not exist.
    #[serde(default)]
    pub(crate) absent: bool,
    /// Time within which the condition must hold. Default 60s. In a run with a fault, a condition that holds within 1.5
    /// times this time counts as slow, not as wrong.
    #[serde(default = "default_timeout")]
    pub(crate) timeout: Time,
}

/// A condition to wait for, parsed for its evaluation.
#[derive(Clone, Debug)]
pub(crate) enum Awaited {
    Exists,
    Absent,
    /// The type and the status of a condition.
    Condition(String, String),
    /// A field (its path, parsed and as a string), and its value as a string. Without a value, the field must exist.
    Field(FieldPath, String, Option<String>),
}

/// A string or a list of strings.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub(crate) fn all(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

/// The kind of a step's action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// Requests of a user.
    Request,
    /// A shell command.
    Command,
    Pause,
}

fn default_timeout() -> Time {
    Time(Duration::from_secs(60))
}

impl Step {
    /// Returns the name in reports: the given name, or a description of the action.
    pub(crate) fn title(&self) -> String {
        if let Some(name) = &self.name {
            return name.clone();
        }
        let list = |it: &OneOrMany| it.all().join(", ");
        if let Some(paths) = &self.apply {
            return format!("apply {}", list(paths));
        }
        if let Some(object) = &self.object {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            return format!("apply {} {name}", object["kind"].as_str().unwrap_or_default());
        }
        if let Some(patch) = &self.patch {
            return format!("patch {} {}", patch.object, patch.body());
        }
        if let Some(edit) = &self.edit {
            return match (&edit.run, &edit.json) {
                (Some(line), _) => format!("edit {} by `{line}`", edit.object),
                (None, operations) => format!("edit {} {}", edit.object, Value::from(operations.clone())),
            };
        }
        if let Some(scale) = &self.scale {
            return format!("scale {} to {}", scale.object, scale.replicas);
        }
        if let Some(objects) = &self.delete {
            return format!("delete {}", list(objects));
        }
        if let Some(line) = &self.run {
            return line.clone();
        }
        if let Some(time) = self.pause {
            return format!("wait for {:?}", time.0);
        }
        let object = self.wait.as_ref().map(|it| it.object.as_str()).unwrap_or_default();
        format!("wait for {object}")
    }

    pub(crate) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }

    /// Returns the kinds of the actions that are set.
    fn actions(&self) -> Vec<Action> {
        let actions = [
            (self.apply.is_some(), Action::Request),
            (self.object.is_some(), Action::Request),
            (self.patch.is_some(), Action::Request),
            (self.edit.is_some(), Action::Request),
            (self.scale.is_some(), Action::Request),
            (self.delete.is_some(), Action::Request),
            (self.run.is_some(), Action::Command),
            (self.pause.is_some(), Action::Pause),
        ];
        let set = actions.into_iter().filter(|(is_set, _)| *is_set);
        set.map(|(_, action)| action).collect()
    }

    /// Returns `true` if the step may change the cluster, and does not only wait.
    pub(crate) fn is_change(&self) -> bool {
        self.actions().iter().any(|it| *it != Action::Pause)
    }

    /// Returns the references `RESOURCE/NAME` of the step.
    pub(crate) fn references(&self) -> impl Iterator<Item = &String> {
        let single = [
            self.patch.as_ref().map(|it| &it.object),
            self.edit.as_ref().map(|it| &it.object),
            self.scale.as_ref().map(|it| &it.object),
            self.wait.as_ref().map(|it| &it.object),
        ];
        let deleted = self.delete.iter().flat_map(|it| it.all());
        single.into_iter().flatten().chain(deleted)
    }

    /// Returns an error for the first invalid value, apart from paths of files.
    pub(crate) fn wrong(&self) -> Option<String> {
        let actions = self.actions();
        match actions.len() {
            0 if self.wait.is_none() => return Some("an action or wait is required".to_owned()),
            0 | 1 => {}
            _ => return Some("a step has only one action: use a separate step for each action".to_owned()),
        }
        let is_request = actions.contains(&Action::Request);
        if self.user.is_some() && !is_request {
            return Some("as: only actions on objects have a user".to_owned());
        }
        if self.refused.is_some() && !is_request {
            return Some("refused: only actions on objects can be refused".to_owned());
        }
        if let Some(wrong) = self.references().find(|it| !it.contains('/')) {
            return Some(format!("{wrong:?} is not of the form RESOURCE/NAME"));
        }
        let patch = self.patch.as_ref().filter(|it| it.kinds() != 1);
        if patch.is_some() {
            return Some("patch: one of merge, json, strategic and apply is required".to_owned());
        }
        let edit = self.edit.as_ref().filter(|it| it.run.is_some() == it.json.is_some());
        if edit.is_some() {
            return Some("edit: either run or json is required".to_owned());
        }
        self.wait.as_ref()?.awaited().err()
    }
}

impl Patch {
    fn kinds(&self) -> usize {
        let kinds = [
            self.merge.is_some(),
            self.json.is_some(),
            self.strategic.is_some(),
            self.apply.is_some(),
        ];
        kinds.iter().filter(|it| **it).count()
    }

    /// Returns the body, for titles.
    fn body(&self) -> Value {
        let objects = [&self.merge, &self.strategic, &self.apply];
        let body = objects.into_iter().flatten().next().cloned();
        body.unwrap_or_else(|| Value::from(self.json.clone()))
    }
}

impl Wait {
    /// Parses the condition. The error contains the invalid field.
    pub(crate) fn awaited(&self) -> Result<Awaited, String> {
        let given = [
            self.kubectl.is_some(),
            self.condition.is_some(),
            self.path.is_some(),
            self.absent,
        ];
        if given.iter().filter(|it| **it).count() > 1 {
            return Err("wait: only one of for, condition, path and absent is allowed".to_owned());
        }
        if self.equals.is_some() && self.path.is_none() {
            return Err("wait.equals: a path is required".to_owned());
        }
        if let Some(text) = &self.kubectl {
            return of_kubectl(text).map_err(|err| format!("wait.for: {err}"));
        }
        if let Some(condition) = &self.condition {
            return Ok(condition_of(condition));
        }
        let Some(path) = &self.path else {
            return Ok(if self.absent { Awaited::Absent } else { Awaited::Exists });
        };
        let field = FieldPath::parse(path).map_err(|err| format!("wait.path: {err}"))?;
        Ok(Awaited::Field(field, path.clone(), self.equals.as_ref().map(shown)))
    }
}

fn condition_of(text: &str) -> Awaited {
    let (kind, status) = text.split_once('=').unwrap_or((text, "True"));
    Awaited::Condition(kind.to_owned(), status.to_owned())
}

/// Parses the value of `kubectl wait --for`.
fn of_kubectl(text: &str) -> Result<Awaited, String> {
    match (text, text.split_once('=')) {
        ("create", _) => Ok(Awaited::Exists),
        ("delete", _) => Ok(Awaited::Absent),
        (_, Some(("condition", condition))) => Ok(condition_of(condition)),
        (_, Some(("jsonpath", rest))) => {
            let unquoted = rest.trim_matches('\'');
            let end = unquoted.rfind('}').map_or(unquoted.len(), |it| it + 1);
            let (path, value) = unquoted.split_at(end);
            let value = value.trim_start_matches('\'').strip_prefix('=');
            let field = FieldPath::parse(path)?;
            Ok(Awaited::Field(field, path.to_owned(), value.map(str::to_owned)))
        }
        _ => Err(format!(
            "{text:?} is not one of condition=TYPE, jsonpath={{PATH}}=VALUE, create and delete"
        )),
    }
}

/// Formats a value: a string without its quotes, and other values as JSON.
pub(crate) fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl Awaited {
    /// Evaluates the condition. The error describes the current object.
    pub(crate) fn holds(&self, name: &str, object: Option<&Value>) -> Result<(), String> {
        let object = match (self, object) {
            (Self::Absent, None) => return Ok(()),
            (Self::Absent, Some(_)) => return Err(format!("{name} still exists")),
            (_, None) => return Err(format!("{name} does not exist")),
            (_, Some(object)) => object,
        };
        match self {
            Self::Exists | Self::Absent => Ok(()),
            Self::Condition(kind, expected) => has_condition(name, object, kind, expected),
            Self::Field(field, path, expected) => match (field.values(object).as_slice(), expected) {
                ([], _) => Err(format!("{name} does not have the field {path}")),
                ([value], Some(expected)) if shown(value) != *expected => {
                    Err(format!("{path} of {name} is {}", shown(value)))
                }
                ([_], _) => Ok(()),
                (values, _) => Err(format!("{path} of {name} matches {} values", values.len())),
            },
        }
    }
}

fn has_condition(name: &str, object: &Value, kind: &str, expected: &str) -> Result<(), String> {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let is_meant = |it: &&Value| it["type"].as_str().is_some_and(|it| it.eq_ignore_ascii_case(kind));
    let Some(condition) = conditions.into_iter().find(is_meant) else {
        return Err(format!("the condition {kind} of {name} is missing"));
    };
    let status = shown(&condition["status"]);
    if !status.eq_ignore_ascii_case(expected) {
        return Err(format!("the condition {kind} of {name} is {status}"));
    }
    let observed = [
        &condition["observedGeneration"],
        &object["status"]["observedGeneration"],
    ];
    let observed = observed.into_iter().find_map(Value::as_i64);
    match (observed, object["metadata"]["generation"].as_i64()) {
        (Some(observed), Some(generation)) if observed < generation => Err(format!(
            "the condition {kind} of {name} is outdated: observedGeneration is {observed}, metadata.generation is \
             {generation}"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wait(text: &str) -> Wait {
        serde_saphyr::from_str(&format!("{{object: pods/a, {text}}}")).expect("the wait can be parsed")
    }

    #[rstest::rstest]
    #[case::condition("condition: ready", Ok(()))]
    #[case::kubectl_condition("for: condition=Ready=True", Ok(()))]
    #[case::false_condition("for: condition=Synced", Err("the condition Synced of pods/a is False"))]
    #[case::outdated_condition(
        "condition: Old",
        Err("the condition Old of pods/a is outdated: observedGeneration is 1, metadata.generation is 2")
    )]
    #[case::field("path: status.phase, equals: Running", Ok(()))]
    #[case::kubectl_field("for: 'jsonpath={.status.phase}=Running'", Ok(()))]
    #[case::escaped_name(r"path: '{.metadata.labels.example\.com/role}', equals: db", Ok(()))]
    #[case::another_value(
        "for: 'jsonpath={.status.phase}=Failed'",
        Err("{.status.phase} of pods/a is Running")
    )]
    #[case::several_values(
        "path: '{.status.conditions[*].type}'",
        Err("{.status.conditions[*].type} of pods/a matches 3 values")
    )]
    #[case::existing_field("for: 'jsonpath={.status.phase}'", Ok(()))]
    #[case::deletion("for: delete", Err("pods/a still exists"))]
    fn wait_steps_support_the_conditions_of_kubectl_wait(#[case] text: &str, #[case] expected: Result<(), &str>) {
        let object = json!({
            "metadata": {"generation": 2, "labels": {"example.com/role": "db"}},
            "status": {"phase": "Running", "conditions": [
                {"type": "Synced", "status": "False"},
                {"type": "Ready", "status": "True", "observedGeneration": 2},
                {"type": "Old", "status": "True", "observedGeneration": 1},
            ]},
        });
        let awaited = wait(text).awaited().expect("the wait is valid");
        assert_eq!(awaited.holds("pods/a", Some(&object)), expected.map_err(str::to_owned));
    }

    #[rstest::rstest]
    #[case::two_conditions("condition: Ready, absent: true", "wait: only one of")]
    #[case::missing_path("equals: 1", "wait.equals: a path is required")]
    #[case::invalid_path("path: '{.a[0}'", "wait.path: \"{.a[0}\": unterminated array")]
    #[case::unknown_condition("for: ready", "wait.for: \"ready\" is not one of")]
    fn invalid_wait_steps_are_refused(#[case] text: &str, #[case] error: &str) {
        let refused = wait(text).awaited().expect_err("the wait is invalid");
        assert!(refused.starts_with(error), "{refused}");
    }
}
