//! `Endpoint`: the address of a webhook or of an aggregated API server.

use base64::Engine as _;

use super::cursor::Cursor;

/// The target of a `clientConfig` or of an APIService.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// `https://host[:port]/path`; for a service `https://name.namespace.svc:port/path`.
    pub(crate) url: String,
    /// Set if the URL refers to a Service, for which the test must provide the address.
    pub(crate) is_service: bool,
    /// The CA certificates that are trusted for the connection, in PEM.
    pub(crate) ca_bundle: Vec<u8>,
}

impl Endpoint {
    /// Parses the `clientConfig` of a webhook or of a CRD's conversion.
    pub(crate) fn parse(webhook: &Cursor<'_>) -> Self {
        let client = webhook.at("clientConfig");
        let ca_bundle = base64::engine::general_purpose::STANDARD.decode(client.text("caBundle"));
        let ca_bundle = ca_bundle.unwrap_or_default();
        if let Some(service) = client.present("service") {
            let (name, namespace) = (service.text("name"), service.text("namespace"));
            let port = service.integer("port").unwrap_or(443);
            let path = service.text("path");
            let slash = if path.starts_with('/') { "" } else { "/" };
            return Self {
                url: format!("https://{name}.{namespace}.svc:{port}{slash}{path}"),
                is_service: true,
                ca_bundle,
            };
        }
        Self {
            url: client.text("url").to_owned(),
            is_service: false,
            ca_bundle,
        }
    }
}
