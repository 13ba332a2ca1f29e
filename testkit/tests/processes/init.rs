//! `drydock explore --init`: the scenarios that are written for manifests.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use rstest::rstest;

use super::{Directory, text};

/// Manifests as `kustomize build` prints them for a project of kubebuilder, with webhooks, a file of settings and a
/// sample. `SPEC` is replaced by further fields of the container.
const MANIFESTS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: web-system}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: webs.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: webs, singular: web, kind: Web, listKind: WebList}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web, namespace: web-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: web}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: web, namespace: web-system}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: web-system}
data: {settings.yaml: "level: 3\n", LEVEL: debug}
---
apiVersion: v1
kind: Secret
metadata: {name: password, namespace: web-system}
data: {key: c2VjcmV0}
---
apiVersion: v1
kind: Service
metadata: {name: hooks, namespace: web-system}
spec: {selector: {app: web}, ports: [{port: 443, targetPort: hooks}]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: web}
webhooks:
  - name: web.example.com
    admissionReviewVersions: [v1]
    sideEffects: None
    clientConfig: {service: {namespace: web-system, name: hooks}}
    rules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [webs]}]
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web, namespace: web-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web-operator, namespace: web-system}
spec:
  replicas: 2
  template:
    metadata: {labels: {app: web}}
    spec:
      serviceAccountName: web
      terminationGracePeriodSeconds: 10
      volumes:
        - {name: settings, configMap: {name: settings, items: [{key: settings.yaml, path: web.yaml}]}}
        - {name: certificate, secret: {secretName: web-certificate}}
        - {name: state, secret: {secretName: missing}}
      containers:
        - name: manager
          image: example.com/web-operator:1
          SPEC
        - {name: proxy, image: "quay.io/brancz/kube-rbac-proxy:v0.18"}
---
apiVersion: example.com/v1
kind: Web
metadata: {name: sample, namespace: shop}
spec: {paused: false, replicas: 2}
---
apiVersion: example.com/v1
kind: Web
metadata: {name: other, namespace: shop}
"#;

/// Fields of the container of the manager.
const CONTAINER: &str = r#"command: [/manager]
          args: [--leader-elect, "--config=/etc/web/web.yaml", "--webhook-cert-path=/certs", "--name=$(POD_NAME)"]
          ports: [{name: hooks, containerPort: 9443}]
          lifecycle: {stopSignal: SIGUSR1}
          readinessProbe: {httpGet: {path: /readyz, port: 8081}}
          volumeMounts: [{name: settings, mountPath: /etc/web}, {name: certificate, mountPath: /certs}]
          env:
            - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
            - {name: LEVEL, valueFrom: {configMapKeyRef: {name: settings, key: LEVEL}}}
            - {name: PASSWORD, valueFrom: {secretKeyRef: {name: password, key: key}}}"#;

/// A workload with one container.
const WORKLOAD: &str = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, \
                        spec: {template: {spec: {containers: [{name: a}]}}}}";

/// Runs `drydock explore` in a directory.
fn explore(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drydock"));
    let output = command.arg("explore").args(arguments).current_dir(directory).output();
    output.expect("the command starts")
}

/// Writes the scenario for the manifests with these fields of the container. Returns the scenario and the summary.
fn init(directory: &Directory, container: &str) -> (String, String) {
    directory.write("all.yaml", &MANIFESTS.replace("SPEC", container));
    let output = explore(&directory.0, &["--init", "all.yaml"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let scenario = fs::read_to_string(directory.0.join("drydock/scenario.yaml"));
    (scenario.expect("the scenario was written"), text(&output.stdout))
}

#[test]
fn init_writes_the_settings_files_webhooks_and_users_of_a_controller() {
    let directory = Directory::new();
    fs::create_dir(directory.0.join("bin")).expect("the directory can be created");
    directory.write("bin/manager", "");
    let (scenario, summary) = init(&directory, CONTAINER);
    let expected = r#"# Generated from all.yaml. Complete the lines with `missing:`.
# yaml-language-server: $schema=scenario.schema.json
# Each run has its own network, so that fixed ports are free. This needs root, or a user namespace:
# unshare --user --map-root-user drydock explore ...
network: private
controllers:
  - name: manager
    command:
      - ../bin/manager
      - "--leader-elect"
      - "--config=${SCENARIO}/files/manager/web/web.yaml"
      - "--webhook-cert-path=${CERT_DIR}"
      - "--name=${NAME}"
    namespace: web-system
    # The manifests have 2 replicas. Replicas share a network, so their ports must differ:
    # replicas: 2
    # The kubeconfig is in ${KUBECONFIG} for programs that need one.
    inCluster: true
    user: "system:serviceaccount:web-system:web"
    env:
      LEVEL: debug
      PASSWORD: secret
      POD_NAME: "${NAME}"
    webhookPort: 9443
    ready: {url: "http://127.0.0.1:8081/readyz"}
    stop: {signal: SIGUSR1, grace: 10s}
cluster:
  crds: [crds.yaml]
  manifests: [objects.yaml]
  rbac: true
steps:
  - apply: samples/1-web-sample.yaml
  # further objects of the same kinds
  # - apply: samples/2-web-other.yaml
  - patch: {object: webs.example.com/sample, merge: {spec: {replicas: 3}}}
    namespace: shop
  - delete: webs.example.com/sample
    namespace: shop
"#;
    assert_eq!(scenario, expected);
    let expected = "drydock/scenario.yaml: 1 workload, 1 CustomResourceDefinition, 2 custom resources
left out: 1 × Certificate of cert-manager.io
run it with: drydock explore drydock/scenario.yaml
without root: unshare --user --map-root-user drydock explore drydock/scenario.yaml
";
    assert_eq!(summary, expected);
    let file = |name: &str| fs::read_to_string(directory.0.join("drydock").join(name)).expect("the file was written");
    assert_eq!(file("files/manager/web/web.yaml"), "level: 3\n");
    assert!(file("crds.yaml").contains("webs.example.com"));
    assert!(file("samples/1-web-sample.yaml").contains("replicas: 2"));
    let objects = file("objects.yaml");
    assert!(
        objects.contains("kind: Namespace\nmetadata:\n  name: shop\n"),
        "{objects}"
    );
    assert!(
        objects.contains("kind: ClusterRoleBinding") && !objects.contains("kind: Deployment"),
        "{objects}"
    );
}

#[rstest]
#[case::no_program(
    "",
    "drydock/scenario.yaml:8: missing: the local path of the program in the image example.com/web-operator:1 \
     (replace ./web-operator)"
)]
#[case::secret_without_content(
    "volumeMounts: [{name: state, mountPath: /state}]",
    "missing: a setting with which the program reads a file or directory of this machine instead of /state"
)]
#[case::file_that_no_argument_contains(
    "volumeMounts: [{name: settings, mountPath: /etc/web.yaml, subPath: settings.yaml}]",
    "missing: a setting with which the program reads ${SCENARIO}/files/manager/web.yaml instead of /etc/web.yaml"
)]
#[case::unknown_variable(
    "env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: other, key: token}}}]",
    "missing: the value of TOKEN"
)]
#[case::unknown_variables(
    "envFrom: [{configMapRef: {name: other}}]",
    "missing: the value of the variables of the ConfigMap other"
)]
fn init_lists_missing_parts_and_the_scenario_is_valid(#[case] container: &str, #[case] missing: &str) {
    let directory = Directory::new();
    let (scenario, summary) = init(
        &directory,
        &format!("ports: [{{name: hooks, containerPort: 9443}}]\n          {container}"),
    );
    assert!(summary.contains(missing), "{missing:?} is not in\n{summary}{scenario}");
    let explored = explore(&directory.0, &["drydock/scenario.yaml"]);
    let (report, error) = (text(&explored.stdout), text(&explored.stderr));
    assert!(
        report.contains("./web-operator does not exist"),
        "{scenario}{report}{error}"
    );
}

#[rstest]
#[case::path_of_another_mount(
    r"key: /certs/tls.key\nother: /certs-old\n",
    "--config=${FILES}/manager/web/web.yaml",
    Some("key: ${CERT_DIR}/tls.key\nother: /certs-old\n")
)]
#[case::kubeconfig(r"kind: Config\nclusters: []\n", "--config=${KUBECONFIG}", None)]
fn init_replaces_paths_in_mounted_files(#[case] settings: &str, #[case] argument: &str, #[case] file: Option<&str>) {
    let directory = Directory::new();
    let manifests = MANIFESTS.replace("SPEC", CONTAINER).replace(r"level: 3\n", settings);
    directory.write("all.yaml", &manifests);
    let output = explore(&directory.0, &["--init", "all.yaml"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let read = |name: &str| fs::read_to_string(directory.0.join("drydock").join(name)).ok();
    let scenario = read("scenario.yaml").expect("the scenario was written");
    assert!(scenario.contains(argument), "{scenario}");
    assert_eq!(
        scenario.contains("    files: [files/manager]\n"),
        file.is_some(),
        "{scenario}"
    );
    assert_eq!(read("files/manager/web/web.yaml").as_deref(), file);
}

/// Only a single program is identified by the directory in which it is.
#[rstest]
#[case::alone("samples", "- ../bin/operator\n")]
#[case::beside_another("manifests", "- ./manager\n")]
fn init_uses_the_only_file_in_bin_for_a_single_program(#[case] second: &str, #[case] command: &str) {
    let directory = Directory::new();
    for name in ["bin", "manifests", "samples"] {
        fs::create_dir(directory.0.join(name)).expect("the directory can be created");
    }
    directory.write("bin/operator", "");
    let workload = |name: &str| WORKLOAD.replace("name: a}]", &format!("name: a, command: [/{name}]}}]"));
    directory.write("manifests/all.yaml", &workload("manager"));
    directory.write(&format!("{second}/database.yaml"), &workload("database"));
    let output = explore(&directory.0, &["--init", "manifests", "samples"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let scenario = fs::read_to_string(directory.0.join("drydock/scenario.yaml")).expect("the scenario was written");
    assert!(scenario.contains(command), "{scenario}");
    let is_left_out = text(&output.stdout).contains("left out: 1 × Deployment\n");
    assert_eq!(is_left_out, second == "samples", "{scenario}");
}

#[test]
fn init_requires_an_object_if_the_manifests_have_no_sample() {
    let directory = Directory::new();
    directory.write("all.yaml", WORKLOAD);
    let output = explore(&directory.0, &["--init", "all.yaml", "--into", "first"]);
    let summary = text(&output.stdout);
    assert!(
        summary.contains("missing: an object for the controller, as a user creates it: write it to example.yaml\n"),
        "{summary}{}",
        text(&output.stderr)
    );
}

#[rstest]
#[case::kustomize("kustomization.yaml", "kubectl", "kubectl kustomize rendered")]
#[case::kustomize_without_kubectl("kustomization.yml", "kustomize", "kustomize build rendered")]
#[case::helm("Chart.yaml", "helm", "helm template --include-crds rendered rendered")]
fn init_renders_directories_with_their_tool(#[case] file: &str, #[case] tool: &str, #[case] line: &str) {
    let directory = Directory::new();
    let (rendered, tools) = (directory.0.join("rendered"), directory.0.join("tools"));
    fs::create_dir(&rendered).expect("the directory can be created");
    fs::create_dir(&tools).expect("the directory can be created");
    directory.write(&format!("rendered/{file}"), "resources: [manager.yaml]\n");
    let run = |script: Option<&str>| {
        if let Some(script) = script {
            let path = directory.write(&format!("tools/{tool}"), &format!("#!/bin/sh\n{script}\n"));
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("the script can be executable");
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_drydock"));
        command
            .args(["explore", "--init", "rendered"])
            .current_dir(&directory.0)
            .env("PATH", &tools);
        command.output().expect("the command starts")
    };
    let error = text(&run(None).stderr);
    assert!(
        error.contains("rendered must be rendered, but the tool for this is not installed: run `"),
        "{error}"
    );
    assert!(error.contains(&format!("`{line} > FILE`")), "{error}");
    let error = text(&run(Some("echo no such patch >&2; exit 1")).stderr);
    assert_eq!(error, format!("drydock: `{line}` failed: no such patch\n"));
    let script = format!("[ \"{tool} $*\" = \"{line}\" ] && echo '{WORKLOAD}'");
    let output = run(Some(&script));
    assert!(output.status.success(), "{}", text(&output.stderr));
    // An existing scenario is not overwritten.
    let error = text(&run(None).stderr);
    let expected = "drydock: drydock/scenario.yaml exists: delete it, or choose another directory with --into\n";
    assert_eq!(error, expected);
}

#[test]
fn init_fails_without_a_workload() {
    let directory = Directory::new();
    directory.write("all.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}");
    let output = explore(&directory.0, &["--init", "all.yaml"]);
    let expected = "drydock: all.yaml has no Deployment, StatefulSet or DaemonSet: pass the manifests that install the \
                    controller\n";
    assert_eq!(text(&output.stderr), expected);
}
