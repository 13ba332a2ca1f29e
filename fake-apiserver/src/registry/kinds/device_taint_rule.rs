//! The strategy of DeviceTaintRules. Follows `deviceTaintRuleStrategy` of `pkg/registry/resource` and
//! `ValidateDeviceTaintRule` of `pkg/apis/resource/validation`.

use super::device::{check_driver_name, check_taint};
use super::facts::{Facts, Generation};
use super::plain::restore_metadata;
use super::resource_slice::validate_pool_name;
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::json::Value;
use crate::api::object::Object;
use crate::registry::types::conditions::validate_conditions;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{default_value, object_mut};
use crate::registry::types::names;

/// Maximum number of conditions.
const CONDITIONS_MAX: usize = 8;

/// The strategy of DeviceTaintRules.
#[derive(Debug)]
pub(crate) struct DeviceTaintRule;

impl Strategy for DeviceTaintRule {
    fn facts(&self) -> &Facts {
        &Facts {
            generation: Generation::FromCreate,
            returns_deleted_object: true,
            ..Facts::DEFAULT
        }
    }

    fn prepare_for_create(&self, object: &mut Object, context: &Context<'_>) {
        default_time(object, context);
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            return restore_metadata(object, old);
        }
        let (new, before) = (Cursor::root(object), Cursor::root(old));
        let is_other_effect = new.text("spec.taint.effect") != before.text("spec.taint.effect");
        let is_same_time = new.text("spec.taint.timeAdded") == before.text("spec.taint.timeAdded");
        if is_other_effect && is_same_time {
            object_mut(object, "spec.taint").map(|taint| taint.remove("timeAdded"));
        }
        default_time(object, context);
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        validate_selector(&Cursor::root(object).at("spec.deviceSelector"), errors);
        check_taint(&Cursor::root(object).at("spec.taint"), errors);
    }

    fn validate_update(&self, object: &Object, _old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if context.subresource != "status" {
            return self.validate(object, errors);
        }
        let object = Cursor::root(object);
        let conditions = object.at("status.conditions");
        validate_conditions(&conditions, errors);
        let count = conditions.list("").len();
        if count > CONDITIONS_MAX {
            errors.too_many(conditions, count, CONDITIONS_MAX);
        }
    }
}

/// Sets a missing `timeAdded` of the taint to now (`SetDefaults_DeviceTaint`).
fn default_time(object: &mut Object, context: &Context<'_>) {
    if let Some(taint) = object_mut(object, "spec.taint") {
        default_value(taint, "timeAdded", Value::from(context.entropy.now_seconds()));
    }
}

/// Checks the device selector of a rule (`validateDeviceTaintSelector`).
fn validate_selector(selector: &Cursor<'_>, errors: &mut FieldErrors) {
    if let Some(driver) = selector.present("driver") {
        check_driver_name(&driver, errors);
    }
    if let Some(pool) = selector.present("pool") {
        validate_pool_name(&pool, errors);
    }
    if let Some(device) = selector.present("device") {
        device.check_name(|it| names::dns1123_label(it, false), errors);
    }
}
