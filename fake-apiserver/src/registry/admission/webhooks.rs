//! Calls the webhooks of a request: mutating webhooks one by one, with reinvocation, and validating webhooks
//! concurrently.

use futures::future::join_all;

use super::Admission;
use super::attributes::{Attributes, kind_of, resource_of};
use super::config::Webhook;
use super::matching::Matched;
use super::reinvocation::Reinvocation;
use super::review::ReviewAnswer;
use super::{annotations, result, review, status};
use crate::api::admission::AdmissionRequest;
use crate::api::json::Value;
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::patch::{Inapplicable, json_patch_or_why};

impl Admission {
    /// Calls the mutating webhooks of the request in order. If `is_second` is set, only calls the webhooks in
    /// `known.again`.
    pub(super) async fn mutate_by_webhooks(
        &self,
        webhooks: &[Webhook],
        attributes: &mut Attributes<'_>,
        known: &mut Reinvocation,
        is_second: bool,
    ) -> Result<(), Status> {
        if is_second && known.left != attributes.object {
            known.changed();
        }
        for (index, webhook) in webhooks.iter().enumerate() {
            let Some(matched) = self.is_meant(webhook, attributes).await? else {
                continue;
            };
            if is_second && !known.again.contains(&index) {
                continue;
            }
            let place = format!("round_{}_index_{index}", u8::from(is_second));
            let changed = match check_dry_run(webhook, attributes) {
                Ok(()) => self.mutate_by(webhook, attributes, &matched, &place, known).await,
                Err(status) => Err(Failure::Refused(status)),
            };
            annotations::mutation(attributes, webhook, &place, matches!(changed, Ok(true)));
            let changed = match changed {
                Ok(changed) => changed,
                Err(Failure::Call(_)) if webhook.ignores_failure => {
                    annotations::failed_open(attributes, "mutation", webhook, &place);
                    false
                }
                Err(failure) => return Err(failure.into_status(&webhook.name)),
            };
            if changed {
                known.changed();
            }
            if webhook.is_reinvoked {
                known.asked.insert(index);
            }
        }
        known.left.clone_from(&attributes.object);
        Ok(())
    }

    /// Calls a webhook, and returns `true` if it changed the object. `place` identifies the call in annotations.
    async fn mutate_by(
        &self,
        webhook: &Webhook,
        attributes: &mut Attributes<'_>,
        matched: &Matched,
        place: &str,
        known: &mut Reinvocation,
    ) -> Result<bool, Failure> {
        let request = self.review_of(attributes, matched).await.map_err(Failure::Refused)?;
        let answer = self.ask(webhook, &request, attributes, true).await;
        let mut answer = answer.map_err(Failure::Call)?;
        answer.remark(webhook, attributes);
        if let Some(denial) = answer.denied {
            return Err(Failure::Refused(status::denied(&webhook.name, denial)));
        }
        if is_empty_patch(&answer.patch) {
            return Ok(false);
        }
        if answer.patch_type.as_deref() != Some("JSONPatch") {
            let kind = answer.patch_type.unwrap_or_default();
            return Err(Failure::Call(format!("unsupported patch type \"{kind}\"")));
        }
        if attributes.object.is_none() {
            return Err(Failure::Refused(Status::internal(format!(
                "admission webhook \"{}\" attempted to modify the object, which is not supported for this operation",
                webhook.name
            ))));
        }
        let failed = |why: Inapplicable| match why {
            Inapplicable::Undecodable(why) => {
                Failure::Call(format!("received undecodable patch in webhook response: {why}"))
            }
            Inapplicable::Test(why) | Inapplicable::Otherwise(why) => Failure::Refused(Status::internal(why)),
        };
        let object = Value::from(request.object.clone());
        let patched = json_patch_or_why(object.clone(), &answer.patch).map_err(failed)?;
        // In Go, the times in managed fields have sub-second precision until the object is parsed for the first time.
        // Losing that precision counts as a change.
        let is_first = !std::mem::replace(&mut known.is_read_back, true);
        let loses_time = is_first && has_new_owners(attributes);
        if patched == object {
            annotations::patch(attributes, webhook, place, &answer.patch);
            return Ok(loses_time);
        }
        let next = self
            .read_back(attributes, matched, patched)
            .await
            .map_err(Failure::Refused)?;
        annotations::patch(attributes, webhook, place, &answer.patch);
        let changed = attributes.object.as_ref() != Some(&next);
        attributes.set_read_back(next);
        Ok(changed || loses_time)
    }

    /// Decodes a changed object, and converts it from the version that matched to the version of the request.
    pub(super) async fn read_back(
        &self,
        attributes: &Attributes<'_>,
        matched: &Matched,
        value: Value,
    ) -> Result<Object, Status> {
        match matched {
            Matched::As(row) if attributes.kind == kind_of(&attributes.row.info) => {
                let object = result::read_back(row, &kind_of(&row.info), value)?;
                self.convert(row, attributes.row, object).await
            }
            Matched::As(_) | Matched::AsRequested => result::read_back(attributes.row, &attributes.kind, value),
        }
    }

    /// Calls a webhook and measures the duration.
    async fn ask(
        &self,
        webhook: &Webhook,
        request: &AdmissionRequest,
        attributes: &Attributes<'_>,
        is_mutating: bool,
    ) -> Result<ReviewAnswer, String> {
        let entropy = &self.reader.entropy;
        let begun = entropy.elapsed();
        let answer = review::ask(&*self.setup.transport, webhook, request, is_mutating).await;
        let took = entropy.elapsed().saturating_sub(begun);
        attributes.remarks.annotations.called_webhook(is_mutating, took);
        answer
    }

    /// Calls the validating webhooks of the request concurrently. Returns the first refusal in the order of the
    /// webhooks.
    pub(super) async fn validate_by_webhooks(
        &self,
        webhooks: &[Webhook],
        attributes: &Attributes<'_>,
    ) -> Result<(), Status> {
        let mut meant = Vec::new();
        for webhook in webhooks {
            if let Some(matched) = self.is_meant(webhook, attributes).await? {
                check_dry_run(webhook, attributes)?;
                meant.push((webhook, self.review_of(attributes, &matched).await?));
            }
        }
        let calls = meant.iter();
        let calls = calls.map(|(webhook, request)| self.ask(webhook, request, attributes, false));
        let mut refused = None;
        for (index, ((webhook, _), answer)) in meant.iter().zip(join_all(calls).await).enumerate() {
            let failure = match answer {
                Ok(mut answer) => {
                    answer.remark(webhook, attributes);
                    answer.denied.map(|denial| status::denied(&webhook.name, denial))
                }
                Err(_) if webhook.ignores_failure => {
                    let place = format!("round_0_index_{index}");
                    annotations::failed_open(attributes, "validating", webhook, &place);
                    None
                }
                Err(why) => Some(status::call_failed(&webhook.name, &why)),
            };
            refused = refused.or(failure);
        }
        refused.map_or(Ok(()), Err)
    }

    /// Returns the version in which the webhook matches the request; `None` if it is not called.
    async fn is_meant(&self, webhook: &Webhook, attributes: &Attributes<'_>) -> Result<Option<Matched>, Status> {
        let Some(matched) = webhook.matches.find(&self.reader, attributes) else {
            return Ok(None);
        };
        let (conditions, ignores) = (&webhook.matches.conditions, webhook.ignores_failure);
        let meets = self.meets_conditions(conditions, ignores, attributes, &matched).await?;
        Ok(meets.then_some(matched))
    }

    /// Builds the review for a webhook, in the version that matched.
    pub(super) async fn review_of(
        &self,
        attributes: &Attributes<'_>,
        matched: &Matched,
    ) -> Result<AdmissionRequest, Status> {
        let mut request = attributes.review(self.reader.entropy.uid());
        if let Matched::As(row) = matched {
            request.resource = resource_of(&row.info);
            request.kind = matched.kind(attributes);
            if request.kind != attributes.kind {
                for (shown, object) in [
                    (&mut request.object, &attributes.object),
                    (&mut request.old_object, &attributes.old),
                ] {
                    if let Some(object) = object {
                        *shown = Value::Object(self.convert(attributes.row, row, object.clone()).await?.0).into();
                    }
                }
            }
        }
        Ok(request)
    }
}

/// Returns `true` for a patch without operations.
fn is_empty_patch(patch: &[u8]) -> bool {
    patch.is_empty() || patch.iter().filter(|it| !it.is_ascii_whitespace()).eq(b"[]")
}

/// Returns `true` if the request has changed the managed fields before admission.
fn has_new_owners(attributes: &Attributes<'_>) -> bool {
    let owners = |object: Option<&Object>| object?.metadata()?.get("managedFields").cloned();
    let now = owners(attributes.object.as_ref());
    now.is_some() && now != owners(attributes.old.as_ref())
}

/// Refuses a dry run if the webhook to be called has side effects.
fn check_dry_run(webhook: &Webhook, attributes: &Attributes<'_>) -> Result<(), Status> {
    if attributes.dry_run && !webhook.allows_dry_run {
        let why = format!("admission webhook \"{}\" does not support dry run", webhook.name);
        return Err(Status::bad_request(why));
    }
    Ok(())
}

/// A failed call of a webhook, or the refusal of a request.
enum Failure {
    /// The call failed or the response is invalid; failurePolicy applies.
    Call(String),
    /// The webhook denied the request, or its patch cannot be applied.
    Refused(Status),
}

impl Failure {
    fn into_status(self, name: &str) -> Status {
        match self {
            Failure::Call(why) => status::call_failed(name, &why),
            Failure::Refused(status) => status,
        }
    }
}
