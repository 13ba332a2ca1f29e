//! Printers of Jobs and CronJobs.

use super::super::columns::{AGE, CONTAINERS, Column, IMAGES, NAME};
use super::super::duration;
use super::super::read::TableRow;
use super::Printer;
use crate::api::json::Value;

const SELECTOR: Column = Column::text(
    "Selector",
    "A label query over pods that should match the pod count. Normally, the system sets this field for you. \
     More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
)
.wide();

pub(super) const JOB: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Status", "Status of the job."),
        Column::text(
            "Completions",
            "The number of pods which reached phase Succeeded. The value increases monotonically for a given \
             spec. However, it may decrease in reaction to scale down of elastic indexed jobs.",
        ),
        Column::text("Duration", "Time required to complete the job."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |row| {
        let (names, images) = row.at("spec.template.spec.containers").containers();
        vec![
            row.name(),
            status(row).into(),
            completions(row).into(),
            run_time(row).into(),
            row.age(),
            names.into(),
            images.into(),
            row.at("spec.selector").selector().into(),
        ]
    },
};

fn status(row: TableRow<'_>) -> &'static str {
    let has = |kind: &str| {
        let condition = row.at("status.conditions").find("type", kind);
        condition.is_some_and(|it| it.at("status").text() == "True")
    };
    if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if row.is_terminating() {
        "Terminating"
    } else if has("Suspended") {
        "Suspended"
    } else if has("FailureTarget") {
        "FailureTarget"
    } else if has("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn completions(row: TableRow<'_>) -> String {
    let succeeded = row.at("status.succeeded").int();
    let (wanted, parallelism) = (row.at("spec.completions"), row.at("spec.parallelism").int());
    if wanted.is_set() {
        format!("{succeeded}/{}", wanted.int())
    } else if parallelism > 1 {
        format!("{succeeded}/1 of {parallelism}")
    } else {
        format!("{succeeded}/1")
    }
}

fn run_time(row: TableRow<'_>) -> String {
    let Some(start) = row.at("status.startTime").time() else {
        return String::new();
    };
    let end = row.at("status.completionTime").time().unwrap_or(row.now);
    duration::between(start, end)
}

pub(super) const CRON_JOB: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "Schedule",
            "The schedule in Cron format, see https://en.wikipedia.org/wiki/Cron.",
        ),
        Column::text(
            "Timezone",
            "The time zone name for the given schedule, see \
             https://en.wikipedia.org/wiki/List_of_tz_database_time_zones. If not specified, this will default \
             to the time zone of the kube-controller-manager process. The set of valid time zone names and the \
             time zone offset is loaded from the system-wide time zone database by the API server during CronJob \
             validation and the controller manager during execution. If no system-wide time zone database can be \
             found a bundled version of the database is used instead. If the time zone name becomes invalid \
             during the lifetime of a CronJob or due to a change in host configuration, the controller will stop \
             creating new new Jobs and will create a system event with the reason UnknownTimeZone. More \
             information can be found in \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#time-zones",
        ),
        Column::boolean(
            "Suspend",
            "This flag tells the controller to suspend subsequent executions, it does not apply to already \
             started executions.  Defaults to false.",
        ),
        Column::integer("Active", "A list of pointers to currently running jobs."),
        Column::text(
            "Last Schedule",
            "Information when was the last time the job was successfully scheduled.",
        ),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: cron_job,
};

fn cron_job(row: TableRow<'_>) -> Vec<Value> {
    let (names, images) = row.at("spec.jobTemplate.spec.template.spec.containers").containers();
    let (suspend, last) = (row.at("spec.suspend"), row.at("status.lastScheduleTime"));
    let zone = row.at("spec.timeZone");
    vec![
        row.name(),
        row.at("spec.schedule").text().into(),
        if zone.is_set() { zone.text() } else { "<none>" }.into(),
        match (suspend.is_set(), suspend.flag()) {
            (false, _) => "<unset>",
            (true, true) => "True",
            (true, false) => "False",
        }
        .into(),
        row.at("status.active").count().into(),
        if last.is_set() {
            row.since(last)
        } else {
            "<none>".to_owned()
        }
        .into(),
        row.age(),
        names.into(),
        images.into(),
        row.at("spec.jobTemplate.spec.selector").selector().into(),
    ]
}
