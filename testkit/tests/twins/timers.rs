//! Timers: requeues, expiries and intervals.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use kube::runtime::controller::Action;
use serde_json::json;
use testkit::TestCluster;
use testkit::objects::{config_map, secret};

use crate::support::{FINALIZER, OPERATOR, again, annotation, done, has_finalizer, is_deleted, plain};

twins! {
    plain();
    certificate_is_renewed_after_a_restart: "end state", "secrets default/web";
    controller_waits_for_a_secret_created_later: "end state", "web";
    backoff_grows_and_retries_continue: "end state", "cloud";
    object_expires_ten_minutes_after_its_creation: "end state", "configmaps default/web: unexpected";
    polling_of_a_job_continues_after_an_error: "end state", "configmaps default/web";
    failed_refresh_of_a_cached_login_is_retried: "end state", "cloud";
}

/// Renews a Secret an hour after its creation, even after a restart of the process. The buggy variant only sets the
/// timer when it creates the Secret.
async fn certificate_is_renewed_after_a_restart(cluster: &TestCluster, is_healthy: bool) {
    let server = cluster.server().clone();
    OPERATOR.start(cluster, move |parent, cx| {
        let now = server.now().as_second();
        async move {
            let name = parent.name_any();
            let known = cx.get::<Secret>(&name).await?;
            let until = known
                .as_ref()
                .and_then(|it| it.annotations().get("until")?.parse::<i64>().ok());
            match (known, until) {
                (Some(_), Some(until)) if until > now => {
                    return match is_healthy {
                        true => again(u64::try_from(until - now).unwrap_or(1)),
                        false => done(),
                    };
                }
                (Some(known), _) => {
                    let serial = known.labels()["serial"].parse::<u32>().unwrap_or(0) + 1;
                    let metadata = json!({
                        "annotations": {"until": (now + 3600).to_string()}, "labels": {"serial": serial.to_string()},
                    });
                    cx.merge::<Secret>(&name, json!({"metadata": metadata})).await?;
                }
                (None, _) => {
                    let metadata = json!({
                        "name": name, "labels": {"serial": "1"},
                        "annotations": {"until": (now + 3600).to_string()},
                    });
                    cx.create::<Secret>(json!({"metadata": metadata})).await?;
                }
            }
            again(3600)
        }
    });
    cluster.create(config_map("web")).await;
    cluster.settle().await;
    cluster.advance(Duration::from_secs(4000)).await;
    cluster.settle().await;
}

/// Copies a Secret that the user creates; the buggy variant waits for a change of the parent if the Secret cannot be
/// read.
async fn controller_waits_for_a_secret_created_later(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let login = match cx.get::<Secret>("login").await {
            Ok(login) => login,
            Err(err) if is_healthy => return Err(err),
            Err(_) => None,
        };
        if login.is_none() {
            return if is_healthy { again(30) } else { done() };
        }
        cx.annotate(&parent, "login", "found").await?;
        done()
    });
    cluster.create(secret("login")).await;
    cluster.create(config_map("web")).await;
    cluster.settle().await;
}

/// Retries after increasing delays; the buggy variant gives up after three attempts.
async fn backoff_grows_and_retries_continue(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start_with_memory(cluster, move |parent, cx, memory| async move {
        let made = match cx.cloud.get(&parent.name_any()).await {
            Ok(None) => cx.cloud.create(&parent.name_any(), json!({})).await,
            found => found.map(drop),
        };
        if made.is_ok() {
            return done();
        }
        let failed = {
            let mut memory = memory.lock().unwrap();
            let failed = memory.len();
            memory.insert(format!("attempt-{failed}"));
            failed
        };
        match is_healthy || failed > 0 {
            true => again(1 << failed.min(8)),
            false => done(),
        }
    });
    cluster.create(config_map("web")).await;
    cluster.settle().await;
}

/// Deletes an object ten minutes after its creation. The buggy variant counts from its own start.
async fn object_expires_ten_minutes_after_its_creation(cluster: &TestCluster, is_healthy: bool) {
    let server = cluster.server().clone();
    OPERATOR.start_with_memory(cluster, move |parent, cx, memory| {
        let now = server.now().as_second();
        async move {
            let name = parent.name_any();
            let is_known = !memory.lock().unwrap().insert(name.clone());
            let made = parent
                .metadata
                .creation_timestamp
                .as_ref()
                .map_or(0, |it| it.0.as_second());
            let left = (made + 600 - now).max(0);
            match (is_healthy, is_known) {
                (true, _) if left > 0 => Ok(Action::requeue(Duration::from_secs(left as u64))),
                // The object is new at the first reconciliation.
                (false, false) if left > 590 => again(600),
                (false, false) => done(),
                (_, _) => {
                    cx.delete::<ConfigMap>(&name).await?;
                    done()
                }
            }
        }
    });
    cluster.create(config_map("web")).await;
    cluster.settle().await;
    cluster.advance(Duration::from_secs(700)).await;
    cluster.settle().await;
}

/// Starts a job in the cloud and polls it. The buggy variant does not poll again after an error.
async fn polling_of_a_job_continues_after_an_error(cluster: &TestCluster, is_healthy: bool) {
    let server = cluster.server().clone();
    OPERATOR.start(cluster, move |parent, cx| {
        let now = server.now().as_second();
        async move {
            let name = parent.name_any();
            if !annotation(&parent, "done").is_empty() {
                return done();
            }
            match cx.cloud.get(&name).await {
                Ok(None) => cx.cloud.create(&name, json!({"until": now + 60})).await?,
                Ok(Some(job)) if job["until"].as_i64() <= Some(now) => {
                    cx.annotate(&parent, "done", "yes").await?;
                    return done();
                }
                Ok(Some(_)) => {}
                Err(err) if is_healthy => return Err(err.into()),
                Err(_) => return done(),
            }
            again(20)
        }
    });
    cluster.create(config_map("web")).await;
    cluster.settle().await;
    cluster.advance(Duration::from_secs(120)).await;
}

/// Caches a login of the cloud for a minute of the machine's clock, and then fetches a new one. The buggy variant does
/// not retry a failed fetch.
async fn failed_refresh_of_a_cached_login_is_retried(cluster: &TestCluster, is_healthy: bool) {
    let made = std::sync::Arc::new(std::sync::Mutex::new(None));
    OPERATOR.start(cluster, move |parent, cx| {
        let made = made.clone();
        async move {
            let name = parent.name_any();
            if is_deleted(&parent) {
                let age = made.lock().unwrap().map(|it: std::time::Instant| it.elapsed());
                // The cloud refuses deletions within a minute.
                if age.is_some_and(|it| it < Duration::from_secs(60)) {
                    return again(20);
                }
                let deleted = cx.cloud.delete(&name).await;
                if is_healthy && matches!(deleted, Err(testkit::explore::ExternalError::Unreachable)) {
                    return again(20);
                }
                if has_finalizer(&parent) {
                    cx.remove_finalizer(&parent, FINALIZER).await?;
                }
                return done();
            }
            if !has_finalizer(&parent) {
                cx.add_finalizer(&parent, FINALIZER).await?;
            }
            if cx.cloud.get(&name).await?.is_none() {
                cx.cloud.create(&name, json!({})).await?;
                #[expect(clippy::disallowed_methods, reason = "the idiom under test")]
                let now = std::time::Instant::now();
                *made.lock().unwrap() = Some(now);
            }
            done()
        }
    });
    cluster.create(config_map("web")).await;
    cluster.settle().await;
    cluster.delete(config_map("web")).await;
    cluster.advance(Duration::from_secs(120)).await;
    cluster.settle().await;
}
