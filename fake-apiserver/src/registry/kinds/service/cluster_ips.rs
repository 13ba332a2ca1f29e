//! Validation of a Service's addresses and IP families (`ValidateServiceClusterIPsRelatedFields` and its counterparts
//! for updates in `pkg/apis/core/validation`).

use std::net::IpAddr;

use super::is_headless;
use crate::api::field::FieldErrors;
use crate::api::json::Value;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::net;

const POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
const CHANGED: &str = "may not change once set";

/// Checks `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy`, and that they are consistent.
pub(super) fn validate_cluster_ips(spec: &Cursor<'_>, old: Option<&Cursor<'_>>, errors: &mut FieldErrors) {
    if spec.text("type") == "ExternalName" {
        return;
    }
    let ips = spec.at("clusterIPs");
    let (ip, first) = (spec.text("clusterIP"), ips.list("").first());
    match (ip.is_empty(), first) {
        (false, None) => errors.required(ips, ""),
        (false, Some(first)) if first != ip => {
            errors.invalid(ips, ips.to_value(), "first value must match `clusterIP`");
        }
        (true, Some(_)) => {
            let text = "must be empty when `clusterIP` is not specified";
            errors.invalid(ips, ips.to_value(), text);
        }
        (true, None) | (false, Some(_)) => {}
    }
    let families = spec.list("ipFamilies");
    for (index, family) in spec.items("ipFamilies").enumerate() {
        family.check_one_of(&["IPv4", "IPv6"], errors);
        if families[..index].iter().any(|it| it == family.as_text()) {
            errors.duplicate(family, family.as_text());
        }
    }
    spec.at("ipFamilyPolicy").check_one_of(&POLICIES, errors);
    let kept = old.map(|old| old.list("clusterIPs")).unwrap_or_default();
    if !are_addresses(&ips, kept, errors) {
        return;
    }
    let parsed: Vec<Option<IpAddr>> = ips.items("").map(|it| net::parse_sloppy(it.as_text())).collect();
    let is_v6 = |ip: &Option<IpAddr>| ip.is_some_and(|it| it.is_ipv6());
    if parsed.len() > 1 && (parsed.iter().all(is_v6) || !parsed.iter().any(is_v6)) {
        let text = "may specify no more than one IP for each IP family";
        errors.invalid(ips, ips.to_value(), text);
    }
    if is_headless(spec) {
        return;
    }
    for (index, ((ip, parsed), family)) in ips.items("").zip(&parsed).zip(families).enumerate() {
        let wanted = match family.as_str() {
            Some("IPv4") if is_v6(parsed) => "IPv4",
            Some("IPv6") if !is_v6(parsed) => "IPv6",
            _ => continue,
        };
        let text = format!("expected an {wanted} value as indicated by `ipFamilies[{index}]`");
        errors.invalid(ip, ip.as_text(), text);
    }
}

/// Checks the addresses. Returns `true` if all of them are valid, or if `None` is the only value.
fn are_addresses(ips: &Cursor<'_>, kept: &[Value], errors: &mut FieldErrors) -> bool {
    let mut are_valid = true;
    let len = ips.list("").len();
    for (index, ip) in ips.items("").enumerate() {
        if index == 0 && ip.as_text() == "None" {
            if len > 1 {
                are_valid = false;
                errors.invalid(ips, ips.to_value(), "'None' must be the first and only value");
            }
        } else {
            are_valid &= ip.check_legacy_ip(kept, errors);
        }
    }
    if len > 2 {
        errors.invalid(ips, ips.to_value(), "may only hold up to 2 values");
    }
    are_valid
}

/// Checks changes of the addresses and IP families (`validateUpgradeDowngradeClusterIPs` and
/// `validateUpgradeDowngradeIPFamilies`).
pub(super) fn validate_change(spec: &Cursor<'_>, old: &Cursor<'_>, errors: &mut FieldErrors) {
    let (headless, was_headless) = (is_headless(spec), is_headless(old));
    if [spec, old].iter().any(|it| it.text("type") == "ExternalName") || (headless && was_headless) {
        return;
    }
    let (ips, former) = (spec.at("clusterIPs"), old.list("clusterIPs"));
    change(&ips, former, &ips, "primary clusterIP can not be unset", errors);
    released(spec, ips.list(""), former, "clusterIP", errors);
    if headless == was_headless {
        let (families, former) = (spec.at("ipFamilies"), old.list("ipFamilies"));
        change(&families, former, &ips, "primary ipFamily can not be unset", errors);
        released(spec, families.list(""), former, "ipFamily", errors);
    }
}

/// Checks that the first value is unchanged, and that all values are unchanged if the list has the same length as
/// before.
fn change(now: &Cursor<'_>, former: &[Value], ips: &Cursor<'_>, unset: &str, errors: &mut FieldErrors) {
    let items = now.list("");
    let is_families = now.path() != ips.path();
    if items.len() == former.len() {
        for (index, _) in items.iter().zip(former).enumerate().filter(|(_, (a, b))| a != b) {
            // Errors about families always have the index of the first one.
            let index = if is_families { 0 } else { index };
            errors.invalid(now.path().index(index), now.to_value(), CHANGED);
        }
        return;
    }
    if items.len() < former.len() && ips.list("").is_empty() {
        errors.invalid(now.path().index(0), now.to_value(), unset);
    }
    if let (Some(first), Some(before)) = (items.first(), former.first())
        && first != before
    {
        errors.invalid(now.path().index(0), ips.to_value(), CHANGED);
    }
}

/// Checks that the policy is single-stack if the number of addresses or families decreases from two to one.
fn released(spec: &Cursor<'_>, now: &[Value], former: &[Value], one: &str, errors: &mut FieldErrors) {
    let policy = spec.at("ipFamilyPolicy");
    if now.len() == 1 && former.len() > 1 && policy.as_text() != "SingleStack" {
        let text = format!("must be set to 'SingleStack' when releasing the secondary {one}");
        errors.invalid(policy, policy.to_value(), text);
    }
}
