//! Validation of the security contexts of pods and containers.

use std::collections::BTreeSet;

use super::annotations::{APP_ARMOR, SECCOMP, SECCOMP_CONTAINER, has_prefix};
use super::mounts::descending;
use super::windows::{containers, validate_windows_options};
use crate::api::field::FieldErrors;
use crate::api::json::Value;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::default_value;

/// Range of valid user and group ids.
pub(super) const IDS: (i64, i64) = (0, 2_147_483_647);

/// Prefixes of sysctls for inter-process communication.
const IPC_SYSCTLS: [&str; 6] = [
    "kernel.shm",
    "kernel.msg",
    "fs.mqueue.",
    "kernel/shm",
    "kernel/msg",
    "fs/mqueue/",
];

/// Checks the security context of a pod.
pub(super) fn validate_pod_security(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let context = spec.at("securityContext");
    if context.is_empty("") {
        return;
    }
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        context.at(field).check_range(IDS, errors);
    }
    for group in context.items("supplementalGroups") {
        group.check_range(IDS, errors);
    }
    let own = |field| spec.flag(field) == Some(true);
    if own("hostPID") && own("shareProcessNamespace") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(context.at("shareProcessNamespace"), true, detail);
    }
    validate_sysctls(spec, &context, errors);
    context
        .at("fsGroupChangePolicy")
        .check_one_of(&["Always", "OnRootMismatch"], errors);
    validate_seccomp(&context, errors);
    validate_windows_options(&context, errors);
    validate_app_armor(&context, errors);
    context
        .at("supplementalGroupsPolicy")
        .check_one_of(&["Merge", "Strict"], errors);
    // `MountOption` is not supported, because it depends on the gate SELinuxMount.
    context.at("seLinuxChangePolicy").check_one_of(&["Recursive"], errors);
}

fn validate_sysctls(spec: &Cursor<'_>, context: &Cursor<'_>, errors: &mut FieldErrors) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for sysctl in context.items("sysctls") {
        let (at, name) = (sysctl.at("name"), sysctl.text("name"));
        if name.is_empty() {
            errors.required(at, "");
        } else if !is_sysctl(name) {
            let detail = "must have at most 253 characters and match regex \
                          ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            errors.invalid(at, name, detail);
        } else if seen.contains(&name) {
            errors.duplicate(at, name);
        }
        let first = name.split(['.', '/']).next().unwrap_or_default();
        let is_ipc = matches!(name, "kernel.sem" | "kernel/sem") || IPC_SYSCTLS.iter().any(|it| name.starts_with(it));
        if spec.flag("hostNetwork") == Some(true) && first == "net" {
            errors.invalid(at, name, "may not be specified when 'hostNetwork' is true");
        } else if spec.flag("hostIPC") == Some(true) && is_ipc {
            errors.invalid(at, name, "may not be specified when 'hostIPC' is true");
        }
        seen.insert(name);
    }
}

fn is_sysctl(name: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= 253
        && name.split(['.', '/']).all(|segment| {
            let bytes = segment.as_bytes();
            bytes.first().is_some_and(|byte| alphanumeric(*byte))
                && bytes.last().is_some_and(|byte| alphanumeric(*byte))
                && bytes
                    .iter()
                    .all(|byte| alphanumeric(*byte) || matches!(byte, b'-' | b'_'))
        })
}

fn validate_seccomp(context: &Cursor<'_>, errors: &mut FieldErrors) {
    let Some(profile) = context.present("seccompProfile") else {
        return;
    };
    let (kind, file) = (profile.at("type"), profile.at("localhostProfile"));
    match kind.is_empty("") {
        true => errors.required(kind, "type is required when seccompProfile is set"),
        false => kind.check_supported(&["Localhost", "RuntimeDefault", "Unconfined"], errors),
    }
    match (kind.as_text() == "Localhost", file.is_set("")) {
        (true, false) => errors.required(file, "must be set when seccomp type is Localhost"),
        (true, true) => descending(&file, errors),
        (false, true) => {
            let shown = profile_as_printed(&profile);
            let detail = "can only be set when seccomp type is Localhost";
            crate::registry::kinds::metadata::invalid_printed(file, &shown, detail, errors);
        }
        (false, false) => {}
    }
}

/// Formats a seccomp profile like Go. The field `type` is not a pointer in Go, so an unset type is an empty string.
fn profile_as_printed(profile: &Cursor<'_>) -> String {
    let mut shown = profile.map_or_empty("").clone();
    default_value(&mut shown, "type", "");
    super::print::go_struct(&Cursor::root(&shown), &["type", "localhostProfile"])
}

fn validate_app_armor(context: &Cursor<'_>, errors: &mut FieldErrors) {
    if let Some(profile) = context.present("appArmorProfile") {
        validate_app_armor_profile(&profile, errors);
    }
}

/// Checks an AppArmor profile (`ValidateAppArmorProfileField`).
pub(super) fn validate_app_armor_profile(profile: &Cursor<'_>, errors: &mut FieldErrors) {
    let (kind, at) = (profile.at("type"), profile.at("localhostProfile"));
    let file = at.as_text();
    match kind.as_text() {
        "Localhost" => {
            if file.trim() != file {
                errors.invalid(at, file, "must not be padded with whitespace");
            } else if file.is_empty() {
                errors.required(at, "must be set when AppArmor type is Localhost");
            }
            if file.len() > 4095 {
                errors.too_long(at, 4095);
            }
        }
        "RuntimeDefault" | "Unconfined" => {
            if at.is_set("") {
                errors.invalid(at, file, "can only be set when AppArmor type is Localhost");
            }
        }
        "" => errors.required(kind, "type is required when appArmorProfile is set"),
        _ => kind.check_supported(&["Localhost", "RuntimeDefault", "Unconfined"], errors),
    }
}

/// Checks the security context of a container.
pub(super) fn validate_container_security(container: &Cursor<'_>, host_users: bool, errors: &mut FieldErrors) {
    let Some(context) = container.present("securityContext") else {
        return;
    };
    context.at("runAsUser").check_range(IDS, errors);
    context.at("runAsGroup").check_range(IDS, errors);
    let mount = context.at("procMount");
    mount.check_one_of(&["Default", "Unmasked"], errors);
    if host_users && mount.as_text() == "Unmasked" {
        let detail = "`hostUsers` must be false to use `Unmasked`";
        errors.invalid(mount, "Unmasked", detail);
    }
    validate_seccomp(&context, errors);
    if context.flag("allowPrivilegeEscalation") == Some(false) {
        let shown = || super::print::go_names(&context.to_value());
        if context.flag("privileged") == Some(true) {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.invalid(context, shown(), detail);
        }
        for _ in context.texts("capabilities.add").filter(|it| *it == "CAP_SYS_ADMIN") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.invalid(context, shown(), detail);
        }
    }
    validate_windows_options(&context, errors);
    validate_app_armor(&context, errors);
}

/// Checks the fields that may not be set for a pod in its own user namespace.
pub(super) fn validate_host_users(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    if spec.flag("hostUsers") != Some(false) {
        return;
    }
    let detail = "when `hostUsers` is false";
    for (field, called) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if spec.flag(field) == Some(true) {
            errors.forbidden(spec.at(called), detail);
        }
    }
    for container in containers(spec) {
        if !container.is_empty("volumeDevices") {
            errors.forbidden(container.at("volumeDevices"), detail);
        }
    }
}

/// Checks that the deprecated annotations for seccomp and AppArmor agree with the fields.
pub(super) fn validate_profile_annotations(annotations: &Cursor<'_>, spec: &Cursor<'_>, errors: &mut FieldErrors) {
    if annotations.is_empty("") {
        return;
    }
    let own = spec.at("securityContext");
    compare(
        "seccomp",
        &own.at("seccompProfile"),
        &annotations.entry(SECCOMP),
        errors,
    );
    if has_prefix(annotations, SECCOMP_CONTAINER) {
        for container in containers(spec) {
            let key = format!("{SECCOMP_CONTAINER}{}", container.text("name"));
            let profile = container.at("securityContext.seccompProfile");
            compare("seccomp", &profile, &annotations.entry(&key), errors);
        }
    }
    if spec.text("os.name") == "windows" || !has_prefix(annotations, APP_ARMOR) {
        return;
    }
    for container in containers(spec) {
        let key = format!("{APP_ARMOR}{}", container.text("name"));
        let mut profile = container.at("securityContext.appArmorProfile");
        if !profile.is_set("") {
            profile = profile.in_other(own.get("appArmorProfile"));
        }
        compare("apparmor", &profile, &annotations.entry(&key), errors);
    }
}

fn compare(what: &str, profile: &Cursor<'_>, annotation: &Cursor<'_>, errors: &mut FieldErrors) {
    if !profile.is_set("") || !annotation.is_set("") {
        return;
    }
    let (kind, said) = (profile.text("type"), annotation.as_text());
    let same_kind = match kind {
        "Unconfined" => said == "unconfined",
        "RuntimeDefault" => said == "runtime/default" || (what == "seccomp" && said == "docker/default"),
        "Localhost" => said.starts_with("localhost/"),
        _ => true,
    };
    let file = profile.get("localhostProfile").and_then(Value::as_str);
    if !same_kind {
        let detail = format!("{what} type in annotation and field must match");
        errors.forbidden(profile.at("type"), detail);
    } else if kind == "Localhost" && file != said.strip_prefix("localhost/") {
        let detail = format!("{what} profile in annotation and field must match");
        errors.forbidden(profile.at("localhostProfile"), detail);
    }
}
