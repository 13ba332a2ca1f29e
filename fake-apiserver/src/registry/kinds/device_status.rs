//! Validation of the device statuses that drivers write into claims (`validateDeviceStatus` in
//! `pkg/apis/resource/validation`).

use super::device::{check_driver_name, check_raw};
use super::resource_slice::validate_pool_name;
use crate::api::field::FieldErrors;
use crate::api::json::{Value, json};
use crate::registry::types::conditions::validate_conditions;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::{names, net};

const CONDITIONS_MAX: usize = 8;
const DATA_MAX: usize = 10 * 1024;
const ADDRESSES_MAX: usize = 16;
/// Fields of a network device with their maximum lengths in bytes.
const NETWORK_TEXTS: [(&str, usize); 2] = [("interfaceName", 256), ("hardwareAddress", 128)];

/// Returns the driver, pool, device and share ID, which together identify a device.
pub(super) fn device_id(it: &Cursor<'_>) -> [String; 4] {
    ["driver", "pool", "device", "shareID"].map(|field| it.text(field).to_owned())
}

/// Checks the status of one device (`validateDeviceStatus`).
pub(super) fn validate_device_status(device: &Cursor<'_>, is_allocated: bool, errors: &mut FieldErrors) {
    check_driver_name(&device.at("driver"), errors);
    validate_pool_name(&device.at("pool"), errors);
    let name = device.at("device");
    name.check_texts(names::dns1123_label(name.as_text(), false), errors);
    check_share(&device.at("shareID"), errors);
    if !is_allocated {
        let [driver, pool, name, share] = device_id(device);
        let id = json!({"Driver": driver, "Pool": pool, "Device": name, "ShareID": share});
        errors.invalid(device, id, "must be an allocated device in the claim");
    }
    let conditions = device.at("conditions");
    let count = conditions.list("").len();
    if count > CONDITIONS_MAX {
        errors.too_many(conditions, count, CONDITIONS_MAX);
    }
    validate_conditions(&conditions, errors);
    let data = device.at("data");
    if data.is_set("") {
        check_raw(&data, DATA_MAX, errors);
    }
    validate_network(&device.at("networkData"), errors);
}

/// Checks the id of a share, if it is set (`validateUID`).
pub(super) fn check_share(share: &Cursor<'_>, errors: &mut FieldErrors) {
    if !share.is_set("") {
        return;
    }
    let text = share.as_text();
    if let Some(problem) = wrong_in_uuid(text) {
        errors.invalid(share, text, format!("error validating uid: {problem}"));
    } else if text.len() != 36 || text.bytes().any(|b| b.is_ascii_uppercase()) {
        let rule = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase \
                    hexadecimal characters";
        errors.invalid(share, text, rule);
    }
}

/// Returns the error of Go's `uuid.Validate`, which also accepts the prefix `urn:uuid:`, braces, and ids without
/// dashes.
fn wrong_in_uuid(text: &str) -> Option<String> {
    const FORMAT: &str = "invalid UUID format";
    let bytes = text.as_bytes();
    let inner = match bytes.len() {
        36 => bytes,
        45 => {
            let prefix = &bytes[..9];
            if !prefix.eq_ignore_ascii_case(b"urn:uuid:") {
                let shown = crate::api::field::quote(&String::from_utf8_lossy(prefix));
                return Some(format!("invalid urn prefix: {shown}"));
            }
            &bytes[9..]
        }
        38 => match bytes {
            [b'{', inner @ .., b'}'] => inner,
            _ => return Some("invalid bracketed UUID format".to_owned()),
        },
        32 => {
            let is_right = bytes.iter().all(u8::is_ascii_hexdigit);
            return (!is_right).then(|| FORMAT.to_owned());
        }
        len => return Some(format!("invalid UUID length: {len}")),
    };
    let is_right = inner.iter().enumerate().all(|(index, b)| match index {
        8 | 13 | 18 | 23 => *b == b'-',
        _ => b.is_ascii_hexdigit(),
    });
    (!is_right).then(|| FORMAT.to_owned())
}

/// Checks the network data of a device (`validateNetworkDeviceData`).
fn validate_network(network: &Cursor<'_>, errors: &mut FieldErrors) {
    for (field, max) in NETWORK_TEXTS {
        if network.text(field).len() > max {
            errors.too_long(network.at(field), max);
        }
    }
    let addresses = network.at("ips");
    let key = |it: &Cursor<'_>| Value::from(it.as_text());
    super::device::check_set(&addresses, ADDRESSES_MAX, key, errors, |it, errors| {
        if let Some(text) = net::wrong_in_interface_address(it.as_text()) {
            errors.invalid(it, it.as_text(), text);
        }
    });
}
