//! Values and names that a controller generates: passwords, cookies, ports and random suffixes.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use testkit::TestCluster;
use testkit::explore::ExternalError;
use testkit::objects::config_map;

use crate::support::{Context, Error, OPERATOR, annotation, done, field, plain};

twins! {
    plain();
    consumer_gets_the_stored_password: "generated values", "secrets default/web data.password";
    password_of_the_database_is_kept: "generated values", "secrets default/web data.password";
    rotation_reaches_the_consumer: "generated values", "secrets default/web data.password";
    two_secrets_share_a_cookie: "generated values", "data.cookie";
    port_is_chosen_once: "idempotence", "configmaps default/web";
    url_contains_the_stored_password: "generated values", "secrets default/web data.password";
    runner_has_a_random_name: "end state", "secrets default/";
    lock_with_a_random_name_is_deleted: "creates and deletes", "secrets default/web-* was created 2 times";
    token_is_drawn_from_hash_keys: "generated values", "data.token";
    webhook_gets_the_stored_certificate: "generated values", "data.caBundle";
    pods_have_the_hash_of_the_password: "generated values", "data.checksum";
}

/// Returns a random password.
fn password() -> String {
    std::iter::repeat_with(fastrand::alphanumeric).take(24).collect()
}

/// Returns a field of a Secret as a string.
fn secret_field(secret: &Secret, name: &str) -> String {
    let data = secret.data.as_ref().and_then(|it| it.get(name));
    let ByteString(bytes) = data.cloned().unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

async fn made(cluster: &TestCluster) {
    cluster
        .create(config_map("web").data("rotation", "1").label("kind", "app"))
        .await;
    cluster.settle().await;
}

async fn made_and_rotated(cluster: &TestCluster) {
    made(cluster).await;
    let _: testkit::Object = cluster
        .patch(config_map("web"), json!({"data": {"rotation": "2"}}))
        .await;
    cluster.settle().await;
}

/// Applies the configuration of the consumer.
async fn configure(cx: &Context, data: Value) -> Result<(), Error> {
    cx.apply::<ConfigMap>("operator", "consumer", json!({"data": data}))
        .await
}

/// Generates a password, and configures a consumer with it. The buggy variant configures the consumer with the password
/// that it has just generated.
async fn consumer_gets_the_stored_password(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .selects("kind=app")
        .start(cluster, move |parent, cx| async move {
            if !annotation(&parent, "ready").is_empty() {
                return done();
            }
            let mut used = password();
            cx.create_secret(&parent, "web", json!({"password": used})).await?;
            if is_healthy {
                let stored = cx.get::<Secret>("web").await?.ok_or(Error::NotYet("no Secret"))?;
                used = secret_field(&stored, "password");
            }
            configure(&cx, json!({"password": used})).await?;
            cx.annotate(&parent, "ready", "yes").await?;
            done()
        });
    made(cluster).await;
}

/// Creates a user of a database with a generated password. The buggy variant applies a new password at each attempt
/// until all steps are done.
async fn password_of_the_database_is_kept(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        if !annotation(&parent, "ready").is_empty() {
            return done();
        }
        let known = cx.get::<Secret>("web").await?.filter(|_| is_healthy);
        let stored = match known {
            Some(known) => secret_field(&known, "password"),
            None => {
                let generated = password();
                let child = json!({
                    "metadata": {"ownerReferences": [parent.controller_owner_ref(&())]},
                    "stringData": {"password": generated},
                });
                cx.apply::<Secret>("operator", "web", child).await?;
                generated
            }
        };
        match cx
            .cloud
            .create("web", json!({"login": "web", "password": stored}))
            .await
        {
            Err(ExternalError::AlreadyExists(_)) => {}
            created => created?,
        }
        cx.annotate(&parent, "ready", "yes").await?;
        done()
    });
    made(cluster).await;
}

/// Generates a new password for each rotation. The buggy variant configures the consumer only if it has just generated
/// a password.
async fn rotation_reaches_the_consumer(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .selects("kind=app")
        .start(cluster, move |parent, cx| async move {
            let rotation = field(&parent, "rotation");
            let known = cx.get::<Secret>("web").await?;
            let is_current = known
                .as_ref()
                .is_some_and(|it| annotation_of(it, "rotation") == rotation);
            let stored = match known.filter(|_| is_current) {
                Some(known) => secret_field(&known, "password"),
                None => {
                    let generated = password();
                    let child = json!({
                        "metadata": {"annotations": {"rotation": rotation}}, "stringData": {"password": generated},
                    });
                    cx.apply::<Secret>("operator", "web", child).await?;
                    generated
                }
            };
            let has_consumer = cx.get::<ConfigMap>("consumer").await?.is_some();
            if is_healthy || !is_current || !has_consumer {
                configure(&cx, json!({"password": stored})).await?;
            }
            done()
        });
    made_and_rotated(cluster).await;
}

fn annotation_of<'a>(secret: &'a Secret, name: &str) -> &'a str {
    secret.annotations().get(name).map_or("", String::as_str)
}

/// Creates two Secrets with one cookie. The buggy variant gives each Secret the cookie that it has just generated.
async fn two_secrets_share_a_cookie(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let mut cookie = password();
        for name in ["server", "client"] {
            cx.create_secret(&parent, name, json!({"cookie": cookie})).await?;
            if is_healthy {
                let stored = cx.get::<Secret>(name).await?.ok_or(Error::NotYet("no Secret"))?;
                cookie = secret_field(&stored, "cookie");
            }
        }
        done()
    });
    made(cluster).await;
}

/// Chooses a free port, and opens it in the firewall. The buggy variant chooses another port when it restarts.
async fn port_is_chosen_once(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start_with_memory(cluster, move |parent, cx, memory| async move {
        let known = annotation(&parent, "port").parse::<u16>().ok().filter(|_| is_healthy);
        let remembered = memory.lock().unwrap().first().and_then(|it| it.parse().ok());
        let port = known.or(remembered).unwrap_or_else(|| fastrand::u16(20_000..30_000));
        memory.lock().unwrap().insert(port.to_string());
        if annotation(&parent, "port") != port.to_string() {
            cx.annotate(&parent, "port", &port.to_string()).await?;
        }
        match cx.cloud.get("firewall").await? {
            None => cx.cloud.create("firewall", json!({"port": port})).await?,
            Some(known) if is_healthy && known["port"] != port => {
                cx.cloud.update("firewall", json!({"port": port})).await?;
            }
            Some(_) => {}
        }
        done()
    });
    made(cluster).await;
}

/// The configuration of the consumer contains the password within a URL. The buggy variant keeps the URL if the Secret
/// is recreated.
async fn url_contains_the_stored_password(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .selects("kind=app")
        .start(cluster, move |parent, cx| async move {
            if cx.get::<Secret>("web").await?.is_none() {
                cx.create_secret(&parent, "web", json!({"password": password()}))
                    .await?;
            }
            let stored = cx.get::<Secret>("web").await?.ok_or(Error::NotYet("no Secret"))?;
            let is_configured = annotation(&parent, "configured") == stored.uid().unwrap_or_default();
            if is_healthy || !is_configured || cx.get::<ConfigMap>("consumer").await?.is_none() {
                if !is_healthy {
                    cx.annotate(&parent, "configured", &stored.uid().unwrap_or_default())
                        .await?;
                }
                let url = format!("postgres://web:{}@db:5432/web", secret_field(&stored, "password"));
                configure(&cx, json!({"url": url})).await?;
            }
            done()
        });
    made(cluster).await;
    cluster.delete(testkit::objects::secret("web")).await;
    let _: testkit::Object = cluster
        .patch(config_map("web"), json!({"data": {"rotation": "2"}}))
        .await;
    cluster.settle().await;
}

/// Starts one runner with a random suffix. The buggy variant only reads its own record.
async fn runner_has_a_random_name(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        if !annotation(&parent, "runner").is_empty() {
            return done();
        }
        let known = match is_healthy {
            true => cx.list::<Secret>(&format!("of={}", parent.name_any())).await?,
            false => Vec::new(),
        };
        let name = match known.first() {
            Some(known) => known.name_any(),
            None => {
                let name = format!("{}-{:x}", parent.name_any(), fastrand::u32(..));
                cx.create_secret(&parent, &name, json!({})).await?;
                name
            }
        };
        cx.annotate(&parent, "runner", &name).await?;
        done()
    });
    made(cluster).await;
}

/// Holds a lock with a random name while it works. The buggy variant never looks for a lock that it already holds.
async fn lock_with_a_random_name_is_deleted(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        // The cache may not contain the last write yet.
        let Some(parent) = cx.get::<ConfigMap>(&parent.name_any()).await? else {
            return done();
        };
        if annotation(&parent, "done") == "yes" {
            return done();
        }
        let locks = cx.list::<Secret>(&format!("of={}", parent.name_any())).await?;
        let is_held = is_healthy && !locks.is_empty();
        if !is_held && annotation(&parent, "done").is_empty() {
            let name = format!("{}-{:x}", parent.name_any(), fastrand::u32(..));
            cx.create_secret(&parent, &name, json!({})).await?;
        }
        cx.annotate(&parent, "done", "almost").await?;
        for lock in cx.list::<Secret>(&format!("of={}", parent.name_any())).await? {
            cx.delete::<Secret>(&lock.name_any()).await?;
        }
        cx.annotate(&parent, "done", "yes").await?;
        done()
    });
    made(cluster).await;
}

/// Draws a token from the keys of the standard library's maps. The buggy variant keeps the consumer's token.
async fn token_is_drawn_from_hash_keys(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .selects("kind=app")
        .retries_after(1)
        .start(cluster, move |parent, cx| async move {
            let token = format!("{:016x}", RandomState::new().hash_one(parent.name_any()));
            if is_healthy {
                cx.create_secret(&parent, "web", json!({"token": token})).await?;
                let stored = cx.get::<Secret>("web").await?.ok_or(Error::NotYet("no Secret"))?;
                configure(&cx, json!({"token": secret_field(&stored, "token")})).await?;
                return done();
            }
            let consumer = json!({"metadata": {"name": "consumer"}, "data": {"token": token}});
            cx.create::<ConfigMap>(consumer).await?;
            cx.create_secret(&parent, "web", json!({"token": token})).await?;
            done()
        });
    made(cluster).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
}

/// Generates a certificate for each rotation, and registers a webhook with it. The buggy variant only registers a
/// certificate that it has just generated.
async fn webhook_gets_the_stored_certificate(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .selects("kind=app")
        .start(cluster, move |parent, cx| async move {
            let rotation = field(&parent, "rotation");
            let known = cx.get::<Secret>("web").await?;
            let known = known.filter(|it| annotation_of(it, "rotation") == rotation);
            let is_registered = cx.get::<ConfigMap>("webhook").await?.is_some();
            let certificate = match known.map(|it| secret_field(&it, "tls.crt")) {
                Some(stored) if is_healthy || !is_registered => stored,
                Some(_) => return done(),
                None => {
                    let certificate = format!("-----BEGIN CERTIFICATE-----\n{}\n", password());
                    let child = json!({
                        "metadata": {"annotations": {"rotation": rotation}}, "stringData": {"tls.crt": certificate},
                    });
                    cx.apply::<Secret>("operator", "web", child).await?;
                    certificate
                }
            };
            let bundle = json!({"data": {"caBundle": BASE64_STANDARD.encode(certificate)}});
            cx.apply::<ConfigMap>("operator", "webhook", bundle).await?;
            done()
        });
    made_and_rotated(cluster).await;
}

/// Writes the hash of a password into the template of the Pods. The buggy variant writes the hash of the password that
/// it has just generated.
async fn pods_have_the_hash_of_the_password(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .selects("kind=app")
        .start(cluster, move |parent, cx| async move {
            if !annotation(&parent, "ready").is_empty() {
                return done();
            }
            let mut used = password();
            cx.create_secret(&parent, "web", json!({"password": used})).await?;
            if is_healthy {
                let stored = cx.get::<Secret>("web").await?.ok_or(Error::NotYet("no Secret"))?;
                used = secret_field(&stored, "password");
            }
            let hash: String = Sha256::digest(used)
                .iter()
                .take(5)
                .map(|it| format!("{it:02x}"))
                .collect();
            let pods = json!({"data": {"checksum": hash}});
            cx.apply::<ConfigMap>("operator", "pods", pods).await?;
            cx.annotate(&parent, "ready", "yes").await?;
            done()
        });
    made(cluster).await;
}
