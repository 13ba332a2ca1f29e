//! The variable `authorizer` of policies: checks permissions of the request's user, or of a ServiceAccount, with the
//! functions of Kubernetes' CEL library `authz` (rule P7).

use std::collections::HashMap;
use std::sync::Arc;

use crate::api::admission::AdmissionRequest;
use crate::api::rbac::Attributes;
use crate::api::user::{AUTHENTICATED, UserInfo};
use crate::registry::authorization::Decision;
use crate::registry::authorization::authorizer::Authorizer;
use crate::registry::cel::eval::{EvalFailure, Evaluated, overload};
use crate::registry::cel::objects::{Key, Map as CelMap, Opaque, Value as CelValue};
use crate::registry::cel::program::ProgramOutcome;
use crate::registry::types::names;

/// Key of the map entry that contains the authorizer in the variable `authorizer`. It is not an identifier, so
/// expressions cannot select it as a field.
const AUTHORIZER: &str = "\u{0}authorizer";

/// The part of a permission check that an expression has set so far.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    Nothing,
    Group(String),
    Resource(Resource),
    Path(String),
    Answered(Decision),
}

/// The resource of a permission check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Resource {
    group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

/// A value of the `authz` library, such as an authorizer or a permission check.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Question {
    authorizer: Authorizer,
    asked: Asked,
}

impl Opaque for Question {
    fn runtime_type_name(&self) -> &str {
        match self.asked {
            Asked::Nothing => "kubernetes.authorization.Authorizer",
            Asked::Group(_) => "kubernetes.authorization.GroupCheck",
            Asked::Resource(_) => "kubernetes.authorization.ResourceCheck",
            Asked::Path(_) => "kubernetes.authorization.PathCheck",
            Asked::Answered(_) => "kubernetes.authorization.Decision",
        }
    }
}

/// Returns the variable `authorizer` for the user of a request; `authorizer.requestResource` is the request's resource.
pub(crate) fn variable(authorizer: Authorizer, review: &AdmissionRequest) -> ProgramOutcome {
    let resource = Resource {
        group: review.request_resource.group.clone(),
        resource: review.request_resource.resource.clone(),
        subresource: review.sub_resource.clone(),
        namespace: review.namespace.clone(),
        name: review.name.clone(),
    };
    let about = |asked| {
        let authorizer = authorizer.clone();
        CelValue::Opaque(Arc::new(Question { authorizer, asked }))
    };
    let map = HashMap::from([
        (key(AUTHORIZER), about(Asked::Nothing)),
        (key("requestResource"), about(Asked::Resource(resource))),
    ]);
    ProgramOutcome(CelValue::Map(CelMap::from(map)))
}

fn key(name: &str) -> Key {
    Key::String(Arc::new(name.to_owned()))
}

/// Calls a function of the library with its target and arguments; returns `None` if the target is not a value of the
/// library, or if the library does not have the function.
pub(super) fn call(name: &str, args: &[CelValue]) -> Option<Evaluated> {
    let (target, texts) = args.split_first()?;
    let question = question(target)?;
    let texts: Vec<&str> = texts.iter().map(text).collect::<Option<_>>()?;
    let asked = &question.asked;
    Some(match (name, texts.as_slice()) {
        ("serviceAccount", [namespace, name]) => service_account(question, namespace, name),
        ("path", [path]) => question.next(of_path(asked, path)),
        ("group", [group]) => question.next(match asked {
            Asked::Nothing => Ok(Asked::Group((*group).to_owned())),
            _ => Err(overload()),
        }),
        ("resource", [resource]) => question.next(of_resource(asked, resource)),
        ("subresource", [text]) => question.with(|it| (*text).clone_into(&mut it.subresource)),
        ("namespace", [text]) => question.with(|it| (*text).clone_into(&mut it.namespace)),
        ("name", [text]) => question.with(|it| (*text).clone_into(&mut it.name)),
        // Selectors are ignored, because RBAC is the only authorizer here.
        ("fieldSelector" | "labelSelector", [_]) => question.with(|_| {}),
        ("check", [verb]) => question.next(question.authorizer.answer(asked, verb)),
        ("allowed", []) => answered(asked).map(|it| CelValue::Bool(it.is_allowed)),
        ("reason", []) => answered(asked).map(|it| CelValue::String(Arc::new(it.reason.clone()))),
        // RBAC never fails: it reports invalid bindings in the reason.
        ("errored", []) => answered(asked).map(|_| CelValue::Bool(false)),
        ("error", []) => answered(asked).map(|_| CelValue::String(Arc::default())),
        _ => return None,
    })
}

fn text(value: &CelValue) -> Option<&str> {
    match value {
        CelValue::String(text) => Some(text),
        _ => None,
    }
}

fn fail(error: &str) -> EvalFailure {
    EvalFailure::Error(error.to_owned())
}

fn of_path(asked: &Asked, path: &str) -> Result<Asked, EvalFailure> {
    match asked {
        Asked::Nothing if path.trim().is_empty() => Err(fail("path must not be empty")),
        Asked::Nothing => Ok(Asked::Path(path.to_owned())),
        _ => Err(overload()),
    }
}

fn of_resource(asked: &Asked, resource: &str) -> Result<Asked, EvalFailure> {
    match asked {
        Asked::Group(_) if resource.trim().is_empty() => Err(fail("resource must not be empty")),
        Asked::Group(group) => Ok(Asked::Resource(Resource {
            group: group.clone(),
            resource: resource.to_owned(),
            ..Resource::default()
        })),
        _ => Err(overload()),
    }
}

/// Evaluates `authorizer.serviceAccount(namespace, name)`, which returns an authorizer for this ServiceAccount.
fn service_account(question: &Question, namespace: &str, name: &str) -> Evaluated {
    if question.asked != Asked::Nothing {
        return Err(overload());
    }
    if !names::dns1123_subdomain(name, false).is_empty() {
        return Err(fail("Invalid service account name"));
    }
    if !names::dns1123_label(namespace, false).is_empty() {
        return Err(fail("Invalid service account namespace"));
    }
    // The ServiceAccount did not send the request, so its user is not in the group `system:authenticated`.
    let mut user = UserInfo::service_account(namespace, name);
    user.groups.retain(|group| group != AUTHENTICATED);
    Ok(CelValue::Opaque(Arc::new(Question {
        authorizer: question.authorizer.of(user),
        asked: Asked::Nothing,
    })))
}

/// Returns the `authz` library's value inside a CEL value; `None` if the CEL value has a different type.
fn question(value: &CelValue) -> Option<&Question> {
    let value = match value {
        CelValue::Map(map) => map.map.get(&key(AUTHORIZER))?,
        other => other,
    };
    match value {
        CelValue::Opaque(opaque) => opaque.downcast_ref(),
        _ => None,
    }
}

impl Question {
    /// Returns a value with the same authorizer and the next part of the check.
    fn next(&self, asked: Result<Asked, EvalFailure>) -> Evaluated {
        Ok(CelValue::Opaque(Arc::new(Question {
            authorizer: self.authorizer.clone(),
            asked: asked?,
        })))
    }

    /// Returns the same check with a changed resource.
    fn with(&self, set: impl FnOnce(&mut Resource)) -> Evaluated {
        self.next(match &self.asked {
            Asked::Resource(resource) => {
                let mut resource = resource.clone();
                set(&mut resource);
                Ok(Asked::Resource(resource))
            }
            _ => Err(overload()),
        })
    }
}

fn answered(asked: &Asked) -> Result<&Decision, EvalFailure> {
    match asked {
        Asked::Answered(decision) => Ok(decision),
        Asked::Nothing | Asked::Group(_) | Asked::Resource(_) | Asked::Path(_) => Err(overload()),
    }
}

impl Authorizer {
    fn answer(&self, asked: &Asked, verb: &str) -> Result<Asked, EvalFailure> {
        let request = match asked {
            Asked::Resource(it) => Attributes {
                verb,
                group: &it.group,
                resource: &it.resource,
                subresource: &it.subresource,
                namespace: &it.namespace,
                name: &it.name,
                path: "",
            },
            Asked::Path(path) => Attributes {
                verb,
                path,
                ..Attributes::default()
            },
            Asked::Nothing | Asked::Group(_) | Asked::Answered(_) => return Err(overload()),
        };
        Ok(Asked::Answered(self.decide(&request)))
    }
}
