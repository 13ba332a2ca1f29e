//! `CustomStrategy`: the strategy of custom resources in one version of a CRD.

use std::sync::Arc;

use super::definition::CustomVersion;
use super::{default, embedded, rules, scale, unique, validate};
use crate::api::field::FieldErrors;
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::api::resource::Text;
use crate::registry::kinds::facts::{Facts, Generation};
use crate::registry::kinds::metadata::finalizer_warnings;
use crate::registry::kinds::strategy::{Context, Strategy};
use crate::registry::types::cursor::Cursor;

/// The strategy of custom resources in one version. Objects have the version of the request, not the storage version.
#[derive(Clone, Debug)]
pub(crate) struct CustomStrategy {
    /// The version in the CRD.
    pub(crate) version: Arc<CustomVersion>,
}

impl Strategy for CustomStrategy {
    fn facts(&self) -> &Facts {
        &Facts {
            allows_unconditional_update: false,
            generation: Generation::FromCreate,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        default::fill(object, &self.version.schema);
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        if self.version.has_status {
            object.remove("status");
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        self.validate_schema(object, None, errors);
        self.validate_fields(object, errors);
        errors.extend(self.duplicates(object));
        rules::validate(&self.version.schema, &object.0, None, errors, &mut Vec::new());
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore_all_but_status(object, old);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if context.subresource == "status" {
            self.validate_status(object, old, errors);
        } else {
            self.validate_schema(object, Some(old), errors);
            self.validate_fields(object, errors);
        }
        // An object that already has duplicates may keep them and may get new ones.
        let found = self.duplicates(object);
        if !found.is_empty() && self.duplicates(old).is_empty() {
            errors.extend(found);
        }
        rules::validate(&self.version.schema, &object.0, Some(&old.0), errors, &mut Vec::new());
    }

    fn tolerated(&self, object: &Object, old: &Object, errors: &FieldErrors) -> Vec<String> {
        rules::ratcheted(&self.version.schema, &object.0, &old.0, errors)
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        finalizer_warnings(object, old)
    }

    fn raises_generation(&self, object: &Object, old: &Object) -> bool {
        let counts = |key: &str| match key {
            "metadata" | "kind" | "apiVersion" => false,
            "status" => !self.version.has_status,
            _ => true,
        };
        let fields = |it: &Object| it.keys().filter(|key| counts(key)).count();
        fields(object) != fields(old)
            || object
                .iter()
                .any(|(key, value)| counts(key) && old.get(key) != Some(value))
    }

    fn selectable_fields(&self, object: &Object) -> Vec<(Text, String)> {
        let fields = self.version.selectable.iter();
        fields
            .map(|field| (Text::Owned(field.label.clone()), field.value(object)))
            .collect()
    }
}

impl CustomStrategy {
    fn validate_schema(&self, object: &Object, old: Option<&Object>, errors: &mut FieldErrors) {
        let found = validate::validate_object(&self.version.schema, &object.0, old.map(|old| &old.0));
        errors.extend(found);
        if let Some(paths) = &self.version.scale {
            scale::validate(object, paths, true, errors);
        }
    }

    fn validate_fields(&self, object: &Object, errors: &mut FieldErrors) {
        embedded::validate_fields(&Cursor::root(&object.0), &self.version.schema, errors);
    }

    fn validate_status(&self, object: &Object, old: &Object, errors: &mut FieldErrors) {
        let schema = self.version.schema.properties.get("status");
        if let Some(schema) = schema.filter(|_| object.contains_key("status")) {
            let status = Cursor::root(&object.0);
            errors.extend(validate::validate(schema, &status.at("status"), old.get("status")));
        }
        if let Some(paths) = &self.version.scale {
            scale::validate(object, paths, false, errors);
        }
    }

    fn duplicates(&self, object: &Object) -> FieldErrors {
        unique::validate(&object.0, &self.version.schema)
    }
}

/// Restores all fields except the status and the managed fields after a write to `/status` (rule C6).
fn restore_all_but_status(object: &mut Object, old: &Object) {
    let status = object.remove("status");
    let managed_fields = object.metadata_mut().remove("managedFields");
    let but = |map: &Map, left_out: &[&str]| -> Map {
        let kept = map.iter().filter(|(field, _)| !left_out.contains(&field.as_str()));
        kept.map(|(field, value)| (field.clone(), value.clone())).collect()
    };
    let mut meta = old
        .metadata()
        .map(|meta| but(meta, &["managedFields"]))
        .unwrap_or_default();
    meta.extend(managed_fields.map(|it| ("managedFields".to_owned(), it)));
    object.0 = but(&old.0, &["metadata", "status"]);
    object.insert("metadata".into(), Value::Object(meta));
    object.extend(status.map(|it| ("status".to_owned(), it)));
}

#[cfg(test)]
mod tests {
    use crate::api::json::{Value, json};

    use super::super::tests::{in_context, object, strategy};
    use super::*;

    fn texts(errors: &FieldErrors) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    fn spec_schema(properties: Value) -> Value {
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}})
    }

    fn update(strategy: &CustomStrategy, old: &Object, new: &Object) -> Vec<String> {
        let mut errors = FieldErrors::new();
        in_context("", |context| strategy.validate_update(new, old, &mut errors, context));
        texts(&errors)
    }

    #[test]
    fn b9_generation_increases_with_any_change_outside_of_metadata_and_the_status_subresource() {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let old = object(json!({"a": 1}));
        let mut relabelled = old.clone();
        relabelled.metadata_mut().insert("labels".into(), json!({"x": "y"}));
        let mut with_status = old.clone();
        with_status.insert("status".into(), json!({"phase": "x"}));
        let mut with_data = old.clone();
        with_data.insert("data".into(), json!(1));
        let plain = strategy(schema.clone(), json!({}));
        assert!(!plain.raises_generation(&relabelled, &old));
        assert!(plain.raises_generation(&with_status, &old));
        assert!(plain.raises_generation(&with_data, &old));
        let with_subresource = strategy(schema, json!({"subresources": {"status": {}}}));
        assert!(!with_subresource.raises_generation(&with_status, &old));
        assert!(with_subresource.raises_generation(&object(json!({"a": 2})), &old));
    }

    #[test]
    fn c6_status_write_only_changes_the_status() {
        let strategy = strategy(json!({"type": "object"}), json!({"subresources": {"status": {}}}));
        let mut old = object(json!({"size": 1}));
        old.metadata_mut().insert("labels".into(), json!({"k": "v"}));
        let mut new = object(json!({"size": 99}));
        new.insert("status".into(), json!({"phase": "up"}));
        new.metadata_mut().insert("finalizers".into(), json!(["example.com/f"]));
        new.metadata_mut()
            .insert("managedFields".into(), json!([{"manager": "m"}]));
        in_context("status", |context| strategy.prepare_for_update(&mut new, &old, context));
        let mut expected = old.clone();
        expected.insert("status".into(), json!({"phase": "up"}));
        expected
            .metadata_mut()
            .insert("managedFields".into(), json!([{"manager": "m"}]));
        assert_eq!(new, expected);
        // An update without a status clears the status.
        let mut cleared = object(json!({"size": 1}));
        in_context("status", |context| {
            strategy.prepare_for_update(&mut cleared, &expected, context)
        });
        assert!(!cleared.contains_key("status"));
    }

    #[test]
    fn o9_duplicates_that_are_already_stored_are_accepted() {
        let list = json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"});
        let strategy = strategy(spec_schema(json!({"l": list, "c": {"type": "string"}})), json!({}));
        let twice = object(json!({"l": ["a", "b", "a"]}));
        let mut errors = FieldErrors::new();
        strategy.validate(&twice, &mut errors);
        assert_eq!(texts(&errors), ["spec.l[2]: Duplicate value: \"a\""]);
        assert!(update(&strategy, &twice, &object(json!({"l": ["a", "b", "a"], "c": "x"}))).is_empty());
        assert_eq!(update(&strategy, &object(json!({})), &twice).len(), 1);
    }

    #[test]
    fn o9_duplicate_keys_of_map_lists_are_errors() {
        let item = json!({"type": "object", "properties":
            {"n": {"type": "string"}, "p": {"type": "integer", "default": 1}}});
        let list = json!({"type": "array", "items": item, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["n", "p"]});
        let strategy = strategy(spec_schema(json!({"l": list})), json!({}));
        let mut widget = object(json!({"l": [{"n": "a", "p": 1}, {"n": "a"}]}));
        strategy.default(&mut widget);
        let mut errors = FieldErrors::new();
        strategy.validate(&widget, &mut errors);
        assert_eq!(texts(&errors), ["spec.l[1]: Duplicate value: {\"n\":\"a\",\"p\":1}"]);
    }

    #[rstest::rstest]
    #[case(json!({}), json!({"color": "red", "forced": {"x": "in"}, "on": false, "size": 3}))]
    #[case(json!({"size": 0, "color": "", "on": true, "nested": {}, "forced": {"y": "1"}}),
        json!({"color": "", "forced": {"x": "in", "y": "1"}, "nested": {"x": "in"}, "on": true, "size": 0}))]
    #[case(json!({"size": null, "list": [{}], "m": {"k": {}}}), json!({"color": "red", "forced": {"x": "in"},
        "on": false, "size": 3, "list": [{"p": 80}], "m": {"k": {"q": 1}}}))]
    fn o6_schema_defaults_are_filled_in(#[case] spec: Value, #[case] expected: Value) {
        let inner = json!({"type": "object", "properties": {"x": {"type": "string", "default": "in"}}});
        let forced = json!({"type": "object", "default": {}, "properties":
            {"x": {"type": "string", "default": "in"}, "y": {"type": "string"}}});
        let item = json!({"type": "object", "properties": {"p": {"type": "integer", "default": 80}}});
        let entry = json!({"type": "object", "properties": {"q": {"type": "integer", "default": 1}}});
        let strategy = strategy(
            spec_schema(json!({
                "size": {"type": "integer", "default": 3}, "color": {"type": "string", "default": "red"},
                "on": {"type": "boolean", "default": false}, "nested": inner, "forced": forced,
                "list": {"type": "array", "items": item}, "m": {"type": "object", "additionalProperties": entry},
            })),
            json!({}),
        );
        let mut widget = object(spec);
        strategy.default(&mut widget);
        assert_eq!(widget["spec"], expected);
        let mut without_spec = object(json!({}));
        without_spec.remove("spec");
        strategy.default(&mut without_spec);
        assert!(!without_spec.contains_key("spec"));
    }

    #[test]
    fn f9_selectable_fields_have_string_values() {
        let fields = json!([{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.n"}, {"jsonPath": ".spec.o.x"}]);
        let strategy = strategy(json!({"type": "object"}), json!({"selectableFields": fields}));
        let values = strategy.selectable_fields(&object(json!({"color": "red", "n": 1})));
        let expected = [("spec.color", "red"), ("spec.n", "1"), ("spec.o.x", "")];
        assert_eq!(
            values,
            expected.map(|(label, value)| (Text::from(label), value.to_owned()))
        );
    }
}
