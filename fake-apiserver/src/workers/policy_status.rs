//! The controller that checks the types of the expressions in ValidatingAdmissionPolicies and writes the result into
//! their status. Modelled on `pkg/controller/validatingadmissionpolicystatus`.

use http::Method;

use super::{Context, Controller, Follows, Identity, Observed, RequestFailure, WorkQueue, WorkerRow};
use crate::api::json::{Value, json};
use crate::registry::admission::type_warnings;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;

pub(super) const ROW: WorkerRow = WorkerRow::alone::<PolicyStatus>("validatingadmissionpolicystatus");

/// The resource of the policies in storage.
const POLICIES: &str = "admissionregistration.k8s.io/validatingadmissionpolicies";

/// The name of the controller, its service account, and its field manager.
const NAME: &str = "validatingadmissionpolicy-status-controller";

/// Checks each policy once per generation. The check is not repeated when the kinds that a policy matches change.
#[derive(Debug, Default)]
pub(super) struct PolicyStatus;

impl Controller for PolicyStatus {
    type Key = Key;

    fn identity(&self) -> Identity {
        Identity::controller(NAME)
    }

    fn follows(&self) -> Follows {
        Follows::These(&[POLICIES])
    }

    fn observe(&mut self, change: &Observed<'_>, queue: &mut WorkQueue<Key>) {
        if let Some(stored) = change.new {
            queue.add(stored.key.clone());
        }
    }

    async fn sync(&mut self, key: Key, context: &mut Context<'_, Key>) -> Result<(), RequestFailure> {
        let api = context.api;
        let Some(policy) = api.get(POLICIES, &key) else {
            return Ok(());
        };
        let seen = Cursor::root(&policy);
        let generation = seen.integer("metadata.generation").unwrap_or_default();
        if generation <= seen.integer("status.observedGeneration").unwrap_or_default() {
            return Ok(());
        }
        let warnings = type_warnings(&policy, api.scheme());
        let warning = |(field, text): (String, String)| json!({"fieldRef": field, "warning": text});
        let warnings: Vec<Value> = warnings.into_iter().map(warning).collect();
        let checking = match warnings.is_empty() {
            true => json!({}),
            false => json!({"expressionWarnings": warnings}),
        };
        let applied = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": key.name()},
            "status": {"observedGeneration": generation, "typeChecking": checking},
        });
        let path = format!(
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{}/status?fieldManager={NAME}&force=true",
            key.name()
        );
        let media_type = Some("application/apply-patch+yaml");
        api.request(Method::PATCH, &path, media_type, &applied).await?;
        Ok(())
    }
}
