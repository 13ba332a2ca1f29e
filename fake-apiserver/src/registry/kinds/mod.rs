//! One strategy a built-in kind that needs one. It knows objects and nothing of storage or HTTP.

pub(crate) mod names;
pub(crate) mod view;
pub(crate) mod check;
pub(crate) mod pod;
pub(crate) mod workload_rules;
pub(crate) mod deployment;
pub(crate) mod replica_set;
pub(crate) mod stateful_set;
pub(crate) mod daemon_set;
pub(crate) mod job;
pub(crate) mod job_policies;
pub(crate) mod job_status;
pub(crate) mod cron_job;
pub(crate) mod cron;
pub(crate) mod pod_template;
pub(crate) mod workloads;
#[cfg(test)]
mod workload_tests;
pub(crate) mod labels;
pub(crate) mod access;
pub(crate) mod plain;
pub(crate) mod namespace;
pub(crate) mod config_map;
pub(crate) mod secret;

use crate::registry::strategy::Strategy;
use plain::{CONDITIONAL, GENERATED, PLAIN, Plain, RETURNED};

/// The strategy of a built-in resource; most need nothing but the defaults.
pub(crate) fn strategy(group: &str, resource: &str) -> &'static dyn Strategy {
    if let Some(strategy) = workloads::workload_strategy(group, resource) {
        return strategy;
    }
    match group {
        "" => core(resource),
        "admissionregistration.k8s.io" => &GENERATED_CONDITIONAL,
        "apiregistration.k8s.io" => &CONDITIONAL,
        "certificates.k8s.io" => match resource {
            "certificatesigningrequests" => &PLAIN,
            _ => &CONDITIONAL,
        },
        "coordination.k8s.io" => &CREATED_CONDITIONAL,
        "discovery.k8s.io" | "flowcontrol.apiserver.k8s.io" => &GENERATED,
        "events.k8s.io" => &CREATED,
        "internal.apiserver.k8s.io" | "storagemigration.k8s.io" => &CONDITIONAL,
        "networking.k8s.io" => match resource {
            "ingresses" | "ingressclasses" | "networkpolicies" => &GENERATED,
            _ => &PLAIN,
        },
        "node.k8s.io" => &CREATED_CONDITIONAL,
        "policy" => &GENERATED_CONDITIONAL,
        "rbac.authorization.k8s.io" => &ROLES,
        "resource.k8s.io" => match resource {
            "deviceclasses" | "resourceslices" | "devicetaintrules" => &GENERATED_RETURNED,
            "resourcepoolstatusrequests" => &CONDITIONAL_RETURNED,
            _ => &RETURNED,
        },
        "scheduling.k8s.io" => match resource {
            "priorityclasses" => &GENERATED,
            _ => &PLAIN,
        },
        "storage.k8s.io" => match resource {
            "csidrivers" | "csinodes" | "volumeattachments" => &CONDITIONAL_RETURNED,
            "csistoragecapacities" => &CONDITIONAL,
            _ => &RETURNED,
        },
        _ => &PLAIN,
    }
}

fn core(resource: &str) -> &'static dyn Strategy {
    match resource {
        "namespaces" => &namespace::Namespace,
        "configmaps" => &config_map::ConfigMap,
        "secrets" => &secret::Secret,
        "endpoints" | "limitranges" | "events" => &CREATED,
        "services" => &CREATED_RETURNED,
        "serviceaccounts" | "persistentvolumes" | "persistentvolumeclaims" | "resourcequotas" => &RETURNED,
        _ => &PLAIN,
    }
}

static CREATED: Plain = Plain {
    create_on_update: true,
    ..PLAIN
};
static CREATED_RETURNED: Plain = Plain {
    returns_deleted: true,
    ..CREATED
};
static CREATED_CONDITIONAL: Plain = Plain {
    create_on_update: true,
    ..CONDITIONAL
};
static GENERATED_CONDITIONAL: Plain = Plain {
    generation: true,
    ..CONDITIONAL
};
static GENERATED_RETURNED: Plain = Plain {
    generation: true,
    ..RETURNED
};
static CONDITIONAL_RETURNED: Plain = Plain {
    returns_deleted: true,
    ..CONDITIONAL
};
static ROLES: Plain = Plain {
    create_on_update: true,
    name: names::path_segment,
    ..PLAIN
};
