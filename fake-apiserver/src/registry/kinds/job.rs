//! The strategy of Jobs: defaults, the generated selector, and mutable fields.

use super::facts::{Facts, FieldLabels, Generation, Propagation};
use super::job_policies::{validate_failure_policy, validate_success_policy};
use super::job_status::validate_status;
use super::metadata::invalid_printed;
use super::pod::defaults::default_template;
use super::pod::validation::Template;
use super::pod::{go_names, go_struct, warnings};
use super::strategy::{Context, Strategy};
use super::workload_rules::{Selection, default_conditions, unchanged_selector, validate_selected, wrong_selector};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::check::IMMUTABLE;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{copy_field, default_text, default_value, ensure_object, items_mut, object_mut};
use crate::registry::types::labels;
use crate::registry::types::names;

const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
const JOB_NAME: &str = "batch.kubernetes.io/job-name";
const LEGACY_CONTROLLER_UID: &str = "controller-uid";
const LEGACY_JOB_NAME: &str = "job-name";

/// Maximum of `parallelism` and of `maxFailedIndexes` in an indexed Job.
const INDEXED_MAX: i64 = 100_000;

/// Maximum of `parallelism` and of `maxFailedIndexes` in a Job with more than [`INDEXED_MAX`] indexes and with
/// `backoffLimitPerIndex`.
const MANY_INDEXES_MAX: i64 = 10_000;

/// The strategy of Jobs.
#[derive(Debug)]
pub(crate) struct JobStrategy;

impl Strategy for JobStrategy {
    fn facts(&self) -> &Facts {
        &Facts {
            generation: Generation::FromCreate,
            default_propagation: Propagation::Orphan,
            fields: FieldLabels::These {
                labels: &["status.successful"],
                namespace: true,
                aliases: &[],
                refusal: "field label \"{}\" not supported for Job",
            },
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        default_spec(ensure_object(object, "spec"));
        default_labels(object);
        default_conditions(
            ensure_object(object, "status"),
            &["lastProbeTime", "lastTransitionTime"],
        );
    }

    fn shares_labels(&self, object: &Object) -> bool {
        let read = Cursor::root(object);
        read.is_empty("metadata.labels") && !read.is_empty("spec.template.metadata.labels")
    }

    fn prepare_for_create(&self, object: &mut Object, context: &Context<'_>) {
        object.insert("status".into(), json!({}));
        let (name, uid) = (object.name().to_owned(), object.uid().to_owned());
        if Cursor::root(object).flag("spec.manualSelector") != Some(true) {
            generate_selector(ensure_object(object, "spec"), &name, &uid);
        }
        if context.hidden.shares_labels {
            // In Go, the labels of the Job and of the template are the same map, so the generated labels appear in
            // both.
            object.metadata_mut().remove("labels");
            default_labels(object);
        }
    }

    /// Adds the default labels, which kube-apiserver fills in on every read.
    fn canonicalize(&self, object: &mut Object) {
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
        let (new, was) = (Cursor::root(object), Cursor::root(old));
        let labels = was.at("spec.template.metadata.labels");
        let prefixed = [JOB_NAME, CONTROLLER_UID]
            .iter()
            .all(|key| labels.entry(key).is_set(""));
        validate_job(object, prefixed, errors);
        let spec = new.at("spec");
        if !errors.is_empty() {
            // kube-apiserver checks the spec twice on update, and reports each error of the spec twice.
            validate_selecting_spec(&spec, errors);
        }
        validate_changes(&spec, &was, errors);
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        let changed = |old: &Object| self.raises_generation(object, old);
        let mut warnings = warnings::of_workload(object, old, "spec.template", warnings::NAMES_PODS, changed);
        if old.is_none_or(changed) {
            warn_of_indexes(&Cursor::root(object).at("spec"), &mut warnings);
        }
        warnings
    }

    fn raises_generation(&self, object: &Object, old: &Object) -> bool {
        !Cursor::root(object).same(&Cursor::root(old), "spec")
    }

    fn field_value(&self, object: &Object, _label: &str) -> String {
        let succeeded = Cursor::root(object).integer("status.succeeded").unwrap_or(0);
        succeeded.to_string()
    }
}

fn default_spec(spec: &mut Map) {
    let read = Cursor::root(spec);
    let is_bare = !read.is_set("completions") && !read.is_set("parallelism");
    let limit = match read.is_set("backoffLimitPerIndex") {
        true => i64::from(i32::MAX),
        false => 6,
    };
    let policy = match read.is_set("podFailurePolicy") {
        true => "Failed",
        false => "TerminatingOrFailed",
    };
    if is_bare {
        default_value(spec, "completions", 1);
    }
    default_value(spec, "parallelism", 1);
    default_value(spec, "backoffLimit", limit);
    default_template(spec);
    default_value(spec, "completionMode", "NonIndexed");
    default_value(spec, "suspend", false);
    default_value(spec, "podReplacementPolicy", policy);
    default_value(spec, "manualSelector", false);
    default_policies(spec);
}

/// Fills in the default status `True` of the conditions in a failure policy.
pub(super) fn default_policies(spec: &mut Map) {
    for rule in items_mut(spec, "podFailurePolicy.rules") {
        for pattern in items_mut(rule, "onPodConditions") {
            default_text(pattern, "status", "True");
        }
    }
}

/// Copies the labels of the template to the Job if the Job has no labels.
fn default_labels(object: &mut Object) {
    let read = Cursor::root(object);
    let labels = read.at("spec.template.metadata.labels");
    if read.is_empty("metadata.labels") && !labels.is_empty("") {
        let labels = labels.to_value();
        object.metadata_mut().insert("labels".into(), labels);
    }
}

/// Adds labels with the Job's name and uid to the template, and a selector for the label with the uid.
fn generate_selector(spec: &mut Map, name: &str, uid: &str) {
    let meta = ensure_object(ensure_object(spec, "template"), "metadata");
    let labels = ensure_object(meta, "labels");
    for (key, value) in [
        (LEGACY_JOB_NAME, name),
        (JOB_NAME, name),
        (LEGACY_CONTROLLER_UID, uid),
        (CONTROLLER_UID, uid),
    ] {
        default_value(labels, key, value);
    }
    let labels = ensure_object(ensure_object(spec, "selector"), "matchLabels");
    default_value(labels, CONTROLLER_UID, uid);
}

fn validate_job(job: &Object, prefixed: bool, errors: &mut FieldErrors) {
    let object = Cursor::root(job);
    let spec = object.at("spec");
    validate_generated_selector(job, &spec, prefixed, errors);
    validate_selecting_spec(&spec, errors);
    let completions = spec.integer("completions").unwrap_or(0);
    if spec.text("completionMode") == "Indexed" && completions > 0 {
        let longest = format!("{}-{}", job.name(), completions - 1);
        if !names::dns1123_label(&longest, false).is_empty() {
            let detail = format!("will not able to create pod with invalid DNS label: {longest}");
            errors.invalid(object.at("metadata.name"), job.name(), detail);
        }
    }
}

fn validate_selecting_spec(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    validate_job_spec(spec, errors);
    let selector = spec.at("selector");
    match selector.is_set("") {
        true => labels::validate_selector(&selector, errors),
        false => errors.required(selector, ""),
    }
    match Selection::of(&selector) {
        Selection::Wrong => {}
        selection => validate_selected(&selection, &Template::of(spec), errors),
    }
}

/// Checks that the template has the generated labels, and that the selector matches them. Does nothing if
/// `manualSelector` is set or the selector is missing. `prefixed` requires the labels with the prefix
/// `batch.kubernetes.io/` as well.
fn validate_generated_selector(job: &Object, spec: &Cursor<'_>, prefixed: bool, errors: &mut FieldErrors) {
    let selector = spec.at("selector");
    if spec.flag("manualSelector") == Some(true) || !selector.is_set("") {
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
    let labels = spec.at("template.metadata.labels");
    for (key, value) in &expected {
        let label = labels.entry(key);
        if !label.is_set("") {
            errors.required(label, format!("must be '{value}'"));
        } else if label.as_text() != *value {
            errors.invalid(label, labels.to_value(), format!("must be '{value}'"));
        }
    }
    let expected: Map = expected
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(value)))
        .collect();
    match Selection::of(&selector) {
        Selection::Wrong => {}
        selection if selection.matches(&Cursor::root(&expected)) => {}
        _ => wrong_selector(&selector, "`selector` not auto-generated", errors),
    }
}

/// Checks the spec of a Job, or of the Job template in a CronJob, except for the selector.
pub(super) fn validate_job_spec(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    for count in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        spec.at(count).check_not_negative(errors);
    }
    if spec.is_set("maxFailedIndexes") && !spec.is_set("backoffLimitPerIndex") {
        errors.required(spec.at("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    if let Some(manager) = spec.present("managedBy") {
        validate_manager(&manager, errors);
    }
    validate_completion(spec, errors);
    validate_failure_policy(spec, errors);
    if let Some(policy) = spec.present("successPolicy") {
        if spec.text("completionMode") == "Indexed" {
            validate_success_policy(&policy, spec, errors);
        } else {
            let printed = go_struct(&policy, &["rules"]);
            invalid_printed(policy, &printed, "requires indexed completion mode", errors);
        }
    }
    let replacement: &[&str] = match spec.is_set("podFailurePolicy") {
        true => &["Failed"],
        false => &["Failed", "TerminatingOrFailed"],
    };
    spec.at("podReplacementPolicy").check_one_of(replacement, errors);
    Template::of(spec).validate(errors);
    let policy = spec.at("template.spec.restartPolicy");
    match policy.as_text() {
        "Always" | "" => errors.required(policy, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if spec.is_set("podFailurePolicy") => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.invalid(policy, "OnFailure", detail);
        }
        _ => policy.check_supported(&["OnFailure", "Never"], errors),
    }
}

fn validate_manager(at: &Cursor<'_>, errors: &mut FieldErrors) {
    let manager = at.as_text();
    match manager.split_once('/') {
        _ if manager.is_empty() => errors.required(at, ""),
        Some((host, rest)) if !host.is_empty() && !rest.is_empty() => {
            at.refuse(host, names::dns1123_subdomain(host, false), errors);
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
            if !rest.bytes().all(fits) {
                let format = "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+";
                let detail = format!("Invalid path (regex used for validation is '{format}')");
                errors.invalid(at, rest, detail);
            }
        }
        _ => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.invalid(at, manager, detail);
        }
    }
    if manager.len() > 63 {
        errors.too_long(at, 63);
    }
}

/// Adds a warning about a Job with too many indexes to track in its status (`WarningsForJobSpec`). The warning is
/// inserted before the warnings about the template.
pub(super) fn warn_of_indexes(spec: &Cursor<'_>, warnings: &mut Vec<String>) {
    let number = |field| spec.integer(field).unwrap_or(0);
    let is_large = number("completions") > INDEXED_MAX && number("parallelism") > MANY_INDEXES_MAX;
    if spec.text("completionMode") == "Indexed" && is_large {
        let text = "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
                    Kubernetes might not be able to track completedIndexes when a big number of indexes fail";
        let names = warnings.iter().take_while(|it| it.starts_with("metadata.name")).count();
        warnings.insert(names, format!("{}: {text}", spec.path()));
    }
}

fn validate_completion(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let mode = spec.at("completionMode");
    mode.check_one_of(&["NonIndexed", "Indexed"], errors);
    match mode.as_text() {
        "Indexed" => validate_indexed(spec, errors),
        "" | "NonIndexed" => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if let Some(value) = spec.integer(field) {
                    errors.invalid(spec.at(field), value, "requires indexed completion mode");
                }
            }
        }
        _ => {}
    }
}

fn validate_indexed(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let completions = spec.integer("completions");
    if completions.is_none() {
        errors.required(spec.at("completions"), "when completion mode is Indexed");
    }
    let at_most = |field, max: i64, rest: &str, errors: &mut FieldErrors| {
        if let Some(value) = spec.integer(field).filter(|value| *value > max) {
            let detail = format!("must be less than or equal to {rest}");
            errors.invalid(spec.at(field), value, detail);
        }
    };
    let most = format!("{INDEXED_MAX} when completion mode is Indexed");
    at_most("parallelism", INDEXED_MAX, &most, errors);
    if let Some(completions) = completions {
        at_most("maxFailedIndexes", completions, "completions", errors);
    }
    at_most("maxFailedIndexes", INDEXED_MAX, &INDEXED_MAX.to_string(), errors);
    if completions.is_none_or(|completions| completions <= INDEXED_MAX) || !spec.is_set("backoffLimitPerIndex") {
        return;
    }
    if !spec.is_set("maxFailedIndexes") {
        let detail = format!("must be specified when completions is above {INDEXED_MAX}");
        errors.required(spec.at("maxFailedIndexes"), detail);
    }
    let rest =
        format!("{MANY_INDEXES_MAX} when completions are above {INDEXED_MAX} and used with backoff limit per index");
    for field in ["parallelism", "maxFailedIndexes"] {
        at_most(field, MANY_INDEXES_MAX, &rest, errors);
    }
}

/// Checks that only mutable fields changed.
fn validate_changes(spec: &Cursor<'_>, old: &Cursor<'_>, errors: &mut FieldErrors) {
    let (old_spec, completions) = (old.at("spec"), spec.at("completions"));
    if spec.text("completionMode") != "Indexed" {
        completions.check_unchanged(&old_spec.at("completions"), errors);
    } else if let Some(count) = completions.integer("")
        && !spec.same(&old_spec, "completions")
        && spec.integer("parallelism") != Some(count)
    {
        let detail = "can only be modified in tandem with spec.parallelism";
        errors.invalid(completions, count, detail);
    }
    unchanged_selector(spec, &old_spec, errors);
    validate_template_change(&spec.at("template"), old, errors);
    for field in [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        if !spec.same(&old_spec, field) {
            let field = spec.at(field);
            errors.invalid(field, go_names(&field.to_value()), IMMUTABLE);
        }
    }
}

/// Checks that the template only changes while the Job is suspended and has no active pods, and that only the fields
/// for the scheduling and the resources of the pods change.
fn validate_template_change(template: &Cursor<'_>, old: &Cursor<'_>, errors: &mut FieldErrors) {
    let is_suspended = |it: Cursor<'_>| it.text("type") == "Suspended" && it.text("status") == "True";
    let was_suspended = old.items("status.conditions").any(is_suspended);
    let idle = old.integer("status.active").unwrap_or(0) == 0;
    let changeable =
        old.flag("spec.suspend") == Some(true) && idle && (!old.is_set("status.startTime") || was_suspended);
    if !changeable {
        if !template.same(&old.at("spec.template"), "") {
            errors.invalid(template, go_names(&template.to_value()), IMMUTABLE);
        }
        return;
    }
    let mut allowed = old.map("spec.template").cloned().unwrap_or_default();
    allow_scheduling(template, &mut allowed);
    allow_resources(template, &mut allowed);
    if !template.same(&Cursor::root(&allowed), "spec") {
        let spec = template.at("spec");
        errors.invalid(spec, go_names(&spec.to_value()), IMMUTABLE);
    }
}

fn allow_scheduling(template: &Cursor<'_>, allowed: &mut Map) {
    let (Some(spec), Some(allowed_spec)) = (template.map("spec"), object_mut(allowed, "spec")) else {
        return;
    };
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        copy_field(spec, allowed_spec, field);
    }
    if template.is_set("spec.affinity") {
        let affinity = ensure_object(allowed_spec, "affinity");
        match template.get("spec.affinity.nodeAffinity").cloned() {
            Some(nodes) => affinity.insert("nodeAffinity".into(), nodes),
            None => affinity.remove("nodeAffinity"),
        };
    } else if let Some(affinity) = object_mut(allowed_spec, "affinity") {
        affinity.remove("nodeAffinity");
        if affinity.is_empty() {
            allowed_spec.remove("affinity");
        }
    }
}

fn allow_resources(template: &Cursor<'_>, allowed: &mut Map) {
    for list in ["spec.containers", "spec.initContainers"] {
        let new = template.list(list);
        if new.len() != Cursor::root(allowed).list(list).len() {
            continue;
        }
        for (container, new) in items_mut(allowed, list).zip(new.iter().filter_map(Value::as_object)) {
            if Cursor::root(container).text("name") == Cursor::root(new).text("name") {
                copy_field(new, container, "resources");
            }
        }
    }
}
