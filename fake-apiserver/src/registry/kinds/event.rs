//! The strategies of Events in both groups, which share their storage (rules R7, F7, F8). Follows `events.go` of
//! `pkg/apis/core/validation`.

use super::facts::{Facts, FieldLabels, Propagation};
use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::api::resource::Text;
use crate::registry::types::check::IMMUTABLE;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::{labels, names};

const CORE: &str = "v1";
const EVENTS: &str = "events.k8s.io/v1";
/// Field names of the core group with their names in `events.k8s.io`.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];
/// Immutable fields of an Event of `events.k8s.io`, each with the zero value that replaces an absent field in
/// comparisons. As in kube-apiserver, the reason is checked twice.
const IMMUTABLE_FIELDS: [(&str, Zero); 14] = [
    ("involvedObject", Zero::Null),
    ("reason", Zero::Text),
    ("message", Zero::Text),
    ("source", Zero::Null),
    ("firstTimestamp", Zero::Null),
    ("lastTimestamp", Zero::Null),
    ("count", Zero::Number),
    ("reason", Zero::Text),
    ("type", Zero::Text),
    ("eventTime", Zero::Null),
    ("action", Zero::Text),
    ("related", Zero::Null),
    ("reportingComponent", Zero::Text),
    ("reportingInstance", Zero::Text),
];
const NOTE_MAX: usize = 1_024;
const INSTANCE_MAX: usize = 128;

/// The zero value that replaces an absent field in comparisons.
#[derive(Clone, Copy, Debug)]
enum Zero {
    Null,
    Number,
    Text,
}

impl From<Zero> for Value {
    fn from(zero: Zero) -> Self {
        match zero {
            Zero::Null => Self::Null,
            Zero::Number => 0.into(),
            Zero::Text => "".into(),
        }
    }
}

/// The strategy of Events in one of the two groups. They are stored in the form of the core group.
#[derive(Debug)]
pub(crate) struct Event {
    /// Set for Events of the group `events.k8s.io`.
    pub(crate) is_new: bool,
}

impl Strategy for Event {
    fn facts(&self) -> &Facts {
        if self.is_new { &NEW_FACTS } else { &CORE_FACTS }
    }

    fn convert(&self, object: &mut Object, api_version: &str) {
        if object.api_version() == api_version {
            return;
        }
        let time = object.remove("eventTime").unwrap_or_default();
        for (core, new) in RENAMED {
            let (from, to) = if api_version == EVENTS {
                (core, new)
            } else {
                (new, core)
            };
            if let Some(value) = object.remove(from) {
                object.insert(to.into(), value);
            }
        }
        // `events.k8s.io` omits zero values of fields that the core group always writes.
        object.retain(|key, value| !(value.is_null() || (value == "" && key.starts_with("reporting"))));
        object.insert("eventTime".into(), time);
        if api_version == CORE {
            for (field, zero) in [
                ("involvedObject", json!({})),
                ("source", json!({})),
                ("firstTimestamp", Value::Null),
                ("lastTimestamp", Value::Null),
                ("reportingComponent", json!("")),
                ("reportingInstance", json!("")),
            ] {
                object.entry(field).or_insert(zero);
            }
        }
        object.insert("apiVersion".into(), api_version.into());
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let event = Cursor::root(object);
        self.validate_legacy(object, errors);
        if !self.is_new {
            return;
        }
        validate_series(&event, errors);
        if !event.is_set("eventTime") {
            errors.required(FieldPath::new("eventTime"), "");
        }
        let event_type = event.text("type");
        if !matches!(event_type, "Normal" | "Warning") {
            errors.invalid(FieldPath::new("type"), "", format!("has invalid value: {event_type}"));
        }
        let is_zero = |field| event.is_empty(field) || event.integer(field) == Some(0);
        for field in ["firstTimestamp", "lastTimestamp", "count", "source"] {
            if !is_zero(field) {
                errors.invalid(FieldPath::new(field), "", "needs to be unset");
            }
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate_legacy(object, errors);
        if !self.is_new {
            return;
        }
        let (event, old) = (Cursor::root(object), Cursor::root(old));
        if !event.same(&old, "series") {
            validate_series(&event, errors);
        }
        for (field, zero) in IMMUTABLE_FIELDS {
            let (new, stored) = (event.get(field), old.get(field));
            if new.unwrap_or(&zero.into()) != stored.unwrap_or(&zero.into()) {
                // This is the only field that the error shows with its name in `events.k8s.io`.
                let told = if field == "reportingComponent" {
                    "reportingController"
                } else {
                    field
                };
                let value = new.cloned().unwrap_or_else(|| zero.into());
                errors.invalid(FieldPath::new(told), value, IMMUTABLE);
            }
        }
    }

    fn selectable_fields(&self, object: &Object) -> Vec<(Text, String)> {
        // Field selectors may use the labels of either group, regardless of the group in which the Event was written.
        let only_new = NEW_LABELS.iter().filter(|label| !CORE_LABELS.contains(label));
        let labels = CORE_LABELS.iter().chain(only_new);
        labels
            .map(|label| (Text::from(*label), field_value(object, label)))
            .collect()
    }
}

const CORE_FACTS: Facts = Facts {
    name: names::path_segment,
    stored_api_version: Some(CORE),
    allows_create_on_update: true,
    default_propagation: Propagation::Unsupported,
    fields: FieldLabels::of(&CORE_LABELS, true),
    ..Facts::DEFAULT
};
const NEW_FACTS: Facts = Facts {
    name: names::dns1123_subdomain,
    stored_as: Some(("", "events")),
    fields: FieldLabels::of(&NEW_LABELS, true),
    ..CORE_FACTS
};

const CORE_LABELS: [&str; 11] = [
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];
const NEW_LABELS: [&str; 10] = [
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "type",
];

/// Returns the value of a field label of either group, read from the stored form.
fn field_value(object: &Object, label: &str) -> String {
    let event = Cursor::root(object);
    let reporter = event.text("reportingComponent");
    let value = match label {
        "source" => match event.text("source.component") {
            "" => reporter,
            component => component,
        },
        "reportingController" => reporter,
        _ => match label.strip_prefix("regarding.") {
            Some(field) => event
                .map("involvedObject")
                .and_then(|it| it.get(field)?.as_str())
                .unwrap_or_default(),
            None => event.text(label),
        },
    };
    value.to_owned()
}

impl Event {
    /// Checks the rules that apply to Events of both groups (`legacyValidateEvent`).
    fn validate_legacy(&self, object: &Object, errors: &mut FieldErrors) {
        let event = Cursor::root(object);
        let involved = event.at("involvedObject.namespace");
        let namespace = object.namespace();
        let has_time = event.is_set("eventTime");
        let fits = match (has_time, involved.is_empty("")) {
            (false, true) => matches!(namespace, "" | "default"),
            (false, false) => namespace == involved.as_text(),
            (true, true) => matches!(namespace, "default" | "kube-system"),
            (true, false) => true,
        };
        if !fits {
            errors.invalid(involved, involved.as_text(), "does not match event.namespace");
        }
        if has_time {
            self.validate_reporting(&event, errors);
        }
        event
            .at("namespace")
            .refuse(namespace, names::dns1123_subdomain(namespace, false), errors);
    }

    /// Checks the reporter, action, reason and note of an Event with `eventTime`.
    fn validate_reporting(&self, event: &Cursor<'_>, errors: &mut FieldErrors) {
        let controller = if self.is_new {
            "reportingController"
        } else {
            "reportingComponent"
        };
        let reporter = event.at(controller).in_other(event.get("reportingComponent"));
        reporter.check_required(errors);
        labels::validate_key(&reporter, errors);
        for field in ["reportingInstance", "action", "reason"] {
            let field = event.at(field);
            field.check_required(errors);
            if field.as_text().len() > INSTANCE_MAX {
                errors.invalid(field, "", format!("can have at most {INSTANCE_MAX} characters"));
            }
        }
        let note = event.at("message");
        if note.as_text().len() > NOTE_MAX {
            errors.invalid(note, "", format!("can have at most {NOTE_MAX} characters"));
        }
    }
}

fn validate_series(event: &Cursor<'_>, errors: &mut FieldErrors) {
    if !event.is_set("series") {
        return;
    }
    if event.integer("series.count").unwrap_or(0) < 2 {
        errors.invalid(FieldPath::new("series.count"), "", "should be at least 2");
    }
    if !event.is_set("series.lastObservedTime") {
        errors.required(FieldPath::new("series.lastObservedTime"), "");
    }
}
