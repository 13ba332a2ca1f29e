//! Containers of a pod: what all of them obey, and what init and ephemeral ones do beside.

use std::collections::BTreeSet;

use super::env::{is_given, validate_env, validate_env_from};
use super::mounts::{Volumes, validate_devices, validate_mounts};
use super::probes::{validate_lifecycle, validate_probes};
use super::resources::{Owner, validate_resources};
use super::security::validate_container_security;
use crate::api::field::{FieldErrors, FieldPath};
use crate::registry::types::check::{optional_one_of, port_number, required, required_label, required_one_of, wrong};
use crate::registry::types::names;
use crate::registry::types::view::{
    JsonMap, flag, integer, is_set, items, list, object, object_or_empty, text, value_of,
};

/// Facts of the pod that its containers are checked against.
pub(super) struct Surroundings<'a> {
    /// The pod's spec.
    pub(super) spec: &'a JsonMap,
    /// Its right volumes.
    pub(super) volumes: Volumes<'a>,
    /// The names of its resource claims.
    pub(super) claims: Vec<&'a str>,
}

/// Fields that may not be set for an ephemeral container, in Go's order of fields.
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
        integer(self.spec, "terminationGracePeriodSeconds")
    }

    fn system(&self) -> Option<&str> {
        object(self.spec, "os").map(|os| text(os, "name"))
    }

    /// Checks all three lists.
    pub(super) fn validate(&self, path: &FieldPath, errors: &mut FieldErrors) {
        self.validate_containers(&path.child("containers"), errors);
        self.validate_init_containers(&path.child("initContainers"), errors);
        self.validate_ephemeral_containers(&path.child("ephemeralContainers"), errors);
    }

    fn validate_containers(&self, path: &FieldPath, errors: &mut FieldErrors) {
        if list(self.spec, "containers").is_empty() {
            errors.required(path.clone(), "");
            return;
        }
        let mut seen = BTreeSet::new();
        for (index, container) in items(self.spec, "containers") {
            let path = path.index(index);
            self.validate_common(container, &path, errors);
            let name = text(container, "name");
            if !seen.insert(name) {
                errors.duplicate(path.child("name"), name);
            }
            self.validate_life(container, &path, errors);
            require_restart_policy(container, &path, errors);
            validate_restart_rules(container, &path, errors);
        }
        let mut taken = BTreeSet::new();
        for (index, container) in items(self.spec, "containers") {
            take_host_ports(container, &mut taken, &path.index(index), errors);
        }
    }

    fn validate_life(&self, container: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
        if let Some(lifecycle) = object(container, "lifecycle") {
            validate_lifecycle(lifecycle, self.grace(), self.system(), &path.child("lifecycle"), errors);
        }
        validate_probes(container, self.grace(), path, errors);
    }

    fn validate_init_containers(&self, path: &FieldPath, errors: &mut FieldErrors) {
        let regular = items(self.spec, "containers").map(|(_, container)| text(container, "name"));
        let mut seen: BTreeSet<&str> = regular.collect();
        for (index, container) in items(self.spec, "initContainers") {
            let list = path;
            let path = path.index(index);
            self.validate_common(container, &path, errors);
            if is_set(container, "restartPolicy") {
                validate_restart_rules(container, &path, errors);
            } else {
                require_restart_policy(container, &path, errors);
            }
            let name = text(container, "name");
            if seen.contains(name) {
                errors.duplicate(path.child("name"), name);
            } else if !name.is_empty() {
                seen.insert(name);
            }
            // the server numbers ports of every init container from the first
            take_host_ports(container, &mut BTreeSet::new(), &list.index(0), errors);
            let sidecar = text(container, "restartPolicy") == "Always";
            if sidecar {
                self.validate_life(container, &path, errors);
            } else {
                for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                    if is_set(container, field) {
                        let detail = "may not be set for init containers without restartPolicy=Always";
                        errors.forbidden(path.child(field), detail);
                    }
                }
                for (place, policy) in items(container, "resizePolicy") {
                    if text(policy, "restartPolicy") == "RestartContainer" {
                        let at = path.child("resizePolicy").index(place).child("restartPolicy");
                        let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                        errors.invalid(at, "RestartContainer", detail);
                    }
                }
            }
        }
    }

    fn validate_ephemeral_containers(&self, path: &FieldPath, errors: &mut FieldErrors) {
        let others = ["containers", "initContainers"]
            .into_iter()
            .flat_map(|list| items(self.spec, list))
            .map(|(_, container)| text(container, "name"));
        let others: BTreeSet<&str> = others.collect();
        let mut seen = others.clone();
        for (index, container) in items(self.spec, "ephemeralContainers") {
            let path = path.index(index);
            self.validate_common(container, &path, errors);
            validate_image_spaces(container, &path, errors);
            let name = text(container, "name");
            if !seen.insert(name) {
                errors.duplicate(path.child("name"), name);
            }
            let target = text(container, "targetContainerName");
            if !target.is_empty() && !others.contains(target) {
                errors.not_found(path.child("targetContainerName"), target);
            }
            let detail = "cannot be set for an Ephemeral Container";
            for field in NOT_FOR_EPHEMERAL.iter().filter(|field| is_given(container, field)) {
                errors.forbidden(path.child(field), detail);
            }
            for (place, mount) in items(container, "volumeMounts") {
                for field in ["subPath", "subPathExpr"] {
                    if !text(mount, field).is_empty() {
                        errors.forbidden(path.child("volumeMounts").index(place).child(field), detail);
                    }
                }
            }
        }
    }

    fn validate_common(&self, container: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
        required_label(container, "name", path, errors);
        required(container, "image", path, errors);
        let policies = ["File", "FallbackToLogsOnError"];
        required_one_of(container, "terminationMessagePolicy", &policies, path, errors);
        validate_ports(container, path, errors);
        validate_env(container, path, errors);
        validate_env_from(container, path, errors);
        validate_mounts(container, &self.volumes, path, errors);
        validate_devices(container, &self.volumes, path, errors);
        let policies = ["Always", "IfNotPresent", "Never"];
        required_one_of(container, "imagePullPolicy", &policies, path, errors);
        let resources = object_or_empty(container, "resources");
        if !resources.is_empty() {
            validate_resources(
                resources,
                Owner::Container,
                &self.claims,
                &path.child("resources"),
                errors,
            );
        }
        self.validate_resize_policy(container, path, errors);
        let host_users = flag(self.spec, "hostUsers") != Some(false);
        validate_container_security(container, host_users, path, errors);
    }

    fn validate_resize_policy(&self, container: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
        const RESOURCES: [&str; 2] = ["cpu", "memory"];
        const POLICIES: [&str; 2] = ["NotRequired", "RestartContainer"];
        let mut seen = BTreeSet::new();
        for (index, entry) in items(container, "resizePolicy") {
            let path = path.child("resizePolicy");
            let (resource, policy) = (text(entry, "resourceName"), text(entry, "restartPolicy"));
            if !seen.insert(resource) {
                errors.duplicate(path.index(index), resource);
            }
            for (value, supported) in [(resource, RESOURCES), (policy, POLICIES)] {
                if value.is_empty() {
                    errors.required(path.clone(), "");
                } else if !supported.contains(&value) {
                    errors.not_supported(path.clone(), value, &supported);
                }
            }
            if text(self.spec, "restartPolicy") == "Never" && policy != "NotRequired" {
                let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
                errors.invalid(path, policy, detail);
            }
        }
    }
}

fn validate_ports(container: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
    let mut seen = BTreeSet::new();
    for (index, port) in items(container, "ports") {
        let path = path.child("ports").index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            let texts = names::port_name(name);
            if texts.is_empty() && !seen.insert(name) {
                errors.duplicate(path.child("name"), name);
            }
            wrong(texts, name, || path.child("name"), errors);
        }
        match integer(port, "containerPort").unwrap_or(0) {
            0 => errors.required(path.child("containerPort"), ""),
            number => port_number(number, || path.child("containerPort"), errors),
        }
        if let Some(number) = integer(port, "hostPort").filter(|number| *number != 0) {
            port_number(number, || path.child("hostPort"), errors);
        }
        required_one_of(port, "protocol", &PROTOCOLS, &path, errors);
    }
}

/// Two containers may not take the same port of the host.
fn take_host_ports(container: &JsonMap, taken: &mut BTreeSet<String>, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, port) in items(container, "ports") {
        let number = integer(port, "hostPort").unwrap_or(0);
        if number == 0 {
            continue;
        }
        let shown = format!("{}/{}/{number}", text(port, "protocol"), text(port, "hostIP"));
        if taken.contains(&shown) {
            errors.duplicate(path.child("ports").index(index).child("hostPort"), shown);
        } else {
            taken.insert(shown);
        }
    }
}

/// Restart rules need a policy to fall back to.
fn require_restart_policy(container: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    if !is_set(container, "restartPolicy") && !list(container, "restartPolicyRules").is_empty() {
        let detail = "must specify restartPolicy when restart rules are used";
        errors.required(path.child("restartPolicy"), detail);
    }
}

fn validate_restart_rules(container: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let rules = list(container, "restartPolicyRules").len();
    optional_one_of(
        container,
        "restartPolicy",
        &["Always", "Never", "OnFailure"],
        path,
        errors,
    );
    if rules > 20 {
        errors.too_many(path.child("restartPolicyRules"), rules, 20);
    }
    for (index, rule) in items(container, "restartPolicyRules") {
        let path = path.child("restartPolicyRules").index(index);
        let action = text(rule, "action");
        let actions = ["Restart", "RestartAllContainers"];
        if !actions.contains(&action) {
            errors.not_supported(path.child("action"), action, &actions);
        }
        let Some(codes) = object(rule, "exitCodes") else {
            errors.required(path.child("exitCodes"), "must be specified");
            continue;
        };
        let path = path.child("exitCodes");
        let operator = text(codes, "operator");
        if !["In", "NotIn"].contains(&operator) {
            errors.not_supported(path.child("operator"), operator, &["In", "NotIn"]);
        }
        let values = list(codes, "values").len();
        if values > 255 {
            errors.too_many(path.child("values"), values, 255);
        }
    }
}

/// Checks an image as only Pods do: templates may hold one with spaces around it.
pub(super) fn validate_image_spaces(container: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let image = text(container, "image");
    if image.trim() != image {
        errors.invalid(
            path.child("image"),
            image,
            "must not have leading or trailing whitespace",
        );
    }
}

/// Checks that ports of a pod in the host's network are the same on both sides.
pub(super) fn validate_host_network(spec: &JsonMap, is_pod: bool, path: &FieldPath, errors: &mut FieldErrors) {
    if flag(spec, "hostNetwork") != Some(true) {
        return;
    }
    for (place, container) in items(spec, "containers") {
        for (index, port) in items(container, "ports") {
            let host = integer(port, "hostPort").unwrap_or(0);
            if (is_pod || host != 0) && value_of(port, "containerPort").as_i64().unwrap_or(0) != host {
                let at = path.child("containers").index(place).child("ports").index(index);
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(at.child("hostPort"), host, detail);
            }
        }
    }
}
