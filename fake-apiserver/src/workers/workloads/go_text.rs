//! Formats values like Go's `%+v`, for messages that contain them.

use std::collections::BTreeMap;

use crate::api::json::{Map, Value};
use crate::registry::types::cursor::Cursor;

/// Formats a label selector.
pub(crate) fn go_selector(selector: Option<&Map>) -> String {
    let Some(selector) = selector else {
        return "nil".to_owned();
    };
    let labels = Cursor::root(selector).map_or_empty("matchLabels").iter();
    let labels: BTreeMap<&str, &str> = labels
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or("")))
        .collect();
    let labels: Vec<String> = labels
        .into_iter()
        .map(|(key, value)| format!("{key}: {value},"))
        .collect();
    let expression = |it: &Map| {
        let it = Cursor::root(it);
        let values: Vec<&str> = it.list("values").iter().filter_map(Value::as_str).collect();
        let (key, operator) = (it.text("key"), it.text("operator"));
        format!(
            "LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{}],}},",
            values.join(" ")
        )
    };
    let expressions: String = Cursor::root(selector)
        .maps("matchExpressions")
        .map(expression)
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}",
        labels.join(" ")
    )
}
