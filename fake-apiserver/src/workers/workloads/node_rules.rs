//! Rules for placing a Pod on a Node, independent of other Pods: taints, node selectors and node affinity.

use super::pods::label;
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;

/// Returns `true` if a Pod tolerates a taint.
pub(crate) fn tolerates(pod: &Object, taint: &Value) -> bool {
    let of_taint = |name: &str| taint.get(name).and_then(Value::as_str).unwrap_or_default();
    Cursor::root(pod).maps("spec.tolerations").any(|it| {
        let (key, effect) = (Cursor::root(it).text("key"), Cursor::root(it).text("effect"));
        let key_fits = key.is_empty() || key == of_taint("key");
        let effect_fits = effect.is_empty() || effect == of_taint("effect");
        let value_fits = match Cursor::root(it).text("operator") {
            "Exists" => true,
            _ => !key.is_empty() && Cursor::root(it).text("value") == of_taint("value"),
        };
        key_fits && effect_fits && value_fits
    })
}

/// Returns `true` if a Pod tolerates all taints of a node with the effect `NoSchedule` or `NoExecute`.
pub(crate) fn tolerates_node(pod: &Object, node: &Object) -> bool {
    let keeps_out = |taint: &&Value| {
        let effect = taint.get("effect").and_then(Value::as_str);
        matches!(effect, Some("NoSchedule" | "NoExecute"))
    };
    let mut taints = Cursor::root(node).list("spec.taints").iter().filter(keeps_out);
    taints.all(|it| tolerates(pod, it))
}

/// Returns `true` if a node matches `nodeSelector` and the required node affinity of a Pod.
pub(crate) fn fits_affinity(pod: &Object, node: &Object) -> bool {
    let empty = Map::new();
    let labels = node
        .metadata()
        .map_or(&empty, |meta| Cursor::root(meta).map_or_empty("labels"));
    let selector = Cursor::root(pod).map_or_empty("spec.nodeSelector");
    if !selector.iter().all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    let affinity = Cursor::root(pod).map_or_empty("spec.affinity.nodeAffinity");
    let Some(required) = Cursor::root(affinity).map("requiredDuringSchedulingIgnoredDuringExecution") else {
        return true;
    };
    Cursor::root(required)
        .maps("nodeSelectorTerms")
        .any(|term| fits_term(term, node))
}

/// Returns `true` if a node matches a term of a node selector; an empty term does not match any node.
pub(crate) fn fits_term(term: &Map, node: &Object) -> bool {
    let term = Cursor::root(term);
    let by_label = |it: &Map| expression_holds(it, label(node, Cursor::root(it).text("key")));
    let by_field = |it: &Map| expression_holds(it, Some(node.name()));
    let is_empty = term.is_empty("matchExpressions") && term.is_empty("matchFields");
    term.maps("matchExpressions").all(by_label) && term.maps("matchFields").all(by_field) && !is_empty
}

fn expression_holds(expression: &Map, value: Option<&str>) -> bool {
    let values = Cursor::root(expression).list("values");
    let is_in = value.is_some_and(|value| values.iter().any(|it| it.as_str() == Some(value)));
    let compare = || {
        let limit = values
            .first()
            .and_then(Value::as_str)
            .and_then(|it| it.parse::<i64>().ok());
        value.and_then(|it| it.parse::<i64>().ok()).zip(limit)
    };
    match Cursor::root(expression).text("operator") {
        "In" => is_in,
        "NotIn" => !is_in,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare().is_some_and(|(value, limit)| value > limit),
        "Lt" => compare().is_some_and(|(value, limit)| value < limit),
        _ => false,
    }
}
