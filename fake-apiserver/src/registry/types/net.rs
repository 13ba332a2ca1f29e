//! Parsing and validation of IP addresses and ranges, shared by several kinds.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::cursor::Cursor;
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::Value;

const NOT_AN_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const NOT_A_RANGE: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// Parses an address, or adds an error (`IsValidIPForLegacyField` for a new value).
pub(crate) fn validate_ip(address: &Cursor<'_>, errors: &mut FieldErrors) -> Option<IpAddr> {
    let parsed = strict_ip(address.as_text());
    parsed
        .map_err(|text| errors.invalid(address, address.as_text(), text))
        .ok()
}

impl Cursor<'_> {
    /// Checks that the string is an unambiguous address, or one of the values in `kept`, which the stored object
    /// already has (`IsValidIPForLegacyField`). Returns `true` if it is valid.
    pub(crate) fn check_legacy_ip(&self, kept: &[Value], errors: &mut FieldErrors) -> bool {
        kept.iter().any(|it| it == self.as_text()) || validate_ip(self, errors).is_some()
    }

    /// Same as `check_legacy_ip`, for a range (`IsValidCIDRForLegacyField`).
    pub(crate) fn check_legacy_cidr(&self, kept: &[Value], errors: &mut FieldErrors) -> bool {
        kept.iter().any(|it| it == self.as_text()) || validate_cidr(self, errors).is_some()
    }
}

/// Parses an address, with the errors of `parseIP` with strict validation.
fn strict_ip(value: &str) -> Result<IpAddr, &'static str> {
    let address = parse_sloppy(value).ok_or(NOT_AN_ADDRESS)?;
    match value.parse::<IpAddr>() {
        Err(_) => Err("must not have leading 0s"),
        Ok(IpAddr::V6(it)) if it.to_ipv4_mapped().is_some() => Err("must not be an IPv4-mapped IPv6 address"),
        Ok(_) => Ok(address),
    }
}

/// Parses a range, with the errors of `parseCIDR` with strict validation.
fn strict_cidr(value: &str) -> Result<(IpAddr, u32), &'static str> {
    let (address, length) = parse_sloppy_cidr(value).ok_or(NOT_A_RANGE)?;
    if parse_cidr(value).is_none() {
        return Err("must not have leading 0s in IP or prefix length");
    }
    if matches!(address, IpAddr::V6(it) if it.to_ipv4_mapped().is_some()) {
        return Err("must not have an IPv4-mapped IPv6 address");
    }
    if masked(address, length) != address {
        return Err("must not have bits set beyond the prefix length");
    }
    Ok((address, length))
}

/// Returns the error for an invalid or ambiguous address; other non-canonical forms are permitted
/// (`IsValidIPForLegacyField`).
pub(crate) fn wrong_in_legacy_ip(value: &str) -> Option<String> {
    strict_ip(value).err().map(str::to_owned)
}

/// Returns the error for an address that is invalid or not in canonical form (`IsValidIP`).
pub(crate) fn wrong_in_ip(value: &str) -> Option<String> {
    match strict_ip(value) {
        Err(text) => Some(text.to_owned()),
        Ok(address) => canonical(value, &address.to_string()),
    }
}

/// Returns the error for a range that is invalid or not in canonical form (`IsValidCIDR`).
pub(crate) fn wrong_in_cidr(value: &str) -> Option<String> {
    match strict_cidr(value) {
        Err(text) => Some(text.to_owned()),
        Ok((address, length)) => canonical(value, &format!("{address}/{length}")),
    }
}

/// Returns the error for an invalid interface address, which is an address with the prefix length of its network
/// (`IsValidInterfaceAddress`).
pub(crate) fn wrong_in_interface_address(value: &str) -> Option<String> {
    let Some((address, length)) = parse_sloppy_cidr(value) else {
        return Some("must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)".to_owned());
    };
    let plain = address.to_canonical();
    let length = match plain.is_ipv4() && length > 32 {
        true => length - 96,
        false => length,
    };
    canonical(value, &format!("{plain}/{length}"))
}

fn canonical(value: &str, canonical: &str) -> Option<String> {
    (value != canonical).then(|| format!("must be in canonical form ({canonical:?})"))
}

/// Returns the warning about an address that is not in canonical form (`GetWarningsForIP`).
pub(crate) fn warn_of_ip(path: &FieldPath, value: &str) -> Option<String> {
    let canonical = parse_sloppy(value)?.to_canonical().to_string();
    match value.parse::<IpAddr>() {
        Ok(IpAddr::V6(it)) if it.to_ipv4_mapped().is_none() => (canonical != value)
            .then(|| format!("{path}: IPv6 address {value:?} should be in RFC 5952 canonical format ({canonical:?})")),
        Ok(IpAddr::V4(_)) => None,
        _ => Some(format!(
            "{path}: non-standard IP address {value:?} is invalid: use {canonical:?}"
        )),
    }
}

/// Returns the warnings about the addresses of load balancers in a status.
pub(crate) fn warnings_of_points(points: &Cursor<'_>) -> Vec<String> {
    let warn = |point: Cursor<'_>| warn_of_ip(&point.path(), point.text("ip"));
    points.items("").filter_map(warn).collect()
}

/// Returns the warnings about a range that is not in canonical form (`GetWarningsForCIDR`).
pub(crate) fn warn_of_cidr(path: &FieldPath, value: &str) -> Vec<String> {
    let Some((address, length)) = parse_sloppy_cidr(value) else {
        return Vec::new();
    };
    let is_mapped = matches!(address, IpAddr::V6(it) if it.to_ipv4_mapped().is_some());
    let shown = |address: IpAddr| match is_mapped && length >= 96 {
        true => format!("{}/{}", address.to_canonical(), length - 96),
        false => format!("{address}/{length}"),
    };
    let network = masked(address, length);
    let mut warnings = Vec::new();
    if network != address {
        let (range, bits) = (shown(network), if address.is_ipv4() { 32 } else { 128 });
        let single = format!("{}/{bits}", address.to_canonical());
        warnings.push(format!(
            "{path}: CIDR value {value:?} is ambiguous in this context (should be {range:?} or {single:?}?)"
        ));
    }
    if is_mapped || parse_cidr(value).is_none() {
        let range = shown(network);
        warnings.push(format!(
            "{path}: non-standard CIDR value {value:?} is invalid: use {range:?}"
        ));
    }
    let canonical = shown(address);
    if warnings.is_empty() && address.is_ipv6() && canonical != value {
        warnings.push(format!(
            "{path}: IPv6 CIDR value {value:?} should be in RFC 5952 canonical format ({canonical:?})"
        ));
    }
    warnings
}

pub(crate) fn parse_sloppy_cidr(value: &str) -> Option<(IpAddr, u32)> {
    let (address, length) = value.split_once('/')?;
    parse_cidr(&format!("{}/{}", parse_sloppy(address)?, without_zeros(length)))
}

/// Parses an address, in which decimal parts may have leading zeros as in old versions of Go (`ParseIPSloppy`).
pub(crate) fn parse_sloppy(value: &str) -> Option<IpAddr> {
    let (head, tail) = value.rsplit_once(':').map_or(("", value), |(head, tail)| (head, tail));
    if !tail.contains('.') {
        return value.parse().ok();
    }
    let parts: Vec<&str> = tail.split('.').map(without_zeros).collect();
    let tail = parts.join(".");
    match head.is_empty() && !value.starts_with(':') {
        true => tail.parse().ok(),
        false => format!("{head}:{tail}").parse().ok(),
    }
}

fn without_zeros(digits: &str) -> &str {
    match digits.trim_start_matches('0') {
        "" if !digits.is_empty() => "0",
        rest => rest,
    }
}

/// Checks that the string is an address that is permitted in endpoints (`ValidateEndpointIP`).
pub(crate) fn validate_endpoint_ip(address: &Cursor<'_>, errors: &mut FieldErrors) {
    let text = address.as_text();
    match parse_sloppy(text) {
        Some(parsed) => validate_ordinary_ip(parsed, address, errors),
        None => errors.invalid(address, text, "must be a valid IP address"),
    }
}

/// Checks that an address is permitted in endpoints. Errors have the path and the value of `shown`.
pub(crate) fn validate_ordinary_ip(address: IpAddr, shown: &Cursor<'_>, errors: &mut FieldErrors) {
    let value = shown.as_text();
    // Go parses an IPv4-mapped IPv6 address as an IPv4 address.
    let address = address.to_canonical();
    let (link_local, link_local_multicast) = match address {
        IpAddr::V4(it) => (it.is_link_local(), it.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(it) => (it.is_unicast_link_local(), it.segments()[0] & 0xff0f == 0xff02),
    };
    let unspecified = format!("may not be unspecified ({value})");
    for (is_special, text) in [
        (address.is_unspecified(), unspecified.as_str()),
        (
            address.is_loopback(),
            "may not be in the loopback range (127.0.0.0/8, ::1/128)",
        ),
        (
            link_local,
            "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
        ),
        (
            link_local_multicast,
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        ),
    ] {
        if is_special {
            errors.invalid(shown, value, text);
        }
    }
}

/// Parses a range of addresses. Returns the address and the prefix length.
pub(crate) fn parse_cidr(value: &str) -> Option<(IpAddr, u32)> {
    let (address, length) = value.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    let is_decimal = length.bytes().all(|b| b.is_ascii_digit()) && (length == "0" || !length.starts_with('0'));
    let length: u32 = length.parse().ok().filter(|&it| is_decimal && it <= max)?;
    Some((address, length))
}

/// Parses a range, or adds an error.
pub(crate) fn validate_cidr(range: &Cursor<'_>, errors: &mut FieldErrors) -> Option<(IpAddr, u32)> {
    let parsed = strict_cidr(range.as_text());
    parsed.map_err(|text| errors.invalid(range, range.as_text(), text)).ok()
}

/// Returns the first address of the range with the prefix length `length` that contains `address`.
pub(crate) fn masked(address: IpAddr, length: u32) -> IpAddr {
    match address {
        IpAddr::V4(it) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(length)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(it.to_bits() & mask))
        }
        IpAddr::V6(it) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(length)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(it.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("10.9.8.7", None)]
    #[case("2001:db8::ffff", None)]
    #[case("2001:DB8::ffff", Some("must be in canonical form (\"2001:db8::ffff\")"))]
    #[case("010.9.8.7", Some("must not have leading 0s"))]
    #[case("::ffff:10.9.8.7", Some("must not be an IPv4-mapped IPv6 address"))]
    #[case("10.9.8", Some(NOT_AN_ADDRESS))]
    #[case("1num", Some(NOT_AN_ADDRESS))]
    fn invalid_and_non_canonical_addresses_are_detected(#[case] value: &str, #[case] expected: Option<&str>) {
        assert_eq!(wrong_in_ip(value).as_deref(), expected);
    }

    #[rstest]
    #[case("10.9.8.0/24", None)]
    #[case("2001:db8::/64", None)]
    #[case("2001:DB8::/64", Some("must be in canonical form (\"2001:db8::/64\")"))]
    #[case("10.9.8.0/024", Some("must not have leading 0s in IP or prefix length"))]
    #[case("010.9.8.0/24", Some("must not have leading 0s in IP or prefix length"))]
    #[case("10.9.8.1/24", Some("must not have bits set beyond the prefix length"))]
    #[case("10.9.8.0", Some("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"))]
    fn invalid_and_non_canonical_ranges_are_detected(#[case] value: &str, #[case] expected: Option<&str>) {
        assert_eq!(wrong_in_cidr(value).as_deref(), expected);
    }

    #[rstest]
    #[case("10.9.8.0/24", None)]
    #[case("::/0", None)]
    #[case("10.9.8.1/24", Some("must not have bits set beyond the prefix length"))]
    #[case("10.9.8.0", Some("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"))]
    #[case(
        "10.9.8.0/33",
        Some("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")
    )]
    #[case(
        "10.9.8.0/+4",
        Some("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")
    )]
    fn cidr_ranges_are_validated(#[case] value: &str, #[case] expected: Option<&str>) {
        let mut errors = FieldErrors::new();
        let range = value.into();
        validate_cidr(&Cursor::value_at(Some(&range), &FieldPath::new("cidr")), &mut errors);
        assert_eq!(errors.iter().next().map(|error| error.detail.as_str()), expected);
    }
}
