//! Conversion by webhook (rule O10): the results of a CRD's webhook, cached for readers. Reading is synchronous almost
//! everywhere; so a reader first converts all objects in one call, and then finds the results here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};

use crate::api::json::Map;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::endpoint::Endpoint;
use crate::registry::types::review_version::ReviewVersion;

/// Answers that are kept for each CRD; beyond them the oldest go, and are asked for again.
const ANSWERS_MAX: usize = 65_536;

/// Bytes of JSON they have together; the oldest go as well.
const ANSWERS_BYTES_MAX: usize = 16 << 20;

type Digest = [u8; 32];

/// The webhook of a CRD, and what it said.
#[derive(Debug)]
pub(crate) struct Conversion {
    /// Address of the webhook.
    pub(crate) endpoint: Endpoint,
    /// Version of ConversionReview it is sent; `None`: it accepts none that the server knows.
    pub(crate) review: Option<ReviewVersion>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// As JSON, which takes a ninth of what an object in memory takes.
    answers: BTreeMap<Digest, Vec<u8>>,
    order: VecDeque<Digest>,
    bytes: usize,
}

impl Conversion {
    /// `spec.conversion` of a CRD, where it is by webhook.
    pub(crate) fn parse(spec: &Map) -> Option<Arc<Self>> {
        let spec = Cursor::root(spec);
        if spec.text("conversion.strategy") != "Webhook" {
            return None;
        }
        let webhook = spec.present("conversion.webhook")?;
        Some(Arc::new(Self {
            endpoint: Endpoint::parse(&webhook),
            review: ReviewVersion::first_of(webhook.texts("conversionReviewVersions")),
            known: Mutex::default(),
        }))
    }

    /// Returns the object as the webhook converted it, if it was called.
    pub(crate) fn answer(&self, object: &Object, api_version: &str) -> Option<Object> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = known.answers.get(&digest(object, api_version))?;
        let mut converted = Object(serde_json::from_slice(answer).ok()?);
        // Metadata is the original's, but for what a webhook may change.
        let meta = converted.metadata().cloned().unwrap_or_default();
        let mut kept = object.metadata().cloned().unwrap_or_default();
        for field in ["labels", "annotations"] {
            kept.remove(field);
            kept.extend(meta.get(field).map(|it| (field.to_owned(), it.clone())));
        }
        converted.insert("metadata".into(), kept.into());
        Some(converted)
    }

    /// Keeps an answer.
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

/// Hashes an object without its resourceVersion, and the version to convert it to.
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

/// Checks one converted object against its original; the error is that of the API server.
pub(crate) fn check(original: &Object, converted: &Object, api_version: &str) -> Result<(), String> {
    if converted.api_version() != api_version {
        return Err(format!(
            "returned invalid object at index 0: invalid groupVersion (expected {api_version}, received {})",
            converted.api_version()
        ));
    }
    let same = |what: &str, a: &str, b: &str| match a == b {
        true => Ok(()),
        false => Err(format!(
            "returned invalid object: must have the same {what}: {a} != {b}"
        )),
    };
    same("kind", original.kind(), converted.kind())?;
    same("name", original.name(), converted.name())?;
    same("namespace", original.namespace(), converted.namespace())?;
    same("UID", original.uid(), converted.uid())
}
