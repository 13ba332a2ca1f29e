//! `IndexFn` and `Index`: objects by the values of a function.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::sorted::Sorted;
use crate::object::Object;

/// The values of an object in an index.
type Values<K> = Arc<dyn Fn(&Object<K>) -> Vec<String> + Send + Sync>;

/// A named index function: the values under which an object is found (client-go's `IndexFunc`).
///
/// It must answer the same for the same state of an object. If it panics, the object is found under no value. It may
/// read the cache, which is then as it was before the change, and must not write to it.
pub struct IndexFn<K> {
    pub(crate) name: String,
    values: Values<K>,
}

impl<K> IndexFn<K> {
    /// An index of this name; an object may have any number of values.
    pub fn new<I>(name: &str, values: impl Fn(&Object<K>) -> I + Send + Sync + 'static) -> Self
    where
        I: IntoIterator<Item = String>,
    {
        Self {
            name: name.to_owned(),
            values: Arc::new(move |object| values(object).into_iter().collect()),
        }
    }

    /// The values of an object, sorted, each once.
    pub(crate) fn values(&self, object: &Object<K>) -> Vec<String> {
        let mut values = catch_unwind(AssertUnwindSafe(|| (self.values)(object))).unwrap_or_else(|_| {
            tracing::error!(index = self.name, object = ?object, "an index function panicked");
            Vec::new()
        });
        values.sort_unstable();
        values.dedup();
        values
    }
}

impl<K> Clone for IndexFn<K> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            values: Arc::clone(&self.values),
        }
    }
}

impl<K> fmt::Debug for IndexFn<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IndexFn({:?})", self.name)
    }
}

/// Index values of some objects: computed before the store is locked, so that no reader waits for a user's code, and
/// that code may read.
pub(crate) struct IndexValues<K> {
    functions: Vec<IndexFn<K>>,
    /// For each function the values of an object, by the address of the object, which is held as long as this.
    of: HashMap<usize, Computed<K>, RandomState>,
}

/// An object, and the values that each function has for it.
type Computed<K> = (Object<K>, Vec<Vec<String>>);

impl<K> IndexValues<K> {
    /// Nothing computed yet.
    pub(crate) fn new(functions: Vec<IndexFn<K>>) -> Self {
        Self {
            functions,
            of: HashMap::default(),
        }
    }

    /// Returns `true` if no values have to be computed.
    pub(crate) fn is_void(&self) -> bool {
        self.functions.is_empty()
    }

    /// Returns the number of functions.
    pub(crate) fn functions(&self) -> usize {
        self.functions.len()
    }

    pub(crate) fn has(&self, object: &Object<K>) -> bool {
        self.functions.is_empty() || self.of.contains_key(&object.address())
    }

    /// Computes what it does not have.
    pub(crate) fn compute(&mut self, object: &Object<K>) {
        if !self.has(object) {
            let values = self.functions.iter().map(|it| it.values(object)).collect();
            self.of.insert(object.address(), (object.clone(), values));
        }
    }

    /// Returns the values of one index function for the object.
    fn get(&self, object: &Object<K>, number: usize) -> &[String] {
        let all = self.of.get(&object.address());
        all.and_then(|(_, all)| all.get(number)).map_or(&[], Vec::as_slice)
    }
}

/// An index with what is in it. Values without objects are not kept.
pub(crate) struct Index<K> {
    pub(crate) function: IndexFn<K>,
    pub(crate) buckets: BTreeMap<String, Sorted<K>>,
}

impl<K> Index<K> {
    /// An index of these objects, which are in order.
    pub(crate) fn new<'a>(function: IndexFn<K>, objects: impl Iterator<Item = &'a Object<K>>) -> Self
    where
        K: 'a,
    {
        let mut buckets: BTreeMap<String, Vec<Object<K>>> = BTreeMap::new();
        for object in objects {
            for value in function.values(object) {
                buckets.entry(value).or_default().push(object.clone());
            }
        }
        Self::of_buckets(function, buckets)
    }

    /// The same of the values that were computed for the function with this number.
    pub(crate) fn filled<'a>(
        &self,
        objects: impl Iterator<Item = &'a Object<K>>,
        values: &IndexValues<K>,
        number: usize,
    ) -> Self
    where
        K: 'a,
    {
        let mut buckets: BTreeMap<String, Vec<Object<K>>> = BTreeMap::new();
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

    fn of_buckets(function: IndexFn<K>, buckets: BTreeMap<String, Vec<Object<K>>>) -> Self {
        let sorted = buckets
            .into_iter()
            .map(|(value, objects)| (value, Sorted::from_sorted(objects)));
        Self {
            function,
            buckets: sorted.collect(),
        }
    }

    /// `old` is gone, `new` is there; the values of both are those of the function with this number.
    pub(crate) fn change(
        &mut self,
        old: Option<&Object<K>>,
        new: Option<&Object<K>>,
        values: &IndexValues<K>,
        number: usize,
    ) {
        let before = old.map_or(&[][..], |it| values.get(it, number));
        let after = new.map_or(&[][..], |it| values.get(it, number));
        if let Some(old) = old {
            for value in before.iter().filter(|it| !after.contains(it)) {
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

/// Index functions that many need.
///
/// ```
/// use informer::{Object, ObjectKey};
/// use informer::cache::{Indexer, indexes};
/// use k8s_openapi::api::core::v1::Pod;
///
/// let pods = Indexer::<Pod>::new();
/// pods.add_index(indexes::field("spec.nodeName"))?;
/// let web = r#"{"metadata": {"name": "web-0"}, "spec": {"nodeName": "node-1", "containers": []}}"#;
/// pods.insert(Object::decode(web)?);
/// assert_eq!(pods.lister().by_index("field:spec.nodeName", "node-1")?.len(), 1);
/// # Ok::<(), informer::Error>(())
/// ```
pub mod indexes {
    use serde::Serialize;

    use super::{IndexFn, Object};
    use crate::object::Cacheable;

    /// By namespace; its name is `namespace`. Listing a namespace needs no index.
    pub fn namespace<K: Cacheable>() -> IndexFn<K> {
        IndexFn::new("namespace", |object: &Object<K>| {
            object.key().namespace().map(str::to_owned)
        })
    }

    /// By the uid of each owner; its name is `owner`.
    pub fn owner_uid<K: Cacheable>() -> IndexFn<K> {
        IndexFn::new("owner", |object: &Object<K>| {
            let mut uids = Vec::new();
            object.each_owner(&mut |owner| uids.push(owner.uid.to_owned()));
            uids
        })
    }

    /// By the value of a label; its name is `label:NAME`.
    pub fn label<K: Cacheable>(label: &str) -> IndexFn<K> {
        let name = label.to_owned();
        IndexFn::new(&format!("label:{label}"), move |object: &Object<K>| object.label(&name))
    }

    /// By the value of an annotation; its name is `annotation:NAME`.
    pub fn annotation<K: Cacheable>(annotation: &str) -> IndexFn<K> {
        let name = annotation.to_owned();
        IndexFn::new(&format!("annotation:{annotation}"), move |object: &Object<K>| {
            object.annotation(&name)
        })
    }

    /// By a field, given by its names with dots between, such as `spec.nodeName`; its name is `field:PATH`. Texts,
    /// numbers and booleans have a value, as JSON writes them, without quotes.
    pub fn field<K: Cacheable + Serialize>(path: &str) -> IndexFn<K> {
        let names: Vec<String> = path.split('.').map(str::to_owned).collect();
        IndexFn::new(&format!("field:{path}"), move |object: &Object<K>| object.field(&names))
    }
}
