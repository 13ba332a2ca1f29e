//! `Cluster`: the objects that controllers read, with indexes by owner and by label, so that controllers need not
//! search all objects.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::pods::{is_finished, nomination};
use super::resource::Resource;
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::api::selector::{LabelOperator, LabelSelector};
use crate::registry::types::cursor::Cursor;
use crate::storage::{Key, KeyRange};

/// The current objects of the relevant resources, without `managedFields`.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    tables: BTreeMap<Resource, Table>,
    /// Keys of the Pods without a node.
    unassigned: BTreeSet<Key>,
    /// Keys of the Pods without a node that are nominated to a node.
    nominated: BTreeSet<Key>,
    /// Keys of the Pods with required anti-affinity to other Pods.
    repelling: BTreeSet<Key>,
    /// An empty table, for resources without objects.
    nothing: Table,
}

#[derive(Debug, Default)]
struct Table {
    objects: BTreeMap<Key, Arc<Object>>,
    /// Owned objects, by the uid of their controller.
    owned: HashMap<String, BTreeSet<Key>>,
    /// Objects without an owning controller, by namespace.
    orphans: HashMap<String, BTreeSet<Key>>,
    /// Labelled objects, by namespace and label.
    labelled: HashMap<(String, String, String), BTreeSet<Key>>,
}

/// Returns the owner reference of the controller of an object.
pub(crate) fn controller_reference_of(object: &Object) -> Option<&Map> {
    let mut owners = Cursor::root(object.metadata()?).maps("ownerReferences");
    owners.find(|it| Cursor::root(it).flag("controller") == Some(true))
}

/// Returns the controller that owns an object: kind, name and uid.
pub(crate) fn controller_of(object: &Object) -> Option<(&str, &str, &str)> {
    controller_reference_of(object).map(|it| {
        (
            Cursor::root(it).text("kind"),
            Cursor::root(it).text("name"),
            Cursor::root(it).text("uid"),
        )
    })
}

impl Cluster {
    fn table(&self, resource: Resource) -> &Table {
        self.tables.get(&resource).unwrap_or(&self.nothing)
    }

    /// Applies a change and returns the previous object.
    pub(crate) fn put(&mut self, resource: Resource, key: &Key, object: Option<Object>) -> Option<Arc<Object>> {
        if resource == Resource::Pod {
            let is_unassigned = |it: &Object| Cursor::root(it).text("spec.nodeName").is_empty();
            let is_nominated = |it: &Object| !nomination(it).is_empty();
            let repels = |it: &Object| {
                let path = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution";
                !Cursor::root(it).list(path).is_empty()
            };
            let put = |keys: &mut BTreeSet<Key>, is_in: bool| match is_in {
                true => keys.insert(key.clone()),
                false => keys.remove(key),
            };
            put(&mut self.unassigned, object.as_ref().is_some_and(is_unassigned));
            put(&mut self.nominated, object.as_ref().is_some_and(is_nominated));
            put(&mut self.repelling, object.as_ref().is_some_and(repels));
        }
        let table = self.tables.entry(resource).or_default();
        let old = match object {
            Some(mut object) => {
                object.metadata_mut().remove("managedFields");
                table.enter(key, &object, resource);
                table.objects.insert(key.clone(), Arc::new(object))
            }
            None => table.objects.remove(key),
        };
        if let Some(old) = &old {
            table.leave(key, old);
        }
        old
    }

    pub(crate) fn get(&self, resource: Resource, key: &Key) -> Option<&Arc<Object>> {
        self.table(resource).objects.get(key)
    }

    pub(crate) fn find(&self, resource: Resource, namespace: &str, name: &str) -> Option<&Arc<Object>> {
        self.get(resource, &Key::new(namespace, name))
    }

    /// Returns all objects of a resource, in key order.
    pub(crate) fn all(&self, resource: Resource) -> impl Iterator<Item = &Arc<Object>> {
        self.table(resource).objects.values()
    }

    /// Returns the Pods without a node, in key order.
    pub(crate) fn unassigned(&self) -> impl Iterator<Item = &Arc<Object>> {
        let pods = self.table(Resource::Pod);
        self.unassigned.iter().filter_map(|key| pods.objects.get(key))
    }

    /// Returns the Pods without a node that are nominated to a node, in key order.
    pub(crate) fn nominated(&self) -> impl Iterator<Item = &Arc<Object>> {
        let pods = self.table(Resource::Pod);
        self.nominated.iter().filter_map(|key| pods.objects.get(key))
    }

    /// Returns the Pods with required anti-affinity to other Pods, in key order.
    pub(crate) fn repelling(&self) -> impl Iterator<Item = &Arc<Object>> {
        let pods = self.table(Resource::Pod);
        self.repelling.iter().filter_map(|key| pods.objects.get(key))
    }

    /// Returns the unfinished Pods of a node, in key order.
    pub(crate) fn on_node(&self, node: &str) -> impl Iterator<Item = &Arc<Object>> {
        let is_there = move |it: &&Arc<Object>| Cursor::root(it).text("spec.nodeName") == node && !is_finished(it);
        self.all(Resource::Pod).filter(is_there)
    }

    /// Returns the objects in a namespace, in key order.
    pub(crate) fn within(&self, resource: Resource, namespace: &str) -> impl Iterator<Item = &Arc<Object>> {
        let range = KeyRange::of(Some(namespace));
        let first = Key::new(namespace, "");
        let run = self.table(resource).objects.range(first..);
        run.take_while(move |(key, _)| range.contains(key.as_str()))
            .map(|(_, it)| it)
    }

    /// Returns the objects that a controller owns, in key order.
    pub(crate) fn owned_by(&self, resource: Resource, uid: &str) -> impl Iterator<Item = &Arc<Object>> {
        let table = self.table(resource);
        let keys = table.owned.get(uid).into_iter().flatten();
        keys.filter_map(|key| table.objects.get(key))
    }

    /// Returns the objects of a namespace without an owning controller, in key order.
    pub(crate) fn orphans(&self, resource: Resource, namespace: &str) -> impl Iterator<Item = &Arc<Object>> {
        let table = self.table(resource);
        let keys = table.orphans.get(namespace).into_iter().flatten();
        keys.filter_map(|key| table.objects.get(key))
    }

    /// Returns the objects of a namespace that a selector selects, in key order. Only for Pods and EndpointSlices,
    /// because other objects are not indexed by their labels.
    pub(crate) fn selected(&self, resource: Resource, namespace: &str, selector: &LabelSelector) -> Vec<&Arc<Object>> {
        let table = self.table(resource);
        let index = |key: &str, value: &str| {
            table
                .labelled
                .get(&(namespace.to_owned(), key.to_owned(), value.to_owned()))
        };
        // Start with the required label that selects the fewest objects.
        let equal = selector
            .requirements()
            .iter()
            .filter(|it| matches!(it.operator(), LabelOperator::Equals | LabelOperator::In) && it.values().len() == 1);
        let runs = equal.map(|it| index(it.key(), it.values().first().map_or("", String::as_str)));
        let fewest = runs.min_by_key(|it| it.map_or(0, BTreeSet::len));
        let matches = |object: &&Arc<Object>| selects(selector, object);
        match fewest {
            Some(None) => Vec::new(),
            Some(Some(keys)) => keys
                .iter()
                .filter_map(|key| table.objects.get(key))
                .filter(matches)
                .collect(),
            None => self.within(resource, namespace).filter(matches).collect(),
        }
    }
}

/// Returns `true` if a selector selects an object by its labels.
pub(crate) fn selects(selector: &LabelSelector, object: &Object) -> bool {
    let labels = Cursor::root(object.metadata().unwrap_or(&object.0)).map_or_empty("labels");
    selector.matches(|key| labels.get(key).and_then(Value::as_str))
}

impl Table {
    fn enter(&mut self, key: &Key, object: &Object, resource: Resource) {
        match controller_of(object) {
            Some((_, _, uid)) => self.owned.entry(uid.to_owned()).or_default().insert(key.clone()),
            None => self
                .orphans
                .entry(key.namespace().to_owned())
                .or_default()
                .insert(key.clone()),
        };
        if matches!(resource, Resource::Pod | Resource::EndpointSlice) {
            for (label, value) in object.labels() {
                let entry = (key.namespace().to_owned(), label.to_owned(), value.to_owned());
                self.labelled.entry(entry).or_default().insert(key.clone());
            }
        }
    }

    /// Removes the index entries of `old` that do not apply to the current object with this key.
    fn leave(&mut self, key: &Key, old: &Object) {
        let now = self.objects.get(key).cloned();
        let owner = |object: &Object| controller_of(object).map(|(_, _, uid)| uid.to_owned());
        let (was, is) = (owner(old), now.as_ref().map(|it| owner(it)));
        if is.as_ref() != Some(&was) {
            match was {
                Some(uid) => drop_entry(&mut self.owned, &uid, key),
                None => drop_entry(&mut self.orphans, key.namespace(), key),
            }
        }
        if self.labelled.is_empty() {
            return;
        }
        for (label, value) in old.labels() {
            let stays = now
                .as_ref()
                .is_some_and(|now| now.labels().any(|it| it == (label, value)));
            if stays {
                continue;
            }
            let entry = (key.namespace().to_owned(), label.to_owned(), value.to_owned());
            if let Some(keys) = self.labelled.get_mut(&entry) {
                keys.remove(key);
                if keys.is_empty() {
                    self.labelled.remove(&entry);
                }
            }
        }
    }
}

fn drop_entry(index: &mut HashMap<String, BTreeSet<Key>>, name: &str, key: &Key) {
    if let Some(keys) = index.get_mut(name) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(name);
        }
    }
}
