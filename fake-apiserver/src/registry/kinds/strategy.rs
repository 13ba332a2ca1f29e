//! `Strategy`: what a kind says about create, update and delete, beyond what every object obeys.

use crate::api::field::FieldErrors;
use crate::api::object::Object;
use crate::api::resource::Text;
use crate::api::status::Status;
use crate::api::user::UserInfo;
use crate::entropy::Entropy;

/// Propagation of a deletion for which the client names none (rule B19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// The object goes at once, dependents later.
    Background,
    /// Dependents stay.
    Orphan,
    /// Nothing depends on objects of this kind, whatever the client says.
    Unsupported,
}

/// Context available while an object is prepared.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    /// The clock and the random numbers.
    pub(crate) entropy: &'a Entropy,
    /// Reads the stored objects of a built-in resource, in key order; for what must be unique across objects, such as
    /// a Service's cluster IP.
    pub(crate) stored: &'a dyn Fn(&str, &str) -> Vec<Object>,
    /// The subresource written through; empty for the resource itself.
    pub(crate) subresource: &'a str,
    /// User of the write; `None` for the server's own.
    pub(crate) user: Option<&'a UserInfo>,
    /// Set if nothing is to be stored.
    pub(crate) dry_run: bool,
}

/// The part of an object's life that differs from kind to kind. Each method has the answer of most kinds; a kind that
/// differs overrides it. Objects arrive decoded: kind and apiVersion set, unknown fields gone, types right.
///
/// The order on create is: `default`, `convert` to the stored version, `allocate`, `prepare_for_create`, the rules of
/// every object, `validate`; on update: `default`, `convert`, `allocate`, `prepare_for_update`, the rules of every
/// object, `validate_update`. All but `default` and `convert` see objects in the stored version only.
pub(crate) trait Strategy: Sync + Send {
    /// Fills the defaults in, as the server does whenever it decodes an object of this kind (rule T6). Idempotent.
    fn default(&self, _object: &mut Object) {}

    /// The `apiVersion` objects are stored in, for kinds that are served in several; `None`: the one they are served
    /// in.
    fn stored_api_version(&self) -> Option<&'static str> {
        None
    }

    /// The group and resource that this one shares its storage with, as Events of both groups do.
    fn stored_as(&self) -> Option<(&'static str, &'static str)> {
        None
    }

    /// Rewrites an object of any served version as `api_version`. The versions of most kinds differ in name only.
    fn convert(&self, object: &mut Object, api_version: &str) {
        if object.api_version() != api_version {
            object.insert("apiVersion".into(), api_version.into());
        }
    }

    /// Allocates what must be unique across objects, such as a Service's cluster IP. Its errors are answered alone; a
    /// `Status` is an error that is no field's.
    fn allocate(
        &self,
        _object: &mut Object,
        _old: Option<&Object>,
        _errors: &mut FieldErrors,
        _context: &Context<'_>,
    ) -> Result<(), Status> {
        Ok(())
    }

    /// Completes a new object that has been checked and has its name, as `Canonicalize` does.
    fn canonicalize(&self, _object: &mut Object) {}

    /// Clears what a client may not set and sets what the server does, such as `status.phase`.
    /// `status` of kinds that have the subresource is already gone.
    fn prepare_for_create(&self, _object: &mut Object, _context: &Context<'_>) {}

    /// Checks a new object's own rules; metadata has been checked.
    fn validate(&self, _object: &Object, _errors: &mut FieldErrors) {}

    /// Restores what this kind of write may not change. For the resource itself `status` is already the old one where
    /// the kind has the subresource; for `/status` everything but `status` and the changeable metadata is the old one.
    fn prepare_for_update(&self, _object: &mut Object, _old: &Object, _context: &Context<'_>) {}

    /// Checks an update, immutable fields included.
    fn validate_update(&self, object: &Object, _old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
    }

    /// Applies the admission plugins that are on by default to a write of the resource itself, before webhooks see it.
    /// The error is the rest of `<resource> "<name>" is forbidden: …`.
    fn admit(&self, _object: &mut Object, _old: Option<&Object>, _context: &Context<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Warnings about a written object, each a `Warning: 299` header.
    fn warnings(&self, _object: &Object, _old: Option<&Object>) -> Vec<String> {
        Vec::new()
    }

    /// Warnings about an object whose status was written; most kinds have none.
    fn status_warnings(&self, _object: &Object) -> Vec<String> {
        Vec::new()
    }

    /// Checks `metadata.name`; the text of what is wrong with it (rule B26).
    fn validate_name(&self, name: &str, is_prefix: bool) -> Vec<String> {
        crate::registry::types::names::dns1123_subdomain(name, is_prefix)
    }

    /// Returns `true` if a new object keeps the status of its body, although the kind has the subresource; Nodes do.
    fn keeps_status_on_create(&self) -> bool {
        false
    }

    /// Returns the warning for every request of a deprecated kind (rule U5).
    fn deprecation(&self) -> Option<&'static str> {
        None
    }

    /// Returns `true` if PUT without a resourceVersion overwrites (rule C1).
    fn allows_unconditional_update(&self) -> bool {
        true
    }

    /// Returns `true` if PUT creates a missing object (rule C3).
    fn allows_create_on_update(&self) -> bool {
        false
    }

    /// Returns `true` if a delete that removed the object answers with it rather than with a Status (rule B16).
    fn returns_deleted_object(&self) -> bool {
        false
    }

    /// Returns `true` if `metadata.generation` is kept for this kind (rule B8).
    fn has_generation(&self) -> bool {
        false
    }

    /// The generation of a new object.
    fn first_generation(&self) -> Option<i64> {
        self.has_generation().then_some(1)
    }

    /// Returns `true` if an update raises the generation: by default, when anything but metadata and status changed.
    fn raises_generation(&self, object: &Object, old: &Object) -> bool {
        let outside = |it: &&String| !matches!(it.as_str(), "metadata" | "status" | "kind" | "apiVersion");
        let fields = |it: &Object| it.keys().filter(outside).count();
        fields(object) != fields(old)
            || object
                .iter()
                .any(|(key, value)| outside(&key) && old.get(key) != Some(value))
    }

    /// Propagation where neither the client nor a finalizer says (rule B19).
    fn default_propagation(&self) -> Propagation {
        Propagation::Background
    }

    /// Seconds a delete leaves the object alive, for kinds deleted gracefully; `asked` is the client's wish (rule B17).
    /// `None`: this kind knows no grace period.
    fn grace_period(&self, _object: &Object, _asked: Option<i64>) -> Option<i64> {
        None
    }

    /// Changes the object when its deletion begins but finalizers or grace keep it, such as a Namespace's phase.
    fn prepare_for_deletion(&self, _object: &mut Object) {}

    /// Returns `true` if the first delete only marks the object, with a deletionTimestamp and no grace period, even
    /// where no finalizer keeps it; the next one deletes. So a Namespace goes (rule R4).
    fn is_marked_before_deleted(&self) -> bool {
        false
    }

    /// Returns `true` if that first delete heeds the propagation policy, too. A Namespace's does, a CRD's does not.
    fn heeds_propagation_when_marked(&self) -> bool {
        false
    }

    /// Returns `true` if the kind itself still holds a terminating object, as `spec.finalizers` of a Namespace do (rule
    /// R4).
    fn holds_terminating(&self, _object: &Object) -> bool {
        false
    }

    /// Returns the reason for which this object may not be deleted: the rest of `<resource> "<name>" is forbidden: …`.
    fn forbids_deletion(&self, _object: &Object) -> Option<String> {
        None
    }

    /// Field selectors this kind knows beside `metadata.name` and `metadata.namespace`.
    fn field_labels(&self) -> FieldLabels {
        FieldLabels::Default
    }

    /// The values of the field labels for one object, in the order of [`FieldLabels`].
    fn field_values(&self, _object: &Object) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The same, with labels that may come from a CRD; what callers ask.
    fn selectable_fields(&self, object: &Object) -> Vec<(Text, String)> {
        let values = self.field_values(object).into_iter();
        values.map(|(label, value)| (Text::from(label), value)).collect()
    }
}

/// The field labels a kind accepts, and how it refuses the others (rules F4 to F9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FieldLabels {
    /// None but the two of metadata; others are `"x" is not a known field selector: only "metadata.name",
    /// "metadata.namespace"`.
    Default,
    /// These too; others are `field label not supported: x`.
    These {
        /// The labels beside `metadata.name`.
        labels: &'static [&'static str],
        /// Set if `metadata.namespace` is accepted.
        namespace: bool,
        /// Spellings rewritten to another label, such as `spec.host` to `spec.nodeName`.
        aliases: &'static [(&'static str, &'static str)],
        /// The text of a refusal, with `{}` for the label.
        refusal: &'static str,
    },
    /// These of a CRD's `selectableFields` too; others are `field label not supported: x`.
    Custom {
        /// The labels beside `metadata.name`.
        labels: Vec<String>,
        /// Set if `metadata.namespace` is accepted.
        namespace: bool,
    },
}
