//! Aggregated ClusterRoles: after each write, collects their rules from the ClusterRoles that their selectors match. In
//! a cluster, kube-controller-manager's clusterrole-aggregation-controller does this asynchronously.

use std::sync::{Arc, PoisonError};

use super::{Authorization, CLUSTER_ROLES, GROUP, Rbac};
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::api::rbac::PolicyRule;
use crate::api::selector::LabelSelector;
use crate::registry::managed_fields::{self, Manager, Types};
use crate::registry::scheme::Row;
use crate::registry::scheme::codec;
use crate::registry::types::cursor::Cursor;
use crate::storage::{KeyRange, Stored};

/// Field manager of kube-controller-manager's controller.
const MANAGER: &str = "clusterrole-aggregation-controller";

impl Authorization {
    /// Updates aggregated ClusterRoles after a write, until their rules no longer change. `cause` describes the write
    /// in the log.
    pub(super) fn aggregate_cluster_roles(&self, rbac: &Rbac, row: &Row, cause: &str) {
        let _guard = rbac.aggregating.lock().unwrap_or_else(PoisonError::into_inner);
        // An aggregated role may be aggregated again, so the number of rounds is limited by the number of roles.
        let count = self.reader.store.snapshot(CLUSTER_ROLES).count(&KeyRange::of(None));
        for _ in 0..=count {
            if !self.aggregate_round(rbac, row) {
                return;
            }
        }
        tracing::debug!("aggregated ClusterRoles still change after a write of {cause}");
    }

    /// Updates each aggregated ClusterRole once; returns `true` if one has changed.
    fn aggregate_round(&self, rbac: &Rbac, row: &Row) -> bool {
        let everything = KeyRange::of(None);
        let snapshot = self.reader.store.snapshot(CLUSTER_ROLES);
        let stored: Vec<&Arc<Stored>> = snapshot.range(&everything).collect();
        let roles: Vec<Object> = stored.iter().map(|stored| codec::decode(row, stored)).collect();
        let mut has_changed = false;
        for (stored, role) in stored.iter().zip(&roles) {
            let Some(next) = self.aggregated(row, role, &roles) else {
                continue;
            };
            let Ok(codec::Encoded { body, .. }) = codec::encode(row, &next) else {
                continue;
            };
            // On a conflict, the other write starts a new round.
            if self.writer.replace(row, stored, body).is_ok() {
                rbac.writes.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                has_changed = true;
            }
        }
        has_changed
    }

    /// Returns the role with its aggregated rules; `None` if it does not aggregate rules or already has them.
    fn aggregated(&self, row: &Row, role: &Object, roles: &[Object]) -> Option<Object> {
        let rules = gathered(role, roles)?;
        if PolicyRule::of_role(role) == rules {
            return None;
        }
        let rules: Value = rules.iter().map(PolicyRule::to_value).collect();
        let configuration = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole",
            "metadata": {"name": role.name()}, "rules": rules,
        });
        let Value::Object(configuration) = configuration else {
            return None;
        };
        let manager = Manager {
            name: MANAGER,
            api_version: &row.api_version,
            subresource: "",
            time: &self.reader.entropy.now_seconds(),
            reset: &[],
        };
        let types = Types {
            schema: row.schema(),
            other: &|object, version| row.in_version(object, version),
        };
        let kind = &row.info.kind;
        let merged = managed_fields::apply(&types, Some(role), &Object(configuration), &manager, kind, true).ok()?;
        let mut next = Object(merged.0);
        row.settle(&mut next);
        Some(next)
    }
}

/// Returns the rules of the other roles that an aggregated role selects, without duplicates; `None` for roles without
/// aggregation.
fn gathered(role: &Object, roles: &[Object]) -> Option<Vec<PolicyRule>> {
    Cursor::root(role).get("aggregationRule")?;
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in Cursor::root(role).list("aggregationRule.clusterRoleSelectors") {
        let Ok(selector) = LabelSelector::from_object(selector) else {
            continue;
        };
        let selector = selector.unwrap_or_default();
        for other in roles.iter().filter(|other| other.name() != role.name()) {
            let label = |key: &str| {
                let labels = other.metadata()?.get("labels")?;
                labels.get(key)?.as_str()
            };
            if !selector.matches(label) {
                continue;
            }
            for rule in PolicyRule::of_role(other) {
                if !rules.contains(&rule) {
                    rules.push(rule);
                }
            }
        }
    }
    Some(rules)
}
