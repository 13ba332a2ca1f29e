//! Assertions on the results of controllers (conditions, Events, owners) and on their requests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::Location;
use std::time::Duration;

use fake_apiserver::{Entry, RecordedRequest};
use serde_json::Value;

use crate::filter::Requests;
use crate::report::{Failed, at_the_test, fail};
use crate::target::{ObjectId, Target};
use crate::test_cluster::{TEST_CLIENT, TestCluster};

/// An object and all objects that it owns, from [`TestCluster::owner_tree`]. Its `Display` output has one object per
/// line, indented by two spaces for each level of ownership.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnerTree {
    /// Kind, namespace and name: `Pod shop/web-0`.
    pub object: String,
    /// Objects that this object owns, sorted by kind, namespace and name.
    pub owned: Vec<OwnerTree>,
}

/// Assertions on conditions, Events and owners.
impl TestCluster {
    /// Asserts that an object has a condition with this status in `status.conditions`.
    ///
    /// ```
    /// # use testkit::{TestCluster, objects::pod};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// let status = serde_json::json!({"conditions": [{"type": "Ready", "status": "True"}]});
    /// cluster.create(pod("web-0").status(status)).await;
    /// cluster.assert_condition(pod("web-0"), "Ready", "True");
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If the object does not exist, does not have the condition, or has the condition with a different status. The
    /// message lists all conditions of the object.
    #[track_caller]
    pub fn assert_condition<K>(&self, target: impl Target<K>, condition: &str, status: &str) {
        let id = self.located(&target.id());
        let Some(found) = self.find(&id) else {
            self.fail_about(&id, &format!("there is no {id}"));
        };
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let named = conditions.iter().find(|it| it["type"] == condition);
        if named.is_some_and(|it| it["status"] == status) {
            return;
        }
        let lines: Vec<_> = conditions.iter().map(condition_line).collect();
        let has = match lines.is_empty() {
            true => "it has no conditions".to_owned(),
            false => format!("it has\n  {}", lines.join("\n  ")),
        };
        self.fail_about(
            &id,
            &format!("{id} does not have the condition {condition}={status}; {has}"),
        );
    }

    /// Asserts that an Event with this reason exists for an object, in the core group or in `events.k8s.io`.
    ///
    /// # Panics
    ///
    /// If there is no such Event. The message lists the Events of the object.
    #[track_caller]
    pub fn assert_event<K>(&self, target: impl Target<K>, reason: &str) {
        let id = self.located(&target.id());
        let mut told = Vec::new();
        for event in self.list_all("v1", "Event") {
            let event = event.value();
            let about = &event["involvedObject"];
            let is_about = about["kind"] == *id.kind
                && about["name"] == *id.name
                && about["namespace"].as_str().unwrap_or_default() == id.namespace.as_deref().unwrap_or_default();
            if is_about && event["reason"] == reason {
                return;
            }
            if is_about {
                let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
                told.push(format!("{} {}: {}", text("type"), text("reason"), text("message")));
            }
        }
        let others = match told.is_empty() {
            true => "it has no Events".to_owned(),
            false => format!("there are\n  {}", told.join("\n  ")),
        };
        self.fail(&format!(
            "there is no Event about {id} with the reason {reason}; {others}"
        ));
    }

    /// Returns an object and all objects that it owns, by `metadata.ownerReferences`.
    ///
    /// # Panics
    ///
    /// If the object does not exist.
    #[track_caller]
    pub fn owner_tree<K>(&self, target: impl Target<K>) -> OwnerTree {
        let id = self.located(&target.id());
        let Some(root) = self.find(&id) else {
            self.fail(&format!("there is no {id}"));
        };
        let mut owned: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for object in self.server.objects(&self.server.snapshot()) {
            for uid in owners(&object) {
                owned.entry(uid).or_default().push(object.clone());
            }
        }
        tree(&root, &owned, &mut BTreeSet::new())
    }

    /// Asserts that the tree of an object's owned objects equals `expected`, in the `Display` format of [`OwnerTree`].
    /// Common indentation is ignored.
    ///
    /// ```
    /// # use testkit::{TestCluster, objects::{config_map, pod}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// let web = cluster.create(pod("web-0")).await;
    /// let owner = serde_json::json!([{"apiVersion": "v1", "kind": "Pod", "name": "web-0", "uid": web.uid()}]);
    /// cluster.create(config_map("web-0").set("metadata.ownerReferences", owner)).await;
    /// cluster.assert_owner_tree(pod("web-0"), "
    ///     Pod default/web-0
    ///       ConfigMap default/web-0
    /// ");
    /// cluster.assert_no_orphans();
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If the trees differ. The message contains both.
    #[track_caller]
    pub fn assert_owner_tree<K>(&self, target: impl Target<K>, expected: &str) {
        let found = self.owner_tree(target).to_string();
        let lines: Vec<_> = expected.lines().filter(|it| !it.trim().is_empty()).collect();
        let indent = lines.first().map_or(0, |it| it.len() - it.trim_start().len());
        let expected: String = lines
            .iter()
            .map(|it| format!("{}\n", it.get(indent..).unwrap_or(it.trim_start()).trim_end()))
            .collect();
        if found != expected {
            self.fail(&format!("the owner tree differs; expected:\n{expected}found:\n{found}"));
        }
    }

    /// Asserts that every object with owners has at least one owner that exists, so that the garbage collector would
    /// keep it.
    ///
    /// # Panics
    ///
    /// If all owners of an object are missing. The message lists all such objects.
    #[track_caller]
    pub fn assert_no_orphans(&self) {
        let objects = self.server.objects(&self.server.snapshot());
        let uids: BTreeSet<_> = objects.iter().filter_map(|it| it["metadata"]["uid"].as_str()).collect();
        let is_orphan = |object: &&Value| {
            let owners = owners(object);
            !owners.is_empty() && owners.iter().all(|uid| !uids.contains(uid.as_str()))
        };
        let orphans: Vec<_> = objects
            .iter()
            .filter(is_orphan)
            .map(|it| ObjectId::of(it).to_string())
            .collect();
        if !orphans.is_empty() {
            self.fail(&format!(
                "all owners of these objects are missing: {}",
                orphans.join(", ")
            ));
        }
    }

    /// Settles, and then asserts that no controller or worker changes anything during this virtual time, and that none
    /// of their writes fails. Writes of Leases, and writes that change nothing, are ignored.
    ///
    /// # Panics
    ///
    /// If a controller or worker writes, or if the cluster does not [settle](Self::settle). The message lists the
    /// writes.
    #[track_caller]
    pub fn assert_idle(&self, time: Duration) -> impl Future<Output = ()> {
        let place = Location::caller();
        at_the_test(async move {
            self.settled(place).await?;
            let (total, revision) = (self.journal().total(), self.server.resource_version());
            self.pass(place, tokio::time::Instant::now() + time).await?;
            let entries = self.journal().since(total);
            let writes = entries.iter().filter_map(|entry| match entry {
                Entry::Request(request) if counts(request, revision) => Some(format!("\n  {request}")),
                Entry::Request(_) | Entry::Event(_) => None,
            });
            let lines: String = writes.collect();
            match lines.is_empty() {
                true => Ok(()),
                false => Err(Failed::at(
                    place,
                    &format!("writes after the cluster had settled:{lines}"),
                )),
            }
        })
    }
}

/// Returns `true` if a write of a controller or worker has changed something after `revision`, or has failed.
fn counts(request: &RecordedRequest, revision: u64) -> bool {
    if !request.is_write() || *request.client == *TEST_CLIENT || request.is_for("leases") {
        return false;
    }
    let answer: Value = serde_json::from_slice(&request.answer_bytes()).unwrap_or_default();
    let version = answer["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|it| it.parse::<u64>().ok());
    // The response to a delete may be a Status without a resourceVersion.
    version.is_none_or(|it| it > revision)
}

/// Assertions on the requests of controllers.
impl Requests {
    /// Asserts the number of requests.
    ///
    /// ```
    /// # use testkit::{TestCluster, Verb};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// cluster.requests().on(Verb::List, "pods").assert_count(0);
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If the number differs. The message lists the requests.
    #[track_caller]
    pub fn assert_count(&self, expected: usize) {
        if self.count() != expected {
            let what = format!("expected {expected} requests, found {}", self.count());
            fail(&format!("{what}{}", self.listed()));
        }
    }

    /// Asserts that exactly these writes succeeded, in this order. A write consists of verb, resource and object, such
    /// as `patch pods/status shop/web-0`. Failed writes are ignored.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use kube::Api;
    /// # use testkit::{TestCluster, objects::config_map};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let cluster = TestCluster::start();
    /// # cluster.create(config_map("old")).await;
    /// # let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    /// # let mut new = ConfigMap::default();
    /// # new.metadata.name = Some("new".into());
    /// # maps.create(&Default::default(), &new).await.unwrap();
    /// # maps.delete("old", &Default::default()).await.unwrap();
    /// cluster.requests().assert_writes(&["create configmaps default/new", "delete configmaps default/old"]);
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If the writes differ. The message contains both lists and the requests.
    #[track_caller]
    pub fn assert_writes(&self, expected: &[&str]) {
        let found: Vec<_> = self
            .iter()
            .filter(|it| it.is_write() && (200..300).contains(&it.code))
            .filter_map(write_line)
            .collect();
        if found != expected {
            let both = format!("expected\n  {}\nfound\n  {}", expected.join("\n  "), found.join("\n  "));
            fail(&format!("the writes are not as expected: {both}{}", self.listed()));
        }
    }

    /// Lists the requests for a failure message.
    fn listed(&self) -> String {
        const SHOWN: usize = 20;
        let skipped = self.count().saturating_sub(SHOWN);
        let mut text = match skipped {
            0 => ":".to_owned(),
            more => format!("; the first {more} are omitted:"),
        };
        for request in self.iter().skip(skipped) {
            text += &format!("\n  {:?} {}", &*request.client, request.to_string().trim_start());
        }
        if self.count() == 0 { String::new() } else { text }
    }
}

/// Describes a write: `create pods shop/web-0`.
fn write_line(request: &RecordedRequest) -> Option<String> {
    let info = request.info.as_ref()?;
    let mut name = info.name.clone();
    if name.is_empty() {
        let answer: Value = serde_json::from_slice(&request.answer_bytes()).unwrap_or_default();
        name = answer["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    }
    let mut resource = info.resource.to_string();
    if !info.subresource.is_empty() {
        resource = format!("{resource}/{}", info.subresource);
    }
    let place = match info.namespace.as_str() {
        "" => name,
        namespace => format!("{namespace}/{name}"),
    };
    Some(format!("{} {resource} {place}", info.verb))
}

fn condition_line(condition: &Value) -> String {
    let text = |field: &str| condition[field].as_str().unwrap_or_default();
    let why = [text("reason"), text("message")].join(" ");
    format!("{}={} {}", text("type"), text("status"), why.trim())
        .trim_end()
        .to_owned()
}

fn owners(object: &Value) -> Vec<String> {
    let references = object["metadata"]["ownerReferences"].as_array();
    let uids = references.into_iter().flatten().filter_map(|it| it["uid"].as_str());
    uids.map(str::to_owned).collect()
}

/// Builds the tree below an object. If an object owns itself, directly or indirectly, the tree ends where the object
/// occurs again.
fn tree(object: &Value, owned: &BTreeMap<String, Vec<Value>>, above: &mut BTreeSet<String>) -> OwnerTree {
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let mut children = Vec::new();
    if above.insert(uid.clone()) {
        children.extend(owned.get(&uid).into_iter().flatten().map(|it| tree(it, owned, above)));
        above.remove(&uid);
    }
    children.sort_by(|a, b| a.object.cmp(&b.object));
    OwnerTree {
        object: ObjectId::of(object).to_string(),
        owned: children,
    }
}

impl OwnerTree {
    fn write(&self, depth: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:width$}{}", "", self.object, width = 2 * depth)?;
        self.owned.iter().try_for_each(|it| it.write(depth + 1, f))
    }
}

impl fmt::Display for OwnerTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(0, f)
    }
}
