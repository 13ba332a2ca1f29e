//! `Facts`: the constants of a kind, which hold for all its objects.

use crate::api::field::quote;
use crate::registry::types::names;

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

/// The way `metadata.generation` is kept (rule B8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// The kind has none.
    Absent,
    /// A new object has 1.
    FromCreate,
    /// A new object has none; the first change sets it.
    FromFirstChange,
}

/// Effect of the first delete on an object that neither a finalizer nor a grace period keeps (rule R4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstDelete {
    /// Removes the object.
    Removes,
    /// Sets the deletionTimestamp; the next delete removes the object.
    Marks,
    /// Sets the deletionTimestamp and the finalizers of the propagation policy.
    MarksAndPropagates,
}

/// The constants of a kind. A kind names those that differ from [`Facts::DEFAULT`], as the strategies of Go do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// The `apiVersion` objects are stored in, for kinds that are served in several; `None`: the one they are served
    /// in.
    pub(crate) stored_api_version: Option<&'static str>,
    /// The group and resource that this one shares its storage with, as Events of both groups do.
    pub(crate) stored_as: Option<(&'static str, &'static str)>,
    /// Checks `metadata.name`, or a prefix of one; returns the texts of what is wrong with it (rule B26).
    pub(crate) name: fn(&str, bool) -> Vec<String>,
    /// The warning for every request of a deprecated kind (rule U5).
    pub(crate) deprecation: Option<&'static str>,
    /// Set if PUT without a resourceVersion overwrites (rule C1).
    pub(crate) allows_unconditional_update: bool,
    /// Set if PUT creates a missing object (rule C3).
    pub(crate) allows_create_on_update: bool,
    /// The way `metadata.generation` is kept (rule B8).
    pub(crate) generation: Generation,
    /// Set if a new object keeps the status of its body, although the kind has the subresource.
    pub(crate) keeps_status_on_create: bool,
    /// Set if a delete that removed the object answers with it rather than with a Status (rule B16).
    pub(crate) returns_deleted_object: bool,
    /// Propagation where neither the client nor a finalizer says (rule B19).
    pub(crate) default_propagation: Propagation,
    /// Effect of the first delete (rule R4).
    pub(crate) first_delete: FirstDelete,
    /// Field selectors beside those of metadata.
    pub(crate) fields: FieldLabels,
    /// Fields that Go compares by `reflect.DeepEqual`, to which an empty list is a change where storage has none.
    pub(crate) exact: &'static [&'static str],
}

impl Facts {
    /// The constants of most kinds.
    pub(crate) const DEFAULT: Self = Self {
        stored_api_version: None,
        stored_as: None,
        name: names::dns1123_subdomain,
        deprecation: None,
        allows_unconditional_update: true,
        allows_create_on_update: false,
        generation: Generation::Absent,
        keeps_status_on_create: false,
        returns_deleted_object: false,
        default_propagation: Propagation::Background,
        first_delete: FirstDelete::Removes,
        fields: FieldLabels::Default,
        exact: &[],
    };
}

/// The field labels a kind accepts, and how it refuses the others (rules F4 to F9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldLabels {
    /// None but the two of metadata; others are `"x" is not a known field selector: only "metadata.name",
    /// "metadata.namespace"`.
    Default,
    /// These too; others are refused in the kind's own words.
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
}

impl FieldLabels {
    /// Labels beside those of metadata, refused in the usual words.
    pub(crate) const fn of(labels: &'static [&'static str], namespace: bool) -> Self {
        Self::These {
            labels,
            namespace,
            aliases: &[],
            refusal: "field label not supported: {}",
        }
    }

    /// Returns the labels beside those of metadata.
    pub(crate) fn own(&self) -> &'static [&'static str] {
        match self {
            Self::Default => &[],
            Self::These { labels, .. } => labels,
        }
    }

    /// Returns the label that a selector's label stands for.
    ///
    /// # Errors
    /// The text of the refusal, if the kind does not know it.
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
