//! `/scale` of custom resources: maps fields of the object to an autoscaling/v1 Scale (rule I2).

use super::definition::ScalePaths;
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::types::go_text::{go_text, go_type};

/// Placeholder for missing replicas while a Scale is updated or patched.
const UNSET: i32 = i32::MIN;

/// Returns the Scale for a GET.
pub(crate) fn get(object: &Object, paths: &ScalePaths) -> Result<Object, Status> {
    let scale = read(object, paths)?;
    if scale.replicas.is_none() {
        let field = &paths.spec_replicas;
        return Err(Status::internal(format!(
            "the spec replicas field \"{field}\" does not exist"
        )));
    }
    Ok(scale.to_object(object))
}

/// Returns the Scale that a PUT or PATCH changes. Missing replicas are set to a placeholder that clients do not send
/// and that [`update`] refuses.
pub(crate) fn before_update(object: &Object, paths: &ScalePaths) -> Result<Object, Status> {
    let mut scale = read(object, paths)?;
    scale.replicas.get_or_insert(i64::from(UNSET));
    Ok(scale.to_object(object))
}

/// Returns the Scale for the response to a PUT or PATCH.
pub(crate) fn after_update(object: &Object, paths: &ScalePaths) -> Result<Object, Status> {
    Ok(read(object, paths)?.to_object(object))
}

/// Writes a Scale into the object. The Scale's resourceVersion is copied as well, so that it is compared with the
/// stored one.
pub(crate) fn update(object: &mut Object, scale: &Object, paths: &ScalePaths) -> Result<(), Status> {
    let replicas = scale
        .get("spec")
        .and_then(|it| it.get("replicas"))
        .and_then(Value::as_i64)
        .unwrap_or(0);
    if replicas == i64::from(UNSET) {
        let field = &paths.spec_replicas;
        return Err(Status::bad_request(format!(
            "the spec replicas field \"{field}\" cannot be empty"
        )));
    }
    set(object, &paths.spec_replicas, replicas.into()).map_err(|error| Status::new(500, "", error))?;
    let resource_version = scale.meta_str("resourceVersion");
    if !resource_version.is_empty() {
        let value = Value::from(resource_version);
        object.metadata_mut().insert("resourceVersion".into(), value);
    }
    Ok(())
}

/// Checks the fields used by `/scale`. Fields in the spec are only checked if `with_spec` is set.
pub(super) fn validate(object: &Object, paths: &ScalePaths, with_spec: bool, errors: &mut FieldErrors) {
    let spec = with_spec.then_some(&paths.spec_replicas);
    for path in spec.into_iter().chain([&paths.status_replicas]) {
        let field = FieldPath::new(path);
        match number(object, path) {
            Err(error) => errors.invalid(field, 0, error),
            Ok(Some(replicas)) if replicas < 0 => {
                errors.invalid(field, replicas, "should be a non-negative integer");
            }
            Ok(Some(replicas)) if replicas > i64::from(i32::MAX) => {
                errors.invalid(field, replicas, format!("should be less than or equal to {}", i32::MAX));
            }
            Ok(_) => {}
        }
    }
    if let Some(path) = &paths.label_selector
        && let Err(error) = text(object, path)
    {
        errors.invalid(FieldPath::new(path), "", error);
    }
}

struct Scale {
    replicas: Option<i64>,
    status_replicas: i64,
    selector: String,
}

fn read(object: &Object, paths: &ScalePaths) -> Result<Scale, Status> {
    let fields = || -> Result<Scale, String> {
        Ok(Scale {
            replicas: number(object, &paths.spec_replicas)?,
            status_replicas: number(object, &paths.status_replicas)?.unwrap_or(0),
            selector: match &paths.label_selector {
                Some(path) => text(object, path)?.unwrap_or_default().to_owned(),
                None => String::new(),
            },
        })
    };
    fields().map_err(|error| Status::new(500, "", error))
}

impl Scale {
    fn to_object(&self, object: &Object) -> Object {
        let mut metadata = Map::new();
        for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            let value = object.meta_str(field);
            if !value.is_empty() {
                metadata.insert(field.into(), value.into());
            }
        }
        // Go truncates to 32 bits here, and omits zeros in the spec.
        let replicas = self.replicas.unwrap_or(0) as i32;
        let spec = if replicas == 0 {
            json!({})
        } else {
            json!({"replicas": replicas})
        };
        let mut status = json!({"replicas": self.status_replicas as i32});
        if !self.selector.is_empty() {
            status["selector"] = json!(self.selector);
        }
        let mut scale = Object::default();
        scale.insert("kind".into(), "Scale".into());
        scale.insert("apiVersion".into(), "autoscaling/v1".into());
        scale.insert("metadata".into(), Value::Object(metadata));
        scale.insert("spec".into(), spec);
        scale.insert("status".into(), status);
        scale
    }
}

fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.strip_prefix('.').unwrap_or(path).split('.')
}

/// Returns the value at a path, or an error if an inner value is not a map.
fn find<'a>(object: &'a Object, path: &str) -> Result<Option<&'a Value>, String> {
    let mut walked = String::new();
    let mut map = &object.0;
    let mut found: Option<&Value> = None;
    for step in steps(path) {
        if let Some(value) = found {
            map = match value {
                Value::Object(map) => map,
                Value::Null => return Ok(None),
                // Go's `NestedFieldNoCopy` prints the path of the field that it could not find.
                other => {
                    let path = format!("{walked}.{step}");
                    return Err(accessor_error(&path, other, "map[string]interface{}"));
                }
            };
        }
        walked.push('.');
        walked.push_str(step);
        found = match map.get(step) {
            Some(value) => Some(value),
            None => return Ok(None),
        };
    }
    Ok(found)
}

fn number(object: &Object, path: &str) -> Result<Option<i64>, String> {
    let Some(value) = find(object, path)? else {
        return Ok(None);
    };
    match value.as_i64() {
        Some(number) => Ok(Some(number)),
        None => Err(accessor_error(path, value, "int64")),
    }
}

fn text<'a>(object: &'a Object, path: &str) -> Result<Option<&'a str>, String> {
    let Some(value) = find(object, path)? else {
        return Ok(None);
    };
    match value {
        Value::String(text) => Ok(Some(text)),
        other => Err(accessor_error(path, other, "string")),
    }
}

fn accessor_error(path: &str, value: &Value, expected: &str) -> String {
    let kind = match value {
        Value::Null => "<nil>",
        other => go_type(other),
    };
    let shown = go_text(value);
    format!("{path} accessor error: {shown} is of the type {kind}, expected {expected}")
}

fn set(object: &mut Object, path: &str, value: Value) -> Result<(), String> {
    let steps: Vec<&str> = steps(path).collect();
    let Some((last, parents)) = steps.split_last() else {
        return Ok(());
    };
    let mut map = &mut object.0;
    for (index, step) in parents.iter().enumerate() {
        let next = map.entry(*step).or_insert_with(|| json!({}));
        map = match next {
            Value::Object(map) => map,
            _ => {
                let path = parents[..=index].join(".");
                return Err(format!(
                    "value cannot be set because .{path} is not a map[string]interface{{}}"
                ));
            }
        };
    }
    map.insert((*last).into(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::object;
    use super::*;

    fn paths() -> ScalePaths {
        ScalePaths {
            spec_replicas: ".spec.size".into(),
            status_replicas: ".status.size".into(),
            label_selector: Some(".status.sel".into()),
        }
    }

    #[test]
    fn i2_scale_contains_replicas_and_selector_of_the_object() {
        let mut widget = object(json!({"size": 2}));
        widget.insert("status".into(), json!({"size": 1, "sel": "a=b"}));
        let scale = get(&widget, &paths()).expect("the object has a scale");
        let expected = json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "a"},
            "spec": {"replicas": 2}, "status": {"replicas": 1, "selector": "a=b"},
        });
        assert_eq!(Value::Object(scale.0), expected);
    }

    #[test]
    fn i2_unset_replicas_are_an_error() {
        let mut widget = object(json!({}));
        let error = get(&widget, &paths()).expect_err("the replicas are unset");
        assert_eq!(
            error.message,
            "Internal error occurred: the spec replicas field \".spec.size\" does not exist"
        );
        let mut scale = before_update(&widget, &paths()).expect("the object has a scale");
        let error = update(&mut widget, &scale, &paths()).expect_err("the replicas are unset");
        assert_eq!(
            (error.code, error.message.as_str()),
            (400, "the spec replicas field \".spec.size\" cannot be empty")
        );
        scale.insert("spec".into(), json!({"replicas": 3}));
        update(&mut widget, &scale, &paths()).expect("the replicas are set");
        assert_eq!(widget["spec"], json!({"size": 3}));
    }

    #[test]
    fn i2_negative_replicas_are_an_error() {
        let mut errors = FieldErrors::new();
        validate(&object(json!({"size": -1})), &paths(), true, &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [".spec.size: Invalid value: -1: should be a non-negative integer"]
        );
    }

    #[test]
    fn error_for_a_scale_path_through_a_number_contains_the_path() {
        let object = Object(json!({"spec": 1}).as_object().cloned().unwrap_or_default());
        let text = ".spec.replicas accessor error: 1 is of the type int64, expected map[string]interface{}";
        assert_eq!(find(&object, ".spec.replicas").map_err(|why| why == text), Err(true));
    }
}
