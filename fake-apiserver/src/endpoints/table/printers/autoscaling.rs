//! Printers of HorizontalPodAutoscalers and of the scale subresource.

use super::super::columns::{AGE, Column, NAME, NAME_DOC};
use super::super::read::{Field, TableRow};
use super::Printer;

pub(super) const SCALE: Printer = Printer {
    columns: &[
        Column::text("Name", NAME_DOC),
        Column::integer(
            "Desired",
            "replicas is the desired number of instances for the scaled object.",
        ),
        Column::integer(
            "Available",
            "replicas is the actual number of observed instances of the scaled object.",
        ),
        AGE,
    ],
    cells: |row| {
        vec![
            row.name(),
            row.at("spec.replicas").int().into(),
            row.at("status.replicas").int().into(),
            row.age(),
        ]
    },
};

pub(super) const HORIZONTAL_POD_AUTOSCALER: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "Reference",
            "scaleTargetRef points to the target resource to scale, and is used to the pods for which metrics \
             should be collected, as well as to actually change the replica count.",
        ),
        Column::text(
            "Targets",
            "metrics contains the specifications for which to use to calculate the desired replica count (the \
             maximum replica count across all metrics will be used).  The desired replica count is calculated \
             multiplying the ratio between the target value and the current value by the current number of \
             pods.  Ergo, metrics used must decrease as the pod count is increased, and vice-versa.  See the \
             individual metric source types for more information about how each type of metric must respond. If \
             not set, the default metric will be set to 80% average CPU utilization.",
        ),
        Column::text(
            "MinPods",
            "minReplicas is the lower limit for the number of replicas to which the autoscaler can scale down.  \
             It defaults to 1 pod.  minReplicas is allowed to be 0 if the alpha feature gate HPAScaleToZero is \
             enabled and at least one Object or External metric is configured.  Scaling is active as long as at \
             least one metric value is available.",
        ),
        Column::text(
            "MaxPods",
            "maxReplicas is the upper limit for the number of replicas to which the autoscaler can scale up. It \
             cannot be less that minReplicas.",
        ),
        Column::text(
            "Replicas",
            "currentReplicas is current number of replicas of pods managed by this autoscaler, as last seen by \
             the autoscaler.",
        ),
        AGE,
    ],
    cells: |row| {
        let target = row.at("spec.scaleTargetRef");
        let minimum = row.at("spec.minReplicas");
        let minimum = if minimum.is_set() {
            minimum.int().to_string()
        } else {
            "<unset>".to_owned()
        };
        vec![
            row.name(),
            format!("{}/{}", target.at("kind").text(), target.at("name").text()).into(),
            targets(row).into(),
            minimum.into(),
            row.at("spec.maxReplicas").int().into(),
            row.at("status.currentReplicas").int().into(),
            row.age(),
        ]
    },
};

/// Maximum number of metrics in a cell.
const MAX_METRICS: usize = 2;

fn targets(row: TableRow<'_>) -> String {
    let statuses: Vec<_> = row.at("status.currentMetrics").items().collect();
    let metrics = row.at("spec.metrics").items().enumerate();
    let mut texts: Vec<String> = metrics
        .map(|(index, spec)| target(spec, statuses.get(index).copied()))
        .collect();
    // `autoscaling/v1` only has the CPU utilization.
    let percent = row.at("spec.targetCPUUtilizationPercentage");
    if percent.is_set() {
        let current = row.at("status.currentCPUUtilizationPercentage");
        texts.push(format!("cpu: {}/{}%", percentage(current, "<unknown>"), percent.int()));
    }
    if texts.is_empty() {
        return "<none>".to_owned();
    }
    let more = texts.len().saturating_sub(MAX_METRICS);
    texts.truncate(MAX_METRICS);
    let shown = texts.join(", ");
    if more > 0 {
        format!("{shown} + {more} more...")
    } else {
        shown
    }
}

fn percentage(field: Field<'_>, unset: &str) -> String {
    if field.is_set() {
        format!("{}%", field.int())
    } else {
        unset.to_owned()
    }
}

/// Formats the current and the target value of a metric.
fn target(spec: Field<'_>, status: Option<Field<'_>>) -> String {
    let source = match spec.at("type").text() {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let target = spec.at(source).at("target");
    let current = status.map(|it| it.at(source)).filter(|it| it.is_set());
    let current = |name: &str| {
        let value = current.map(|it| it.at("current").at(name)).filter(|it| it.is_set());
        value.map_or_else(|| "<unknown>".to_owned(), Field::print)
    };
    let average = target.at("averageValue");
    match source {
        "pods" => format!("{}/{}", current("averageValue"), average.print()),
        "external" | "object" if average.is_set() => format!("{}/{} (avg)", current("averageValue"), average.print()),
        "external" | "object" => format!("{}/{}", current("value"), target.at("value").print()),
        _ => {
            let name = spec.at(source).at("name").text();
            if average.is_set() {
                return format!("{name}: {}/{}", current("averageValue"), average.print());
            }
            let used = match current("averageUtilization").as_str() {
                "<unknown>" => "<unknown>".to_owned(),
                used => format!("{used}%"),
            };
            format!(
                "{name}: {used}/{}",
                percentage(target.at("averageUtilization"), "<auto>")
            )
        }
    }
}
