//! Converts between the two forms of the kinds of `resource.k8s.io`. In the older form (`v1beta1` and `v1alpha3`), the
//! fields of an exact request are one level higher than in `v1beta2` and `v1`, and the fields of a device are one level
//! lower. Follows `pkg/apis/resource/v1beta1/conversion.go`.

use crate::api::json::{Map, SmolStr, Value};
use crate::api::object::Object;
use crate::registry::types::edit::{items_mut, object_mut};

/// Returns `true` if objects of this version have the older form.
pub(super) fn is_old(api_version: &str) -> bool {
    matches!(api_version, "resource.k8s.io/v1beta1" | "resource.k8s.io/v1alpha3")
}

fn is_alpha(api_version: &str) -> bool {
    api_version == "resource.k8s.io/v1alpha3"
}

/// Converts an object to `api_version`. If the form differs, calls `change` with the object and a flag, which is set
/// when converting to the older form.
fn convert(object: &mut Object, api_version: &str, change: impl Fn(&mut Object, bool)) {
    let is_old = is_old(api_version);
    if self::is_old(object.api_version()) != is_old {
        change(object, is_old);
    }
    object.insert("apiVersion".into(), api_version.into());
}

/// Converts a claim or a template. `way` is the path of its requests.
pub(super) fn convert_requests(object: &mut Object, api_version: &str, way: &str) {
    convert(object, api_version, |object, is_old| {
        for request in items_mut(object, way) {
            match is_old {
                true => flatten(request, "exactly"),
                false => nest(request),
            }
        }
    });
}

/// Converts the devices of a slice. In `v1alpha3`, a capacity is a quantity and not an object.
pub(super) fn convert_slice(object: &mut Object, api_version: &str) {
    let (was_alpha, is_alpha) = (is_alpha(object.api_version()), is_alpha(api_version));
    convert(object, api_version, |object, is_old| {
        let Some(spec) = object_mut(object, "spec") else {
            return;
        };
        for device in items_mut(spec, "devices") {
            match is_old {
                true => {
                    let basic = Value::Object(take_except(device, &["name"]));
                    device.insert("basic".into(), basic);
                }
                false => flatten(device, "basic"),
            }
        }
        // These fields are only pointers in the newer form. In the older form, a zero value is the same as an absent
        // field.
        spec.retain(|field, value| !(matches!(field.as_str(), "nodeName" | "allNodes") && is_zero(value)));
    });
    if was_alpha != is_alpha {
        convert_capacities(object, is_alpha);
    }
}

/// Converts the capacities of a slice from objects to quantities if `to_alpha` is set, otherwise from quantities to
/// objects.
fn convert_capacities(slice: &mut Object, to_alpha: bool) {
    let at = match is_old(slice.api_version()) {
        true => "basic.capacity",
        false => "capacity",
    };
    let devices = object_mut(slice, "spec")
        .into_iter()
        .flat_map(|it| items_mut(it, "devices"));
    for value in devices.filter_map(|it| object_mut(it, at)).flat_map(Map::values_mut) {
        if !to_alpha {
            *value = Value::Object(Map::from_iter([("value", std::mem::take(value))]));
        } else if let Some(quantity) = value.as_object_mut().and_then(|it| it.remove("value")) {
            *value = quantity;
        }
    }
}

/// Moves the fields of an exact request into `exactly`, if at least one of them is set (`hasAnyMainRequestFieldsSet`).
fn nest(request: &mut Map) {
    let exactly = take_except(request, &["name", "firstAvailable"]);
    let is_set = |(field, value): (&SmolStr, &Value)| !is_zero(value) || *field == "adminAccess" && !value.is_null();
    if exactly.iter().any(is_set) {
        request.insert("exactly".into(), Value::Object(exactly));
    }
}

/// Removes all fields except `kept` from a map, and returns the removed fields.
fn take_except(map: &mut Map, kept: &[&str]) -> Map {
    let (stay, taken) = std::mem::take(map)
        .into_iter()
        .partition(|(field, _)| kept.contains(&field.as_str()));
    *map = stay;
    taken
}

/// Moves the fields of the object in `field` into `map`.
fn flatten(map: &mut Map, field: &str) {
    if let Some(Value::Object(inner)) = map.remove(field) {
        map.extend(inner);
    }
}

/// Returns `true` for the zero value of a field that is not a pointer. Empty lists and maps are not zero values.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Bool(true) | Value::Array(_) | Value::Object(_) => false,
    }
}
