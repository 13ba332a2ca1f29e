//! `Names`: the variables available to expressions about a request or a device, with the types that kube-apiserver
//! declares for admission (`k8s.io/apiserver/pkg/admission/plugin/cel`) and for devices
//! (`k8s.io/dynamic-resource-allocation/cel`).

use std::collections::BTreeMap;

use super::check::{Environment, StructType, Type, check};
use super::eval::{no_more_functions, plan_of};
use super::parse::{parse_source_of, show_errors};
use crate::api::kubernetes_version::KubernetesVersion;

/// Variables with their types.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    environment: Environment,
    /// The fields of `variables`, if this variable is declared.
    variables: Option<BTreeMap<String, Type>>,
}

impl Names {
    /// Returns the variables of expressions about a request.
    pub(crate) fn of_requests(version: KubernetesVersion, has_params: bool) -> Self {
        let mut environment = Environment::new(version);
        environment.declare("object", Type::Dyn);
        environment.declare("oldObject", Type::Dyn);
        environment.declare("request", request());
        environment.declare("namespaceObject", namespace());
        environment.declare("authorizer", Type::opaque("kubernetes.authorization.Authorizer"));
        let resource = Type::opaque("kubernetes.authorization.ResourceCheck");
        environment.declare("authorizer.requestResource", resource);
        if has_params {
            environment.declare("params", Type::Dyn);
        }
        Self {
            environment,
            variables: None,
        }
    }

    /// Returns the variables for the type check of a stored policy. `object` is the type of the objects, and `params`
    /// the type of the parameters, if the policy has any.
    pub(crate) fn of_types(version: KubernetesVersion, object: &Type, params: Option<Type>) -> Self {
        let mut names = Self::of_requests(version, false);
        names.environment = names.environment.of_stored();
        // Go only declares this name for evaluations.
        names.environment.remove("authorizer.requestResource");
        names.environment.declare("object", object.clone());
        names.environment.declare("oldObject", object.clone());
        if let Some(params) = params {
            names.environment.declare("params", params);
        }
        names.add_variables();
        names
    }

    /// Returns the variables of selectors for devices.
    pub(crate) fn of_devices(version: KubernetesVersion) -> Self {
        let mut environment = Environment::new(version);
        environment.is_of_devices = true;
        let by_domain = |kind| Type::map(Type::String, Type::map(Type::String, kind));
        let named = |(name, kind): (&str, Type)| (name.to_owned(), kind);
        let fields = [
            ("driver", Type::String),
            ("attributes", by_domain(Type::Any)),
            ("capacity", by_domain(Type::opaque("kubernetes.Quantity"))),
        ];
        let mut fields: BTreeMap<String, Type> = fields.into_iter().map(named).collect();
        if version.has_consumable_capacity() {
            fields.extend([named(("allowMultipleAllocations", Type::Bool))]);
        }
        let device = StructType::table("kubernetes.DRADevice", fields);
        environment.declare("device", Type::Struct(device));
        Self {
            environment,
            variables: None,
        }
    }

    /// Returns the variables of rules about objects of any kind, without a request. `true` marks a name as a list of
    /// objects.
    pub(crate) fn of_objects<'a>(names: impl Iterator<Item = (&'a str, bool)>) -> Self {
        let mut environment = Environment::new(KubernetesVersion::default());
        for (name, is_list) in names {
            let kind = if is_list { Type::list(Type::Dyn) } else { Type::Dyn };
            environment.declare(name, kind);
        }
        Self {
            environment,
            variables: None,
        }
    }

    /// Declares the variable `variables`, initially without fields.
    pub(crate) fn add_variables(&mut self) {
        self.variables.get_or_insert_default();
        self.declare_variables();
    }

    /// Declares a field of `variables` with its expression, which can read previously declared fields.
    pub(crate) fn declare(&mut self, name: &str, expression: &str) {
        let kind = match self.output(expression) {
            Ok(kind) => kept(&kind),
            Err(_) => Type::Dyn,
        };
        self.variables.get_or_insert_default().insert(name.to_owned(), kind);
        self.declare_variables();
    }

    fn declare_variables(&mut self) {
        let fields = self.variables.clone().unwrap_or_default();
        let kind = Type::Struct(StructType::table("kubernetes.variables", fields));
        self.environment.declare("variables", kind);
    }

    /// Removes the variable `authorizer`.
    #[must_use]
    pub(crate) fn without_authorizer(mut self) -> Self {
        self.environment.remove("authorizer");
        self.environment.remove("authorizer.requestResource");
        self
    }

    /// Permits the structs that a mutation can create.
    #[must_use]
    pub(crate) fn of_mutations(mut self) -> Self {
        self.environment.mutates = true;
        self
    }

    /// Returns the type of an expression, or its errors in cel-go's format.
    pub(crate) fn output(&self, expression: &str) -> Result<Type, String> {
        let parsed = parse_source_of(expression, self.environment.dialect())?;
        match check(&parsed, &self.environment) {
            Ok(checked) => Ok(checked.output),
            Err(errors) => Err(show_errors(expression, errors).unwrap_or_default()),
        }
    }
}

/// Returns the error in an expression. The type of its result must be one of `wanted`; an empty list permits all types.
/// For selectors of devices, the type may also be unknown.
pub(crate) fn problem(expression: &str, wanted: &[&str], names: &Names) -> Option<String> {
    let output = match names.output(expression) {
        Ok(output) => output.runtime_name(),
        Err(errors) => return Some(format!("compilation failed: {errors}")),
    };
    let is_wanted = wanted.is_empty() || wanted.contains(&output.as_str());
    let is_unknown = names.environment.is_of_devices && matches!(output.as_str(), "google.protobuf.Any" | "dyn");
    if is_wanted || is_unknown {
        let parsed = parse_source_of(expression, names.environment.dialect()).ok()?;
        return plan_of(parsed.expression, no_more_functions)
            .err()
            .map(|error| format!("program instantiation failed: {error}"));
    }
    match wanted {
        [wanted] if names.environment.is_of_devices => {
            Some(format!("must evaluate to {wanted} or the unknown type, not {output}"))
        }
        [wanted] => Some(format!("must evaluate to {wanted} but got {output}")),
        several => {
            let several = several.join(" ");
            Some(format!("must evaluate to one of [{several}] but got {output}"))
        }
    }
}

/// Returns the declared type of a variable: scalars keep their type, also as the content of lists and maps; other types
/// become `dyn`.
fn kept(kind: &Type) -> Type {
    match kind {
        Type::List(items) => Type::list(kept(items)),
        Type::Map(keys, values) => Type::map(kept(keys), kept(values)),
        Type::Struct(_) | Type::Opaque(..) | Type::Type(_) | Type::Param(_) | Type::Error => Type::Dyn,
        scalar => scalar.clone(),
    }
}

fn made<const N: usize>(name: &str, fields: [(&str, Type); N]) -> Type {
    let fields = fields.map(|(name, kind)| (name.to_owned(), kind));
    Type::Struct(StructType::table(name, fields.into()))
}

fn request() -> Type {
    let text = || Type::String;
    let kind = || {
        let fields = [("group", text()), ("version", text()), ("kind", text())];
        made("kubernetes.GroupVersionKind", fields)
    };
    let resource = || {
        let fields = [("group", text()), ("version", text()), ("resource", text())];
        made("kubernetes.GroupVersionResource", fields)
    };
    let user = [
        ("username", text()),
        ("uid", text()),
        ("groups", Type::list(text())),
        ("extra", Type::map(text(), Type::list(text()))),
    ];
    let fields = [
        ("kind", kind()),
        ("resource", resource()),
        ("subResource", text()),
        ("requestKind", kind()),
        ("requestResource", resource()),
        ("requestSubResource", text()),
        ("name", text()),
        ("namespace", text()),
        ("operation", text()),
        ("userInfo", made("kubernetes.UserInfo", user)),
        ("dryRun", Type::Bool),
        ("options", Type::Dyn),
    ];
    made("kubernetes.AdmissionRequest", fields)
}

fn namespace() -> Type {
    let text = || Type::String;
    let labels = || Type::map(text(), text());
    let condition = [
        ("status", text()),
        ("type", text()),
        ("lastTransitionTime", Type::Timestamp),
        ("message", text()),
        ("reason", text()),
    ];
    let conditions = Type::list(made("kubernetes.NamespaceCondition", condition));
    let metadata = [
        ("name", text()),
        ("generateName", text()),
        ("namespace", text()),
        ("labels", labels()),
        ("annotations", labels()),
        ("UID", text()),
        ("creationTimestamp", Type::Timestamp),
        ("deletionGracePeriodSeconds", Type::Int),
        ("deletionTimestamp", Type::Timestamp),
        ("generation", Type::Int),
        ("resourceVersion", text()),
        ("finalizers", Type::list(text())),
    ];
    let status = [("conditions", conditions), ("phase", text())];
    let spec = [("finalizers", Type::list(text()))];
    let fields = [
        ("metadata", made("kubernetes.NamespaceMetadata", metadata)),
        ("spec", made("kubernetes.NamespaceSpec", spec)),
        ("status", made("kubernetes.NamespaceStatus", status)),
    ];
    made("kubernetes.Namespace", fields)
}
