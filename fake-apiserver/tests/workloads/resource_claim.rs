//! ResourceClaims: claims from templates, reservations and releases.

use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::Cluster;

const API: &str = "resource.k8s.io/v1";
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

async fn template(cluster: &Cluster) {
    let devices = json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]});
    let object = json!({"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": {"name": "t"},
        "spec": {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": {"devices": devices}}});
    cluster.create(object).await;
}

async fn pod(cluster: &Cluster, name: &str, entry: Value) -> Value {
    let spec = json!({"containers": [{"name": "main", "image": "nginx:1"}], "restartPolicy": "Never",
        "resourceClaims": [entry]});
    cluster
        .create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}))
        .await
}

async fn claims(cluster: &Cluster) -> Vec<Value> {
    cluster.list(API, "ResourceClaim").await
}

/// Allocates a claim like a scheduler.
async fn allocate(cluster: &Cluster, name: &str) {
    cluster
        .patch(
            API,
            "ResourceClaim",
            name,
            json!({"metadata": {"finalizers": [FINALIZER]}}),
        )
        .await;
    let path = format!("/apis/{API}/namespaces/default/resourceclaims/{name}/status");
    let result = json!({"request": "r", "driver": "d.example.com", "pool": "p", "device": "x"});
    let status = json!({"status": {"allocation": {"devices": {"results": [result]}}}});
    let (code, answer) = cluster.send("PATCH", &path, &status).await;
    assert_eq!(code, 200, "{answer:#}");
}

async fn end(cluster: &Cluster, pod: &str) {
    let path = format!("/api/v1/namespaces/default/pods/{pod}/status");
    let (code, answer) = cluster
        .send("PATCH", &path, &json!({"status": {"phase": "Succeeded"}}))
        .await;
    assert_eq!(code, 200, "{answer:#}");
}

#[tokio::test(start_paused = true)]
async fn pod_gets_a_claim_from_its_template() {
    let cluster = Cluster::start();
    template(&cluster).await;
    let pod = pod(&cluster, "p", json!({"name": "gpu", "resourceClaimTemplateName": "t"})).await;
    cluster.pass(1.0).await;
    let claims = claims(&cluster).await;
    assert_eq!(claims.len(), 1);
    let metadata = &claims[0]["metadata"];
    let name = metadata["name"].as_str().expect("a name is a string");
    assert!(name.starts_with("p-gpu-") && name.len() == 11, "{name}");
    assert_eq!(metadata["labels"], json!({"a": "b"}));
    assert_eq!(
        metadata["annotations"],
        json!({"c": "d", "resource.kubernetes.io/pod-claim-name": "gpu"})
    );
    assert_eq!(
        metadata["ownerReferences"],
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "p",
        "uid": pod["metadata"]["uid"], "controller": true}])
    );
    let status = &cluster.get("v1", "Pod", "p").await["status"]["resourceClaimStatuses"];
    assert_eq!(*status, json!([{"name": "gpu", "resourceClaimName": name}]));
}

#[tokio::test(start_paused = true)]
async fn missing_claim_template_is_reported_until_it_is_created() {
    let cluster = Cluster::start();
    pod(&cluster, "p", json!({"name": "gpu", "resourceClaimTemplateName": "t"})).await;
    cluster.pass(1.0).await;
    let events = cluster.events("FailedResourceClaimCreation").await;
    assert_eq!(
        events[0],
        "PodResourceClaim gpu: resource claim template \"t\": resourceclaimtemplate.resource.k8s.io \"t\" not found"
    );
    template(&cluster).await;
    cluster.pass(1.0).await;
    assert_eq!(claims(&cluster).await.len(), 1);
}

/// A generated claim is deleted when its Pod has ended; another claim only loses its allocation.
#[rstest]
#[case::generated_claim(true)]
#[case::existing_claim(false)]
#[tokio::test(start_paused = true)]
async fn allocated_claim_is_reserved_until_the_pod_ends(#[case] is_generated: bool) {
    let cluster = Cluster::start();
    template(&cluster).await;
    let entry = match is_generated {
        true => json!({"name": "gpu", "resourceClaimTemplateName": "t"}),
        false => {
            let devices = json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]});
            let claim = json!({"apiVersion": API, "kind": "ResourceClaim", "metadata": {"name": "mine"},
                "spec": {"devices": devices}});
            cluster.create(claim).await;
            json!({"name": "gpu", "resourceClaimName": "mine"})
        }
    };
    let pod = pod(&cluster, "p", entry).await;
    cluster.pass(2.0).await;
    let name = claims(&cluster).await[0]["metadata"]["name"]
        .as_str()
        .expect("a name is a string")
        .to_owned();
    allocate(&cluster, &name).await;
    cluster.pass(1.0).await;
    let reserved = &claims(&cluster).await[0]["status"]["reservedFor"];
    assert_eq!(
        *reserved,
        json!([{"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}])
    );
    end(&cluster, "p").await;
    cluster.pass(1.0).await;
    let left = claims(&cluster).await;
    assert_eq!(left.len(), usize::from(!is_generated), "{left:#?}");
    for claim in left {
        assert_eq!(claim["status"].get("allocation"), None, "{claim:#}");
        assert_eq!(claim["metadata"].get("finalizers"), None, "{claim:#}");
    }
}

#[tokio::test(start_paused = true)]
async fn deleted_claim_is_kept_while_a_pod_uses_it() {
    let cluster = Cluster::start();
    template(&cluster).await;
    pod(&cluster, "p", json!({"name": "gpu", "resourceClaimTemplateName": "t"})).await;
    cluster.pass(2.0).await;
    let name = claims(&cluster).await[0]["metadata"]["name"]
        .as_str()
        .expect("a name is a string")
        .to_owned();
    allocate(&cluster, &name).await;
    cluster.pass(1.0).await;
    cluster.delete(API, "ResourceClaim", &name).await;
    cluster.pass(5.0).await;
    assert_eq!(claims(&cluster).await.len(), 1);
    end(&cluster, "p").await;
    cluster.pass(1.0).await;
    assert_eq!(claims(&cluster).await.len(), 0);
}
