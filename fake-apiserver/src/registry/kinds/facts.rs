//! `Facts`: the static properties of a kind.

use crate::api::field::quote;
use crate::registry::types::names;

/// Default propagation of a deletion (rule B19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// The object is deleted immediately, its dependents later.
    Background,
    /// The dependents are not deleted.
    Orphan,
    /// Objects of this kind cannot have dependents, so the option is ignored.
    Unsupported,
}

/// Rule for maintaining `metadata.generation` (rule B8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// Objects of the kind do not have a generation.
    Absent,
    /// Creating an object sets its generation to 1.
    FromCreate,
    /// The first change of an object sets the generation; creation does not.
    FromFirstChange,
}

/// Effect of the first delete on an object without finalizers and grace period (rule R4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstDelete {
    /// The first delete removes the object.
    Removes,
    /// Sets the deletionTimestamp; the next delete removes the object.
    Marks,
    /// Sets the deletionTimestamp and the finalizers of the propagation policy.
    MarksAndPropagates,
}

/// The static properties of a kind. A kind only overrides the properties in which it differs from [`Facts::DEFAULT`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// The `apiVersion` in which objects are stored, for kinds served in several versions by default; `None` for other
    /// kinds.
    pub(crate) stored_api_version: Option<&'static str>,
    /// Group and resource under which the objects are stored, if two resources share their storage, as for Events.
    pub(crate) stored_as: Option<(&'static str, &'static str)>,
    /// Checks `metadata.name`, or the prefix of a generated name if the flag is set; returns the error messages (rule
    /// B26).
    pub(crate) name: fn(&str, bool) -> Vec<String>,
    /// The warning in each response to a request for a deprecated kind (rule U5).
    pub(crate) deprecation: Option<&'static str>,
    /// Set if new objects are stored without some defaults, which reads add, such as the phase of a status that was
    /// cleared on create. The first update then creates a new resourceVersion even if it does not change anything.
    pub(crate) is_completed_on_read: bool,
    /// Set if PUT without a resourceVersion overwrites the object (rule C1).
    pub(crate) allows_unconditional_update: bool,
    /// Set if PUT creates a missing object (rule C3).
    pub(crate) allows_create_on_update: bool,
    /// Rule for maintaining `metadata.generation` (rule B8).
    pub(crate) generation: Generation,
    /// Set if fields of disabled features are compared for the generation before they are dropped.
    pub(crate) compares_dropped_fields: bool,
    /// Set if the status in a create request is not removed although the kind has the subresource, because new objects
    /// keep it or the strategy reads it.
    pub(crate) keeps_status_on_create: bool,
    /// Set if a delete that removes the object returns the object rather than a Status (rule B16).
    pub(crate) returns_deleted_object: bool,
    /// Propagation policy if neither the client nor a finalizer sets one (rule B19).
    pub(crate) default_propagation: Propagation,
    /// Effect of the first delete (rule R4).
    pub(crate) first_delete: FirstDelete,
    /// Supported field labels other than `metadata.name` and `metadata.namespace`.
    pub(crate) fields: FieldLabels,
    /// Fields that Go compares with `reflect.DeepEqual`, for which an empty list differs from an absent one.
    pub(crate) exact: &'static [&'static str],
}

impl Facts {
    /// The properties of most kinds.
    pub(crate) const DEFAULT: Self = Self {
        stored_api_version: None,
        stored_as: None,
        name: names::dns1123_subdomain,
        deprecation: None,
        is_completed_on_read: false,
        allows_unconditional_update: true,
        allows_create_on_update: false,
        generation: Generation::Absent,
        compares_dropped_fields: false,
        keeps_status_on_create: false,
        returns_deleted_object: false,
        default_propagation: Propagation::Background,
        first_delete: FirstDelete::Removes,
        fields: FieldLabels::Default,
        exact: &[],
    };
}

/// The field labels that a kind accepts, and its error for other labels (rules F4 to F9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldLabels {
    /// Only `metadata.name` and `metadata.namespace`. Other labels are refused with `"x" is not a known field selector:
    /// only "metadata.name", "metadata.namespace"`.
    Default,
    /// The listed labels, their aliases, `metadata.name`, and `metadata.namespace` if `namespace` is set. Other labels
    /// are refused with the message `refusal`.
    These {
        /// The supported labels other than `metadata.name` and `metadata.namespace`.
        labels: &'static [&'static str],
        /// Set if `metadata.namespace` is accepted.
        namespace: bool,
        /// Labels that are rewritten to another label, such as `spec.host` to `spec.nodeName`.
        aliases: &'static [(&'static str, &'static str)],
        /// The error message for unsupported labels; `{}` is replaced with the label.
        refusal: &'static str,
    },
}

impl FieldLabels {
    /// Accepts these labels and `metadata.name`, and `metadata.namespace` if `namespace` is set. Other labels are
    /// refused with the message that most kinds use.
    pub(crate) const fn of(labels: &'static [&'static str], namespace: bool) -> Self {
        Self::These {
            labels,
            namespace,
            aliases: &[],
            refusal: "field label not supported: {}",
        }
    }

    /// Returns the supported field labels other than `metadata.name` and `metadata.namespace`.
    pub(crate) fn own(&self) -> &'static [&'static str] {
        match self {
            Self::Default => &[],
            Self::These { labels, .. } => labels,
        }
    }

    /// Resolves a label of a field selector, replacing aliases. Fails with an error message if the kind does not
    /// support the label.
    pub(crate) fn resolve(&self, label: String) -> Result<String, String> {
        match self {
            Self::Default => match label.as_str() {
                "metadata.name" | "metadata.namespace" => Ok(label),
                _ => Err(format!(
                    "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                    quote(&label)
                )),
            },
            Self::These {
                labels,
                namespace,
                aliases,
                refusal,
            } => {
                if let Some((_, to)) = aliases.iter().find(|(from, _)| *from == label) {
                    return Ok((*to).to_owned());
                }
                let is_known = match label.as_str() {
                    "metadata.name" => true,
                    "metadata.namespace" => *namespace,
                    own => labels.contains(&own),
                };
                if is_known {
                    Ok(label)
                } else {
                    Err(refusal.replacen("{}", &label, 1))
                }
            }
        }
    }
}
