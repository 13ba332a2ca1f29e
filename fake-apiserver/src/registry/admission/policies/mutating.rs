//! MutatingAdmissionPolicies and their bindings (rule P8), with apply configurations and JSON patches.

use super::super::Admission;
use super::super::attributes::{Attributes, kind_of};
use super::super::matching::{Match, Matched, conditions};
use super::super::reinvocation::Reinvocation;
use super::environment::holds;
use super::params::{self, ParamKind};
use super::validating::{binding_match, variables};
use super::{Policies, bindings_of};
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::cel::program::Program;
use crate::registry::managed_fields::merge_applied;
use crate::registry::patch::{Inapplicable, json_patch_or_why};
use crate::registry::scheme::Row;
use crate::registry::types::cursor::Cursor;

/// A MutatingAdmissionPolicy with its bindings.
#[derive(Debug)]
pub(super) struct MutatingPolicy {
    name: String,
    matches: Match,
    conditions: Vec<(String, String)>,
    variables: Vec<(String, Program)>,
    mutations: Vec<Mutation>,
    ignores_failure: bool,
    is_reinvoked: bool,
    params: Option<ParamKind>,
    bindings: Vec<(String, Option<Match>, Map)>,
}

#[derive(Debug)]
struct Mutation {
    is_patch: bool,
    program: Result<Program, String>,
}

/// Reads policies together with their bindings.
pub(super) fn read(policies: &[Object], bindings: &[Object]) -> Vec<MutatingPolicy> {
    let read = |policy: &Object| {
        let root = Cursor::root(policy);
        let spec = root.present("spec")?;
        let bindings: Vec<_> = bindings_of(policy.name(), bindings)
            .filter_map(|binding| {
                let spec = Cursor::root(binding).map("spec")?;
                let matches = binding_match(&Cursor::root(spec));
                Some((binding.name().to_owned(), matches, spec.clone()))
            })
            .collect();
        let constraints = spec.present("matchConstraints")?;
        let mutation = |it: Cursor<'_>| {
            let is_patch = it.text("patchType") == "JSONPatch";
            let way = match is_patch {
                true => "jsonPatch.expression",
                false => "applyConfiguration.expression",
            };
            Mutation {
                is_patch,
                program: Program::parse(it.text(way)),
            }
        };
        (!bindings.is_empty()).then(|| MutatingPolicy {
            name: policy.name().to_owned(),
            matches: Match::of_resources(&constraints, true),
            conditions: conditions(&spec),
            variables: variables(&spec),
            mutations: spec.items("mutations").map(mutation).collect(),
            ignores_failure: spec.text("failurePolicy") == "Ignore",
            is_reinvoked: spec.text("reinvocationPolicy") == "IfNeeded",
            params: params::kind_of(&spec),
            bindings,
        })
    };
    policies.iter().filter_map(read).collect()
}

impl Admission {
    /// Runs all policies in the order of their names. If `is_second` is set, only runs policies with reinvocationPolicy
    /// IfNeeded.
    pub(in super::super) async fn mutate_by_policies(
        &self,
        policies: &Policies,
        attributes: &mut Attributes<'_>,
        known: &mut Reinvocation,
        is_second: bool,
    ) -> Result<(), Status> {
        if attributes.object.is_none() {
            return Ok(());
        }
        for policy in policies.mutating.iter().filter(|it| !is_second || it.is_reinvoked) {
            let Some(matched) = policy.matches.find(&self.reader, attributes) else {
                continue;
            };
            let before = attributes.object.clone();
            for (name, matches, binding) in &policy.bindings {
                if matches
                    .as_ref()
                    .is_some_and(|it| it.find(&self.reader, attributes).is_none())
                {
                    continue;
                }
                match self.mutate_by_policy(policy, binding, attributes, &matched).await {
                    Ok(()) => {}
                    Err(Failure::Refused(status)) => return Err(*status),
                    Err(Failure::Policy(_)) if policy.ignores_failure => {}
                    Err(Failure::Policy(why)) => {
                        let resource = attributes.row.info.group_resource();
                        let why = format!("policy '{}' with binding '{name}' denied request: {why}", policy.name);
                        return Err(Status::forbidden(&resource, attributes.shown_name(), why));
                    }
                }
            }
            if attributes.object != before {
                known.is_needed |= policies.mutating.iter().any(|it| it.is_reinvoked);
            }
        }
        Ok(())
    }

    async fn mutate_by_policy(
        &self,
        policy: &MutatingPolicy,
        binding: &Map,
        attributes: &mut Attributes<'_>,
        matched: &Matched,
    ) -> Result<(), Failure> {
        let params = params::find(&self.reader, policy.params.as_ref(), binding, attributes)
            .map_err(|why| format!("failed to configure binding: {why}"))?;
        for param in params {
            let said = |status: Status| status.message;
            let review = self.review_of(attributes, matched).await.map_err(said)?;
            let mut environment = self.environment(attributes, matched).await.map_err(said)?;
            environment.params = param;
            if !holds(&policy.conditions, &environment)? {
                continue;
            }
            let mut object = Value::from(review.object);
            for mutation in &policy.mutations {
                environment.set_object(object.clone());
                environment.evaluate_variables(&policy.variables);
                let program = mutation.program.as_ref().map_err(Clone::clone)?;
                let value = environment.value(program)?.to_json()?;
                let row = match matched {
                    Matched::As(row) if attributes.kind == kind_of(&attributes.row.info) => row,
                    Matched::As(_) | Matched::AsRequested => attributes.row,
                };
                object = if mutation.is_patch {
                    match json_patch_or_why(object.clone(), value.to_string().as_bytes()) {
                        Ok(patched) => patched,
                        // A failed test operation of a JSON patch leaves the object unchanged.
                        Err(Inapplicable::Test(_)) => object,
                        Err(Inapplicable::Otherwise(why)) => return Err(why.into()),
                    }
                } else {
                    apply(row, object, value)?
                };
            }
            let read = self.read_back(attributes, matched, object).await;
            let next = read.map_err(|status| Failure::Refused(Box::new(status)))?;
            attributes.set_read_back(next);
        }
        Ok(())
    }
}

/// A failed evaluation of a policy.
enum Failure {
    /// An expression failed or its result cannot be applied; failurePolicy applies.
    Policy(String),
    /// The result is not an object of the same kind; failurePolicy does not apply.
    Refused(Box<Status>),
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Policy(why)
    }
}

/// Merges an apply configuration into an object according to the object's type. The configuration cannot set fields
/// that identify the object.
fn apply(row: &Row, object: Value, applied: Value) -> Result<Value, String> {
    let (Value::Object(mut object), Value::Object(applied)) = (object, applied) else {
        return Err("the result is not an object".to_owned());
    };
    for field in ["apiVersion", "kind"] {
        if applied.contains_key(field) {
            return Err(format!("{field} must not be set in an applied object"));
        }
    }
    let metadata = applied.get("metadata").and_then(Value::as_object).into_iter().flatten();
    let mut names = metadata.map(|(field, _)| field.as_str());
    if let Some(field) = names.find(|it| !matches!(*it, "labels" | "annotations" | "finalizers" | "ownerReferences")) {
        return Err(format!("metadata.{field} must not be set in an applied object"));
    }
    merge_applied(row.schema(), &mut object, &applied);
    Ok(Value::Object(object))
}
