//! Requests of Pods, amounts and selectors of metrics, and their formats.

use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::quantity::Quantity;
use crate::workers::workloads::fit;
use crate::workers::workloads::go_text::go_selector;
use crate::workers::workloads::pods::sidecars;

/// Returns the request of a Pod or of one of its containers, in thousandths (Go's `calculateRequests`).
pub(super) fn requests(pod: &Object, name: &str, container: &str) -> Result<i128, String> {
    let own = Cursor::root(pod)
        .map("spec.resources.requests")
        .filter(|it| !it.is_empty());
    if own.is_some() && container.is_empty() {
        let amount = fit::requests(pod).get(name).map(Quantity::milli_value);
        let missing = || format!("missing pod-level request for {name} in Pod {}", pod.name());
        return amount.map(i128::from).ok_or_else(missing);
    }
    let mut sum = None;
    for it in Cursor::root(pod).maps("spec.containers").chain(sidecars(pod)) {
        let its_name = Cursor::root(it).text("name");
        if !container.is_empty() && its_name != container {
            continue;
        }
        let request = Cursor::root(it).map_or_empty("resources.requests").get(name);
        let missing = || {
            format!(
                "missing request for {name} in container {its_name} of Pod {}",
                pod.name()
            )
        };
        let request = request.and_then(Value::as_str).ok_or_else(missing)?;
        sum = Some(sum.unwrap_or(0) + milli(request));
    }
    match sum {
        None if !container.is_empty() => Err(format!("container {container} not found in Pod {}", pod.name())),
        sum => Ok(sum.unwrap_or(0)),
    }
}

/// Returns the name and the selector of a metric, as in the status.
pub(super) fn identifier(metric: &Map) -> Value {
    metric.get("metric").cloned().unwrap_or_default()
}

/// Formats the selector of a metric.
pub(super) fn selector_text(metric: &Map) -> String {
    go_selector(Cursor::root(metric).map("metric.selector"))
}

/// Parses a quantity as thousandths; 0 if it is absent. The sums of such numbers fit into an `i128`.
pub(super) fn milli(text: &str) -> i128 {
    Quantity::parse(text).map_or(0, |it| it.milli_value().into())
}

/// Formats thousandths as a quantity in canonical form.
pub(super) fn quantity(milli: i128) -> String {
    let text = format!("{milli}m");
    Quantity::parse(&text).map_or(text, |it| it.to_string())
}

/// Formats the amount of a resource; bytes have binary suffixes.
pub(super) fn amount(resource: &str, milli: i128) -> String {
    let mut units = milli / 1000;
    if resource != "memory" || milli % 1000 != 0 || units < 1024 {
        return quantity(milli);
    }
    let mut step = 0;
    while units % 1024 == 0 && step < 6 {
        units /= 1024;
        step += 1;
    }
    format!("{units}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][step])
}
