//! Changes that are derived from the schema of a custom resource: each oracle finds its bug, and is silent on the twin.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
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
use testkit::objects::config_map;

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
    /// Into how many parts it is cut.
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
    /// With it the name is no name of a ConfigMap.
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
    /// A footer that is left out stays.
    Merges,
    /// A page that was switched off once stays so.
    StaysOff,
    DividesByNothing,
    /// The status names the first generation for ever.
    ObservesOnce,
    /// It says that it is done before it has cleaned up.
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

const BACK: &str = "change the spec as it was first";

#[rstest]
#[case::a_part_that_is_left_out(
    Bug::Merges, "path independence", &[r#"change spec.footer: "about" → nothing"#],
)]
#[case::a_way_back(Bug::StaysOff, "recovery", &[r#"change spec.mode: "On" → "Off""#, BACK])]
#[case::the_end_of_a_range(Bug::DividesByNothing, "no panic", &["change spec.parts: 3 → 0"])]
#[case::a_status_that_is_old(
    Bug::ObservesOnce, "observed generation", &[r#"change spec.footer: "about" → "about2""#],
)]
#[case::with_a_fault(
    Bug::CleansUpLast, "end state",
    &[
        r#"change spec.mode: "On" → "Off""#,
        "crash operator after patch pages.example.com/status default/home (number 3); it restarts 1ms later",
    ],
)]
fn each_oracle_finds_its_bug(#[case] bug: Bug, #[case] oracle: &str, #[case] plan: &[&str]) {
    let report = explored(Some(bug)).report();
    let failure = report.failure().expect("there is one");
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
fn the_twin_raises_no_alarm() {
    let report = explored(None).run();
    let (tried, all) = report.coverage().changes;
    assert!(tried == all && all > 10, "{report}");
}

/// Copies the ConfigMap that a page names.
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
    let page = Page::new("home", serde_json::from_value(spec).expect("it is a spec"));
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
fn what_a_spec_names_may_come_after_the_object() {
    let report = copied(false).report();
    let failure = report.failure().expect("there is one");
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
fn a_controller_that_looks_again_raises_no_alarm() {
    let report = copied(true).run();
    let (tried, all) = report.coverage().changes;
    assert!(tried == all && all > 10, "{report}");
}

#[test]
fn an_oracle_can_be_taken_out() {
    let report = explored(Some(Bug::ObservesOnce))
        .without(Oracle::ObservedGeneration)
        .schedules(20)
        .report();
    assert!(report.is_success(), "{report}");
}

#[test]
fn a_replay_of_a_change_that_is_none_fails() {
    let report = explored(None).replay("change=spec.colour:%20red").report();
    let what = report.failure().map(|it| it.what().to_owned());
    assert_eq!(
        what.as_deref(),
        Some(r#"the schema and the object lead to no change "spec.colour: red""#),
        "{report}"
    );
}
