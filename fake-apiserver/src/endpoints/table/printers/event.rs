//! Printer of Events, with the field names of the core group and of events.k8s.io.

use super::super::columns::{Column, NAME};
use super::super::read::{Field, TableRow};
use super::Printer;
use crate::api::json::Value;

pub(super) const EVENT: Printer = Printer {
    columns: &[
        Column::text(
            "Last Seen",
            "The time at which the most recent occurrence of this event was recorded.",
        ),
        Column::text(
            "Type",
            "Type of this event (Normal, Warning), new types could be added in the future",
        ),
        Column::text(
            "Reason",
            "This should be a short, machine understandable string that gives the reason for the transition \
             into the object's current status.",
        ),
        Column::text("Object", "The object that this event is about."),
        Column::text(
            "Subobject",
            "If referring to a piece of an object instead of an entire object, this string should contain a \
             valid JSON/Go field access statement, such as desiredState.manifest.containers[2]. For example, if \
             the object reference is to a container within a pod, this would take on a value like: \
             \"spec.containers{name}\" (where \"name\" refers to the name of the container that triggered the \
             event) or if no container name is specified \"spec.containers[2]\" (container with index 2 in this \
             pod). This syntax is chosen only to have some well-defined way of referencing a part of an object.",
        )
        .wide(),
        Column::text(
            "Source",
            "The component reporting this event. Should be a short machine understandable string.",
        )
        .wide(),
        Column::text(
            "Message",
            "A human-readable description of the status of this operation.",
        ),
        Column::text(
            "First Seen",
            "The time at which the event was first recorded. (Time of server receipt is in TypeMeta.)",
        )
        .wide(),
        Column::text("Count", "The number of times this event has occurred.").wide(),
        NAME.wide(),
    ],
    cells,
};

fn cells(row: TableRow<'_>) -> Vec<Value> {
    let either = |core: &str, events: &str| -> Field<'_> {
        let field = row.at(core);
        if field.is_set() { field } else { row.at(events) }
    };
    let first = either("firstTimestamp", "deprecatedFirstTimestamp");
    let first = row.since(if first.is_set() { first } else { row.at("eventTime") });
    let last = either("lastTimestamp", "deprecatedLastTimestamp");
    let mut last = if last.is_set() { row.since(last) } else { first.clone() };
    let mut count = either("count", "deprecatedCount").int().max(1);
    let series = row.at("series");
    if series.is_set() {
        last = row.since(series.at("lastObservedTime"));
        count = series.at("count").int();
    }
    let object = either("involvedObject", "regarding");
    let kind = object.at("kind").text().to_lowercase();
    let target = match object.at("name").text() {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let source = either("source", "deprecatedSource");
    let component = either("reportingComponent", "reportingController").text();
    let component = source.at("component").text_or(component);
    let source = match source.at("host").text_or(row.at("reportingInstance").text()) {
        "" => component.to_owned(),
        host => format!("{component}, {host}"),
    };
    vec![
        last.into(),
        row.at("type").text().into(),
        row.at("reason").text().into(),
        target.into(),
        object.at("fieldPath").text().into(),
        source.into(),
        either("message", "note").text().trim().into(),
        first.into(),
        count.into(),
        row.name(),
    ]
}
