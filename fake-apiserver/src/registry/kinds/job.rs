//! The strategy of Jobs: defaults, the selector they make for themselves, and what may change.

use serde_json::{Value, json};

use super::job_policies::{validate_failure_policy, validate_success_policy};
use super::job_status::validate_status;
use super::metadata::invalid_printed;
use super::pod::defaults::default_template;
use super::pod::validation::Template;
use super::pod::{go_names, go_struct, warnings};
use super::strategy::{Context, FieldLabels, Propagation, Strategy};
use super::workload_rules::{Selection, default_conditions, unchanged_selector, validate_selected, wrong_selector};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::check::{not_negative, unchanged};
use crate::registry::types::labels;
use crate::registry::types::names;
use crate::registry::types::view::{
    JsonMap, copy_field, default_number, default_text, default_value, flag, integer, is_set, items, items_mut, object,
    object_made, object_mut, object_or_empty, same, text, value_of,
};

const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
const JOB_NAME: &str = "batch.kubernetes.io/job-name";
const LEGACY_CONTROLLER_UID: &str = "controller-uid";
const LEGACY_JOB_NAME: &str = "job-name";

/// The most pods at once, and failed indexes, of a Job with indexes.
const INDEXED_MAX: i64 = 100_000;

/// The same where each of very many indexes has its own limit of failures.
const MANY_INDEXES_MAX: i64 = 10_000;

/// Jobs.
#[derive(Debug)]
pub(crate) struct JobStrategy;

impl Strategy for JobStrategy {
    fn default(&self, object: &mut Object) {
        if let Some(spec) = object_made(object, "spec") {
            default_spec(spec);
        }
        default_labels(object);
        if let Some(status) = object_made(object, "status") {
            default_conditions(status, &["lastProbeTime", "lastTransitionTime"]);
        }
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        object.insert("status".to_owned(), json!({}));
        let (name, uid) = (object.name().to_owned(), object.uid().to_owned());
        if let Some(spec) = object_mut(object, "spec")
            && flag(spec, "manualSelector") != Some(true)
        {
            generate_selector(spec, &name, &uid);
        }
        // the server shows these labels since it fills in defaults whenever it reads
        default_labels(object);
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        validate_job(object, true, errors);
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if context.subresource == "status" {
            validate_status(object, old, errors);
            return;
        }
        let (spec, old_spec) = (object_or_empty(object, "spec"), object_or_empty(old, "spec"));
        let labels = Template::of(old_spec).labels();
        let prefixed = labels.contains_key(JOB_NAME) && labels.contains_key(CONTROLLER_UID);
        validate_job(object, prefixed, errors);
        if !errors.is_empty() {
            // the server checks the spec twice on update, so that each of its errors is there twice
            validate_selecting_spec(spec, &FieldPath::new("spec"), errors);
        }
        validate_changes(spec, old, &FieldPath::new("spec"), errors);
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        warnings::of_workload(object, old, "spec.template", warnings::NAMES_PODS, |old| {
            self.raises_generation(object, old)
        })
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn raises_generation(&self, object: &Object, old: &Object) -> bool {
        !same(object, old, "spec")
    }

    fn default_propagation(&self) -> Propagation {
        Propagation::Orphan
    }

    fn field_labels(&self) -> FieldLabels {
        FieldLabels::These {
            labels: &["status.successful"],
            namespace: true,
            aliases: &[],
            refusal: "field label \"{}\" not supported for Job",
        }
    }

    fn field_values(&self, object: &Object) -> Vec<(&'static str, String)> {
        let succeeded = integer(object_or_empty(object, "status"), "succeeded").unwrap_or(0);
        vec![("status.successful", succeeded.to_string())]
    }
}

fn default_spec(spec: &mut JsonMap) {
    if !is_set(spec, "completions") && !is_set(spec, "parallelism") {
        default_number(spec, "completions", 1);
    }
    default_number(spec, "parallelism", 1);
    let limit = match is_set(spec, "backoffLimitPerIndex") {
        true => i64::from(i32::MAX),
        false => 6,
    };
    default_number(spec, "backoffLimit", limit);
    default_template(spec);
    default_text(spec, "completionMode", "NonIndexed");
    default_value(spec, "suspend", || Value::Bool(false));
    let policy = match is_set(spec, "podFailurePolicy") {
        true => "Failed",
        false => "TerminatingOrFailed",
    };
    default_text(spec, "podReplacementPolicy", policy);
    default_value(spec, "manualSelector", || Value::Bool(false));
    default_policies(spec);
}

/// Conditions in a failure policy mean `True` where they do not say.
pub(super) fn default_policies(spec: &mut JsonMap) {
    if let Some(policy) = object_mut(spec, "podFailurePolicy") {
        for rule in items_mut(policy, "rules") {
            for pattern in items_mut(rule, "onPodConditions") {
                default_text(pattern, "status", "True");
            }
        }
    }
}

/// A Job without labels has those of its template.
fn default_labels(object: &mut Object) {
    let template = object_or_empty(object_or_empty(object, "spec"), "template");
    let labels = object_or_empty(object_or_empty(template, "metadata"), "labels");
    let own = object_or_empty(object_or_empty(object, "metadata"), "labels");
    if own.is_empty() && !labels.is_empty() {
        let labels = Value::Object(labels.clone());
        object.metadata_mut().insert("labels".to_owned(), labels);
    }
}

/// Labels the pods with the Job's name and uid, and selects them by the uid.
fn generate_selector(spec: &mut JsonMap, name: &str, uid: &str) {
    let template = object_made(spec, "template");
    let meta = template.and_then(|template| object_made(template, "metadata"));
    if let Some(labels) = meta.and_then(|meta| object_made(meta, "labels")) {
        for (key, value) in [
            (LEGACY_JOB_NAME, name),
            (JOB_NAME, name),
            (LEGACY_CONTROLLER_UID, uid),
            (CONTROLLER_UID, uid),
        ] {
            default_value(labels, key, || Value::String(value.to_owned()));
        }
    }
    let selector = object_made(spec, "selector");
    if let Some(labels) = selector.and_then(|selector| object_made(selector, "matchLabels")) {
        default_value(labels, CONTROLLER_UID, || Value::String(uid.to_owned()));
    }
}

fn validate_job(job: &Object, prefixed: bool, errors: &mut FieldErrors) {
    let (spec, path) = (object_or_empty(job, "spec"), FieldPath::new("spec"));
    validate_generated_selector(job, spec, prefixed, errors);
    validate_selecting_spec(spec, &path, errors);
    let completions = integer(spec, "completions").unwrap_or(0);
    if text(spec, "completionMode") == "Indexed" && completions > 0 {
        let longest = format!("{}-{}", job.name(), completions - 1);
        if !names::dns1123_label(&longest, false).is_empty() {
            let detail = format!("will not able to create pod with invalid DNS label: {longest}");
            errors.invalid(FieldPath::new("metadata.name"), job.name(), detail);
        }
    }
}

fn validate_selecting_spec(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    validate_job_spec(spec, path, errors);
    if is_set(spec, "selector") {
        labels::validate_selector(spec.get("selector"), &path.child("selector"), errors);
    } else {
        errors.required(path.child("selector"), "");
    }
    match Selection::of(object(spec, "selector")) {
        Selection::Wrong => {}
        selection => validate_selected(&selection, &Template::of(spec), path, errors),
    }
}

/// A selector the user did not write must be the one that is made for this Job.
fn validate_generated_selector(job: &Object, spec: &JsonMap, prefixed: bool, errors: &mut FieldErrors) {
    if flag(spec, "manualSelector") == Some(true) || !is_set(spec, "selector") {
        return;
    }
    let (name, uid) = (job.name(), job.uid());
    if uid.is_empty() {
        errors.required(FieldPath::new("metadata.uid"), "");
    }
    let mut expected = vec![(LEGACY_CONTROLLER_UID, uid), (LEGACY_JOB_NAME, name)];
    if prefixed {
        expected.extend([(CONTROLLER_UID, uid), (JOB_NAME, name)]);
    }
    let labels = Template::of(spec).labels();
    let path = FieldPath::new("spec.template.metadata.labels");
    for (key, value) in &expected {
        match labels.get(*key).map(|label| label.as_str().unwrap_or_default()) {
            None => errors.required(path.key(key), format!("must be '{value}'")),
            Some(label) if label != *value => {
                let shown = Value::Object(labels.clone());
                errors.invalid(path.key(key), shown, format!("must be '{value}'"));
            }
            Some(_) => {}
        }
    }
    let expected: JsonMap = expected
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(value)))
        .collect();
    match Selection::of(object(spec, "selector")) {
        Selection::Wrong => {}
        selection if selection.matches(&expected) => {}
        _ => wrong_selector(spec, &FieldPath::new("spec"), "`selector` not auto-generated", errors),
    }
}

/// Checks the spec of a Job, also of one that a CronJob will make; not its selector.
pub(super) fn validate_job_spec(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    for count in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        not_negative(spec, count, path, errors);
    }
    if is_set(spec, "maxFailedIndexes") && !is_set(spec, "backoffLimitPerIndex") {
        errors.required(path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    validate_manager(spec, path, errors);
    validate_completion(spec, path, errors);
    validate_failure_policy(spec, path, errors);
    if let Some(policy) = object(spec, "successPolicy") {
        if text(spec, "completionMode") == "Indexed" {
            validate_success_policy(policy, spec, &path.child("successPolicy"), errors);
        } else {
            let printed = go_struct(policy, &["rules"]);
            invalid_printed(
                path.child("successPolicy"),
                &printed,
                "requires indexed completion mode",
                errors,
            );
        }
    }
    validate_replacement(spec, path, errors);
    let template = Template::of(spec);
    template.validate(&path.child("template"), errors);
    let policy = text(object_or_empty(template.template, "spec"), "restartPolicy");
    let at = || path.child("template.spec.restartPolicy");
    match policy {
        "Always" | "" => errors.required(at(), "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if is_set(spec, "podFailurePolicy") => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.invalid(at(), policy, detail);
        }
        "OnFailure" | "Never" => {}
        _ => errors.not_supported(at(), policy, &["OnFailure", "Never"]),
    }
}

fn validate_manager(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    if !is_set(spec, "managedBy") {
        return;
    }
    let (manager, at) = (text(spec, "managedBy"), || path.child("managedBy"));
    match manager.split_once('/') {
        _ if manager.is_empty() => errors.required(at(), ""),
        Some((host, rest)) if !host.is_empty() && !rest.is_empty() => {
            for text in names::dns1123_subdomain(host, false) {
                errors.invalid(at(), host, text);
            }
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
            if !rest.bytes().all(fits) {
                let format = "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+";
                let detail = format!("Invalid path (regex used for validation is '{format}')");
                errors.invalid(at(), rest, detail);
            }
        }
        _ => errors.invalid(
            at(),
            manager,
            "must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
    }
    if manager.len() > 63 {
        errors.too_long(at(), 63);
    }
}

fn validate_completion(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let mode = text(spec, "completionMode");
    if !["", "NonIndexed", "Indexed"].contains(&mode) {
        errors.not_supported(path.child("completionMode"), mode, &["NonIndexed", "Indexed"]);
    }
    if mode == "Indexed" {
        validate_indexed(spec, path, errors);
    }
    if mode.is_empty() || mode == "NonIndexed" {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(value) = integer(spec, field) {
                errors.invalid(path.child(field), value, "requires indexed completion mode");
            }
        }
    }
}

fn validate_indexed(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let count = |field| integer(spec, field);
    let completions = count("completions");
    if completions.is_none() {
        errors.required(path.child("completions"), "when completion mode is Indexed");
    }
    let mut at_most = |field: &str, max: i64, rest: &str| {
        if let Some(value) = integer(spec, field).filter(|value| *value > max) {
            errors.invalid(
                path.child(field),
                value,
                format!("must be less than or equal to {rest}"),
            );
        }
    };
    let most = format!("{INDEXED_MAX} when completion mode is Indexed");
    at_most("parallelism", INDEXED_MAX, &most);
    if let Some(completions) = completions {
        at_most("maxFailedIndexes", completions, "completions");
    }
    at_most("maxFailedIndexes", INDEXED_MAX, &INDEXED_MAX.to_string());
    if completions.is_none_or(|completions| completions <= INDEXED_MAX) || count("backoffLimitPerIndex").is_none() {
        return;
    }
    let rest =
        format!("{MANY_INDEXES_MAX} when completions are above {INDEXED_MAX} and used with backoff limit per index");
    let failed_unset = count("maxFailedIndexes").is_none();
    if failed_unset {
        let detail = format!("must be specified when completions is above {INDEXED_MAX}");
        errors.required(path.child("maxFailedIndexes"), detail);
    }
    for field in ["parallelism", "maxFailedIndexes"] {
        if let Some(value) = count(field).filter(|value| *value > MANY_INDEXES_MAX) {
            errors.invalid(
                path.child(field),
                value,
                format!("must be less than or equal to {rest}"),
            );
        }
    }
}

fn validate_replacement(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    if !is_set(spec, "podReplacementPolicy") {
        return;
    }
    let policy = text(spec, "podReplacementPolicy");
    let supported: &[&str] = match is_set(spec, "podFailurePolicy") {
        true => &["Failed"],
        false => &["Failed", "TerminatingOrFailed"],
    };
    if !supported.contains(&policy) {
        errors.not_supported(path.child("podReplacementPolicy"), policy, supported);
    }
}

/// Checks that only what may change did.
fn validate_changes(spec: &JsonMap, old: &Object, path: &FieldPath, errors: &mut FieldErrors) {
    let old_spec = object_or_empty(old, "spec");
    if text(spec, "completionMode") != "Indexed" {
        unchanged(spec, old_spec, "completions", path, errors);
    } else if let Some(completions) = integer(spec, "completions")
        && !same(spec, old_spec, "completions")
        && integer(spec, "parallelism") != Some(completions)
    {
        let detail = "can only be modified in tandem with spec.parallelism";
        errors.invalid(path.child("completions"), completions, detail);
    }
    unchanged_selector(spec, old_spec, path, errors);
    validate_template_change(spec, old, path, errors);
    for field in [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        if !same(spec, old_spec, field) {
            let shown = go_names(&value_of(spec, field));
            errors.invalid(path.child(field), shown, crate::registry::types::check::IMMUTABLE);
        }
    }
}

/// The template may change only while the Job is suspended and none of its pods run, and then only where and with
/// what resources they will run.
fn validate_template_change(spec: &JsonMap, old: &Object, path: &FieldPath, errors: &mut FieldErrors) {
    let (old_spec, status) = (object_or_empty(old, "spec"), object_or_empty(old, "status"));
    let suspended = flag(old_spec, "suspend") == Some(true);
    let was_suspended = items(status, "conditions")
        .any(|(_, condition)| text(condition, "type") == "Suspended" && text(condition, "status") == "True");
    let idle = integer(status, "active").unwrap_or(0) == 0;
    let changeable = suspended && idle && (!is_set(status, "startTime") || was_suspended);
    let template = object_or_empty(spec, "template");
    let mut allowed = object_or_empty(old_spec, "template").clone();
    if changeable {
        allow_scheduling(template, &mut allowed);
        allow_resources(template, &mut allowed);
    }
    if changeable {
        if !same(template, &allowed, "spec") {
            let shown = go_names(&value_of(template, "spec"));
            errors.invalid(
                path.child("template.spec"),
                shown,
                crate::registry::types::check::IMMUTABLE,
            );
        }
    } else if template != &allowed {
        let shown = go_names(&Value::Object(template.clone()));
        errors.invalid(path.child("template"), shown, crate::registry::types::check::IMMUTABLE);
    }
}

fn allow_scheduling(template: &JsonMap, allowed: &mut JsonMap) {
    let spec = object_or_empty(template, "spec");
    if let Some(allowed_meta) = object_made(allowed, "metadata") {
        for field in ["annotations", "labels"] {
            copy_field(object_or_empty(template, "metadata"), allowed_meta, field);
        }
    }
    let Some(allowed_spec) = object_mut(allowed, "spec") else {
        return;
    };
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        copy_field(spec, allowed_spec, field);
    }
    let nodes = object_or_empty(spec, "affinity").get("nodeAffinity").cloned();
    if is_set(spec, "affinity") {
        let Some(affinity) = object_made(allowed_spec, "affinity") else {
            return;
        };
        match nodes {
            Some(nodes) => affinity.insert("nodeAffinity".to_owned(), nodes),
            None => affinity.remove("nodeAffinity"),
        };
    } else if let Some(affinity) = object_mut(allowed_spec, "affinity") {
        affinity.remove("nodeAffinity");
        if affinity.is_empty() {
            allowed_spec.remove("affinity");
        }
    }
}

fn allow_resources(template: &JsonMap, allowed: &mut JsonMap) {
    let spec = object_or_empty(template, "spec");
    let Some(allowed_spec) = object_mut(allowed, "spec") else {
        return;
    };
    for list in ["containers", "initContainers"] {
        let new = items(spec, list).map(|(_, container)| container);
        if crate::registry::types::view::list(spec, list).len()
            != crate::registry::types::view::list(allowed_spec, list).len()
        {
            continue;
        }
        for (container, new) in items_mut(allowed_spec, list).zip(new) {
            if text(container, "name") == text(new, "name") {
                copy_field(new, container, "resources");
            }
        }
    }
}
