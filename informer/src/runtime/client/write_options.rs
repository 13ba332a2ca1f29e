//! `WriteOptions`: options that a client applies to all writes.

use std::sync::Arc;

use kube::api::{DeleteParams, PatchParams, PostParams, ValidationDirective};

use crate::{Error, ObjectKey};

#[derive(Clone, Debug, Default)]
pub(super) struct WriteOptions {
    pub(super) is_dry_run: bool,
    pub(super) field_owner: Option<Arc<str>>,
    pub(super) is_forced: bool,
    pub(super) field_validation: Option<ValidationDirective>,
}

impl WriteOptions {
    fn owner(&self) -> Option<String> {
        self.field_owner.as_deref().map(str::to_owned)
    }

    pub(super) fn post(&self) -> PostParams {
        PostParams {
            dry_run: self.is_dry_run,
            field_manager: self.owner(),
        }
    }

    pub(super) fn patch(&self) -> PatchParams {
        PatchParams {
            dry_run: self.is_dry_run,
            field_manager: self.owner(),
            ..PatchParams::default()
        }
    }

    pub(super) fn apply(&self, key: &ObjectKey) -> Result<PatchParams, Error> {
        if self.field_owner.is_none() {
            return Err(Error::refused(format!(
                "apply of {key}: the client has no field owner; set one with `field_owner`"
            )));
        }
        Ok(PatchParams {
            force: self.is_forced,
            ..self.patch()
        })
    }

    pub(super) fn delete(&self, params: &DeleteParams) -> DeleteParams {
        DeleteParams {
            dry_run: params.dry_run || self.is_dry_run,
            ..params.clone()
        }
    }
}

/// The part of an object that is written: the whole object or a subresource.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part<'a> {
    Whole,
    Sub(&'a str),
}
