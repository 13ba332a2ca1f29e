//! Webhooks that controllers serve: the certificates of their processes, and the routing of calls to their ports.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use fake_apiserver::{ApiServer, signed_certificate};
use serde_json::Value;

use super::scenario::{Controller, Scenario};
use crate::hooks::Hooks;
use crate::webhooks::{client_configs, host_of};

/// Placeholder for the port at which a process serves webhooks.
pub(crate) const PORT: &str = "PORT_WEBHOOK";
/// Placeholder for the directory of the certificate of a process.
pub(crate) const CERTIFICATES: &str = "CERT_DIR";

/// Default directory of certificates in controller-runtime, relative to the directory for temporary files.
const DEFAULT: &str = "k8s-webhook-server/serving-certs";

/// Kinds that contain the address of a webhook.
const KINDS: [&str; 3] = [
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
    "CustomResourceDefinition",
];

/// Beginning of a certificate in PEM.
const PEM: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// Key for the controller that serves the webhooks of all Services.
const ANY_SERVICE: &str = "*";

/// The certificate for all webhooks of a scenario; empty if no controller serves webhooks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    /// The authority as PEM in base64, for `caBundle`.
    bundle: String,
    /// Certificate, key and authority as PEM.
    files: Option<[String; 3]>,
}

impl Controller {
    /// Returns `true` if a placeholder occurs in the command, the environment, the files or the readiness URL.
    fn uses(&self, place: &str) -> bool {
        let place = format!("${{{place}}}");
        let url = self.ready.as_ref().and_then(|it| it.url.as_ref());
        let mut texts = self
            .command
            .iter()
            .chain(self.env.values())
            .chain(&self.texts)
            .chain(url);
        texts.any(|it| it.contains(&place))
    }

    pub(crate) fn serves_webhooks(&self) -> bool {
        self.webhook_port.is_some() || self.uses(PORT)
    }
}

impl Scenario {
    /// Returns an error for the first invalid field `webhooks`, for example if it is ambiguous which controller serves
    /// a webhook.
    pub(crate) fn wrong_webhooks(&self) -> Option<String> {
        let is_alone = self.controllers.iter().filter(|it| it.serves_webhooks()).count() < 2;
        let mut controllers = self.controllers.iter().enumerate();
        controllers.find_map(|(at, controller)| {
            let field = |why: String| Some(format!("controllers[{at}].webhooks: {why}"));
            match (controller.serves_webhooks(), controller.webhooks.as_slice()) {
                (false, [_, ..]) => field(format!(
                    "the command, the environment or a file must contain ${{{PORT}}}, the port at which it serves \
                     them, or webhookPort must be set"
                )),
                (true, []) if !is_alone => field(
                    "several controllers serve webhooks, so each must name its Services as NAMESPACE/NAME".to_owned(),
                ),
                (true, services) => {
                    let wrong = services.iter().find(|it| it.split('/').count() != 2)?;
                    field(format!("{wrong:?} is not of the form NAMESPACE/NAME"))
                }
                (false, []) => None,
            }
        })
    }
}

/// Returns the Services that a webhook configuration refers to, as `NAMESPACE/NAME`.
pub(crate) fn services(object: &Value) -> BTreeSet<String> {
    let mut object = object.clone();
    let configs = client_configs(&mut object).into_iter();
    let named = configs.filter_map(|it| {
        let service = &it["service"];
        Some(format!(
            "{}/{}",
            service["namespace"].as_str()?,
            service["name"].as_str()?
        ))
    });
    named.collect()
}

impl Scenario {
    /// Returns a note for each Service in a webhook configuration that no controller serves, because its webhooks
    /// cannot be called.
    pub(crate) fn unserved_webhooks(&self, objects: &[Value]) -> Vec<String> {
        let serving = || self.controllers.iter().filter(|it| it.serves_webhooks());
        if serving().any(|it| it.webhooks.is_empty()) {
            return Vec::new();
        }
        let served: BTreeSet<&String> = serving().flat_map(|it| &it.webhooks).collect();
        let configurations = objects.iter().filter(|it| is_configuration(it));
        let notes = configurations.flat_map(|object| {
            let unserved = services(object).into_iter().filter(|it| !served.contains(it));
            let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
            let name = format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]));
            unserved.map(move |service| {
                format!(
                    "{name} calls the Service {service}, which no controller serves, so that its calls fail: pass \
                     ${{{PORT}}} to the controller that serves it, or set its webhookPort"
                )
            })
        });
        notes.collect()
    }
}

impl Trust {
    /// Creates a certificate for the Services in the webhook configurations among `objects`, if a controller serves
    /// webhooks.
    pub(crate) fn new<'a>(scenario: &Scenario, objects: impl Iterator<Item = &'a Value>) -> io::Result<Self> {
        let is_needed = |it: &Controller| it.serves_webhooks() || it.uses(CERTIFICATES);
        if !scenario.controllers.iter().any(is_needed) {
            return Ok(Self::default());
        }
        let named = scenario.controllers.iter().flat_map(|it| &it.webhooks);
        let mut hosts: BTreeSet<String> = named.map(|it| service_host(it)).collect();
        for object in objects.filter(|it| is_configuration(it)) {
            let mut object = object.clone();
            let configs = client_configs(&mut object).into_iter();
            let services = configs.filter(|it| it["service"].is_object());
            let found = services.filter_map(|it| host_of(it));
            hosts.extend(found.map(|it| it.split(':').next().unwrap_or_default().to_owned()));
        }
        let files = signed_certificate(&hosts.into_iter().collect::<Vec<_>>())?;
        Ok(Self {
            bundle: BASE64_STANDARD.encode(&files[2]),
            files: Some(files),
        })
    }

    /// Sets the CA bundle of webhook configurations that refer to a Service, unless they already have a bundle with a
    /// PEM certificate.
    pub(crate) fn add_to(&self, object: &mut Value) {
        if self.files.is_none() || !is_configuration(object) {
            return;
        }
        for config in client_configs(object)
            .into_iter()
            .filter(|it| it["service"].is_object())
        {
            let given = config["caBundle"]
                .as_str()
                .and_then(|it| BASE64_STANDARD.decode(it).ok());
            if !given.is_some_and(|it| it.windows(PEM.len()).any(|it| it == PEM)) {
                config["caBundle"] = self.bundle.as_str().into();
            }
        }
    }

    /// Writes the certificate below a directory for temporary files. Returns the certificate's directory; `None` if
    /// there is no certificate.
    pub(crate) fn write(&self, temporary: &Path) -> io::Result<Option<PathBuf>> {
        let Some(files) = &self.files else { return Ok(None) };
        let directory = temporary.join(DEFAULT);
        fs::create_dir_all(&directory)?;
        for (name, text) in ["tls.crt", "tls.key", "ca.crt"].iter().zip(files) {
            fs::write(directory.join(name), text)?;
        }
        Ok(Some(directory))
    }
}

pub(crate) fn is_configuration(object: &Value) -> bool {
    object["kind"].as_str().is_some_and(|it| KINDS.contains(&it))
}

/// Returns the host name of the Service `NAMESPACE/NAME`.
fn service_host(service: &str) -> String {
    let (namespace, name) = service.split_once('/').unwrap_or(("default", service));
    format!("{name}.{namespace}.svc")
}

/// The controllers of a run that serve webhooks, by the host of the webhook.
#[derive(Debug, Default)]
pub(crate) struct Served(BTreeMap<String, String>);

impl Served {
    /// Makes the server call the webhooks of a controller at a port of this machine. Hosts that another process already
    /// serves are skipped.
    pub(crate) fn add(&mut self, server: &ApiServer, controller: &Controller, name: &str, port: u16) {
        let hosts = match controller.webhooks.is_empty() {
            true => vec![ANY_SERVICE.to_owned()],
            false => controller.webhooks.iter().map(|it| service_host(it)).collect(),
        };
        for host in hosts {
            if let Entry::Vacant(entry) = self.0.entry(host) {
                server.webhook_address(entry.key(), SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
                entry.insert(name.to_owned());
            }
        }
    }

    /// Routes the calls of all webhooks through the exploration, as calls of the controller that serves them.
    pub(crate) fn gate(self, server: &ApiServer, hooks: &Arc<dyn Hooks>) {
        if self.0.is_empty() {
            return;
        }
        let hooks = Arc::downgrade(hooks);
        server.gate_webhooks(move |host, path, call| {
            let name = self.0.get(host).or_else(|| self.0.get(ANY_SERVICE)).cloned();
            match (name, hooks.upgrade()) {
                (Some(name), Some(hooks)) => hooks.webhook(name, path, call),
                (None, _) | (_, None) => Box::pin(async {
                    call.await;
                    Ok(())
                }),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scenario(command: &str) -> Scenario {
        let yaml = format!("{{controllers: [{{name: a, command: [{command}]}}], steps: []}}");
        serde_saphyr::from_str(&yaml).expect("the scenario is valid")
    }

    fn configuration(bundle: Option<&str>) -> Value {
        let mut config = json!({"service": {"namespace": "shop", "name": "hooks", "port": 9443}});
        if let Some(bundle) = bundle {
            config["caBundle"] = bundle.into();
        }
        json!({"kind": "ValidatingWebhookConfiguration", "webhooks": [{"clientConfig": config}]})
    }

    #[rstest::rstest]
    #[case::missing_bundle(None)]
    #[case::placeholder(Some("Cg=="))]
    fn ca_bundle_is_added_to_webhook_configurations_without_one(#[case] bundle: Option<&str>) {
        let mut object = configuration(bundle);
        let trust =
            Trust::new(&scenario("'${PORT_WEBHOOK}'"), [&object].into_iter()).expect("the keys can be generated");
        trust.add_to(&mut object);
        let added = object["webhooks"][0]["clientConfig"]["caBundle"]
            .as_str()
            .unwrap_or_default();
        let added = BASE64_STANDARD.decode(added).expect("the text is base64");
        assert!(added.starts_with(PEM));
    }

    #[rstest::rstest]
    #[case::own_ca_bundle("'${PORT_WEBHOOK}'", &BASE64_STANDARD.encode(PEM))]
    #[case::no_controller_serves_webhooks("x", "")]
    fn other_webhook_configurations_are_unchanged(#[case] command: &str, #[case] bundle: &str) {
        let object = configuration(Some(bundle));
        let trust = Trust::new(&scenario(command), [&object].into_iter()).expect("the keys can be generated");
        let mut same = object.clone();
        trust.add_to(&mut same);
        assert_eq!(same, object);
    }
}
