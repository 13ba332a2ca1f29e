//! Aggregated API servers, which APIServices register.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::cursor::Cursor;
use super::endpoint::Endpoint;
use crate::api::object::Object;

/// The aggregated API server of a group and version: the Service of an APIService, or a server in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteServer {
    /// The name of the APIService.
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    /// The value of `groupPriorityMinimum`.
    pub(crate) group_priority: i64,
    /// The value of `versionPriority`.
    pub(crate) version_priority: i64,
    /// The address; for a Service `https://name.namespace.svc:port`.
    pub(crate) endpoint: Endpoint,
    /// The value of `insecureSkipTLSVerify`.
    pub(crate) skips_checks: bool,
}

impl RemoteServer {
    /// Parses an APIService; `None` for an APIService without a Service.
    pub(crate) fn of(object: &Object) -> Option<Self> {
        let object = Cursor::root(object);
        let spec = object.at("spec");
        let service = spec.present("service")?;
        let port = service.integer("port").unwrap_or(443);
        let (name, namespace) = (service.text("name"), service.text("namespace"));
        Some(Self {
            name: object.text("metadata.name").to_owned(),
            group: spec.text("group").to_owned(),
            version: spec.text("version").to_owned(),
            group_priority: spec.integer("groupPriorityMinimum").unwrap_or(0),
            version_priority: spec.integer("versionPriority").unwrap_or(0),
            endpoint: Endpoint {
                url: format!("https://{name}.{namespace}.svc:{port}"),
                is_service: true,
                ca_bundle: STANDARD.decode(spec.text("caBundle")).unwrap_or_default(),
            },
            skips_checks: spec.flag("insecureSkipTLSVerify") == Some(true),
        })
    }

    /// Creates the entry for an API server in this process, which serves the group version without an APIService.
    pub(crate) fn built_in(group: &str, version: &str, host: &str, priorities: (i64, i64)) -> Self {
        Self {
            name: format!("{version}.{group}"),
            group: group.to_owned(),
            version: version.to_owned(),
            group_priority: priorities.0,
            version_priority: priorities.1,
            endpoint: Endpoint {
                url: format!("https://{host}:443"),
                is_service: true,
                ca_bundle: Vec::new(),
            },
            skips_checks: false,
        }
    }
}
