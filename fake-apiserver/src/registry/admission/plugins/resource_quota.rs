//! `ResourceQuota`: what a write would use is checked against `status.hard` of the namespace's quotas and added to
//! `status.used`. A quota whose status is empty counts nothing: filling it is the quota controller's, which a server
//! can be asked to be.

use serde_json::{Map, Value};

use super::usage::{Amounts, amounts, in_scope, is_about, missing, usage};
use crate::api::admission::Operation;
use crate::api::object::Object;
use crate::api::options::WriteOptions;
use crate::api::request_info::{RequestInfo, Verb};
use crate::api::status::Status;
use crate::api::user::UserInfo;
use crate::registry::Registry;
use crate::registry::admission::attributes::Attributes;
use crate::registry::scheme::Row;
use crate::registry::scheme::body::Decoded;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::ensure_object;
use crate::registry::types::quantity::Quantity;
use crate::registry::update::Change;
use crate::registry::write::{Warnings, WriteRequest};
use crate::storage::Range;

pub(super) const RESOURCE: &str = "resourcequotas";

/// Returns `true` if there is any ResourceQuota.
pub(super) fn is_used(registry: &Registry) -> bool {
    registry.store.snapshot(RESOURCE).count(&Range::of(None)) > 0
}

/// A write, for one quota after the other.
struct Charge<'a> {
    group: &'a str,
    resource: &'a str,
    name: &'a str,
    row: &'a Row,
    object: &'a Object,
    old: Option<&'a Object>,
}

/// Checks a write against all quotas of its namespace, then adds what it uses. A dry run is only checked.
pub(super) async fn charge(registry: &Registry, attributes: &Attributes<'_>) -> Result<(), Status> {
    let row = attributes.row;
    let (group, resource) = (&*row.info.group, &*row.info.resource);
    let is_counted = matches!(
        (attributes.operation, group, resource, attributes.subresource),
        (Operation::Create, _, _, "")
            | (Operation::Update, "", "services" | "persistentvolumeclaims", "")
            | (Operation::Update, "", "pods", "resize")
    );
    let Some(object) = attributes.object.as_ref().filter(|_| is_counted) else {
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
    };
    let quotas = registry.objects_in("", RESOURCE, &attributes.namespace);
    let mut touched = Vec::new();
    for quota in &quotas {
        if charge.next_used(quota)?.is_some() {
            touched.push(quota);
        }
    }
    if attributes.dry_run || registry.admission.setup().plugins.counts_quota {
        return Ok(());
    }
    for quota in touched {
        // Writing a quota is a write like any other, of which admission knows nothing.
        Box::pin(charge.write(registry, quota)).await?;
    }
    Ok(())
}

impl Charge<'_> {
    /// `status.used` after this write; `None` where the quota is not touched by it.
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
        if let Some(old) = self.old {
            for (name, before) in usage(about.iter().copied(), self.group, self.resource, old) {
                let now = delta.remove(&name).unwrap_or(Quantity::from_int(0));
                delta.insert(name, now.subtract(&before));
            }
        }
        delta.retain(|_, amount| amount.signum() != 0);
        if delta.is_empty() {
            return Ok(None);
        }
        let mut next = used.clone();
        for (name, amount) in &delta {
            let before = next.get(name).copied().unwrap_or(Quantity::from_int(0));
            next.insert(name.clone(), before.add(amount));
        }
        let exceeded: Vec<&String> = delta.keys().filter(|name| next.get(*name) > hard.get(*name)).collect();
        if !exceeded.is_empty() {
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

    async fn write(&self, registry: &Registry, quota: &Object) -> Result<(), Status> {
        let scheme = registry.scheme();
        let Some(row) = scheme.lookup("", "v1", RESOURCE) else {
            return Ok(());
        };
        let info = RequestInfo {
            group: "".into(),
            version: "v1".into(),
            resource: RESOURCE.into(),
            name: quota.name().into(),
            namespace: quota.namespace().into(),
            verb: Verb::Update,
            subresource: "status".into(),
        };
        let options = WriteOptions::default();
        let warnings = Warnings::default();
        let request = WriteRequest {
            row: &row,
            info: &info,
            options: &options,
            user_agent: "kube-apiserver/",
            user: UserInfo::api_server(),
            warnings: &warnings,
        };
        registry.change(&request, None, self).await.map(|_| ())
    }
}

/// A quota that is charged; asked again where another write was faster.
impl Change for Charge<'_> {
    fn next(&self, old: &Object) -> Result<Decoded, Status> {
        let mut object = old.clone();
        if let Some(used) = self.next_used(old)? {
            ensure_object(&mut object, "status").insert("used".into(), written(&used));
        }
        Ok(Decoded {
            object,
            warnings: Vec::new(),
        })
    }

    fn is_admitted(&self) -> bool {
        false
    }
}

pub(super) fn written(amounts: &Amounts) -> Value {
    let map: Map<String, Value> = amounts
        .iter()
        .map(|(name, amount)| (name.clone(), amount.to_string().into()))
        .collect();
    map.into()
}
