//! Secrets that a Pod references, and the restriction of a ServiceAccount to its own Secrets
//! (`limitSecretReferences`). Part of `service_account`.

use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;

/// Annotation of ServiceAccounts that restricts their Pods to the Secrets in the ServiceAccount.
const ENFORCED: &str = "kubernetes.io/enforce-mountable-secrets";

/// Paths of the names of Secrets in a volume.
const IN_VOLUME: [&str; 10] = [
    "azureFile.secretName",
    "cephfs.secretRef.name",
    "cinder.secretRef.name",
    "csi.nodePublishSecretRef.name",
    "flexVolume.secretRef.name",
    "iscsi.secretRef.name",
    "rbd.secretRef.name",
    "scaleIO.secretRef.name",
    "secret.secretName",
    "storageos.secretRef.name",
];

/// Lists of containers, and the term for their items in errors.
const LISTS: [(&str, &str); 3] = [
    ("initContainers", "init container"),
    ("containers", "container"),
    ("ephemeralContainers", "ephemeral container"),
];

/// Returns `true` if a Pod references a Secret (`VisitPodSecretNames`).
pub(super) fn are_referenced(pod: &Object) -> bool {
    let pod = Cursor::root(pod);
    let spec = pod.at("spec");
    let has = |it: &Cursor<'_>, path: &str| !it.text(path).is_empty();
    let is_in_volume = |volume: &Cursor<'_>| {
        IN_VOLUME.iter().any(|path| has(volume, path))
            || volume.items("projected.sources").any(|it| has(&it, "secret.name"))
    };
    let is_in_container = |container: &Cursor<'_>| {
        container.items("envFrom").any(|it| has(&it, "secretRef.name"))
            || container.items("env").any(|it| has(&it, "valueFrom.secretKeyRef.name"))
    };
    spec.items("imagePullSecrets").any(|it| has(&it, "name"))
        || LISTS
            .iter()
            .any(|(list, _)| spec.items(list).any(|it| is_in_container(&it)))
        || spec.items("volumes").any(|it| is_in_volume(&it))
}

/// Returns `true` if the Pods of a ServiceAccount may only reference the Secrets in the ServiceAccount.
pub(super) fn are_limited(account: &Object) -> bool {
    let value = account
        .metadata()
        .and_then(|it| it.get("annotations")?.get(ENFORCED)?.as_str());
    matches!(value, Some("1" | "t" | "T" | "true" | "TRUE" | "True"))
}

/// Checks that a new Pod only references Secrets in its ServiceAccount.
pub(super) fn check(account: &Object, pod: &Object) -> Result<(), String> {
    let (account, pod) = (Cursor::root(account), Cursor::root(pod));
    let names: Vec<&str> = account.items("secrets").map(|it| it.text("name")).collect();
    let spec = pod.at("spec");
    for volume in spec.items("volumes").filter(|it| it.is_set("secret")) {
        let name = volume.text("secret.secretName");
        if !names.contains(&name) {
            return Err(refusal(&format!("volume with secret.secretName=\"{name}\""), &account));
        }
    }
    for (list, term) in LISTS.iter().filter(|(list, _)| *list != "ephemeralContainers") {
        check_containers(&spec.at(list), term, &names, &account)?;
    }
    let pull_secrets: Vec<&str> = account.items("imagePullSecrets").map(|it| it.text("name")).collect();
    for (index, reference) in spec.items("imagePullSecrets").enumerate() {
        let name = reference.text("name");
        if !pull_secrets.contains(&name) {
            return Err(format!(
                "imagePullSecrets[{index}].name=\"{name}\" is not allowed because service account {} does not \
                 reference that imagePullSecret",
                account.text("metadata.name")
            ));
        }
    }
    Ok(())
}

/// Checks that the ephemeral containers of a Pod only reference Secrets in its ServiceAccount.
pub(super) fn check_ephemeral_containers(account: &Object, pod: &Object) -> Result<(), String> {
    let (account, pod) = (Cursor::root(account), Cursor::root(pod));
    let names: Vec<&str> = account.items("secrets").map(|it| it.text("name")).collect();
    let containers = pod.at("spec.ephemeralContainers");
    check_containers(&containers, "ephemeral container", &names, &account)
}

fn check_containers(list: &Cursor<'_>, term: &str, names: &[&str], account: &Cursor<'_>) -> Result<(), String> {
    for container in list.items("") {
        let owner = format!("{term} {}", container.text("name"));
        for variable in container.items("env").filter(|it| it.is_set("valueFrom.secretKeyRef")) {
            let name = variable.text("valueFrom.secretKeyRef.name");
            if !names.contains(&name) {
                let variable = variable.text("name");
                let source = format!("{owner} with envVar {variable} referencing secret.secretName=\"{name}\"");
                return Err(refusal(&source, account));
            }
        }
        for source in container.items("envFrom").filter(|it| it.is_set("secretRef")) {
            let name = source.text("secretRef.name");
            if !names.contains(&name) {
                let source = format!("{owner} with envFrom referencing secret.secretName=\"{name}\"");
                return Err(refusal(&source, account));
            }
        }
    }
    Ok(())
}

fn refusal(source: &str, account: &Cursor<'_>) -> String {
    let name = account.text("metadata.name");
    format!("{source} is not allowed because service account {name} does not reference that secret")
}
