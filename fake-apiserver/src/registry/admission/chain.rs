//! The order of admission (rule P1): the mutating phase, then the validating phase.

use super::Admission;
use super::attributes::{Attributes, GROUP};
use super::config::Configured;
use super::hooks::Hook;
use super::reinvocation::Reinvocation;
use super::result::Owners;
use super::{plugins, result, status};
use crate::api::admission::Operation;
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::request::WriteRequest;
use crate::registry::scheme::Row;

impl Admission {
    /// Runs the mutating phase: the server's plugins, closures, policies and webhooks. If a later change triggers
    /// reinvocation, the plugins run once more, and so do policies and webhooks with reinvocationPolicy IfNeeded.
    pub(crate) async fn admit(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        plugins::mutate(self, attributes)?;
        let configured = self.configured();
        if is_exempt(attributes.row) || (self.setup.hooks.mutating.is_empty() && !configured.has_mutation()) {
            return Ok(());
        }
        // In a box, because the futures of webhooks are larger than those of all other steps of a write.
        Box::pin(self.mutate_as_configured(&configured, attributes)).await
    }

    /// Runs the closures, policies and webhooks of the mutating phase.
    async fn mutate_as_configured(
        &self,
        configured: &Configured,
        attributes: &mut Attributes<'_>,
    ) -> Result<(), Status> {
        let owners = Owners::of(attributes);
        for hook in &self.setup.hooks.mutating {
            self.mutate_by_hook(hook, attributes).await?;
        }
        let mut known = Reinvocation::default();
        self.mutate_by_policies(&configured.policies, attributes, &mut known, false)
            .await?;
        self.mutate_by_webhooks(&configured.mutating, attributes, &mut known, false)
            .await?;
        if known.is_needed {
            plugins::mutate(self, attributes)?;
            self.mutate_by_policies(&configured.policies, attributes, &mut known, true)
                .await?;
            self.mutate_by_webhooks(&configured.mutating, attributes, &mut known, true)
                .await?;
        }
        attributes.remarks.warnings.extend(owners.check(attributes));
        Ok(())
    }

    /// Returns `true` if closures, policies or webhooks may change objects of this kind.
    pub(crate) fn may_be_changed(&self, row: &Row) -> bool {
        let has_hooks = !self.setup.hooks.mutating.is_empty();
        !is_exempt(row) && (has_hooks || self.configured().has_mutation())
    }

    async fn mutate_by_hook(&self, hook: &Hook, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        let answer = hook.call(attributes.review(self.reader.entropy.uid())).await;
        attributes.remarks.warnings.extend(answer.warnings);
        if let Some(denial) = answer.denied {
            return Err(status::denied(&hook.name, denial));
        }
        let Some(changed) = answer.object else { return Ok(()) };
        if attributes.object.is_none() {
            return Err(Status::internal(format!(
                "admission webhook \"{}\" attempted to modify the object, which is not supported for this operation",
                hook.name
            )));
        }
        let next = result::read_back(attributes.row, &attributes.kind, changed.into())?;
        // An unchanged object is equivalent to an empty patch.
        if attributes.object.as_ref() != Some(&next) {
            attributes.set_read_back(next);
        }
        Ok(())
    }

    /// Runs the validating phase: the server's plugins, closures, policies and webhooks, and finally quota, which only
    /// counts accepted requests.
    pub(crate) async fn check_admitted(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        plugins::validate(self, attributes)?;
        let configured = self.configured();
        let has_validation = !self.setup.hooks.validating.is_empty() || configured.has_validation();
        if has_validation && !is_exempt(attributes.row) {
            // In a box, because the futures of webhooks are larger than those of all other steps of a write.
            Box::pin(self.validate_as_configured(&configured, attributes)).await?;
        }
        plugins::charge_quota(self, attributes)
    }

    /// Runs the closures, policies and webhooks of the validating phase.
    async fn validate_as_configured(&self, configured: &Configured, attributes: &Attributes<'_>) -> Result<(), Status> {
        for hook in &self.setup.hooks.validating {
            let answer = hook.call(attributes.review(self.reader.entropy.uid())).await;
            attributes.remarks.warnings.extend(answer.warnings);
            if let Some(denial) = answer.denied {
                return Err(status::denied(&hook.name, denial));
            }
        }
        self.validate_by_policies(&configured.policies, attributes).await?;
        if !configured.validating.is_empty() {
            self.validate_by_webhooks(&configured.validating, attributes).await?;
        }
        Ok(())
    }

    /// Returns `true` if the validating phase may have to check this write. Otherwise, the caller need not copy the
    /// objects for that phase.
    fn validates(&self, row: &Row) -> bool {
        let setup = &self.setup;
        plugins::may_validate(self, row)
            || (!is_exempt(row) && (!setup.hooks.validating.is_empty() || self.configured().has_validation()))
    }

    /// Runs the validating phase of a write. The objects have the version of the kind's strategy: the storage version
    /// for built-in kinds.
    pub(crate) async fn check_write(
        &self,
        request: &WriteRequest<'_>,
        operation: Operation,
        object: &mut Object,
        old: Option<&mut Object>,
    ) -> Result<(), Status> {
        let row = request.row;
        if !self.validates(row) {
            return Ok(());
        }
        let mut object_shown = std::mem::take(object);
        let mut old_place = old;
        let mut old_shown = old_place.as_deref_mut().map(std::mem::take);
        let kept = (!row.is_as_stored).then(|| (object_shown.clone(), old_shown.clone()));
        row.show_as_requested(&mut object_shown);
        if let Some(old) = &mut old_shown {
            row.show_as_requested(old);
        }
        let mut attributes = Attributes::of_write(request, operation, object_shown, old_shown);
        let result = self.check_admitted(&attributes).await;
        let (back, old_back) =
            kept.unwrap_or_else(|| (attributes.object.take().unwrap_or_default(), attributes.old.take()));
        *object = back;
        if let (Some(place), Some(old)) = (old_place, old_back) {
            *place = old;
        }
        result
    }

    /// Runs the mutating phase for an object that is posted to a subresource and not stored, such as an Eviction.
    /// Returns the mutated object.
    pub(crate) async fn mutate_posted(&self, request: &WriteRequest<'_>, object: Object) -> Result<Object, Status> {
        let mut attributes = Attributes::of_posted(request, object);
        self.admit(&mut attributes).await?;
        Ok(attributes.object.take().unwrap_or_default())
    }

    /// Runs the validating phase for an object from [`mutate_posted`](Self::mutate_posted), and returns it unchanged.
    pub(crate) async fn check_posted(&self, request: &WriteRequest<'_>, object: Object) -> Result<Object, Status> {
        let mut attributes = Attributes::of_posted(request, object);
        self.check_admitted(&attributes).await?;
        Ok(attributes.object.take().unwrap_or_default())
    }

    /// Runs both phases for a connection.
    pub(crate) async fn admit_connection(
        &self,
        request: &WriteRequest<'_>,
        subresource: &str,
        object: Object,
    ) -> Result<(), Status> {
        let mut attributes = Attributes::of_connection(request, subresource, object);
        self.admit(&mut attributes).await?;
        self.check_admitted(&attributes).await
    }

    /// Returns `true` if admission may refuse the deletion of objects of this kind.
    pub(crate) fn may_refuse_deletion(&self, row: &Row) -> bool {
        let setup = &self.setup;
        let configured = self.configured();
        !is_exempt(row)
            && (configured.has_mutation()
                || configured.has_validation()
                || !(setup.hooks.mutating.is_empty() && setup.hooks.validating.is_empty()))
    }

    /// Converts an object between two versions of a resource.
    pub(super) async fn convert(&self, from: &Row, to: &Row, object: Object) -> Result<Object, Status> {
        self.reader.convert_to_review(from, &object, &to.api_version).await?;
        match from.in_version(&object, &to.api_version) {
            Ok((_, converted)) => Ok(converted.into_owned()),
            Err(_) => Err(Status::internal(format!(
                "{} cannot be converted from {} to {}",
                from.info.kind, from.api_version, to.api_version
            ))),
        }
    }
}

impl Configured {
    fn has_mutation(&self) -> bool {
        self.policies.may_mutate() || !self.mutating.is_empty()
    }

    fn has_validation(&self) -> bool {
        self.policies.may_validate() || !self.validating.is_empty()
    }
}

/// Returns `true` for webhook configurations and admission policies. They are exempt from closures, policies and
/// webhooks, so that a user can always remove one that refuses every request.
fn is_exempt(row: &Row) -> bool {
    row.info.group == GROUP
}
