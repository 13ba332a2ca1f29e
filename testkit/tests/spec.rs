//! Changes derived from the schema of a custom resource: each oracle finds its bug, and reports nothing for the healthy
//! twin.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, CustomResource, Resource, ResourceExt};
use rstest::rstest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use testkit::TestCluster;
use testkit::explore::{Explore, Oracle, explore_spec};
use testkit::objects::{config_map, object};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Page",
    namespaced,
    status = "PageStatus"
)]
struct PageSpec {
    title: String,
    footer: Option<String>,
    #[serde(default)]
    mode: Mode,
    /// Number of parts.
    #[schemars(range(max = 12))]
    parts: u32,
    /// The name of the ConfigMap.
    #[schemars(regex(pattern = "^[a-z0-9-]+$"))]
    target: String,
    #[serde(default)]
    suffix: Suffix,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
enum Mode {
    #[default]
    On,
    Off,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
enum Suffix {
    #[default]
    None,
    /// With this suffix, the name is not a valid name of a ConfigMap.
    Wrong,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PageStatus {
    mode: Option<Mode>,
    current: Option<String>,
    observed_generation: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// A removed footer is kept.
    Merges,
    /// A page that was disabled once stays disabled.
    StaysOff,
    DividesByNothing,
    /// The status contains the first generation forever.
    ObservesOnce,
    /// The controller reports completion before it has cleaned up.
    CleansUpLast,
}

async fn reconcile(page: Arc<Page>, context: Arc<(Client, Option<Bug>)>) -> Result<Action, kube::Error> {
    let (client, bug) = &*context;
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    let (spec, status) = (&page.spec, page.status.clone().unwrap_or_default());
    let has = |it: Bug| *bug == Some(it);
    if has(Bug::StaysOff) && status.mode == Some(Mode::Off) {
        return Ok(Action::await_change());
    }
    let parts = match spec.parts {
        0 if !has(Bug::DividesByNothing) => 0,
        parts => 12 / parts,
    };
    let target = match spec.suffix {
        Suffix::None => spec.target.clone(),
        Suffix::Wrong => format!("{}-", spec.target),
    };
    let mut current = None;
    if spec.mode == Mode::On {
        let mut data = json!({"title": spec.title, "parts": parts.to_string()});
        if let Some(footer) = &spec.footer {
            data["footer"] = footer.as_str().into();
        }
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": target, "ownerReferences": [page.controller_owner_ref(&())]},
        });
        match has(Bug::Merges) && maps.get_opt(&target).await?.is_some() {
            true => maps.patch(&target, &PatchParams::default(), &Patch::Merge(map)).await?,
            false => {
                let params = PatchParams::apply("pages").force();
                maps.patch(&target, &params, &Patch::Apply(map)).await?
            }
        };
        current = Some(target);
    }
    let observed = match (has(Bug::ObservesOnce), status.observed_generation) {
        (true, Some(first)) => Some(first),
        (_, _) => page.metadata.generation,
    };
    let now = json!({"mode": spec.mode, "current": current, "observedGeneration": observed});
    let is_said = json!({
        "mode": status.mode, "current": status.current, "observedGeneration": status.observed_generation,
    }) == now;
    let pages = Api::<Page>::default_namespaced(client.clone());
    let say = async || match is_said {
        true => Ok(()),
        false => {
            let patch = Patch::Merge(json!({"status": now}));
            pages
                .patch_status(&page.name_any(), &PatchParams::default(), &patch)
                .await
                .map(drop)
        }
    };
    if has(Bug::CleansUpLast) {
        say().await?;
    }
    if let Some(former) = status.current.filter(|it| Some(it) != current.as_ref()) {
        match maps.delete(&former, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            deleted => drop(deleted?),
        }
    }
    say().await?;
    Ok(Action::await_change())
}

async fn operator(client: Client, bug: Option<Bug>) {
    let on_error =
        |_: Arc<Page>, _: &kube::Error, _: Arc<(Client, Option<Bug>)>| Action::requeue(Duration::from_secs(5));
    Controller::new(Api::<Page>::all(client.clone()), watcher::Config::default())
        .owns(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .run(reconcile, on_error, Arc::new((client, bug)))
        .for_each(|_| async {})
        .await;
}

fn explored(bug: Option<Bug>) -> Explore {
    let spec = PageSpec {
        title: "Home".into(),
        footer: Some("about".into()),
        mode: Mode::On,
        parts: 3,
        target: "main".into(),
        suffix: Suffix::None,
    };
    explore_spec::<Page>(Page::new("home", spec), async move |cluster: &TestCluster| {
        cluster.controller("operator", move |client| operator(client, bug));
    })
    .budget(Duration::from_secs(600))
    .schedules(if cfg!(debug_assertions) { 150 } else { 2_000 })
}

const BACK: &str = "change the spec back to its initial value";

#[rstest]
#[case::removed_part_stays(
    Bug::Merges, "path independence", &[r#"change spec.footer: "about" → nothing"#],
)]
#[case::value_does_not_return(Bug::StaysOff, "recovery", &[r#"change spec.mode: "On" → "Off""#, BACK])]
#[case::division_by_zero(Bug::DividesByNothing, "no panic", &["change spec.parts: 3 → 0"])]
#[case::old_observed_generation(
    Bug::ObservesOnce, "observed generation", &[r#"change spec.footer: "about" → "about2""#],
)]
#[case::interrupted_cleanup(
    Bug::CleansUpLast, "end state",
    &[
        r#"change spec.mode: "On" → "Off""#,
        "crash operator after patch pages.example.com/status default/home (number 3); it restarts 1ms later",
    ],
)]
fn each_oracle_finds_its_bug(#[case] bug: Bug, #[case] oracle: &str, #[case] plan: &[&str]) {
    let report = explored(Some(bug)).report();
    let failure = report.failure().expect("the exploration fails");
    assert_eq!(
        (failure.oracle(), &*failure.plan()),
        (oracle, &*plan.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()),
        "{report}"
    );
    let again = explored(Some(bug)).replay(&failure.replay()).times(3).report();
    assert_eq!(again.failure().map(|it| it.plan()), Some(failure.plan()), "{again}");
    assert_eq!(again.nondeterminism(), [""; 0]);
}

#[test]
fn fixed_variant_passes_explore_spec() {
    let report = explored(None).run();
    let (tried, all) = report.coverage().changes;
    assert!(tried == all && all > 10, "{report}");
}

/// Copies the ConfigMap that a page refers to.
async fn copy(page: Arc<Page>, context: Arc<(Client, bool)>) -> Result<Action, kube::Error> {
    let (client, retries) = &*context;
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    let Some(source) = maps.get_opt(&page.spec.target).await? else {
        match maps.delete(&page.name_any(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            deleted => drop(deleted?),
        }
        return Ok(match retries {
            true => Action::requeue(Duration::from_secs(30)),
            false => Action::await_change(),
        });
    };
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": source.data,
        "metadata": {"name": page.name_any(), "ownerReferences": [page.controller_owner_ref(&())]},
    });
    let params = PatchParams::apply("pages").force();
    maps.patch(&page.name_any(), &params, &Patch::Apply(map)).await?;
    Ok(Action::await_change())
}

fn copied(retries: bool) -> Explore {
    let spec = json!({"title": "Home", "parts": 1, "target": "main"});
    let page = Page::new("home", serde_json::from_value(spec).expect("the spec is valid"));
    explore_spec::<Page>(page, async move |cluster: &TestCluster| {
        cluster.create(config_map("main").data("text", "welcome")).await;
        cluster.controller("copier", move |client| {
            let on_error = |_: Arc<Page>, _: &kube::Error, _: Arc<(Client, bool)>| Action::await_change();
            Controller::new(Api::<Page>::all(client.clone()), watcher::Config::default())
                .run(copy, on_error, Arc::new((client, retries)))
                .for_each(|_| async {})
        });
    })
    .budget(Duration::from_secs(600))
    .schedules(30)
}

#[test]
fn referenced_object_may_be_created_after_the_object() {
    let report = copied(false).report();
    let failure = report.failure().expect("the exploration fails");
    let plan = ["change configmaps default/main: before → after the object".to_owned()];
    assert_eq!(
        (failure.oracle(), &*failure.plan()),
        ("path independence", &plan[..]),
        "{report}"
    );
    let again = copied(false).replay(&failure.replay()).report();
    assert_eq!(again.failure().map(|it| it.plan()), Some(failure.plan()), "{again}");
}

#[test]
fn controller_that_reads_references_again_passes() {
    let report = copied(true).run();
    let (tried, all) = report.coverage().changes;
    assert!(tried == all && all > 10, "{report}");
}

#[test]
fn spec_oracle_can_be_disabled() {
    let report = explored(Some(Bug::ObservesOnce))
        .without(Oracle::ObservedGeneration)
        .schedules(20)
        .report();
    assert!(report.is_success(), "{report}");
}

#[test]
fn replay_fails_for_an_unknown_change() {
    let report = explored(None).replay("change=spec.colour:%20red").report();
    let what = report.failure().map(|it| it.what().to_owned());
    assert_eq!(
        what.as_deref(),
        Some(r#"the schema and the object do not permit the change "spec.colour: red""#),
        "{report}"
    );
}

/// Each field is changed once before any field is changed twice, so that a short search covers all fields.
#[test]
fn each_field_is_changed_once_before_any_is_changed_again() {
    const FIELDS: [&str; 6] = ["title", "footer", "mode", "parts", "target", "suffix"];
    let initial = explored(None);
    let explore = FIELDS.into_iter().fold(initial, |explore, field| {
        explore.sometimes(field, move |c: &TestCluster| {
            let page = c.try_get::<testkit::Object>(object("example.com/v1", "Page", "home"));
            let spec = page.map_or(json!(null), |it| it.value()["spec"].clone());
            let first = json!({
                "title": "Home", "footer": "about", "mode": "On", "parts": 3, "target": "main", "suffix": "None",
            });
            !spec.is_null() && spec[field] != first[field]
        })
    });
    let report = explore.schedules(FIELDS.len() as u64).report();
    assert_eq!(report.to_json()["never"], json!([]), "{report}");
}

#[test]
fn untried_spec_changes_and_sequences_are_counted_and_may_fail_the_report() {
    let report = explored(None).schedules(6).require_all_singles().report();
    let (tried, all) = report.coverage().changes;
    assert!(tried == 6 && all > 6, "{report}");
    let sequences = report.coverage().all_sequences;
    assert!(report.failure().is_none() && !report.is_success(), "{report}");
    let text = report.to_string();
    assert!(text.contains(&format!("6 of {all} changes, 0 of ")), "{text}");
    let lacks = format!("error: {} changes and ", all - tried);
    assert!(text.contains(&lacks) && text.contains("sequences of changes"), "{text}");
    assert!(
        sequences > all,
        "each change is reverted and followed by another one: {report}"
    );
}

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Door", namespaced)]
struct DoorSpec {
    ports: Vec<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doors {
    /// Sends any ports to the server.
    Sends,
    /// Leaves the Service unchanged if the ports are not unique.
    Refuses,
}

/// Applies a Service with the ports of a door. The bug keeps the existing ports as well.
async fn open_door(door: Arc<Door>, context: Arc<(Client, Doors, bool)>) -> Result<Action, kube::Error> {
    let (client, doors, keeps_ports) = &*context;
    let services = Api::<Service>::default_namespaced(client.clone());
    let mut ports = door.spec.ports.clone();
    let is_unique = |ports: &[u16]| ports.iter().collect::<std::collections::BTreeSet<_>>().len() == ports.len();
    if *doors == Doors::Refuses && (ports.is_empty() || !is_unique(&ports)) {
        return Ok(Action::await_change());
    }
    if *keeps_ports && let Some(service) = services.get_opt(&door.name_any()).await? {
        let former = service.spec.and_then(|it| it.ports).unwrap_or_default();
        let former = former.iter().filter_map(|it| u16::try_from(it.port).ok());
        ports.extend(former.filter(|it| !door.spec.ports.contains(it)));
    }
    let ports: Vec<_> = ports
        .iter()
        .map(|it| json!({"name": format!("p{it}"), "port": it, "protocol": "TCP"}))
        .collect();
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "spec": {"ports": ports},
        "metadata": {"name": door.name_any(), "ownerReferences": [door.controller_owner_ref(&())]},
    });
    let params = PatchParams::apply("doors").force();
    services
        .patch(&door.name_any(), &params, &Patch::Apply(service))
        .await?;
    Ok(Action::await_change())
}

fn doors(doors: Doors, keeps_ports: bool) -> Explore {
    let door = Door::new("front", DoorSpec { ports: vec![80, 81] });
    explore_spec::<Door>(door, async move |cluster: &TestCluster| {
        cluster.controller("doors", move |client| {
            let on_error =
                |_: Arc<Door>, _: &kube::Error, _: Arc<(Client, Doors, bool)>| Action::requeue(Duration::from_secs(60));
            Controller::new(Api::<Door>::all(client.clone()), watcher::Config::default())
                .run(open_door, on_error, Arc::new((client, doors, keeps_ports)))
                .for_each(|_| async {})
        });
    })
    .budget(Duration::from_secs(600))
    .schedules(60)
}

/// The server responds with 500 to duplicate keys in an applied list, and the earlier Service remains.
#[rstest]
#[case::refused_by_the_server(Doors::Sends)]
#[case::refused_by_the_controller(Doors::Refuses)]
fn refused_value_may_keep_the_last_valid_state(#[case] who: Doors) {
    doors(who, false).run();
}

#[rstest]
#[case::refused_by_the_server(Doors::Sends)]
#[case::refused_by_the_controller(Doors::Refuses)]
fn unchanged_ports_are_found_despite_refused_values(#[case] who: Doors) {
    let report = doors(who, true).report();
    let failure = report.failure().expect("the exploration fails");
    assert_eq!(failure.oracle(), "path independence", "{report}");
    assert!(failure.what().contains("spec.ports"), "{report}");
}

#[test]
fn report_lists_the_kinds_of_faults_that_were_not_tried() {
    let all = copied(true).schedules(1).report().coverage().changes.1;
    let report = copied(true).schedules(2 * all).report();
    let tried = report.coverage().singles;
    assert!(
        report.failure().is_none() && tried.0 > 0 && tried.0 < tried.1,
        "{report}"
    );
    let text = report.to_string();
    assert!(text.contains("single faults were not tried (untried kinds: "), "{text}");
}
