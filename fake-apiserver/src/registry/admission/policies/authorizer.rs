//! The variable `authorizer` of policies: asks whether the user of a request, or a ServiceAccount, may do something;
//! the functions of Kubernetes' CEL library `authz` (rule P7).

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::{Key, Map as CelMap, Opaque};
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};

use crate::api::admission::AdmissionRequest;
use crate::api::rbac::Attributes;
use crate::api::user::{AUTHENTICATED, UserInfo};
use crate::registry::authorization::Decision;
use crate::registry::authorization::authorizer::Authorizer;
use crate::registry::cel::library;
use crate::registry::cel::program::ProgramOutcome;
use crate::registry::types::names;

thread_local! {
    /// The functions of policies and match conditions, registered once a thread.
    pub(super) static FUNCTIONS: Context<'static> = {
        let mut context = library::functions();
        add_functions(&mut context);
        context
    };
}

/// The key by which a map is an authorizer, as no user writes it.
const AUTHORIZER: &str = "\u{0}authorizer";

/// Parts of a check, as far as they have been given.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    Nothing,
    Group(String),
    Resource(Resource),
    Path(String),
    Answered(Decision),
}

/// A resource that is asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Resource {
    group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

/// A value of the library.
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

/// Returns the variable `authorizer` for the user of a request; `authorizer.requestResource` is the resource of the
/// request.
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
    ProgramOutcome(CelValue::Map(CelMap { map: Arc::new(map) }))
}

fn key(name: &str) -> Key {
    Key::String(Arc::new(name.to_owned()))
}

/// Adds the functions of the library.
pub(super) fn add_functions(context: &mut Context<'_>) {
    context.add_function("path", |This(this): This<CelValue>, path: Arc<String>| {
        next(&this, |asked| match asked {
            Asked::Nothing if path.trim().is_empty() => {
                Err(ExecutionError::function_error("path", "path must not be empty"))
            }
            Asked::Nothing => Ok(Asked::Path(path.to_string())),
            _ => Err(ExecutionError::NoSuchOverload),
        })
    });
    context.add_function("group", |This(this): This<CelValue>, group: Arc<String>| {
        next(&this, |asked| match asked {
            Asked::Nothing => Ok(Asked::Group(group.to_string())),
            _ => Err(ExecutionError::NoSuchOverload),
        })
    });
    context.add_function("resource", |This(this): This<CelValue>, resource: Arc<String>| {
        next(&this, |asked| match asked {
            Asked::Group(_) if resource.trim().is_empty() => {
                Err(ExecutionError::function_error("resource", "resource must not be empty"))
            }
            Asked::Group(group) => Ok(Asked::Resource(Resource {
                group: group.clone(),
                resource: resource.to_string(),
                ..Resource::default()
            })),
            _ => Err(ExecutionError::NoSuchOverload),
        })
    });
    add_part(context, "subresource", |resource, text| resource.subresource = text);
    add_part(context, "namespace", |resource, text| resource.namespace = text);
    add_part(context, "name", |resource, text| resource.name = text);
    // RBAC, the only authorizer there is, looks at no selectors.
    add_part(context, "fieldSelector", |_, _| {});
    add_part(context, "labelSelector", |_, _| {});
    context.add_function("serviceAccount", service_account);
    context.add_function("check", |This(this): This<CelValue>, verb: Arc<String>| {
        let question = question(&this)?;
        next(&this, |asked| question.authorizer.answer(asked, &verb))
    });
    context.add_function("allowed", |This(this): This<CelValue>| {
        answered(&this).map(|it| CelValue::Bool(it.is_allowed))
    });
    context.add_function("reason", |This(this): This<CelValue>| {
        answered(&this).map(|it| CelValue::String(Arc::new(it.reason.clone())))
    });
    // RBAC does not fail: what is wrong with a binding is a reason.
    context.add_function("errored", |This(this): This<CelValue>| {
        answered(&this).map(|_| CelValue::Bool(false))
    });
    context.add_function("error", |This(this): This<CelValue>| {
        answered(&this).map(|_| CelValue::String(Arc::default()))
    });
}

/// A function that says more of a resource.
fn add_part(context: &mut Context<'_>, name: &'static str, set: fn(&mut Resource, String)) {
    context.add_function(name, move |This(this): This<CelValue>, text: Arc<String>| {
        next(&this, |asked| match asked {
            Asked::Resource(resource) => {
                let mut resource = resource.clone();
                set(&mut resource, text.to_string());
                Ok(Asked::Resource(resource))
            }
            _ => Err(ExecutionError::NoSuchOverload),
        })
    });
}

/// `authorizer.serviceAccount(namespace, name)`: the same questions for another user.
fn service_account(
    This(this): This<CelValue>,
    namespace: Arc<String>,
    name: Arc<String>,
) -> Result<CelValue, ExecutionError> {
    let question = question(&this)?;
    if question.asked != Asked::Nothing {
        return Err(ExecutionError::NoSuchOverload);
    }
    let fail = |why| Err(ExecutionError::function_error("serviceAccount", why));
    if !names::dns1123_subdomain(&name, false).is_empty() {
        return fail("Invalid service account name");
    }
    if !names::dns1123_label(&namespace, false).is_empty() {
        return fail("Invalid service account namespace");
    }
    // Nobody has shown credentials.
    let mut user = UserInfo::service_account(&namespace, &name);
    user.groups.retain(|group| group != AUTHENTICATED);
    Ok(CelValue::Opaque(Arc::new(Question {
        authorizer: question.authorizer.of(user),
        asked: Asked::Nothing,
    })))
}

/// The value as one of the library; nothing else has these functions.
fn question(value: &CelValue) -> Result<&Question, ExecutionError> {
    let value = match value {
        CelValue::Map(map) => map.map.get(&key(AUTHORIZER)),
        other => Some(other),
    };
    match value {
        Some(CelValue::Opaque(opaque)) => opaque.downcast_ref().ok_or(ExecutionError::NoSuchOverload),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

/// The same authorizer with more said.
fn next(
    value: &CelValue,
    say: impl FnOnce(&Asked) -> Result<Asked, ExecutionError>,
) -> Result<CelValue, ExecutionError> {
    let question = question(value)?;
    Ok(CelValue::Opaque(Arc::new(Question {
        authorizer: question.authorizer.clone(),
        asked: say(&question.asked)?,
    })))
}

fn answered(value: &CelValue) -> Result<&Decision, ExecutionError> {
    match &question(value)?.asked {
        Asked::Answered(decision) => Ok(decision),
        Asked::Nothing | Asked::Group(_) | Asked::Resource(_) | Asked::Path(_) => Err(ExecutionError::NoSuchOverload),
    }
}

impl Authorizer {
    fn answer(&self, asked: &Asked, verb: &str) -> Result<Asked, ExecutionError> {
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
            Asked::Nothing | Asked::Group(_) | Asked::Answered(_) => return Err(ExecutionError::NoSuchOverload),
        };
        Ok(Asked::Answered(self.decide(&request)))
    }
}
