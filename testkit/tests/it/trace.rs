//! Traces: the fields that writes change, in messages, documents and pages, for plain tests.

use std::process::Command;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use rstest::rstest;
use serde_json::{Value, json};
use testkit::objects::{config_map, object, pod};
use testkit::{TestCluster, cluster};

use crate::support::{failure, failure_of, label_pods, own_config_maps};

async fn set_mode(client: Client, mode: &str) {
    let maps = Api::<ConfigMap>::default_namespaced(client);
    let patch = Patch::Merge(json!({"data": {"mode": mode}}));
    maps.patch("settings", &PatchParams::default(), &patch)
        .await
        .expect("the object exists");
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn failing_assertion_shows_the_last_writer_and_its_changed_fields(cluster: TestCluster) {
    cluster.create(config_map("settings").data("mode", "slow")).await;
    let operator = cluster.client_named("operator");
    cluster.run(async move { set_mode(operator, "fast").await });
    cluster.settle().await;
    let message = failure_of(|| cluster.assert_has(config_map("settings").data("mode", "slow")));
    let written =
        "last written at 0.000 s by operator: PATCH configmaps default/settings (data.mode: \"slow\" → \"fast\")";
    assert!(message.contains(written), "{message}");
    assert!(
        message.contains("no controller has received an event about it"),
        "{message}"
    );
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn failing_assertion_describes_reactions_to_the_last_event(cluster: TestCluster) {
    cluster.controller("labels", label_pods);
    cluster.create(pod("web-0")).await;
    cluster.settle().await;
    let message = failure_of(|| cluster.assert_has(pod("web-0").label("seen", "false")));
    let written = "by labels: UPDATE pods default/web-0 (+ metadata.labels.seen: \"true\")";
    assert!(message.contains(written), "{message}");
    let idle = "its last event, MODIFIED, reached labels at 0.000 s; nothing was reconciled after it: labels has sent no \
                request since";
    assert!(message.contains(idle), "{message}");
    let message = failure(cluster.eventually(|c| c.get(pod("web-0")).label("seen") == Some("no"))).await;
    assert!(
        message.contains(written),
        "the failure of a condition shows the write as well: {message}"
    );
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn failed_read_of_a_deleted_object_shows_the_deleting_client(cluster: TestCluster) {
    cluster.create(config_map("settings")).await;
    let maps = Api::<ConfigMap>::default_namespaced(cluster.client_named("operator"));
    maps.delete("settings", &Default::default())
        .await
        .expect("the object exists");
    let message = failure_of(|| cluster.get(config_map("settings")));
    let deleted = "last written at 0.000 s by operator: DELETE configmaps default/settings";
    assert!(message.contains(deleted), "{message}");
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn trace_contains_steps_changes_versions_and_groups() {
    let cluster = TestCluster::builder().trace().start();
    cluster.controller("maps", own_config_maps);
    cluster.create(pod("web-0")).await;
    cluster.settle().await;
    let trace = cluster.trace().to_json();
    assert_eq!((&trace["drydock"], &trace["version"]), (&json!("trace"), &json!(1)));
    let run = &trace["runs"][0];
    let steps = run["steps"].as_array().expect("the value is a list");
    let write = steps
        .iter()
        .find(|it| it["client"] == "maps" && it["isWrite"] == true)
        .expect("the journal has a write");
    assert_eq!(write["text"], "PATCH configmaps default/web-0");
    assert_eq!(write["object"], "configmaps default/web-0");
    let change = |path: &str| {
        write["changes"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|it| it["path"] == path)
            .cloned()
    };
    assert_eq!(change("data.pod"), Some(json!({"path": "data.pod", "after": "web-0"})));
    let group = &run["groups"][write["group"].as_u64().expect("the write has a reconcile") as usize];
    assert_eq!((&group["client"], &group["isCertain"]), (&json!("maps"), &json!(true)));
    assert!(
        group["name"]
            .as_str()
            .is_some_and(|it| it.starts_with("reconcile Pod") && it.contains("web-0")),
        "{group}"
    );
    let versions = &run["objects"]["configmaps default/web-0"];
    assert_eq!(versions[0]["by"], "maps");
    assert_eq!(versions[0]["value"]["data"]["pod"], "web-0");
    assert!(versions[0]["value"]["metadata"].get("managedFields").is_none());
}

/// A failing test, which the next tests run.
#[rstest]
#[tokio::test(start_paused = true)]
async fn entry_point_of_a_test_that_fails_with_a_trace(cluster: TestCluster) {
    if std::env::var_os("FAIL_WITH_A_TRACE").is_none() {
        return;
    }
    cluster
        .create(config_map("settings").data("mode", "</script><b>"))
        .await;
    let operator = cluster.client_named("operator");
    cluster.run(async move {
        for n in 0..30 {
            set_mode(operator.clone(), &format!("mode-{n}")).await;
            let _ = Api::<ConfigMap>::default_namespaced(operator.clone())
                .get("other")
                .await;
        }
    });
    cluster.settle().await;
    cluster.assert_has(config_map("settings").data("mode", "fast"));
}

fn output(variables: &[(&str, &str)]) -> String {
    let this = std::env::current_exe().expect("the test has an executable");
    let mut command = Command::new(this);
    command.args([
        "--exact",
        "trace::entry_point_of_a_test_that_fails_with_a_trace",
        "--nocapture",
    ]);
    command.env("FAIL_WITH_A_TRACE", "1").envs(variables.iter().copied());
    let output = command.output().expect("the program starts");
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn failing_test_prints_clients_names_and_changes_and_folds_rounds() {
    let text = output(&[]);
    for part in [
        "the test   POST   /api/v1/namespaces/default/configmaps  201 (+ data.mode: \"</script><b>\")",
        "operator   PATCH  /api/v1/namespaces/default/configmaps/settings",
        "(data.mode: \"</script><b>\" → \"mode-0\")",
        "these 2 lines repeated 2",
        "DRYDOCK_TRACE=1 writes a page that shows every step",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn failing_test_writes_its_trace() {
    let folder = std::env::temp_dir().join(format!("drydock-trace-{}", std::process::id()));
    let text = output(&[("DRYDOCK_TRACE", &folder.to_string_lossy())]);
    let path = text.lines().find_map(|it| it.strip_prefix("all steps: ")).expect(&text);
    let page = std::fs::read_to_string(path).expect("the page exists");
    let document = std::fs::read_to_string(path.replace(".html", ".json")).expect("the document exists");
    std::fs::remove_dir_all(&folder).expect("the directory was created here");
    assert_eq!(
        page.matches("</script>").count(),
        2,
        "text of an object cannot end a script"
    );
    let document: Value = serde_json::from_str(&document).expect("the text is valid JSON");
    let failure = &document["failures"][0];
    let headline = failure["headline"].as_str().expect("the failure has a headline");
    assert!(
        headline.ends_with("ConfigMap default/settings differs from the expected object:"),
        "{headline}"
    );
    assert!(
        failure["what"]
            .as_str()
            .is_some_and(|it| it.contains("expected \"fast\"")),
        "{failure}"
    );
    let command = failure["command"].as_str().expect("the failure has a command");
    assert!(
        command.ends_with("cargo test -- --exact trace::entry_point_of_a_test_that_fails_with_a_trace"),
        "{command}"
    );
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn canonical_yaml_excludes_definitions_and_server_objects() {
    let cluster = TestCluster::builder().object(config_map("before")).start();
    let spec = json!({
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "rooms", "kind": "Room"},
        "versions": [{
            "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
        }],
    });
    let definition = object(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "rooms.example.com",
    )
    .set("spec", spec);
    cluster.create(definition).await;
    let _: testkit::Object = cluster
        .patch(
            object("v1", "Namespace", "default"),
            json!({"metadata": {"labels": {"team": "edge"}}}),
        )
        .await;
    cluster.create(config_map("a")).await;
    let canonical = cluster.canonical_yaml();
    assert!(canonical.contains("name: a\n"), "{canonical}");
    for absent in ["CustomResourceDefinition", "kind: Namespace", "name: before"] {
        assert!(!canonical.contains(absent), "{absent}: {canonical}");
    }
    let of = cluster.canonical_yaml_of(&[
        "namespaces",
        "customresourcedefinitions.apiextensions.k8s.io",
        "configmaps",
    ]);
    for present in ["name: rooms.example.com", "team: edge", "name: before"] {
        assert!(of.contains(present), "{present}: {of}");
    }
}
