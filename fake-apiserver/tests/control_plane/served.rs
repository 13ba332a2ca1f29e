//! Disabled APIs, and revisions that are compacted because of their age.

use std::time::Duration;

use fake_apiserver::{ApiServer, KubernetesVersion};
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{CONFIG_MAPS, config_map, get, read, request, send};

#[rstest]
#[case::version(&["apps/v1=false"], "/apis/apps/v1/deployments", 404)]
#[case::discovery_of_a_version(&["apps/v1=false"], "/apis/apps/v1", 404)]
#[case::resource(&["batch/v1/cronjobs=false"], "/apis/batch/v1/cronjobs", 404)]
#[case::other_resource_of_the_version(&["batch/v1/cronjobs=false"], "/apis/batch/v1/jobs", 200)]
#[case::version_enabled_despite_all(&["api/all=false", "apps/v1=true"], "/apis/apps/v1/deployments", 200)]
#[case::version_disabled_by_all(&["api/all=false", "apps/v1=true"], "/apis/batch/v1/jobs", 404)]
#[case::core_group_stays_enabled(&["api/ga=false"], CONFIG_MAPS, 200)]
#[case::resource_of_a_disabled_version(&["batch/v1=false", "batch/v1/jobs=true"], "/apis/batch/v1/jobs", 200)]
#[case::version_that_is_already_enabled(&["api/ga=true", "api/beta=false", "apps/v1"], "/apis/apps/v1/deployments", 200)]
#[case::names_of_the_core_group(&["api/v1=true", "v1", "api/legacy=false"], CONFIG_MAPS, 200)]
#[case::beta_is_disabled_by_default(&[], "/apis/resource.k8s.io/v1beta2/resourceslices", 404)]
#[case::beta_version(&["resource.k8s.io/v1beta2=true"], "/apis/resource.k8s.io/v1beta2/resourceslices", 200)]
#[case::beta_resource(&["resource.k8s.io/v1beta2/deviceclasses=true"], "/apis/resource.k8s.io/v1beta2/resourceslices", 404)]
#[case::all_beta_versions(&["api/beta=true"], "/apis/networking.k8s.io/v1beta1/ipaddresses", 200)]
#[case::all_versions(&["api/all=true"], "/apis/admissionregistration.k8s.io/v1beta1/mutatingadmissionpolicies", 200)]
#[case::all_but_a_beta_version(&["api/all=true", "storage.k8s.io/v1beta1=false"],
    "/apis/storage.k8s.io/v1beta1/volumeattributesclasses", 404)]
#[case::discovery_of_a_beta_version(&["api/all=true"], "/apis/resource.k8s.io/v1beta2", 200)]
#[case::openapi_of_a_beta_version(&["api/all=true"], "/openapi/v3/apis/resource.k8s.io/v1beta2", 200)]
#[case::retired_version_is_not_part_of_all(&["api/all=true"], "/apis/policy/v1beta1/poddisruptionbudgets", 404)]
#[tokio::test(start_paused = true)]
async fn apis_are_enabled_and_disabled_by_version_and_resource(
    #[case] pairs: &[&str],
    #[case] path: &str,
    #[case] code: u16,
) {
    let builder = ApiServer::builder()
        .runtime_config(pairs)
        .expect("the runtime config is valid");
    assert_eq!(get(&builder.start(), path).await.0, code);
}

#[rstest]
#[case::all_apis_disabled("api/all=false", "invalid runtime-config with only api/all=false")]
#[case::invalid_boolean("api/all=maybe", "invalid value api/all=maybe")]
#[case::unknown_version(
    "resource.k8s.io/v1alpha9=true",
    "group version resource.k8s.io/v1alpha9 that has not been registered"
)]
#[case::unknown_version_to_disable(
    "resource.k8s.io/v1alpha9=false",
    "group version resource.k8s.io/v1alpha9 that has not been registered"
)]
#[case::unknown_resource("apps/v1/things=true", "apps/v1/things is not served and cannot be enabled")]
#[case::incomplete_key("v2=true", "invalid key v2")]
#[case::retired_version(
    "policy/v1beta1=true",
    "policy/v1beta1 is not served and cannot be enabled: Kubernetes has retired it, and --retired-apis turns it \
     on"
)]
#[case::unknown_groups("z.io/v1=true,api/all=maybe,a.io/v1=false", "unknown api groups a.io/v1,z.io/v1")]
#[case::core_group("api/v1=false", "api/v1: the core group cannot be disabled")]
#[case::core_group_by_its_version("v1=false", "v1: the core group cannot be disabled")]
#[case::capitalized_resource(
    "apps/v1/Deployments=false",
    "invalid key apps/v1/Deployments: group/version/resource and resource is always lowercase plural, not \"Deployments\""
)]
fn error_for_an_invalid_runtime_config_contains_the_invalid_key(#[case] pairs: &str, #[case] why: &str) {
    let refused = ApiServer::builder().runtime_config(pairs.split(',')).map(drop);
    assert_eq!(refused, Err(why.to_owned()));
}

/// An API version that exists only in other Kubernetes versions is refused once the version of the server is known.
#[rstest]
#[case::removed_version(
    "1.36",
    "scheduling.k8s.io/v1alpha1=true",
    Some("group version scheduling.k8s.io/v1alpha1 that has not been registered")
)]
#[case::later_version(
    "1.36",
    "scheduling.k8s.io/v1alpha3=false",
    Some("group version scheduling.k8s.io/v1alpha3 that has not been registered")
)]
#[case::later_group(
    "1.36",
    "lifecycle.k8s.io/v1alpha1=true",
    Some("unknown api groups lifecycle.k8s.io/v1alpha1")
)]
#[case::registered_only(
    "1.36",
    "scheduling.k8s.io/v1beta1=true",
    Some("scheduling.k8s.io/v1beta1 is not served by Kubernetes 1.36")
)]
#[case::removed_resource(
    "1.36",
    "resource.k8s.io/v1alpha3/resourceclaims=true",
    Some("resource.k8s.io/v1alpha3/resourceclaims is not served by Kubernetes 1.36")
)]
#[case::registered_and_disabled("1.36", "policy/v1beta1=false", None)]
#[case::served_by_the_older_version("1.33", "resource.k8s.io/v1alpha3/resourceclaims=true", None)]
#[case::served_by_the_newer_version("1.37", "lifecycle.k8s.io/v1alpha1=true", None)]
#[tokio::test(start_paused = true)]
async fn runtime_config_for_apis_of_another_version_is_refused_at_startup(
    #[case] version: KubernetesVersion,
    #[case] pair: &str,
    #[case] why: Option<&str>,
) {
    let builder = ApiServer::builder()
        .runtime_config([pair])
        .expect("a Kubernetes version serves the API");
    let builder = builder.kubernetes_version(version);
    assert_eq!(builder.withheld_apis().err().as_deref(), why);
    let started = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(builder.start())));
    let panic = started
        .err()
        .map(|it| *it.downcast::<String>().expect("the panic has a text"));
    let text = why.map(|it| format!("the server cannot start with this runtime config: {it}"));
    assert_eq!(panic, text);
}

/// Sends a request, and returns the code and the body of the response.
async fn sent(server: &ApiServer, method: &str, path: &str, body: Value) -> (u16, Value) {
    let (code, text) = read(server.call(request(method, path, &body)).await);
    (code, serde_json::from_str(&text).unwrap_or_default())
}

/// An API version that shares its types with another version returns the same objects with its own `apiVersion`.
#[rstest]
#[case::beta(
    ("resource.k8s.io", "v1beta2", "v1"),
    "deviceclasses",
    json!({"kind": "DeviceClass", "metadata": {"name": "a", "labels": {"x": "a"}}, "spec": {}})
)]
#[case::retired(
    ("policy", "v1beta1", "v1"),
    "namespaces/default/poddisruptionbudgets",
    json!({"kind": "PodDisruptionBudget", "metadata": {"name": "a"}, "spec": {"minAvailable": 1}})
)]
#[case::cron_job(
    ("batch", "v1beta1", "v1"),
    "namespaces/default/cronjobs",
    json!({"kind": "CronJob", "metadata": {"name": "a"}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec":
        {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}})
)]
#[case::stored_in_another_version(
    ("autoscaling", "v2beta2", "v2"),
    "namespaces/default/horizontalpodautoscalers",
    json!({"kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"}, "spec": {"maxReplicas": 3,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "metrics": [{"type": "Resource", "resource":
            {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}})
)]
#[tokio::test(start_paused = true)]
async fn versions_with_the_same_types_share_objects(
    #[case] (group, version, of): (&str, &str, &str),
    #[case] resource: &str,
    #[case] mut object: Value,
) {
    let builder = ApiServer::builder()
        .runtime_config(["api/all=true"])
        .expect("the runtime config is valid");
    let retired = ["policy/v1beta1", "batch/v1beta1", "autoscaling/v2beta2"];
    let server = builder.retired_apis(retired).expect("the APIs exist").start();
    let path = |version: &str| format!("/apis/{group}/{version}/{resource}");
    object["apiVersion"] = format!("{group}/{version}").into();
    let (code, made) = sent(&server, "POST", &path(version), object).await;
    assert_eq!(code, 201, "{made}");
    let parse = |text: String| serde_json::from_str::<Value>(&text).expect("the text is valid JSON");
    let of_it = |mut object: Value| {
        object["apiVersion"] = Value::Null;
        object["metadata"]["managedFields"] = Value::Null;
        object
    };
    let beta = parse(get(&server, &format!("{}/a", path(version))).await.1);
    let stable = parse(get(&server, &format!("{}/a", path(of))).await.1);
    assert_eq!(beta["apiVersion"], format!("{group}/{version}"));
    assert_eq!(stable["apiVersion"], format!("{group}/{of}"));
    assert_eq!(of_it(beta.clone()), of_it(stable.clone()));
    assert_eq!(
        beta["metadata"]["managedFields"][0]["apiVersion"],
        format!("{group}/{version}")
    );
    for (version, label) in [(of, "b"), (version, "c")] {
        let mut object = stable.clone();
        object["apiVersion"] = format!("{group}/{version}").into();
        object["metadata"]["resourceVersion"] = Value::Null;
        object["metadata"]["labels"] = json!({"x": label});
        if group == "autoscaling" || group == "policy" || group == "resource.k8s.io" {
            let (_, now) = get(&server, &format!("{}/a", path(of))).await;
            object["metadata"]["resourceVersion"] = parse(now)["metadata"]["resourceVersion"].clone();
        }
        let (code, put) = sent(&server, "PUT", &format!("{}/a", path(version)), object).await;
        assert_eq!(code, 200, "{put}");
    }
    let list = parse(get(&server, &path(version)).await.1);
    assert_eq!(list["apiVersion"], format!("{group}/{version}"));
    assert_eq!(list["items"][0]["metadata"]["labels"]["x"], "c");
}

#[test]
fn error_for_an_unknown_retired_api_contains_its_name() {
    let refused = ApiServer::builder()
        .retired_apis(["apiextensions.k8s.io/v1beta1"])
        .map(drop);
    let why = "apiextensions.k8s.io/v1beta1 is not one of the supported retired APIs: autoscaling/v2beta2, \
               batch/v1beta1, policy/v1beta1";
    assert_eq!(refused, Err(why.to_owned()));
}

#[rstest]
#[case::within_two_intervals(9 * 60, 200)]
#[case::after_two_intervals(10 * 60, 410)]
#[tokio::test(start_paused = true)]
async fn continue_tokens_and_exact_lists_expire_after_two_compaction_intervals(
    #[case] seconds: u64,
    #[case] code: u16,
) {
    let server = ApiServer::start();
    for name in ["a", "b"] {
        send(&server, "POST", CONFIG_MAPS, config_map(name)).await;
    }
    let (_, page) = get(&server, &format!("{CONFIG_MAPS}?limit=1")).await;
    let page: Value = serde_json::from_str(&page).expect("the text is valid JSON");
    let token = page["metadata"]["continue"]
        .as_str()
        .expect("the list has a continue token");
    let version = page["metadata"]["resourceVersion"]
        .as_str()
        .expect("a list has a version");
    send(&server, "POST", CONFIG_MAPS, config_map("c")).await;
    tokio::time::advance(Duration::from_secs(seconds)).await;
    send(&server, "POST", CONFIG_MAPS, config_map("d")).await;
    assert_eq!(
        get(&server, &format!("{CONFIG_MAPS}?limit=1&continue={token}")).await.0,
        code
    );
    let exact = format!("{CONFIG_MAPS}?resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(get(&server, &exact).await.0, code);
    let now = server.resource_version();
    let exact = format!("{CONFIG_MAPS}?resourceVersion={now}&resourceVersionMatch=Exact");
    assert_eq!(get(&server, &exact).await.0, 200, "the current version never expires");
}

#[tokio::test(start_paused = true)]
async fn history_does_not_expire_without_a_compaction_interval() {
    let server = ApiServer::builder().compaction_interval(None).start();
    let version = server.resource_version();
    send(&server, "POST", CONFIG_MAPS, config_map("a")).await;
    tokio::time::advance(Duration::from_secs(24 * 3600)).await;
    send(&server, "POST", CONFIG_MAPS, config_map("b")).await;
    let exact = format!("{CONFIG_MAPS}?resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(get(&server, &exact).await.0, 200);
}
