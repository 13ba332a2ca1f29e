//! Fields of scenarios: checks, steps, Pods, and webhooks that a process serves.

use std::fs;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use fake_apiserver::ServeOptions;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::Api;
use rstest::rstest;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{CONTROLLER, Directory, drydock, scenario, text};

/// The result of an exploration.
pub(super) struct Explored {
    pub(super) code: Option<i32>,
    pub(super) report: String,
    pub(super) json: Value,
    junit: String,
}

/// Explores a scenario with this controller, and these fields in addition to its controllers.
fn explored(controller: &str, command: &str, fields: &str, arguments: &[&str]) -> Explored {
    explored_with(controller, command, "", fields, arguments)
}

/// Same as `explored`, with these fields of the controller.
pub(super) fn explored_with(controller: &str, command: &str, own: &str, fields: &str, arguments: &[&str]) -> Explored {
    let directory = Directory::new();
    let program = std::env::current_exe().expect("the test has an executable");
    let yaml = format!(
        "controllers:
  - name: operator
    command: [{program:?}, --exact, entry_point_of_controller_processes, --nocapture{command}]
    env: {{{CONTROLLER}: {controller}}}
    insecure: true
{own}within: 2s
quiet: 1s
references: 2
budget: {{failures: 1, time: 120s}}
{fields}"
    );
    let path = directory.write("scenario.yaml", &yaml).display().to_string();
    let [json, junit] = ["report.json", "report.xml"].map(|it| directory.0.join(it));
    let files = [json.display().to_string(), junit.display().to_string()];
    let all = ["explore", &path, "--json", &files[0], "--junit", &files[1]];
    let output = drydock(&[&all, arguments].concat());
    let report = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    Explored {
        code: output.status.code(),
        json: serde_json::from_str(&read(&json)).unwrap_or_else(|err| panic!("{err}: {report}")),
        junit: read(&junit),
        report,
    }
}

pub(super) const WEB: &str = "cluster: {workers: []}
steps:
  - object: {apiVersion: v1, kind: ConfigMap, metadata: {name: web, labels: {role: source}}}
";

#[test]
fn check_violated_by_a_crash_is_reported_with_its_name() {
    let fields = format!(
        "{WEB}faults: [crashes]
without: [end state]
checks:
  - name: the second follows the first
    eventually: first == null || second != null
    variables: {{first: configmaps/web-first, second: cm/web-second}}
"
    );
    let found = explored("buggy", "", &fields, &[]);
    let report = &found.report;
    assert_eq!(found.code, Some(1), "{report}");
    let failure = &found.json["failures"][0];
    assert_eq!(
        failure["oracle"], "eventually \"the second follows the first\"",
        "{report}"
    );
    assert_eq!(
        failure["replay"], "crash-after=100@operator:create:configmaps:default/#1",
        "{report}"
    );
    assert!(
        report.contains("violated: eventually \"the second follows the first\""),
        "{report}"
    );
    assert!(report.contains("first = default/web-first, second = null"), "{report}");
    assert!(report.contains("the violation occurred in 3 of 3 runs"), "{report}");
    let kind = "<failure type=\"eventually &quot;the second follows the first&quot;\"";
    assert!(found.junit.contains(kind), "{}", found.junit);
}

/// The command of a check: fails if the ConfigMap in the environment variable does not exist. Does nothing without the
/// variable.
#[test]
fn entry_point_of_command_processes() {
    let Ok(name) = std::env::var("DRYDOCK_TEST_COMMAND") else {
        assert!(CONTROLLER.starts_with("DRYDOCK_"));
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let found = runtime.expect("the runtime can be built").block_on(async {
        let config = kube::Config::infer().await.expect("KUBECONFIG is set");
        let maps: Api<ConfigMap> =
            Api::default_namespaced(Client::try_from(config).expect("the configuration is valid"));
        maps.get_opt(&name).await.expect("the server answers")
    });
    assert!(found.is_some(), "{name} is missing");
}

fn command_line(name: &str) -> String {
    let program = std::env::current_exe().expect("the test has an executable");
    format!(
        "DRYDOCK_TEST_COMMAND={name} {} --exact fields::entry_point_of_command_processes --nocapture",
        program.display()
    )
}

#[rstest]
#[case::false_rule(
    "always: objects.size() < 3\n    objects: configmaps\n    namespace: default",
    "violated: always \"it\": \"it\" does not hold: `objects.size() < 3` is false for objects = [default/"
)]
#[case::selected_objects(
    "always: objects.size() == 0\n    objects: cm\n    selector: role=source",
    "is false for objects = [default/web]"
)]
#[case::rule_with_an_error(
    "eventually: object.data.other == ''\n    object: cm/web",
    "`eventually` failed: \"it\": `object.data.other == ''`: no such key: data"
)]
#[case::unserved_resource(
    "always: objects.size() == 0\n    objects: webs",
    "\"it\" does not hold: no resource \"webs\" is served"
)]
#[case::command("eventually: {run: 'echo not yet; exit 3'}", "failed (exit status: 3): not yet")]
#[case::always_check_with_a_command("always: {run: COMMAND missing}", "missing is missing")]
#[case::condition_that_never_holds("sometimes: object != null\n    object: cm/missing", "it did not hold in any run")]
fn violated_checks_fail_with_a_description(#[case] check: &str, #[case] message: &str) {
    let check = check.replace("COMMAND missing", &Value::from(command_line("missing")).to_string());
    let fields = format!("{WEB}checks:\n  - name: it\n    {check}\n");
    let found = explored("fixed", "", &fields, &["--plans", "1"]);
    assert_eq!(found.code, Some(1), "{}", found.report);
    assert!(found.report.contains(message), "{}", found.report);
    assert!(found.junit.contains("&quot;it&quot;"), "{}", found.junit);
}

#[test]
fn satisfied_checks_do_not_fail_the_exploration() {
    let fields = format!(
        "{WEB}checks:
  - {{name: few, always: objects.size() <= 4, objects: configmaps, namespace: default}}
  - {{name: made, sometimes: object != null, object: configmaps/web-second}}
  - {{name: made at last, eventually: {{run: {:?}}}}}
",
        command_line("web-second")
    );
    let found = explored("fixed", "", &fields, &["--plans", "2"]);
    assert_eq!(found.code, Some(0), "{}", found.report);
}

/// Each step changes the ConfigMap `it`, and the check reads the result.
#[rstest]
#[case::json_patch(
    "patch: {object: cm/it, json: [{op: replace, path: /data/a, value: new}]}",
    "object.data.a == 'new'"
)]
#[case::strategic_patch("patch: {object: cm/it, strategic: {data: {a: new}}}", "object.data.a == 'new'")]
#[case::merge_patch("patch: {object: cm/it, merge: {data: {a: null}}}", "!has(object.data)")]
#[case::apply_patch(
    "patch: {object: cm/it, apply: {data: {b: new}}}",
    "object.data == {'a': 'old', 'b': 'new'}"
)]
#[case::edit_by_a_command("edit: {object: cm/it, run: sed s/old/new/}", "object.data.a == 'new'")]
#[case::edit_by_a_patch(
    "edit: {object: cm/it, json: [{op: add, path: /data/b, value: new}]}",
    "object.data.b == 'new'"
)]
#[case::scale(
    "scale: {object: deployments/it, replicas: 3}",
    "object.data.a == 'old' && objects[0].spec.replicas == 3"
)]
#[case::change_as_a_user(
    "object: {apiVersion: v1, kind: ConfigMap, metadata: {name: it}, data: {a: new}}, as: jane, refused: Forbidden",
    "object.data.a == 'old'"
)]
fn steps_change_objects(#[case] step: &str, #[case] rule: &str) {
    let fields = format!(
        "cluster: {{workers: [], rbac: true}}
steps:
  - object: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: it}}, data: {{a: old}}}}
  - object:
      apiVersion: apps/v1
      kind: Deployment
      metadata: {{name: it}}
      spec:
        selector: {{matchLabels: {{app: it}}}}
        template: {{metadata: {{labels: {{app: it}}}}, spec: {{containers: [{{name: it, image: it}}]}}}}
  - {{{step}}}
checks:
  - {{name: it, eventually: \"{rule}\", object: cm/it, objects: deployments}}
"
    );
    let found = explored("fixed", "", &fields, &["--plans", "1"]);
    assert_eq!(found.code, Some(0), "{fields}{}", found.report);
}

#[test]
fn failing_steps_and_the_timeline_contain_the_locations_of_steps() {
    let fields = "cluster: {workers: []}
steps:
  - {name: the map, object: {apiVersion: v1, kind: ConfigMap, metadata: {name: it}}}
  - {patch: {object: cm/it, json: [{op: remove, path: /data/a}]}}
";
    let found = explored("fixed", "", fields, &[]);
    assert_eq!(found.code, Some(1), "{}", found.report);
    assert!(
        found.report.contains("scenario.yaml:13: the step \"patch cm/it "),
        "{}",
        found.report
    );
    assert!(found.report.contains("step: the map ("), "{}", found.report);
    assert!(found.report.contains("scenario.yaml:12)"), "{}", found.report);
}

#[test]
fn pods_follow_the_scripts_of_the_scenario() {
    let fields = "cluster: {pods: [{pods: {labels: app=db}, script: {neverReady: true}}]}
steps:
  - object: {apiVersion: v1, kind: Pod, metadata: {name: db, labels: {app: db}}, spec: {containers: [{name: c, image: i}]}}
    wait: {object: pods/db, for: 'jsonpath={.status.phase}=Running'}
  - object: {apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}
    wait: {object: pods/web, for: condition=Ready}
checks:
  - {name: not ready, eventually: '!object.status.containerStatuses[0].ready', object: pods/db}
";
    let found = explored("fixed", "", fields, &["--plans", "1"]);
    assert_eq!(found.code, Some(0), "{}", found.report);
}

#[test]
fn reports_of_shards_are_merged_and_shown_as_a_page() {
    let directory = Directory::new();
    let path = scenario(&directory, "buggy").display().to_string();
    let file = |name: &str| directory.0.join(name).display().to_string();
    let reports = [file("1.json"), file("2.json")];
    for (shard, report) in ["1/2", "2/2"].iter().zip(&reports) {
        drydock(&["explore", &path, "--shard", shard, "--json", report, "--plans", "8"]);
    }
    let page = file("page.html");
    let merged = drydock(&["explore", &path, "--html", &page, "--merge", &reports[0], &reports[1]]);
    let report = text(&merged.stdout);
    assert_eq!(merged.status.code(), Some(1), "{report}{}", text(&merged.stderr));
    let replay = "crash-after=100@operator:create:configmaps:default/#1";
    assert!(
        report.contains(&format!("explore {path} --replay '{replay}'")),
        "{report}"
    );
    assert!(report.contains("single faults"), "{report}");
    let page = fs::read_to_string(page).expect("the file exists");
    // The output of the process is shown with the steps.
    assert!(page.contains("running 1 test"));
    assert!(page.contains("drydock explore "));
    let incomplete = drydock(&["explore", &path, "--merge", &reports[0]]);
    assert_eq!(incomplete.status.code(), Some(2));
    let error = text(&incomplete.stderr);
    assert!(error.contains("the report of shard 2/2 is missing"), "{error}");
}

/// A controller that only reads its in-cluster configuration. It is ready when it has printed its namespace.
#[cfg(target_os = "linux")]
#[test]
#[expect(clippy::print_stderr, reason = "a test that is left out has to say so")]
fn in_cluster_configuration_is_mounted() {
    let is_possible = std::process::Command::new("unshare")
        .args(["--mount", "--map-root-user", "true"])
        .status();
    if !is_possible.is_ok_and(|it| it.success()) {
        eprintln!("skipped: this system does not permit mount namespaces, which inCluster needs");
        return;
    }
    let directory = Directory::new();
    let files = "/var/run/secrets/kubernetes.io/serviceaccount";
    let line = format!("cd {files} && test -s token && test -s ca.crt && echo in $(cat namespace) && sleep 1000");
    let yaml = format!(
        "controllers:
  - {{name: a, command: [sh, -c, {line:?}], inCluster: true, namespace: shop, ready: {{log: in shop}}, startup: 30s}}
cluster: {{workers: []}}
references: 2
quiet: 1s
steps: [{{pause: 100ms}}]
"
    );
    let path = directory.write("scenario.yaml", &yaml).display().to_string();
    let output = drydock(&["explore", &path, "--replay", "restart@a"]);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

/// Converts widgets: v1 has `spec.size`, and v2 has `spec.width`.
fn converted(review: &Value) -> Value {
    let request = &review["request"];
    let wanted = &request["desiredAPIVersion"];
    let objects = request["objects"].as_array().cloned().unwrap_or_default();
    let objects = objects.into_iter().map(|mut object| {
        let (from, to) = match wanted == "example.com/v2" {
            true => ("size", "width"),
            false => ("width", "size"),
        };
        if let Some(value) = object["spec"].as_object_mut().and_then(|it| it.remove(from)) {
            object["spec"][to] = value;
        }
        object["apiVersion"] = wanted.clone();
        object
    });
    let objects: Vec<Value> = objects.collect();
    let response = json!({"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response})
}

/// Serves a webhook that denies ConfigMaps with the name `forbidden`, and one that converts widgets, at the port in the
/// last argument, with the certificate in the directory in the second-to-last argument.
pub(super) async fn serve_webhooks() {
    let arguments: Vec<String> = std::env::args().collect();
    let [.., directory, port] = arguments.as_slice() else {
        panic!("the arguments are a directory and a port")
    };
    let file = |name: &str| fs::read(std::path::Path::new(directory).join(name)).expect("the file exists");
    let deny = |body: Bytes| async move {
        let review: Value = serde_json::from_slice(&body).expect("the body is a review");
        let is_denied = review["request"]["name"] == "forbidden";
        let response = json!({
            "uid": review["request"]["uid"], "allowed": !is_denied, "status": {"message": "not this name"},
        });
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}).to_string()
    };
    let convert = |body: Bytes| async move {
        let review: Value = serde_json::from_slice(&body).expect("the body is a review");
        converted(&review).to_string()
    };
    let service = Router::new()
        .route("/validate", post(deny))
        .route("/convert", post(convert));
    let service = ServiceExt::<axum::extract::Request>::map_err(service, |never| -> std::io::Error { match never {} });
    let address = format!("127.0.0.1:{port}").parse().expect("the address is valid");
    let options = ServeOptions::tls().certificate(file("tls.crt"), file("tls.key"));
    let serving = options.serve(address, service).await.expect("a port is free");
    std::mem::forget(serving);
}

#[rstest]
#[case::failure_policy_fail("Fail", None)]
#[case::failure_policy_ignore("Ignore", Some("lose@operator:call:webhook:/validate#1"))]
fn webhooks_of_a_process_are_called_and_their_calls_fail(#[case] policy: &str, #[case] expected: Option<&str>) {
    let directory = Directory::new();
    let manifest = directory.write(
        "webhook.yaml",
        &format!(
            "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {{name: names}}
webhooks:
  - name: names.example.com
    clientConfig: {{service: {{namespace: shop, name: hooks, path: /validate}}}}
    rules: [{{apiGroups: [''], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}}]
    failurePolicy: {policy}
    admissionReviewVersions: [v1]
    sideEffects: None
"
        ),
    );
    let fields = format!(
        "cluster: {{workers: [], manifests: [{manifest:?}]}}
faults: [errors]
without: [end state]
steps:
  - object: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: forbidden}}}}
    refused: 'denied the request: not this name'
checks:
  - {{name: denied, always: object == null, object: cm/forbidden}}
"
    );
    let found = explored(
        "webhooks",
        ", '${CERT_DIR}', '${PORT_WEBHOOK}'",
        &fields,
        &["--plans", "7"],
    );
    let report = &found.report;
    assert_eq!(found.code, Some(i32::from(expected.is_some())), "{report}");
    let failure = &found.json["failures"][0];
    assert_eq!(failure["replay"].as_str(), expected, "{report}");
    if expected.is_some() {
        assert_eq!(failure["oracle"], "always \"denied\"", "{report}");
    } else {
        assert!(report.contains("7 of 7 single faults"), "{report}");
    }
}

/// A definition of widgets in two versions, which a webhook converts.
const WIDGETS: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
    - name: v2
      served: true
      storage: false
      schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {width: {type: integer}}}}}}
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1]
      clientConfig: {service: {namespace: shop, name: hooks, path: /convert}}
";

#[test]
fn conversion_webhook_of_a_process_is_called_and_its_calls_fail() {
    let directory = Directory::new();
    let manifest = directory.write("widgets.yaml", WIDGETS);
    let fields = format!(
        "cluster: {{workers: [], crds: [{manifest:?}]}}
faults: [errors]
steps:
  - object: {{apiVersion: example.com/v2, kind: Widget, metadata: {{name: a}}, spec: {{width: 3}}}}
checks:
  - {{name: it is converted, eventually: 'has(object.spec.size) || has(object.spec.width)', object: widgets/a}}
"
    );
    let command = ", '${CERT_DIR}', '${PORT_WEBHOOK}'";
    let found = explored("webhooks", command, &fields, &["--plans", "4"]);
    assert_eq!(found.code, Some(0), "{}", found.report);
    let lost = "lose@operator:call:webhook:/convert#1";
    let found = explored("webhooks", command, &fields, &["--replay", lost]);
    assert_eq!(found.code, Some(0), "{}", found.report);
    assert!(!found.report.contains("has no effect"), "{}", found.report);
}

/// Concurrent runs serve webhooks at the same port, each in a separate network.
#[cfg(target_os = "linux")]
#[test]
fn webhook_at_a_fixed_port_is_called_in_a_private_network() {
    let directory = Directory::new();
    let manifest = directory.write("widgets.yaml", WIDGETS);
    let fields = format!(
        "cluster: {{workers: [], crds: [{manifest:?}]}}
network: private
parallel: 4
faults: [crashes]
steps:
  - object: {{apiVersion: example.com/v2, kind: Widget, metadata: {{name: a}}, spec: {{width: 3}}}}
"
    );
    let (command, port) = (", '${CERT_DIR}', '9443'", "    webhookPort: 9443\n");
    let found = explored_with("webhooks", command, port, &fields, &["--plans", "4"]);
    if super::stubs::is_permitted() {
        assert_eq!(found.code, Some(0), "{}", found.report);
    } else {
        assert!(found.report.contains("`network: private` needs"), "{}", found.report);
    }
}

#[rstest]
#[case::no_controller_serves_webhooks("fixed", "", "", true)]
#[case::controller_serves_another_service("webhooks", ", '${CERT_DIR}', '${PORT_WEBHOOK}'", "shop/others", true)]
#[case::controller_serves_the_service("webhooks", ", '${CERT_DIR}', '${PORT_WEBHOOK}'", "shop/hooks", false)]
fn webhook_service_that_no_controller_serves_is_reported(
    #[case] controller: &str,
    #[case] command: &str,
    #[case] services: &str,
    #[case] is_noted: bool,
) {
    let directory = Directory::new();
    let manifest = directory.write("widgets.yaml", WIDGETS);
    let fields = format!("cluster: {{workers: [], crds: [{manifest:?}]}}\nsteps: [{{pause: 100ms}}]\n");
    let found = explored_with(
        controller,
        command,
        &format!("    webhooks: [{services}]\n"),
        &fields,
        &["--plans", "1"],
    );
    let note =
        "note: CustomResourceDefinition widgets.example.com calls the Service shop/hooks, which no controller serves";
    assert_eq!(found.report.contains(note), is_noted, "{}", found.report);
}
