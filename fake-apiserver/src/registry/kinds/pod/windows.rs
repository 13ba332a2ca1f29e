//! Validates the Windows options of a pod, and the fields whose validity depends on its operating system.

use super::defaults::CONTAINER_LISTS;
use crate::api::field::FieldErrors;
use crate::registry::types::cursor::Cursor;

/// Fields of a pod's security context that Windows does not support.
const POD_FIELDS: [&str; 5] = [
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
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

/// Returns the containers of all three lists.
pub(super) fn containers<'a>(spec: &'a Cursor<'a>) -> impl Iterator<Item = Cursor<'a>> {
    CONTAINER_LISTS.into_iter().flat_map(|list| spec.items(list))
}

/// Checks `os`, and that no fields are set that this operating system does not support.
pub(super) fn validate_system(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let os = spec.at("os");
    if !os.is_set("") || !os.at("name").check_required(errors) {
        return;
    }
    match os.text("name") {
        "linux" => validate_linux(spec, errors),
        "windows" => validate_windows(spec, errors),
        other => errors.not_supported(os, other, &["linux", "windows"]),
    }
}

fn validate_linux(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let mut refuse = |owner: &Cursor<'_>| {
        if let Some(options) = owner.present("securityContext.windowsOptions") {
            errors.forbidden(options, "windows options cannot be set for a linux pod");
        }
    };
    refuse(spec);
    containers(spec).for_each(|container| refuse(&container));
}

fn validate_windows(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let detail = "cannot be set for a windows pod";
    let mut refuse = |there: bool, at: &str| {
        if there {
            errors.forbidden(spec.at(at), detail);
        }
    };
    let own = |field| spec.is_set(field);
    let context = spec.at("securityContext");
    refuse(
        own("securityContext.appArmorProfile"),
        "securityContext.appArmorProfile",
    );
    refuse(own("securityContext.seLinuxOptions"), "securityContext.seLinuxOptions");
    refuse(own("hostUsers"), "hostUsers");
    refuse(spec.flag("hostPID") == Some(true), "hostPID");
    refuse(spec.flag("hostIPC") == Some(true), "hostIPC");
    refuse(own("securityContext.seccompProfile"), "securityContext.seccompProfile");
    refuse(own("securityContext.fsGroup"), "securityContext.fsGroup");
    refuse(
        own("securityContext.fsGroupChangePolicy"),
        "securityContext.fsGroupChangePolicy",
    );
    refuse(!context.is_empty("sysctls"), "securityContext.sysctls");
    refuse(own("shareProcessNamespace"), "shareProcessNamespace");
    for field in POD_FIELDS {
        if let Some(field) = context.present(field) {
            errors.forbidden(field, detail);
        }
    }
    for container in containers(spec) {
        let context = container.at("securityContext");
        for field in CONTAINER_FIELDS {
            if let Some(field) = context.present(field) {
                errors.forbidden(field, detail);
            }
        }
    }
}

/// Checks `windowsOptions` of a security context.
pub(super) fn validate_windows_options(context: &Cursor<'_>, errors: &mut FieldErrors) {
    let Some(options) = context.present("windowsOptions") else {
        return;
    };
    options.at("gmsaCredentialSpecName").check_subdomain(errors);
    if let Some(spec) = options.present("gmsaCredentialSpec") {
        let detail = match spec.as_text().len() {
            0 => "gmsaCredentialSpec cannot be an empty string",
            length if length > 64 * 1024 => "gmsaCredentialSpec size must be under 64 KiB",
            _ => "",
        };
        if !detail.is_empty() {
            errors.invalid(spec, spec.as_text(), detail);
        }
    }
    if let Some(name) = options.present("runAsUserName") {
        for detail in user_name_troubles(name.as_text()) {
            errors.invalid(name, name.as_text(), detail);
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
pub(super) fn validate_host_processes(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    const WAY: &str = "securityContext.windowsOptions.hostProcess";
    let of_pod = spec.flag(WAY);
    let (mut all, mut hosts) = (0, 0);
    for container in containers(spec) {
        all += 1;
        let own = container.flag(WAY);
        if let (Some(pod), Some(own)) = (of_pod, own)
            && pod != own
        {
            let detail = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            errors.invalid(container.at(WAY), own, detail);
        }
        if own.or(of_pod) == Some(true) {
            hosts += 1;
        }
    }
    if hosts == 0 {
        return;
    }
    if hosts != all {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.invalid(spec, "", detail);
    }
    if spec.flag("hostNetwork") != Some(true) {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.invalid(spec.at("hostNetwork"), false, detail);
    }
}
