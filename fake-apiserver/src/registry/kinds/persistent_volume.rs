//! The strategy of PersistentVolumes. Follows `ValidatePersistentVolume` and `ValidatePersistentVolumeUpdate` of
//! `pkg/apis/core/validation`.

use super::device::check_driver_name;
use super::persistent_volume_claim::{check_basic, protect, validate_access_modes};
use super::pod::warnings::deprecated_node_label;
use super::pod::{
    default_storage_systems, no_backsteps, validate_host_path, validate_initiator, validate_node_selector,
    validate_system,
};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::kinds::facts::Facts;
use crate::registry::kinds::strategy::{Context, Strategy};
use crate::registry::types::check::{IMMUTABLE, NOT_POSITIVE};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{copy_field, default_text, default_value, ensure_object, items_mut, object_mut};
use crate::registry::types::quantity::Quantity;

/// Finalizer that delays the deletion of a volume while a claim uses it.
const PROTECTION: &str = "kubernetes.io/pv-protection";
const RECLAIM_POLICIES: [&str; 3] = ["Delete", "Recycle", "Retain"];
/// Volume sources, in the order of kube-apiserver's checks. Exactly one must be set.
const SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

/// The strategy of PersistentVolumes.
#[derive(Debug)]
pub(crate) struct PersistentVolume;

impl Strategy for PersistentVolume {
    fn facts(&self) -> &Facts {
        &Facts {
            returns_deleted_object: true,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        let spec = ensure_object(object, "spec");
        default_text(spec, "persistentVolumeReclaimPolicy", "Retain");
        default_value(spec, "volumeMode", "Filesystem");
        default_source(spec);
        default_text(ensure_object(object, "status"), "phase", "Pending");
    }

    fn admit(&self, object: &mut Object, old: Option<&Object>, context: &Context<'_>) -> Result<(), String> {
        protect(object, old, PROTECTION, context);
        Ok(())
    }

    fn prepare_for_create(&self, object: &mut Object, context: &Context<'_>) {
        let status = json!({"phase": "Pending", "lastPhaseTransitionTime": context.entropy.now_seconds()});
        object.insert("status".into(), status);
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let root = Cursor::root(object);
        let spec = root.at("spec");
        validate_access_modes(&spec.at("accessModes"), "", errors);
        validate_capacity(&spec.at("capacity"), errors);
        spec.at("persistentVolumeReclaimPolicy")
            .check_one_of(&RECLAIM_POLICIES, errors);
        validate_node_affinity(&spec.at("nodeAffinity"), errors);
        validate_source(root.text("metadata.name"), &spec, errors);
        spec.at("storageClassName").check_subdomain(errors);
        spec.at("volumeMode").check_one_of(&["Block", "Filesystem"], errors);
        validate_attributes_class(&spec, errors);
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            copy_field(old, object, "spec");
            let time = "status.lastPhaseTransitionTime";
            let is_asked = Cursor::root(object)
                .get(time)
                .is_some_and(|it| Cursor::root(old).get(time) != Some(it));
            if Cursor::root(object).get("status.phase") != Cursor::root(old).get("status.phase") {
                if !is_asked {
                    let now = context.entropy.now_seconds();
                    ensure_object(object, "status").insert("lastPhaseTransitionTime".into(), now.into());
                }
            } else if !Cursor::root(object).is_set(time)
                && let Some(before) = Cursor::root(old).get(time)
            {
                ensure_object(object, "status").insert("lastPhaseTransitionTime".into(), before.clone());
            }
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if !context.subresource.is_empty() {
            return;
        }
        // kube-apiserver checks the volume twice: in the strategy, and in `ValidatePersistentVolumeUpdate`.
        self.validate(object, errors);
        self.validate(object, errors);
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        if SOURCES
            .iter()
            .any(|name| source_of(&new, &old, name) != source_of(&old, &old, name))
        {
            let text = "spec.persistentvolumesource is immutable after creation";
            errors.forbidden(FieldPath::new("spec.persistentvolumesource"), text);
        }
        if !new.same(&old, "spec.volumeMode") {
            let mode = new.at("spec.volumeMode").to_value();
            errors.invalid(FieldPath::new("volumeMode"), mode, IMMUTABLE);
        }
        let affinity = new.at("spec.nodeAffinity");
        let before = old.at("spec.nodeAffinity").to_value();
        let is_kept = [stable_labels(before.clone()), compact(before.clone())].contains(&compact(affinity.to_value()));
        if !before.is_null() && !is_kept {
            let text = format!("{IMMUTABLE}, except for updating from beta label to GA");
            errors.invalid(FieldPath::new("nodeAffinity"), affinity.to_value(), text);
        }
        if old.is_set("spec.volumeAttributesClassName") && !new.is_set("spec.volumeAttributesClassName") {
            let text = "update from non-nil value to nil is forbidden";
            errors.forbidden(FieldPath::new("spec.volumeAttributesClassName"), text);
        }
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        warnings_of(&Cursor::root(object))
    }
}

/// Fills in the defaults of a volume source. Inline volumes have no further defaults.
pub(super) fn default_source(spec: &mut Map) {
    if let Some(host_path) = object_mut(spec, "hostPath") {
        default_value(host_path, "type", "");
    }
    default_storage_systems(spec);
}

/// Returns the warnings about a volume (`GetWarningsForPersistentVolume`).
fn warnings_of(volume: &Cursor<'_>) -> Vec<String> {
    const ANNOTATIONS: [(&str, &str); 2] = [
        (
            "volume.beta.kubernetes.io/storage-class",
            "deprecated since v1.8; use \"storageClassName\" attribute instead",
        ),
        (
            "volume.beta.kubernetes.io/mount-options",
            "deprecated since v1.31; use \"mountOptions\" attribute instead",
        ),
    ];
    const PLUGINS: [(&str, &str, &str); 6] = [
        ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
        (
            "photonPersistentDisk",
            "photonPersistentDisk",
            "deprecated in v1.11, non-functional in v1.16+",
        ),
        ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
        (
            "storageos",
            "storageOS",
            "deprecated in v1.22, non-functional in v1.25+",
        ),
        (
            "glusterfs",
            "glusterfs",
            "deprecated in v1.25, non-functional in v1.26+",
        ),
        ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
    ];
    let mut warnings = Vec::new();
    let has = |key: &str| {
        volume
            .map("metadata.annotations")
            .is_some_and(|it| it.contains_key(key))
    };
    for (key, text) in ANNOTATIONS.iter().filter(|(key, _)| has(key)) {
        warnings.push(format!("metadata.annotations[{key}]: {text}"));
    }
    if volume.text("spec.persistentVolumeReclaimPolicy") == "Recycle" {
        let text = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic \
                    provisioning.";
        warnings.push(format!("spec.persistentVolumeReclaimPolicy: {text}"));
    }
    for term in volume.items("spec.nodeAffinity.required.nodeSelectorTerms") {
        for expression in term.items("matchExpressions") {
            let key = expression.at("key");
            if let Some(text) = deprecated_node_label(key.as_text()) {
                warnings.push(format!("{}: {} is {text}", key.path(), key.as_text()));
            }
        }
    }
    for (_, shown, text) in PLUGINS.iter().filter(|(field, ..)| volume.at("spec").is_set(field)) {
        warnings.push(format!("spec.{shown}: {text}"));
    }
    warnings
}

/// Checks the spec of an inline volume in a VolumeAttachment (`ValidatePersistentVolumeSpec`).
pub(super) fn validate_inline_spec(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    const NOT_HERE: &str = "may not be specified in the context of inline volumes";
    for field in ["claimRef", "capacity"] {
        if spec.is_set(field) && !(field == "capacity" && spec.is_empty(field)) {
            errors.forbidden(spec.at(field), NOT_HERE);
        }
    }
    if !spec.is_set("csi") {
        errors.required(spec.at("csi"), "has to be specified in the context of inline volumes");
    }
    validate_access_modes(&spec.at("accessModes"), "", errors);
    let policy = spec.at("persistentVolumeReclaimPolicy");
    if !matches!(policy.as_text(), "" | "Retain") {
        errors.forbidden(policy, "may only be Retain in the context of inline volumes");
    }
    if spec.is_set("nodeAffinity") {
        errors.forbidden(spec.at("nodeAffinity"), NOT_HERE);
    }
    validate_source("", spec, errors);
    if !spec.is_empty("storageClassName") {
        errors.forbidden(spec.at("storageClassName"), NOT_HERE);
    }
    let mode = spec.at("volumeMode");
    if mode.is_set("") && mode.as_text() != "Filesystem" {
        let text = "may not specify volumeMode other than Filesystem in the context of inline volumes";
        errors.forbidden(mode, text);
    }
}

fn validate_attributes_class(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let class = spec.at("volumeAttributesClassName");
    if class.is_set("") {
        if class.as_text().is_empty() {
            errors.required(class, "an empty string is disallowed");
        }
        class.check_subdomain(errors);
        if !spec.is_set("csi") {
            errors.required(
                spec.at("csi"),
                "has to be specified when using volumeAttributesClassName",
            );
        }
    }
}

/// Returns the source `name` of a volume. Omits `controllerExpandSecretRef` if `old` lacks it, because an update may
/// add this field.
fn source_of(volume: &Cursor<'_>, old: &Cursor<'_>, name: &str) -> Option<Value> {
    const SECRET: &str = "controllerExpandSecretRef";
    let mut source = volume.map("spec")?.get(name).cloned();
    if name == "csi"
        && old.map("spec.csi").is_some_and(|csi| !csi.contains_key(SECRET))
        && let Some(csi) = source.as_mut().and_then(Value::as_object_mut)
    {
        csi.remove(SECRET);
    }
    source
}

fn validate_capacity(capacity: &Cursor<'_>, errors: &mut FieldErrors) {
    if capacity.is_empty("") {
        errors.required(capacity, "");
    }
    let has_more = capacity.map("").is_some_and(|given| given.len() > 1);
    if !capacity.is_set("storage") || has_more {
        errors.not_supported(capacity, capacity.to_value(), &["storage"]);
    }
    for (_, amount) in capacity.entries("") {
        check_basic(&amount, errors);
        let value = Quantity::parse(amount.as_text()).ok();
        if value.is_some_and(|value| value.signum() <= 0) {
            errors.invalid(amount, amount.as_text(), NOT_POSITIVE);
        }
    }
}

/// Checks the node affinity of a volume (`validateVolumeNodeAffinity`).
fn validate_node_affinity(affinity: &Cursor<'_>, errors: &mut FieldErrors) {
    let required = affinity.at("required");
    match required.is_set("") {
        true => validate_node_selector(&required, errors),
        false if affinity.is_set("") => errors.required(required, "must specify required node constraints"),
        false => {}
    }
}

/// Checks the first source of a volume, and `flexVolume`. Any other source is an error.
fn validate_source(name: &str, spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let mut found = false;
    for kind in SOURCES {
        let Some(source) = spec.present(kind) else {
            continue;
        };
        if found && kind != "flexVolume" {
            let called = if kind == "cephfs" { "cephFS" } else { kind };
            errors.forbidden(spec.at(called), "may not specify more than 1 volume type");
            continue;
        }
        found = true;
        match kind {
            "hostPath" => validate_host_path(&source, errors),
            "gcePersistentDisk" => {
                let shown = spec.at("persistentDisk").in_other(source.get(""));
                validate_system(kind, &shown, errors);
            }
            "local" => {
                let path = source.at("path");
                if path.check_required(errors) {
                    no_backsteps(&path, errors);
                }
                if !spec.is_set("nodeAffinity") {
                    errors.required(spec.at("nodeAffinity"), "Local volume requires node affinity");
                }
            }
            "csi" => validate_csi(&source, errors),
            "iscsi" => validate_iscsi(name, &source, errors),
            _ => validate_system(kind, &source, errors),
        }
        validate_namespaces(kind, &source, errors);
    }
    if !found {
        errors.required(spec, "must specify a volume type");
    }
    let path = spec.text("hostPath.path");
    let is_root = path.starts_with('/') && path.trim_matches('/').is_empty();
    if is_root && spec.text("persistentVolumeReclaimPolicy") == "Recycle" {
        let text = "may not be 'recycle' for a hostPath mount of '/'";
        errors.forbidden(spec.at("persistentVolumeReclaimPolicy"), text);
    }
}

/// Checks the namespaces of Secrets and Endpoints, which only exist in sources of PersistentVolumes.
fn validate_namespaces(kind: &str, source: &Cursor<'_>, errors: &mut FieldErrors) {
    match kind {
        "cinder" | "storageos" if source.is_set("secretRef") => {
            source.at("secretRef.namespace").check_required(errors);
        }
        "azureFile" if source.is_set("secretNamespace") => {
            source.at("secretNamespace").check_required(errors);
        }
        "glusterfs" if source.is_set("endpointsNamespace") => {
            let namespace = source.at("endpointsNamespace");
            if namespace.as_text().is_empty() {
                let text = "if the endpointnamespace is set, it must be a valid namespace name";
                errors.invalid(namespace, "", text);
            }
            namespace.check_label(errors);
        }
        _ => {}
    }
}

/// Checks a CSI source (`validateCSIPersistentVolumeSource`).
fn validate_csi(csi: &Cursor<'_>, errors: &mut FieldErrors) {
    check_driver_name(&csi.at("driver"), errors);
    csi.at("volumeHandle").check_required(errors);
    for stage in ["controllerPublish", "controllerExpand", "nodePublish", "nodeExpand"] {
        let field = format!("{stage}SecretRef");
        let secret = csi.at(&field);
        if secret.is_set("") {
            let (name, namespace) = (secret.at("name"), secret.at("namespace"));
            if name.check_required(errors) {
                name.check_subdomain(errors);
            }
            if namespace.check_required(errors) {
                namespace.check_label(errors);
            }
        }
    }
}

/// Checks an iSCSI source (`validateISCSIPersistentVolumeSource`).
fn validate_iscsi(name: &str, iscsi: &Cursor<'_>, errors: &mut FieldErrors) {
    const FORM: &str = "must be valid format";
    let (portal, initiator) = (iscsi.at("targetPortal"), iscsi.at("initiatorName"));
    portal.check_required(errors);
    if initiator.is_set("") && name.len() + 1 + portal.as_text().len() > 64 {
        let text = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                    iscsi.initiatorName is specified.";
        errors.invalid(iscsi.at("targetportal"), portal.as_text(), text);
    }
    let iqn = iscsi.at("iqn");
    if iqn.check_required(errors) {
        validate_initiator(&iqn, FORM, errors);
    }
    iscsi.at("lun").check_range((0, 255), errors);
    let authenticates = |field| iscsi.flag(field) == Some(true);
    if (authenticates("chapAuthDiscovery") || authenticates("chapAuthSession")) && !iscsi.is_set("secretRef") {
        errors.required(iscsi.at("secretRef"), "");
    }
    if iscsi.is_set("secretRef") {
        iscsi.at("secretRef.name").check_required(errors);
    }
    if initiator.is_set("") {
        let shown = iscsi.at("initiatorname").in_other(initiator.get(""));
        validate_initiator(&shown, FORM, errors);
    }
}

/// Removes fields with null or an empty list, which Go treats as equal to absent fields.
fn compact(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(key, value)| (key, compact(value)));
            Value::Object(fields.filter(|(_, value)| !is_nothing(value)).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(compact).collect()),
        other => other,
    }
}

fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

/// Replaces the beta labels of Nodes in an affinity with the stable labels.
fn stable_labels(affinity: Value) -> Value {
    const LABELS: [(&str, &str); 5] = [
        ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
        ("beta.kubernetes.io/os", "kubernetes.io/os"),
        ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
        ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
        (
            "failure-domain.beta.kubernetes.io/region",
            "topology.kubernetes.io/region",
        ),
    ];
    let mut affinity = compact(affinity);
    let terms = affinity
        .pointer_mut("/required/nodeSelectorTerms")
        .and_then(Value::as_array_mut);
    for term in terms.into_iter().flatten().filter_map(Value::as_object_mut) {
        for requirement in items_mut(term, "matchExpressions") {
            let stable = LABELS
                .iter()
                .find(|(beta, _)| Cursor::root(requirement).text("key") == *beta);
            if let Some((_, stable)) = stable {
                requirement.insert("key".into(), json!(stable));
            }
        }
    }
    affinity
}
