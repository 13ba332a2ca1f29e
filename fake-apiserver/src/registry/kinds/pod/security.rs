//! Security contexts of pods and containers.

use serde_json::Value;

use super::mounts::descending;
use super::windows::{validate_windows_options, visit_containers};
use crate::api::field::{FieldErrors, FieldPath};
use crate::registry::types::check::{between, in_range, optional_one_of};
use crate::registry::types::view::{
    JsonMap, flag, is_set, items, list, object, object_or_empty, text, texts, value_of,
};

/// The numbers of users and groups.
const IDS: (i64, i64) = (0, 2_147_483_647);

/// Checks the security context of a pod.
pub(super) fn validate_pod_security(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(context) = object(spec, "securityContext").filter(|context| !context.is_empty()) else {
        return;
    };
    let path = path.child("securityContext");
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        in_range(context, field, IDS, &path, errors);
    }
    for (index, group) in list(context, "supplementalGroups").iter().enumerate() {
        if let Some(group) = group.as_i64().filter(|group| *group < IDS.0 || *group > IDS.1) {
            errors.invalid(path.child("supplementalGroups").index(index), group, between(IDS));
        }
    }
    let own = |field| flag(spec, field) == Some(true);
    if own("hostPID") && own("shareProcessNamespace") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(path.child("shareProcessNamespace"), true, detail);
    }
    validate_sysctls(spec, context, &path, errors);
    let policies = ["Always", "OnRootMismatch"];
    optional_one_of(context, "fsGroupChangePolicy", &policies, &path, errors);
    validate_seccomp(context, &path, errors);
    validate_windows_options(context, &path, errors);
    validate_app_armor(context, &path, errors);
    let policies = ["Merge", "Strict"];
    optional_one_of(context, "supplementalGroupsPolicy", &policies, &path, errors);
    // `MountOption` is behind the gate SELinuxMount.
    let policies = ["Recursive"];
    optional_one_of(context, "seLinuxChangePolicy", &policies, &path, errors);
}

fn validate_sysctls(spec: &JsonMap, context: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, sysctl) in items(context, "sysctls") {
        let name = text(sysctl, "name");
        let at = || path.child("sysctls").index(index).child("name");
        if name.is_empty() {
            errors.required(at(), "");
        } else if !is_sysctl(name) {
            let detail = "must have at most 253 characters and match regex \
                          ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            errors.invalid(at(), name, detail);
        } else if seen.contains(&name) {
            errors.duplicate(at(), name);
        }
        let first = name.split(['.', '/']).next().unwrap_or_default();
        let ipc = matches!(name, "kernel.sem" | "kernel/sem")
            || [
                "kernel.shm",
                "kernel.msg",
                "fs.mqueue.",
                "kernel/shm",
                "kernel/msg",
                "fs/mqueue/",
            ]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        if flag(spec, "hostNetwork") == Some(true) && first == "net" {
            errors.invalid(at(), name, "may not be specified when 'hostNetwork' is true");
        } else if flag(spec, "hostIPC") == Some(true) && ipc {
            errors.invalid(at(), name, "may not be specified when 'hostIPC' is true");
        }
        seen.push(name);
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

fn validate_seccomp(context: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(profile) = object(context, "seccompProfile") else {
        return;
    };
    let path = path.child("seccompProfile");
    match text(profile, "type") {
        "" => errors.required(path.child("type"), "type is required when seccompProfile is set"),
        "Localhost" | "RuntimeDefault" | "Unconfined" => {}
        other => {
            let supported = ["Localhost", "RuntimeDefault", "Unconfined"];
            errors.not_supported(path.child("type"), other, &supported);
        }
    }
    let file = is_set(profile, "localhostProfile");
    match (text(profile, "type") == "Localhost", file) {
        (true, false) => {
            errors.required(
                path.child("localhostProfile"),
                "must be set when seccomp type is Localhost",
            );
        }
        (true, true) => descending(
            text(profile, "localhostProfile"),
            || path.child("localhostProfile"),
            errors,
        ),
        (false, true) => {
            let detail = "can only be set when seccomp type is Localhost";
            errors.invalid(path.child("localhostProfile"), Value::Object(profile.clone()), detail);
        }
        (false, false) => {}
    }
}

fn validate_app_armor(context: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(profile) = object(context, "appArmorProfile") else {
        return;
    };
    let path = path.child("appArmorProfile");
    let at = || path.child("localhostProfile");
    let file = profile.get("localhostProfile").and_then(Value::as_str);
    match text(profile, "type") {
        "Localhost" => {
            match file {
                None => errors.required(at(), "must be set when AppArmor type is Localhost"),
                Some(file) if file.trim() != file => errors.invalid(at(), file, "must not be padded with whitespace"),
                Some("") => errors.required(at(), "must be set when AppArmor type is Localhost"),
                Some(_) => {}
            }
            if file.is_some_and(|file| file.len() > 4095) {
                errors.too_long(at(), 4095);
            }
        }
        "RuntimeDefault" | "Unconfined" => {
            if let Some(file) = file {
                errors.invalid(at(), file, "can only be set when AppArmor type is Localhost");
            }
        }
        "" => errors.required(path.child("type"), "type is required when appArmorProfile is set"),
        other => {
            let supported = ["Localhost", "RuntimeDefault", "Unconfined"];
            errors.not_supported(path.child("type"), other, &supported);
        }
    }
}

/// Checks the security context of a container.
pub(super) fn validate_container_security(
    container: &JsonMap,
    host_users: bool,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let Some(context) = object(container, "securityContext") else {
        return;
    };
    let path = path.child("securityContext");
    in_range(context, "runAsUser", IDS, &path, errors);
    in_range(context, "runAsGroup", IDS, &path, errors);
    optional_one_of(context, "procMount", &["Default", "Unmasked"], &path, errors);
    if host_users && text(context, "procMount") == "Unmasked" {
        let detail = "`hostUsers` must be false to use `Unmasked`";
        errors.invalid(path.child("procMount"), "Unmasked", detail);
    }
    validate_seccomp(context, &path, errors);
    if flag(context, "allowPrivilegeEscalation") == Some(false) {
        let shown = || super::print::go_names(&Value::Object(context.clone()));
        if flag(context, "privileged") == Some(true) {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.invalid(path.clone(), shown(), detail);
        }
        let added = texts(object_or_empty(context, "capabilities"), "add");
        for _ in added.filter(|(_, capability)| *capability == "CAP_SYS_ADMIN") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.invalid(path.clone(), shown(), detail);
        }
    }
    validate_windows_options(context, &path, errors);
    validate_app_armor(context, &path, errors);
}

/// Checks what a pod in a user namespace of its own may not have.
pub(super) fn validate_host_users(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    if flag(spec, "hostUsers") != Some(false) {
        return;
    }
    let detail = "when `hostUsers` is false";
    for (field, called) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if flag(spec, field) == Some(true) {
            errors.forbidden(path.child(called), detail);
        }
    }
    visit_containers(spec, path, |container, at| {
        if !list(container, "volumeDevices").is_empty() {
            errors.forbidden(at.child("volumeDevices"), detail);
        }
    });
}

/// Checks that the annotations that seccomp and AppArmor once were say what the fields say.
pub(super) fn validate_profile_annotations(
    annotations: &JsonMap,
    spec: &JsonMap,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    if annotations.is_empty() {
        return;
    }
    const SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
    const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
    let own = object_or_empty(spec, "securityContext");
    compare(
        own,
        "seccompProfile",
        text(annotations, SECCOMP),
        &path.child("securityContext"),
        errors,
    );
    visit_containers(spec, path, |container, at| {
        let context = object_or_empty(container, "securityContext");
        let said = text(annotations, &format!("{SECCOMP_CONTAINER}{}", text(container, "name")));
        compare(context, "seccompProfile", said, &at.child("securityContext"), errors);
    });
    if text(object_or_empty(spec, "os"), "name") == "windows" {
        return;
    }
    visit_containers(spec, path, |container, at| {
        let context = object_or_empty(container, "securityContext");
        let context = if is_set(context, "appArmorProfile") {
            context
        } else {
            own
        };
        let said = text(annotations, &format!("{APP_ARMOR}{}", text(container, "name")));
        compare(context, "appArmorProfile", said, &at.child("securityContext"), errors);
    });
}

fn compare(context: &JsonMap, field: &str, said: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(profile) = object(context, field).filter(|_| !said.is_empty()) else {
        return;
    };
    let what = if field == "seccompProfile" {
        "seccomp"
    } else {
        "apparmor"
    };
    let kind = text(profile, "type");
    let same_kind = match kind {
        "Unconfined" => said == "unconfined",
        "RuntimeDefault" => said == "runtime/default" || (what == "seccomp" && said == "docker/default"),
        "Localhost" => said.starts_with("localhost/"),
        _ => true,
    };
    if !same_kind {
        let detail = format!("{what} type in annotation and field must match");
        errors.forbidden(path.child(field).child("type"), detail);
    } else if kind == "Localhost" && value_of(profile, "localhostProfile").as_str() != said.strip_prefix("localhost/") {
        let detail = format!("{what} profile in annotation and field must match");
        errors.forbidden(path.child(field).child("localhostProfile"), detail);
    }
}
