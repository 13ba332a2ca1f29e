//! Replays recorded requests, and compares every entry, conflict and refusal with kube-apiserver's
//! (`tests/data/ownership.json`).
//!
//! Defaulting is not part of this module, so a recorded object replaces the decoded one if its kind has defaults.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rstest::rstest;

use super::{Manager, Types, apply, restore_times, single_version, track_update};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::custom::definition::CustomResource;
use crate::registry::patch::{json_patch, merge_patch, strategic_patch};
use crate::registry::types::no_version::NoVersion;
use crate::registry::types::schema::SchemaRef;
use crate::registry::types::schema::builtin::shape_of;

const RECORDED: &str = include_str!("../../../tests/data/ownership.json");

/// State of the server while a recording is replayed.
#[derive(Default)]
struct Replay {
    /// Name of the recording, for failures.
    recording: String,
    custom: Option<CustomResource>,
    stored: BTreeMap<String, Object>,
    second: usize,
}

/// The parts of a recorded request.
struct Request<'a> {
    resource: &'a str,
    name: &'a str,
    subresource: &'a str,
    api_version: String,
    field_manager: &'a str,
    force: bool,
}

impl<'a> Request<'a> {
    fn parse(path: &'a str) -> Self {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let (api_version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ((*version).to_owned(), rest),
            ["apis", group, version, rest @ ..] => (format!("{group}/{version}"), rest),
            _ => (String::new(), &[][..]),
        };
        let rest = match rest {
            ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
            rest => rest,
        };
        let parameter = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        Self {
            resource: rest.first().copied().unwrap_or_default(),
            name: rest.get(1).copied().unwrap_or_default(),
            subresource: rest.get(2).copied().unwrap_or_default(),
            api_version,
            field_manager: parameter("fieldManager").unwrap_or("conform"),
            force: matches!(parameter("force"), Some("true" | "1")),
        }
    }

    fn kind(&self) -> &'static str {
        match self.resource {
            "configmaps" => "ConfigMap",
            "services" => "Service",
            "secrets" => "Secret",
            "pods" => "Pod",
            "deployments" => "Deployment",
            "leases" => "Lease",
            "horizontalpodautoscalers" => "HorizontalPodAutoscaler",
            "widgets" => "Widget",
            other => panic!("unknown resource {other}"),
        }
    }
}

fn object(value: &Value) -> Object {
    Object(value.as_object().cloned().unwrap_or_default())
}

/// Returns the entries in sorted order, with placeholders for their times, as in the recording.
fn entries(value: &Value) -> Vec<String> {
    let list = value["metadata"]["managedFields"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let shown = list.into_iter().map(|mut entry| {
        if entry.get("time").is_some() {
            entry["time"] = json!("<time>");
        }
        entry.to_string()
    });
    let mut shown: Vec<String> = shown.collect();
    shown.sort();
    shown
}

impl Replay {
    fn schema(&self, kind: &str, api_version: &str) -> Option<SchemaRef<'_>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        match &self.custom {
            Some(custom) if kind == "Widget" => custom
                .version(version)
                .map(|version| SchemaRef::Custom(&*version.schema)),
            _ => shape_of(group, version, kind).map(SchemaRef::Builtin),
        }
    }

    fn reset(&self, request: &Request<'_>) -> &'static [&'static [&'static str]] {
        let custom_status = || self.custom.as_ref().is_some_and(|it| it.storage.has_status);
        match (request.kind(), request.subresource) {
            ("Widget", "status") => &[&["metadata"], &["spec"]],
            ("Deployment", "status") => &[&["metadata", "labels"], &["spec"]],
            ("Widget", _) if !custom_status() => &[],
            ("ConfigMap" | "Secret" | "Lease", _) => &[],
            _ => &[&["status"]],
        }
    }

    fn step(&mut self, step: &Value) {
        if let Some(seconds) = step["sleep"].as_u64() {
            self.second += usize::try_from(seconds).unwrap_or_default();
            return;
        }
        let path = step["path"].as_str().unwrap_or_default();
        if path.contains("customresourcedefinitions") {
            let mut crd = object(&step["body"]);
            let established = json!({"conditions": [{"type": "Established", "status": "True"}]});
            crd.insert("status".into(), established);
            self.custom = CustomResource::parse(&crd);
            return;
        }
        let request = Request::parse(path);
        if step["do"] == "GET" || request.subresource == "scale" {
            return;
        }
        let answer = &step["answer"];
        match self.write(step, &request) {
            Ok(done) => {
                if !answer.is_null() {
                    assert!(
                        step["status"].as_u64() < Some(300),
                        "refused by the recorded server: {answer}"
                    );
                    assert_eq!(
                        entries(&Value::Object(done.0.clone())),
                        entries(answer),
                        "{}: {path}",
                        self.recording
                    );
                    self.compare(&request, &done, answer);
                }
                self.keep(&request, done, answer);
            }
            Err(status) => {
                let mut found = Value::from(status.to_value());
                if step["masked"] == true {
                    found["message"] = json!("<masked>");
                }
                assert_eq!(found, *answer, "{}: {path}", self.recording);
            }
        }
    }

    /// Compares the data of ConfigMaps and the spec of Widgets, which do not have defaults, with the recorded object.
    fn compare(&self, request: &Request<'_>, done: &Object, answer: &Value) {
        if request.kind() == "ConfigMap" {
            let data = |it: &Value| {
                let data = &it["data"];
                let text = data.to_string().replace("null", "\"\"");
                if text == "\"\"" { "{}".to_owned() } else { text }
            };
            let done = Value::Object(done.0.clone());
            assert_eq!(data(&done).replace("\"\"", "{}"), data(answer).replace("\"\"", "{}"));
            assert_eq!(done["metadata"]["finalizers"], answer["metadata"]["finalizers"]);
        } else if request.kind() == "Widget" && request.subresource.is_empty() {
            let (spec, recorded) = (&done.0["spec"], &answer["spec"]);
            for (key, value) in recorded.as_object().into_iter().flatten() {
                assert!(
                    key == "size" || spec.get(key) == Some(value),
                    "{spec} is not {recorded}"
                );
            }
            for (key, value) in spec.as_object().into_iter().flatten() {
                assert!(
                    value.is_null() || recorded.get(key) == Some(value),
                    "{spec} is not {recorded}"
                );
            }
        }
    }

    /// Stores the recorded object, but with the computed entries of managedFields.
    fn keep(&mut self, request: &Request<'_>, done: Object, answer: &Value) {
        let mut stored = if answer.is_null() { done.clone() } else { object(answer) };
        let name = if request.name.is_empty() {
            stored.name().to_owned()
        } else {
            request.name.to_owned()
        };
        let list = done.metadata().and_then(|it| it.get("managedFields")).cloned();
        let metadata = stored.metadata_mut();
        metadata.remove("managedFields");
        if let Some(list) = list {
            metadata.insert("managedFields".into(), list);
        }
        metadata.insert("uid".into(), json!("u"));
        self.stored.insert(format!("{}/{name}", request.resource), stored);
    }

    #[expect(clippy::too_many_lines, reason = "it is the path of a write, step by step")]
    fn write(&self, step: &Value, request: &Request<'_>) -> Result<Object, Status> {
        let mut live = self
            .stored
            .get(&format!("{}/{}", request.resource, request.name))
            .cloned();
        if let Some(live) = &mut live {
            // The stored object is read in the version of the request.
            live.insert("apiVersion".into(), json!(request.api_version));
        }
        let time = format!("2026-01-01T00:00:{:02}Z", self.second);
        let manager = Manager {
            name: request.field_manager,
            api_version: &request.api_version,
            subresource: request.subresource,
            time: &time,
            reset: self.reset(request),
        };
        let kind = request.kind();
        let other = |object: &'_ Object, version: &str| {
            let mut converted = object.clone();
            converted.insert("apiVersion".into(), json!(version));
            Some((self.schema(kind, version)?, converted))
        };
        fn lend<'s, F>(
            convert: F,
        ) -> impl for<'o> Fn(&'o Object, &str) -> Result<(SchemaRef<'s>, Cow<'o, Object>), NoVersion>
        where
            F: Fn(&Object, &str) -> Option<(SchemaRef<'s>, Object)>,
        {
            move |object, version| {
                let (schema, it) = convert(object, version).ok_or(NoVersion::Obsolete)?;
                Ok((schema, Cow::Owned(it)))
            }
        }
        let other = lend(other);
        let types = Types {
            schema: self.schema(kind, &request.api_version).expect("the version is served"),
            other: &other,
        };
        let live = live.as_ref();
        let body = step["body"].to_string();
        let mut done = match (step["do"].as_str(), step["type"].as_str()) {
            (Some("PATCH"), Some("apply-patch")) => {
                let applied = object(&step["body"]);
                if live.is_none() && applied.name() != request.name {
                    return Err(self.wrong_name(&applied, request));
                }
                let done = apply(&types, live, &applied, &manager, kind, request.force)?;
                if done.name() != request.name {
                    return Err(self.wrong_name(&done, request));
                }
                if !matches!(done.namespace(), "" | "$ns" | "ns") {
                    let text = "the namespace of the provided object does not match the namespace sent on the request";
                    return Err(Status::bad_request(text));
                }
                done
            }
            (Some("PATCH"), kind_of_patch) => {
                let document = Value::Object(live.map(|it| it.0.clone()).unwrap_or_default());
                let patched = match kind_of_patch {
                    Some("json-patch") => json_patch(document, body.as_bytes())?,
                    Some("strategic-merge-patch") => strategic_patch(document, body.as_bytes(), types.schema)?,
                    _ => merge_patch(document, body.as_bytes())?,
                };
                let mut new = self.decoded(request, object(&patched.value), &step["answer"]);
                track_update(&types, live, &mut new, &manager);
                new
            }
            _ => {
                let mut new = self.decoded(request, object(&step["body"]), &step["answer"]);
                track_update(&types, live, &mut new, &manager);
                new
            }
        };
        if let Some(live) = live {
            restore_times(live, &mut done);
        }
        Ok(done)
    }

    fn wrong_name(&self, object: &Object, request: &Request<'_>) -> Status {
        let (name, wanted) = (object.name(), request.name);
        Status::bad_request(if name.is_empty() {
            format!("the name of the object ({wanted} based on URL) was undeterminable: name must be provided")
        } else {
            format!("the name of the object ({name}) does not match the name on the URL ({wanted})")
        })
    }

    /// Returns the recorded object, which is decoded and defaulted, with the managedFields of `sent`.
    fn decoded(&self, request: &Request<'_>, sent: Object, answer: &Value) -> Object {
        if answer.is_null() {
            return sent;
        }
        let mut decoded = object(answer);
        let list = sent.metadata().and_then(|it| it.get("managedFields")).cloned();
        let metadata = decoded.metadata_mut();
        metadata.remove("managedFields");
        if let Some(list) = list {
            metadata.insert("managedFields".into(), list);
        }
        if request.subresource == "status" {
            // The client sent the spec, although the strategy restores it later.
            decoded.insert("spec".into(), sent.get("spec").cloned().unwrap_or_default());
        }
        if let Some(Value::Object(spec)) = decoded.get_mut("spec") {
            let allocated = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"];
            spec.retain(|key, _| !allocated.contains(&key.as_str()));
        }
        decoded
    }
}

#[test]
fn h_field_ownership_equals_recordings_from_kube_apiserver() {
    let text = RECORDED
        .replace("${ns}", "$ns")
        .replace("${u}", "$u")
        .replace("${uid}", "uid1");
    let recorded: Vec<Map> = serde_json::from_str(&text).expect("the recordings are valid JSON");
    assert!(recorded.len() > 50);
    for recording in recorded {
        let name = recording["name"].as_str().unwrap_or_default();
        let mut replay = Replay {
            recording: name.to_owned(),
            ..Replay::default()
        };
        for step in recording["steps"].as_array().into_iter().flatten() {
            replay.step(step);
        }
    }
}

#[rstest]
#[case::item_without_its_name(json!({"template": {"spec": {"containers": [{"image": "i"}]}}}), Ok("{\"name\":\"\"}"))]
#[case::ports(json!({"template": {"spec": {"containers": [{"name": "c", "ports": [{"name": "p"}]}]}}}),
    Ok("{\"containerPort\":0,\"protocol\":\"TCP\"}"))]
#[case::secret(json!({"template": {"spec": {"imagePullSecrets": [{}]}}}), Ok("{\"name\":\"\"}"))]
#[case::not_a_list(json!({"template": {"spec": {"containers": {"name": "c"}}}}),
    Err(".spec.template.spec.containers: expected list, got &{map[name:c]}"))]
#[case::null_item(json!({"template": {"spec": {"containers": [null]}}}),
    Err(".spec.template.spec.containers: element 0: associative list with keys may not have a null element"))]
#[case::two_errors(json!({"paused": "x", "replicas": []}),
    Err("errors:\n  .spec.paused: expected boolean, got &{x}\n  \
         .spec.replicas: expected numeric (int or float), got []interface {}"))]
fn h12_applied_values_must_have_the_type_of_the_field(#[case] spec: Value, #[case] outcome: Result<&str, &str>) {
    let types = Types {
        schema: SchemaRef::Builtin(shape_of("apps", "v1", "Deployment").expect("the kind is built in")),
        other: &single_version,
    };
    let manager = Manager {
        name: "one",
        api_version: "apps/v1",
        subresource: "",
        time: "2026-01-01T00:00:00Z",
        reset: &[],
    };
    let body = object(&json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}));
    match (apply(&types, None, &body, &manager, "Deployment", false), outcome) {
        (Ok(done), Ok(key)) => {
            let fields = done.0["metadata"]["managedFields"][0]["fieldsV1"].to_string();
            let key = Value::from(format!("k:{key}")).to_string();
            assert!(fields.contains(&key), "no {key} in {fields}");
        }
        (Err(status), Err(text)) => {
            let text = format!("failed to create typed patch object (/d; apps/v1, Kind=Deployment): {text}");
            assert_eq!((status.code, &*status.reason, status.message), (500, "", text));
        }
        (found, wanted) => panic!("{found:?} is not {wanted:?}"),
    }
}

#[test]
fn h14_kubectl_takes_over_client_side_applied_fields() {
    let types = Types {
        schema: SchemaRef::Builtin(shape_of("", "v1", "ConfigMap").expect("the kind is built in")),
        other: &single_version,
    };
    let manager = |name| Manager {
        name,
        api_version: "v1",
        subresource: "",
        time: "2026-01-01T00:00:00Z",
        reset: &[],
    };
    const LAST: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "<v>"}});
    let mut live = config.clone();
    live["metadata"]["annotations"] = json!({LAST: config.to_string()});
    live["data"]["other"] = json!("x");
    let mut live = object(&live);
    track_update(&types, None, &mut live, &manager("kubectl-client-side-apply"));

    let mut body = config;
    body["data"]["k"] = json!("<w>");
    let done = apply(
        &types,
        Some(&live),
        &object(&body),
        &manager("kubectl"),
        "ConfigMap",
        false,
    )
    .expect("the apply succeeds");
    let annotation = "{\"apiVersion\":\"v1\",\"data\":{\"k\":\"\\u003cw\\u003e\"},\"kind\":\"ConfigMap\",\
                      \"metadata\":{\"name\":\"a\"}}\n";
    assert_eq!(done.0["metadata"]["annotations"][LAST], annotation);

    body["data"]["other"] = json!("y");
    let refused = apply(
        &types,
        Some(&live),
        &object(&body),
        &manager("kubectl"),
        "ConfigMap",
        false,
    );
    let text = "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using v1: .data.other";
    assert_eq!(refused.expect_err("the object was not applied before").message, text);
}
