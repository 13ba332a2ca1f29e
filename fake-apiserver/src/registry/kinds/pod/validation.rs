//! Validation of Pods, pod templates and pod specs.

use std::collections::BTreeSet;

use super::amount::read;
use super::annotations::{MIRROR, validate_annotations};
use super::containers::{Surroundings, validate_host_network, validate_image_spaces};
use super::env::validate_file_volumes;
use super::pod_resources::requested;
use super::resources::{Owner, validate_resources};
use super::scheduling::{validate_affinity, validate_spread, validate_tolerations};
use super::search_domain::search_domain;
use super::security::{validate_host_users, validate_pod_security, validate_profile_annotations};
use super::volumes::{self, validate_volumes};
use super::windows::{validate_host_processes, validate_system};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::registry::types::check::between;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::net::validate_ip;
use crate::registry::types::{labels, names};

/// Range of a positive 32-bit number of seconds.
const SECONDS: (i64, i64) = (1, 2_147_483_647);

/// The pod template of a workload, with options for its validation.
pub(crate) struct Template<'a> {
    /// The template itself, which is usually `spec.template`.
    pub(crate) template: Cursor<'a>,
    /// Names of the volumes that a StatefulSet creates for its claims.
    pub(crate) claims: BTreeSet<&'a str>,
    /// Set if the controller sets the hostname and subdomain of the pods.
    pub(crate) names_pods: bool,
}

impl<'a> Template<'a> {
    /// Returns the template in `spec`, with the default options.
    pub(crate) fn of(spec: &'a Cursor<'a>) -> Self {
        Self {
            template: spec.at("template"),
            claims: BTreeSet::new(),
            names_pods: false,
        }
    }

    /// Checks the labels and annotations of the template. As in kube-apiserver, the paths in errors lack `metadata`.
    pub(crate) fn validate_metadata(&self, errors: &mut FieldErrors) {
        let template = &self.template;
        let labels = template.at("labels").in_other(template.get("metadata.labels"));
        let annotations = template
            .at("annotations")
            .in_other(template.get("metadata.annotations"));
        labels::validate_labels(&labels, errors);
        labels::validate_annotations(&annotations, errors);
        validate_annotations(&annotations, &template.at("spec"), errors);
    }

    /// Checks the template.
    pub(crate) fn validate(&self, errors: &mut FieldErrors) {
        self.validate_metadata(errors);
        let spec = self.template.at("spec");
        let owner = volumes::Owner {
            name: "",
            is_pod: false,
            is_mirror: false,
            claims: &self.claims,
        };
        validate_spec(&spec, owner, self.names_pods, errors);
        validate_profile_annotations(&self.template.at("metadata.annotations"), &spec, errors);
        if !spec.is_empty("ephemeralContainers") {
            let detail = "ephemeral containers not allowed in pod template";
            errors.forbidden(spec.at("ephemeralContainers"), detail);
        }
    }
}

/// Checks a new Pod.
pub(super) fn validate_created(pod: &Object, errors: &mut FieldErrors) {
    validate_pod(pod, errors);
    let pod = Cursor::root(pod);
    let spec = pod.at("spec");
    if !spec.is_empty("ephemeralContainers") {
        errors.forbidden(spec.at("ephemeralContainers"), "cannot be set on create");
    }
    if !spec.is_empty("nodeName") && !spec.is_empty("schedulingGates") {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.forbidden(spec.at("nodeName"), detail);
    }
    validate_profile_annotations(&pod.at("metadata.annotations"), &spec, errors);
}

/// Checks a new or updated Pod.
pub(super) fn validate_pod(pod: &Object, errors: &mut FieldErrors) {
    let (none, name) = (BTreeSet::new(), pod.name());
    let pod = Cursor::root(pod);
    let (spec, annotations) = (pod.at("spec"), pod.at("metadata.annotations"));
    let owner = volumes::Owner {
        name,
        is_pod: true,
        is_mirror: annotations.has_entry(MIRROR),
        claims: &none,
    };
    validate_annotations(&annotations, &spec, errors);
    validate_spec(&spec, owner, false, errors);
    if spec.is_empty("serviceAccountName") {
        for volume in spec.items("volumes") {
            for source in volume.items("projected.sources") {
                if let Some(token) = source.present("serviceAccountToken") {
                    errors.forbidden(token, "must not be specified when serviceAccountName is not set");
                }
            }
        }
    }
    for container in ["containers", "initContainers"]
        .iter()
        .flat_map(|list| spec.items(list))
    {
        validate_image_spaces(&container, errors);
    }
}

fn validate_spec<'a>(spec: &'a Cursor<'a>, owner: volumes::Owner<'a>, names_pods: bool, errors: &mut FieldErrors) {
    if !spec.is_set("terminationGracePeriodSeconds") {
        errors.required(spec.at("terminationGracePeriodSeconds"), "");
    }
    let volumes = validate_volumes(spec, owner, errors);
    if owner.is_mirror {
        for _ in spec.items("resourceClaims") {
            errors.forbidden(FieldPath::unnamed(), "static pods do not support resource claims");
        }
    } else {
        validate_resource_claims(spec, errors);
    }
    let claims = spec.items("resourceClaims").map(|claim| claim.text("name"));
    let surroundings = Surroundings {
        spec,
        volumes,
        claims: claims.filter(|name| !name.is_empty()).collect(),
    };
    surroundings.validate(errors);
    validate_pod_resources(spec, &surroundings.claims, errors);
    validate_host_network(spec, owner.is_pod, errors);
    let policies = ["Always", "OnFailure", "Never"];
    spec.at("restartPolicy").check_required_one_of(&policies, errors);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    spec.at("dnsPolicy").check_required_one_of(&policies, errors);
    labels::validate_labels(&spec.at("nodeSelector"), errors);
    validate_pod_security(spec, errors);
    validate_affinity(spec, errors);
    validate_dns_config(spec, errors);
    validate_gates(spec, errors);
    validate_spread(spec, errors);
    validate_host_processes(spec, errors);
    validate_host_users(spec, errors);
    validate_names(spec, names_pods, errors);
    validate_system(spec, errors);
    if spec.is_set("schedulingGroup") {
        let name = spec.at("schedulingGroup.podGroupName");
        match name.is_set("") {
            true => name.check_name(|it| names::dns1123_subdomain(it, false), errors),
            false => errors.invalid(name, Value::Null, "must specify one of: `podGroupName`"),
        }
    }
    validate_file_volumes(spec, errors);
}

fn validate_names(spec: &Cursor<'_>, names_pods: bool, errors: &mut FieldErrors) {
    let subdomain = |it: &str| names::dns1123_subdomain(it, false);
    if let Some(name) = spec.present("hostnameOverride") {
        validate_host_name_override(spec, &name, errors);
    }
    spec.at("serviceAccountName").check_subdomain(errors);
    spec.at("nodeName").check_subdomain(errors);
    spec.at("activeDeadlineSeconds").check_range(SECONDS, errors);
    if !names_pods {
        spec.at("hostname").check_label(errors);
        spec.at("subdomain").check_label(errors);
    }
    validate_tolerations(spec, errors);
    for alias in spec.items("hostAliases") {
        validate_ip(&alias.at("ip"), errors);
        for name in alias.items("hostnames") {
            name.check_name(subdomain, errors);
        }
    }
    spec.at("priorityClassName").check_subdomain(errors);
    if let Some(class) = spec.present("runtimeClassName") {
        class.check_name(subdomain, errors);
    }
    if let Some(policy) = spec.present("preemptionPolicy") {
        policy.check_required_one_of(&["PreemptLowerPriority", "Never"], errors);
    }
    if let Some(overhead) = spec.present("overhead") {
        let limits = Map::from_iter([("limits".to_owned(), overhead.to_value())]).into();
        validate_resources(&overhead.in_other(Some(&limits)), Owner::Container, &[], errors);
    }
}

fn validate_host_name_override(spec: &Cursor<'_>, name: &Cursor<'_>, errors: &mut FieldErrors) {
    if spec.flag("setHostnameAsFQDN") == Some(true) {
        errors.forbidden(name, "may not be specified when setHostnameAsFQDN is true");
    }
    if spec.flag("hostNetwork") == Some(true) {
        errors.forbidden(name, "may not be specified when hostNetwork is true");
    }
    if name.as_text().len() > 64 {
        errors.too_long(name, 64);
    }
    name.check_name(|it| names::dns1123_subdomain(it, false), errors);
}

fn validate_gates(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    for gate in spec.items("readinessGates") {
        gate.at("conditionType").check_name(names::qualified_name, errors);
    }
    let mut seen = BTreeSet::new();
    for gate in spec.items("schedulingGates") {
        let name = gate.text("name");
        gate.refuse(name, names::qualified_name(name), errors);
        if !seen.insert(name) {
            errors.duplicate(gate, name);
        }
    }
}

fn validate_resource_claims(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for claim in spec.items("resourceClaims") {
        let name = claim.text("name");
        if name.is_empty() {
            errors.required(claim.at("name"), "");
        } else if !seen.insert(name) {
            errors.duplicate(claim.at("name"), name);
        } else {
            claim.at("name").check_label(errors);
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        let detail = match sources.iter().filter(|source| claim.is_set(source)).count() {
            0 => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            1 => "",
            _ => "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
        };
        if !detail.is_empty() {
            let fields = ["name", "resourceClaimName", "resourceClaimTemplateName"];
            let shown = super::print::go_struct(&claim, &fields);
            crate::registry::kinds::metadata::invalid_printed(claim.path(), &shown, detail, errors);
        }
        for source in sources {
            if let Some(name) = claim.present(source) {
                name.check_name(|it| names::dns1123_subdomain(it, false), errors);
            }
        }
    }
}

/// Checks the pod-level resources, and that the resources of the containers do not exceed them.
fn validate_pod_resources(spec: &Cursor<'_>, claims: &[&str], errors: &mut FieldErrors) {
    let Some(own) = spec.present("resources") else {
        return;
    };
    if spec.text("os.name") == "windows" {
        errors.forbidden(own, "may not be set for a windows pod");
        return;
    }
    if let Some(claims) = own.present("claims") {
        errors.forbidden(claims, "claims may not be set for Resources at pod-level");
    }
    validate_resources(&own, Owner::Pod, claims, errors);
    for (resource, amount) in own.entries("requests") {
        let Some((sum, written)) = requested(spec, "requests", resource) else {
            continue;
        };
        if read(amount.as_text()).is_some_and(|whole| sum > whole) {
            let detail = format!("must be greater than or equal to aggregate container requests of {written}");
            errors.invalid(amount, amount.as_text(), detail);
        }
    }
    for (resource, amount) in own.entries("limits") {
        let whole = amount.as_text();
        if let Some((sum, written)) = requested(spec, "limits", resource).filter(|_| resource.starts_with("hugepages-"))
            && read(whole).is_some_and(|most| sum > most)
        {
            let detail = format!("must be greater than or equal to aggregate container limits of {written}");
            errors.invalid(amount, whole, detail);
        }
    }
    for (index, container) in spec.items("containers").enumerate() {
        for (resource, limit) in container.entries("resources.limits") {
            let limits = own.at("limits");
            let whole = limits.entry(resource).as_text();
            if let (Some(own_limit), Some(most)) = (read(limit.as_text()), read(whole))
                && own_limit > most
            {
                let at = own.at("containers").path().index(index).key(resource).child("limits");
                let detail = format!("must be less than or equal to pod limits of {whole}");
                errors.invalid(at, limit.as_text(), detail);
            }
        }
    }
}

fn validate_dns_config(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let config = spec.at("dnsConfig");
    let (servers, searches) = (config.at("nameservers"), config.at("searches"));
    if spec.text("dnsPolicy") == "None" {
        if !config.is_set("") {
            errors.required(config, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if servers.is_empty("") {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.required(servers, detail);
            return;
        }
    }
    if servers.list("").len() > 3 {
        let detail = "must not have more than 3 nameservers";
        errors.invalid(servers, servers.to_value(), detail);
    }
    for server in servers.items("") {
        validate_ip(&server, errors);
    }
    if searches.list("").len() > 32 {
        let detail = "must not have more than 32 search paths";
        errors.invalid(searches, searches.to_value(), detail);
    }
    let length: usize = searches.texts("").map(|search| search.len() + 1).sum();
    if length > 2049 {
        let detail = "must not have more than 2048 characters (including spaces) in the search list";
        errors.invalid(searches, searches.to_value(), detail);
    }
    for search in searches.items("").filter(|search| search.as_text() != ".") {
        let name = search.as_text();
        let name = name.strip_suffix('.').unwrap_or(name);
        search.refuse(name, search_domain(name), errors);
    }
    for option in config.items("options") {
        if option.is_empty("name") {
            errors.required(option, "must not be empty");
        }
    }
}

/// Returns the error message for a number outside the range of non-negative 32-bit integers.
pub(super) fn deadline_range() -> String {
    between((0, SECONDS.1))
}
