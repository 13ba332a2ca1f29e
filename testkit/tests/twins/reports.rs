//! Published bugs of operators: configurations of former resources, maintenance, users and finalizers.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Preconditions};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt};
use serde_json::json;
use testkit::TestCluster;
use testkit::objects::config_map;

use crate::rotations::set;
use crate::support::{
    Context, Done, Error, FINALIZER, OPERATOR, again, annotation, done, field, has_finalizer, is_deleted, plain,
};
use crate::workloads::{RESYNC, ensure, live, record};

twins! {
    plain();
    new_resource_gets_its_own_configuration: "end state", "secrets default/cdi-config";
    server_leaves_maintenance: "end state", "cloud amlen-1";
    user_has_its_grant: "end state", "cloud grant-";
    namespace_is_deleted_with_its_space: "end state", "secrets default/dev-";
}

/// Deletes Secrets with this label, whose value is the name of a parent that does not exist.
async fn delete_orphans(cx: &Context, label: &str) -> Result<(), Error> {
    for child in cx.list::<Secret>(label).await? {
        let Some(parent) = child.labels().get(label) else {
            continue;
        };
        if cx.get::<ConfigMap>(parent).await?.is_none() {
            cx.delete::<Secret>(&child.name_any()).await?;
        }
    }
    Ok(())
}

const CONFIG: &str = "cdi-config";

/// Returns the uid of the resource to which a configuration belongs.
fn owner_of(config: &Secret) -> Option<String> {
    config.owner_references().first().map(|it| it.uid.clone())
}

/// Deletes the configuration of a resource that does not exist, in two steps, as the garbage collector does.
async fn collect(cx: &Context) -> Done {
    let Some(config) = cx.get::<Secret>(CONFIG).await? else {
        return done();
    };
    if config.metadata.deletion_timestamp.is_some() {
        let metadata = json!({"finalizers": null, "resourceVersion": config.resource_version()});
        cx.merge::<Secret>(CONFIG, json!({"metadata": metadata})).await?;
        return done();
    }
    let parent = cx.get::<ConfigMap>("cdi").await?;
    if parent.and_then(|it| it.uid()) == owner_of(&config) {
        return again(RESYNC);
    }
    let preconditions = Preconditions {
        uid: config.uid(),
        resource_version: None,
    };
    let params = DeleteParams::default().preconditions(preconditions);
    cx.api::<Secret>().delete(CONFIG, &params).await.map(drop)?;
    again(1)
}

/// kubevirt/containerized-data-importer#1410: a new resource creates its configuration, an object with a fixed name,
/// and is then deployed. If the user deletes and recreates the resource, the configuration of the former one may still
/// exist while it is collected. The buggy variant treats it as its own, and marks the new resource as deployed; after
/// the collection, nothing creates the configuration again.
///
/// The fixes (#1138, #1410) ignore a configuration that is being deleted. The healthy variant also ignores one with a
/// different owner, whose deletion has not begun, and checks in each pass, regardless of the record, that its own
/// exists. Until the former one is gone, passes fail and are repeated; nothing is deleted by the operator itself.
async fn new_resource_gets_its_own_configuration(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |cached, cx| async move {
        let Some(cdi) = live(&cx, &cached).await? else {
            return done();
        };
        let is_deployed = annotation(&cdi, "phase") == "Deployed";
        if is_deployed && !is_healthy {
            return done();
        }
        match cx.get::<Secret>(CONFIG).await? {
            None => {
                let owners = [cdi.controller_owner_ref(&())];
                let metadata = json!({"name": CONFIG, "finalizers": [FINALIZER], "ownerReferences": owners});
                if !cx.create::<Secret>(json!({"metadata": metadata})).await? {
                    return Err(Error::NotYet("another client has created the configuration"));
                }
            }
            Some(config) => {
                let is_own = config.metadata.deletion_timestamp.is_none() && owner_of(&config) == cdi.uid();
                if is_healthy && !is_own {
                    return Err(Error::NotYet("the configuration of the former resource exists"));
                }
            }
        }
        if !is_deployed {
            record(&cx, &cdi, json!({"phase": "Deployed"})).await?;
        }
        again(RESYNC)
    });
    let cloud = cluster.external("cloud").of("collector");
    cluster.controller("collector", move |client: Client| {
        let cx = Context {
            client,
            cloud: cloud.clone(),
        };
        Controller::new(cx.api::<Secret>(), watcher::Config::default())
            .watches(cx.api::<ConfigMap>(), watcher::Config::default(), |_| {
                Some(ObjectRef::new(CONFIG).within("default"))
            })
            .run(
                |_, cx: Arc<Context>| async move { collect(&cx).await },
                |_, _: &Error, _| Action::requeue(Duration::from_secs(5)),
                Arc::new(cx),
            )
            .for_each(|_| async {})
    });
    cluster.create(config_map("cdi")).await;
    cluster.settle().await;
    cluster.delete(config_map("cdi")).await;
    cluster.settle().await;
    cluster.create(config_map("cdi")).await;
    cluster.settle().await;
}

/// Configures two servers as a pair with high availability: the standby is in maintenance mode meanwhile, so that it
/// does not prevent the start of the primary.
async fn configure_pair(cx: &Context, name: &str, group: &str, is_healthy: bool) -> Result<(), Error> {
    let (primary, standby) = (format!("{name}-0"), format!("{name}-1"));
    let first = cx.cloud.get(&primary).await?.unwrap_or_default();
    let second = cx.cloud.get(&standby).await?.unwrap_or_default();
    let production = json!({"mode": "production", "group": group});
    if first["group"] == group && second["group"] == group {
        if is_healthy {
            ensure(cx, &primary, production.clone()).await?;
            ensure(cx, &standby, production).await?;
        }
        return Ok(());
    }
    let former = json!({"mode": "maintenance", "group": second["group"]});
    ensure(cx, &standby, former).await?;
    ensure(cx, &primary, production.clone()).await?;
    ensure(cx, &standby, json!({"mode": "maintenance", "group": group})).await?;
    ensure(cx, &standby, production).await?;
    Ok(())
}

/// eclipse-amlen/amlen#199: to form a pair of servers, the operator puts the standby into maintenance mode, configures
/// both servers, and puts the standby back into production mode. The buggy variant only looks at the configuration:
/// after a crash, or an error, before the last step, the standby stays in maintenance mode.
///
/// The fix moves servers with the right configuration from maintenance into production in each pass, and so does the
/// healthy variant. It compares both fields with the servers' actual state, immediately after errors and also
/// periodically, so it also repairs the result of an update that arrives late. Only the operator sets the mode.
async fn server_leaves_maintenance(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |cached, cx| async move {
        let Some(parent) = live(&cx, &cached).await? else {
            return done();
        };
        configure_pair(&cx, &parent.name_any(), field(&parent, "group"), is_healthy).await?;
        again(RESYNC)
    });
    cluster.create(config_map("amlen").data("group", "one")).await;
    cluster.settle().await;
    set(cluster, "amlen", "group", "two").await;
}

fn password_of(secret: &Secret) -> String {
    let password = secret.data.as_ref().and_then(|it| it.get("password"));
    password.map_or_else(String::new, |it| String::from_utf8_lossy(&it.0).into_owned())
}

/// db-operator/db-operator#53 (see also #128): the operator stores a password in a Secret, executes `CREATE USER` and
/// `GRANT`, and records in the status that the user is created. The buggy variant repeats `CREATE USER` until the
/// record exists: if the grant fails after it, or the operator crashes, each repetition fails because the user exists
/// already, and the user never has its grant.
///
/// The healthy variant reads the stored password, and compares the user and the grant with the database in each pass,
/// regardless of the record; a statement that was executed without a response is not repeated or changes nothing. The
/// Secret is created before the user and never overwritten, so the password cannot differ.
async fn user_has_its_grant(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.owns_secrets().start(cluster, move |cached, cx| async move {
        let Some(parent) = live(&cx, &cached).await? else {
            return done();
        };
        let name = parent.name_any();
        let credentials = format!("{name}-credentials");
        let Some(secret) = cx.get::<Secret>(&credentials).await? else {
            let password = format!("{:016x}", fastrand::u64(..));
            cx.create_secret(&parent, &credentials, json!({"password": password}))
                .await?;
            return again(1);
        };
        let is_created = annotation(&parent, "created") == "yes";
        let (user, grant) = (format!("user-{name}"), format!("grant-{name}"));
        let identity = json!({"password": password_of(&secret)});
        let role = json!({"role": field(&parent, "role")});
        if is_healthy || is_created {
            ensure(&cx, &user, identity).await?;
            ensure(&cx, &grant, role).await?;
        } else {
            cx.cloud.create(&user, identity).await?;
            cx.cloud.create(&grant, role).await?;
        }
        if !is_created {
            record(&cx, &parent, json!({"created": "yes"})).await?;
        }
        again(RESYNC)
    });
    for name in ["app", "report"] {
        cluster.create(config_map(name).data("role", "readonly")).await;
        cluster.settle().await;
    }
    set(cluster, "app", "role", "readwrite").await;
}

/// cloudfoundry/korifi#1931 (and #2405): each space has a namespace and a service account (here Secrets, which have no
/// owner, as a Namespace cannot have an owner in a namespace). The buggy variant sets the finalizer of the space in
/// memory, creates the two objects, and saves the finalizer together with the status in one patch. If the user deletes
/// the space before the patch, it is gone, and both objects remain.
///
/// The healthy variant saves the finalizer first, and creates nothing in the same pass. The cleanup may be repeated,
/// because an object that is gone causes no error. Objects that a late request creates after the cleanup have no
/// space; a pass of another space deletes them. Names of spaces are not reused.
async fn namespace_is_deleted_with_its_space(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |cached, cx| async move {
        if is_healthy {
            delete_orphans(&cx, "space").await?;
        }
        let Some(space) = live(&cx, &cached).await? else {
            return done();
        };
        let name = space.name_any();
        let parts = [format!("{name}-namespace"), format!("{name}-account")];
        if is_deleted(&space) {
            if has_finalizer(&space) {
                for part in parts.iter().rev() {
                    cx.delete::<Secret>(part).await?;
                }
                cx.remove_finalizer(&space, FINALIZER).await?;
            }
            return done();
        }
        if is_healthy && !has_finalizer(&space) {
            cx.add_finalizer(&space, FINALIZER).await?;
            return done();
        }
        for part in &parts {
            let metadata = json!({"name": part, "labels": {"space": name}});
            cx.create::<Secret>(json!({"metadata": metadata})).await?;
        }
        if !has_finalizer(&space) || annotation(&space, "ready") != "yes" {
            let metadata = json!({
                "finalizers": [FINALIZER], "annotations": {"ready": "yes"},
                "resourceVersion": space.resource_version(),
            });
            cx.merge::<ConfigMap>(&name, json!({"metadata": metadata})).await?;
        }
        again(RESYNC)
    });
    for name in ["prod", "dev"] {
        cluster.create(config_map(name)).await;
        cluster.settle().await;
    }
    cluster.delete(config_map("dev")).await;
    cluster.settle().await;
}
