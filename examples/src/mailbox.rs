//! An operator with webhooks: a custom resource in two versions that is defaulted, validated and converted, and a
//! controller that uses the newer version.

use std::net::SocketAddr;
use std::sync::Arc;

use informer::reconcile::{Action, ReconcileError};
use informer::runtime::{CertWatcher, Dependents, Manager, ObjectReconciler, as_reconciler};
use informer::webhook::{AdmissionRequest, Conversion, Denial, Validator, WebhookServer, Webhooks};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::crd::{MergeError, merge_crds};
use kube::{Client, CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A mailbox, in the version that is stored and that the controller uses.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Mailbox", namespaced)]
#[serde(rename_all = "camelCase")]
pub struct MailboxSpec {
    /// Owner of the mailbox; it cannot be changed.
    pub owner: String,
    /// Size limit in MiB. Default 512.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_mib: Option<u32>,
}

/// The version that older clients use.
pub mod v1alpha1 {
    use super::{CustomResource, Deserialize, JsonSchema, Serialize};

    /// A mailbox.
    #[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1alpha1", kind = "Mailbox", namespaced)]
    pub struct MailboxSpec {
        /// Owner of the mailbox.
        pub user: String,
        /// Size limit: `512Mi`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub quota: Option<String>,
    }
}

/// The default and the maximum size limit of a mailbox, in MiB.
const QUOTAS: (u32, u32) = (512, 10_240);

/// Runs the manager with the webhooks until the process ends. The definition of the type must be installed, and
/// [`Webhooks::install`] registers the webhooks with the server.
///
/// # Errors
///
/// Fails if the address is in use, if the files do not contain a certificate, or if [`Manager::run`] fails.
pub async fn run(client: Client, address: SocketAddr) -> Result<(), informer::Error> {
    let manager = Manager::new(client);
    let certificates = CertWatcher::new("certs/tls.crt", "certs/tls.key")?.metrics(&manager.metrics());
    let webhooks = webhooks()?.metrics(&manager.metrics());
    let server = WebhookServer::bind(&webhooks, address, certificates).await?;
    manager.add_readyz("webhooks", server.started_check());
    manager.add(server)?;
    add_controller(&manager)?;
    manager.run(std::future::pending()).await
}

/// Returns the definition of both versions.
///
/// # Errors
///
/// Fails if the versions cannot be merged.
pub fn definition() -> Result<CustomResourceDefinition, MergeError> {
    merge_crds(vec![Mailbox::crd(), v1alpha1::Mailbox::crd()], "v1")
}

/// Returns the webhooks. A test calls their service in process.
///
/// # Errors
///
/// Fails if a type has two validators or two defaulters.
pub fn webhooks() -> Result<Webhooks, informer::Error> {
    let webhooks = Webhooks::new()
        .mutate::<Mailbox>(with_quota)?
        .validate::<Mailbox>(Rules)?;
    Ok(webhooks.convert(Conversion::to_hub::<Mailbox>().spoke(to_v1, to_v1alpha1)))
}

/// Defaulting webhook: sets the default size limit.
fn with_quota(mailbox: &mut Mailbox, _: &AdmissionRequest) -> Result<(), Denial> {
    mailbox.spec.quota_mib.get_or_insert(QUOTAS.0);
    Ok(())
}

/// Validating webhook.
struct Rules;

impl Validator<Mailbox> for Rules {
    async fn validate_create(&self, new: &Mailbox, _: &AdmissionRequest) -> Result<Vec<String>, Denial> {
        check_quota(new)
    }

    async fn validate_update(&self, old: &Mailbox, new: &Mailbox, _: &AdmissionRequest) -> Result<Vec<String>, Denial> {
        if old.spec.owner != new.spec.owner {
            return Err(Denial::invalid("spec.owner: field is immutable"));
        }
        check_quota(new)
    }
}

/// Checks the size limit; returns warnings.
fn check_quota(mailbox: &Mailbox) -> Result<Vec<String>, Denial> {
    match mailbox.spec.quota_mib {
        Some(quota) if quota > QUOTAS.1 => {
            let message = format!("spec.quotaMib: {quota} is more than {}", QUOTAS.1);
            Err(Denial::invalid(message))
        }
        Some(0) => Ok(vec!["spec.quotaMib: 0 keeps no mail".to_owned()]),
        Some(_) | None => Ok(Vec::new()),
    }
}

fn to_v1(old: v1alpha1::Mailbox) -> Result<Mailbox, String> {
    let quota_mib = old.spec.quota.map(|text| {
        let number = text.strip_suffix("Mi").and_then(|number| number.parse().ok());
        number.ok_or_else(|| format!("spec.quota: {text:?} is not a number of Mi"))
    });
    let spec = MailboxSpec {
        owner: old.spec.user,
        quota_mib: quota_mib.transpose()?,
    };
    Ok(Mailbox::new("", spec))
}

fn to_v1alpha1(new: Mailbox) -> Result<v1alpha1::Mailbox, String> {
    let spec = v1alpha1::MailboxSpec {
        user: new.spec.owner,
        quota: new.spec.quota_mib.map(|mib| format!("{mib}Mi")),
    };
    Ok(v1alpha1::Mailbox::new("", spec))
}

/// Adds the controller, which writes the settings of each mailbox to a ConfigMap.
///
/// # Errors
///
/// Fails if the manager already has a controller with this name, or has stopped.
pub fn add_controller(manager: &Manager) -> Result<(), informer::Error> {
    let settings = Settings(manager.dependents());
    let mailboxes = as_reconciler(manager.lister(), settings);
    manager
        .controller("mailboxes")
        .for_::<Mailbox>()
        .owns::<ConfigMap>()
        .complete(mailboxes)
}

struct Settings(Dependents<ConfigMap>);

impl ObjectReconciler<Mailbox> for Settings {
    async fn reconcile(&self, mailbox: Arc<Mailbox>) -> Result<Action, ReconcileError> {
        let quota = mailbox.spec.quota_mib.unwrap_or(QUOTAS.0).to_string();
        let settings = [("owner", mailbox.spec.owner.as_str()), ("quotaMib", &quota)];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let change = |map: &mut ConfigMap| map.data = Some(settings.clone().into());
        self.0.ensure(&*mailbox, &mailbox.name_any(), change).await?;
        Ok(Action::await_change())
    }
}
