//! PATCH: JSON, merge and strategic merge patches, and server-side apply.

use super::answer::Written;
use super::kinds::metadata;
use super::managed_fields::{self, Types};
use super::request::WriteRequest;
use super::scheme::Row;
use super::scheme::body::{self, Decoded};
use super::update::{Change, drop_version, may_create};
use super::{Registry, patch};
use crate::api::json::Value;
use crate::api::object::Object;
use crate::api::options::{FieldValidation, PatchKind};
use crate::api::status::Status;
use crate::storage::Key;

/// A patch, which is applied again if the object has changed in the meantime.
struct Patched<'a> {
    row: &'a Row,
    kind: PatchKind,
    body: &'a [u8],
    validation: FieldValidation,
}

impl Change for Patched<'_> {
    fn next(&self, old: &Object) -> Result<Decoded, Status> {
        let make = || {
            let document = Value::Object(old.0.clone());
            match self.kind {
                PatchKind::Json => patch::json_patch(document, self.body),
                PatchKind::Merge => patch::merge_patch(document, self.body),
                PatchKind::Strategic | PatchKind::Apply => {
                    patch::strategic_patch(document, self.body, self.row.schema())
                }
            }
        };
        body::read_patched(self.row, Some(old), &make, self.body, self.validation)
    }
}

/// An apply configuration, which is merged again if the object has changed in the meantime.
struct Applied<'a> {
    request: &'a WriteRequest<'a>,
    configuration: &'a Object,
    manager: &'a str,
    now: &'a str,
}

impl Applied<'_> {
    fn merge(&self, live: Option<&Object>) -> Result<Decoded, Status> {
        let row = self.request.row;
        let manager = self.request.manager(self.manager, self.now);
        let force = self.request.options.force.unwrap_or(false);
        let make = || {
            self.request.with_types(|types| {
                managed_fields::apply(types, live, self.configuration, &manager, &row.info.kind, force)
            })
        };
        if row.is_custom() {
            let make = || {
                Ok(patch::Patched {
                    value: Value::Object(make()?.0),
                    strict_errors: Vec::new(),
                    shown: None,
                })
            };
            body::read_merged(row, &make)
        } else {
            body::read_applied(row, live, make()?, self.configuration)
        }
    }
}

impl Change for Applied<'_> {
    fn next(&self, old: &Object) -> Result<Decoded, Status> {
        self.merge(Some(old))
    }

    fn track(&self, types: &Types<'_, '_>, old: &Object) {
        let manager = self.request.manager(self.manager, self.now);
        let force = self.request.options.force.unwrap_or(false);
        let kind = &self.request.row.info.kind;
        let _ = managed_fields::apply(types, Some(old), self.configuration, &manager, kind, force);
    }

    fn is_tracked(&self) -> bool {
        true
    }
}

impl Registry {
    /// Handles a PATCH in one of the three patch formats. A patch never creates an object (rule G11).
    pub(crate) async fn patch(
        &self,
        request: &WriteRequest<'_>,
        kind: PatchKind,
        body: &[u8],
    ) -> Result<Written, Status> {
        let validation = request.options.field_validation;
        self.change(
            request,
            None,
            &Patched {
                row: request.row,
                kind,
                body,
                validation,
            },
        )
        .await
    }

    /// Handles an apply, which creates the object if it does not exist (rules H1 to H17).
    pub(crate) async fn apply(&self, request: &WriteRequest<'_>, configuration: &Object) -> Result<Written, Status> {
        let row = request.row;
        let now = self.reader.entropy.now_seconds();
        let manager = request.manager_name();
        let applied = Applied {
            request,
            configuration,
            manager: &manager,
            now: &now,
        };
        let key = Key::new(&request.info.namespace, &request.info.name);
        if self.reader.store.get(&row.storage, &key).is_some() {
            return self.change(request, None, &applied).await;
        }
        let missing = || Status::not_found(&row.info.group_resource(), &request.info.name);
        if !request.info.subresource.is_empty() && !may_create(request) {
            return Err(missing());
        }
        if !configuration.uid().is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {}, and no existing object was found",
                configuration.uid()
            );
            return Err(Status::conflict(&row.info.group_resource(), &request.info.name, why));
        }
        let Decoded {
            mut object,
            warnings,
            hidden,
        } = applied.merge(None)?;
        request.remarks.warnings.extend(warnings);
        metadata::fill_namespace(&mut object, &request.info.namespace)?;
        metadata::check_name(&object, &request.info.name)?;
        self.reader.check_namespace(row, object.namespace(), object.name())?;
        drop_version(request, &mut object)?;
        row.settle(&mut object);
        self.admit_and_create(request, object, hidden).await
    }
}
