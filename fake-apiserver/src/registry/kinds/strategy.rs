//! `Strategy`: the rules of a kind for create, update and delete, in addition to the rules of every object.

use std::sync::Arc;

use super::facts::Facts;
use crate::api::field::FieldErrors;
use crate::api::json::SmolStr;
use crate::api::object::Object;
use crate::api::resource::Text;
use crate::api::status::Status;
use crate::api::user::UserInfo;
use crate::entropy::Entropy;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::hidden::Hidden;
use crate::registry::types::plugins::PluginSet;

/// Context of a write, for the methods of [`Strategy`].
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    /// The clock and the random number generator.
    pub(crate) entropy: &'a Entropy,
    /// Returns the stored objects of a built-in resource, given its group and name, in key order. Used for rules that
    /// depend on other objects: for example, cluster IPs must be unique.
    pub(crate) stored: &'a dyn Fn(&str, &str) -> Vec<Arc<Object>>,
    /// The subresource of the request; empty for the resource itself.
    pub(crate) subresource: &'a str,
    /// User of the request; `None` for writes by the server itself.
    pub(crate) user: Option<&'a UserInfo>,
    /// Set for a dry run.
    pub(crate) dry_run: bool,
    /// Facts about the body that the decoded object does not contain.
    pub(crate) hidden: &'a Hidden,
    /// The enabled admission plugins.
    pub(crate) plugins: PluginSet,
}

/// The behaviour that differs between kinds. The default methods are suitable for most kinds. Objects are already
/// decoded: kind and apiVersion are set, unknown fields are removed, and types are correct.
///
/// The order on create is: `default`, `convert` to the stored version, `allocate`, `prepare_for_create`, the metadata
/// checks of the kind, `validate_create`, the rules of every object; on update: `default`, `convert`, `allocate`,
/// `prepare_for_update`, the metadata rules, `validate_update`. The methods for allocation, preparation, validation and
/// warnings only receive objects in the stored version.
pub(crate) trait Strategy: Sync + Send {
    /// Returns the static properties of the kind.
    fn facts(&self) -> &Facts {
        &Facts::DEFAULT
    }

    /// Fills in the defaults, as the server does whenever it decodes an object of this kind (rule T6). Idempotent.
    fn default(&self, _object: &mut Object) {}

    /// Returns `true` if `default` copies the labels of the template to the object. In Go, both labels are then the
    /// same map.
    fn shares_labels(&self, _object: &Object) -> bool {
        false
    }

    /// Converts an object from any served version to `api_version`. The default only changes `apiVersion`, because the
    /// versions of most kinds have the same fields.
    fn convert(&self, object: &mut Object, api_version: &str) {
        if object.api_version() != api_version {
            object.insert("apiVersion".into(), api_version.into());
        }
    }

    /// Returns the error of Go's conversion to the internal type, which can fail although all fields have the right
    /// types.
    fn conversion_error(&self, _object: &Object) -> Option<String> {
        None
    }

    /// Allocates values that must be unique across objects, such as a Service's cluster IP. If it adds errors about
    /// fields, or fails with a `Status` for any other error, no further errors are reported.
    fn allocate(
        &self,
        _object: &mut Object,
        _old: Option<&Object>,
        _errors: &mut FieldErrors,
        _context: &Context<'_>,
    ) -> Result<(), Status> {
        Ok(())
    }

    /// Completes a new object after validation, when it already has its name (Go's `Canonicalize`).
    fn canonicalize(&self, _object: &mut Object) {}

    /// Clears fields that a client may not set, and sets fields that the server controls, such as `status.phase`. For
    /// kinds with a status subresource, `status` has already been reset, unless `Facts::keeps_status_on_create` is set.
    fn prepare_for_create(&self, _object: &mut Object, _context: &Context<'_>) {}

    /// Checks the kind's rules for a single object. Its metadata has already been checked.
    fn validate(&self, _object: &Object, _errors: &mut FieldErrors) {}

    /// Checks a new object, including permissions that depend on its fields.
    fn validate_create(&self, object: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
    }

    /// Restores the fields that this kind of write may not change. In writes of the resource itself, `status` already
    /// has its old value if the kind has the subresource. In writes of `/status` of built-in kinds, all fields except
    /// `status` and metadata already have their old values.
    fn prepare_for_update(&self, _object: &mut Object, _old: &Object, _context: &Context<'_>) {}

    /// Checks an update, including immutable fields.
    fn validate_update(&self, object: &Object, _old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
    }

    /// Returns the warnings about errors that an update may keep. They are sent whether the update succeeds or fails;
    /// `errors` are the errors of the update.
    fn tolerated(&self, _object: &Object, _old: &Object, _errors: &FieldErrors) -> Vec<String> {
        Vec::new()
    }

    /// Applies the admission plugins for this kind to a write of the resource itself, before webhooks are called. Fails
    /// with the part of the message after `<resource> "<name>" is forbidden: `.
    fn admit(&self, _object: &mut Object, _old: Option<&Object>, _context: &Context<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Returns the warnings about a new object, before it is prepared.
    fn warnings_before(&self, _object: &Object) -> Vec<String> {
        Vec::new()
    }

    /// Returns the warnings about a written object. Each becomes a `Warning: 299` header.
    fn warnings(&self, _object: &Object, _old: Option<&Object>) -> Vec<String> {
        Vec::new()
    }

    /// Returns the warnings about a write of the status; empty by default.
    fn status_warnings(&self, _object: &Object) -> Vec<String> {
        Vec::new()
    }

    /// Returns `true` if an update increments the generation: by default, if fields other than metadata and status
    /// changed.
    fn raises_generation(&self, object: &Object, old: &Object) -> bool {
        let outside = |it: &&SmolStr| !matches!(it.as_str(), "metadata" | "status" | "kind" | "apiVersion");
        let fields = |it: &Object| it.keys().filter(outside).count();
        fields(object) != fields(old)
            || object
                .iter()
                .any(|(key, value)| outside(&key) && old.get(key) != Some(value))
    }

    /// Returns the grace period of a delete in seconds, for kinds with graceful deletion, and `None` for other kinds.
    /// `asked` is the client's option (rule B17).
    fn grace_period(&self, _object: &Object, _asked: Option<i64>) -> Option<i64> {
        None
    }

    /// Changes an object that is marked for deletion because finalizers or a grace period keep it; for example, sets
    /// the phase of a Namespace.
    fn prepare_for_deletion(&self, _object: &mut Object) {}

    /// Returns `true` if a terminating object must be kept for a reason that is specific to the kind, such as
    /// `spec.finalizers` of a Namespace (rule R4).
    fn holds_terminating(&self, _object: &Object) -> bool {
        false
    }

    /// Returns the reason why this object may not be deleted: the part of the message after `<resource> "<name>" is
    /// forbidden: `.
    fn forbids_deletion(&self, _object: &Object, _plugins: PluginSet) -> Option<String> {
        None
    }

    /// Returns the value of a supported field label; by default the string at the path with the label's name.
    fn field_value(&self, object: &Object, label: &str) -> String {
        Cursor::root(object).text(label).to_owned()
    }

    /// Returns the field labels of an object with their values, for the selectors of lists and watches.
    fn selectable_fields(&self, object: &Object) -> Vec<(Text, String)> {
        let labels = self.facts().fields.own().iter();
        labels
            .map(|label| (Text::from(*label), self.field_value(object, label)))
            .collect()
    }
}

/// Returns a static reference to a strategy for this version of Kubernetes. `KubernetesVersion` must be in scope.
macro_rules! in_version {
    ($strategy:ident, $version:expr) => {
        in_version!($strategy, $version, V1_33 V1_34 V1_35 V1_36 V1_37)
    };
    ($strategy:ident { $($field:ident: $value:expr),+ }, $version:expr) => {
        match $version {
            KubernetesVersion::V1_33 => &$strategy { $($field: $value,)+ version: KubernetesVersion::V1_33 },
            KubernetesVersion::V1_34 => &$strategy { $($field: $value,)+ version: KubernetesVersion::V1_34 },
            KubernetesVersion::V1_35 => &$strategy { $($field: $value,)+ version: KubernetesVersion::V1_35 },
            KubernetesVersion::V1_36 => &$strategy { $($field: $value,)+ version: KubernetesVersion::V1_36 },
            KubernetesVersion::V1_37 => &$strategy { $($field: $value,)+ version: KubernetesVersion::V1_37 },
        }
    };
    ($strategy:ident, $version:expr, $($known:ident)+) => {
        match $version {
            $(KubernetesVersion::$known => &$strategy { version: KubernetesVersion::$known },)+
        }
    };
}
pub(crate) use in_version;
