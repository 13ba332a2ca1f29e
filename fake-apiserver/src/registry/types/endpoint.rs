//! `Endpoint`: the place of a webhook, as admission and CRDs configure it.

use base64::Engine as _;
use serde_json::{Map, Value};

use super::access::{at, number, text};

/// The place that a `clientConfig` names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// `https://host[:port]/path`; for a service `https://name.namespace.svc:port/path`.
    pub(crate) url: String,
    /// Set if the URL stands for a service, which only the test can resolve.
    pub(crate) is_service: bool,
    /// The authorities the server's certificate may be signed by, in PEM.
    pub(crate) ca_bundle: Vec<u8>,
}

impl Endpoint {
    /// Reads the `clientConfig` of a webhook or of a CRD's conversion.
    pub(crate) fn parse(webhook: &Map<String, Value>) -> Self {
        let ca_bundle = text(webhook, "clientConfig.caBundle");
        let ca_bundle = base64::engine::general_purpose::STANDARD.decode(ca_bundle);
        let ca_bundle = ca_bundle.unwrap_or_default();
        if let Some(service) = at(webhook, "clientConfig.service").and_then(Value::as_object) {
            let (name, namespace) = (text(service, "name"), text(service, "namespace"));
            let port = number(service, "port").unwrap_or(443);
            let path = text(service, "path");
            let slash = if path.starts_with('/') { "" } else { "/" };
            return Self {
                url: format!("https://{name}.{namespace}.svc:{port}{slash}{path}"),
                is_service: true,
                ca_bundle,
            };
        }
        Self {
            url: text(webhook, "clientConfig.url").to_owned(),
            is_service: false,
            ca_bundle,
        }
    }
}
