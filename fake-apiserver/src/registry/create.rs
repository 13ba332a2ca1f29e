//! Creation of objects by POST, PUT and apply.

use super::admission::attributes::Attributes;
use super::answer::{Answer, Written, refuse};
use super::kinds::metadata;
use super::request::{Conditions, WriteRequest};
use super::scheme::Row;
use super::scheme::body::Decoded;
use super::scheme::codec;
use super::types::hidden::Hidden;
use super::{Registry, managed_fields};
use crate::api::admission::Operation;
use crate::api::field::FieldErrors;
use crate::api::json::Value;
use crate::api::object::Object;
use crate::api::rbac;
use crate::api::request_info::Verb;
use crate::api::status::Status;
use crate::storage::StoreError;

/// Maximum number of names tried for a `generateName` (rule B2).
const NAME_TRIES: usize = 8;

impl Registry {
    /// Handles the POST of a decoded body, or the PUT of an object that does not exist.
    pub(crate) async fn create(&self, request: &WriteRequest<'_>, decoded: Decoded) -> Result<Written, Status> {
        let Decoded {
            mut object,
            warnings,
            hidden,
        } = decoded;
        request.remarks.warnings.extend(warnings);
        let row = request.row;
        metadata::fill_namespace(&mut object, &request.info.namespace)?;
        accepts_creates(row, &object)?;
        // A generated name does not exist yet at this point, so errors contain `generateName` instead.
        let names = [object.name(), object.meta_str("generateName")];
        let name = names.into_iter().find(|it| !it.is_empty()).unwrap_or("Unknown");
        self.reader.check_namespace(row, object.namespace(), name)?;
        let repeated = metadata::dedupe_owner_references(&mut object, false);
        request.remarks.warnings.extend(repeated);

        // A POST clears the deletion fields (`WipeObjectMetaSystemFields`); a PUT that creates an object keeps them
        // (rule B1).
        if request.info.verb == Verb::Create {
            for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
                object.metadata_mut().remove(field);
            }
        }
        object.metadata_mut().remove("selfLink");
        let now = self.reader.entropy.now_seconds();
        let name = request.manager_name();
        let manager = request.manager(&name, &now);
        request.with_types(|types| managed_fields::track_update(types, None, &mut object, &manager));
        row.settle(&mut object);
        self.admit_and_create(request, object, hidden).await
    }

    /// Admits and stores a new object. Its managed fields are already set.
    pub(super) async fn admit_and_create(
        &self,
        request: &WriteRequest<'_>,
        object: Object,
        hidden: Hidden,
    ) -> Result<Written, Status> {
        // For an apply, this has not been checked before.
        accepts_creates(request.row, &object)?;
        let mut attributes = Attributes::of_write(request, Operation::Create, object, None);
        attributes.hidden = hidden;
        self.admission.admit(&mut attributes).await?;
        let mut object = attributes.object.take().unwrap_or_default();
        self.complete_admitted(request, &mut object);
        self.create_mutated(request, object, &attributes.hidden).await
    }

    /// Normalises an object that admission may have changed.
    pub(super) fn complete_admitted(&self, request: &WriteRequest<'_>, object: &mut Object) {
        let repeated = metadata::dedupe_owner_references(object, true);
        request.remarks.warnings.extend(repeated);
        // The server's own plugins do not write empty values, but closures, policies and webhooks may do so.
        if self.admission.may_be_changed(request.row) {
            request.row.settle(object);
        }
    }

    /// Prepares, validates and stores a new object after the mutating phase of admission.
    async fn create_mutated(
        &self,
        request: &WriteRequest<'_>,
        mut object: Object,
        hidden: &Hidden,
    ) -> Result<Written, Status> {
        let row = request.row;
        let strategy = row.strategy();
        // A mutating webhook or plugin may have changed the namespace.
        metadata::fill_namespace(&mut object, &request.info.namespace)?;
        row.to_storage(&mut object);
        // The resourceVersion is checked last, because kube-apiserver checks it in storage.
        let version = object.metadata_mut().remove("resourceVersion");

        self.authorization.check_escalation(request, &object, None)?;
        self.choose_name(row, &mut object);
        self.prepare_new(request, &mut object, hidden)?;
        self.authorization.check_references(request, &object, None)?;
        self.check_creation(request)?;
        // Warnings are only returned for valid objects.
        request.remarks.warnings.extend(strategy.warnings(&object, None));
        strategy.canonicalize(&mut object);
        self.admission
            .check_write(request, Operation::Create, &mut object, None)
            .await?;
        let is_completed_on_read = row.default_as_read(&mut object);
        let key = codec::key_of(&object);
        self.reader.convert_to_store(row, &object).await?;
        // Only an apply creates an object with PATCH.
        let is_apply = request.info.verb == Verb::Patch;
        let codec::Encoded { mut body, has_fraction } =
            codec::encode_for(row, &mut object, request.options.dry_run, is_apply)?;
        body.is_completed_on_read |= is_completed_on_read;
        if request.options.dry_run {
            if let Some(existing) = self.reader.store.get(&row.storage, &key) {
                return Err(self.exists(request, &object, &existing));
            }
            // In kube-apiserver, storage refuses a resourceVersion, but a dry run does not reach storage.
            object
                .metadata_mut()
                .extend(version.map(|it| ("resourceVersion".to_owned(), it)));
            return Ok(Written {
                answer: Answer::unstored(row, object),
                code: 201,
            });
        }
        if version.as_ref().is_some_and(names_version) {
            return Err(Status::new(
                500,
                "",
                "resourceVersion should not be set on objects to be created",
            ));
        }
        match self.insert(row, key, body) {
            Ok(stored) => {
                if !has_fraction {
                    self.recent.keep(row, &stored, object);
                }
                let written = Written {
                    answer: Answer::Stored(stored),
                    code: 201,
                };
                written.converted(&self.reader, row).await
            }
            Err(StoreError::Exists(existing)) => Err(self.exists(request, &object, &existing)),
            Err(StoreError::NotFound | StoreError::Stale) => {
                Err(Status::internal("unexpected storage error on create"))
            }
        }
    }

    /// Generates a name from `generateName` before other fields, such as a Job's labels, are derived from the name.
    /// Tries several names until one is free, whereas kube-apiserver repeats the creation if a name is taken.
    fn choose_name(&self, row: &Row, object: &mut Object) {
        if !object.name().is_empty() || object.meta_str("generateName").is_empty() {
            return;
        }
        for _ in 0..NAME_TRIES {
            object.metadata_mut().remove("name");
            metadata::generate_name(object, &self.reader.entropy);
            if self.reader.store.get(&row.storage, &codec::key_of(object)).is_none() {
                return;
            }
        }
    }

    /// Checks the create permission if a PUT or an apply creates an object (rules C3, H2).
    fn check_creation(&self, request: &WriteRequest<'_>) -> Result<(), Status> {
        match request.info.verb {
            Verb::Create => Ok(()),
            Verb::Get
            | Verb::List
            | Verb::Watch
            | Verb::Update
            | Verb::Patch
            | Verb::Delete
            | Verb::DeleteCollection => {
                let create = rbac::Attributes {
                    verb: "create",
                    ..request.info.attributes()
                };
                self.authorization.authorize(request.user, &create)
            }
        }
    }

    /// Prepares and validates a new object whose name has been generated.
    fn prepare_new(&self, request: &WriteRequest<'_>, object: &mut Object, hidden: &Hidden) -> Result<(), Status> {
        let row = request.row;
        let strategy = row.strategy();
        let mut errors = FieldErrors::new();
        if row.info.subresource("status").is_some() && !strategy.facts().keeps_status_on_create {
            object.remove("status");
            if let Some(status) = row.empty_status() {
                object.insert("status".into(), status);
            }
        }
        metadata::begin_lifetime(object, strategy, &self.reader.entropy);
        row.drop_disabled(object, None);
        request.remarks.warnings.extend(strategy.warnings_before(object));
        let conditions = Conditions {
            hidden,
            ..request.conditions(&request.info.subresource)
        };
        self.reader.with_context(conditions, |context| {
            strategy.allocate(object, None, &mut errors, context)?;
            strategy.prepare_for_create(object, context);
            Ok::<(), Status>(())
        })?;
        hidden.show_in(&mut errors);
        refuse(row, object, &errors)?;
        self.validate_new(request, object, hidden)
    }

    fn validate_new(&self, request: &WriteRequest<'_>, object: &Object, hidden: &Hidden) -> Result<(), Status> {
        let row = request.row;
        let mut errors = FieldErrors::new();
        let checks = row.metadata_checks("");
        let namespaced = row.info.is_namespaced();
        metadata::validate_create(object, namespaced, row.strategy(), &checks, &mut errors);
        self.reader.with_context(request.conditions(""), |context| {
            row.strategy().validate_create(object, &mut errors, context);
        });
        hidden.show_in(&mut errors);
        refuse(row, object, &errors)?;
        // The rules for all kinds follow the kind's own rules. For a kind with its own metadata checks, only the name
        // remains to be checked.
        if checks.on_create.is_empty() {
            metadata::validate_object(object, namespaced, &mut errors);
        } else {
            metadata::validate_segment(object, &mut errors);
        }
        refuse(row, object, &errors)
    }

    /// Returns the error 409 AlreadyExists. The message differs for terminating objects and generated names (rules A4,
    /// A5).
    fn exists(&self, request: &WriteRequest<'_>, object: &Object, existing: &crate::storage::Stored) -> Status {
        let mut status = Status::already_exists(&request.row.info.group_resource(), object.name());
        if self.reader.decode(request.row, existing).is_terminating() {
            status.message = format!("object is being deleted: {}", status.message);
        }
        if !object.meta_str("generateName").is_empty() {
            status
                .message
                .push_str(", the server was not able to generate a unique name for the object");
            status = status.with_retry_after(1);
        }
        status
    }
}

/// Returns `true` if a `resourceVersion` is a positive integer, as in stored objects.
fn names_version(version: &Value) -> bool {
    version
        .as_str()
        .is_some_and(|text| super::reader::parse_uint(text).is_ok_and(|it| it > 0))
}

/// Refuses to create an object of a CRD that is being deleted.
fn accepts_creates(row: &Row, object: &Object) -> Result<(), Status> {
    if row.custom_resource().is_none_or(|it| it.accepts_creates) {
        return Ok(());
    }
    let why = "create not allowed while custom resource definition is terminating";
    Err(Status::forbidden(&row.info.group_resource(), object.name(), why))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use crate::server::ApiServer;

    async fn post(query: &str, body: &'static str) -> u16 {
        let request = http::Request::post(format!("/api/v1/namespaces/default/configmaps{query}"))
            .header("content-type", "application/json")
            .body(body)
            .unwrap();
        ApiServer::start().call(request).await.status().as_u16()
    }

    #[rstest]
    #[case::real_write("", 500)]
    #[case::dry_run("?dryRun=All", 201)]
    #[tokio::test]
    async fn resource_version_in_a_create_is_only_refused_without_dry_run(#[case] query: &str, #[case] code: u16) {
        let body = r#"{"metadata":{"name":"a","resourceVersion":"7"}}"#;
        assert_eq!(post(query, body).await, code);
    }

    #[rstest]
    #[case::subresource("/api/v1/namespaces/default/status", 200)]
    #[case::segment_below_a_subresource("/api/v1/namespaces/default/status/y", 404)]
    #[case::segment_below_a_pod_log("/api/v1/namespaces/default/pods/a/log/y", 404)]
    #[tokio::test]
    async fn subresource_paths_with_more_segments_are_not_found(#[case] path: &str, #[case] code: u16) {
        let request = http::Request::get(path).body("").unwrap();
        assert_eq!(ApiServer::start().call(request).await.status(), code);
    }
}
