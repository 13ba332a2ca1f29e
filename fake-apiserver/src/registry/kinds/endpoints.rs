//! The strategy of the deprecated kind Endpoints. Follows `ValidateEndpoints` of `pkg/apis/core/validation`.

use super::facts::Facts;
use super::service::validate_protocol;
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{default_text, items_mut};
use crate::registry::types::{labels, names, net};

/// Label with the name of the controller that manages an object.
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";

/// The strategy of Endpoints.
#[derive(Debug)]
pub(crate) struct Endpoints;

impl Strategy for Endpoints {
    fn facts(&self) -> &Facts {
        &Facts {
            deprecation: Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
            allows_create_on_update: true,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        for subset in items_mut(object, "subsets") {
            for port in items_mut(subset, "ports") {
                default_text(port, "protocol", "TCP");
            }
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        for subset in Cursor::root(object).items("subsets") {
            validate_subset(&subset, errors);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        if object.get("subsets") != old.get("subsets") {
            self.validate(object, errors);
        }
    }

    /// Returns the warnings about an object, unless the endpoints controller manages it (`endpointsWarnings`).
    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        let endpoints = Cursor::root(object);
        let labels = endpoints.map("metadata.labels");
        if labels
            .and_then(|it| it.get(MANAGED_BY))
            .is_some_and(|it| it == "endpoint-controller")
        {
            return Vec::new();
        }
        let mut warnings = Vec::new();
        for subset in endpoints.items("subsets") {
            for address in subset.items("addresses").chain(subset.items("notReadyAddresses")) {
                warnings.extend(net::warn_of_ip(&address.at("ip").path(), address.text("ip")));
            }
        }
        warnings
    }
}

fn validate_subset(subset: &Cursor<'_>, errors: &mut FieldErrors) {
    if subset.is_empty("addresses") && subset.is_empty("notReadyAddresses") {
        errors.required(subset, "must specify `addresses` or `notReadyAddresses`");
    }
    for address in ["addresses", "notReadyAddresses"]
        .iter()
        .flat_map(|field| subset.items(field))
    {
        let ip = address.at("ip");
        net::validate_ip(&ip, errors);
        address.at("hostname").check_label(errors);
        if address.is_set("nodeName") {
            let name = address.at("nodeName");
            name.check_texts(names::dns1123_subdomain(name.as_text(), false), errors);
        }
        net::validate_endpoint_ip(&ip, errors);
    }
    for port in subset.items("ports") {
        if subset.list("ports").len() > 1 {
            port.at("name").check_required(errors);
        }
        port.at("name").check_label(errors);
        port.at("port").check_port_number(errors);
        validate_protocol(&port.at("protocol"), errors);
        if port.is_set("appProtocol") {
            labels::validate_key(&port.at("appProtocol"), errors);
        }
    }
}
