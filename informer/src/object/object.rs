//! `Object`: one state of one object, decoded on first use.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kube::Resource;
use serde::de::DeserializeOwned;

use super::body::{self, Body, Keep, Places, Storage};
#[cfg(feature = "compression")]
use super::compressed::Compressed;
use super::header::Header;
use super::read;
use crate::key::hash_of;
use crate::{Error, ObjectKey, ResourceVersion};

/// Requirements of a cached type: every type of `k8s-openapi`, every derived custom resource,
/// [`DynamicObject`](kube::core::DynamicObject) and [`PartialObjectMeta`](kube::core::PartialObjectMeta) meets them.
pub trait Cacheable: Resource + DeserializeOwned + Send + Sync + 'static {}

impl<K: Resource + DeserializeOwned + Send + Sync + 'static> Cacheable for K {}

/// One state of one object of the type `K`. Copies are cheap and share everything; it is immutable.
///
/// What indexes, predicates and queues ask for (key, version, labels, owners) is answered without decoding the object;
/// [`typed`](Self::typed) decodes it, once for all who hold it at a time.
///
/// ```
/// use informer::{Object, ObjectKey};
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// let map = Object::<ConfigMap>::decode(
///     r#"{"metadata": {"name": "settings", "namespace": "shop", "resourceVersion": "7"}, "data": {"color": "red"}}"#,
/// )?;
/// assert_eq!(map.key(), &ObjectKey::new("shop", "settings"));
/// assert_eq!(map.typed()?.data.as_ref().unwrap()["color"], "red");
/// # Ok::<(), informer::Error>(())
/// ```
pub struct Object<K> {
    record: Arc<Record<K>>,
}

struct Record<K> {
    key: ObjectKey,
    resource_version: ResourceVersion,
    /// A hash of the uid, to tell two apart without reading the text; 0 if there is none.
    uid: u32,
    generation: Option<i64>,
    is_deleting: bool,
    places: Places,
    body: Body<K>,
    /// Number of pending events of this state. While there are any, the decoded object is kept.
    waiting: AtomicU32,
    /// Guards what was decoded last. Held while decoding, so that two who ask at once share one result.
    decoded: Mutex<Decoded<K>>,
}

/// The decoded form of an object that is not held in typed form.
enum Decoded<K> {
    Nothing,
    /// Kept by those who hold it.
    Lent(Weak<K>),
    /// Kept for handlers to come.
    Kept(Arc<K>),
}

fn uid_hash(uid: &str) -> u32 {
    if uid.is_empty() { 0 } else { hash_of(uid).max(1) }
}

/// Of two hashes of uids.
fn may_be_same(one: u32, other: u32) -> bool {
    one == 0 || other == 0 || one == other
}

impl<K> Record<K> {
    fn of(key: ObjectKey, header: &Header<'_>, places: Places, body: Body<K>) -> Self {
        Self {
            key,
            resource_version: header.resource_version(),
            uid: uid_hash(&header.metadata.uid.0),
            generation: header.metadata.generation,
            is_deleting: header.metadata.deletion_timestamp.is_some(),
            places,
            body,
            waiting: AtomicU32::new(0),
            decoded: Mutex::new(Decoded::Nothing),
        }
    }
}

impl<K> Object<K> {
    /// Namespace and name.
    pub fn key(&self) -> &ObjectKey {
        &self.record.key
    }

    /// The version of this state.
    pub fn resource_version(&self) -> &ResourceVersion {
        &self.record.resource_version
    }

    /// `metadata.generation`: for most types the number of changes of the desired state. Not all have one.
    pub fn generation(&self) -> Option<i64> {
        self.record.generation
    }

    /// Returns `true` if it has a deletion timestamp: it waits for finalizers, or for its grace period to end.
    pub fn is_deleting(&self) -> bool {
        self.record.is_deleting
    }

    /// Returns `true` if it has this uid; one whose uid a transform has removed may have any.
    pub(crate) fn may_have_uid(&self, uid: &str) -> bool {
        may_be_same(self.record.uid, uid_hash(uid))
    }

    /// Returns `true` if both are one state of one object: a cluster that was restored from a backup gives a version
    /// twice, to objects of different uids.
    pub fn is_same_state(&self, other: &Self) -> bool {
        let (one, other) = (&self.record, &other.record);
        Arc::ptr_eq(one, other) || one.resource_version == other.resource_version && may_be_same(one.uid, other.uid)
    }

    /// Returns `true` if both are the same state at the same address.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.record, &other.record)
    }

    /// Returns the address in memory: the same for all copies, and of no other object as long as there is one.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.record).addr()
    }

    /// An event of this state waits: what is decoded from now on is kept for all its handlers.
    pub(crate) fn keep_decoded(&self) {
        self.record.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// The event was handled by all.
    pub(crate) fn release_decoded(&self) {
        if self.record.waiting.fetch_sub(1, Ordering::AcqRel) == 1 {
            let mut decoded = lock(&self.record.decoded);
            if let Decoded::Kept(typed) = &*decoded {
                *decoded = Decoded::Lent(Arc::downgrade(typed));
            }
        }
    }
}

impl<K: Cacheable> Object<K> {
    /// An object from its JSON.
    ///
    /// # Errors
    ///
    /// If the text is not one JSON object. Whether it is a `K` shows when it is decoded.
    pub fn decode(text: &str) -> Result<Self, Error> {
        let invalid = |err| Error::decode("an object", err);
        let (header, object) = Header::read_whole(text).map_err(invalid)?;
        if !text[object.len()..].trim().is_empty() {
            return Err(Error::refused("an object: something follows it"));
        }
        Self::read(header.key(), object, &header, &Keep::default())
    }

    /// An object that is held as it is.
    pub fn from_typed(typed: impl Into<Arc<K>>) -> Self {
        let typed = typed.into();
        let metadata = typed.meta();
        Self::new(Record {
            key: ObjectKey::of(&*typed),
            resource_version: ResourceVersion::from(metadata.resource_version.as_deref().unwrap_or_default()),
            uid: uid_hash(metadata.uid.as_deref().unwrap_or_default()),
            generation: metadata.generation,
            is_deleting: metadata.deletion_timestamp.is_some(),
            places: Places::default(),
            body: Body::Typed(typed),
            waiting: AtomicU32::new(0),
            decoded: Mutex::new(Decoded::Nothing),
        })
    }

    /// An object of which the header was read already, and its key.
    pub(crate) fn read(key: ObjectKey, text: &str, header: &Header<'_>, keep: &Keep) -> Result<Self, Error> {
        if keep.storage == Storage::Typed
            && let Some(lengths) = &header.lengths
            && let Some(typed) = read::read(text, lengths, body::name_to_cut(text, header, keep.managed))
        {
            return Ok(Self::new(Record::of(
                key,
                header,
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
        Ok(Self::new(Record::of(key, header, places, body)))
    }

    fn new(record: Record<K>) -> Self {
        Self {
            record: Arc::new(record),
        }
    }

    /// Returns the object as its type. It is decoded at most once while the result is held, or an event of it waits
    /// to be handled.
    ///
    /// # Errors
    ///
    /// If the object is not as its type says ([`Error::is_decode`]).
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

    /// The uid; empty if the object has none.
    pub fn uid(&self) -> String {
        if let Some(typed) = self.held_typed() {
            return typed.meta().uid.clone().unwrap_or_default();
        }
        self.with_text(|text, places| places.uid.slice(text).to_owned())
    }

    /// The object as JSON; `None` if it is held in typed form.
    pub fn json(&self) -> Option<String> {
        match &self.record.body {
            Body::Typed(_) => None,
            Body::Json(text) => Some(text.as_ref().to_owned()),
            #[cfg(feature = "compression")]
            Body::Compressed(_) => Some(self.with_text(|text, _| text.to_owned())),
        }
    }

    /// The typed form, if that is how it is held.
    pub(crate) fn held_typed(&self) -> Option<&K> {
        match &self.record.body {
            Body::Typed(typed) => Some(typed),
            Body::Json(_) => None,
            #[cfg(feature = "compression")]
            Body::Compressed(_) => None,
        }
    }

    /// Calls `f` with the text; with an empty one for an object held in typed form.
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

/// The name of a type in messages: `Pod`, `PartialObjectMeta<Pod>`.
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
        .map_err(|err| Error::decode(format!("{key} is no {name}"), err))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Decoding runs under the lock and may panic in a user's `Deserialize`; nothing is half done then.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K> Clone for Object<K> {
    fn clone(&self) -> Self {
        Self {
            record: Arc::clone(&self.record),
        }
    }
}

impl<K> fmt::Debug for Object<K> {
    /// `shop/web-0@7`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key(), self.resource_version())
    }
}
