//! `CachedObject`: an immutable state of an object, decoded on demand.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kube::Resource;
use serde::de::DeserializeOwned;

use super::body::{self, Body, Keep, Managed, Places, Storage};
#[cfg(feature = "compression")]
use super::compressed::Compressed;
use super::header::Header;
use super::read;
use crate::key::hash_of;
use crate::{Error, ObjectKey, ResourceVersion};

/// Types that can be cached: all types of `k8s-openapi`, derived custom resources,
/// [`DynamicObject`](kube::core::DynamicObject) and [`PartialObjectMeta`](kube::core::PartialObjectMeta).
pub trait Cacheable: Resource + DeserializeOwned + Send + Sync + 'static {}

impl<K: Resource + DeserializeOwned + Send + Sync + 'static> Cacheable for K {}

/// An immutable state of an object of type `K`. Clones are cheap and share the object.
///
/// Key, version, labels and owners are available without decoding the object. [`typed`](Self::typed) decodes it;
/// concurrent users share the result.
///
/// ```
/// use informer::{CachedObject, ObjectKey};
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// let map = CachedObject::<ConfigMap>::decode(
///     r#"{"metadata": {"name": "settings", "namespace": "shop", "resourceVersion": "7"}, "data": {"color": "red"}}"#,
/// )?;
/// assert_eq!(map.key(), &ObjectKey::new("shop", "settings"));
/// assert_eq!(map.typed()?.data.as_ref().unwrap()["color"], "red");
/// # Ok::<(), informer::Error>(())
/// ```
pub struct CachedObject<K> {
    record: Arc<Record<K>>,
}

struct Record<K> {
    key: ObjectKey,
    resource_version: ResourceVersion,
    /// Hash of the uid, so that uids can be compared without reading the JSON text; 0 if the uid is missing.
    uid: u32,
    /// Hash of the text from which the object was created, before transforms. 0 without such a text, or if
    /// the text itself is stored, with or without managed fields.
    origin: u32,
    generation: Option<i64>,
    is_deleting: bool,
    places: Places,
    body: Body<K>,
    /// Number of events with this state that handlers have not received yet. The decoded object is kept while there are
    /// such events.
    waiting: AtomicU32,
    /// Guards the decoded object. Locked during decoding, so that concurrent callers share the result.
    decoded: Mutex<Decoded<K>>,
}

/// The decoded form of an object that is stored as text.
enum Decoded<K> {
    Nothing,
    /// Kept alive only by the callers that use it.
    Lent(Weak<K>),
    /// Kept alive for handlers that have not received the object yet.
    Kept(Arc<K>),
}

fn uid_hash(uid: &str) -> u32 {
    if uid.is_empty() { 0 } else { hash_of(uid).max(1) }
}

fn text_hash(text: &str) -> u32 {
    hash_of(text).max(1)
}

/// Compares two hashes of uids. Hash 0 matches any hash.
fn may_be_same(one: u32, other: u32) -> bool {
    one == 0 || other == 0 || one == other
}

impl<K> Record<K> {
    fn of(key: ObjectKey, header: &Header<'_>, origin: u32, places: Places, body: Body<K>) -> Self {
        Self {
            key,
            resource_version: header.resource_version(),
            uid: uid_hash(&header.metadata.uid.0),
            origin,
            generation: header.metadata.generation,
            is_deleting: header.metadata.deletion_timestamp.is_some(),
            places,
            body,
            waiting: AtomicU32::new(0),
            decoded: Mutex::new(Decoded::Nothing),
        }
    }
}

impl<K> CachedObject<K> {
    /// Returns the namespace and name.
    pub fn key(&self) -> &ObjectKey {
        &self.record.key
    }

    /// Returns the resource version.
    pub fn resource_version(&self) -> &ResourceVersion {
        &self.record.resource_version
    }

    /// Returns `metadata.generation`, which is incremented by changes of the spec. Some types do not have it.
    pub fn generation(&self) -> Option<i64> {
        self.record.generation
    }

    /// Returns `true` if the object has a deletion timestamp: finalizers or a grace period delay its deletion.
    pub fn is_deleting(&self) -> bool {
        self.record.is_deleting
    }

    /// Returns `true` if the object has this uid, or no uid because a transform has removed it.
    pub(crate) fn may_have_uid(&self, uid: &str) -> bool {
        may_be_same(self.record.uid, uid_hash(uid))
    }

    /// Returns `true` if the object was created from this text, before transforms. `header` must have been parsed from
    /// this text, and `managed` must be the same as at the creation.
    pub(crate) fn is_from(&self, text: &str, header: &Header<'_>, managed: Managed) -> bool {
        let record = &self.record;
        match &record.body {
            Body::Json(stored) if record.origin == 0 => *body::keep(text, header, managed).0 == **stored,
            Body::Json(_) | Body::Typed(_) => record.origin == text_hash(text),
            #[cfg(feature = "compression")]
            Body::Compressed(_) => record.origin == text_hash(text),
        }
    }

    /// Returns `true` if both values are the same state of the same object. Compares uids as well, because a cluster
    /// that was restored from a backup may assign the same version again.
    pub fn is_same_state(&self, other: &Self) -> bool {
        let (one, other) = (&self.record, &other.record);
        Arc::ptr_eq(one, other) || one.resource_version == other.resource_version && may_be_same(one.uid, other.uid)
    }

    /// Returns `true` if both values are clones of the same cached object.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.record, &other.record)
    }

    /// Returns the object's address in memory. The address is the same for all clones, and unique while a clone exists.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.record).addr()
    }

    /// Records an event with this state that handlers have not received yet. The decoded object is kept for them until
    /// [`release_decoded`](Self::release_decoded) is called.
    pub(crate) fn keep_decoded(&self) {
        self.record.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that all handlers have received an event with this state.
    pub(crate) fn release_decoded(&self) {
        if self.record.waiting.fetch_sub(1, Ordering::AcqRel) == 1 {
            let mut decoded = lock(&self.record.decoded);
            if let Decoded::Kept(typed) = &*decoded {
                *decoded = Decoded::Lent(Arc::downgrade(typed));
            }
        }
    }
}

impl<K: Cacheable> CachedObject<K> {
    /// Creates an object from its JSON text.
    ///
    /// # Errors
    ///
    /// Fails if the text is not a single JSON object. The text is only checked against type `K` when the object is
    /// decoded.
    pub fn decode(text: &str) -> Result<Self, Error> {
        let invalid = |err| Error::decode("an object", err);
        let (header, object) = Header::read_whole(text).map_err(invalid)?;
        if !text[object.len()..].trim().is_empty() {
            return Err(Error::refused("unexpected data after the object"));
        }
        Self::read(header.key(), object, object, &header, &Keep::default())
    }

    /// Creates an object from its decoded form, which is stored instead of the text.
    pub fn from_typed(typed: impl Into<Arc<K>>) -> Self {
        let typed = typed.into();
        let metadata = typed.meta();
        Self::new(Record {
            key: ObjectKey::of(&*typed),
            resource_version: ResourceVersion::from(metadata.resource_version.as_deref().unwrap_or_default()),
            uid: uid_hash(metadata.uid.as_deref().unwrap_or_default()),
            origin: 0,
            generation: metadata.generation,
            is_deleting: metadata.deletion_timestamp.is_some(),
            places: Places::default(),
            body: Body::Typed(typed),
            waiting: AtomicU32::new(0),
            decoded: Mutex::new(Decoded::Nothing),
        })
    }

    /// Creates an object from its text, its parsed header and its key. `received` is the text before transforms.
    pub(crate) fn read(
        key: ObjectKey,
        received: &str,
        text: &str,
        header: &Header<'_>,
        keep: &Keep,
    ) -> Result<Self, Error> {
        // Most objects are stored as they were received. Their texts are not hashed, because this function is called
        // for each event.
        let is_stored = keep.storage == Storage::Encoded && std::ptr::eq(received, text);
        let origin = if is_stored { 0 } else { text_hash(received) };
        if keep.storage == Storage::Typed
            && let Some(lengths) = &header.lengths
            && let Some(typed) = read::read(text, lengths, body::name_to_cut(text, header, keep.managed))
        {
            return Ok(Self::new(Record::of(
                key,
                header,
                origin,
                Places::default(),
                Body::Typed(Arc::new(typed)),
            )));
        }
        let (kept, places) = body::keep(text, header, keep.managed);
        let body = match keep.storage {
            Storage::Encoded => Body::Json(kept.into()),
            Storage::Typed => Body::Typed(decode(&key, &kept)?),
            #[cfg(feature = "compression")]
            Storage::Compressed => match Compressed::new(&kept, &keep.dictionary) {
                Some(compressed) => Body::Compressed(compressed),
                None => Body::Json(kept.into()),
            },
        };
        Ok(Self::new(Record::of(key, header, origin, places, body)))
    }

    fn new(record: Record<K>) -> Self {
        Self {
            record: Arc::new(record),
        }
    }

    /// Decodes the object. The result is shared: the object is not decoded again while a caller uses the result, or
    /// until all handlers have received the object's event.
    ///
    /// # Errors
    ///
    /// Fails if the object does not match type `K` ([`Error::is_decode`]).
    pub fn typed(&self) -> Result<Arc<K>, Error> {
        if let Body::Typed(typed) = &self.record.body {
            return Ok(Arc::clone(typed));
        }
        let mut decoded = lock(&self.record.decoded);
        match &*decoded {
            Decoded::Kept(typed) => return Ok(Arc::clone(typed)),
            Decoded::Lent(typed) => {
                if let Some(typed) = typed.upgrade() {
                    return Ok(typed);
                }
            }
            Decoded::Nothing => {}
        }
        let typed = self.with_text(|text, _| decode(self.key(), text))?;
        *decoded = if self.record.waiting.load(Ordering::Acquire) > 0 {
            Decoded::Kept(Arc::clone(&typed))
        } else {
            Decoded::Lent(Arc::downgrade(&typed))
        };
        Ok(typed)
    }

    /// Returns the uid; empty if it is missing.
    pub fn uid(&self) -> String {
        if let Some(typed) = self.held_typed() {
            return typed.meta().uid.clone().unwrap_or_default();
        }
        self.with_text(|text, places| places.uid.slice(text).to_owned())
    }

    /// Returns the object as JSON text; `None` if only the decoded form is stored.
    pub fn json(&self) -> Option<String> {
        match &self.record.body {
            Body::Typed(_) => None,
            Body::Json(text) => Some(text.as_ref().to_owned()),
            #[cfg(feature = "compression")]
            Body::Compressed(_) => Some(self.with_text(|text, _| text.to_owned())),
        }
    }

    /// Returns the decoded form, if it is stored.
    pub(crate) fn held_typed(&self) -> Option<&K> {
        match &self.record.body {
            Body::Typed(typed) => Some(typed),
            Body::Json(_) => None,
            #[cfg(feature = "compression")]
            Body::Compressed(_) => None,
        }
    }

    /// Calls `f` with the JSON text, or with an empty string if only the decoded form is stored.
    pub(crate) fn with_text<R>(&self, f: impl FnOnce(&str, &Places) -> R) -> R {
        let places = &self.record.places;
        match &self.record.body {
            Body::Json(text) => f(text, places),
            Body::Typed(_) => f("", places),
            #[cfg(feature = "compression")]
            Body::Compressed(compressed) => f(&compressed.text(), places),
        }
    }
}

/// Returns the name of a type for messages, such as `Pod` or `PartialObjectMeta<Pod>`.
pub(crate) fn type_name<K>() -> String {
    let last = |path: &'static str| path.rsplit("::").next().unwrap_or(path);
    match std::any::type_name::<K>().split_once('<') {
        Some((outer, inner)) => format!("{}<{}", last(outer), last(inner)),
        None => last(std::any::type_name::<K>()).to_owned(),
    }
}

fn decode<K: Cacheable>(key: &ObjectKey, text: &str) -> Result<Arc<K>, Error> {
    let name = type_name::<K>();
    serde_json::from_str(text)
        .map(Arc::new)
        .map_err(|err| Error::decode(format!("{key} is not a {name}"), err))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A user's `Deserialize` may panic while this lock is held. The state is consistent even in this case.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K> Clone for CachedObject<K> {
    fn clone(&self) -> Self {
        Self {
            record: Arc::clone(&self.record),
        }
    }
}

impl<K> fmt::Debug for CachedObject<K> {
    /// Formats as `shop/web-0@7`: key and resource version.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key(), self.resource_version())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use rstest::rstest;

    use super::*;

    fn header(text: &str) -> Header<'_> {
        Header::read_whole(text).expect("the text is an object").0
    }

    #[rstest]
    #[case::encoded(Storage::Encoded, Managed::Keep, None)]
    #[case::without_managed_fields(Storage::Encoded, Managed::Cut, None)]
    #[case::typed(Storage::Typed, Managed::Cut, None)]
    #[case::transformed(Storage::Encoded, Managed::Keep, Some(r#"{"metadata":{"name":"m"}}"#))]
    fn object_is_only_from_the_text_that_was_received(
        #[case] storage: Storage,
        #[case] managed: Managed,
        #[case] transformed: Option<&str>,
    ) {
        let received = r#"{"metadata":{"name":"m","managedFields":[{"manager":"a"}]},"data":{"a":"1"}}"#;
        let keep = Keep {
            storage,
            managed,
            ..Keep::default()
        };
        let text = transformed.unwrap_or(received);
        let read = CachedObject::<ConfigMap>::read(ObjectKey::cluster("m"), received, text, &header(text), &keep);
        let object = read.expect("the object can be decoded");
        let is_from = |text: &str| object.is_from(text, &header(text), managed);
        assert!(is_from(received));
        assert!(!is_from(&received.replace("\"1\"", "\"2\"")));
    }
}
