//! Fills Secrets of type `kubernetes.io/service-account-token` with a token of their ServiceAccount, like Go's
//! `TokensController`.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::controller::WorkloadController;
use super::plan::{Plan, Write};
use super::pods::annotation;
use super::resource::{Resource, Target, key_of};
use super::sees::Sees;
use crate::api::json::json;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::workers::objects::CA_BUNDLE;

/// An additional controller of the worker [`service_account`](super::service_account).
pub(crate) const CONTROLLER: WorkloadController = WorkloadController {
    concerns: |change, cluster, add| {
        if change.resource == Resource::ServiceAccount {
            let secrets = cluster.within(Resource::Secret, change.key.namespace());
            let own = secrets.filter(|it| account_of(it) == Some(change.key.name()));
            own.for_each(|it| add(key_of(it)));
        }
    },
    ..WorkloadController::new(Resource::Secret, "tokens-controller", sync)
};

const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// Returns the name of the ServiceAccount of a token Secret.
fn account_of(secret: &Object) -> Option<&str> {
    let is_token = secret.get("type").and_then(|it| it.as_str()) == Some("kubernetes.io/service-account-token");
    annotation(secret, ACCOUNT_NAME).filter(|name| is_token && !name.is_empty())
}

/// Plans the work for a Secret: fills it, or deletes it if its ServiceAccount was deleted.
fn sync(secret: &Object, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    let Some(name) = account_of(secret).filter(|_| !secret.is_terminating()) else {
        return plan;
    };
    let uid = annotation(secret, ACCOUNT_UID).unwrap_or_default();
    let account = sees
        .cluster
        .find(Resource::ServiceAccount, secret.namespace(), name)
        .filter(|it| uid.is_empty() || uid == it.uid());
    let Some(account) = account else {
        plan.delete(Resource::Secret, secret);
        return plan;
    };
    let data = Cursor::root(secret).map_or_empty("data");
    let has_token = data
        .get("token")
        .and_then(|it| it.as_str())
        .is_some_and(|it| !it.is_empty());
    let wanted = [("ca.crt", CA_BUNDLE), ("namespace", secret.namespace())];
    let wanted = wanted.map(|(key, text)| (key, BASE64_STANDARD.encode(text)));
    let is_filled = wanted
        .iter()
        .all(|(key, text)| data.get(key).and_then(|it| it.as_str()) == Some(text));
    if has_token && is_filled && !uid.is_empty() {
        return plan;
    }
    let at = Target::of(Resource::Secret, secret);
    let mut patch = json!({"metadata": {"annotations": {ACCOUNT_UID: account.uid()}}, "data": {}});
    for (key, text) in wanted {
        patch["data"][key] = text.into();
    }
    if has_token {
        plan.writes.push(Write::Merge {
            at,
            subresource: "",
            patch,
        });
        return plan;
    }
    // Go's `legacyPrivateClaims`
    let claims = json!({
        "iss": "kubernetes/serviceaccount",
        "kubernetes.io/serviceaccount/namespace": secret.namespace(),
        "kubernetes.io/serviceaccount/secret.name": secret.name(),
        "kubernetes.io/serviceaccount/service-account.name": name,
        "kubernetes.io/serviceaccount/service-account.uid": account.uid(),
        "sub": format!("system:serviceaccount:{}:{name}", secret.namespace()),
    });
    plan.writes.push(Write::Token { at, patch, claims });
    plan
}
