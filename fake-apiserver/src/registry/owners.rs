//! Converts objects to other versions for managedFields. The managedFields are computed synchronously, so conversion
//! webhooks are called beforehand (rule O10).

use std::sync::{Mutex, PoisonError};

use super::Registry;
use super::managed_fields::{self, Types};
use super::scheme::Row;
use super::types::no_version::NoVersion;
use crate::api::object::Object;
use crate::api::status::Status;

/// Maximum number of conversions for the managed fields of one write; each version needs a few.
const CONVERSIONS_MAX: usize = 64;

impl Registry {
    /// Calls `track`, which computes the managed fields of `objects`, until the conversion webhook of the CRD has
    /// provided all conversions that `track` needs. Each conversion may depend on the previous one.
    pub(super) async fn convert_for_owners(
        &self,
        row: &Row,
        objects: &[&Object],
        track: &(dyn Fn(&Types<'_, '_>) + Sync),
    ) -> Result<(), Status> {
        let conversion = row.custom_resource().and_then(|it| it.conversion.as_deref());
        let Some(conversion) = conversion else { return Ok(()) };
        let has_others = |it: &&Object| managed_fields::is_of_other_versions(it, &row.api_version);
        if !objects.iter().any(has_others) {
            return Ok(());
        }
        for _ in 0..CONVERSIONS_MAX {
            let missing = Mutex::new(None);
            track(&Types {
                schema: row.schema(),
                other: &|object, version| {
                    let converted = row.in_version_for_owners(object, version)?;
                    if object.api_version() == version || conversion.answer(object, version).is_some() {
                        return Ok(converted);
                    }
                    let mut missing = missing.lock().unwrap_or_else(PoisonError::into_inner);
                    missing.get_or_insert((object.clone(), version.to_owned()));
                    Err(NoVersion::Refused(String::new()))
                },
            });
            match missing.into_inner().unwrap_or_else(PoisonError::into_inner) {
                Some((object, version)) => self.reader.convert_to_review(row, &object, &version).await?,
                None => break,
            }
        }
        Ok(())
    }
}
