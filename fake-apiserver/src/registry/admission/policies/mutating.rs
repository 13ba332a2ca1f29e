//! MutatingAdmissionPolicies and their bindings (rule P8), with apply configurations and JSON patches.

use super::super::Admission;
use super::super::attributes::{Attributes, kind_of};
use super::super::matching::{Match, Matched, conditions};
use super::super::reinvocation::{PolicyKey, Reinvocation};
use super::environment::{Environment, holds};
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

/// A policy that applies to a request, with one of its bindings and one parameter.
struct Invocation<'a> {
    policy: &'a MutatingPolicy,
    binding: &'a str,
    matched: Matched,
    param: Value,
}

impl Invocation<'_> {
    fn key(&self) -> PolicyKey {
        let param = Cursor::document(&self.param);
        let (namespace, name) = (param.text("metadata.namespace"), param.text("metadata.name"));
        [&self.policy.name, self.binding, namespace, name].map(str::to_owned)
    }
}

/// The reason why a policy refuses a request.
struct Refusal<'a> {
    policy: &'a MutatingPolicy,
    /// The binding; `None` if the policy itself is misconfigured.
    binding: Option<&'a str>,
    why: String,
    /// Set if an expression failed or its result cannot be applied. The reason is then `Invalid`, not `Forbidden`.
    is_invalid: bool,
}

impl Refusal<'_> {
    fn message(&self) -> String {
        let (policy, why) = (&self.policy.name, &self.why);
        match self.binding {
            Some(binding) => format!("policy '{policy}' with binding '{binding}' denied request: {why}"),
            None => format!("policy \"{policy}\" denied request: {why}"),
        }
    }
}

impl Admission {
    /// Runs all policies that match the request, in the order of their names; all are matched before the first of them
    /// changes the object. If `is_second` is set, runs only policies with reinvocationPolicy IfNeeded that ran before a
    /// later change.
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
        let (invocations, mut refusals) = self.invocations(policies, attributes);
        if invocations.is_empty() {
            return refuse(&refusals, attributes);
        }
        if is_second && known.policies.left != attributes.object {
            known.policies.changed();
        }
        let mut has_mutated = false;
        for invocation in &invocations {
            has_mutated |= self
                .invoke(invocation, attributes, known, is_second, &mut refusals)
                .await?;
        }
        // In Go, a mutation that changes nothing also counts.
        if has_mutated {
            known.policies.changed();
            known.is_needed = true;
        }
        known.policies.left.clone_from(&attributes.object);
        refuse(&refusals, attributes)
    }

    /// Returns the policies that apply to a request, for each binding and parameter, and the misconfigured policies and
    /// bindings.
    fn invocations<'a>(
        &self,
        policies: &'a Policies,
        attributes: &Attributes<'_>,
    ) -> (Vec<Invocation<'a>>, Vec<Refusal<'a>>) {
        let (mut invocations, mut refusals) = (Vec::new(), Vec::new());
        for policy in &policies.mutating {
            let Some(matched) = policy.matches.find(&self.reader, attributes) else {
                continue;
            };
            if let Some(why) = params::missing_kind(&self.reader, policy.params.as_ref()) {
                refusals.push(Refusal {
                    policy,
                    binding: None,
                    why,
                    is_invalid: false,
                });
                continue;
            }
            for (binding, matches, spec) in &policy.bindings {
                let matches = matches.as_ref();
                if matches.is_some_and(|it| it.find(&self.reader, attributes).is_none()) {
                    continue;
                }
                match params::find(&self.reader, policy.params.as_ref(), spec, attributes) {
                    Ok(params) => invocations.extend(params.into_iter().map(|param| Invocation {
                        policy,
                        binding,
                        matched: matched.clone(),
                        param,
                    })),
                    Err(why) => refusals.push(Refusal {
                        policy,
                        binding: Some(binding),
                        why: format!("failed to configure binding: {why}"),
                        is_invalid: false,
                    }),
                }
            }
        }
        (invocations, refusals)
    }

    /// Runs the mutations of a policy, and returns `true` if one succeeded. A failed mutation does not undo the others.
    async fn invoke<'a>(
        &self,
        invocation: &Invocation<'a>,
        attributes: &mut Attributes<'_>,
        known: &mut Reinvocation,
        is_second: bool,
        refusals: &mut Vec<Refusal<'a>>,
    ) -> Result<bool, Status> {
        let Invocation { policy, binding, .. } = *invocation;
        let refusal = |why: String| Refusal {
            policy,
            binding: Some(binding),
            why,
            is_invalid: true,
        };
        let mut environment = self.environment(attributes, &invocation.matched).await?;
        environment.params = invocation.param.clone();
        match holds(&policy.conditions, &environment) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(why) => {
                refusals.push(refusal(why));
                return Ok(false);
            }
        }
        let key = invocation.key();
        if is_second && !known.policies.again.contains(&key) {
            return Ok(false);
        }
        let before = attributes.object.clone();
        let mut has_mutated = false;
        for mutation in &policy.mutations {
            match self
                .mutate_once(mutation, invocation, attributes, &mut environment)
                .await
            {
                Ok(()) => has_mutated = true,
                Err(Failure::Policy(why)) => refusals.push(refusal(why)),
                Err(Failure::Refused(status)) => return Err(*status),
            }
        }
        if attributes.object != before {
            known.policies.changed();
            known.is_needed = true;
        }
        if policy.is_reinvoked {
            known.policies.asked.insert(key);
        }
        Ok(has_mutated)
    }

    async fn mutate_once(
        &self,
        mutation: &Mutation,
        invocation: &Invocation<'_>,
        attributes: &mut Attributes<'_>,
        environment: &mut Environment,
    ) -> Result<(), Failure> {
        let matched = &invocation.matched;
        let refused = |status: Status| Failure::Refused(Box::new(status));
        let object = Value::from(self.review_of(attributes, matched).await.map_err(refused)?.object);
        environment.set_object(object.clone());
        environment.evaluate_variables(&invocation.policy.variables);
        let program = mutation.program.as_ref().map_err(Clone::clone)?;
        let value = environment.value(program)?.to_json()?;
        let row = match matched {
            Matched::As(row) if attributes.kind == kind_of(&attributes.row.info) => row,
            Matched::As(_) | Matched::AsRequested => attributes.row,
        };
        let mutated = if mutation.is_patch {
            match json_patch_or_why(object.clone(), value.to_string().as_bytes()) {
                Ok(patched) => patched,
                // A failed test operation of a JSON patch leaves the object unchanged.
                Err(Inapplicable::Test(_)) => object,
                Err(Inapplicable::Undecodable(why) | Inapplicable::Otherwise(why)) => return Err(why.into()),
            }
        } else {
            apply(row, object, value)?
        };
        let next = self.read_back(attributes, matched, mutated).await.map_err(refused)?;
        attributes.set_read_back(next);
        Ok(())
    }
}

/// Refuses the request if a policy with failurePolicy Fail has failed.
fn refuse(refusals: &[Refusal<'_>], attributes: &Attributes<'_>) -> Result<(), Status> {
    let refusals: Vec<_> = refusals.iter().filter(|it| !it.policy.ignores_failure).collect();
    let Some(first) = refusals.first() else {
        return Ok(());
    };
    let mut status = Status::forbidden(&attributes.row.info.group_resource(), attributes.shown_name(), "");
    status.message = first.message();
    if first.is_invalid {
        status.reason = "Invalid".into();
    }
    let with = |status: Status, it: &&Refusal<'_>| status.with_cause("", it.message(), "");
    Err(refusals.iter().fold(status, with))
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
