//! Subresources with a life of their own, and the virtual resources: each is answered, or refused by name.

use serde_json::{Value, json};

use super::body::{self, Decoded};
use super::decode;
use super::custom::definition::ScalePaths as CustomScalePaths;
use super::custom::scale as custom_scale;
use super::schema::SchemaRef;
use super::scheme::Row;
use super::update::Change;
use super::write::{Answer, SuccessStatus, WriteRequest, Written};
use super::{Registry, patch};
use crate::api::object::Object;
use crate::api::options::{DeleteOptions, PatchKind, Query, WriteKind, WriteOptions};
use crate::api::request_info::{RequestInfo, Verb};
use crate::api::resource::GroupResource;
use crate::api::status::Status;

/// A request for a subresource, as `endpoints` has read it.
pub(crate) struct SubresourceRequest<'a> {
    /// The resource.
    pub(crate) row: &'a Row,
    /// Verb, names and the subresource.
    pub(crate) info: &'a RequestInfo,
    /// The parameters.
    pub(crate) query: &'a Query,
    /// What a PATCH is; `None` for other verbs.
    pub(crate) patch: Option<PatchKind>,
    /// The body as sent.
    pub(crate) raw: &'a [u8],
    /// The body as JSON, of POST and PUT.
    pub(crate) value: Option<Value>,
    /// `User-Agent`
    pub(crate) user_agent: &'a str,
}

impl SubresourceRequest<'_> {
    fn unsupported(&self) -> Status {
        let resource = self.row.info.group_resource();
        let sub = &self.info.subresource;
        let why = format!(
            "the fake API server does not serve {} of {resource}/{sub}",
            self.info.verb
        );
        Status::new(501, "NotImplemented", why)
    }

    /// The Scale a write sends, or makes of the present one by a patch.
    fn written_scale(&self, before: Object) -> Result<Value, Status> {
        let document = Value::Object(before.0);
        Ok(match self.patch {
            None => self.value.clone().unwrap_or_default(),
            Some(PatchKind::Json) => patch::json_patch(document, self.raw)?.value,
            Some(PatchKind::Merge) => patch::merge_patch(document, self.raw)?.value,
            Some(PatchKind::Strategic) => patch::strategic_patch(document, self.raw, SchemaRef::Deduced)?.value,
            Some(PatchKind::Apply) => return Err(self.unsupported()),
        })
    }

    fn write_options(&self) -> Result<WriteOptions, Status> {
        WriteOptions::parse(
            self.query,
            match (self.info.verb, self.patch) {
                (Verb::Create, _) => WriteKind::Create,
                (_, Some(kind)) => WriteKind::Patch {
                    apply: kind == PatchKind::Apply,
                },
                _ => WriteKind::Update,
            },
        )
    }
}

impl Registry {
    /// Answers a request for a subresource other than `status`.
    pub(crate) async fn subresource(&self, request: &SubresourceRequest<'_>) -> Result<Written, Status> {
        let name = request.info.subresource.split('/').next().unwrap_or_default();
        match (name, request.info.verb) {
            ("scale", Verb::Get | Verb::Update | Verb::Patch) => self.scale(request).await,
            ("binding", Verb::Create) => self.bind(request).await,
            ("eviction", Verb::Create) => self.evict(request).await,
            ("finalize" | "approval" | "ephemeralcontainers" | "resize", Verb::Get) => self.whole(request).await,
            ("finalize" | "approval" | "ephemeralcontainers" | "resize", Verb::Update | Verb::Patch) => {
                self.write_whole(request).await
            }
            ("log" | "exec" | "attach" | "portforward" | "proxy", _) => self.connect(request).await,
            _ => Err(request.unsupported()),
        }
    }

    /// GET of a subresource that shows the whole object.
    async fn whole(&self, request: &SubresourceRequest<'_>) -> Result<Written, Status> {
        let version = request.query.get("resourceVersion").unwrap_or_default();
        let stored = self.get(request.row, request.info, version).await?;
        Ok(Written::updated(Answer::Stored(stored), Vec::new()))
    }

    /// A write to a subresource whose body is the whole object; the strategy keeps all but its part.
    async fn write_whole(&self, request: &SubresourceRequest<'_>) -> Result<Written, Status> {
        let options = request.write_options()?;
        let write = WriteRequest {
            row: request.row,
            info: request.info,
            options: &options,
            user_agent: request.user_agent,
        };
        match (request.patch, request.value.clone()) {
            (Some(PatchKind::Apply), _) => Err(request.unsupported()),
            (Some(kind), _) => self.patch(&write, kind, request.raw).await,
            (None, Some(value)) => {
                let decoded = read_value(request, value, &options)?;
                self.update(&write, decoded).await
            }
            (None, None) => Err(request.unsupported()),
        }
    }

    /// `/scale`: the number of replicas, as an object of its own (rule I2).
    async fn scale(&self, request: &SubresourceRequest<'_>) -> Result<Written, Status> {
        let row = request.row;
        if let Some(paths) = row.custom_version().and_then(|version| version.scale.as_ref()) {
            return self.custom_scale(request, paths).await;
        }
        let paths = ScalePaths::of(row);
        let version = request.query.get("resourceVersion").unwrap_or_default();
        if request.info.verb == Verb::Get {
            let stored = self.get(row, request.info, version).await?;
            let scale = paths.scale_of(&self.decode(row, &stored))?;
            return Ok(Written::updated(Answer::Object(scale), Vec::new()));
        }
        let options = request.write_options()?;
        let write = WriteRequest {
            row,
            info: request.info,
            options: &options,
            user_agent: request.user_agent,
        };
        let change = Scaled { request, paths: &paths };
        let written = self.change(&write, None, &change).await?;
        let object = match &written.answer {
            Answer::Stored(stored) => self.decode(row, stored),
            Answer::Object(object) => object.clone(),
            Answer::Status(_) => return Ok(written),
        };
        Ok(Written {
            answer: Answer::Object(paths.scale_of(&object)?),
            ..written
        })
    }

    /// The same for a custom resource, whose CRD says where the fields are.
    async fn custom_scale(
        &self,
        request: &SubresourceRequest<'_>,
        paths: &CustomScalePaths,
    ) -> Result<Written, Status> {
        let row = request.row;
        if request.info.verb == Verb::Get {
            let version = request.query.get("resourceVersion").unwrap_or_default();
            let stored = self.get(row, request.info, version).await?;
            let scale = custom_scale::get(&self.decode(row, &stored), paths)?;
            return Ok(Written::updated(Answer::Object(scale), Vec::new()));
        }
        let options = request.write_options()?;
        let write = WriteRequest { row, info: request.info, options: &options, user_agent: request.user_agent };
        let written = self.change(&write, None, &CustomScaled { request, paths }).await?;
        let object = match &written.answer {
            Answer::Stored(stored) => self.decode(row, stored),
            Answer::Object(object) => object.clone(),
            Answer::Status(_) => return Ok(written),
        };
        Ok(Written { answer: Answer::Object(custom_scale::after_update(&object, paths)?), ..written })
    }

    /// `pods/binding`: puts a Pod on a node, once (rule I4).
    async fn bind(&self, request: &SubresourceRequest<'_>) -> Result<Written, Status> {
        let options = request.write_options()?;
        let node = request
            .value
            .as_ref()
            .and_then(|it| it.pointer("/target/name"))
            .and_then(Value::as_str);
        let node = node.unwrap_or_default();
        let write = WriteRequest {
            row: request.row,
            info: request.info,
            options: &options,
            user_agent: request.user_agent,
        };
        let now = self.entropy.now_seconds();
        self.change(&write, None, &Bound { node, now: &now }).await?;
        Ok(created())
    }

    /// `pods/eviction`: a delete that disruption budgets may refuse (rule I3).
    async fn evict(&self, request: &SubresourceRequest<'_>) -> Result<Written, Status> {
        let value = request.value.clone().unwrap_or_default();
        let named = value
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if named != request.info.name {
            return Err(Status::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        let options = match value.get("deleteOptions") {
            Some(options) => DeleteOptions::from_body(options)?,
            None => DeleteOptions::default(),
        };
        let dry_run = request.query.all("dryRun").any(|it| it == "All");
        let options = DeleteOptions {
            dry_run: options.dry_run || dry_run,
            ..options
        };
        let stored = self.get(request.row, request.info, "").await?;
        let pod = self.decode(request.row, &stored);
        let guarded = !pod.is_terminating()
            && !matches!(
                pod.get("status").and_then(|it| it.get("phase")).and_then(Value::as_str),
                Some("Succeeded" | "Failed" | "Pending")
            );
        if guarded {
            self.check_budgets(&pod)?;
        }
        self.delete(request.row, request.info, &options).await?;
        Ok(created())
    }

    /// Whether the disruption budgets of a pod let it go.
    fn check_budgets(&self, pod: &Object) -> Result<(), Status> {
        let matching: Vec<Object> = self
            .stored_objects("policy", "poddisruptionbudgets")
            .into_iter()
            .filter(|budget| budget.namespace() == pod.namespace() && selects(budget, pod))
            .collect();
        let [budget] = matching.as_slice() else {
            if matching.is_empty() {
                return Ok(());
            }
            let why =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Status::new(500, "", why));
        };
        let number = |path: &str| {
            budget
                .get("status")
                .and_then(|it| it.get(path))
                .and_then(Value::as_i64)
                .unwrap_or(0)
        };
        let generation = budget
            .metadata()
            .and_then(|it| it.get("generation"))
            .and_then(Value::as_i64)
            .unwrap_or(0);
        let name = budget.name();
        let refused = |text: String, retry: u32| {
            let why = "Cannot evict pod as it would violate the pod's disruption budget.";
            let status = Status::new(429, "TooManyRequests", why).with_cause("DisruptionBudget", text, "");
            if retry > 0 {
                status.with_retry_after(retry)
            } else {
                status
            }
        };
        if number("observedGeneration") < generation {
            let text = format!("The disruption budget {name} is still being processed by the server.");
            return Err(refused(text, 10));
        }
        if number("disruptionsAllowed") > 0 {
            return Ok(());
        }
        let (needs, has) = (number("desiredHealthy"), number("currentHealthy"));
        Err(refused(
            format!("The disruption budget {name} needs {needs} healthy pods and has {has} currently"),
            0,
        ))
    }

    /// What needs a kubelet: refused as the real server refuses it where it can be, else by name (rules I6, I7).
    async fn connect(&self, request: &SubresourceRequest<'_>) -> Result<Written, Status> {
        let stored = self.get(request.row, request.info, "").await?;
        let pod = self.decode(request.row, &stored);
        let node = pod
            .get("spec")
            .and_then(|it| it.get("nodeName"))
            .and_then(Value::as_str)
            .unwrap_or_default();
        let name = request.info.subresource.split('/').next().unwrap_or_default();
        if name == "log" && node.is_empty() {
            let status = SuccessStatus {
                details: None,
                code: 204,
            };
            return Ok(Written::updated(Answer::Status(Box::new(status)), Vec::new()));
        }
        if request.row.info.resource == "pods" && node.is_empty() {
            return Err(Status::bad_request(format!(
                "pod {} does not have a host assigned",
                request.info.name
            )));
        }
        Err(request.unsupported())
    }

    /// POST of a virtual resource (rule Q3). Everybody may do everything: authorisation is off.
    pub(crate) fn review(&self, row: &Row, decoded: Decoded) -> Result<Written, Status> {
        let Decoded { mut object, warnings } = decoded;
        let user = json!({"username": "system:admin", "groups": ["system:masters", "system:authenticated"]});
        let status = match &*row.info.resource {
            "selfsubjectaccessreviews" | "subjectaccessreviews" | "localsubjectaccessreviews" => {
                json!({"allowed": true})
            }
            "selfsubjectrulesreviews" => json!({
                "incomplete": false,
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            }),
            "selfsubjectreviews" => json!({"userInfo": user}),
            "tokenreviews" => json!({"authenticated": true, "user": user}),
            _ => {
                let why = format!("the fake API server does not serve {}", row.info.group_resource());
                return Err(Status::new(501, "NotImplemented", why));
            }
        };
        object.insert("status".into(), status);
        object.metadata_mut();
        Ok(Written {
            answer: Answer::Object(object),
            created: true,
            warnings,
        })
    }
}

/// The body of a write to the whole object.
fn read_value(request: &SubresourceRequest<'_>, value: Value, options: &WriteOptions) -> Result<Decoded, Status> {
    let object = match value {
        Value::Object(map) => Object(map),
        _ => decode::parse(request.raw, &request.row.info.kind)?,
    };
    body::read(request.row, object, request.raw, options.field_validation)
}

/// `{"kind":"Status",…,"status":"Success","code":201}`
fn created() -> Written {
    let status = SuccessStatus {
        details: None,
        code: 201,
    };
    Written {
        answer: Answer::Status(Box::new(status)),
        created: true,
        warnings: Vec::new(),
    }
}

/// Whether the label selector of a budget selects a pod; an empty one selects all of its namespace.
fn selects(budget: &Object, pod: &Object) -> bool {
    let Some(selector) = budget.get("spec").and_then(|it| it.get("selector")) else {
        return false;
    };
    let labels: Vec<(&str, &str)> = pod.labels().collect();
    match crate::api::selector::LabelSelector::from_object(selector) {
        Ok(Some(selector)) => selector.matches(|key| labels.iter().find(|(it, _)| *it == key).map(|(_, value)| *value)),
        Ok(None) | Err(_) => false,
    }
}

/// A Pod that gets its node.
struct Bound<'a> {
    node: &'a str,
    now: &'a str,
}

impl Change for Bound<'_> {
    fn next(&self, old: &Object) -> Result<Decoded, Status> {
        let mut pod = old.clone();
        let current = old
            .get("spec")
            .and_then(|it| it.get("nodeName"))
            .and_then(Value::as_str)
            .unwrap_or_default();
        let conflict = |why: String| {
            let resource = GroupResource {
                group: "".into(),
                resource: "pods/binding".into(),
            };
            Err(Status::conflict(&resource, old.name(), why))
        };
        if old.is_terminating() {
            return conflict(format!(
                "pod {} is being deleted, cannot be assigned to a host",
                old.name()
            ));
        }
        if !current.is_empty() {
            return conflict(format!("pod {} is already assigned to node \"{current}\"", old.name()));
        }
        if let Some(spec) = pod.entry("spec").or_insert_with(|| json!({})).as_object_mut() {
            spec.insert("nodeName".into(), self.node.into());
        }
        if let Some(status) = pod.entry("status").or_insert_with(|| json!({})).as_object_mut() {
            let conditions = status.entry("conditions").or_insert_with(|| json!([]));
            if let Some(conditions) = conditions.as_array_mut() {
                conditions.retain(|it| it.get("type").and_then(Value::as_str) != Some("PodScheduled"));
                conditions.push(json!({
                    "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": self.now,
                }));
            }
        }
        Ok(Decoded {
            object: pod,
            warnings: Vec::new(),
        })
    }

    fn is_tracked(&self) -> bool {
        true
    }
}

/// Where an object keeps what its Scale shows; the paths are without the leading dot.
#[derive(Debug)]
struct ScalePaths {
    spec_replicas: String,
    status_replicas: String,
    selector: Option<String>,
    is_custom: bool,
}

impl ScalePaths {
    fn of(row: &Row) -> Self {
        let text = |path: &str| path.trim_start_matches('.').to_owned();
        Self {
            spec_replicas: text("spec.replicas"),
            status_replicas: text("status.replicas"),
            selector: Some(text("spec.selector")),
            is_custom: row.is_custom(),
        }
    }

    /// The Scale of an object.
    fn scale_of(&self, object: &Object) -> Result<Object, Status> {
        let replicas = at(object, &self.spec_replicas).and_then(Value::as_i64);
        if self.is_custom && replicas.is_none() {
            let why = format!("the spec replicas field \".{}\" does not exist", self.spec_replicas);
            return Err(Status::internal(why));
        }
        let mut metadata = json!({});
        for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(value) = object.metadata().and_then(|meta| meta.get(field)) {
                metadata[field] = value.clone();
            }
        }
        let mut spec = json!({});
        if let Some(replicas) = replicas.filter(|it| *it != 0) {
            spec["replicas"] = replicas.into();
        }
        let mut status = json!({"replicas": at(object, &self.status_replicas).and_then(Value::as_i64).unwrap_or(0)});
        let selector = self
            .selector
            .as_deref()
            .and_then(|path| at(object, path))
            .map(selector_text);
        if let Some(selector) = selector.filter(|it| !it.is_empty()) {
            status["selector"] = selector.into();
        }
        let scale = json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status,
        });
        match scale {
            Value::Object(map) => Ok(Object(map)),
            _ => Err(Status::internal("a Scale is an object")),
        }
    }
}

/// A selector as one text: a CRD's is one already, a built-in's is a map or a LabelSelector.
fn selector_text(selector: &Value) -> String {
    if let Some(text) = selector.as_str() {
        return text.to_owned();
    }
    let labels = selector
        .get("matchLabels")
        .or(Some(selector))
        .and_then(Value::as_object);
    let mut terms: Vec<String> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
        .collect();
    for expression in selector
        .get("matchExpressions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let text = |name: &str| expression.get(name).and_then(Value::as_str).unwrap_or_default();
        let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
        let mut values: Vec<&str> = values.filter_map(Value::as_str).collect();
        values.sort_unstable();
        let (key, values) = (text("key"), values.join(","));
        terms.push(match text("operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    terms.sort_unstable();
    terms.join(",")
}

fn at<'a>(object: &'a Object, path: &str) -> Option<&'a Value> {
    let mut steps = path.split('.');
    let first = object.get(steps.next()?)?;
    steps.try_fold(first, |value, step| value.get(step))
}

fn set(object: &mut Object, path: &str, value: Value) {
    let mut steps: Vec<&str> = path.split('.').collect();
    let Some(last) = steps.pop() else { return };
    let mut map = &mut object.0;
    for step in steps {
        let next = map.entry(step).or_insert_with(|| json!({}));
        if !next.is_object() {
            *next = json!({});
        }
        let Some(inner) = next.as_object_mut() else { return };
        map = inner;
    }
    map.insert(last.to_owned(), value);
}

/// A custom resource whose Scale is written.
struct CustomScaled<'a> {
    request: &'a SubresourceRequest<'a>,
    paths: &'a CustomScalePaths,
}

impl Change for CustomScaled<'_> {
    fn next(&self, old: &Object) -> Result<Decoded, Status> {
        let before = custom_scale::before_update(old, self.paths)?;
        let Value::Object(scale) = self.request.written_scale(before)? else {
            return Err(Status::bad_request("a Scale must be an object"));
        };
        let mut object = old.clone();
        custom_scale::update(&mut object, &Object(scale), self.paths)?;
        Ok(Decoded { object, warnings: Vec::new() })
    }
}

/// An object whose Scale is written.
struct Scaled<'a> {
    request: &'a SubresourceRequest<'a>,
    paths: &'a ScalePaths,
}

impl Change for Scaled<'_> {
    fn next(&self, old: &Object) -> Result<Decoded, Status> {
        let scale = self.request.written_scale(self.paths.scale_of(old)?)?;
        let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
        if replicas < 0 {
            let mut errors = crate::api::field::FieldErrors::new();
            let path = crate::api::field::FieldPath::new("spec").child("replicas");
            errors.invalid(path, replicas, "must be greater than or equal to 0");
            let kind = crate::api::resource::GroupKind {
                group: "autoscaling".into(),
                kind: "Scale".into(),
            };
            return Err(Status::invalid(&kind, old.name(), &errors));
        }
        let mut object = old.clone();
        set(&mut object, &self.paths.spec_replicas, replicas.into());
        let meta = object.metadata_mut();
        match scale.pointer("/metadata/resourceVersion").and_then(Value::as_str) {
            Some(version) if !version.is_empty() => meta.insert("resourceVersion".into(), version.into()),
            // A Scale without a version overwrites, whatever the kind.
            _ => old
                .metadata()
                .and_then(|it| it.get("resourceVersion"))
                .and_then(|it| meta.insert("resourceVersion".into(), it.clone())),
        };
        Ok(Decoded {
            object,
            warnings: Vec::new(),
        })
    }
}
