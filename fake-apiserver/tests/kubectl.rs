//! kubectl against the command, over HTTP and HTTPS: command lines and their expected output.
//!
//! Requires kubectl 1.37, in `$KUBECTL` or installed by `.ci/kubectl`. Without it, each test prints that it is skipped.

mod common;
#[path = "common/kubectl.rs"]
mod kubectl;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use common::{Server, folder};
use rstest::rstest;

/// Environment variable for the editor, with the word to replace and its replacement.
const EDITED: &str = "DRYDOCK_EDITED";

/// Returns the editor for `kubectl edit`: this program, so that the test does not depend on another program.
fn editor() -> String {
    let program = std::env::current_exe().expect("the test has an executable");
    format!(
        "{} --exact --quiet entry_point_of_the_editor_that_replaces_a_word",
        program.display()
    )
}

#[test]
fn entry_point_of_the_editor_that_replaces_a_word() {
    let Ok(words) = std::env::var(EDITED) else { return };
    let (word, replacement) = words.split_once('=').expect("the line has two words");
    let file = std::env::args().next_back().expect("kubectl passes a file name");
    let text = std::fs::read_to_string(&file).expect("kubectl wrote the file");
    std::fs::write(&file, text.replace(word, replacement)).expect("the file is writable");
    // Exit before the test harness prints a result, which would appear in kubectl's output.
    std::process::exit(0);
}

/// Transport to a server.
#[derive(Clone, Copy, Debug)]
enum Over {
    Http,
    Https,
}

/// A server, and a kubectl that is connected to it.
struct Kubectl {
    server: Server,
    program: &'static Path,
    folder: PathBuf,
}

impl Kubectl {
    /// Starts a server for kubectl. Returns `None` and prints a message if there is no kubectl.
    fn start(test: &str, over: Over) -> Option<Self> {
        Self::start_with(test, over, &[])
    }

    /// Same as `start`, with further arguments for the server.
    #[expect(clippy::print_stderr, reason = "a test that is left out has to say so")]
    fn start_with(test: &str, over: Over, more: &[&str]) -> Option<Self> {
        let program = match kubectl::kubectl() {
            Ok(program) => program,
            Err(reason) => {
                eprintln!("skipped: {test} {reason}");
                return None;
            }
        };
        let folder = folder();
        let config = folder.join("config");
        let mut args = vec!["--kubeconfig", config.to_str().expect("the path is UTF-8")];
        if let Over::Https = over {
            args.push("--tls");
        }
        args.extend(more);
        let server = Server::start(&args);
        Some(Self {
            server,
            program,
            folder,
        })
    }

    fn command(&self, args: &[String]) -> Command {
        let mut command = Command::new(self.program);
        command
            .args(args)
            // Limits the time of every command.
            .arg("--request-timeout=30s")
            .env("KUBECONFIG", self.folder.join("config"))
            .env("KUBECACHEDIR", self.folder.join("cache"))
            .env("HOME", &self.folder)
            .env("TMPDIR", &self.folder)
            .env("KUBE_EDITOR", editor())
            .env(EDITED, "left=right")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Starts a command that runs in the background.
    fn spawn(&self, line: &str) -> Child {
        self.command(&words(line)).spawn().expect("kubectl can be started")
    }

    fn output(&self, step: &Step<'_>) -> Output {
        let mut child = self.spawn(step.command);
        let mut stdin = child.stdin.take().expect("stdin is piped");
        stdin.write_all(step.stdin.as_bytes()).expect("kubectl reads its input");
        drop(stdin);
        let mut output = child.wait_with_output().expect("the process ends");
        // The editor is a test that prints its result, which is removed here.
        while let Some(rest) = output.stdout.strip_prefix(b"\nrunning 1 test\n") {
            output.stdout = rest.to_vec();
        }
        output
    }

    /// Returns `true` if this kubectl, like newer versions, writes some bodies as protobuf and the server refuses them.
    #[expect(clippy::print_stderr, reason = "a test that is left out has to say so")]
    fn is_told_to_send_json(&self, test: &str) -> bool {
        let step = Step {
            command: "auth can-i create pods",
            ..Step::default()
        };
        let output = self.output(&step);
        let refused = String::from_utf8_lossy(&output.stderr).contains("does not read protobuf bodies");
        if refused {
            eprintln!("skipped: {test} needs a server that reads protobuf, or a kubectl that writes JSON");
        }
        refused
    }

    /// Runs a transcript; see [`steps`].
    #[track_caller]
    fn run(&self, transcript: &str) {
        for step in steps(transcript) {
            let output = self.output(&step);
            let stdout = String::from_utf8_lossy(&output.stdout);
            let stderr = String::from_utf8_lossy(&output.stderr);
            // Old kubectl versions print a warning about the version difference.
            let stderr: String = stderr
                .split_inclusive('\n')
                .filter(|it| !it.contains("version difference"))
                .collect();
            let as_expected = output.status.success() != step.fails
                && (same_lines(&stdout, &step.stdout) || step.contained_only())
                && step
                    .contained
                    .iter()
                    .all(|it| stdout.lines().any(|line| matches(it, line)))
                && same_lines(&stderr, &step.stderr);
            assert!(
                as_expected,
                "$ kubectl {} # at {}\n{}\n--- stdout\n{stdout}--- stderr\n{stderr}--- expected\n{step:#?}",
                step.command, self.server.url, output.status
            );
        }
    }
}

/// A command of a transcript, with its expected output.
#[derive(Debug, Default)]
struct Step<'a> {
    command: &'a str,
    stdin: String,
    fails: bool,
    stdout: Vec<&'a str>,
    contained: Vec<&'a str>,
    stderr: Vec<&'a str>,
}

impl Step<'_> {
    fn contained_only(&self) -> bool {
        self.stdout.is_empty() && !self.contained.is_empty()
    }
}

/// Parses a transcript. A line that starts with `$` is a command, and the following lines belong to it: `<` is its
/// input, `!` is expected on stderr and the command fails, `?` is expected on stderr and the command succeeds, `~` is a
/// line anywhere on stdout, and other lines are the complete stdout. `*` matches anything within a line, and `...` at
/// the end matches any lines; the width of columns is ignored.
fn steps(transcript: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for line in transcript.lines().filter(|line| !line.trim().is_empty()) {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step {
                command,
                ..Step::default()
            });
            continue;
        }
        let step = steps.last_mut().expect("a transcript starts with a command");
        match line.split_once(' ') {
            Some(("<", input)) => {
                // Without this line, kubectl treats input that starts with `{` as JSON.
                step.stdin += if step.stdin.is_empty() { "---\n" } else { "" };
                step.stdin += &format!("{input}\n");
            }
            Some(("!", text)) => {
                step.fails = true;
                step.stderr.push(text);
            }
            Some(("?", text)) => step.stderr.push(text),
            Some(("~", text)) => step.contained.push(text),
            _ => step.stdout.push(line),
        }
    }
    steps
}

/// Splits a command line into words; single quotes protect spaces.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            _ => words.last_mut().expect("the list of words is not empty").push(letter),
        }
    }
    words
}

fn same_lines(text: &str, patterns: &[&str]) -> bool {
    let mut lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let patterns = match patterns.split_last() {
        Some((&"...", first)) => {
            lines.truncate(first.len());
            first
        }
        _ => patterns,
    };
    lines.len() == patterns.len() && lines.iter().zip(patterns).all(|(line, pattern)| matches(pattern, line))
}

/// Returns `true` if a line matches the pattern.
fn matches(pattern: &str, line: &str) -> bool {
    let narrow = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (pattern, line) = (narrow(pattern), narrow(line));
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[test]
fn kubectl_shows_version_and_discovery_of_1_37() {
    let more = ["--kubernetes-version", "1.37"];
    let Some(kubectl) = Kubectl::start_with("kubectl_shows_version_and_discovery_of_1_37", Over::Http, &more) else {
        return;
    };
    kubectl.run(
        r"
$ version
~ Server Version: v1.37.2
$ api-resources --api-group=certificates.k8s.io -o name
certificatesigningrequests.certificates.k8s.io
clustertrustbundles.certificates.k8s.io
podcertificaterequests.certificates.k8s.io
$ explain devicetaintrules.spec.taint.effect
~ VERSION: v1
$ explain pod.spec.evictionResponders
~ FIELD: evictionResponders*
$ create -f -
< {kind: DeviceTaintRule, apiVersion: resource.k8s.io/v1, metadata: {name: r}, spec: {taint: {key: k, effect: NoSchedule}}}
devicetaintrule.resource.k8s.io/r created
$ get devicetaintrules -o name
devicetaintrule.resource.k8s.io/r
",
    );
}

const PODS: &str = r"
$ create -f -
< {kind: Pod, apiVersion: v1, metadata: {name: web-0, labels: {app: web}}, spec: {containers: [{name: c, image: web:1}]}}
< ---
< {kind: Pod, apiVersion: v1, metadata: {name: db-0, labels: {app: db}}, spec: {containers: [{name: c, image: db:1}, {name: d, image: d}]}}
pod/web-0 created
pod/db-0 created
";

#[rstest]
fn kubectl_shows_version_health_and_discovery(#[values(Over::Http, Over::Https)] over: Over) {
    let Some(kubectl) = Kubectl::start("kubectl_shows_version_health_and_discovery", over) else {
        return;
    };
    kubectl.run(
        r"
$ version
~ Server Version: v1.36.*
$ get --raw /healthz
ok
$ get --raw /readyz
ok
$ cluster-info
~ *Kubernetes control plane* is running at *
$ api-versions
~ apps/v1
~ batch/v1
~ rbac.authorization.k8s.io/v1
~ v1
$ api-resources --api-group=apps --sort-by=name
NAME                  SHORTNAMES   APIVERSION   NAMESPACED   KIND
controllerrevisions                apps/v1      true         ControllerRevision
daemonsets            ds           apps/v1      true         DaemonSet
deployments           deploy       apps/v1      true         Deployment
replicasets           rs           apps/v1      true         ReplicaSet
statefulsets          sts          apps/v1      true         StatefulSet
$ api-resources --namespaced=false -o name
~ namespaces
~ nodes
~ clusterroles.rbac.authorization.k8s.io
$ get nopes
! error: the server doesn't have a resource type *nopes*
",
    );
}

#[rstest]
fn kubectl_get_supports_all_outputs(#[values(Over::Http, Over::Https)] over: Over) {
    let Some(kubectl) = Kubectl::start("kubectl_get_supports_all_outputs", over) else {
        return;
    };
    kubectl.run("$ get pods\n? No resources found in default namespace.\n");
    kubectl.run(PODS);
    kubectl.run(
        r#"
$ get pods
NAME    READY   STATUS    RESTARTS   AGE
db-0    0/2     Pending   0          *s
web-0   0/1     Pending   0          *s
$ get po -o wide
NAME    READY   STATUS    RESTARTS   AGE   IP       NODE     NOMINATED NODE   READINESS GATES
db-0    0/2     Pending   0          *s    <none>   <none>   <none>           <none>
web-0   0/1     Pending   0          *s    <none>   <none>   <none>           <none>
$ get pods -A --show-labels
NAMESPACE   NAME    READY   STATUS    RESTARTS   AGE   LABELS
default     db-0    0/2     Pending   0          *s    app=db
default     web-0   0/1     Pending   0          *s    app=web
$ get pods -L app --no-headers
db-0    0/2   Pending   0     *s   db
web-0   0/1   Pending   0     *s   web
$ get pods -o name
pod/db-0
pod/web-0
$ get pod web-0 -o jsonpath={.spec.containers[0].image}
web:1
$ get pods -o custom-columns=NAME:.metadata.name,IMAGES:.spec.containers[*].image
NAME    IMAGES
db-0    db:1,d
web-0   web:1
$ get pod web-0 -o yaml
~ apiVersion: v1
~ kind: Pod
~   uid: *-*-4*-*
~   phase: Pending
$ get pod web-0 -o json
~ "kind": "Pod",
~ "image": "web:1",
$ get pods -l app=web -o name
pod/web-0
$ get pods -l 'app notin (web, db)'
? No resources found in default namespace.
$ get pods --field-selector metadata.name=db-0,status.phase=Pending -o name
pod/db-0
$ get pods --sort-by=.spec.containers[0].image -o name
pod/db-0
pod/web-0
$ get pods --chunk-size=1 -o name
pod/db-0
pod/web-0
$ get pod web-0 db-0 -o name
pod/web-0
pod/db-0
$ get namespaces,pods -o name
~ namespace/default
~ pod/web-0
$ get all -o name
~ pod/db-0
~ pod/web-0
$ get pod nope
! Error from server (NotFound): pods "nope" not found
$ get pod nope --ignore-not-found
$ get pods -n nowhere
? No resources found in nowhere namespace.
$ get pods --field-selector spec.color=red
! Error from server (BadRequest): Unable to find "/v1, Resource=pods" that match label selector "", field selector "spec.color=red": field label not supported: spec.color
"#,
    );
}

#[rstest]
fn kubectl_creates_applies_and_changes_objects(#[values(Over::Http, Over::Https)] over: Over) {
    let Some(kubectl) = Kubectl::start("kubectl_creates_applies_and_changes_objects", over) else {
        return;
    };
    kubectl.run(PODS);
    kubectl.run(
        r#"
$ create -f -
< {kind: Pod, apiVersion: v1, metadata: {name: web-0}, spec: {containers: [{name: c, image: web:1}]}}
! Error from server (AlreadyExists): error when creating "STDIN": pods "web-0" already exists
$ create -f -
< {kind: ConfigMap, apiVersion: v1, metadata: {name: conf}, data: {a: "1"}}
configmap/conf created
$ create --dry-run=server -f -
< {kind: ConfigMap, apiVersion: v1, metadata: {name: dry}}
configmap/dry created (server dry run)
$ get configmap dry
! Error from server (NotFound): configmaps "dry" not found
$ create -f -
< {kind: ConfigMap, apiVersion: v1, metadata: {name: Wrong_Name}}
! The ConfigMap "Wrong_Name" is invalid: metadata.name: Invalid value: "Wrong_Name": a lowercase RFC 1123 subdomain must consist of *
$ create -f -
< {kind: ConfigMap, apiVersion: v1, metadata: {name: x}, colour: red}
! Error from server (BadRequest): error when creating "STDIN": ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "colour"
$ patch configmap conf --type=merge -p '{"data":{"a":"2","b":"3"}}'
configmap/conf patched
$ patch configmap conf --type=merge -p '{"data":{"a":"2"}}'
configmap/conf patched (no change)
$ patch configmap conf --type=json -p '[{"op":"remove","path":"/data/b"}]'
configmap/conf patched
$ patch pod web-0 -p '{"spec":{"containers":[{"name":"c","image":"web:2"}]}}'
pod/web-0 patched
$ get configmap/conf pod/web-0 -o jsonpath={.items[*].data}{.items[*].spec.containers[*].image}
{"a":"2"}web:2
$ label pod web-0 tier=front
pod/web-0 labeled
$ label pod web-0 tier=back
! error: 'tier' already has a value (front), and --overwrite is false
$ label pod web-0 tier=back --overwrite
pod/web-0 labeled
$ label pod web-0 tier-
pod/web-0 unlabeled
$ annotate configmap conf note='two words'
configmap/conf annotated
$ apply -f -
< {kind: ConfigMap, apiVersion: v1, metadata: {name: applied}, data: {a: "1", b: "1"}}
configmap/applied created
$ apply -f -
< {kind: ConfigMap, apiVersion: v1, metadata: {name: applied}, data: {a: "1", b: "1"}}
configmap/applied unchanged
$ apply -f -
< {kind: ConfigMap, apiVersion: v1, metadata: {name: applied}, data: {a: "2"}}
configmap/applied configured
$ get configmap applied -o jsonpath={.data}
{"a":"2"}
$ replace -f -
< {kind: ConfigMap, apiVersion: v1, metadata: {name: conf}, data: {z: "26"}}
configmap/conf replaced
$ get configmap conf -o jsonpath={.data}
{"z":"26"}
"#,
    );
}

#[rstest]
fn kubectl_applies_server_side(#[values(Over::Http, Over::Https)] over: Over) {
    let Some(kubectl) = Kubectl::start("kubectl_applies_server_side", over) else {
        return;
    };
    kubectl.run(
        r#"
$ apply --server-side -f -
< {kind: ConfigMap, apiVersion: v1, metadata: {name: ssa}, data: {a: "1"}}
configmap/ssa serverside-applied
$ apply --server-side --field-manager=other -f -
< {kind: ConfigMap, apiVersion: v1, metadata: {name: ssa}, data: {a: "2"}}
! error: Apply failed with 1 conflict: conflict with "kubectl": .data.a
! ...
$ apply --server-side --field-manager=other --force-conflicts -f -
< {kind: ConfigMap, apiVersion: v1, metadata: {name: ssa}, data: {a: "2"}}
configmap/ssa serverside-applied
$ get configmap ssa -o jsonpath={.data.a}
2
"#,
    );
}

#[rstest]
fn kubectl_uses_workloads_and_subresources(#[values(Over::Http, Over::Https)] over: Over) {
    let Some(kubectl) = Kubectl::start("kubectl_uses_workloads_and_subresources", over) else {
        return;
    };
    kubectl.run(
        r#"
$ create -f -
< kind: Deployment
< apiVersion: apps/v1
< metadata: {name: web, labels: {app: web}}
< spec:
<   replicas: 2
<   selector: {matchLabels: {app: web}}
<   template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: web:1}]}}
deployment.apps/web created
$ scale deployment web --replicas=3
deployment.apps/web scaled
$ get deployment web -o jsonpath={.spec.replicas}
3
$ get deployment web --subresource=scale
NAME   DESIRED   AVAILABLE   AGE
web    3         0           *s
$ set image deployment/web web=web:2
deployment.apps/web image updated
$ get deployments
NAME   READY   UP-TO-DATE   AVAILABLE   AGE
web    0/3     0            0           *s
$ get deployment web -o wide --no-headers
web    0/3     0            0           *s   web   web:2   app=web
$ patch deployment web --subresource=status --type=merge -p '{"status":{"availableReplicas":3,"readyReplicas":3,"replicas":3,"updatedReplicas":3}}'
deployment.apps/web patched
$ get deployments --no-headers
web    3/3     3            3           *s
$ expose deployment web --port=80
service/web exposed
$ get service web -o jsonpath={.spec.ports[0].targetPort}/{.spec.type}
80/ClusterIP
$ get services
~ NAME   TYPE        CLUSTER-IP   EXTERNAL-IP   PORT(S)   AGE
~ kubernetes  ClusterIP   10.0.0.1      <none>        443/TCP    *s
~ web  ClusterIP   *.*.*.*      <none>        80/TCP    *s
$ get endpoints kubernetes -o jsonpath={.subsets[0].ports[0].name}
https
? Warning: v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice
$ get endpointslices -l kubernetes.io/service-name=kubernetes -o name
endpointslice.discovery.k8s.io/kubernetes
$ run shell --image=sh:1
pod/shell created
"#,
    );
}

#[rstest]
fn kubectl_creates_objects_from_flags(#[values(Over::Http, Over::Https)] over: Over) {
    let Some(kubectl) = Kubectl::start("kubectl_creates_objects_from_flags", over) else {
        return;
    };
    if kubectl.is_told_to_send_json("kubectl_creates_objects_from_flags") {
        return;
    }
    kubectl.run(
        r#"
$ create configmap conf --from-literal=a=1
configmap/conf created
$ create configmap conf --from-literal=a=1
! error: failed to create configmap: configmaps "conf" already exists
$ create deployment web --image=web:1 --replicas=2
deployment.apps/web created
$ get deployment web -o jsonpath={.spec.replicas}:{.spec.template.spec.containers[0].image}
2:web:1
$ create secret generic top --from-literal=a=b
secret/top created
$ get secrets
NAME   TYPE     DATA   AGE
top    Opaque   1      *s
$ create namespace shop
namespace/shop created
$ get namespace shop
NAME   STATUS   AGE
shop   Active   *s
$ create job once --image=job:1 -n shop
job.batch/once created
$ create serviceaccount robot -n shop
serviceaccount/robot created
$ create role reader --verb=get,list --resource=pods -n shop
role.rbac.authorization.k8s.io/reader created
$ create rolebinding robots --role=reader --serviceaccount=shop:robot -n shop
rolebinding.rbac.authorization.k8s.io/robots created
$ create quota small --hard=pods=3 -n shop
resourcequota/small created
$ create service clusterip inner --tcp=80:8080 -n shop
service/inner created
$ create ingress door --rule=shop.example/*=inner:80 -n shop
ingress.networking.k8s.io/door created
"#,
    );
}

#[rstest]
fn kubectl_deletes_and_waits(#[values(Over::Http, Over::Https)] over: Over) {
    let Some(kubectl) = Kubectl::start("kubectl_deletes_and_waits", over) else {
        return;
    };
    kubectl.run(PODS);
    kubectl.run(
        r#"
$ wait pod/web-0 --for=jsonpath={.status.phase}=Pending --timeout=5s
pod/web-0 condition met
$ patch pod web-0 --subresource=status -p '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
pod/web-0 patched
$ wait pod/web-0 --for=condition=Ready --timeout=5s
pod/web-0 condition met
$ wait pod/db-0 --for=condition=Ready --timeout=1s
! error: timed out waiting for the condition on pods/db-0
"#,
    );
    let waiting = kubectl.spawn("wait pod/web-0 --for=delete --timeout=20s");
    kubectl.run(
        r#"
$ delete pod web-0 --wait --timeout=10s
pod "web-0" deleted*
$ delete pod web-0
! Error from server (NotFound): pods "web-0" not found
$ delete pod web-0 --ignore-not-found
$ delete pods -l app=db --now
pod "db-0" deleted*
$ create -f -
< {kind: ConfigMap, apiVersion: v1, metadata: {name: kept}}
configmap/kept created
$ patch configmap kept --type=merge -p '{"metadata":{"finalizers":["example.com/hold"]}}'
configmap/kept patched
$ delete configmap kept --wait=false
configmap "kept" deleted*
$ get configmap kept -o jsonpath={.metadata.finalizers}
["example.com/hold"]
$ patch configmap kept --type=json -p '[{"op":"remove","path":"/metadata/finalizers"}]'
configmap/kept patched
$ get configmap kept
! Error from server (NotFound): configmaps "kept" not found
"#,
    );
    let waited = waiting.wait_with_output().expect("the process ends");
    let stdout = String::from_utf8_lossy(&waited.stdout);
    assert!(
        matches("pod/web-0 condition met", stdout.trim()) || stdout.is_empty(),
        "{stdout}"
    );
    assert!(waited.status.success(), "{}", String::from_utf8_lossy(&waited.stderr));
}

/// A ReplicaSet that owns a Pod, which owns a ConfigMap.
const OWNED: &str = r#"
$ create -f -
< apiVersion: apps/v1
< kind: ReplicaSet
< metadata: {name: web}
< spec:
<   selector: {matchLabels: {app: web}}
<   template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: "img:1"}]}}
replicaset.apps/web created
"#;

impl Kubectl {
    /// Creates a Pod and a ConfigMap owned by the ReplicaSet `web`.
    fn create_owned(&self) {
        self.run(OWNED);
        let output = self
            .command(&words("get replicaset web -o jsonpath={.metadata.uid}"))
            .output();
        let uid = String::from_utf8(output.expect("kubectl starts").stdout).expect("the text is UTF-8");
        let owner = format!(
            "ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: {uid}, controller: true, \
             blockOwnerDeletion: true}}]"
        );
        self.run(&format!(
            "
$ create -f -
< {{apiVersion: v1, kind: Pod, metadata: {{name: web-0, {owner}}}, spec: {{containers: [{{name: c, image: i}}]}}}}
< ---
< {{apiVersion: v1, kind: ConfigMap, metadata: {{name: web-0, {owner}}}}}
pod/web-0 created
configmap/web-0 created
"
        ));
    }
}

#[rstest]
fn kubectl_deletes_dependents(#[values("background", "foreground", "orphan")] cascade: &str) {
    let Some(kubectl) = Kubectl::start_with("kubectl_deletes_dependents", Over::Http, &["--workers", "gc"]) else {
        return;
    };
    kubectl.create_owned();
    kubectl.run(&format!(
        "
$ delete replicaset web --cascade={cascade} --timeout=20s
replicaset.apps \"web\" deleted*
"
    ));
    if cascade == "orphan" {
        kubectl.run(
            "
$ get pod/web-0 configmap/web-0 -o jsonpath={.items[*].metadata.ownerReferences}
$ get pod/web-0 configmap/web-0 -o name
pod/web-0
configmap/web-0
",
        );
    } else {
        kubectl.run(
            "
$ wait pod/web-0 configmap/web-0 --for=delete --timeout=20s
$ get pods,configmaps --ignore-not-found
",
        );
    }
}

#[rstest]
fn kubectl_deletes_a_namespace(#[values(Over::Http, Over::Https)] over: Over) {
    let Some(kubectl) = Kubectl::start_with("kubectl_deletes_a_namespace", over, &["--workers", "gc,namespace"]) else {
        return;
    };
    kubectl.run(
        "
$ create namespace shop
namespace/shop created
$ create configmap settings -n shop
configmap/settings created
$ create secret generic password -n shop
secret/password created
$ delete namespace shop --timeout=20s
namespace \"shop\" deleted
$ get namespace shop
! Error from server (NotFound): namespaces \"shop\" not found
$ get configmaps,secrets -A -o name --field-selector metadata.namespace!=kube-system
",
    );
}

#[rstest]
fn kubectl_rolls_out_and_drains(#[values(Over::Http)] over: Over) {
    let Some(kubectl) = Kubectl::start_with("kubectl_rolls_out_and_drains", over, &["--workers", "all"]) else {
        return;
    };
    kubectl.run(
        "
$ create -f -
< {kind: Node, apiVersion: v1, metadata: {name: left}}
node/left created
$ create deployment web --image=nginx:1 --replicas=2
deployment.apps/web created
$ rollout status deployment/web --timeout=20s
~ deployment \"web\" successfully rolled out
$ set image deployment/web nginx=nginx:2
deployment.apps/web image updated
$ rollout status deployment/web --timeout=20s
~ deployment \"web\" successfully rolled out
$ rollout history deployment/web
deployment.apps/web
REVISION CHANGE-CAUSE
1 <none>
2 <none>
$ rollout undo deployment/web
deployment.apps/web rolled back
$ rollout status deployment/web --timeout=20s
~ deployment \"web\" successfully rolled out
$ get deployment web -o jsonpath={.spec.template.spec.containers[0].image}
nginx:1
$ rollout restart deployment/web
deployment.apps/web restarted
$ rollout status deployment/web --timeout=20s
~ deployment \"web\" successfully rolled out
$ scale deployment/web --replicas=3
deployment.apps/web scaled
$ rollout status deployment/web --timeout=20s
~ deployment \"web\" successfully rolled out
$ create poddisruptionbudget web --selector=app=web --min-available=2
poddisruptionbudget.policy/web created
$ create -f -
< {kind: Node, apiVersion: v1, metadata: {name: right}}
node/right created
$ wait node/right --for=condition=Ready --timeout=20s
node/right condition met
$ drain left --timeout=60s
~ node/left cordoned
~ node/left drained
? ...
$ get pods --field-selector=spec.nodeName=left --ignore-not-found
$ rollout status deployment/web --timeout=20s
~ deployment \"web\" successfully rolled out
",
    );
}

#[rstest]
fn kubectl_reports_a_missing_crd(#[values(Over::Http)] over: Over) {
    let Some(kubectl) = Kubectl::start("kubectl_reports_a_missing_crd", over) else {
        return;
    };
    kubectl.run(
        r#"
$ create -f -
< {kind: Lamp, apiVersion: example.com/v1, metadata: {name: desk}}
! error: resource mapping not found for name: "desk" namespace: "" from "STDIN": no matches for kind "Lamp" in version "example.com/v1"
! ensure CRDs are installed first
"#,
    );
}

#[rstest]
fn kubectl_edits_prunes_and_kustomizes(#[values(Over::Http)] over: Over) {
    let Some(kubectl) = Kubectl::start("kubectl_edits_prunes_and_kustomizes", over) else {
        return;
    };
    let kustomization = kubectl.folder.join("kustomization.yaml");
    let text = "namePrefix: k-\nconfigMapGenerator: [{name: gen, literals: [a=b]}]\n";
    std::fs::write(kustomization, text).expect("the target directory is writable");
    let folder = kubectl.folder.display();
    kubectl.run(&format!(
        r#"
$ create -k {folder}
configmap/k-gen-* created
$ apply -f -
< {{kind: ConfigMap, apiVersion: v1, metadata: {{name: one, labels: {{set: a}}}}, data: {{key: left}}}}
< ---
< {{kind: ConfigMap, apiVersion: v1, metadata: {{name: two, labels: {{set: a}}}}}}
configmap/one created
configmap/two created
$ edit configmap one
configmap/one edited
$ get configmap one -o jsonpath={{.data.key}}
right
$ apply --prune -l set=a --prune-allowlist=core/v1/ConfigMap -f - --dry-run=server
< {{kind: ConfigMap, apiVersion: v1, metadata: {{name: one, labels: {{set: a}}}}, data: {{key: left}}}}
configmap/one configured (server dry run)
configmap/two pruned (server dry run)
$ apply --prune -l set=a --prune-allowlist=core/v1/ConfigMap -f -
< {{kind: ConfigMap, apiVersion: v1, metadata: {{name: one, labels: {{set: a}}}}, data: {{key: left}}}}
configmap/one configured
configmap/two pruned
$ replace -f -
< {{kind: ConfigMap, apiVersion: v1, metadata: {{name: one}}, data: {{other: x}}}}
configmap/one replaced
$ get configmap one -o jsonpath={{.data}}
{{"other":"x"}}
$ top pods
! error: Metrics API not available
"#
    ));
}

#[rstest]
fn kubectl_edits_custom_resources(#[values(Over::Http)] over: Over) {
    let Some(kubectl) = Kubectl::start("kubectl_edits_custom_resources", over) else {
        return;
    };
    kubectl.run(
        r#"
$ create -f -
< apiVersion: apiextensions.k8s.io/v1
< kind: CustomResourceDefinition
< metadata: {name: lamps.example.com}
< spec:
<   group: example.com
<   scope: Namespaced
<   names: {plural: lamps, singular: lamp, kind: Lamp, listKind: LampList}
<   versions:
<   - name: v1
<     served: true
<     storage: true
<     schema:
<       openAPIV3Schema:
<         type: object
<         properties:
<           spec:
<             type: object
<             properties:
<               place: {type: string}
<               side: {type: string, enum: [left, top]}
customresourcedefinition.apiextensions.k8s.io/lamps.example.com created
$ wait --for=condition=established crd/lamps.example.com
customresourcedefinition.apiextensions.k8s.io/lamps.example.com condition met
$ create -f -
< {kind: Lamp, apiVersion: example.com/v1, metadata: {name: one}, spec: {place: left, side: top}}
< ---
< {kind: Lamp, apiVersion: example.com/v1, metadata: {name: two}, spec: {side: left}}
lamp.example.com/one created
lamp.example.com/two created
$ edit lamp one
lamp.example.com/one edited
$ get lamp one -o jsonpath={.spec}/{.metadata.generation}
{"place":"right","side":"top"}/2
$ edit lamp one
? Edit cancelled, no changes made.
$ edit lamp two
! error: lamps.example.com "two" is invalid
! A copy of your changes has been stored to "*.yaml"
! error: Edit cancelled, no valid changes were saved.
$ get lamp two -o jsonpath={.spec}/{.metadata.generation}
{"side":"left"}/1
"#,
    );
}

#[rstest]
fn kubectl_taints_nodes_and_reconciles_roles(#[values(Over::Http)] over: Over) {
    let Some(kubectl) = Kubectl::start("kubectl_taints_nodes_and_reconciles_roles", over) else {
        return;
    };
    kubectl.run(
        r#"
$ create -f -
< {kind: Node, apiVersion: v1, metadata: {name: left}}
node/left created
$ taint node left a=b:NoSchedule
node/left tainted
$ taint node left a=c:NoSchedule
! error: node left already has a taint(s) with same effect(s) and --overwrite is false
$ taint node left a=c:NoSchedule --overwrite
node/left modified
$ taint node left a-
node/left untainted
$ auth reconcile -f -
< apiVersion: rbac.authorization.k8s.io/v1
< kind: ClusterRole
< metadata: {name: reader}
< rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
~ clusterrole.rbac.authorization.k8s.io/reader reconciled
? *reconciliation required create
? ...
$ auth reconcile --remove-extra-permissions -f -
< apiVersion: rbac.authorization.k8s.io/v1
< kind: ClusterRole
< metadata: {name: reader}
< rules: [{apiGroups: [""], resources: [pods], verbs: [list]}]
~ clusterrole.rbac.authorization.k8s.io/reader reconciled
? *reconciliation required update
? ...
$ get clusterrole reader -o jsonpath={.rules[*].verbs}
["list"]
"#,
    );
}

#[rstest]
fn kubectl_get_supports_watch(#[values(Over::Http, Over::Https)] over: Over) {
    let Some(kubectl) = Kubectl::start("kubectl_get_supports_watch", over) else {
        return;
    };
    kubectl.run(
        "
$ create -f -
< {kind: ConfigMap, apiVersion: v1, metadata: {name: one}}
configmap/one created
",
    );

    let mut watching = kubectl.spawn("get configmaps --watch --output-watch-events --no-headers -L a");
    let mut lines = BufReader::new(watching.stdout.take().expect("stdout is piped")).lines();
    let mut expect = |pattern: &str| {
        let line = lines
            .next()
            .expect("the stream continues")
            .expect("the output of kubectl is UTF-8");
        assert!(matches(pattern, &line), "{pattern:?} is expected, not {line:?}");
    };
    expect("ADDED one 0 *s");
    kubectl.run(
        "
$ create -f -
< {kind: ConfigMap, apiVersion: v1, metadata: {name: two}}
configmap/two created
$ label configmap one a=b
configmap/one labeled
$ delete configmap one
configmap \"one\" deleted*
",
    );
    expect("ADDED two 0 *s");
    expect("MODIFIED one 0 *s b");
    expect("DELETED one 0 *s b");
    watching.kill().expect("the process runs");
    watching.wait().expect("the process ends");
}

#[rstest]
fn kubectl_describes_and_explains(#[values(Over::Http, Over::Https)] over: Over) {
    let Some(kubectl) = Kubectl::start("kubectl_describes_and_explains", over) else {
        return;
    };
    kubectl.run(PODS);
    kubectl.run(
        r"
$ describe pod web-0
~ Name:             web-0
~ Namespace:        default
~ Labels:           app=web
~ Status:           Pending
~     Image:        web:1
~ Events:           <none>
$ explain pod.spec.containers.imagePullPolicy
~ KIND:       Pod
~ VERSION:    v1
~ FIELD: imagePullPolicy <string>
$ explain deployment.spec.replicas
~ GROUP:      apps
~ FIELD: replicas <integer>
",
    );
}

#[rstest]
fn kubectl_checks_permissions(#[values(Over::Http, Over::Https)] over: Over) {
    let Some(kubectl) = Kubectl::start("kubectl_checks_permissions", over) else {
        return;
    };
    if kubectl.is_told_to_send_json("kubectl_checks_permissions") {
        return;
    }
    kubectl.run(
        r"
$ auth can-i create pods
yes
$ auth can-i delete deployments.apps/web -n shop
yes
$ auth whoami
~ ATTRIBUTE   VALUE
~ Username    *
",
    );
}

#[rstest]
fn kubectl_uses_custom_resources(#[values(Over::Http, Over::Https)] over: Over) {
    let Some(kubectl) = Kubectl::start("kubectl_uses_custom_resources", over) else {
        return;
    };
    kubectl.run(
        r#"
$ create -f -
< apiVersion: apiextensions.k8s.io/v1
< kind: CustomResourceDefinition
< metadata: {name: lamps.example.com}
< spec:
<   group: example.com
<   scope: Namespaced
<   names: {plural: lamps, singular: lamp, kind: Lamp, shortNames: [lp]}
<   versions:
<   - name: v1
<     served: true
<     storage: true
<     subresources: {status: {}}
<     additionalPrinterColumns:
<     - {name: Watts, type: integer, jsonPath: .spec.watts}
<     schema:
<       openAPIV3Schema:
<         type: object
<         properties:
<           spec:
<             type: object
<             properties:
<               watts: {type: integer, minimum: 1, default: 60, description: How bright it is.}
customresourcedefinition.apiextensions.k8s.io/lamps.example.com created
$ wait crd/lamps.example.com --for=condition=Established --timeout=10s
customresourcedefinition.apiextensions.k8s.io/lamps.example.com condition met
$ create -f -
< {apiVersion: example.com/v1, kind: Lamp, metadata: {name: desk}, spec: {}}
lamp.example.com/desk created
$ get lp
NAME   WATTS
desk   60
$ create -f -
< {apiVersion: example.com/v1, kind: Lamp, metadata: {name: dark}, spec: {watts: 0}}
! The Lamp "dark" is invalid: spec.watts: Invalid value: 0: spec.watts in body should be greater than or equal to 1
$ explain lamp.spec.watts
~ KIND:       Lamp
~ FIELD: watts <integer>
~     How bright it is.
$ delete crd lamps.example.com
customresourcedefinition.apiextensions.k8s.io "lamps.example.com" deleted
$ get lamps
! Error from server (NotFound): Unable to list "example.com/v1, Resource=lamps": the server could not find the requested resource (get lamps.example.com)
"#,
    );
}

#[test]
fn transcripts_are_parsed_and_outputs_are_matched() {
    assert_eq!(words("a 'b c' d={\"x\":1}"), ["a", "b c", "d={\"x\":1}"]);
    assert!(matches("a   0/1  *s", "a 0/1 12s"));
    assert!(!matches("a 0/1 *s", "a 0/1 12m"));
    assert!(matches("* b * d", "a b c d"));
    let read = steps("$ x\n< in\n! err\n$ y\nout\n~ part\n");
    assert_eq!(
        (read[0].command, read[0].stdin.as_str(), read[0].fails),
        ("x", "---\nin\n", true)
    );
    assert_eq!(
        (read[1].stdout.as_slice(), read[1].contained.as_slice()),
        (&["out"][..], &["part"][..])
    );
}
