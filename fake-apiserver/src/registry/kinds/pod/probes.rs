//! Validation of the probes and lifecycle hooks of a container, and of their handlers.

use crate::api::field::FieldErrors;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::names;

/// The handlers of a probe, in the order of validation.
const PROBE_HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];

/// The handlers of a lifecycle hook.
const HOOK_HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "sleep"];

/// Checks the three probes of a container.
pub(super) fn validate_probes(container: &Cursor<'_>, grace: Option<i64>, errors: &mut FieldErrors) {
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.present(name) else {
            continue;
        };
        validate_handler(&probe, &PROBE_HANDLERS, grace, errors);
        for field in [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ] {
            probe.at(field).check_not_negative(errors);
        }
        let own_grace = probe.at("terminationGracePeriodSeconds");
        if let Some(seconds) = own_grace.integer("").filter(|seconds| *seconds <= 0) {
            errors.invalid(own_grace, seconds, "must be greater than 0");
        }
        if name == "readinessProbe" {
            if let Some(seconds) = own_grace.integer("") {
                errors.invalid(own_grace, seconds, "must not be set for readinessProbes");
            }
        } else {
            let threshold = probe.integer("successThreshold").unwrap_or(0);
            if threshold != 1 {
                errors.invalid(probe.at("successThreshold"), threshold, "must be 1");
            }
        }
    }
}

/// Checks the lifecycle hooks of a container.
pub(super) fn validate_lifecycle(
    lifecycle: &Cursor<'_>,
    grace: Option<i64>,
    system: Option<&str>,
    errors: &mut FieldErrors,
) {
    for hook in ["postStart", "preStop"] {
        if let Some(handler) = lifecycle.present(hook) {
            validate_handler(&handler, &HOOK_HANDLERS, grace, errors);
        }
    }
    if let Some(signal) = lifecycle.present("stopSignal") {
        validate_stop_signal(&signal, system, errors);
    }
}

fn validate_handler(handler: &Cursor<'_>, kinds: &[&str], grace: Option<i64>, errors: &mut FieldErrors) {
    let mut found = false;
    for kind in kinds {
        let Some(action) = handler.present(kind) else {
            continue;
        };
        if found {
            errors.forbidden(action, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match *kind {
            "exec" if action.is_empty("command") => errors.required(action.at("command"), ""),
            "httpGet" => validate_http_get(&action, errors),
            "tcpSocket" | "grpc" => action.at("port").check_port(errors),
            "sleep" => validate_sleep(&action, grace, errors),
            _ => {}
        }
    }
    if !found {
        errors.required(handler, "must specify a handler type");
    }
}

fn validate_http_get(action: &Cursor<'_>, errors: &mut FieldErrors) {
    action.at("path").check_required(errors);
    action.at("port").check_port(errors);
    action.at("scheme").check_supported(&["HTTP", "HTTPS"], errors);
    let headers = action.at("httpHeaders");
    for header in headers.items("") {
        let name = header.text("name");
        headers.refuse(name, names::http_header_name(name).into_iter().collect(), errors);
    }
}

fn validate_sleep(action: &Cursor<'_>, grace: Option<i64>, errors: &mut FieldErrors) {
    let seconds = action.integer("seconds").unwrap_or(0);
    if let Some(grace) = grace.filter(|grace| seconds < 0 || seconds > *grace) {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.invalid(action, seconds, detail);
    }
}

fn validate_stop_signal(signal: &Cursor<'_>, system: Option<&str>, errors: &mut FieldErrors) {
    match system {
        None => errors.forbidden(signal, "may not be set for containers with empty `spec.os.name`"),
        Some("windows") => signal.check_supported(&["SIGKILL", "SIGTERM"], errors),
        Some("linux") => {
            let supported = linux_signals();
            let supported: Vec<&str> = supported.iter().map(String::as_str).collect();
            signal.check_supported(&supported, errors);
        }
        Some(_) => {}
    }
}

/// Returns the names of the Linux signals, sorted.
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
