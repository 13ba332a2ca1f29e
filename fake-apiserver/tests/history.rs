//! Compares lists and watches with a model that records all writes: random writes by several clients, with watchers
//! that start at any revision, and compactions. `HOSTILE_TIMES=50` multiplies the number of random inputs by 50.

#[path = "hostile/ask.rs"]
#[allow(dead_code, reason = "the tests of hostile clients use the rest")]
mod ask;
#[path = "hostile/trial.rs"]
mod trial;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ask::{Answer, Ask};
use axum::body::Body;
use fake_apiserver::ApiServer;
use http::Request;
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use serde_json::{Value, json};
use tower::ServiceExt as _;
use trial::try_all;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A random operation.
#[derive(Clone, Debug)]
enum Op {
    Create {
        name: u8,
        label: u8,
        held: bool,
    },
    Update {
        name: u8,
        label: u8,
    },
    Patch {
        name: u8,
        label: u8,
    },
    /// Removes the finalizer.
    Release {
        name: u8,
    },
    Delete {
        name: u8,
    },
    /// A write to another resource, which also uses a revision.
    Elsewhere,
    Compact,
    /// Allows watchers to run.
    Settle,
    /// Starts a watch this many revisions ago.
    Watch {
        back: u8,
        selector: Selector,
    },
    /// Lists the state this many revisions ago.
    ListExact {
        back: u8,
        selector: Selector,
    },
    /// Lists in pages, with a create in between.
    ListPaged {
        limit: u8,
        name: u8,
    },
}

#[derive(Clone, Copy, Debug)]
enum Selector {
    All,
    Label(u8),
    NotLabel(u8),
    Name(u8),
}

impl Selector {
    fn parameter(self) -> String {
        match self {
            Self::All => String::new(),
            Self::Label(label) => format!("&labelSelector=app%3Dl{label}"),
            Self::NotLabel(label) => format!("&labelSelector=app%21%3Dl{label}"),
            Self::Name(name) => format!("&fieldSelector=metadata.name%3Dn{name}"),
        }
    }

    fn matches(self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        match self {
            Self::All => true,
            Self::Label(label) => metadata["labels"]["app"] == format!("l{label}"),
            Self::NotLabel(label) => metadata["labels"]["app"] != format!("l{label}"),
            Self::Name(name) => metadata["name"] == format!("n{name}"),
        }
    }
}

fn op() -> impl Strategy<Value = Op> {
    let (name, label) = (0_u8..5, 0_u8..3);
    let selector = prop_oneof![
        Just(Selector::All),
        label.clone().prop_map(Selector::Label),
        label.clone().prop_map(Selector::NotLabel),
        name.clone().prop_map(Selector::Name),
    ];
    prop_oneof![
        6 => (name.clone(), label.clone(), any::<bool>()).prop_map(|(name, label, held)| Op::Create { name, label, held }),
        4 => (name.clone(), label.clone()).prop_map(|(name, label)| Op::Update { name, label }),
        4 => (name.clone(), label).prop_map(|(name, label)| Op::Patch { name, label }),
        2 => name.clone().prop_map(|name| Op::Release { name }),
        3 => name.clone().prop_map(|name| Op::Delete { name }),
        1 => Just(Op::Elsewhere),
        1 => Just(Op::Compact),
        3 => Just(Op::Settle),
        2 => (0_u8..20, selector.clone()).prop_map(|(back, selector)| Op::Watch { back, selector }),
        1 => (0_u8..20, selector).prop_map(|(back, selector)| Op::ListExact { back, selector }),
        1 => (1_u8..4, name).prop_map(|(limit, name)| Op::ListPaged { limit, name }),
    ]
}

/// A change of an object, with its revision.
#[derive(Debug)]
struct Change {
    revision: u64,
    before: Option<Value>,
    after: Option<Value>,
}

/// A watch, with the lines received so far.
#[derive(Debug)]
struct Watcher {
    start: u64,
    selector: Selector,
    lines: Arc<Mutex<Vec<u8>>>,
}

/// A record of all writes so far.
#[derive(Debug, Default)]
struct Model {
    /// The revision before the first write.
    first: u64,
    now: BTreeMap<String, Value>,
    changes: Vec<Change>,
    /// The revision of the last compaction.
    floor: u64,
    watchers: Vec<Watcher>,
}

impl Model {
    fn at(&self, revision: u64) -> BTreeMap<&str, &Value> {
        let mut objects = BTreeMap::new();
        for change in self.changes.iter().filter(|change| change.revision <= revision) {
            match (&change.before, &change.after) {
                (_, Some(after)) => objects.insert(name_of(after), after),
                (Some(before), None) => objects.remove(name_of(before)),
                (None, None) => None,
            };
        }
        objects
    }

    /// Records the effect of a write, based on its response and its revision.
    fn written(&mut self, server: &ApiServer, name: &str, revision: u64, answer: &Answer) -> Result<(), String> {
        let now = server.resource_version();
        if now == revision {
            return Ok(());
        }
        require(now == revision + 1, || {
            format!("one write took {} revisions", now - revision)
        })?;
        let object = answer.json();
        let before = self.now.get(name).cloned();
        let is_gone = object["kind"] == "Status"
            || object["metadata"]["deletionTimestamp"].is_string() && object["metadata"]["finalizers"].is_null();
        let after = (!is_gone).then_some(object);
        if let Some(after) = &after {
            require(version_of(after) == now, || {
                format!("{after} does not have the revision {now}")
            })?;
            self.now.insert(name.to_owned(), after.clone());
        } else {
            self.now.remove(name);
        }
        self.changes.push(Change {
            revision: now,
            before,
            after,
        });
        Ok(())
    }

    /// Returns the events that a watcher must have received.
    fn expected(&self, watcher: &Watcher) -> Vec<(&'static str, u64, Option<&Value>)> {
        let seen = |object: &Option<Value>| object.as_ref().is_some_and(|object| watcher.selector.matches(object));
        let event = |change: &'_ Change| match (seen(&change.before), seen(&change.after)) {
            (false, true) => Some("ADDED"),
            (true, true) => Some("MODIFIED"),
            (true, false) => Some("DELETED"),
            (false, false) => None,
        };
        let later = self.changes.iter().filter(|change| change.revision > watcher.start);
        later
            .filter_map(|change| Some((event(change)?, change.revision, change.after.as_ref())))
            .collect()
    }

    fn check_watchers(&self) -> Result<(), String> {
        for watcher in &self.watchers {
            self.check_watcher(watcher)
                .map_err(|why| format!("watch {:?} {}: {why}", watcher.selector, watcher.start))?;
        }
        Ok(())
    }

    fn check_watcher(&self, watcher: &Watcher) -> Result<(), String> {
        let text = String::from_utf8_lossy(&watcher.lines.lock().expect("the lock is not poisoned")).into_owned();
        let events: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_default())
            .collect();
        let mut expected = self.expected(watcher).into_iter();
        let mut position = watcher.start;
        for event in events.iter().filter(|event| event["type"] != "BOOKMARK") {
            if event["type"] == "ERROR" {
                require(event["object"]["code"] == 410, || format!("{event}"))?;
                return require(position < self.floor, || {
                    format!("the response is 410, but no change after {position} was compacted")
                });
            }
            let (kind, revision, object) = expected.next().ok_or_else(|| format!("unexpected event: {event}"))?;
            let is_it = event["type"] == kind && version_of(&event["object"]) == revision;
            require(is_it, || format!("expected {kind} {revision}, received {event}"))?;
            let is_same = kind == "DELETED" || object.is_none_or(|object| *object == event["object"]);
            require(is_same, || format!("{event} does not contain {object:?}"))?;
            position = revision;
        }
        match expected.next() {
            None => Ok(()),
            Some((kind, revision, _)) => Err(format!("{kind} {revision} was not delivered")),
        }
    }
}

fn require(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn version_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|it| it.parse().ok())
        .unwrap_or_default()
}

async fn perform(server: &ApiServer, model: &mut Model, op: &Op, number: usize) -> Result<(), String> {
    let revision = server.resource_version();
    let (method, name, content_type, body) = match op {
        Op::Create { name, label, held } => {
            return create(server, model, *name, *label, *held).await;
        }
        Op::Update { name, label } => {
            let mut object = model.now.get(&format!("n{name}")).cloned().unwrap_or_default();
            object["metadata"]["labels"] = json!({"app": format!("l{label}")});
            ("PUT", name, "application/json", object)
        }
        Op::Patch { name, label } => {
            let patch =
                json!({"metadata": {"labels": {"app": format!("l{label}")}}, "data": {"k": number.to_string()}});
            ("PATCH", name, "application/merge-patch+json", patch)
        }
        Op::Release { name } => (
            "PATCH",
            name,
            "application/merge-patch+json",
            json!({"metadata": {"finalizers": null}}),
        ),
        Op::Delete { name } => ("DELETE", name, "application/json", json!({})),
        Op::Elsewhere => {
            let body = json!({"metadata": {"generateName": "s-"}}).to_string();
            let ask = Ask::new("POST", "/api/v1/namespaces/default/secrets", "application/json", body);
            return ask.check(server).await.map(drop);
        }
        Op::Compact => {
            server.compact();
            model.floor = revision;
            return Ok(());
        }
        Op::Settle => {
            tokio::time::sleep(Duration::from_millis(1)).await;
            return Ok(());
        }
        Op::Watch { back, selector } => return watch(server, model, revision, *back, *selector).await,
        Op::ListExact { back, selector } => return list_exact(server, model, revision, *back, *selector).await,
        Op::ListPaged { limit, name } => return list_paged(server, model, *limit, *name).await,
    };
    let ask = Ask::new(method, &format!("{MAPS}/n{name}"), content_type, body.to_string());
    let answer = ask.check(server).await?;
    if answer.code >= 400 {
        let missing = !model.now.contains_key(&format!("n{name}"));
        return require(missing, || format!("{op:?}: {}", answer.message()));
    }
    model.written(server, &format!("n{name}"), revision, &answer)
}

async fn create(server: &ApiServer, model: &mut Model, name: u8, label: u8, held: bool) -> Result<(), String> {
    let revision = server.resource_version();
    let name = format!("n{name}");
    let finalizers = if held { json!(["example.com/held"]) } else { json!(null) };
    let object = json!({"metadata": {"name": name, "labels": {"app": format!("l{label}")}, "finalizers": finalizers}});
    let answer = Ask::new("POST", MAPS, "application/json", object.to_string())
        .check(server)
        .await?;
    let expected = if model.now.contains_key(&name) { 409 } else { 201 };
    require(answer.code == expected, || {
        format!("create {name}: {}", answer.message())
    })?;
    model.written(server, &name, revision, &answer)
}

async fn watch(
    server: &ApiServer,
    model: &mut Model,
    revision: u64,
    back: u8,
    selector: Selector,
) -> Result<(), String> {
    let start = revision.saturating_sub(back.into()).max(model.first);
    let path = format!(
        "{MAPS}?watch=1&resourceVersion={start}&timeoutSeconds=3000{}",
        selector.parameter()
    );
    let request = Request::get(path).body(Body::empty()).map_err(|why| why.to_string())?;
    let Ok(answer) = server.service().oneshot(request).await;
    require(answer.status() == 200, || {
        format!("watch from {start}: {}", answer.status())
    })?;
    let lines = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&lines);
    tokio::spawn(async move {
        let mut body = answer.into_body();
        while let Some(Ok(frame)) = body.frame().await {
            let data = frame.data_ref().map_or(&[][..], |data| data);
            told.lock().expect("the lock is not poisoned").extend_from_slice(data);
        }
    });
    model.watchers.push(Watcher { start, selector, lines });
    Ok(())
}

async fn list_exact(
    server: &ApiServer,
    model: &Model,
    revision: u64,
    back: u8,
    selector: Selector,
) -> Result<(), String> {
    let wanted = revision.saturating_sub(back.into()).max(model.first);
    let parameter = selector.parameter();
    let path = format!("{MAPS}?resourceVersion={wanted}&resourceVersionMatch=Exact{parameter}");
    let answer = Ask::get(&path).check(server).await?;
    if wanted < model.floor {
        return require(answer.code == 410, || {
            format!("{wanted} was compacted, but the response is {}", answer.code)
        });
    }
    require(answer.code == 200, || format!("list at {wanted}: {}", answer.message()))?;
    let mut expected = model.at(wanted);
    expected.retain(|_, object| selector.matches(object));
    same_items(&answer.json(), &expected)
}

async fn list_paged(server: &ApiServer, model: &mut Model, limit: u8, name: u8) -> Result<(), String> {
    let revision = server.resource_version();
    let mut pages = vec![Ask::get(&format!("{MAPS}?limit={limit}")).check(server).await?.json()];
    create(server, model, name, 0, false).await?;
    while let Some(token) = pages.last().and_then(|page| page["metadata"]["continue"].as_str()) {
        let answer = Ask::get(&format!("{MAPS}?limit={limit}&continue={token}"))
            .check(server)
            .await?;
        require(answer.code == 200, || answer.message())?;
        pages.push(answer.json());
    }
    let items: Vec<Value> = pages
        .iter()
        .flat_map(|page| page["items"].as_array().cloned().unwrap_or_default())
        .collect();
    same_items(&json!({"items": items}), &model.at(revision))
}

/// Compares the items of a list, which have no kind.
fn same_items(list: &Value, expected: &BTreeMap<&str, &Value>) -> Result<(), String> {
    let bare = |object: &&Value| {
        let mut object = (*object).clone();
        if let Value::Object(map) = &mut object {
            map.remove("kind");
            map.remove("apiVersion");
        }
        object
    };
    let expected: Value = expected.values().map(bare).collect();
    require(list["items"] == expected, || {
        format!("expected {expected}, received {list}")
    })
}

/// Returns everything that can be compared between servers.
async fn dump(server: &ApiServer) -> Result<(u64, Vec<Value>), String> {
    let mut all = Vec::new();
    for kind in ["Namespace", "ConfigMap", "Secret"] {
        all.extend(server.list("v1", kind, "").await.map_err(|status| status.message)?);
    }
    Ok((server.resource_version(), all))
}

#[test]
fn lists_and_watches_agree_with_the_model() {
    try_all(250, &prop::collection::vec(op(), 1..60), |server, ops| async move {
        let mut model = Model {
            first: server.resource_version(),
            ..Model::default()
        };
        for (number, op) in ops.iter().enumerate() {
            perform(&server, &mut model, op, number).await?;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        model.check_watchers()
    });
}

#[test]
fn forks_and_snapshots_equal_the_original_state() {
    let half = || prop::collection::vec(op(), 0..20);
    try_all(100, &(half(), half()), |server, (before, after)| async move {
        let mut model = Model {
            first: server.resource_version(),
            ..Model::default()
        };
        for (number, op) in before.iter().enumerate() {
            perform(&server, &mut model, op, number).await?;
        }
        let (snapshot, fork, then) = (server.snapshot(), server.fork(), dump(&server).await?);
        require(dump(&fork).await? == then, || "a fork differs".to_owned())?;

        let mut ends = Vec::new();
        for server in [&server, &fork] {
            let mut model = Model {
                now: model.now.clone(),
                floor: model.floor,
                ..Model::default()
            };
            for (number, op) in after.iter().filter(|op| !is_read(op)).enumerate() {
                perform(server, &mut model, op, number).await?;
            }
            ends.push(dump(server).await?);
        }
        require(ends[0] == ends[1], || format!("the following states differ: {ends:?}"))?;

        server.restore(&snapshot);
        require(dump(&server).await? == then, || "a restored server differs".to_owned())?;
        require(dump(&fork).await? == ends[1], || {
            "the fork was restored, too".to_owned()
        })
    });
}

/// Returns `true` if the operation requires the complete history in the model, or advances time, which continues
/// between the two runs.
fn is_read(op: &Op) -> bool {
    match op {
        Op::Watch { .. } | Op::ListExact { .. } | Op::ListPaged { .. } | Op::Settle => true,
        Op::Create { .. } | Op::Update { .. } | Op::Patch { .. } | Op::Release { .. } | Op::Delete { .. } => false,
        Op::Elsewhere | Op::Compact => false,
    }
}
