//! Hostile text in the timeline, in the journal, in searches and in messages of the page, in Chromium.

use serde_json::json;

use crate::browser::{button, id, open_view, rows_with};
use crate::common::Server;
use crate::devtools::Tab;
use crate::{MAPS, ask, control, send};

/// A text that changes the title of the page if it is rendered as HTML.
const ATTACK: &str = "<img src=x onerror=\"document.title='struck'\">";

/// Sends a request as a client whose name is the hostile text.
fn attack(server: &Server, request: &str, body: &str) -> u16 {
    let agent = format!("User-Agent: {ATTACK}");
    ask(server, request, &[&agent], body).code
}

/// Makes writes, events, refusals and a failure with hostile names, annotations, labels and clients.
fn attack_everywhere(server: &Server) {
    let annotated = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": ATTACK},
        "metadata": {"name": "mild", "annotations": {"example.com/note": ATTACK}}});
    assert_eq!(attack(server, &format!("POST {MAPS}"), &annotated.to_string()), 201);
    // The API would refuse this name and this label, but a dump may contain them.
    let metadata = json!({"name": ATTACK, "namespace": "default", "uid": "u", "labels": {"note": ATTACK}});
    let event = json!({"type": "ADDED", "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}});
    control(server, "POST /_fake/events", &[], event);
    let named = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": ATTACK}});
    assert_eq!(attack(server, &format!("POST {MAPS}"), &named.to_string()), 422);
    let rule = json!({"effect": "conflict", "on": {"verbs": ["delete"], "client": ATTACK}});
    control(server, "POST /_fake/faults", &[], rule);
    assert_eq!(attack(server, &format!("DELETE {MAPS}/mild"), ""), 409);
}

async fn assert_nothing_is_rendered(tab: &mut Tab) {
    let state = "[document.images.length, document.scripts.length, document.title]";
    assert_eq!(tab.eval(state).await, json!([0, 1, "fake-apiserver"]));
}

#[tokio::test]
async fn hostile_text_is_shown_as_text_in_the_timeline_and_the_journal() {
    let Some((server, mut tab)) = open_view("timeline", &[]).await else {
        return;
    };
    let path = format!("GET {MAPS}?watch=true&resourceVersion=0");
    let agent = format!("User-Agent: {ATTACK}");
    let _watch = send(&server, &path, &[&agent], "");
    tab.until(&format!("{}.textContent === '1'", id("watch-count"))).await;
    attack_everywhere(&server);

    tab.until(&format!("{}.textContent.includes('<img')", id("lane-names")))
        .await;
    tab.until(&format!("{} > 0", rows_with("steps", "ADDED configmaps default/<img")))
        .await;
    tab.until(&format!("{} > 0", rows_with("steps", "⚡"))).await;
    tab.click(
        "[...document.querySelectorAll('#steps .row')].find((it) => \
         it.textContent.includes('create configmaps default/mild'))",
    )
    .await;
    tab.until("document.querySelector('#cause ul').textContent.includes('<img')")
        .await;
    assert_nothing_is_rendered(&mut tab).await;

    tab.click(&button("#cause", "Bodies")).await;
    tab.until("document.querySelector('#entry pre').textContent.includes('onerror')")
        .await;
    tab.until(&format!("{} > 0", rows_with("entries", "default/<img")))
        .await;
    // The response with code 422 contains the name in a message.
    tab.click("[...document.querySelectorAll('#entries .row')].find((it) => it.children[1].textContent === '422')")
        .await;
    tab.until("document.querySelectorAll('#entry pre')[1].textContent.includes('Invalid value')")
        .await;
    assert_nothing_is_rendered(&mut tab).await;
}

#[tokio::test]
async fn hostile_text_is_shown_as_text_in_searches_moments_and_errors() {
    let Some((server, mut tab)) = open_view("cluster", &[]).await else {
        return;
    };
    attack_everywhere(&server);
    tab.press("o").await;
    tab.type_text("note=<img").await;
    tab.until(&format!("{} === 1", rows_with("found", "note=<img"))).await;
    tab.press("Enter").await;
    tab.until(&format!(
        "{}.textContent.includes('ConfigMap default/<img')",
        id("pane")
    ))
    .await;
    for part in ["YAML", "History", "Edit"] {
        tab.click(&button("#pane", part)).await;
        tab.until(&format!("{}?.ariaPressed === 'true'", button("#pane", part)))
            .await;
    }
    assert_nothing_is_rendered(&mut tab).await;

    tab.press("n").await;
    let document = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": ATTACK}});
    tab.type_text(&document.to_string()).await;
    tab.click(&id("apply-go")).await;
    tab.until(&format!("{}.textContent.includes('<img')", id("apply-why")))
        .await;
    tab.click(&id("apply-close")).await;
    // The state before the last write is the state after the write of the hostile client.
    tab.eval(&format!("{}.focus()", id("rows"))).await;
    tab.press("[").await;
    tab.until(&format!(
        "{}.textContent.includes('ADDED ConfigMap default/mild by <img')",
        id("moment-text")
    ))
    .await;
    assert_nothing_is_rendered(&mut tab).await;
}
