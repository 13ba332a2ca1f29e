//! Probes and lifecycle hooks of a container, and the handlers in them.

use crate::api::field::{FieldErrors, FieldPath};
use crate::registry::types::check::{not_negative, port, required, wrong};
use crate::registry::types::names;
use crate::registry::types::view::{JsonMap, integer, is_set, items, list, object, text};

/// The handlers of a probe, in the order in which they are looked at.
const PROBE_HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];

/// The handlers of a lifecycle hook.
const HOOK_HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "sleep"];

/// Checks the three probes of a container.
pub(super) fn validate_probes(container: &JsonMap, grace: Option<i64>, path: &FieldPath, errors: &mut FieldErrors) {
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = object(container, name) else {
            continue;
        };
        let path = path.child(name);
        validate_handler(probe, &PROBE_HANDLERS, grace, &path, errors);
        for field in [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ] {
            not_negative(probe, field, &path, errors);
        }
        let own_grace = integer(probe, "terminationGracePeriodSeconds");
        if let Some(seconds) = own_grace.filter(|seconds| *seconds <= 0) {
            errors.invalid(
                path.child("terminationGracePeriodSeconds"),
                seconds,
                "must be greater than 0",
            );
        }
        if name == "readinessProbe" {
            if let Some(seconds) = own_grace {
                let detail = "must not be set for readinessProbes";
                errors.invalid(path.child("terminationGracePeriodSeconds"), seconds, detail);
            }
        } else {
            let threshold = integer(probe, "successThreshold").unwrap_or(0);
            if threshold != 1 {
                errors.invalid(path.child("successThreshold"), threshold, "must be 1");
            }
        }
    }
}

/// Checks the lifecycle hooks of a container.
pub(super) fn validate_lifecycle(
    lifecycle: &JsonMap,
    grace: Option<i64>,
    system: Option<&str>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    for hook in ["postStart", "preStop"] {
        if let Some(handler) = object(lifecycle, hook) {
            validate_handler(handler, &HOOK_HANDLERS, grace, &path.child(hook), errors);
        }
    }
    if is_set(lifecycle, "stopSignal") {
        validate_stop_signal(text(lifecycle, "stopSignal"), system, path.child("stopSignal"), errors);
    }
}

fn validate_handler(handler: &JsonMap, kinds: &[&str], grace: Option<i64>, path: &FieldPath, errors: &mut FieldErrors) {
    let mut found = false;
    for kind in kinds {
        let Some(action) = object(handler, kind) else {
            continue;
        };
        let path = path.child(kind);
        if found {
            errors.forbidden(path, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match *kind {
            "exec" if list(action, "command").is_empty() => errors.required(path.child("command"), ""),
            "httpGet" => validate_http_get(action, &path, errors),
            "tcpSocket" | "grpc" => port(action, "port", &path, errors),
            "sleep" => validate_sleep(action, grace, path, errors),
            _ => {}
        }
    }
    if !found {
        errors.required(path.clone(), "must specify a handler type");
    }
}

fn validate_http_get(action: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    const SCHEMES: [&str; 2] = ["HTTP", "HTTPS"];
    required(action, "path", path, errors);
    port(action, "port", path, errors);
    let scheme = text(action, "scheme");
    if !SCHEMES.contains(&scheme) {
        errors.not_supported(path.child("scheme"), scheme, &SCHEMES);
    }
    for (_, header) in items(action, "httpHeaders") {
        let name = text(header, "name");
        let texts = names::http_header_name(name).into_iter().collect();
        wrong(texts, name, || path.child("httpHeaders"), errors);
    }
}

fn validate_sleep(action: &JsonMap, grace: Option<i64>, path: FieldPath, errors: &mut FieldErrors) {
    let seconds = integer(action, "seconds").unwrap_or(0);
    if let Some(grace) = grace.filter(|grace| seconds < 0 || seconds > *grace) {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.invalid(path, seconds, detail);
    }
}

fn validate_stop_signal(signal: &str, system: Option<&str>, path: FieldPath, errors: &mut FieldErrors) {
    match system {
        None => errors.forbidden(path, "may not be set for containers with empty `spec.os.name`"),
        Some("windows") => {
            let supported = ["SIGKILL", "SIGTERM"];
            if !supported.contains(&signal) {
                errors.not_supported(path, signal, &supported);
            }
        }
        Some("linux") => {
            let supported = linux_signals();
            if !supported.iter().any(|it| it == signal) {
                let supported: Vec<&str> = supported.iter().map(String::as_str).collect();
                errors.not_supported(path, signal, &supported);
            }
        }
        Some(_) => {}
    }
}

/// The names of Linux' signals, sorted.
fn linux_signals() -> Vec<String> {
    const NAMED: [&str; 35] = [
        "ABRT", "ALRM", "BUS", "CHLD", "CLD", "CONT", "FPE", "HUP", "ILL", "INT", "IO", "IOT", "KILL", "PIPE", "POLL",
        "PROF", "PWR", "QUIT", "SEGV", "STKFLT", "STOP", "SYS", "TERM", "TRAP", "TSTP", "TTIN", "TTOU", "URG", "USR1",
        "USR2", "VTALRM", "WINCH", "XCPU", "XFSZ", "RTMIN",
    ];
    let mut all: Vec<String> = NAMED.iter().map(|name| format!("SIG{name}")).collect();
    all.push("SIGRTMAX".to_owned());
    all.extend((1..=15).map(|n| format!("SIGRTMIN+{n}")));
    all.extend((1..=14).map(|n| format!("SIGRTMAX-{n}")));
    all.sort_unstable();
    all
}
