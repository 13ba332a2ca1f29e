//! `Check`: a condition of the user, as a rule in CEL over objects or as a command.

use std::collections::BTreeMap;

use fake_apiserver::api::selector::LabelSelector;
use fake_apiserver::expressions::ObjectRule;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::explore::parts::MustHold;

/// A condition that is checked in every run: one of `always`, `eventually` and `sometimes`. If it is violated, the run
/// fails, as with an oracle.
///
/// A CEL rule can access the objects that `object`, `objects` and `variables` select, with the syntax of a
/// ValidatingAdmissionPolicy. `always` and `sometimes` are evaluated after every write. A command succeeds if it exits
/// with code 0; for `always` and `sometimes`, it runs each time the cluster has settled.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Check {
    /// The name in reports.
    pub(crate) name: String,
    /// Rule that must always hold.
    always: Option<Rule>,
    /// Rule that must hold at the end of every run, within the scenario's `within` after the last fault.
    eventually: Option<Rule>,
    /// Rule that must hold at least once in at least one run.
    sometimes: Option<Rule>,
    /// Object in the variable `object`, as `RESOURCE/NAME`. The variable is `null` while the object does not exist.
    object: Option<String>,
    /// Resource such as `pods`. The variable `objects` is the list of its objects.
    objects: Option<String>,
    /// Labels of the objects in `objects`, in the syntax of `kubectl get -l`: `app=web,tier!=cache`.
    selector: Option<String>,
    /// More variables by name: `RESOURCE/NAME` is an object or `null`, and `RESOURCE` is a list.
    #[serde(default)]
    variables: BTreeMap<String, String>,
    /// Namespace of the objects. Default: `default` for single objects, and all namespaces for lists.
    namespace: Option<String>,
}

/// A rule in CEL, such as `objects.all(it, it.spec.replicas <= 3)`, or a command.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a CEL rule, or `run` with a shell command")]
pub(crate) enum Rule {
    Cel(String),
    Command(Command),
}

/// A command. The rule holds if it exits with code 0.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Command {
    /// A shell command, run with `sh`. `KUBECONFIG` in its environment grants the permissions of an administrator.
    pub(crate) run: String,
}

/// A variable of a rule.
pub(crate) struct Variable {
    pub(crate) name: String,
    /// The source of the value: `RESOURCE/NAME` for an object, or `RESOURCE` for a list.
    pub(crate) source: String,
    pub(crate) namespace: Option<String>,
    pub(crate) selector: Option<LabelSelector>,
}

impl Variable {
    pub(crate) fn is_list(&self) -> bool {
        !self.source.contains('/')
    }
}

impl Check {
    /// Returns the rule, and when it must hold; `None` if no rule is set.
    pub(crate) fn rule(&self) -> Option<(MustHold, &Rule)> {
        let rules = [
            (MustHold::Always, &self.always),
            (MustHold::Eventually, &self.eventually),
            (MustHold::Sometimes, &self.sometimes),
        ];
        rules.into_iter().find_map(|(must, rule)| Some((must, rule.as_ref()?)))
    }

    /// Returns the variables of the rule.
    pub(crate) fn variables(&self) -> Result<Vec<Variable>, String> {
        let selector = self.selector.as_ref().map(|it| LabelSelector::parse(it));
        let selector = selector.transpose().map_err(|err| format!("selector: {err}"))?;
        let given = [("object", &self.object, None), ("objects", &self.objects, selector)];
        let given = given.into_iter().filter_map(|(name, source, selector)| {
            let (name, source) = (name.to_owned(), source.clone()?);
            Some((name, source, selector))
        });
        let more = self
            .variables
            .iter()
            .map(|(name, source)| (name.clone(), source.clone(), None));
        let namespace = self.namespace.clone();
        let all = given.chain(more).map(|(name, source, selector)| Variable {
            name,
            source,
            namespace: namespace.clone(),
            selector,
        });
        Ok(all.collect())
    }

    /// Returns an error for the first invalid value.
    pub(crate) fn wrong(&self) -> Option<String> {
        let given = [&self.always, &self.eventually, &self.sometimes];
        if given.into_iter().flatten().count() != 1 {
            return Some("exactly one of always, eventually and sometimes is required".to_owned());
        }
        if self.name.trim().is_empty() {
            return Some("name: a name is required".to_owned());
        }
        let (must, rule) = self.rule()?;
        let has_objects = self.object.is_some() || self.objects.is_some() || !self.variables.is_empty();
        let Rule::Cel(expression) = rule else {
            let others = has_objects || self.selector.is_some() || self.namespace.is_some();
            return others.then(|| "a command has no objects and variables: it must read objects itself".to_owned());
        };
        if !has_objects {
            return Some("object, objects or variables: a rule requires one of them".to_owned());
        }
        if let Some(object) = self.object.as_ref().filter(|it| !it.contains('/')) {
            return Some(format!("object: {object:?} is not of the form RESOURCE/NAME"));
        }
        if let Some(objects) = self.objects.as_ref().filter(|it| it.contains('/')) {
            return Some(format!("objects: {objects:?} is a single object: use the field object"));
        }
        if self.selector.is_some() && self.objects.is_none() {
            return Some("selector: the field only has an effect with objects".to_owned());
        }
        let is_name = |it: &String| {
            let is_letter = |it: char| it.is_ascii_alphanumeric() || it == '_';
            it.starts_with(|it: char| it.is_ascii_alphabetic()) && it.chars().all(is_letter)
        };
        if let Some(wrong) = self.variables.keys().find(|it| !is_name(it)) {
            return Some(format!(
                "variables: {wrong:?} is not a valid name: use letters, digits and underscores"
            ));
        }
        match self.variables() {
            Err(wrong) => Some(wrong),
            Ok(variables) => {
                let refused = parsed(expression, &variables).err()?;
                Some(format!("{}: {refused}", word(must)))
            }
        }
    }
}

/// Parses a CEL rule that can access these variables.
pub(crate) fn parsed(expression: &str, variables: &[Variable]) -> Result<ObjectRule, String> {
    ObjectRule::parse(expression, variables.iter().map(|it| (it.name.as_str(), it.is_list())))
}

/// Returns the field that contains the rule.
pub(crate) const fn word(must: MustHold) -> &'static str {
    match must {
        MustHold::Always => "always",
        MustHold::Eventually => "eventually",
        MustHold::Sometimes => "sometimes",
    }
}
