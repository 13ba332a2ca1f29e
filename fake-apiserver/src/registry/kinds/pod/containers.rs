//! Validation of containers: the common rules, and the additional rules for init and ephemeral containers.

use std::collections::BTreeSet;

use super::env::{validate_env, validate_env_from};
use super::mounts::{Volumes, validate_devices, validate_mounts};
use super::probes::{validate_lifecycle, validate_probes};
use super::resources::{Owner, validate_resources};
use super::security::validate_container_security;
use crate::api::field::FieldErrors;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::names;

/// Parts of a pod that are needed to check its containers.
pub(super) struct Surroundings<'a> {
    /// The pod's spec.
    pub(super) spec: &'a Cursor<'a>,
    /// The valid volumes of the pod.
    pub(super) volumes: Volumes<'a>,
    /// The names of the pod's resource claims.
    pub(super) claims: Vec<&'a str>,
}

/// Fields that may not be set for an ephemeral container, in the order of the fields in Go.
const NOT_FOR_EPHEMERAL: [&str; 9] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

impl Surroundings<'_> {
    fn grace(&self) -> Option<i64> {
        self.spec.integer("terminationGracePeriodSeconds")
    }

    fn system(&self) -> Option<&str> {
        self.spec.is_set("os").then(|| self.spec.text("os.name"))
    }

    /// Checks all three lists of containers.
    pub(super) fn validate(&self, errors: &mut FieldErrors) {
        self.validate_containers(errors);
        self.validate_init_containers(errors);
        self.validate_ephemeral_containers(errors);
    }

    fn validate_containers(&self, errors: &mut FieldErrors) {
        if self.spec.is_empty("containers") {
            errors.required(self.spec.at("containers"), "");
            return;
        }
        let mut seen = BTreeSet::new();
        for container in self.spec.items("containers") {
            self.validate_common(&container, errors);
            let name = container.text("name");
            if !seen.insert(name) {
                errors.duplicate(container.at("name"), name);
            }
            self.validate_life(&container, errors);
            require_restart_policy(&container, errors);
            validate_restart_rules(&container, errors);
        }
        let mut taken = BTreeSet::new();
        for container in self.spec.items("containers") {
            take_host_ports(&container, &mut taken, &container, errors);
        }
    }

    fn validate_life(&self, container: &Cursor<'_>, errors: &mut FieldErrors) {
        if let Some(lifecycle) = container.present("lifecycle") {
            validate_lifecycle(&lifecycle, self.grace(), self.system(), errors);
        }
        validate_probes(container, self.grace(), errors);
    }

    fn validate_init_containers(&self, errors: &mut FieldErrors) {
        let mut seen: BTreeSet<&str> = self.spec.items("containers").map(|it| it.text("name")).collect();
        for container in self.spec.items("initContainers") {
            self.validate_common(&container, errors);
            if container.is_set("restartPolicy") {
                validate_restart_rules(&container, errors);
            } else {
                require_restart_policy(&container, errors);
            }
            let name = container.text("name");
            if seen.contains(name) {
                errors.duplicate(container.at("name"), name);
            } else if !name.is_empty() {
                seen.insert(name);
            }
            // As in kube-apiserver, errors always have the path of the first init container.
            for first in self.spec.items("initContainers").take(1) {
                take_host_ports(&container, &mut BTreeSet::new(), &first, errors);
            }
            if container.text("restartPolicy") == "Always" {
                self.validate_life(&container, errors);
                continue;
            }
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if let Some(field) = container.present(field) {
                    let detail = "may not be set for init containers without restartPolicy=Always";
                    errors.forbidden(field, detail);
                }
            }
            for entry in container.items("resizePolicy") {
                let policy = entry.at("restartPolicy");
                if policy.as_text() == "RestartContainer" {
                    let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                    errors.invalid(policy, "RestartContainer", detail);
                }
            }
        }
    }

    fn validate_ephemeral_containers(&self, errors: &mut FieldErrors) {
        let others = ["containers", "initContainers"]
            .iter()
            .flat_map(|list| self.spec.items(list));
        let others: BTreeSet<&str> = others.map(|it| it.text("name")).collect();
        let mut seen = others.clone();
        for container in self.spec.items("ephemeralContainers") {
            self.validate_common(&container, errors);
            validate_image_spaces(&container, errors);
            let name = container.text("name");
            if !seen.insert(name) {
                errors.duplicate(container.at("name"), name);
            }
            let target = container.at("targetContainerName");
            if !target.is_empty("") && !others.contains(target.as_text()) {
                errors.not_found(target, target.as_text());
            }
            let detail = "cannot be set for an Ephemeral Container";
            for field in NOT_FOR_EPHEMERAL {
                // The other fields are pointers and lists in Go, so an empty value is treated as set.
                let is_set = match field {
                    "resources" => !container.is_empty(field),
                    _ => container.is_set(field),
                };
                if is_set {
                    errors.forbidden(container.at(field), detail);
                }
            }
            for mount in container.items("volumeMounts") {
                for field in ["subPath", "subPathExpr"] {
                    if !mount.is_empty(field) {
                        errors.forbidden(mount.at(field), detail);
                    }
                }
            }
        }
    }

    fn validate_common(&self, container: &Cursor<'_>, errors: &mut FieldErrors) {
        container.at("name").check_required_label(errors);
        container.at("image").check_required(errors);
        let policies = ["File", "FallbackToLogsOnError"];
        container
            .at("terminationMessagePolicy")
            .check_required_one_of(&policies, errors);
        validate_ports(container, errors);
        validate_env(container, errors);
        validate_env_from(container, errors);
        validate_mounts(container, &self.volumes, errors);
        validate_devices(container, &self.volumes, errors);
        let policies = ["Always", "IfNotPresent", "Never"];
        container.at("imagePullPolicy").check_required_one_of(&policies, errors);
        let resources = container.at("resources");
        if !resources.is_empty("") {
            validate_resources(&resources, Owner::Container, &self.claims, errors);
        }
        self.validate_resize_policy(container, errors);
        let host_users = self.spec.flag("hostUsers") != Some(false);
        validate_container_security(container, host_users, errors);
    }

    fn validate_resize_policy(&self, container: &Cursor<'_>, errors: &mut FieldErrors) {
        const RESOURCES: [&str; 2] = ["cpu", "memory"];
        const POLICIES: [&str; 2] = ["NotRequired", "RestartContainer"];
        let mut seen = BTreeSet::new();
        let list = container.at("resizePolicy");
        for entry in list.items("") {
            let (resource, policy) = (entry.text("resourceName"), entry.text("restartPolicy"));
            if !seen.insert(resource) {
                errors.duplicate(entry, resource);
            }
            for (value, supported) in [(resource, RESOURCES), (policy, POLICIES)] {
                if value.is_empty() {
                    errors.required(list, "");
                } else if !supported.contains(&value) {
                    errors.not_supported(list, value, &supported);
                }
            }
            if self.spec.text("restartPolicy") == "Never" && policy != "NotRequired" {
                let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
                errors.invalid(list, policy, detail);
            }
        }
    }
}

fn validate_ports(container: &Cursor<'_>, errors: &mut FieldErrors) {
    const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
    let mut seen = BTreeSet::new();
    for port in container.items("ports") {
        let name = port.text("name");
        if !name.is_empty() {
            let texts = names::port_name(name);
            if texts.is_empty() && !seen.insert(name) {
                errors.duplicate(port.at("name"), name);
            }
            port.at("name").check_texts(texts, errors);
        }
        match port.integer("containerPort").unwrap_or(0) {
            0 => errors.required(port.at("containerPort"), ""),
            _ => port.at("containerPort").check_port_number(errors),
        }
        if port.integer("hostPort").unwrap_or(0) != 0 {
            port.at("hostPort").check_port_number(errors);
        }
        port.at("protocol").check_required_one_of(&PROTOCOLS, errors);
    }
}

/// Adds the host ports of a container to `taken`, and reports those that are already taken (same protocol, address and
/// port number). Errors have the path of the container `shown_in`.
fn take_host_ports(
    container: &Cursor<'_>,
    taken: &mut BTreeSet<String>,
    shown_in: &Cursor<'_>,
    errors: &mut FieldErrors,
) {
    for (index, port) in container.items("ports").enumerate() {
        let number = port.integer("hostPort").unwrap_or(0);
        if number == 0 {
            continue;
        }
        let shown = format!("{}/{}/{number}", port.text("protocol"), port.text("hostIP"));
        if taken.contains(&shown) {
            let at = shown_in.at("ports").path().index(index).child("hostPort");
            errors.duplicate(at, shown);
        } else {
            taken.insert(shown);
        }
    }
}

/// Checks that a container with restart rules also has a restart policy.
fn require_restart_policy(container: &Cursor<'_>, errors: &mut FieldErrors) {
    if !container.is_set("restartPolicy") && !container.is_empty("restartPolicyRules") {
        let detail = "must specify restartPolicy when restart rules are used";
        errors.required(container.at("restartPolicy"), detail);
    }
}

fn validate_restart_rules(container: &Cursor<'_>, errors: &mut FieldErrors) {
    let policy = container.at("restartPolicy");
    policy.check_one_of(&["Always", "Never", "OnFailure"], errors);
    let rules = container.at("restartPolicyRules");
    if rules.list("").len() > 20 {
        errors.too_many(rules, rules.list("").len(), 20);
    }
    for rule in rules.items("") {
        rule.at("action")
            .check_supported(&["Restart", "RestartAllContainers"], errors);
        let codes = rule.at("exitCodes");
        if !codes.is_set("") {
            errors.required(codes, "must be specified");
            continue;
        }
        codes.at("operator").check_supported(&["In", "NotIn"], errors);
        let values = codes.list("values").len();
        if values > 255 {
            errors.too_many(codes.at("values"), values, 255);
        }
    }
}

/// Checks that an image does not begin or end with whitespace. Images in templates are not checked.
pub(super) fn validate_image_spaces(container: &Cursor<'_>, errors: &mut FieldErrors) {
    let image = container.text("image");
    if image.trim() != image {
        let detail = "must not have leading or trailing whitespace";
        errors.invalid(container.at("image"), image, detail);
    }
}

/// Checks that each host port of a pod in the host's network equals its container port. In templates, host ports may be
/// unset.
pub(super) fn validate_host_network(spec: &Cursor<'_>, is_pod: bool, errors: &mut FieldErrors) {
    if spec.flag("hostNetwork") != Some(true) {
        return;
    }
    for container in spec.items("containers") {
        for port in container.items("ports") {
            let host = port.integer("hostPort").unwrap_or(0);
            if (is_pod || host != 0) && port.integer("containerPort").unwrap_or(0) != host {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(port.at("hostPort"), host, detail);
            }
        }
    }
}
