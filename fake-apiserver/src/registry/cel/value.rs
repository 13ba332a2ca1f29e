//! Converts JSON without a schema to CEL values.

use std::collections::HashMap;
use std::sync::Arc;

use crate::api::json::Value;
use crate::registry::cel::objects::{Key, Map as CelMap, Value as CelValue};

/// Converts a value. Object fields with the value null are omitted, like unset fields.
pub(crate) fn from_json(value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(value) => CelValue::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(number) => CelValue::Int(number),
            None => CelValue::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => CelValue::String(Arc::new(text.to_string())),
        Value::Array(list) => CelValue::List(Arc::new(list.iter().map(from_json).collect())),
        Value::Object(map) => {
            let set = map.iter().filter(|(_, value)| !value.is_null());
            let fields: HashMap<Key, CelValue> = set
                .map(|(name, value)| (Key::String(Arc::new(name.to_string())), from_json(value)))
                .collect();
            CelValue::Map(CelMap::from(fields))
        }
    }
}
