//! The check of a pod spec, of a template, and of a new Pod.

use std::collections::BTreeSet;

use super::amount::read;
use super::annotations::validate_annotations;
use super::containers::{Surroundings, validate_host_network, validate_image_spaces};
use super::env::validate_file_volumes;
use super::pod_resources::{is_pod_level, requested};
use super::resources::{Owner, validate_resources};
use super::scheduling::{validate_affinity, validate_spread, validate_tolerations};
use super::search_domain::search_domain;
use super::security::{validate_host_users, validate_pod_security, validate_profile_annotations};
use super::volumes::{self, validate_volumes};
use super::windows::{validate_host_processes, validate_system};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::check::{between, in_range, optional_label, optional_subdomain, required_one_of, wrong};
use crate::registry::types::net::validate_ip;
use crate::registry::types::view::{
    JsonMap, flag, integer, is_set, items, list, object, object_or_empty, text, texts, value_of,
};
use crate::registry::types::{labels, names};

/// Seconds in 32 bits, at least one.
const SECONDS: (i64, i64) = (1, 2_147_483_647);

/// The template of a workload and how its check differs.
pub(crate) struct Template<'a> {
    /// `spec.template`
    pub(crate) template: &'a JsonMap,
    /// Claims that a StatefulSet mounts under these names.
    pub(crate) claims: BTreeSet<&'a str>,
    /// Set if the controller sets host name and subdomain itself.
    pub(crate) names_pods: bool,
}

impl<'a> Template<'a> {
    /// The template in `spec`, as most workloads have it.
    pub(crate) fn of(spec: &'a JsonMap) -> Self {
        Self {
            template: object_or_empty(spec, "template"),
            claims: BTreeSet::new(),
            names_pods: false,
        }
    }

    /// Its labels.
    pub(crate) fn labels(&self) -> &'a JsonMap {
        object_or_empty(object_or_empty(self.template, "metadata"), "labels")
    }

    /// Checks the labels and annotations of the template.
    pub(crate) fn validate_metadata(&self, path: &FieldPath, errors: &mut FieldErrors) {
        let meta = object_or_empty(self.template, "metadata");
        labels::validate_labels(meta.get("labels"), || path.child("labels"), errors);
        labels::validate_annotations(meta.get("annotations"), || path.child("annotations"), errors);
        let (spec, annotations) = (
            object_or_empty(self.template, "spec"),
            object_or_empty(meta, "annotations"),
        );
        validate_annotations(annotations, spec, &path.child("annotations"), errors);
    }

    /// Checks the template.
    pub(crate) fn validate(&self, path: &FieldPath, errors: &mut FieldErrors) {
        self.validate_metadata(path, errors);
        let (spec, path_of_spec) = (object_or_empty(self.template, "spec"), path.child("spec"));
        let annotations = object_or_empty(object_or_empty(self.template, "metadata"), "annotations");
        let owner = volumes::Owner {
            name: "",
            is_pod: false,
            claims: &self.claims,
        };
        validate_spec(spec, owner, self.names_pods, &path_of_spec, errors);
        validate_profile_annotations(annotations, spec, &path_of_spec, errors);
        if !list(spec, "ephemeralContainers").is_empty() {
            let detail = "ephemeral containers not allowed in pod template";
            errors.forbidden(path_of_spec.child("ephemeralContainers"), detail);
        }
    }
}

/// Checks a new Pod.
pub(super) fn validate_created(pod: &Object, errors: &mut FieldErrors) {
    validate_pod(pod, errors);
    let (spec, path) = (object_or_empty(pod, "spec"), FieldPath::new("spec"));
    if !list(spec, "ephemeralContainers").is_empty() {
        errors.forbidden(path.child("ephemeralContainers"), "cannot be set on create");
    }
    if !text(spec, "nodeName").is_empty() && !list(spec, "schedulingGates").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.forbidden(path.child("nodeName"), detail);
    }
    let annotations = object_or_empty(object_or_empty(pod, "metadata"), "annotations");
    validate_profile_annotations(annotations, spec, &path, errors);
}

/// Checks a Pod, new or not.
pub(super) fn validate_pod(pod: &Object, errors: &mut FieldErrors) {
    let (spec, path) = (object_or_empty(pod, "spec"), FieldPath::new("spec"));
    let annotations = object_or_empty(object_or_empty(pod, "metadata"), "annotations");
    validate_annotations(annotations, spec, &FieldPath::new("metadata.annotations"), errors);
    let none = BTreeSet::new();
    let owner = volumes::Owner {
        name: pod.name(),
        is_pod: true,
        claims: &none,
    };
    validate_spec(spec, owner, false, &path, errors);
    if text(spec, "serviceAccountName").is_empty() {
        for (place, volume) in items(spec, "volumes") {
            for (index, source) in items(object_or_empty(volume, "projected"), "sources") {
                if is_set(source, "serviceAccountToken") {
                    let at = path
                        .child("volumes")
                        .index(place)
                        .child("projected.sources")
                        .index(index);
                    let detail = "must not be specified when serviceAccountName is not set";
                    errors.forbidden(at.child("serviceAccountToken"), detail);
                }
            }
        }
    }
    for name in ["containers", "initContainers"] {
        for (index, container) in items(spec, name) {
            let image = text(container, "image");
            if image.trim() != image {
                validate_image_spaces(container, &path.child(name).index(index), errors);
            }
        }
    }
}

fn validate_spec<'a>(
    spec: &'a JsonMap,
    owner: volumes::Owner<'a>,
    names_pods: bool,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    if !is_set(spec, "terminationGracePeriodSeconds") {
        errors.required(path.child("terminationGracePeriodSeconds"), "");
    }
    let volumes = validate_volumes(spec, owner, path, errors);
    validate_resource_claims(spec, path, errors);
    let claims = items(spec, "resourceClaims").map(|(_, claim)| text(claim, "name"));
    let surroundings = Surroundings {
        spec,
        volumes,
        claims: claims.filter(|name| !name.is_empty()).collect(),
    };
    surroundings.validate(path, errors);
    validate_pod_resources(spec, &surroundings.claims, path, errors);
    validate_host_network(spec, owner.is_pod, path, errors);
    let policies = ["Always", "OnFailure", "Never"];
    required_one_of(spec, "restartPolicy", &policies, path, errors);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    required_one_of(spec, "dnsPolicy", &policies, path, errors);
    labels::validate_labels(spec.get("nodeSelector"), || path.child("nodeSelector"), errors);
    validate_pod_security(spec, path, errors);
    validate_affinity(spec, path, errors);
    validate_dns_config(spec, path, errors);
    validate_gates(spec, path, errors);
    validate_spread(spec, path, errors);
    validate_host_processes(spec, path, errors);
    validate_host_users(spec, path, errors);
    validate_names(spec, names_pods, path, errors);
    validate_system(spec, path, errors);
    if let Some(group) = object(spec, "schedulingGroup") {
        let path = path.child("schedulingGroup");
        if is_set(group, "podGroupName") {
            let name = text(group, "podGroupName");
            wrong(
                names::dns1123_subdomain(name, false),
                name,
                || path.child("podGroupName"),
                errors,
            );
        } else {
            let detail = "must specify one of: `podGroupName`";
            errors.invalid(path.child("podGroupName"), serde_json::Value::Null, detail);
        }
    }
    validate_file_volumes(spec, path, errors);
}

fn validate_names(spec: &JsonMap, names_pods: bool, path: &FieldPath, errors: &mut FieldErrors) {
    validate_host_name_override(spec, path, errors);
    optional_subdomain(spec, "serviceAccountName", path, errors);
    optional_subdomain(spec, "nodeName", path, errors);
    in_range(spec, "activeDeadlineSeconds", SECONDS, path, errors);
    if !names_pods {
        optional_label(spec, "hostname", path, errors);
        optional_label(spec, "subdomain", path, errors);
    }
    validate_tolerations(spec, path, errors);
    for (index, alias) in items(spec, "hostAliases") {
        let path = path.child("hostAliases").index(index);
        validate_ip(text(alias, "ip"), || path.child("ip"), errors);
        for (place, name) in texts(alias, "hostnames") {
            let at = || path.child("hostnames").index(place);
            wrong(names::dns1123_subdomain(name, false), name, at, errors);
        }
    }
    optional_subdomain(spec, "priorityClassName", path, errors);
    if is_set(spec, "runtimeClassName") {
        let name = text(spec, "runtimeClassName");
        let at = || path.child("runtimeClassName");
        wrong(names::dns1123_subdomain(name, false), name, at, errors);
    }
    if is_set(spec, "preemptionPolicy") {
        let policies = ["PreemptLowerPriority", "Never"];
        required_one_of(spec, "preemptionPolicy", &policies, path, errors);
    }
    if is_set(spec, "overhead") {
        let mut overhead = JsonMap::new();
        overhead.insert("limits".to_owned(), value_of(spec, "overhead"));
        validate_resources(&overhead, Owner::Container, &[], &path.child("overhead"), errors);
    }
}

fn validate_host_name_override(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    if !is_set(spec, "hostnameOverride") {
        return;
    }
    let at = || path.child("hostnameOverride");
    if flag(spec, "setHostnameAsFQDN") == Some(true) {
        errors.forbidden(at(), "may not be specified when setHostnameAsFQDN is true");
    }
    if flag(spec, "hostNetwork") == Some(true) {
        errors.forbidden(at(), "may not be specified when hostNetwork is true");
    }
    let name = text(spec, "hostnameOverride");
    if name.len() > 64 {
        errors.too_long(at(), 64);
    }
    wrong(names::dns1123_subdomain(name, false), name, at, errors);
}

fn validate_gates(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, gate) in items(spec, "readinessGates") {
        let kind = text(gate, "conditionType");
        let at = || path.child("readinessGates").index(index).child("conditionType");
        wrong(names::qualified_name(kind), kind, at, errors);
    }
    let mut seen = BTreeSet::new();
    for (index, gate) in items(spec, "schedulingGates") {
        let name = text(gate, "name");
        let at = || path.child("schedulingGates").index(index);
        wrong(names::qualified_name(name), name, at, errors);
        if !seen.insert(name) {
            errors.duplicate(at(), name);
        }
    }
}

fn validate_resource_claims(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (index, claim) in items(spec, "resourceClaims") {
        let path = path.child("resourceClaims").index(index);
        let name = text(claim, "name");
        if name.is_empty() {
            errors.required(path.child("name"), "");
        } else if !seen.insert(name) {
            errors.duplicate(path.child("name"), name);
        } else {
            wrong(names::dns1123_label(name, false), name, || path.child("name"), errors);
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        let detail = match sources.iter().filter(|source| is_set(claim, source)).count() {
            0 => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            1 => "",
            _ => "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
        };
        if !detail.is_empty() {
            let shown = super::print::go_struct(claim, &["name", "resourceClaimName", "resourceClaimTemplateName"]);
            crate::registry::kinds::metadata::invalid_printed(path.clone(), &shown, detail, errors);
        }
        for source in sources.iter().filter(|source| is_set(claim, source)) {
            let name = text(claim, source);
            wrong(
                names::dns1123_subdomain(name, false),
                name,
                || path.child(source),
                errors,
            );
        }
    }
}

/// Checks the resources of the whole pod, and that its containers stay within them.
fn validate_pod_resources(spec: &JsonMap, claims: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    let Some(own) = object(spec, "resources") else {
        return;
    };
    let at = path.child("resources");
    if text(object_or_empty(spec, "os"), "name") == "windows" {
        errors.forbidden(at, "may not be set for a windows pod");
        return;
    }
    if is_set(own, "claims") {
        errors.forbidden(at.child("claims"), "claims may not be set for Resources at pod-level");
    }
    validate_resources(own, Owner::Pod, claims, &at, errors);
    for (resource, value) in object_or_empty(own, "requests") {
        let Some((sum, written)) = requested(spec, "requests", resource) else {
            continue;
        };
        let whole = value.as_str().unwrap_or_default();
        if read(whole).is_some_and(|whole| sum > whole) {
            let detail = format!("must be greater than or equal to aggregate container requests of {written}");
            errors.invalid(at.child("requests").key(resource), whole, detail);
        }
    }
    for (resource, value) in object_or_empty(own, "limits") {
        let whole = value.as_str().unwrap_or_default();
        let most = read(whole);
        if let Some((sum, written)) = requested(spec, "limits", resource).filter(|_| resource.starts_with("hugepages-"))
            && most.is_some_and(|most| sum > most)
        {
            let detail = format!("must be greater than or equal to aggregate container limits of {written}");
            errors.invalid(at.child("limits").key(resource), whole, detail);
        }
        for (index, container) in items(spec, "containers").filter(|_| is_pod_level(resource)) {
            let limit = text(
                object_or_empty(object_or_empty(container, "resources"), "limits"),
                resource,
            );
            if read(limit) > most && !limit.is_empty() {
                let at = at.child("containers").index(index).key(resource).child("limits");
                errors.invalid(
                    at,
                    limit,
                    format!("must be less than or equal to pod limits of {whole}"),
                );
            }
        }
    }
}

fn validate_dns_config(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let path = path.child("dnsConfig");
    let config = object(spec, "dnsConfig");
    let servers = config.map_or(&[][..], |config| list(config, "nameservers"));
    if text(spec, "dnsPolicy") == "None" {
        if config.is_none() {
            errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.required(path.child("nameservers"), detail);
            return;
        }
    }
    let Some(config) = config else {
        return;
    };
    if servers.len() > 3 {
        let detail = "must not have more than 3 nameservers";
        errors.invalid(path.child("nameservers"), servers.to_vec(), detail);
    }
    for (index, server) in texts(config, "nameservers") {
        validate_ip(server, || path.child("nameservers").index(index), errors);
    }
    let searches = list(config, "searches");
    if searches.len() > 32 {
        let detail = "must not have more than 32 search paths";
        errors.invalid(path.child("searches"), searches.to_vec(), detail);
    }
    let length: usize = texts(config, "searches").map(|(_, search)| search.len() + 1).sum();
    if length > 2049 {
        let detail = "must not have more than 2048 characters (including spaces) in the search list";
        errors.invalid(path.child("searches"), searches.to_vec(), detail);
    }
    for (index, search) in texts(config, "searches").filter(|(_, search)| *search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        let at = || path.child("searches").index(index);
        wrong(search_domain(search), search, at, errors);
    }
    for (index, option) in items(config, "options") {
        if text(option, "name").is_empty() {
            errors.required(path.child("options").index(index), "must not be empty");
        }
    }
}

/// Returns the error for an integer that leaves 32 bits.
pub(super) fn deadline_range() -> String {
    between((0, SECONDS.1))
}

/// The deadline of a pod, if it has one.
pub(super) fn deadline(spec: &JsonMap) -> Option<i64> {
    integer(spec, "activeDeadlineSeconds")
}
