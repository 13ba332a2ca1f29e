//! `IndexFn` and `Index`: lookup of objects by computed values.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;

use super::sorted::Sorted;
use crate::error::text_of_panic;
use crate::object::CachedObject;

/// Function that computes the index values of an object.
type Values<K> = Arc<dyn Fn(&CachedObject<K>) -> Vec<String> + Send + Sync>;

/// A named index function, which computes the index values of an object (client-go's `IndexFunc`).
///
/// The function must be deterministic. If it panics, the object is not in the index; panics are logged, and counted in
/// the metric `informer_index_panics_total`. It may read the cache, which does not contain the change yet, but must not
/// write to it.
pub struct IndexFn<K> {
    pub(crate) name: String,
    values: Values<K>,
    /// Number of panics. Clones share the counter.
    panics: Arc<AtomicU64>,
}

impl<K> IndexFn<K> {
    /// Creates an index function with a name. The function may return any number of values for an object.
    pub fn new<I>(name: &str, values: impl Fn(&CachedObject<K>) -> I + Send + Sync + 'static) -> Self
    where
        I: IntoIterator<Item = String>,
    {
        Self {
            name: name.to_owned(),
            values: Arc::new(move |object| values(object).into_iter().collect()),
            panics: Arc::default(),
        }
    }

    /// Returns the index values of an object, sorted and without duplicates.
    pub(crate) fn values(&self, object: &CachedObject<K>) -> Vec<String> {
        let mut values = catch_unwind(AssertUnwindSafe(|| (self.values)(object))).unwrap_or_else(|panic| {
            self.panics.fetch_add(1, Ordering::Relaxed);
            let (index, panic) = (&self.name, text_of_panic(&*panic));
            tracing::error!(index, object = ?object, panic, "an index function panicked");
            Vec::new()
        });
        values.sort_unstable();
        values.dedup();
        values
    }

    /// Returns the number of panics.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }
}

impl<K> Clone for IndexFn<K> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            values: Arc::clone(&self.values),
            panics: Arc::clone(&self.panics),
        }
    }
}

impl<K> fmt::Debug for IndexFn<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IndexFn({:?})", self.name)
    }
}

/// Index values of objects, computed before the store is locked. Readers therefore do not wait for user code, and the
/// user code can read the store.
pub(crate) struct IndexValues<K> {
    functions: Vec<IndexFn<K>>,
    /// Values by the object's address in memory. Each entry keeps its object alive, so that the address is not reused.
    of: HashMap<usize, Computed<K>, RandomState>,
}

/// An object with its values for each index function.
type Computed<K> = (CachedObject<K>, Vec<Vec<String>>);

impl<K> IndexValues<K> {
    /// Creates an empty set of values for these functions.
    pub(crate) fn new(functions: Vec<IndexFn<K>>) -> Self {
        Self {
            functions,
            of: HashMap::default(),
        }
    }

    /// Returns `true` if the list of index functions is empty.
    pub(crate) fn is_void(&self) -> bool {
        self.functions.is_empty()
    }

    /// Returns the number of index functions.
    pub(crate) fn functions(&self) -> usize {
        self.functions.len()
    }

    pub(crate) fn has(&self, object: &CachedObject<K>) -> bool {
        self.functions.is_empty() || self.of.contains_key(&object.address())
    }

    /// Computes the values of an object, unless they were computed before.
    pub(crate) fn compute(&mut self, object: &CachedObject<K>) {
        if !self.has(object) {
            let values = self.functions.iter().map(|it| it.values(object)).collect();
            self.of.insert(object.address(), (object.clone(), values));
        }
    }

    /// Returns the values of an object for the index function at position `number`.
    fn get(&self, object: &CachedObject<K>, number: usize) -> &[String] {
        let all = self.of.get(&object.address());
        all.and_then(|(_, all)| all.get(number)).map_or(&[], Vec::as_slice)
    }
}

/// An index function with its index. Buckets without objects are removed.
pub(crate) struct Index<K> {
    pub(crate) function: IndexFn<K>,
    pub(crate) buckets: BTreeMap<String, Sorted<K>>,
}

impl<K> Index<K> {
    /// Builds an index of these objects, which must be sorted by key.
    pub(crate) fn new<'a>(mut function: IndexFn<K>, objects: impl Iterator<Item = &'a CachedObject<K>>) -> Self
    where
        K: 'a,
    {
        // Several stores may have clones of the function, and count its panics separately.
        function.panics = Arc::default();
        let mut buckets: BTreeMap<String, Vec<CachedObject<K>>> = BTreeMap::new();
        for object in objects {
            for value in function.values(object) {
                buckets.entry(value).or_default().push(object.clone());
            }
        }
        Self::of_buckets(function, buckets)
    }

    /// Same as `new`, with precomputed values. `number` is the position of the index function in `values`.
    pub(crate) fn filled<'a>(
        &self,
        objects: impl Iterator<Item = &'a CachedObject<K>>,
        values: &IndexValues<K>,
        number: usize,
    ) -> Self
    where
        K: 'a,
    {
        let mut buckets: BTreeMap<String, Vec<CachedObject<K>>> = BTreeMap::new();
        for object in objects {
            for value in values.get(object, number) {
                match buckets.get_mut(value) {
                    Some(bucket) => bucket.push(object.clone()),
                    None => drop(buckets.insert(value.clone(), vec![object.clone()])),
                }
            }
        }
        Self::of_buckets(self.function.clone(), buckets)
    }

    fn of_buckets(function: IndexFn<K>, buckets: BTreeMap<String, Vec<CachedObject<K>>>) -> Self {
        let sorted = buckets
            .into_iter()
            .map(|(value, objects)| (value, Sorted::from_sorted(objects)));
        Self {
            function,
            buckets: sorted.collect(),
        }
    }

    /// Replaces `old` with `new`, using precomputed values. `number` is the position of the index function in `values`.
    pub(crate) fn change(
        &mut self,
        old: Option<&CachedObject<K>>,
        new: Option<&CachedObject<K>>,
        values: &IndexValues<K>,
        number: usize,
    ) {
        let before = old.map_or(&[][..], |it| values.get(it, number));
        let after = new.map_or(&[][..], |it| values.get(it, number));
        if let Some(old) = old {
            // The values are sorted.
            for value in before.iter().filter(|it| after.binary_search(it).is_err()) {
                if let Some(bucket) = self.buckets.get_mut(value) {
                    bucket.remove(old.key());
                    if bucket.len() == 0 {
                        self.buckets.remove(value);
                    }
                }
            }
        }
        if let Some(new) = new {
            for value in after {
                match self.buckets.get_mut(value) {
                    Some(bucket) => drop(bucket.insert(new.clone())),
                    None => {
                        let bucket = Sorted::from_sorted(vec![new.clone()]);
                        self.buckets.insert(value.clone(), bucket);
                    }
                }
            }
        }
    }
}

impl<K> Clone for Index<K> {
    fn clone(&self) -> Self {
        Self {
            function: self.function.clone(),
            buckets: self.buckets.clone(),
        }
    }
}

/// Common index functions.
///
/// ```
/// use informer::{CachedObject, ObjectKey};
/// use informer::cache::{Indexer, indexes};
/// use k8s_openapi::api::core::v1::Pod;
///
/// let pods = Indexer::<Pod>::new();
/// pods.add_index(indexes::field("spec.nodeName"))?;
/// let web = r#"{"metadata": {"name": "web-0"}, "spec": {"nodeName": "node-1", "containers": []}}"#;
/// pods.insert(CachedObject::decode(web)?);
/// assert_eq!(pods.lister().by_index("field:spec.nodeName", "node-1")?.len(), 1);
/// # Ok::<(), informer::Error>(())
/// ```
pub mod indexes {
    use serde::Serialize;

    use super::{CachedObject, IndexFn};
    use crate::object::Cacheable;

    /// Index by namespace, named `namespace`. Listing the objects of a namespace does not require it.
    pub fn namespace<K: Cacheable>() -> IndexFn<K> {
        IndexFn::new("namespace", |object: &CachedObject<K>| {
            object.key().namespace().map(str::to_owned)
        })
    }

    /// Index by the uids of all owners, named `owner`.
    pub fn owner_uid<K: Cacheable>() -> IndexFn<K> {
        IndexFn::new("owner", |object: &CachedObject<K>| {
            let mut uids = Vec::new();
            object.each_owner(&mut |owner| uids.push(owner.uid.to_owned()));
            uids
        })
    }

    /// Index by the value of a label, named `label:NAME`.
    pub fn label<K: Cacheable>(label: &str) -> IndexFn<K> {
        let name = label.to_owned();
        IndexFn::new(&format!("label:{label}"), move |object: &CachedObject<K>| {
            object.label(&name)
        })
    }

    /// Index by the value of an annotation, named `annotation:NAME`.
    pub fn annotation<K: Cacheable>(annotation: &str) -> IndexFn<K> {
        let name = annotation.to_owned();
        IndexFn::new(&format!("annotation:{annotation}"), move |object: &CachedObject<K>| {
            object.annotation(&name)
        })
    }

    /// Index by a field, given by a dotted path such as `spec.nodeName`; the index is named `field:PATH`. Strings are
    /// indexed unchanged, and numbers and booleans by their JSON text; objects without such a value are not in the
    /// index.
    pub fn field<K: Cacheable + Serialize>(path: &str) -> IndexFn<K> {
        let names: Vec<String> = path.split('.').map(str::to_owned).collect();
        IndexFn::new(&format!("field:{path}"), move |object: &CachedObject<K>| {
            object.field(&names)
        })
    }
}
