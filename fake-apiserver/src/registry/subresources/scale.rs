//! `/scale`: the number of replicas, as a separate autoscaling/v1 Scale (rules H15, I2).

use super::{SubresourceRequest, value_at};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::{Map, SmolStr, Value, json};
use crate::api::object::Object;
use crate::api::options::{PatchKind, WriteOptions};
use crate::api::request_info::Verb;
use crate::api::resource::GroupKind;
use crate::api::status::Status;
use crate::registry::answer::{Answer, Written};
use crate::registry::custom::decode;
use crate::registry::custom::definition::{CustomResource, CustomVersion, ScalePaths};
use crate::registry::custom::scale as custom;
use crate::registry::kinds::metadata;
use crate::registry::managed_fields::{self, Manager, ScaleFields, Types};
use crate::registry::scheme::body::{self, Decoded};
use crate::registry::types::decode::Wanted;
use crate::registry::types::schema::SchemaRef;
use crate::registry::types::schema::builtin::{Shape, shape_of};
use crate::registry::update::Change;
use crate::registry::{Registry, patch};

const SCALE: Wanted<'static> = Wanted {
    group: "autoscaling",
    version: "v1",
    kind: "Scale",
    shape: None,
};

impl Registry {
    pub(super) async fn scale(&self, request: &SubresourceRequest<'_>) -> Result<Written, Status> {
        let row = request.row;
        let source = Source::of(request);
        if request.info.verb == Verb::Get {
            let version = request.query.get("resourceVersion").unwrap_or_default();
            let stored = self.reader.get(row, request.info, version).await?;
            let scale = source.shown(&self.reader.decode(row, &stored))?;
            return Ok(Written::updated(Answer::Object(scale)));
        }
        let options = request.write_options()?;
        let write = request.write(&options);
        let shape = shape_of(SCALE.group, SCALE.version, SCALE.kind).ok_or_else(|| request.unsupported())?;
        let change = Scaled {
            request,
            options: &options,
            source,
            shape,
            manager: write.manager_name(),
            now: self.reader.entropy.now_seconds(),
        };
        let uid = change.sent_uid()?;
        let written = self.change(&write, uid.as_deref(), &change).await?;
        let object = match &written.answer {
            Answer::Stored(stored) => self.reader.decode(row, stored),
            Answer::Object(object) => object.clone(),
            Answer::Status(_) | Answer::Text(_) | Answer::Connection(_) | Answer::Nothing => return Ok(written),
        };
        Ok(Written {
            answer: Answer::Object(source.answered(&object)?),
            ..written
        })
    }
}

/// Fields of an object that contain the values of its Scale.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// The fields common to all built-in kinds.
    Builtin,
    /// The paths that a version of a CRD defines.
    Custom(&'a CustomResource, &'a CustomVersion, &'a ScalePaths),
}

impl<'a> Source<'a> {
    fn of(request: &SubresourceRequest<'a>) -> Self {
        let custom = || {
            let version = request.row.custom_version()?;
            Some(Source::Custom(
                request.row.custom_resource()?,
                version,
                version.scale.as_ref()?,
            ))
        };
        custom().unwrap_or(Source::Builtin)
    }

    /// Returns the Scale for a GET.
    fn shown(self, object: &Object) -> Result<Object, Status> {
        match self {
            Source::Builtin => Ok(builtin(object)),
            Source::Custom(_, _, paths) => custom::get(object, paths),
        }
    }

    /// Returns the Scale that a write changes.
    fn live(self, object: &Object) -> Result<Object, Status> {
        match self {
            Source::Builtin => Ok(builtin(object)),
            Source::Custom(_, _, paths) => custom::before_update(object, paths),
        }
    }

    /// Returns the Scale for the response to a write.
    fn answered(self, object: &Object) -> Result<Object, Status> {
        match self {
            Source::Builtin => Ok(builtin(object)),
            Source::Custom(_, _, paths) => custom::after_update(object, paths),
        }
    }

    /// Writes the values of a Scale into its object.
    fn write(self, object: &mut Object, scale: &Object) -> Result<(), Status> {
        match self {
            Source::Builtin => {
                write_builtin(object, scale);
                Ok(())
            }
            Source::Custom(_, version, paths) => {
                custom::update(object, scale, paths)?;
                // Replicas are not stored if the schema lacks their field.
                decode::convert(object, version);
                Ok(())
            }
        }
    }

    /// Returns the path of the replicas in each version of the object.
    fn replica_paths(self, api_version: &str) -> Vec<(String, Vec<&'a str>)> {
        match self {
            Source::Builtin => vec![(api_version.to_owned(), vec!["spec", "replicas"])],
            Source::Custom(resource, _, _) => {
                let path = |paths: &'a ScalePaths| paths.spec_replicas.trim_start_matches('.').split('.').collect();
                let versions = resource.served.iter().chain([&resource.storage]);
                versions
                    .map(|it| (it.row.api_version(), it.scale.as_ref().map(path).unwrap_or_default()))
                    .collect()
            }
        }
    }
}

/// A change of an object through its Scale.
struct Scaled<'a> {
    request: &'a SubresourceRequest<'a>,
    options: &'a WriteOptions,
    source: Source<'a>,
    shape: &'static Shape,
    manager: String,
    now: String,
}

impl Change for Scaled<'_> {
    fn next(&self, old: &Object) -> Result<Decoded, Status> {
        let row = self.request.row;
        let paths = self.source.replica_paths(&row.api_version);
        let paths: Vec<(&str, &[&str])> = paths.iter().map(|(version, path)| (&**version, &**path)).collect();
        let fields = ScaleFields {
            api_version: &row.api_version,
            paths: &paths,
        };
        let owners = managed_fields::distinct(owners(old));
        let mut live = self.source.live(old)?;
        set_owners(&mut live, fields.to_scale(&owners));

        let Decoded {
            object: scale,
            warnings,
            ..
        } = self.written(&live)?;
        self.check(old, &scale, false)?;
        let mut object = old.clone();
        self.source.write(&mut object, &scale)?;
        set_owners(&mut object, fields.to_parent(owners, &self::owners(&scale)));
        Ok(Decoded {
            warnings,
            ..Decoded::made(object)
        })
    }

    fn is_tracked(&self) -> bool {
        true
    }

    fn shown(&self, object: &Object) -> Result<Option<Object>, Status> {
        self.source.live(object).map(Some)
    }

    fn take(&self, object: &mut Object, shown: &Object) -> Result<(), Status> {
        self.check(object, shown, true)?;
        if *shown == self.source.live(object)? {
            return Ok(());
        }
        self.source.write(object, shown)
    }
}

impl Scaled<'_> {
    /// Returns the result of applying the request to the current Scale, with its managed fields.
    fn written(&self, live: &Object) -> Result<Decoded, Status> {
        let types = Types {
            schema: SchemaRef::Builtin(self.shape),
            other: &managed_fields::single_version,
        };
        let manager = Manager {
            name: &self.manager,
            api_version: "autoscaling/v1",
            subresource: "scale",
            time: &self.now,
            reset: &[],
        };
        let mut decoded = match self.request.patch {
            Some(PatchKind::Apply) => return self.applied(live, &types, &manager),
            Some(kind) => self.patched(live, kind)?,
            None => self.sent()?,
        };
        self.check_place(&mut decoded.object)?;
        managed_fields::track_update(&types, Some(live), &mut decoded.object, &manager);
        Ok(decoded)
    }

    /// Returns the uid in the body of a PUT, which is a precondition of the write. For a PATCH, the uid is checked
    /// later.
    fn sent_uid(&self) -> Result<Option<String>, Status> {
        if self.request.patch.is_some() {
            return Ok(None);
        }
        let mut scale = self.sent()?.object;
        self.check_place(&mut scale)?;
        Ok(Some(scale.uid().to_owned()).filter(|it| !it.is_empty()))
    }

    /// Checks that a Scale has the name and namespace in the URL.
    fn check_place(&self, scale: &mut Object) -> Result<(), Status> {
        metadata::fill_namespace(scale, &self.request.info.namespace)?;
        metadata::check_name(scale, &self.request.info.name)
    }

    /// Checks the Scale of a built-in object, including its metadata (`ValidateScale`), and compares the uids. Before
    /// admission, which may correct the replicas, only refuses Scales with wrong metadata.
    fn check(&self, object: &Object, scale: &Object, is_admitted: bool) -> Result<(), Status> {
        if let Source::Custom(..) = self.source {
            return Ok(());
        }
        let mut errors = FieldErrors::new();
        metadata::validate_core(scale, &mut errors);
        let replicas = value_at(scale, &["spec", "replicas"])
            .and_then(Value::as_i64)
            .unwrap_or(0);
        if replicas < 0 && (is_admitted || !errors.is_empty()) {
            let path = FieldPath::new("spec").child("replicas");
            errors.invalid(path, replicas, "must be greater than or equal to 0");
        }
        if !errors.is_empty() {
            let kind = GroupKind {
                group: SCALE.group.into(),
                kind: SCALE.kind.into(),
            };
            return Err(Status::invalid(&kind, object.name(), &errors));
        }
        let (wanted, found) = (scale.uid(), object.uid());
        if wanted.is_empty() || wanted == found {
            return Ok(());
        }
        let mut resource = self.request.row.info.group_resource();
        resource.resource = format!("{}/scale", resource.resource).into();
        let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}");
        Err(Status::conflict(&resource, object.name(), why))
    }

    /// Returns the Scale in the body of a PUT. For custom resources, every decoding error is replaced by the error of
    /// kube-apiserver.
    fn sent(&self) -> Result<Decoded, Status> {
        let sent = self.request.read(self.request.object.clone(), SCALE, self.options);
        sent.map_err(|error| match self.source {
            Source::Builtin => error,
            Source::Custom(..) => Status::bad_request(
                "no kind is registered for the type v1.Scale in scheme \
                 \"k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go:781\"",
            ),
        })
    }

    fn patched(&self, live: &Object, kind: PatchKind) -> Result<Decoded, Status> {
        let raw = self.request.text.raw;
        let make = || {
            let document = Value::Object(live.0.clone());
            match kind {
                PatchKind::Json => patch::json_patch(document, raw),
                PatchKind::Merge => patch::merge_patch(document, raw),
                PatchKind::Strategic | PatchKind::Apply => {
                    patch::strategic_patch(document, raw, SchemaRef::Builtin(self.shape))
                }
            }
        };
        body::read_patched_as(self.shape, &make, raw, self.options.field_validation)
    }

    fn applied(&self, live: &Object, types: &Types<'_, '_>, manager: &Manager<'_>) -> Result<Decoded, Status> {
        let configuration = &self.request.object;
        let is_scale = configuration.api_version() == manager.api_version && configuration.kind() == SCALE.kind;
        if let Source::Custom(..) = self.source
            && is_scale
            && owners(live).is_empty()
        {
            // Creating the first managed fields requires a conversion that kube-apiserver does not support.
            let why = "failed to create manager for existing fields: failed to convert live object (/; \
                       autoscaling/v1, Kind=Scale) to proper version: request to convert CR to an invalid \
                       group/version: autoscaling/v1";
            return Err(Status::new(500, "", why));
        }
        let force = self.options.force.unwrap_or(false);
        let object = managed_fields::apply(types, Some(live), configuration, manager, SCALE.kind, force)?;
        if let Source::Custom(..) = self.source {
            // kube-apiserver cannot convert the merged Scale of a custom resource.
            let (namespace, name) = (configuration.namespace(), configuration.name());
            let why = format!(
                "failed to convert new object ({namespace}/{name}; autoscaling/v1, Kind=Scale) to proper version: \
                 request to convert CR to an invalid group/version: autoscaling/v1"
            );
            return Err(Status::new(500, "", why));
        }
        Ok(Decoded::made(object))
    }
}

fn owners(object: &Object) -> Vec<Value> {
    let list = value_at(object, &["metadata", "managedFields"]).and_then(Value::as_array);
    list.cloned().unwrap_or_default()
}

fn set_owners(object: &mut Object, list: Vec<Value>) {
    if list.is_empty() {
        object.metadata_mut().remove("managedFields");
    } else {
        object.metadata_mut().insert("managedFields".into(), list.into());
    }
}

/// Returns the Scale of a built-in object.
fn builtin(object: &Object) -> Object {
    let number = |path: &[&str]| value_at(object, path).and_then(Value::as_i64).unwrap_or(0);
    let mut metadata = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.metadata().and_then(|meta| meta.get(field)) {
            metadata.insert(field.into(), value.clone());
        }
    }
    let replicas = number(&["spec", "replicas"]);
    let spec = if replicas == 0 {
        json!({})
    } else {
        json!({"replicas": replicas})
    };
    let mut status = json!({"replicas": number(&["status", "replicas"])});
    let selector = value_at(object, &["spec", "selector"]).map(selector_text);
    if let Some(selector) = selector.filter(|it| !it.is_empty()) {
        status["selector"] = selector.into();
    }
    let mut scale = Object::default();
    scale.insert("kind".into(), SCALE.kind.into());
    scale.insert("apiVersion".into(), "autoscaling/v1".into());
    scale.insert("metadata".into(), Value::Object(metadata));
    scale.insert("spec".into(), spec);
    scale.insert("status".into(), status);
    scale
}

fn write_builtin(object: &mut Object, scale: &Object) {
    let replicas = value_at(scale, &["spec", "replicas"])
        .and_then(Value::as_i64)
        .unwrap_or(0);
    if let Some(spec) = object.entry("spec").or_insert_with(|| json!({})).as_object_mut() {
        spec.insert("replicas".into(), replicas.into());
    }
    // A Scale without a resourceVersion overwrites the object unconditionally.
    let version = scale.meta_str("resourceVersion");
    if !version.is_empty() {
        object.metadata_mut().insert("resourceVersion".into(), version.into());
    }
}

/// Formats a selector, which is a map of labels or a LabelSelector, as a string.
fn selector_text(selector: &Value) -> String {
    let labels = selector.get("matchLabels").unwrap_or(selector).as_object();
    let label = |(key, value): (&SmolStr, &Value)| Some((key.clone(), format!("{key}={}", value.as_str()?)));
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    let mut terms: Vec<(SmolStr, String)> = labels.into_iter().flatten().filter_map(label).collect();
    terms.extend(expressions.into_iter().flatten().map(expression_text));
    // Terms are sorted by key only, not by operator.
    terms.sort_by(|(one, _), (other, _)| one.cmp(other));
    let texts: Vec<String> = terms.into_iter().map(|(_, text)| text).collect();
    texts.join(",")
}

/// Returns the key of a requirement, and the requirement as a string.
fn expression_text(expression: &Value) -> (SmolStr, String) {
    let text = |name: &str| expression.get(name).and_then(Value::as_str).unwrap_or_default();
    let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
    let mut values: Vec<&str> = values.filter_map(Value::as_str).collect();
    values.sort_unstable();
    let (key, values) = (text("key"), values.join(","));
    let shown = match text("operator") {
        "In" => format!("{key} in ({values})"),
        "NotIn" => format!("{key} notin ({values})"),
        "DoesNotExist" => format!("!{key}"),
        _ => key.to_owned(),
    };
    (key.into(), shown)
}
