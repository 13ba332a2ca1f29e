//! `explore_spec`: what users may do to a custom resource, derived from its schema, where nobody wrote a scenario.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use http::Method;
use kube::CustomResourceExt;
use serde::Serialize;
use serde_json::Value;

use super::baseline;
use super::builder::{Explore, explore};
use super::changes::{Change, changes};
use super::cluster::World;
use super::end_state::EndState;
use super::plan::Plan;
use super::references::{self, Referenced};
use super::run::{Config, Outcome, Reference, Role, run};
use super::trace::{Outcome as Answer, What};
use crate::controller::message;
use crate::objects::serialized;
use crate::target::{ObjectId, ToObject};
use crate::test_cluster::{Cause, TEST_CLIENT, TestCluster, lock};

/// The change that restores the spec with which the object was created.
pub(crate) const BACK: &str = "the spec as it was first";

/// Fields that count the changes of a spec, and so differ between a changed object and a fresh one.
const COUNTERS: [&str; 2] = ["status.observedGeneration", "status.conditions.*.observedGeneration"];

/// The object whose spec is changed.
pub(crate) struct Spec {
    object: Value,
    pub(crate) changes: Vec<Change>,
    /// Names of the changes in which an object that the spec refers to is created later; known after the first run.
    late: OnceLock<Vec<String>>,
    /// `documents.example.com default/readme`, as end states have it; without a namespace if the kind has none.
    key: String,
    /// Reference runs made so far: of fresh objects by their text, of sequences by their changes.
    fresh: Mutex<BTreeMap<String, Arc<Reference>>>,
    sequences: Mutex<BTreeMap<Vec<String>, Arc<Reference>>>,
}

/// Explores what users may do to an object of this kind, without faults and with them.
///
/// The schema of the custom resource says what may be changed in the spec of a valid object: numbers to the ends of
/// their range and next to it, texts, each value of an enum, lists by one item more, one less, none and in another
/// order, optional parts removed and added. Each change is made alone, then taken back, then followed by another one;
/// `start` starts the controllers, and the cluster settles after each step. What the server refuses changes nothing.
/// Objects that exist beforehand and whose names are texts in the spec, such as a Secret, are also created after the
/// object instead of before it. Each run is checked for:
///
/// - **path independence**: a changed object leads to the same state as a fresh object with the same spec, unless the
///   server refuses what controllers write for the fresh one;
/// - **recovery**: the first spec restores the first state, whatever happened in between;
/// - **observed generation**: where the status says which generation it describes, it is the newest in the end;
/// - **panics and endless loops**.
///
/// Then each change is made with each single fault. Failures are minimised, replayed and reported as those of
/// [`explore`](fn@explore), with the same options. Fields that the server's own workers derive are not compared;
/// [`ignore`](Explore::ignore) leaves out others.
///
/// ```
/// # use {std::{sync::Arc, time::Duration}, futures::StreamExt};
/// # use {k8s_openapi::api::core::v1::ConfigMap, serde_json::json};
/// # use kube::{Api, Client, CustomResource, Resource, ResourceExt, api::{Patch, PatchParams}};
/// # use kube::runtime::{Controller, controller::Action, watcher};
/// use testkit::{TestCluster, explore::explore_spec};
///
/// #[derive(CustomResource, Clone, Debug, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
/// #[kube(group = "example.com", version = "v1", kind = "Page", namespaced)]
/// struct PageSpec {
///     title: String,
///     footer: Option<String>,
/// }
///
/// # async fn operator(client: Client) {
/// #     let on_error = |_: Arc<Page>, _: &kube::Error, _: Arc<Client>| Action::requeue(Duration::from_secs(5));
/// #     Controller::new(Api::<Page>::all(client.clone()), watcher::Config::default())
/// #         .run(reconcile, on_error, Arc::new(client)).for_each(|_| async {}).await
/// # }
/// /// Its merge patch takes nothing away.
/// async fn reconcile(page: Arc<Page>, client: Arc<Client>) -> Result<Action, kube::Error> {
///     let mut data = json!({"title": page.spec.title});
///     if let Some(footer) = &page.spec.footer {
///         data["footer"] = footer.as_str().into();
///     }
///     let maps = Api::<ConfigMap>::default_namespaced(Client::clone(&client));
///     // …
/// #   let owners = [page.controller_owner_ref(&())];
/// #   let mut map = ConfigMap::default();
/// #   map.metadata.name = Some(page.name_any());
/// #   if maps.get_opt(&page.name_any()).await?.is_none() { maps.create(&Default::default(), &map).await?; }
///     let patch = Patch::Merge(json!({"metadata": {"ownerReferences": owners}, "data": data}));
///     maps.patch(&page.name_any(), &PatchParams::default(), &patch).await?;
///     Ok(Action::await_change())
/// }
///
/// let page = Page::new("home", PageSpec { title: "Home".into(), footer: Some("2026".into()) });
/// let report = explore_spec::<Page>(page, async |cluster: &TestCluster| {
///     cluster.controller("operator", operator);
/// })
/// .report(); // in a test, `run()`
///
/// let failure = report.failure().expect("a footer that is left out stays");
/// assert_eq!(failure.oracle(), "path independence");
/// assert_eq!(failure.plan(), ["change spec.footer: \"2026\" → nothing"]);
/// ```
pub fn explore_spec<K: CustomResourceExt>(
    object: impl ToObject,
    start: impl AsyncFn(&TestCluster) + Send + Sync + 'static,
) -> Explore {
    explore_spec_of(&K::crd(), object, start)
}

/// The same for a CustomResourceDefinition of another version of kube, or one that was read from a file.
///
/// # Panics
///
/// If the definition cannot be written as JSON, or has no schema for the version of the object.
pub fn explore_spec_of(
    definition: &impl Serialize,
    object: impl ToObject,
    start: impl AsyncFn(&TestCluster) + Send + Sync + 'static,
) -> Explore {
    let mut definition = serialized(definition).into_value();
    definition["apiVersion"] = "apiextensions.k8s.io/v1".into();
    definition["kind"] = "CustomResourceDefinition".into();
    let spec = Arc::new(Spec::new(&definition, object.to_object()));
    let operated = Arc::clone(&spec);
    let explored = explore(async move |cluster: &TestCluster| {
        start(cluster).await;
        operate(cluster, &operated).await;
    });
    let cluster = TestCluster::builder().object(serialized(&definition));
    explored.of_spec(spec).cluster(cluster)
}

/// Creates the object and makes the changes of the plan.
async fn operate(cluster: &TestCluster, spec: &Spec) {
    let Some(gate) = &cluster.gate else { return };
    let fresh = gate.plan.fresh.as_deref().map(serde_json::from_str);
    let object = fresh.and_then(Result::ok).unwrap_or_else(|| spec.object.clone());
    let id = ObjectId::of(&object);
    let referenced = Referenced::of(cluster, &object);
    spec.late
        .get_or_init(|| referenced.iter().map(|it| it.change.clone()).collect());
    let is_late = |it: &&Referenced| gate.plan.changes.contains(&it.change);
    for it in referenced.iter().filter(is_late) {
        it.delete(cluster).await;
    }
    rest(cluster).await;
    cluster.create(serialized(&object)).await;
    rest(cluster).await;
    for it in referenced.iter().filter(is_late) {
        it.create(cluster).await;
        rest(cluster).await;
    }
    for name in gate.plan.changes.iter().filter(|it| !references::is_late(it)) {
        let Some(stored) = cluster.try_get::<crate::Object>(serialized(&object)) else {
            return;
        };
        let mut changed = stored.value().clone();
        match spec.changes.iter().find(|it| it.name == *name) {
            Some(change) => change.apply(&mut changed),
            None => changed["spec"] = spec.object["spec"].clone(),
        }
        gate.note(&TEST_CLIENT.into(), 0, format!("the test changes {name}"));
        if let Err(why) = cluster.send(Method::PUT, &id, "", Some(&changed)).await {
            gate.note(&TEST_CLIENT.into(), 0, format!("it is refused: {why}"));
        }
        rest(cluster).await;
    }
}

/// Waits until the cluster is settled, for a limited time: a controller may retry for ever if the spec is unusable.
async fn rest(cluster: &TestCluster) {
    if let Err(payload) = AssertUnwindSafe(cluster.settle()).catch_unwind().await
        && cluster.cause_of(&message(payload.as_ref())) != Some(Cause::Restless)
    {
        resume_unwind(payload);
    }
}

impl Spec {
    fn new(definition: &Value, object: Value) -> Self {
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let named = api_version.rsplit('/').next();
        let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
        let schemas = versions.filter(|it| it["name"].as_str() == named);
        let mut schemas = schemas.map(|it| &it["schema"]["openAPIV3Schema"]);
        let kind = &definition["spec"]["names"]["kind"];
        let schema = schemas.next().filter(|it| it.is_object());
        let schema = schema.unwrap_or_else(|| panic!("the definition of {kind} has no schema for {api_version:?}"));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let namespace = match definition["spec"]["scope"] == "Cluster" {
            true => String::new(),
            false => object["metadata"]["namespace"].as_str().unwrap_or("default").to_owned(),
        };
        let (plural, group) = (
            text(&definition["spec"]["names"]["plural"]),
            text(&definition["spec"]["group"]),
        );
        Self {
            changes: changes(schema, &object),
            late: OnceLock::new(),
            key: format!("{plural}.{group} {namespace}/{}", text(&object["metadata"]["name"])),
            object,
            fresh: Mutex::default(),
            sequences: Mutex::default(),
        }
    }

    pub(crate) fn has(&self, change: &str) -> bool {
        change == BACK || self.names().any(|it| it == change)
    }

    /// The names of all changes but [`BACK`]: those of fields, then objects that come late.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let late = self.late.get().into_iter().flatten();
        self.changes.iter().map(|it| &it.name).chain(late).map(String::as_str)
    }

    /// The object at the end of a run.
    fn object_in(&self, end: &EndState) -> Option<Value> {
        end.named(&self.key).first().map(|it| it.object.value())
    }

    /// Returns the reason why the generation that the status describes is not the newest.
    pub(crate) fn unobserved(&self, end: &EndState) -> Option<String> {
        let object = self.object_in(end)?;
        let generation = object["metadata"]["generation"].as_i64()?;
        let status = &object["status"];
        let own = [("status.observedGeneration".to_owned(), &status["observedGeneration"])];
        let conditions = status["conditions"].as_array().into_iter().flatten().map(|it| {
            let name = it["type"].as_str().unwrap_or_default();
            (
                format!("observedGeneration of the condition {name}"),
                &it["observedGeneration"],
            )
        });
        let mut observed = own.into_iter().chain(conditions);
        observed.find_map(|(name, observed)| {
            let observed = observed.as_i64().filter(|it| *it != generation)?;
            Some(format!(
                "{}: {name} is {observed}, and the generation is {generation}",
                self.key.replace(" /", " ")
            ))
        })
    }

    /// Returns the reference run of a sequence of changes without faults, or the run that fails.
    pub(crate) fn sequence(
        &self,
        config: &Config,
        world: &World,
        changes: &[String],
        took: &mut Duration,
    ) -> Result<Arc<Reference>, Box<Outcome>> {
        if let Some(known) = lock(&self.sequences).get(changes) {
            return Ok(Arc::clone(known));
        }
        let plan = Plan {
            changes: changes.to_vec(),
            ..Plan::default()
        };
        let made = Arc::new(self.made(config, world, &plan, took)?);
        lock(&self.sequences).insert(changes.to_vec(), Arc::clone(&made));
        Ok(made)
    }

    /// Returns the reference run of an object created with the last spec of a sequence; `None` if it is deleted by
    /// then.
    fn fresh(
        &self,
        config: &Config,
        world: &World,
        end: &EndState,
        took: &mut Duration,
    ) -> Option<Result<Arc<Reference>, Box<Outcome>>> {
        let mut object = self.object.clone();
        object["spec"] = self.object_in(end)?["spec"].clone();
        let text = object.to_string();
        if let Some(known) = lock(&self.fresh).get(&text) {
            return Some(Ok(Arc::clone(known)));
        }
        let plan = Plan {
            fresh: Some(text.clone()),
            ..Plan::default()
        };
        let made = match self.made(config, world, &plan, took) {
            Ok(made) => Arc::new(made),
            Err(failed) => return Some(Err(failed)),
        };
        lock(&self.fresh).insert(text, Arc::clone(&made));
        Some(Ok(made))
    }

    fn made(
        &self,
        config: &Config,
        world: &World,
        plan: &Plan,
        took: &mut Duration,
    ) -> Result<Reference, Box<Outcome>> {
        let mut first = run(config, world, plan, Role::Usual, None);
        if !first.violations.is_empty() {
            *took += first.took;
            return Err(Box::new(first));
        }
        let other = run(config, world, plan, Role::Other, None);
        let ignored: Vec<String> = config
            .ignored
            .iter()
            .cloned()
            .chain(COUNTERS.map(str::to_owned))
            .collect();
        let mut mask = first.end.mask(&other.end, &ignored, config.began);
        baseline::rest(config, world, plan, &ignored, (&mut first, &mut mask));
        *took += first.took + other.took;
        Ok(Reference {
            mask,
            outcome: first,
            milestones: Arc::default(),
        })
    }
}

/// Makes a run and compares it with its reference, which is returned as well: `base`, unless the plan changes the spec.
pub(crate) fn judged(config: &Config, world: &World, plan: &Plan, base: &Arc<Reference>) -> (Outcome, Arc<Reference>) {
    let spec = config.spec.as_ref().filter(|_| !plan.changes.is_empty());
    let Some(spec) = spec else {
        return (run(config, world, plan, Role::Usual, Some(base)), Arc::clone(base));
    };
    let mut took = Duration::ZERO;
    let sequence = match spec.sequence(config, world, &plan.changes, &mut took) {
        Ok(sequence) => sequence,
        Err(failed) => return (*failed, Arc::clone(base)),
    };
    let reference = match plan.is_sequence() {
        true => match spec.fresh(config, world, &sequence.outcome.end, &mut took) {
            Some(Ok(fresh)) if !is_unhealthy(&fresh) => fresh,
            // With an unusable spec the earlier state may stay.
            Some(_) | None => sequence,
        },
        false => sequence,
    };
    let mut outcome = run(config, world, plan, Role::Usual, Some(&reference));
    outcome.took += took;
    (outcome, reference)
}

/// Returns `true` if the server refuses writes of controllers for a fresh object: the spec fits the schema and is
/// unusable all the same.
fn is_unhealthy(fresh: &Reference) -> bool {
    fresh.outcome.trace.iter().any(|step| match &step.what {
        What::Request(request) => request.is_write() && matches!(request.outcome, Answer::Answered(400 | 403 | 422)),
        What::Event { .. } | What::Call { .. } | What::Note(_) => false,
    })
}
