//! The strategy of ServiceAccounts.

use super::facts::Facts;
use super::strategy::{Context, Strategy};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::items_mut;

/// The strategy of ServiceAccounts.
#[derive(Debug)]
pub(crate) struct ServiceAccount;

impl Strategy for ServiceAccount {
    fn facts(&self) -> &Facts {
        &Facts {
            returns_deleted_object: true,
            ..Facts::DEFAULT
        }
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        keep_names(object);
    }

    fn prepare_for_update(&self, object: &mut Object, _old: &Object, _context: &Context<'_>) {
        keep_names(object);
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        const RESTRICTED: &str = "kubernetes.io/enforce-mountable-secrets";
        let is_set = |object: &Object| {
            Cursor::root(object)
                .map_or_empty("metadata.annotations")
                .contains_key(RESTRICTED)
        };
        if !is_set(object) || old.is_some_and(is_set) {
            return Vec::new();
        }
        vec![format!(
            "metadata.annotations[{RESTRICTED}]: deprecated in v1.32+; prefer separate namespaces to isolate access to \
             mounted secrets"
        )]
    }
}

/// Removes all fields except the name from references to Secrets.
fn keep_names(object: &mut Object) {
    for secret in items_mut(object, "secrets") {
        secret.retain(|field, _| field == "name");
    }
}
