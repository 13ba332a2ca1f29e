//! The strategy of Namespaces (rules R3 to R5).

use super::facts::{Facts, FieldLabels, FirstDelete};
use super::metadata;
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::json::json;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{copy_field, default_text, ensure_object};
use crate::registry::types::plugins::{Plugin, PluginSet};
use crate::registry::types::{labels, names};

/// The label of a Namespace that contains its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
const KUBERNETES: &str = "kubernetes";

/// The strategy of Namespaces, their status and their finalizers.
#[derive(Debug)]
pub(crate) struct Namespace;

impl Strategy for Namespace {
    fn facts(&self) -> &Facts {
        const {
            &Facts {
                name: names::dns1123_label,
                returns_deleted_object: true,
                first_delete: FirstDelete::MarksAndPropagates,
                fields: FieldLabels::of(&["status.phase"], false),
                ..Facts::DEFAULT
            }
        }
    }

    fn default(&self, object: &mut Object) {
        let name = object.name();
        if !name.is_empty() && name_label(object) != name {
            let name = name.to_owned();
            ensure_object(object.metadata_mut(), "labels").insert(NAME_LABEL.into(), name.into());
        }
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        object.insert("status".into(), json!({"phase": "Active"}));
        let mut finalizers = Cursor::root(object).list("spec.finalizers").to_vec();
        if !finalizers.iter().any(|it| it == KUBERNETES) {
            finalizers.push(KUBERNETES.into());
        }
        ensure_object(object, "spec").insert("finalizers".into(), finalizers.into());
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        let finalizers = object.at("spec.finalizers");
        for name in finalizers.items("") {
            validate_finalizer(&finalizers.in_other(name.get("")), errors);
        }
    }

    fn canonicalize(&self, object: &mut Object) {
        // The defaults were filled in before the name was generated, so the label with the name is still missing.
        self.default(object);
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "finalize" {
            copy_field(old, object, "status");
            return;
        }
        copy_field(old, object, "spec");
        if context.subresource == "status" {
            default_text(ensure_object(object, "status"), "phase", "Active");
        } else {
            copy_field(old, object, "status");
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        match context.subresource {
            "finalize" => {
                for name in Cursor::root(object).items("spec.finalizers") {
                    validate_finalizer(&name, errors);
                }
            }
            "status" => {
                let object = Cursor::root(object);
                let phase = object.at("status.Phase").in_other(object.get("status.phase"));
                if old.meta_str("deletionTimestamp").is_empty() {
                    if phase.as_text() != "Active" {
                        let text = "may only be 'Active' if `deletionTimestamp` is empty";
                        errors.invalid(phase, phase.as_text(), text);
                    }
                } else if phase.as_text() != "Terminating" {
                    let text = "may only be 'Terminating' if `deletionTimestamp` is not empty";
                    errors.invalid(phase, phase.as_text(), text);
                }
            }
            _ => self.validate(object, errors),
        }
    }

    fn prepare_for_deletion(&self, object: &mut Object) {
        ensure_object(object, "status").insert("phase".into(), "Terminating".into());
    }

    fn holds_terminating(&self, object: &Object) -> bool {
        !Cursor::root(object).is_empty("spec.finalizers")
    }

    fn forbids_deletion(&self, object: &Object, plugins: PluginSet) -> Option<String> {
        let is_protected = plugins.has(Plugin::NamespaceLifecycle)
            && matches!(object.name(), "default" | "kube-system" | "kube-public");
        is_protected.then(|| "this namespace may not be deleted".to_owned())
    }
}

/// Checks an entry of `spec.finalizers` (`validateFinalizerName`). As in kube-apiserver, only errors of `/finalize`
/// contain the index of the finalizer.
fn validate_finalizer(name: &Cursor<'_>, errors: &mut FieldErrors) {
    labels::validate_key(name, errors);
    metadata::validate_finalizer_name(name.as_text(), || name.path(), errors);
}

fn name_label(object: &Object) -> &str {
    let object = Cursor::root(object);
    object
        .map("metadata.labels")
        .and_then(|labels| labels.get(NAME_LABEL)?.as_str())
        .unwrap_or_default()
}
