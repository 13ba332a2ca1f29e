//! Conversion by webhook (rule O10): caches the results of a CRD's webhook. Most reads are synchronous, so a reader
//! first requests the conversions, and then takes the results from this cache.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use crate::api::field::FieldErrors;
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::endpoint::Endpoint;
use crate::registry::types::go_text::go_type;
use crate::registry::types::labels::{validate_annotations, validate_labels};
use crate::registry::types::pem::bundle_error;
use crate::registry::types::review_version::ReviewVersion;

/// Maximum number of cached results per CRD. The oldest are dropped first; they are requested again when needed.
const ANSWERS_MAX: usize = 65_536;

/// Maximum total size of the cached results, in bytes of JSON; the oldest are dropped first.
const ANSWERS_BYTES_MAX: usize = 16 << 20;

type Digest = [u8; 32];

/// The conversion webhook of a CRD, with its cached results.
#[derive(Debug)]
pub(crate) struct Conversion {
    /// Address of the webhook.
    pub(crate) endpoint: Endpoint,
    /// Version of ConversionReview sent to the webhook; `None` if it accepts no version that the server supports.
    pub(crate) review: Option<ReviewVersion>,
    /// Set if the CA bundle of the webhook is invalid. kube-apiserver then cannot create a client for the webhook, and
    /// refuses all requests for the resource.
    pub(crate) has_invalid_bundle: bool,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Results as JSON, which takes a ninth of the memory of parsed objects.
    answers: BTreeMap<Digest, Vec<u8>>,
    order: VecDeque<Digest>,
    bytes: usize,
}

impl Conversion {
    /// Parses `spec.conversion` of a CRD; `None` unless its strategy is a webhook.
    pub(crate) fn parse(spec: &Map) -> Option<Arc<Self>> {
        let spec = Cursor::root(spec);
        if spec.text("conversion.strategy") != "Webhook" {
            return None;
        }
        let webhook = spec.present("conversion.webhook")?;
        Some(Arc::new(Self {
            endpoint: Endpoint::parse(&webhook),
            review: ReviewVersion::first_of(webhook.texts("conversionReviewVersions")),
            has_invalid_bundle: is_invalid_bundle(webhook.text("clientConfig.caBundle")),
            known: Mutex::default(),
        }))
    }

    /// Returns the cached result of converting an object.
    pub(crate) fn answer(&self, object: &Object, api_version: &str) -> Option<Object> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = known.answers.get(&digest(object, api_version))?;
        let mut converted = Object(serde_json::from_slice(answer).ok()?);
        // A webhook may change labels and annotations; other metadata is copied from the original.
        let meta = converted.metadata().cloned().unwrap_or_default();
        let mut kept = object.metadata().cloned().unwrap_or_default();
        for field in ["labels", "annotations"] {
            kept.remove(field);
            let value = meta.get(field).filter(|it| !it.is_null());
            kept.extend(value.map(|it| (field.to_owned(), it.clone())));
        }
        converted.insert("metadata".into(), kept.into());
        Some(converted)
    }

    /// Caches the result of a conversion by the webhook.
    pub(crate) fn remember(&self, object: &Object, api_version: &str, converted: &Object) {
        let digest = digest(object, api_version);
        let Ok(text) = serde_json::to_vec(&converted.0) else {
            return;
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.bytes += text.len();
        match known.answers.insert(digest, text) {
            Some(before) => known.bytes -= before.len(),
            None => known.order.push_back(digest),
        }
        while known.order.len() > ANSWERS_MAX || (known.bytes > ANSWERS_BYTES_MAX && known.order.len() > 1) {
            let oldest = known.order.pop_front().and_then(|it| known.answers.remove(&it));
            known.bytes -= oldest.map_or(0, |it| it.len());
        }
    }
}

/// Returns `true` if a base64-encoded CA bundle is invalid. A bundle of white space is treated as empty.
fn is_invalid_bundle(bundle: &str) -> bool {
    let is_blank = STANDARD.decode(bundle).is_ok_and(|it| it.trim_ascii().is_empty());
    !is_blank && bundle_error(bundle).is_some()
}

/// Hashes an object without its resourceVersion, together with the target version.
fn digest(object: &Object, api_version: &str) -> Digest {
    let mut hash = Sha256::new();
    hash.update(api_version.as_bytes());
    for (key, value) in object.iter() {
        hash.update(b"\0");
        hash.update(key.as_bytes());
        match value.as_object().filter(|_| key == "metadata") {
            Some(meta) => {
                for (key, value) in meta.iter().filter(|(key, _)| *key != "resourceVersion") {
                    hash.update(key.as_bytes());
                    hash.update(value.to_string().as_bytes());
                }
            }
            None => hash.update(value.to_string().as_bytes()),
        }
    }
    hash.finalize().into()
}

/// Checks a converted object against its original. Fails with kube-apiserver's messages.
pub(crate) fn check(original: &Object, converted: &Object, api_version: &str) -> Result<(), String> {
    if converted.api_version() != api_version {
        return Err(format!(
            "returned invalid object at index 0: invalid groupVersion (expected {api_version}, received {})",
            converted.api_version()
        ));
    }
    if converted.kind() != original.kind() {
        return Err(format!(
            "returned invalid object at index 0: invalid kind (expected {}, received {})",
            original.kind(),
            converted.kind()
        ));
    }
    let same = |what: &str, a: &str, b: &str| match a == b {
        true => Ok(()),
        false => Err(format!(
            "returned invalid object: must have the same {what}: {a} != {b}"
        )),
    };
    same("name", original.name(), converted.name())?;
    same("namespace", original.namespace(), converted.namespace())?;
    same("UID", original.uid(), converted.uid())?;
    check_metadata(original, converted).map_err(|why| format!("returned invalid metadata: {why}"))
}

/// Checks the parts of metadata that a webhook may change, modelled on `restoreObjectMeta`.
fn check_metadata(original: &Object, converted: &Object) -> Result<(), String> {
    let metadata = converted
        .get("metadata")
        .ok_or("missing metadata in converted object")?;
    if !metadata.is_object() {
        let kind = go_type(metadata);
        return Err(format!("invalid metadata of type {kind} in converted object"));
    }
    for field in ["labels", "annotations"] {
        let Some(value) = metadata.get(field).filter(|it| !it.is_null()) else {
            continue;
        };
        let Value::Object(map) = value else {
            let kind = go_type(value);
            return Err(format!("invalid metadata.{field} of type {kind} in converted object"));
        };
        if let Some((key, value)) = map.iter().find(|(_, value)| !value.is_string()) {
            let kind = go_type(value);
            return Err(format!(
                "metadata.{field}[{key}] must be a string, but is {kind} in converted object"
            ));
        }
        if original.metadata().and_then(|it| it.get(field)) == Some(value) {
            continue;
        }
        let mut errors = FieldErrors::new();
        let cursor = Cursor::root(converted);
        match field {
            "labels" => validate_labels(&cursor.at("metadata.labels"), &mut errors),
            _ => validate_annotations(&cursor.at("metadata.annotations"), &mut errors),
        }
        if !errors.is_empty() {
            // Go prints `annotation` in the singular in this path.
            return Err(errors
                .aggregate()
                .replace("metadata.annotations", "metadata.annotation"));
        }
    }
    Ok(())
}
