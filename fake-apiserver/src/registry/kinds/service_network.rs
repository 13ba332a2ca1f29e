//! The strategies of IPAddresses and ServiceCIDRs. Follows `ValidateIPAddress`, `ValidateServiceCIDR` and their
//! counterparts for updates in `pkg/apis/networking/validation`.

use super::facts::Facts;
use super::plain::restore_metadata;
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::json::Value;
use crate::api::object::Object;
use crate::registry::types::check::IMMUTABLE;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::{names, net};

/// The strategy of IPAddresses.
#[derive(Debug)]
pub(crate) struct IpAddress;

impl Strategy for IpAddress {
    fn facts(&self) -> &Facts {
        &Facts {
            // A `generateName` must be an address as well.
            name: |name, _| net::wrong_in_ip(name).into_iter().collect(),
            ..Facts::DEFAULT
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        let parent = object.at("spec.parentRef");
        if !parent.is_set("") {
            errors.required(parent, "");
            return;
        }
        parent.at("group").check_subdomain(errors);
        for (field, is_required) in [("resource", true), ("name", true), ("namespace", false)] {
            let value = parent.at(field);
            if is_required {
                value.check_required(errors);
            }
            value.check_texts(names::path_segment(value.as_text(), false), errors);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
        let old = Cursor::root(old);
        Cursor::root(object)
            .at("spec.parentRef")
            .check_unchanged(&old.at("spec.parentRef"), errors);
    }
}

/// The strategy of ServiceCIDRs.
#[derive(Debug)]
pub(crate) struct ServiceCidr;

impl Strategy for ServiceCidr {
    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        validate_spec(&Cursor::root(object).at("spec"), errors);
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore_metadata(object, old);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if !context.subresource.is_empty() {
            return;
        }
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        let cidrs = new.at("spec.cidrs");
        let before = old.list("spec.cidrs");
        let changed = |(cidr, old): (Cursor<'_>, &Value), errors: &mut FieldErrors| {
            if cidr.get("") != Some(old) {
                errors.invalid(cidr, cidr.as_text(), IMMUTABLE);
            }
        };
        match (before.len(), cidrs.list("").len()) {
            (old, new) if old == new => {
                for pair in cidrs.items("").zip(before) {
                    changed(pair, errors);
                }
            }
            // The update adds the range of the other IP family.
            (1, 2) => {
                for pair in cidrs.items("").zip(before) {
                    changed(pair, errors);
                }
                validate_spec(&new.at("spec"), errors);
            }
            _ => errors.invalid(cidrs, cidrs.to_value(), IMMUTABLE),
        }
    }
}

/// Checks the spec of a ServiceCIDR (`validateServiceCIDRSpec`).
fn validate_spec(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let cidrs = spec.at("cidrs");
    match cidrs.list("").len() {
        0 => return errors.required(cidrs, "at least one CIDR required"),
        1 | 2 => {}
        _ => return errors.invalid(cidrs, spec.to_value(), "may only hold up to 2 values"),
    }
    for cidr in cidrs.items("") {
        if let Some(text) = net::wrong_in_cidr(cidr.as_text()) {
            errors.invalid(cidr, cidr.as_text(), text);
        }
    }
    let families: Vec<Option<bool>> = cidrs
        .items("")
        .map(|it| net::parse_cidr(it.as_text()).map(|(address, _)| address.is_ipv4()))
        .collect();
    if let [Some(first), Some(second)] = families[..]
        && first == second
    {
        let text = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.invalid(cidrs, cidrs.to_value(), text);
    }
}
