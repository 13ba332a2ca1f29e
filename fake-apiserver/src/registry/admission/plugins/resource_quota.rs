//! `ResourceQuota`: checks the usage of a write against `status.hard` of the namespace's quotas, and adds it to
//! `status.used`. A quota with an empty status does not limit anything. The server only fills in `status.hard` if the
//! quota controller is enabled.

use super::usage::{Amounts, amounts, in_scope, is_about, missing, usage};
use crate::api::admission::Operation;
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::admission::Admission;
use crate::registry::admission::attributes::Attributes;
use crate::registry::managed_fields::{self, Manager, Types};
use crate::registry::reader::Reader;
use crate::registry::scheme::{Row, codec};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::ensure_object;
use crate::registry::types::quantity::Quantity;
use crate::storage::{Key, KeyRange};

/// Maximum number of attempts to charge a quota in case of conflicts.
const TRIES: usize = 8;

pub(super) const RESOURCE: &str = "resourcequotas";

/// Returns `true` if there are any ResourceQuotas.
pub(super) fn is_used(reader: &Reader) -> bool {
    reader.store.snapshot(RESOURCE).count(&KeyRange::of(None)) > 0
}

/// A write to be charged to the quotas of its namespace.
struct Charge<'a> {
    group: &'a str,
    resource: &'a str,
    name: &'a str,
    row: &'a Row,
    object: &'a Object,
    old: Option<&'a Object>,
    /// Set unless the usage is only recorded, as for the storage that was allocated for a claim.
    is_limited: bool,
}

/// Returns `true` if the write may change the usage of a quota (`Handles` of the evaluators).
fn is_counted(attributes: &Attributes<'_>) -> bool {
    let info = &attributes.row.info;
    let is_terminating = |pod: &Option<Object>| {
        let pod = pod.as_ref();
        pod.is_some_and(|it| Cursor::root(it).is_set("spec.activeDeadlineSeconds"))
    };
    match (
        attributes.operation,
        &*info.group,
        &*info.resource,
        attributes.subresource,
    ) {
        (Operation::Create, _, _, "")
        | (Operation::Update, "", "services" | "persistentvolumeclaims", "")
        | (Operation::Update, "resource.k8s.io", "resourceclaims", "")
        | (Operation::Update, "", "persistentvolumeclaims", "status")
        | (Operation::Update, "", "pods", "resize") => true,
        (Operation::Update, "", "pods", "") => is_terminating(&attributes.object) != is_terminating(&attributes.old),
        _ => false,
    }
}

/// Checks a write against all quotas of its namespace, and then adds its usage. The usage is not added in a dry run, or
/// if the quota controller counts it.
pub(super) fn charge(admission: &Admission, attributes: &Attributes<'_>) -> Result<(), Status> {
    let row = attributes.row;
    let (group, resource) = (&*row.info.group, &*row.info.resource);
    let Some(object) = attributes.object.as_ref().filter(|_| is_counted(attributes)) else {
        return Ok(());
    };
    if attributes.namespace.is_empty() || !row.info.is_namespaced() {
        return Ok(());
    }
    let charge = Charge {
        group,
        resource,
        name: &attributes.name,
        row,
        object,
        old: attributes.old.as_ref(),
        is_limited: attributes.subresource != "status",
    };
    let quotas = admission.reader.objects_in("", RESOURCE, &attributes.namespace);
    let mut touched = Vec::new();
    for quota in &quotas {
        if charge.next_used(quota)?.is_some() {
            touched.push(quota);
        }
    }
    if attributes.dry_run || admission.setup.plugins.counts_quota {
        return Ok(());
    }
    for quota in touched {
        charge.write(admission, quota)?;
    }
    Ok(())
}

impl Charge<'_> {
    /// Returns the `status.used` of a quota after this write; `None` if the quota is unaffected.
    fn next_used(&self, quota: &Object) -> Result<Option<Amounts>, Status> {
        let hard = amounts(&Cursor::root(quota).at("status.hard"));
        let used = amounts(&Cursor::root(quota).at("status.used"));
        let about: Vec<&String> = hard
            .keys()
            .filter(|name| is_about(name, self.group, self.resource))
            .collect();
        if about.is_empty() || !in_scope(quota, self.resource, self.object) {
            return Ok(None);
        }
        let forbidden = |why: String| Err(Status::forbidden(&self.row.info.group_resource(), self.name, why));
        if self.resource == "pods"
            && let Some(why) = missing(about.iter().copied(), self.object)
        {
            return forbidden(format!("failed quota: {}: {why}", quota.name()));
        }
        let unknown: Vec<&str> = about
            .iter()
            .filter(|name| !used.contains_key(**name))
            .map(|it| it.as_str())
            .collect();
        if !unknown.is_empty() {
            let names: Vec<&str> = about.iter().map(|it| it.as_str()).collect();
            let why = format!(
                "status unknown for quota: {}, resources: {}",
                quota.name(),
                names.join(",")
            );
            return forbidden(why);
        }
        let mut delta = usage(about.iter().copied(), self.group, self.resource, self.object);
        if let Some(old) = self.old.filter(|old| in_scope(quota, self.resource, old)) {
            for (name, before) in usage(about.iter().copied(), self.group, self.resource, old) {
                let now = delta.remove(&name).unwrap_or(Quantity::from_int(0));
                delta.insert(name, now.subtract(&before));
            }
        }
        // Only the quota controller lowers the usage.
        delta.retain(|_, amount| amount.signum() > 0);
        if delta.is_empty() {
            return Ok(None);
        }
        let mut next = used.clone();
        for (name, amount) in &delta {
            let before = next.get(name).copied().unwrap_or(Quantity::from_int(0));
            next.insert(name.clone(), before.add(amount));
        }
        let exceeded: Vec<&String> = delta.keys().filter(|name| next.get(*name) > hard.get(*name)).collect();
        if self.is_limited && !exceeded.is_empty() {
            let shown = |of: &Amounts| {
                let pairs = exceeded
                    .iter()
                    .filter_map(|name| Some(format!("{name}={}", of.get(*name)?)));
                pairs.collect::<Vec<_>>().join(",")
            };
            return forbidden(format!(
                "exceeded quota: {}, requested: {}, used: {}, limited: {}",
                quota.name(),
                shown(&delta),
                shown(&used),
                shown(&hard)
            ));
        }
        Ok(Some(next))
    }

    /// Adds the usage of the write to `status.used` of a quota, and retries on conflicts.
    fn write(&self, admission: &Admission, quota: &Object) -> Result<(), Status> {
        let Admission { reader, writer, .. } = admission;
        let scheme = reader.scheme();
        let Some(row) = scheme.lookup("", "v1", RESOURCE) else {
            return Ok(());
        };
        let key = Key::new(quota.namespace(), quota.name());
        for _ in 0..TRIES {
            let missing = || Status::not_found(&row.info.group_resource(), quota.name());
            let stored = reader.store.get(RESOURCE, &key).ok_or_else(missing)?;
            let old = codec::decode(&row, &stored);
            let Some(used) = self.next_used(&old)? else {
                return Ok(());
            };
            let mut next = old.clone();
            ensure_object(&mut next, "status").insert("used".into(), written(&used));
            let manager = Manager {
                name: "kube-apiserver",
                api_version: &row.api_version,
                subresource: "status",
                time: &reader.entropy.now_seconds(),
                reset: row.unowned_paths("status"),
            };
            let types = Types {
                schema: row.schema(),
                other: &|object, version| row.in_version(object, version),
            };
            managed_fields::track_update(&types, Some(&old), &mut next, &manager);
            let body = codec::encode(&row, &next)?.body;
            if writer.replace(&row, &stored, body).is_ok() {
                return Ok(());
            }
        }
        Err(Status::object_modified(&row.info.group_resource(), quota.name()))
    }
}

pub(super) fn written(amounts: &Amounts) -> Value {
    let map: Map = amounts
        .iter()
        .map(|(name, amount)| (name.clone(), amount.to_string().into()))
        .collect();
    map.into()
}
