//! Defaults, certificates, tenants of namespaces, hosts, and Jobs for each generation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use testkit::TestCluster;
use testkit::objects::{config_map, namespace, object};

use crate::sites::{Site, change, condition, patch_status, since, site, sites, start, status, with_condition};
use crate::support::{Context, Error, done, now};

twins! {
    sites(), 60;
    default_from_a_policy_does_not_replace_a_user_value: "end state", "default/web spec.size: expected 5, found 3";
    certificate_exists_if_the_status_reports_it: "end state", "secrets default/web: missing";
    policy_of_a_former_tenant_is_deleted: "end state", "networkpolicies.networking.k8s.io team-a/isolation: unexpected";
    host_belongs_to_the_oldest_site: "end state", "sites.example.com default/zeta status";
    each_generation_gets_a_job: "end state", "jobs.batch default/web-2: missing";
}

/// Fills in the size from a policy, if the user has not set it. The buggy variant does not send the resourceVersion
/// that it has read.
async fn default_from_a_policy_does_not_replace_a_user_value(cluster: &TestCluster, is_healthy: bool) {
    start(
        cluster,
        "sites",
        |it, _| it,
        move |site, cx| async move {
            let name = site.name_any();
            if site.spec.size.is_none() {
                let policy = cx.get::<ConfigMap>("policy").await?;
                let size: u32 = policy.and_then(|it| it.data?.get("size")?.parse().ok()).unwrap_or(1);
                let mut patch = json!({"spec": {"size": size}});
                if is_healthy {
                    patch["metadata"] = json!({"resourceVersion": site.resource_version()});
                }
                cx.merge::<Site>(&name, patch).await?;
                return done();
            }
            let labels = json!({"metadata": {"labels": {"size": site.spec.size.unwrap_or(0).to_string()},
                "ownerReferences": [site.controller_owner_ref(&())]}});
            cx.apply::<Service>("sites", &name, labels).await?;
            done()
        },
    );
    cluster.create(config_map("policy").data("size", "3")).await;
    cluster.create(site("web", json!({"image": "web"}))).await;
    cluster.settle().await;
    change(cluster, "web", json!({"size": 5})).await;
    cluster.settle().await;
}

/// Issues a certificate, and renews it at two thirds of its lifetime of three hours. The buggy variant relies on the
/// status, which it writes before the Secret.
async fn certificate_exists_if_the_status_reports_it(cluster: &TestCluster, is_healthy: bool) {
    start(
        cluster,
        "certificates",
        |it, cx| it.owns(cx.api::<Secret>(), watcher::Config::default()),
        move |site, cx| async move {
            let (name, host) = (site.name_any(), site.spec.host.clone());
            let status = status(&site);
            let (known_host, known_end) = if is_healthy {
                let secret = cx.get::<Secret>(&name).await?;
                let annotations = secret.map(|it| it.annotations().clone()).unwrap_or_default();
                (
                    annotations.get("example.com/host").cloned().unwrap_or_default(),
                    annotations.get("example.com/not-after").cloned(),
                )
            } else {
                (status.host.clone(), status.not_after.clone())
            };
            let left = since(known_end.as_deref()) - 3_600 - now().as_second();
            if known_host == host && left > 0 {
                if is_healthy {
                    let ready = condition("Ready", true, "Issued", &format!("certificate for {host}"));
                    let conditions = with_condition(&site, ready);
                    if conditions.is_some() || status.not_after != known_end {
                        let conditions = conditions.unwrap_or(status.conditions);
                        let patch = json!({"conditions": conditions, "notAfter": known_end, "host": host});
                        patch_status(&cx, &name, patch).await?;
                    }
                }
                return crate::support::again(left.unsigned_abs());
            }
            let end = (now() + Duration::from_secs(3 * 3_600)).to_string();
            if !is_healthy {
                let ready = condition("Ready", true, "Issued", &format!("certificate for {host}"));
                let conditions = with_condition(&site, ready).unwrap_or(status.conditions);
                patch_status(
                    &cx,
                    &name,
                    json!({"conditions": conditions, "notAfter": end, "host": host}),
                )
                .await?;
            }
            let secret = json!({
                "metadata": {
                    "annotations": {"example.com/host": host, "example.com/not-after": end},
                    "ownerReferences": [site.controller_owner_ref(&())],
                },
                "stringData": {"tls.crt": format!("CN={host};notAfter={end}")},
            });
            cx.apply::<Secret>("certificates", &name, secret).await?;
            crate::support::again(2 * 3_600)
        },
    );
    cluster.create(site("web", json!({"host": "a.example.com"}))).await;
    cluster.settle().await;
    cluster.advance(Duration::from_secs(2 * 3_600 + 600)).await;
    change(cluster, "web", json!({"host": "b.example.com"})).await;
    cluster.settle().await;
}

/// Gives each Namespace of a tenant a RoleBinding and a NetworkPolicy, and deletes both if the label is removed. The
/// buggy variant does not delete the NetworkPolicy if the RoleBinding is missing.
async fn policy_of_a_former_tenant_is_deleted(cluster: &TestCluster, is_healthy: bool) {
    cluster.controller("tenants", move |client: Client| async move {
        let managed = watcher::Config::default().labels("managed-by=tenants");
        let owner = |it: Option<String>| it.map(|name| ObjectRef::<Namespace>::new(&name));
        Controller::new(Api::<Namespace>::all(client.clone()), watcher::Config::default())
            .watches(Api::<RoleBinding>::all(client.clone()), managed.clone(), move |it| {
                owner(it.namespace())
            })
            .watches(Api::<NetworkPolicy>::all(client.clone()), managed, move |it| {
                owner(it.namespace())
            })
            .run(
                move |namespace: Arc<Namespace>, client: Arc<Client>| async move {
                    tenant(&namespace, (*client).clone(), is_healthy).await
                },
                |_, _: &Error, _| Action::requeue(Duration::from_secs(10)),
                Arc::new(client),
            )
            .for_each(|_| async {})
            .await;
    });
    for team in ["team-a", "team-b"] {
        cluster.create(namespace(team).label("tenant", team)).await;
        cluster.settle().await;
    }
    let _: testkit::Object = cluster
        .patch(namespace("team-a"), json!({"metadata": {"labels": {"tenant": null}}}))
        .await;
    cluster.settle().await;
}

async fn tenant(namespace: &Namespace, client: Client, is_healthy: bool) -> Result<Action, Error> {
    let name = namespace.name_any();
    let bindings = Api::<RoleBinding>::namespaced(client.clone(), &name);
    let policies = Api::<NetworkPolicy>::namespaced(client, &name);
    if namespace.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    if let Some(team) = namespace.labels().get("tenant") {
        let params = PatchParams::apply("tenants").force();
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "tenant", "labels": {"managed-by": "tenants"}},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": team}],
        });
        bindings.patch("tenant", &params, &Patch::Apply(binding)).await?;
        let policy = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": "isolation", "labels": {"managed-by": "tenants"}},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
        });
        policies.patch("isolation", &params, &Patch::Apply(policy)).await?;
        return Ok(Action::await_change());
    }
    match bindings.delete("tenant", &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            if !is_healthy {
                return Ok(Action::await_change());
            }
        }
        deleted => drop(deleted?),
    }
    match policies.delete("isolation", &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        deleted => drop(deleted?),
    }
    Ok(Action::await_change())
}

/// The oldest Site of a host gets a Service; the others wait. The buggy variant remembers the first Site that it has
/// reconciled.
async fn host_belongs_to_the_oldest_site(cluster: &TestCluster, is_healthy: bool) {
    let cloud = cluster.external("cloud").of("hosts");
    cluster.controller("hosts", move |client: Client| {
        let cx = Context {
            client,
            cloud: cloud.clone(),
        };
        async move {
            let known = Arc::new(Mutex::new(BTreeMap::<String, String>::new()));
            let sites = Controller::new(cx.api::<Site>(), watcher::Config::default());
            let store = sites.store();
            sites
                .owns(cx.api::<Service>(), watcher::Config::default())
                .watches(cx.api::<Site>(), watcher::Config::default(), move |_| {
                    store
                        .state()
                        .into_iter()
                        .map(|it| ObjectRef::from_obj(&*it))
                        .collect::<Vec<_>>()
                })
                .run(
                    move |site, cx: Arc<Context>| {
                        let known = Arc::clone(&known);
                        async move { admit(&site, &cx, &known, is_healthy).await }
                    },
                    |_, _: &Error, _| Action::requeue(Duration::from_secs(10)),
                    Arc::new(cx),
                )
                .for_each(|_| async {})
                .await;
        }
    });
    for name in ["zeta", "alpha", "beta", "gamma"] {
        cluster.create(site(name, json!({"host": "www.example.com"}))).await;
        cluster.settle().await;
        cluster.advance(Duration::from_secs(30)).await;
    }
    cluster.delete(object("example.com/v1", "Site", "zeta")).await;
    cluster.settle().await;
}

async fn admit(
    site: &Site,
    cx: &Context,
    known: &Mutex<BTreeMap<String, String>>,
    is_healthy: bool,
) -> Result<Action, Error> {
    let (name, host) = (site.name_any(), &site.spec.host);
    let all = cx.list::<Site>("").await?;
    let holder = if is_healthy {
        all.iter()
            .filter(|it| it.spec.host == *host && it.metadata.deletion_timestamp.is_none())
            .min_by_key(|it| (it.creation_timestamp().map(|it| it.0), it.name_any()))
            .map(ResourceExt::name_any)
    } else {
        let mut known = known.lock().expect("no task panics");
        known.retain(|_, holder| all.iter().any(|it| it.name_any() == *holder));
        Some(known.entry(host.clone()).or_insert_with(|| name.clone()).clone())
    };
    let Some(holder) = holder else { return done() };
    let accepted = if holder == name {
        let service = json!({
            "metadata": {"ownerReferences": [site.controller_owner_ref(&())], "annotations": {"host": host}},
        });
        cx.apply::<Service>("hosts", &name, service).await?;
        condition("Accepted", true, "Admitted", "")
    } else {
        cx.delete::<Service>(&name).await?;
        condition("Accepted", false, "HostTaken", &format!("{host} belongs to {holder}"))
    };
    if let Some(conditions) = with_condition(site, accepted) {
        patch_status(cx, &name, json!({"conditions": conditions})).await?;
    }
    done()
}

/// Starts a Job for each generation. The buggy variant counts the Jobs in the status, and accepts an existing Job with
/// the next number.
async fn each_generation_gets_a_job(cluster: &TestCluster, is_healthy: bool) {
    start(
        cluster,
        "jobs",
        |it, cx| it.owns(cx.api::<Job>(), watcher::Config::default()),
        move |site, cx| async move {
            let name = site.name_any();
            let Some(site) = cx.get::<Site>(&name).await? else {
                return done();
            };
            let status = status(&site);
            if status.observed_generation == site.metadata.generation {
                return done();
            }
            let generation = site.metadata.generation.unwrap_or(0);
            let number = if is_healthy {
                generation
            } else {
                i64::from(status.runs) + 1
            };
            let job = format!("{name}-{number}");
            cx.create::<Job>(json!({
                "metadata": {"name": job, "labels": {"site": name, "number": number.to_string()},
                    "ownerReferences": [site.controller_owner_ref(&())]},
                "spec": {"template": {"spec": {"restartPolicy": "Never",
                    "containers": [{"name": "main", "image": site.spec.image}]}}},
            }))
            .await?;
            let mut patch = json!({"observedGeneration": generation, "lastJob": job});
            if !is_healthy {
                patch["runs"] = (status.runs + 1).into();
            }
            patch_status(&cx, &name, patch).await?;
            done()
        },
    );
    cluster.create(site("web", json!({"image": "web:1"}))).await;
    cluster.settle().await;
    change(cluster, "web", json!({"image": "web:2"})).await;
    cluster.settle().await;
}
