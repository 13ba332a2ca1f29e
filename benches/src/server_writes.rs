//! Measures writes by direct calls of the server, without a client, from the bytes of a request to the last byte of the
//! response.

use std::time::Duration;

use axum::body::Body;
use fake_apiserver::ApiServer;
use fake_apiserver::bench::{Document, FieldManager};
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::controllers::whole_test;
use crate::explorations::undisturbed;
use crate::measure::cpu_time;
use crate::objects;
use crate::reconciles::Peer;
use crate::requests::Bench;

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const WIDGETS: &str = "/apis/bench.example.com/v1/namespaces/default/widgets";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
/// Number of field managers of an object with several managers.
const MANAGERS: usize = 5;

/// Function that measures `count` writes of the same type.
pub type Write = fn(&mut Bench, usize) -> Duration;

/// All measured writes and their baselines, by name.
pub const WRITES: [(&str, Write); 20] = [
    ("create ConfigMap", Bench::serve_create_map),
    ("create Pod", Bench::serve_create_pod),
    ("update Pod", Bench::serve_update_pod),
    ("update Pod status", Bench::serve_update_status),
    ("merge patch Pod", Bench::serve_merge_pod),
    ("strategic patch Pod", Bench::serve_strategic_pod),
    ("apply Pod", Bench::serve_apply_pod),
    ("apply Pod unchanged", Bench::serve_apply_unchanged),
    ("apply Pod of five managers", Bench::serve_apply_of_five),
    ("apply ConfigMap of 200 managers", Bench::serve_apply_of_many),
    ("create custom resource", Bench::serve_create_widget),
    ("update custom resource", Bench::serve_update_widget),
    ("create CustomResourceDefinition", Bench::serve_create_definition),
    ("field manager: update Pod", Bench::track_update),
    ("field manager: apply Pod", Bench::merge_applied),
    (
        "field manager: apply Pod of five managers",
        Bench::merge_applied_of_five,
    ),
    ("get Pod", Bench::get_pod_bytes),
    ("create ConfigMap under a quota", Bench::serve_create_under_quota),
    ("whole controller test", |_, count| whole_test(count, 10).0),
    ("explored run", |_, count| explored(count)),
];

/// Explores a controller of kube-runtime with six objects, without faults. A run has 28 requests.
fn explored(count: usize) -> Duration {
    undisturbed(Peer::KubeRuntime, 6, count as u64).cpu
}

fn request(method: &str, path: &str, form: &str, body: &Value) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("user-agent", "bench")
        .header("content-type", form)
        .body(body.to_string().into())
        .expect("the request is valid")
}

/// Returns the configuration that a field manager applies: a Pod with an annotation that only this manager sets.
fn configuration(name: &str, manager: usize, at: usize) -> Value {
    let mut pod = objects::pod(name);
    pod["metadata"]["annotations"] = json!({format!("of-{manager}"): at.to_string()});
    pod
}

/// Returns the request with which one of many field managers applies a ConfigMap, with a field that only this manager
/// sets.
fn apply_to_map(manager: usize, at: usize) -> Request<Body> {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"},
        "data": {format!("of-{manager}"): at.to_string()},
    });
    let path = format!("{MAPS}/shared?fieldManager=bench-{manager}");
    request("PATCH", &path, APPLY, &map)
}

/// Repeatedly merges applied configurations into the same object.
fn merge(live: &Document, name: &str, count: usize) -> Duration {
    let configurations: Vec<_> = (1..=count)
        .map(|at| Document::from(configuration(name, 0, at)))
        .collect();
    let start = cpu_time();
    for applied in &configurations {
        let merged = FieldManager { manager: "bench-0" }.apply(live, applied);
        assert!(merged.is_ok());
    }
    cpu_time() - start
}

impl Bench {
    /// Sends a request. Returns its CPU time and the object in the response.
    fn serve(&self, request: Request<Body>) -> (Duration, Value) {
        let service = self.server.service();
        self.runtime.block_on(async {
            let start = cpu_time();
            let response = service.oneshot(request).await.expect("the service is infallible");
            let code = response.status();
            let body = response.into_body().collect().await.expect("the body is in memory");
            let body = body.to_bytes();
            let spent = cpu_time() - start;
            assert!(code.is_success(), "{}", String::from_utf8_lossy(&body));
            (spent, serde_json::from_slice(&body).expect("the text is valid JSON"))
        })
    }

    /// Sends requests that do not depend on each other. Returns their CPU time.
    fn serve_all(&self, count: usize, request: impl Fn(usize) -> Request<Body>) -> Duration {
        (0..count).map(|at| self.serve(request(at)).0).sum()
    }

    /// Changes an object repeatedly, each time starting from the last response.
    fn serve_changed(&self, path: &str, count: usize, change: impl Fn(&mut Value, usize)) -> Duration {
        let read = Request::get(path.trim_end_matches("/status")).body(Body::empty());
        let (_, mut object) = self.serve(read.expect("the request is valid"));
        let mut spent = Duration::ZERO;
        for at in 0..count {
            change(&mut object, at);
            let (time, written) = self.serve(request("PUT", path, JSON, &object));
            spent += time;
            object = written;
        }
        spent
    }

    fn loaded(&self, object: Value) {
        self.server.load([object]).expect("the objects are loaded");
    }

    /// Measures creating ConfigMaps.
    pub fn serve_create_map(&mut self, count: usize) -> Duration {
        let names = self.fresh_names("served", count);
        self.serve_all(count, |at| {
            request("POST", MAPS, JSON, &objects::config_map(&names[at]))
        })
    }

    /// Measures creating ConfigMaps in a namespace with 500 Pods and a quota that counts ConfigMaps and Pods.
    pub fn serve_create_under_quota(&mut self, count: usize) -> Duration {
        let guard = self.runtime.enter();
        self.server = ApiServer::builder().resource_quota_controller().start();
        drop(guard);
        let spec = json!({"hard": {"pods": "1000", "requests.cpu": "1000", "count/configmaps": "1000000"}});
        self.serve(request(
            "POST",
            QUOTAS,
            JSON,
            &json!({"metadata": {"name": "all"}, "spec": spec}),
        ));
        let pods = (0..500).map(|at| objects::running_pod(&format!("counted-{at}")));
        self.server.load(pods).expect("the objects are loaded");
        self.serve_create_map(count)
    }

    /// Creates a quota that counts Pods, their resource requests, and ConfigMaps.
    pub fn create_quota(&self) {
        let spec = json!({"hard": {"pods": "1000000", "requests.cpu": "1000000", "count/configmaps": "1000000"}});
        let quota = json!({"metadata": {"name": "all"}, "spec": spec});
        self.serve(request("POST", QUOTAS, JSON, &quota));
    }

    /// Creates a ConfigMap to which several managers have each applied a field.
    pub fn apply_by_managers(&mut self, managers: usize) {
        for manager in 0..managers {
            self.serve(apply_to_map(manager, 0));
        }
    }

    /// Measures server-side apply of the ConfigMap of [`apply_by_managers`](Self::apply_by_managers) by the first
    /// manager.
    pub fn apply_beside_managers(&mut self, count: usize) -> Duration {
        self.serve_all(count, |at| apply_to_map(0, at + 1))
    }

    /// Measures creating CustomResourceDefinitions of about 300 lines each.
    pub fn define(&mut self, count: usize) -> Duration {
        let names: Vec<String> = self
            .fresh_names("kind", count)
            .iter()
            .map(|it| it.replace('-', ""))
            .collect();
        self.serve_all(count, |at| {
            request("POST", DEFINITIONS, JSON, &objects::definition(&names[at], &names[at]))
        })
    }

    /// Measures creating Pods.
    pub fn serve_create_pod(&mut self, count: usize) -> Duration {
        let names = self.fresh_names("served", count);
        self.serve_all(count, |at| request("POST", PODS, JSON, &objects::pod(&names[at])))
    }

    /// Measures updating a label of a running Pod.
    pub fn serve_update_pod(&mut self, count: usize) -> Duration {
        self.loaded(objects::running_pod("updated"));
        self.serve_changed(&format!("{PODS}/updated"), count, |pod, at| {
            pod["metadata"]["labels"]["at"] = at.to_string().into();
        })
    }

    /// Measures updating the status of a running Pod, as a kubelet does.
    pub fn serve_update_status(&mut self, count: usize) -> Duration {
        self.loaded(objects::running_pod("run"));
        self.serve_changed(&format!("{PODS}/run/status"), count, |pod, at| {
            pod["status"]["containerStatuses"][0]["restartCount"] = at.into();
        })
    }

    /// Measures a merge patch of an annotation of a running Pod.
    pub fn serve_merge_pod(&mut self, count: usize) -> Duration {
        self.loaded(objects::running_pod("merged"));
        self.serve_all(count, |at| {
            let patch = json!({"metadata": {"annotations": {"at": at.to_string()}}});
            request("PATCH", &format!("{PODS}/merged"), MERGE, &patch)
        })
    }

    /// Measures a strategic merge patch of an annotation and the image of a running Pod.
    pub fn serve_strategic_pod(&mut self, count: usize) -> Duration {
        self.loaded(objects::running_pod("patched"));
        self.serve_all(count, |at| {
            let patch = json!({
                "metadata": {"annotations": {"at": at.to_string()}},
                "spec": {"containers": [{"name": "nginx", "image": format!("registry.example.com/shop/web:{at}")}]},
            });
            request("PATCH", &format!("{PODS}/patched"), STRATEGIC, &patch)
        })
    }

    fn apply(manager: &str, name: &str, pod: &Value) -> Request<Body> {
        let path = format!("{PODS}/{name}?fieldManager={manager}");
        request("PATCH", &path, APPLY, pod)
    }

    /// Measures server-side apply of a Pod with a changed annotation.
    pub fn serve_apply_pod(&mut self, count: usize) -> Duration {
        self.serve_all(count, |at| {
            let mut pod = objects::pod("applied");
            pod["metadata"]["annotations"]["at"] = at.to_string().into();
            Self::apply("bench", "applied", &pod)
        })
    }

    /// Measures server-side apply of an unchanged Pod.
    pub fn serve_apply_unchanged(&mut self, count: usize) -> Duration {
        let pod = objects::pod("still");
        self.serve(Self::apply("bench", "still", &pod));
        self.serve_all(count, |_| Self::apply("bench", "still", &pod))
    }

    /// Measures server-side apply of a Pod to which five managers have each applied fields.
    pub fn serve_apply_of_five(&mut self, count: usize) -> Duration {
        self.applied_by_all("five");
        self.serve_all(count, |at| {
            Self::apply("bench-0", "five", &configuration("five", 0, at))
        })
    }

    /// Measures server-side apply of a ConfigMap to which 200 managers have each applied a field.
    pub fn serve_apply_of_many(&mut self, count: usize) -> Duration {
        self.apply_by_managers(200);
        self.apply_beside_managers(count)
    }

    /// Returns the Pod after five managers have applied it.
    fn applied_by_all(&self, name: &str) -> Document {
        let mut live = Value::Null;
        for manager in 0..MANAGERS {
            let pod = configuration(name, manager, 0);
            live = self.serve(Self::apply(&format!("bench-{manager}"), name, &pod)).1;
        }
        live.into()
    }

    /// Measures only the field manager, for an update that changes a label of a running Pod.
    pub fn track_update(&mut self, count: usize) -> Duration {
        let live = Document::from(objects::running_pod("tracked"));
        let mut spent = Duration::ZERO;
        for at in 0..count {
            let mut new = objects::running_pod("tracked");
            new["metadata"]["labels"]["at"] = at.to_string().into();
            let mut new = Document::from(new);
            let start = cpu_time();
            FieldManager { manager: "bench" }.track_update(&live, &mut new);
            spent += cpu_time() - start;
        }
        spent
    }

    /// Measures only the field manager, for an apply that changes an annotation of a Pod.
    pub fn merge_applied(&mut self, count: usize) -> Duration {
        let (_, live) = self.serve(Self::apply(
            "bench-0",
            "merged-alone",
            &configuration("merged-alone", 0, 0),
        ));
        merge(&live.into(), "merged-alone", count)
    }

    /// Same as `merge_applied`, for a Pod with five managers.
    pub fn merge_applied_of_five(&mut self, count: usize) -> Duration {
        merge(&self.applied_by_all("merged-by-five"), "merged-by-five", count)
    }

    fn ensure_widgets(&mut self) {
        if self.has_widgets {
            return;
        }
        self.has_widgets = true;
        self.serve(request(
            "POST",
            DEFINITIONS,
            JSON,
            &objects::definition("widgets", "Widget"),
        ));
    }

    /// Measures creating custom resources with a schema of about 300 lines and ten CEL rules.
    pub fn serve_create_widget(&mut self, count: usize) -> Duration {
        self.ensure_widgets();
        let names = self.fresh_names("widget", count);
        self.serve_all(count, |at| request("POST", WIDGETS, JSON, &objects::widget(&names[at])))
    }

    /// Measures updating a field of a custom resource.
    pub fn serve_update_widget(&mut self, count: usize) -> Duration {
        self.ensure_widgets();
        let name = self.fresh_names("changed", 1).remove(0);
        self.serve(request("POST", WIDGETS, JSON, &objects::widget(&name)));
        self.serve_changed(&format!("{WIDGETS}/{name}"), count, |widget, at| {
            widget["spec"]["field69"] = (1_000_000 + at).into();
        })
    }

    /// Measures creating a CustomResourceDefinition with a schema of about 300 lines and ten CEL rules on a server with
    /// ten other CustomResourceDefinitions.
    pub fn serve_create_definition(&mut self, count: usize) -> Duration {
        for other in self.fresh_names("other", 10) {
            let plural = other.replace('-', "");
            self.serve(request(
                "POST",
                DEFINITIONS,
                JSON,
                &objects::definition(&plural, &plural),
            ));
        }
        let definition = objects::definition("gadgets", "Gadget");
        let mut spent = Duration::ZERO;
        for _ in 0..count {
            spent += self.serve(request("POST", DEFINITIONS, JSON, &definition)).0;
            let path = format!("{DEFINITIONS}/gadgets.bench.example.com");
            self.serve(request("DELETE", &path, JSON, &json!({})));
        }
        spent
    }
}
