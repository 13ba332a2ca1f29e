//! Restrictions by the operating system of a pod, and the options of Windows.

use super::defaults::CONTAINER_LISTS;
use crate::api::field::{FieldErrors, FieldPath};
use crate::registry::types::check::{optional_subdomain, required};
use crate::registry::types::view::{JsonMap, flag, is_set, items, list, object, object_or_empty, text};

/// Fields of a pod's security context that Windows does not support.
const POD_FIELDS: [&str; 6] = [
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
    "sysctls",
];

/// Fields of a container's security context that Windows does not support, in the order of the errors.
const CONTAINER_FIELDS: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

/// Calls `visit` for each container with its path.
pub(super) fn visit_containers(spec: &JsonMap, path: &FieldPath, mut visit: impl FnMut(&JsonMap, FieldPath)) {
    for name in CONTAINER_LISTS {
        for (index, container) in items(spec, name) {
            visit(container, path.child(name).index(index));
        }
    }
}

/// Checks `os` and what it forbids.
pub(super) fn validate_system(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(os) = object(spec, "os") else {
        return;
    };
    if !required(os, "name", &path.child("os"), errors) {
        return;
    }
    match text(os, "name") {
        "linux" => validate_linux(spec, path, errors),
        "windows" => validate_windows(spec, path, errors),
        other => errors.not_supported(path.child("os"), other, &["linux", "windows"]),
    }
}

fn validate_linux(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let detail = "windows options cannot be set for a linux pod";
    if is_set(object_or_empty(spec, "securityContext"), "windowsOptions") {
        errors.forbidden(path.child("securityContext.windowsOptions"), detail);
    }
    visit_containers(spec, path, |container, at| {
        if is_set(object_or_empty(container, "securityContext"), "windowsOptions") {
            errors.forbidden(at.child("securityContext.windowsOptions"), detail);
        }
    });
}

fn validate_windows(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let detail = "cannot be set for a windows pod";
    let context = object_or_empty(spec, "securityContext");
    let mut refuse = |there: bool, at: &str| {
        if there {
            errors.forbidden(path.child(at), detail);
        }
    };
    let own = |field| is_set(context, field);
    refuse(own("appArmorProfile"), "securityContext.appArmorProfile");
    refuse(own("seLinuxOptions"), "securityContext.seLinuxOptions");
    refuse(is_set(spec, "hostUsers"), "hostUsers");
    refuse(flag(spec, "hostPID") == Some(true), "hostPID");
    refuse(flag(spec, "hostIPC") == Some(true), "hostIPC");
    refuse(own("seccompProfile"), "securityContext.seccompProfile");
    refuse(own("fsGroup"), "securityContext.fsGroup");
    refuse(own("fsGroupChangePolicy"), "securityContext.fsGroupChangePolicy");
    refuse(!list(context, "sysctls").is_empty(), "securityContext.sysctls");
    refuse(is_set(spec, "shareProcessNamespace"), "shareProcessNamespace");
    for field in POD_FIELDS.iter().filter(|field| **field != "sysctls") {
        refuse(own(field), &format!("securityContext.{field}"));
    }
    visit_containers(spec, path, |container, at| {
        let context = object_or_empty(container, "securityContext");
        for field in CONTAINER_FIELDS.iter().filter(|field| is_set(context, field)) {
            errors.forbidden(at.child("securityContext").child(field), detail);
        }
    });
}

/// Checks `windowsOptions` of a security context.
pub(super) fn validate_windows_options(context: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(options) = object(context, "windowsOptions") else {
        return;
    };
    let path = path.child("windowsOptions");
    optional_subdomain(options, "gmsaCredentialSpecName", &path, errors);
    if is_set(options, "gmsaCredentialSpec") {
        let spec = text(options, "gmsaCredentialSpec");
        let detail = match spec.len() {
            0 => "gmsaCredentialSpec cannot be an empty string",
            length if length > 64 * 1024 => "gmsaCredentialSpec size must be under 64 KiB",
            _ => "",
        };
        if !detail.is_empty() {
            errors.invalid(path.child("gmsaCredentialSpec"), spec, detail);
        }
    }
    if is_set(options, "runAsUserName") {
        let name = text(options, "runAsUserName");
        for detail in user_name_troubles(name) {
            errors.invalid(path.child("runAsUserName"), name, detail);
        }
    }
}

fn user_name_troubles(name: &str) -> Vec<&'static str> {
    if name.is_empty() {
        return vec!["runAsUserName cannot be an empty string"];
    }
    if name.chars().any(|character| character.is_ascii_control()) {
        return vec!["runAsUserName cannot contain control characters"];
    }
    let parts: Vec<&str> = name.split('\\').collect();
    let (domain, user) = match parts.as_slice() {
        [user] => (None, *user),
        [domain, user] => (Some(*domain), *user),
        _ => return vec!["runAsUserName cannot contain more than one backslash"],
    };
    let mut troubles = Vec::new();
    if domain.is_some_and(|domain| domain.len() >= 256) {
        troubles.push("runAsUserName's Domain length must be under 256 characters");
    }
    if domain.is_some_and(|domain| !is_net_bios(domain) && !is_dns(domain)) {
        troubles.push("runAsUserName's Domain doesn't match the NetBios nor the DNS format");
    }
    if user.is_empty() {
        troubles.push("runAsUserName's User cannot be empty");
    } else if user.len() > 104 {
        troubles.push("runAsUserName's User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.chars().all(|character| matches!(character, '.' | ' ')) {
        troubles.push("runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains([
        '"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']',
    ]) {
        troubles.push("runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
    }
    troubles
}

fn is_net_bios(domain: &str) -> bool {
    let length = domain.chars().count();
    (1..=15).contains(&length)
        && !domain.starts_with('.')
        && !domain.contains(['\\', '/', ':', '*', '?', '"', '<', '>', '|'])
}

fn is_dns(domain: &str) -> bool {
    domain.split('.').all(|label| {
        let bytes = label.as_bytes();
        bytes.len() <= 63
            && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
            && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
    })
}

/// Checks containers that run as processes of a Windows host.
pub(super) fn validate_host_processes(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let asked = |context: &JsonMap| flag(object_or_empty(context, "windowsOptions"), "hostProcess");
    let of_pod = asked(object_or_empty(spec, "securityContext"));
    let (mut all, mut hosts) = (0, 0);
    visit_containers(spec, path, |container, at| {
        all += 1;
        let own = asked(object_or_empty(container, "securityContext"));
        if let (Some(pod), Some(own)) = (of_pod, own)
            && pod != own
        {
            let detail = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            errors.invalid(at.child("securityContext.windowsOptions.hostProcess"), own, detail);
        }
        if own.or(of_pod) == Some(true) {
            hosts += 1;
        }
    });
    if hosts == 0 {
        return;
    }
    if hosts != all {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.invalid(path.clone(), "", detail);
    }
    if flag(spec, "hostNetwork") != Some(true) {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.invalid(path.child("hostNetwork"), false, detail);
    }
}
