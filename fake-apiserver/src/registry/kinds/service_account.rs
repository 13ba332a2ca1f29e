//! The strategy of ServiceAccounts.

use super::facts::Facts;
use super::strategy::{Context, Strategy};
use crate::api::object::Object;
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
}

/// Removes all fields except the name from references to Secrets.
fn keep_names(object: &mut Object) {
    for secret in items_mut(object, "secrets") {
        secret.retain(|field, _| field == "name");
    }
}
