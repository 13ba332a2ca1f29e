//! The trace viewer in a real browser: the trace of a failing test, and the journal of a server.
//!
//! Opt-in like the other browser tests: `DRYDOCK_BROWSER` is the path of a Chromium executable.

use std::path::PathBuf;

use fake_apiserver::trace::{Change, Failure, Group, Log, Row, Run, Step, StepKind, Tone, Trace, Version};
use serde_json::{Value, json};

use crate::common::{Server, folder};
use crate::devtools::Tab;
use crate::{ask, assert_documented, control, create_map};

const VOLUME: &str = "volumes.shop.example shop/data";

/// Returns a step of a client at a time in milliseconds.
fn step(at: u32, client: &str, text: &str) -> Step {
    Step {
        at: f64::from(at) / 1000.0,
        client: client.to_owned(),
        text: text.to_owned(),
        outcome: "200".to_owned(),
        ..Step::default()
    }
}

fn write(at: u32, client: &str, text: &str, revision: u64, change: (&str, Value, Value)) -> Step {
    let (path, before, after) = change;
    Step {
        object: VOLUME.to_owned(),
        is_write: true,
        revision,
        state: revision,
        group: (client == "operator").then_some(0),
        changes: vec![Change {
            path: path.to_owned(),
            before: Some(before).filter(|it| !it.is_null()),
            after: Some(after),
        }],
        ..step(at, client, text)
    }
}

fn version(revision: u64, step: usize, by: &str, phase: &str) -> Version {
    Version {
        revision,
        step: Some(step),
        by: by.to_owned(),
        value: Some(json!({
            "apiVersion": "shop.example/v1", "kind": "Volume",
            "metadata": {"name": "data", "namespace": "shop"},
            "spec": {"node": "node-1", "size": "10Gi"}, "status": {"phase": phase},
        })),
        ..Version::default()
    }
}

/// Returns a run of a controller that sets a phase in two steps; in the failing run it crashes between them.
fn run(fails: bool) -> Run {
    let patch = "PATCH volumes.shop.example/status shop/data";
    let phase = |before: &str, after: &str| ("status.phase", json!(before), json!(after));
    let mut steps = vec![
        write(
            0,
            "the test",
            &format!("CREATE {VOLUME}"),
            11,
            ("spec.size", Value::Null, json!("10Gi")),
        ),
        Step {
            kind: StepKind::Event,
            object: VOLUME.to_owned(),
            revision: 11,
            state: 11,
            outcome: String::new(),
            ..step(1, "operator", &format!("ADDED {VOLUME}"))
        },
        write(2, "operator", patch, 12, phase("", "Progressing")),
    ];
    for number in 0..12 {
        steps.push(Step {
            is_read: true,
            state: 12,
            ..step(10 + number, "kubelet", &format!("GET nodes node-{number}"))
        });
    }
    let mut versions = vec![
        version(11, 0, "the test", ""),
        version(12, 2, "operator", "Progressing"),
    ];
    if fails {
        steps.push(Step {
            kind: StepKind::Note,
            is_fault: true,
            tone: Tone::Failed,
            state: 12,
            ..step(500, "operator", "crashes")
        });
    } else {
        steps.push(write(500, "operator", patch, 13, phase("Progressing", "Ready")));
        versions.push(version(13, steps.len() - 1, "operator", "Ready"));
    }
    Run {
        name: if fails { "failing run" } else { "reference run" }.to_owned(),
        groups: vec![Group {
            client: "operator".to_owned(),
            name: "reconcile Volume shop/data".to_owned(),
            reason: "object updated".to_owned(),
            is_certain: true,
        }],
        logs: vec![Log {
            at: 0.002,
            step: 2,
            group: Some(0),
            level: "INFO".to_owned(),
            target: "operator::volume".to_owned(),
            text: "attaching node=node-1".to_owned(),
        }],
        objects: [(VOLUME.to_owned(), versions)].into(),
        steps,
        left_out: String::new(),
    }
}

/// Returns two runs that differ in the sixteenth step.
fn trace() -> Trace {
    let same = |at: usize| Row {
        left: Some(at),
        right: Some(at),
        same: true,
    };
    let [left, right] = [(Some(15), None), (None, Some(15))].map(|(left, right)| Row {
        left,
        right,
        same: false,
    });
    Trace {
        title: "shop::a_volume_becomes_ready".to_owned(),
        headline: "status.phase of volumes shop/data is Progressing in the end, and Ready in the reference run"
            .to_owned(),
        failures: vec![Failure {
            headline:
                "status.phase of volumes shop/data is Progressing in the end, and Ready in the reference run; it \
                       takes: operator crashes after PATCH volumes/status shop/data"
                    .to_owned(),
            oracle: "end state".to_owned(),
            what: "volumes.shop.example shop/data status.phase: left: Ready, right: Progressing".to_owned(),
            plan: vec!["operator crashes after PATCH volumes.shop.example/status shop/data".to_owned()],
            replay: Some("crash-after=1000@operator:patch:volumes#1".to_owned()),
            command: Some("EXPLORE_REPLAY='crash-after=1000@operator:patch:volumes#1' cargo test".to_owned()),
            reference: Some(0),
            failing: 1,
            rows: (0..15).map(same).chain([left, right]).collect(),
            first: 15,
            ..Failure::default()
        }],
        runs: vec![run(false), run(true)],
        facts: vec![(
            "explored".to_owned(),
            "213 of 213 single faults, 40 of 40 pairs, 1.2s".to_owned(),
        )],
        ..Trace::default()
    }
}

/// Returns a run with a final loop of 4,000 steps.
fn hot_loop() -> Trace {
    let mut run = run(true);
    for number in 0..2_000 {
        let at = 1_000 + number;
        run.steps.push(Step {
            state: 12,
            ..step(at, "operator", "GET volumes.shop.example shop/data")
        });
        run.steps.push(Step {
            is_write: true,
            tone: Tone::Failed,
            state: 12,
            outcome: "500 InternalError".to_owned(),
            ..step(at, "operator", "PATCH volumes.shop.example/status shop/data")
        });
    }
    let mut trace = trace();
    let first = run.steps.len() - 1;
    trace.runs = vec![run];
    trace.failures[0] = Failure {
        reference: None,
        failing: 0,
        rows: Vec::new(),
        plan: Vec::new(),
        replay: None,
        first,
        ..trace.failures[0].clone()
    };
    trace
}

/// Opens a trace from a file; `None` without a browser.
#[expect(clippy::print_stderr, reason = "a test that is left out has to say so")]
async fn open(trace: &Trace) -> Option<Tab> {
    let Some(program) = std::env::var_os("DRYDOCK_BROWSER").map(PathBuf::from) else {
        eprintln!("skipped: DRYDOCK_BROWSER names no Chromium");
        return None;
    };
    let path = folder().join("trace.html");
    std::fs::write(&path, trace.to_html()).expect("the file is writable");
    let mut tab = Tab::open(&program).await;
    tab.go_to(&format!("file://{}", path.display())).await;
    tab.until("document.querySelector('#list .item')").await;
    Some(tab)
}

const SELECTED: &str = "document.querySelector('#list .item[aria-selected=true]')";

fn id(name: &str) -> String {
    format!("document.getElementById('{name}')")
}

fn says(id: &str, text: &str) -> String {
    format!("document.getElementById('{id}').textContent.includes({text:?})")
}

#[tokio::test]
async fn first_difference_is_selected_and_shows_its_changes() {
    let Some(mut tab) = open(&trace()).await else { return };
    tab.until(&says("headline", "it takes: operator crashes")).await;
    tab.until(&says("plan", "operator crashes after PATCH")).await;
    tab.until(&format!(
        "{SELECTED}.textContent.includes('PATCH volumes/status shop/data')"
    ))
    .await;
    tab.until(&says("pane", "status.phase: \"Progressing\" → \"Ready\""))
        .await;
    tab.until(&says("pane", "This run does not contain the step.")).await;
    tab.until(&says("lane-names", "operator")).await;
    tab.until(&says("columns", "reference run")).await;
    tab.until(&says("list", "identical steps")).await;
    let lanes = tab.eval("document.getElementById('lane-names').children.length").await;
    assert_eq!(lanes, 2, "identical steps of other clients are folded away");
    tab.picture("trace").await;
}

#[tokio::test]
async fn slider_and_clicks_in_the_lanes_select_a_step() {
    let Some(mut tab) = open(&trace()).await else { return };
    tab.eval(&format!(
        "{0}.value = 0; {0}.dispatchEvent(new Event('input'))",
        id("slider")
    ))
    .await;
    tab.until(&format!("{SELECTED}.textContent.includes('GET nodes')"))
        .await;
    tab.eval(&format!(
        "{0}.value = {0}.max; {0}.dispatchEvent(new Event('input'))",
        id("slider")
    ))
    .await;
    tab.until(&format!("{SELECTED}.textContent.includes('crashes')")).await;
    tab.until(&says("place", "0.500 s")).await;
    tab.click(&id("chart")).await;
    tab.until(&format!("!{SELECTED}.textContent.includes('crashes')")).await;
}

#[tokio::test]
async fn objects_of_both_runs_are_shown_with_differences() {
    let Some(mut tab) = open(&trace()).await else { return };
    tab.click(&id("tab-object")).await;
    tab.until("document.querySelector('#pane .minus').textContent.includes('phase: Progressing')")
        .await;
    tab.until("document.querySelector('#pane .plus').textContent.includes('phase: Ready')")
        .await;
    let sides = tab.eval("document.querySelectorAll('#pane .side').length").await;
    assert_eq!(sides, 2);
    tab.until("document.querySelectorAll('#pane .side')[1].textContent.includes('phase: Progressing')")
        .await;
    tab.until("document.querySelectorAll('#pane .side')[1].querySelector('.other')")
        .await;
    tab.picture("trace-object").await;
    // Move to the previous write, which is collapsed and occurs in both runs.
    tab.press("[").await;
    tab.until(&format!("{SELECTED}.textContent.includes('PATCH volumes/status')"))
        .await;
    tab.until("document.querySelectorAll('#pane .plus')[1].textContent.includes('phase: Progressing')")
        .await;
    tab.until(&says("pane", "version 2 of")).await;
}

#[tokio::test]
async fn viewer_is_usable_with_only_the_keyboard() {
    let Some(mut tab) = open(&trace()).await else { return };
    tab.press("j").await;
    tab.until(&format!("{SELECTED}.textContent.includes('crashes')")).await;
    tab.press("k").await;
    tab.until(&format!("{SELECTED}.textContent.includes('PATCH')")).await;
    tab.press("W").await;
    tab.until(&format!(
        "{SELECTED}.textContent.includes('PATCH') && {}",
        says("place", "0.002 s")
    ))
    .await;
    tab.press("d").await;
    tab.until(&says("place", "0.500 s")).await;
    tab.press("3").await;
    tab.until(&says("pane", "the controller’s tracing span")).await;
    tab.until(&says("pane", "ADDED volumes.shop.example shop/data")).await;
    tab.press("4").await;
    tab.until(&says("pane", "attaching node=node-1")).await;
    tab.press("5").await;
    tab.until(&says("pane", "differs from the reference run")).await;
    tab.press("6").await;
    tab.until(&says("pane", "left: Ready, right: Progressing")).await;
    tab.press("/").await;
    tab.type_text("node-7").await;
    tab.until(&says("shown", "1 of 17 steps")).await;
    tab.press("Escape").await;
    tab.until(&format!("!{}", says("shown", "1 of 17 steps"))).await;
    tab.press("i").await;
    tab.until(&says("shown", "17 of 17 steps")).await;
    tab.press("t").await;
    tab.press("t").await;
    tab.until("document.documentElement.dataset.theme === 'dark'").await;
    tab.picture("trace-dark").await;
    tab.press("?").await;
    tab.until("document.getElementById('keys').open").await;
    tab.press("Escape").await;
    tab.until("!document.getElementById('keys').open").await;
}

#[tokio::test]
async fn buttons_copy_the_replay_string_and_the_command() {
    let Some(mut tab) = open(&trace()).await else { return };
    tab.eval("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
        .await;
    tab.click(&id("copy-replay")).await;
    tab.until("window.copied === 'crash-after=1000@operator:patch:volumes#1'")
        .await;
    tab.until(&says("said", "copied the replay string")).await;
    tab.press("C").await;
    tab.until("window.copied.startsWith('EXPLORE_REPLAY=')").await;
}

#[tokio::test]
async fn failure_without_a_reference_run_has_one_column_and_a_folded_loop() {
    let Some(mut tab) = open(&hot_loop()).await else { return };
    tab.until("!document.querySelector('#list .two')").await;
    tab.until(&format!("!{}", says("columns", "reference run"))).await;
    tab.until(&says("list", "the same 2 steps ")).await;
    let height = tab.eval("document.getElementById('list').scrollHeight").await;
    assert!(height.as_u64() < Some(4_000), "the folded loop is {height} pixels high");
    // The selected step is the last one of the loop, so the loop is expanded. Collapsing it leaves one line.
    tab.press("Home").await;
    tab.press("w").await;
    tab.until(&format!("{SELECTED}.textContent.includes('PATCH')")).await;
    tab.picture("trace-loop").await;
}

#[tokio::test]
async fn text_from_objects_is_never_executed() {
    let evil =
        "</script><img src=x onerror=window.hacked=1><!--<script>window.hacked=1//'\"`${window.hacked=1}\u{2028}";
    let mut trace = trace();
    trace.title = evil.to_owned();
    let failure = &mut trace.failures[0];
    (failure.headline, failure.what, failure.oracle) = (evil.to_owned(), evil.to_owned(), evil.to_owned());
    (failure.plan, failure.replay) = (vec![evil.to_owned()], Some(evil.to_owned()));
    (failure.notes, trace.notes) = (vec![evil.to_owned()], vec![evil.to_owned()]);
    for run in &mut trace.runs {
        run.name = evil.to_owned();
        for step in &mut run.steps {
            (step.client, step.object, step.body) = (evil.to_owned(), evil.to_owned(), evil.to_owned());
            step.text = format!("{} {evil}", step.text);
            step.outcome = evil.to_owned();
        }
        for version in run.objects.values_mut().flatten() {
            version.value = Some(json!({"metadata": {"annotations": {evil: evil}}}));
        }
        run.objects = [(evil.to_owned(), run.objects.remove(VOLUME).unwrap_or_default())].into();
        run.groups[0].name = evil.to_owned();
        run.logs[0].text = evil.to_owned();
    }
    let Some(mut tab) = open(&trace).await else { return };
    for tab_key in ["1", "2", "3", "4", "5", "6"] {
        tab.press(tab_key).await;
        tab.until("document.getElementById('pane').textContent.includes('onerror=window.hacked=1>')")
            .await;
    }
    tab.until(&says("headline", "<img src=x onerror")).await;
    assert_eq!(tab.eval("window.hacked === undefined").await, true);
    assert_eq!(
        tab.eval("document.querySelectorAll('img, script:not([type]):nth-of-type(n+3)').length")
            .await,
        0
    );
}

#[tokio::test]
async fn narrow_window_scrolls_in_one_direction() {
    let Some(mut tab) = open(&trace()).await else { return };
    tab.looks(400, 800, "dark").await;
    tab.until("document.documentElement.scrollWidth <= 400").await;
    tab.click(&id("tab-object")).await;
    tab.until("document.querySelector('#pane .plus')").await;
    tab.picture("trace-narrow").await;
    let widest = tab.eval("document.documentElement.scrollWidth").await;
    assert!(
        widest.as_u64() <= Some(400),
        "nothing is wider than the window: {widest}"
    );
}

#[tokio::test]
async fn server_journal_is_shown_as_a_trace() {
    let Some(program) = std::env::var_os("DRYDOCK_BROWSER").map(PathBuf::from) else {
        return;
    };
    let server = Server::start(&["--control"]);
    create_map(
        &server,
        &json!({"metadata": {"name": "first"}, "data": {"color": "vermilion"}}),
    );
    let mut tab = Tab::open(&program).await;
    tab.go_to(&format!("{}/_fake/trace", server.url)).await;
    tab.until(&says("list", "CREATE configmaps default/first")).await;
    tab.press("1").await;
    tab.until(&says("pane", "data.color: absent → \"vermilion\"")).await;
    tab.press("2").await;
    tab.until("document.querySelector('#pane .plus')").await;
}

#[tokio::test]
async fn control_page_links_to_the_trace() {
    let Some(program) = std::env::var_os("DRYDOCK_BROWSER").map(PathBuf::from) else {
        return;
    };
    let server = Server::start(&["--control"]);
    create_map(&server, &json!({"metadata": {"name": "first"}}));
    let mut tab = Tab::open(&program).await;
    tab.go_to(&format!("{}/_fake", server.url)).await;
    tab.press("2").await;
    // Open the page in this tab, because a new tab would be another target of the protocol.
    tab.eval("document.getElementById('trace').removeAttribute('target')")
        .await;
    tab.click(&id("trace")).await;
    tab.until(&format!(
        "document.getElementById('list') && {}",
        says("list", "CREATE configmaps default/first")
    ))
    .await;
}

#[tokio::test]
async fn trace_without_steps_shows_its_report() {
    let trace = Trace {
        headline: "no failure was found".to_owned(),
        runs: vec![Run::default()],
        facts: vec![("explored".to_owned(), "12 of 12 single faults".to_owned())],
        ..Trace::default()
    };
    let Some(program) = std::env::var_os("DRYDOCK_BROWSER").map(PathBuf::from) else {
        return;
    };
    let path = folder().join("trace.html");
    std::fs::write(&path, trace.to_html()).expect("the file is writable");
    let mut tab = Tab::open(&program).await;
    tab.go_to(&format!("file://{}", path.display())).await;
    tab.until(&says("headline", "no failure was found")).await;
    tab.until(&says("pane", "12 of 12 single faults")).await;
}

#[test]
fn trace_document_of_the_journal_contains_writes_and_versions() {
    let server = Server::start(&["--control"]);
    create_map(
        &server,
        &json!({"metadata": {"name": "first"}, "data": {"color": "vermilion"}}),
    );
    let document = control(&server, "GET /_fake/trace", &["Accept: application/json"], Value::Null);
    assert_documented(&server, &document, "get", "/_fake/trace");
    let run = &document["runs"][0];
    let steps = run["steps"].as_array().expect("the value is a list");
    let step = steps
        .iter()
        .find(|it| it["text"] == "CREATE configmaps default/first")
        .expect("the object was created");
    assert_eq!(step["client"], "maker/1");
    assert_eq!(step["changes"], json!([{"path": "data.color", "after": "vermilion"}]));
    let version = &run["objects"]["configmaps default/first"][0];
    assert_eq!(
        (&version["by"], &version["value"]["data"]["color"]),
        (&json!("maker/1"), &json!("vermilion"))
    );
    let page = ask(&server, "GET /_fake/trace", &[], "");
    assert!(
        page.head.contains("content-type: text/html; charset=utf-8"),
        "{}",
        page.head
    );
    assert!(
        page.head.contains("content-security-policy: frame-ancestors 'none'"),
        "{}",
        page.head
    );
}

#[test]
fn page_is_self_contained_and_works_offline() {
    let page = trace().to_html();
    for foreign in ["http://", "https://", " src=", "@import", "url("] {
        assert!(!page.contains(foreign), "nothing is fetched from elsewhere: {foreign}");
    }
    for unsafe_call in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "DOMParser",
    ] {
        assert!(
            !page.contains(unsafe_call),
            "text is never rendered as HTML: {unsafe_call}"
        );
    }
    assert!(
        page.contains("default-src 'none'; script-src 'sha256-"),
        "the page may only run its own script"
    );
}

#[test]
fn script_end_tags_in_text_cannot_end_the_page_data() {
    let mut trace = trace();
    trace.title = "</script></title><!-- & \u{2028}".to_owned();
    trace.runs[1].steps[0].text = "</SCRIPT><script>".to_owned();
    let page = trace.to_html();
    assert_eq!(
        page.to_lowercase().matches("</script>").count(),
        2,
        "only the data and the script end with this tag"
    );
    assert_eq!(page.matches("<!--").count(), 0);
    let data = page
        .split_once("id=\"data\">")
        .and_then(|(_, rest)| rest.split_once("</script>"));
    let document: Value =
        serde_json::from_str(data.expect("the page contains data").0).expect("the text is valid JSON");
    assert_eq!(document["title"], "</script></title><!-- & \u{2028}");
    assert_eq!(document["runs"][1]["steps"][0]["text"], "</SCRIPT><script>");
}
