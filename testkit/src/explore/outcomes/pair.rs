//! `Pair`: two end states, and the objects and fields in which they differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use super::end_state::{EndState, Kept, newest, plain_key};
use super::identities::{Referent, Which, replace};
use super::key::resource_of;
use super::sameness::are_the_same;
use super::unordered::sort;
use super::versions::replace_versions;
use crate::mask::Mask;
use crate::text::shortened;

/// Maximum number of characters of a value in a message.
const VALUE_CHARS: usize = 200;

/// Description of an object that does not exist in the reference.
pub(super) const UNEXPECTED: &str = "unexpected";

/// Prefixes of the keys of objects whose annotations depend on the times of a worker's writes, as in Kubernetes: the
/// annotations of a ControllerRevision are copied from its owner only when it is created, and Endpoints and
/// EndpointSlices contain the time of the change that caused the last write, if there was one. Other kinds are not
/// affected: the annotations of ReplicaSets are copied at each sync, and the annotations of Pods and Jobs are part of a
/// template.
const TIMED: [&str; 3] = [
    "controllerrevisions.apps ",
    "endpoints ",
    "endpointslices.discovery.k8s.io ",
];

/// Metadata fields that always differ between runs, or that only count writes.
const OWN: [&str; 4] = ["resourceVersion", "creationTimestamp", "managedFields", "generation"];

/// The state of the reference, and a state that is compared with it.
pub(crate) struct Pair<'a> {
    states: [&'a EndState; 2],
    mask: &'a Mask,
    /// Numbers that identify the contents of objects with the same key: objects with the same content have the same
    /// number. Computed on first use.
    numbers: OnceLock<Numbers>,
}

/// For each key with several objects: the number of different contents, and the numbers of the objects in each state.
type Numbers = BTreeMap<Arc<str>, (usize, [Vec<usize>; 2])>;

impl<'a> Pair<'a> {
    pub(crate) fn new(states: [&'a EndState; 2], mask: &'a Mask) -> Self {
        Self {
            states,
            mask,
            numbers: OnceLock::new(),
        }
    }

    pub(crate) fn state(&self, side: usize) -> &EndState {
        self.states[side]
    }

    pub(crate) fn mask(&self) -> &Mask {
        self.mask
    }

    /// Lists the differences between the objects of one key in both states.
    pub(crate) fn fields_of_one(&self, key: &str, left: &[Kept], right: &[Kept]) -> Vec<Field> {
        let resource = resource_of(key);
        if left.len() != right.len() {
            let due = self.without_upcoming(left);
            if due.len() < left.len() && due.len() == right.len() {
                return self.fields_of_one(key, &due, right);
            }
            let newest = newest(right).and_then(|it| self.mask.upcoming.get(&plain_key(&it.object)));
            if left.len() < right.len() && newest == Some(&right.len()) {
                return self.fields_of_values(resource, self.sorted(0, key, left), self.sorted(1, key, right));
            }
            let is_masked = self.mask.hides_names(resource);
            if is_masked && self.mask.is_derived {
                let mut sides = [self.sorted(0, key, left), self.sorted(1, key, right)];
                sides.sort_by_key(Vec::len);
                let [fewer, more] = sides;
                return self.fields_of_values(resource, fewer, more);
            }
            let difference = (!is_masked).then(|| Field::whole(number(left.len(), right.len())));
            return difference.into_iter().collect();
        }
        if let ([left], [right]) = (left, right)
            && (left.is_untouched && right.is_untouched || self.are_the_same(left, right))
        {
            return Vec::new();
        }
        self.fields_of_values(resource, self.sorted(0, key, left), self.sorted(1, key, right))
    }

    /// Returns the objects of one key in canonical form.
    fn sorted(&self, side: usize, key: &str, all: &[Kept]) -> Vec<Value> {
        let sorted = all.iter().map(|it| {
            let mut shown = self.shown(side, key, it);
            sort(&it.object, &mut shown, self.states[side].sorts_names);
            shown
        });
        sorted.collect()
    }

    /// Returns the objects that are due before the end of the scenario.
    fn without_upcoming(&self, all: &[Kept]) -> Vec<Kept> {
        let is_due = |it: &&Kept| !self.mask.upcoming.contains_key(&plain_key(&it.object));
        all.iter().filter(is_due).cloned().collect()
    }

    /// Same as `fields_of_one`, for objects in canonical form. `right` must have as many objects as `left`, or more;
    /// objects without a counterpart are ignored.
    pub(crate) fn fields_of_values(&self, resource: &str, left: Vec<Value>, right: Vec<Value>) -> Vec<Field> {
        let unmasked = |left: &Value, right: &Value| {
            let mut fields = Vec::new();
            fields_that_differ("", left, right, &mut fields);
            fields.retain(|it: &Field| match it.is_missing_on_one_side() {
                true => !self.mask.hides_absence(resource, &it.path),
                false => !self.mask.hides(resource, &it.path),
            });
            let changed: BTreeSet<String> = fields.iter().map(|it| it.path.clone()).collect();
            for field in &mut fields {
                let values = field.values.as_ref();
                field.is_copied = values.is_some_and(|(value, _)| stands_elsewhere(left, "", value, &changed));
            }
            fields
        };
        if let ([left], [right]) = (&*left, &*right) {
            return unmasked(left, right);
        }
        // Objects with generated names are interchangeable.
        let mut differences = Vec::new();
        let mut remaining = right;
        for object in left {
            match remaining.iter().position(|other| unmasked(&object, other).is_empty()) {
                Some(at) => drop(remaining.remove(at)),
                None => {
                    let nearest = remaining
                        .iter()
                        .map(|other| unmasked(&object, other))
                        .min_by_key(Vec::len);
                    differences.extend(nearest.unwrap_or_default());
                }
            }
        }
        differences
    }

    /// Returns `true` if two objects are equal and this can be determined without decoding them.
    fn are_the_same(&self, left: &Kept, right: &Kept) -> bool {
        let [one, other] = self.states;
        let means_the_same = |left: &str, right: &str| match (one.identity(left), other.identity(right)) {
            (Some(left), Some(right)) => left == right && one.is_single(&left.key) && other.is_single(&right.key),
            (_, _) => false,
        };
        let has_same_text = match left.object.stored_bytes() == right.object.stored_bytes() {
            true => left.owners().iter().all(|it| means_the_same(it, it)),
            false => are_the_same([&left.object, &right.object], &means_the_same),
        };
        has_same_text && one.mentions(left).iter().all(|it| means_the_same(it, it))
    }

    /// Returns an object without the fields that always differ between runs, and with canonical names for generated
    /// values.
    pub(crate) fn shown(&self, side: usize, key: &str, kept: &Kept) -> Value {
        self.canonical(side, key, kept, &|referent| self.words(side, referent))
    }

    fn canonical(&self, side: usize, key: &str, kept: &Kept, words: &dyn Fn(&Referent) -> String) -> Value {
        let state = self.states[side];
        let mut object = kept.object.value();
        // The owner and the Service, from which the worker derives these objects, are compared as well.
        let are_timed = TIMED.iter().any(|it| key.starts_with(it)) && state.is_derived(kept);
        state.hide_choices(key, &mut object);
        state.hide_rollouts(key, kept, &mut object);
        name_generation(&mut object);
        if let (true, Some(status)) = (key.starts_with("pods "), object.get_mut("status")) {
            remove_container_ids(status);
        }
        let Some(metadata) = object["metadata"].as_object_mut() else {
            return object;
        };
        for field in OWN.iter().chain(&["uid"]) {
            metadata.remove(*field);
        }
        if are_timed {
            metadata.remove("annotations");
        }
        if let Some(time) = metadata.get_mut("deletionTimestamp") {
            *time = "is set".into();
        }
        if let Some(made) = key.split_once('/').map(|(_, name)| name).filter(|it| it.contains('*')) {
            metadata.insert("name".into(), made.into());
        }
        let owners = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut);
        for owner in owners.into_iter().flatten().filter_map(Value::as_object_mut) {
            let is_there = |it: &Value| it.as_str().is_some_and(|it| state.exists(it));
            if !owner.get("uid").is_some_and(is_there) {
                owner.insert("uid".into(), "the uid of an owner that does not exist".into());
            }
        }
        let own = kept.object.uid();
        let words = |referent: &Referent| match state.identity(own) {
            Some(this) if this.key == referent.key && this.which == referent.which => {
                format!("its own {}", referent.what)
            }
            _ => words(referent),
        };
        replace_versions(&mut object, &|| state.versions());
        replace(&mut object, state.identities(), &words);
        object
    }

    /// Describes the object that a token refers to, with the same description on both sides if the object is the same.
    pub(crate) fn words(&self, side: usize, referent: &Referent) -> String {
        let Which::Existing(place) = referent.which else {
            return referent.words(None);
        };
        let [one, other] = self.states;
        if one.is_single(&referent.key) && other.is_single(&referent.key) {
            return referent.words(None);
        }
        let numbers = self.numbers.get_or_init(|| self.count());
        let ordinal = numbers.get(&referent.key).filter(|(contents, _)| *contents > 1);
        referent.words(ordinal.and_then(|(_, numbers)| numbers[side].get(place).copied()))
    }

    /// Assigns numbers to the objects of each key with several objects. Objects with equal contents have the same
    /// number.
    fn count(&self) -> Numbers {
        let keys: BTreeSet<&Arc<str>> = self.states.iter().flat_map(|it| it.keys_of_several()).collect();
        let contents = |side: usize, key: &str| {
            let kept = self.states[side].named(key).iter();
            let contents = kept.map(|it| {
                let mut content = self.canonical(side, key, it, &|referent| referent.words(None));
                sort(&it.object, &mut content, self.states[side].sorts_names);
                let resource = resource_of(key);
                self.mask.remove(resource, "", &mut content);
                content.to_string()
            });
            contents.collect::<Vec<String>>()
        };
        let numbered = keys.into_iter().map(|key| {
            let sides = [contents(0, key), contents(1, key)];
            let all: BTreeSet<&String> = sides.iter().flatten().collect();
            let number = |content: &String| all.iter().take_while(|it| **it < content).count() + 1;
            let numbers = [0, 1].map(|side| sides[side].iter().map(number).collect());
            (Arc::clone(key), (all.len(), numbers))
        });
        numbered.collect()
    }
}

/// Replaces an observed generation in the status of an object with a description if it is the object's generation.
/// Generations count changes of the spec, so they differ between runs.
fn name_generation(object: &mut Value) {
    let generation = object["metadata"]["generation"].clone();
    let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) else {
        return;
    };
    let name = |fields: &mut Map<String, Value>| {
        let observed = fields.get_mut("observedGeneration").filter(|it| **it == generation);
        observed.into_iter().for_each(|it| *it = "its own".into());
    };
    name(status);
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    let conditions = conditions.into_iter().flatten().filter_map(Value::as_object_mut);
    conditions.for_each(name);
}

/// A field that differs.
#[derive(Debug)]
pub(crate) struct Field {
    /// Path of the field; empty for a whole object.
    pub(crate) path: String,
    pub(crate) text: String,
    /// Both values, if the difference is in a field of one object.
    pub(crate) values: Option<(Value, Value)>,
    /// Set if the object also contains the expected value in another field, which does not differ.
    pub(crate) is_copied: bool,
}

impl Field {
    /// Creates a difference in the number of objects.
    pub(crate) fn whole(text: String) -> Self {
        Self::at(String::new(), text)
    }

    /// Returns `true` if only one of two objects has the field.
    pub(super) fn is_missing_on_one_side(&self) -> bool {
        let values = self.values.as_ref();
        values.is_some_and(|(expected, found)| expected.is_null() != found.is_null())
    }

    fn at(path: String, text: String) -> Self {
        Self {
            path,
            text,
            values: None,
            is_copied: false,
        }
    }
}

/// Returns `true` if an object contains a value in a field other than the fields in `places`.
fn stands_elsewhere(object: &Value, path: &str, value: &Value, places: &BTreeSet<String>) -> bool {
    let step = |name: &str| match path {
        "" => name.to_owned(),
        _ => format!("{path}.{name}"),
    };
    match object {
        Value::Object(fields) => fields
            .iter()
            .any(|(name, field)| stands_elsewhere(field, &step(name), value, places)),
        Value::Array(items) => (0..)
            .zip(items)
            .any(|(at, item): (usize, _)| stands_elsewhere(item, &step(&at.to_string()), value, places)),
        leaf => leaf == value && !places.contains(path),
    }
}

/// Describes a difference in the number of objects.
pub(crate) fn number(expected: usize, found: usize) -> String {
    match (expected, found) {
        (1, 0) => "missing".to_owned(),
        (0, 1) => UNEXPECTED.to_owned(),
        _ => format!("expected {expected} objects, found {found}"),
    }
}

/// Returns the keys of the items of a list: their `type` (as in conditions), their `name`, or a similar field.
fn keys(items: &[Value]) -> Option<Vec<&str>> {
    let keys_of = |field: &str| items.iter().map(|it| it[field].as_str()).collect::<Option<Vec<&str>>>();
    let is_unique = |keys: &Vec<&str>| keys.iter().collect::<BTreeSet<_>>().len() == keys.len();
    ["type", "name", "key", "kind", "uid", "id"]
        .into_iter()
        .find_map(|it| keys_of(it).filter(is_unique))
}

/// Returns `true` if the items of two lists have keys, and the two lists have different keys.
fn have_other_keys(expected: &[Value], found: &[Value]) -> bool {
    let sorted = |items: &[Value]| {
        let mut keys: Vec<String> = keys(items)?.into_iter().map(str::to_owned).collect();
        keys.sort();
        Some(keys)
    };
    matches!((sorted(expected), sorted(found)), (Some(expected), Some(found)) if expected != found)
}

/// Compares items that have the same key. Indexes in paths refer to the expected list, followed by unexpected items.
fn by_keys(path: &str, expected: &[Value], found: &[Value], out: &mut Vec<Field>) {
    let (Some(keys_expected), Some(keys_found)) = (keys(expected), keys(found)) else {
        return;
    };
    let step = |place: usize| match path {
        "" => place.to_string(),
        _ => format!("{path}.{place}"),
    };
    let show = |value: &Value| shortened(&value.to_string(), VALUE_CHARS);
    for (place, (key, item)) in keys_expected.iter().zip(expected).enumerate() {
        match keys_found.iter().position(|it| it == key) {
            Some(at) => fields_that_differ(&step(place), item, &found[at], out),
            None => out.push(Field::at(
                step(place),
                format!("expected {}, found no {key:?}", show(item)),
            )),
        }
    }
    let more = keys_found
        .iter()
        .zip(found)
        .filter(|(key, _)| !keys_expected.contains(key));
    for (place, (key, item)) in (expected.len()..).zip(more) {
        let text = format!("expected no {key:?}, found {}", show(item));
        out.push(Field {
            values: Some((Value::Null, item.clone())),
            ..Field::at(step(place), text)
        });
    }
}

fn fields_that_differ(path: &str, expected: &Value, found: &Value, out: &mut Vec<Field>) {
    let step = |name: &str| match path {
        "" => name.to_owned(),
        _ => format!("{path}.{name}"),
    };
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            let names: BTreeSet<&String> = Map::keys(expected).chain(found.keys()).collect();
            for name in names {
                let nothing = Value::Null;
                let (left, right) = (
                    expected.get(name).unwrap_or(&nothing),
                    found.get(name).unwrap_or(&nothing),
                );
                fields_that_differ(&step(name), left, right, out);
            }
        }
        (Value::Array(expected), Value::Array(found)) if have_other_keys(expected, found) => {
            by_keys(path, expected, found, out);
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            for (at, (left, right)) in expected.iter().zip(found).enumerate() {
                fields_that_differ(&step(&at.to_string()), left, right, out);
            }
        }
        _ if expected == found => {}
        _ => {
            let show = |value: &Value| match value {
                Value::Null => "nothing".to_owned(),
                value => shortened(&value.to_string(), VALUE_CHARS),
            };
            let mut text = String::new();
            // Writing to a String does not fail.
            let _ = write!(text, "expected {}, found {}", show(expected), show(found));
            out.push(Field {
                values: Some((expected.clone(), found.clone())),
                ..Field::at(path.to_owned(), text)
            });
        }
    }
}

/// Removes the ids of containers from the status of a Pod, because they are derived from its uid.
fn remove_container_ids(status: &mut Value) {
    for field in [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ] {
        let containers = status.get_mut(field).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            container.remove("containerID");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::TestCluster;
    use crate::explore::outcomes::EndState;
    use crate::mask::Mask;
    use crate::objects::object;
    use crate::work::Work;

    /// With the worker, annotates a StatefulSet before or after its revision is created. Without the worker, creates a
    /// ControllerRevision with or without the annotation.
    async fn annotated(is_early: bool, has_worker: bool) -> EndState {
        let cluster = match has_worker {
            true => TestCluster::builder().workers(fake_apiserver::Worker::ALL).start(),
            false => TestCluster::start(),
        };
        let note = json!({"example.com/made": "yes"});
        let (owner, target) = match has_worker {
            true => (stateful_set(), object("apps/v1", "StatefulSet", "web")),
            false => {
                let revision = || object("apps/v1", "ControllerRevision", "web-1");
                (
                    revision().set("revision", 1).set("data", json!({"size": 1})),
                    revision(),
                )
            }
        };
        if is_early {
            cluster.create(owner.set("metadata.annotations", note)).await;
            cluster.settle().await;
        } else {
            cluster.create(owner).await;
            cluster.settle().await;
            if has_worker {
                cluster.patch(target, json!({"metadata": {"annotations": note}})).await;
            }
        }
        EndState::of(cluster.server(), 0, &Work::default())
    }

    fn stateful_set() -> crate::ObjectBuilder {
        let spec = json!({
            "serviceName": "web", "selector": {"matchLabels": {"app": "web"}}, "replicas": 0,
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}},
        });
        object("apps/v1", "StatefulSet", "web").set("spec", spec)
    }

    async fn pod(name: &str) -> EndState {
        let cluster = TestCluster::start();
        cluster
            .create(crate::objects::pod(name).set("metadata.generateName", "web-"))
            .await;
        EndState::of(cluster.server(), 0, &Work::default())
    }

    /// Creates Pods with generated names and these labels, and returns the end state.
    async fn labels(pods: &[(&str, &str)]) -> EndState {
        let cluster = TestCluster::start();
        for (name, label) in pods {
            let pod = crate::objects::pod(name).set("metadata.generateName", "web-");
            cluster.create(pod.label("hash", label)).await;
        }
        EndState::of(cluster.server(), 0, &Work::default())
    }

    #[tokio::test]
    async fn fields_of_objects_whose_number_differs_between_runs_are_masked() {
        let one = labels(&[("web-b7xzq", "1")]).await;
        let two = labels(&[("web-k2w9d", "2"), ("web-q8m4x", "3")]).await;
        let mask = one.mask(&two, &[], jiff::Timestamp::UNIX_EPOCH);
        let another = labels(&[("web-z5n8v", "4")]).await;
        assert_eq!(one.compare(&another, &mask), [""; 0]);
    }

    #[rstest::rstest]
    #[case::random_suffixes("web-b7xzq", "web-k2w9d", true)]
    #[case::ordinals("web-0", "web-1", false)]
    #[tokio::test]
    async fn names_that_end_with_an_ordinal_are_not_treated_as_generated(
        #[case] one: &str,
        #[case] other: &str,
        #[case] is_same: bool,
    ) {
        let (one, other) = (pod(one).await, pod(other).await);
        assert_eq!(one.compare(&other, &Mask::default()).is_empty(), is_same);
    }

    /// Creates a StatefulSet with this generation and the observed generation `observed`, and returns the end state.
    async fn web(generation: i64, observed: i64) -> EndState {
        let cluster = TestCluster::start();
        let web = || object("apps/v1", "StatefulSet", "web");
        cluster.create(stateful_set().set("spec.replicas", 1)).await;
        for replicas in (1..generation).rev() {
            cluster.patch(web(), json!({"spec": {"replicas": replicas + 1}})).await;
        }
        cluster.patch(web(), json!({"spec": {"replicas": 2}})).await;
        cluster
            .patch_status(web(), json!({"observedGeneration": observed, "replicas": 0}))
            .await;
        EndState::of(cluster.server(), 0, &Work::default())
    }

    #[tokio::test]
    async fn observed_generation_is_compared_with_the_generation() {
        let (two, three, old) = (web(2, 2).await, web(3, 3).await, web(3, 2).await);
        assert_eq!(two.compare(&three, &Mask::default()), [""; 0]);
        assert_ne!(two.compare(&old, &Mask::default()), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn annotations_of_a_revision_created_by_a_worker_are_not_compared() {
        let (early, late) = (annotated(true, true).await, annotated(false, true).await);
        assert_eq!(early.compare(&late, &Mask::default()), [""; 0]);
        let (one, other) = (annotated(true, false).await, annotated(false, false).await);
        assert_ne!(
            one.compare(&other, &Mask::default()),
            [""; 0],
            "the controller under test wrote it"
        );
    }

    /// Creates a Service with a label before or after its endpoints are written.
    async fn labelled(is_early: bool) -> EndState {
        let cluster = TestCluster::builder().workers(fake_apiserver::Worker::ALL).start();
        let service =
            object("v1", "Service", "web").set("spec", json!({"selector": {"app": "web"}, "ports": [{"port": 80}]}));
        let labels = json!({"team": "a"});
        cluster.create(crate::objects::pod("web").label("app", "web")).await;
        if is_early {
            cluster.create(service.set("metadata.labels", labels)).await;
        } else {
            cluster.create(service).await;
            cluster.settle().await;
            cluster
                .patch(object("v1", "Service", "web"), json!({"metadata": {"labels": labels}}))
                .await;
        }
        cluster.settle().await;
        EndState::of(cluster.server(), 0, &Work::default())
    }

    /// Starts a Pod on a server with this seed.
    async fn started(seed: u64) -> EndState {
        let builder = TestCluster::builder().seed(seed);
        let cluster = builder.workers(fake_apiserver::Worker::ALL).start();
        cluster.create(crate::objects::pod("web")).await;
        cluster.settle().await;
        EndState::of(cluster.server(), 0, &Work::default())
    }

    #[tokio::test(start_paused = true)]
    async fn ids_of_containers_are_not_compared() {
        let (one, other) = (started(1).await, started(2).await);
        assert_eq!(one.compare(&other, &Mask::default()), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn annotations_of_endpoints_with_the_time_of_a_change_are_not_compared() {
        let (early, late) = (labelled(true).await, labelled(false).await);
        assert_eq!(early.compare(&late, &Mask::default()), [""; 0]);
    }
}
