//! Shared parameters of OpenAPI v2. As in kube-openapi's builder, most parameters are references to `#/parameters/…`,
//! with the same names.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE;

use super::META;
use crate::api::json::{Value, escape_html, json};

/// The shared parameters by name.
pub(super) type Shared = BTreeMap<String, Value>;

/// Returns a reference to the parameter if operations share it, otherwise the parameter itself.
pub(super) fn share(parameter: Value, shared: &mut Shared) -> Value {
    if !is_shared(&parameter) {
        return parameter;
    }
    let name = format!("{}-{}", text(&parameter, "name"), hash(&canonical(&parameter)));
    let reference = json!({"$ref": format!("#/parameters/{name}")});
    shared.insert(name, parameter);
    reference
}

/// Returns `false` for parameters that differ between kinds, and for parameters that kubectl inspects to detect
/// features of a server.
fn is_shared(parameter: &Value) -> bool {
    match (text(parameter, "in"), text(parameter, "name")) {
        (_, "name") | ("query", "fieldValidation" | "dryRun") => false,
        ("body", _) => {
            let reference = parameter["schema"]["$ref"].as_str().unwrap_or_default();
            reference
                .strip_prefix("#/definitions/")
                .is_some_and(|it| it.starts_with(META))
        }
        _ => true,
    }
}

fn text<'a>(parameter: &'a Value, field: &str) -> &'a str {
    parameter[field].as_str().unwrap_or_default()
}

/// Encodes a parameter like Go.
fn canonical(parameter: &Value) -> String {
    let order = ["uniqueItems", "type", "description", "name", "in", "required", "schema"];
    let fields = order.iter().filter_map(|name| Some((*name, parameter.get(*name)?)));
    let fields: Vec<String> = fields.map(|(name, value)| format!("\"{name}\":{value}")).collect();
    escape_html(&format!("{{{}}}", fields.join(",")))
}

/// Returns the first six bytes of the FNV-1 hash, as base64.
fn hash(text: &str) -> String {
    let step = |hash: u64, byte: u8| hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    BASE64_URL_SAFE.encode(&hash.to_be_bytes()[..6])
}
