//! IP addresses and CIDR ranges, modelled on `k8s.io/apiserver/pkg/cel/library/ip.go` and `cidr.go`.

use std::net::IpAddr;
use std::sync::Arc;

use super::addresses;
use super::values::{EvalFailure, Evaluated, overload};
use crate::api::field::quote;
use crate::registry::cel::objects::{Opaque, Value as CelValue};
use crate::registry::types::net;

/// An IP address.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ip(IpAddr);

impl Opaque for Ip {
    fn runtime_type_name(&self) -> &str {
        "net.IP"
    }
}

/// A range of addresses: an address and the length of its prefix.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cidr(IpAddr, u32);

impl Opaque for Cidr {
    fn runtime_type_name(&self) -> &str {
        "net.CIDR"
    }
}

/// Returns the number of bytes in an address, or in the prefix of a range, used to compute costs.
pub(super) fn size(value: &CelValue) -> Option<usize> {
    if let Some(Ip(address)) = value_of(value) {
        return Some(if address.is_ipv4() { 4 } else { 16 });
    }
    value_of(value).map(|Cidr(_, length)| length.div_ceil(8) as usize)
}

fn value_of<T: Opaque>(value: &CelValue) -> Option<&T> {
    match value {
        CelValue::Opaque(opaque) => opaque.downcast_ref::<T>(),
        _ => None,
    }
}

/// Calls a function of addresses and ranges; returns `None` for other functions.
pub(super) fn call(name: &str, is_method: bool, args: &[CelValue]) -> Option<Evaluated> {
    match (name, is_method, args) {
        ("ip", false, [CelValue::String(text)]) => Some(parse_ip(text).map(ip)),
        ("isIP", false, [CelValue::String(text)]) => Some(Ok(CelValue::Bool(parse_ip(text).is_ok()))),
        ("ip.isCanonical", false, [CelValue::String(text)]) => {
            Some(parse_ip(text).map(|it| CelValue::Bool(it.to_string() == **text)))
        }
        ("cidr", false, [CelValue::String(text)]) => Some(parse_cidr(text).map(|(it, length)| cidr(it, length))),
        ("isCIDR", false, [CelValue::String(text)]) => Some(Ok(CelValue::Bool(parse_cidr(text).is_ok()))),
        ("string", false, [value]) => {
            let text = value_of(value).map(|Ip(address)| address.to_string());
            let text = text.or_else(|| value_of(value).map(|Cidr(address, length)| format!("{address}/{length}")));
            text.map(|text| Ok(CelValue::String(Arc::new(text))))
        }
        (_, true, [value, rest @ ..]) => {
            if let Some(Ip(address)) = value_of(value) {
                return of_ip(name, *address, rest);
            }
            let Cidr(address, length) = value_of(value)?;
            of_cidr(name, *address, *length, rest)
        }
        _ => None,
    }
}

fn ip(address: IpAddr) -> CelValue {
    CelValue::Opaque(Arc::new(Ip(address)))
}

fn cidr(address: IpAddr, length: u32) -> CelValue {
    CelValue::Opaque(Arc::new(Cidr(address, length)))
}

fn of_ip(name: &str, address: IpAddr, args: &[CelValue]) -> Option<Evaluated> {
    if !args.is_empty() {
        return None;
    }
    let is_local = match address {
        IpAddr::V4(it) => it.is_link_local(),
        IpAddr::V6(it) => it.is_unicast_link_local(),
    };
    let is_local_multicast = match address {
        IpAddr::V4(it) => it.octets()[..3] == [224, 0, 0],
        IpAddr::V6(it) => it.segments()[0] & 0xff0f == 0xff02,
    };
    let is_global = match address {
        IpAddr::V4(it) => !it.is_unspecified() && !it.is_broadcast() && !it.is_loopback() && !it.is_multicast(),
        IpAddr::V6(it) => !it.is_unspecified() && !it.is_loopback() && !it.is_multicast(),
    };
    Some(Ok(match name {
        "family" => CelValue::Int(if address.is_ipv4() { 4 } else { 6 }),
        "isUnspecified" => CelValue::Bool(address.is_unspecified()),
        "isLoopback" => CelValue::Bool(address.is_loopback()),
        "isLinkLocalMulticast" => CelValue::Bool(is_local_multicast),
        "isLinkLocalUnicast" => CelValue::Bool(is_local),
        "isGlobalUnicast" => CelValue::Bool(is_global && !is_local),
        _ => return None,
    }))
}

fn of_cidr(name: &str, address: IpAddr, length: u32, args: &[CelValue]) -> Option<Evaluated> {
    let is_inside = |other: IpAddr| {
        other.is_ipv4() == address.is_ipv4() && net::masked(other, length) == net::masked(address, length)
    };
    let contains = |other: IpAddr, longer: u32| CelValue::Bool(longer >= length && is_inside(other));
    Some(Ok(match (name, args) {
        ("ip", []) => ip(address),
        ("prefixLength", []) => CelValue::Int(i64::from(length)),
        ("masked", []) => cidr(net::masked(address, length), length),
        // For an invalid address, Go returns the error for an argument of an unsupported type.
        ("containsIP", [CelValue::String(text)]) => match parse_ip(text) {
            Ok(it) => contains(it, length),
            Err(_) => return Some(Err(overload())),
        },
        ("containsIP", [other]) => value_of(other).map(|Ip(it)| contains(*it, length))?,
        ("containsCIDR", [CelValue::String(text)]) => {
            return Some(parse_cidr(text).map(|(it, longer)| contains(it, longer)));
        }
        ("containsCIDR", [other]) => value_of(other).map(|Cidr(it, longer)| contains(*it, *longer))?,
        _ => return None,
    }))
}

fn parse_ip(text: &str) -> Result<IpAddr, EvalFailure> {
    let fail = |error: String| Err(EvalFailure::Error(error));
    let quoted = quote(text);
    if let Some((_, zone)) = text.split_once('%')
        && !zone.is_empty()
        && text.contains(':')
    {
        return fail(format!("IP address {quoted} with zone value is not allowed"));
    }
    let Ok(address) = text.parse::<IpAddr>() else {
        let why = addresses::problem(text);
        return fail(format!(
            "IP Address {quoted} parse error during conversion from string: {why}"
        ));
    };
    match address {
        IpAddr::V6(it) if it.to_ipv4_mapped().is_some() => {
            fail(format!("IPv4-mapped IPv6 address {quoted} is not allowed"))
        }
        address => Ok(address),
    }
}

fn parse_cidr(text: &str) -> Result<(IpAddr, u32), EvalFailure> {
    const START: &str = "network address parse error during conversion from string";
    let quoted = quote(text);
    match net::parse_cidr(text) {
        Some((IpAddr::V6(it), _)) if it.to_ipv4_mapped().is_some() => Err(EvalFailure::Error(format!(
            "{START}: IPv4-mapped IPv6 address {quoted} is not allowed"
        ))),
        Some(range) => Ok(range),
        None => Err(EvalFailure::Error(format!(
            "{START}: {START}: netip.ParsePrefix({quoted}): {}",
            wrong_in_prefix(text)
        ))),
    }
}

/// Returns Go's error for an invalid prefix.
fn wrong_in_prefix(text: &str) -> String {
    let Some((address, length)) = text.rsplit_once('/') else {
        return "no '/'".to_owned();
    };
    if address.parse::<IpAddr>().is_err() {
        return addresses::problem(address);
    }
    match length.parse::<u32>() {
        Ok(_) if !length.starts_with('+') => "prefix length out of range".to_owned(),
        _ => format!("bad bits after slash: {}", quote(length)),
    }
}
