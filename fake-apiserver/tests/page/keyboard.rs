//! The cluster view in Chromium without a mouse.

use serde_json::{Value, json};

use crate::ask;
use crate::browser::{id, open_view, rows_with};
use crate::common::Server;
use crate::devtools::Tab;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// Maximum number of presses of the Tab key between two controls of a test.
const TABS_MAX: usize = 40;

fn deploy(server: &Server, name: &str) {
    let labels = json!({"app": name});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}}},
    });
    let made = ask(server, &format!("POST {DEPLOYMENTS}"), &[], &deployment.to_string());
    assert_eq!(made.code, 201, "{made:?}");
}

/// Presses the Tab key until the focused element fulfils a condition, and asserts that the focus is visible.
async fn tab_to(tab: &mut Tab, condition: &str) {
    for _ in 0..TABS_MAX {
        tab.press("Tab").await;
        let is_there = format!("(() => {{ const it = document.activeElement; return {condition}; }})()");
        if tab.eval(&is_there).await == true {
            let ring = tab.eval("getComputedStyle(document.activeElement).outlineStyle").await;
            assert_eq!(ring, "solid", "the focus is visible: {condition}");
            return;
        }
    }
    let at = tab.eval("document.activeElement.outerHTML.slice(0, 200)").await;
    panic!("the Tab key does not reach {condition}, and the focus is at {at}");
}

/// Waits until the focused element has this text.
async fn until_focused(tab: &mut Tab, text: &str) {
    tab.until(&format!("document.activeElement.textContent === '{text}'"))
        .await;
}

#[tokio::test]
async fn object_is_found_read_scaled_and_deleted_with_only_the_keyboard() {
    let Some((server, mut tab)) = open_view("cluster", &["--workers", "all"]).await else {
        return;
    };
    let pane = "document.getElementById('pane').textContent";
    for name in ["a", "b"] {
        deploy(&server, name);
    }
    tab.until("[...document.querySelectorAll('#kinds-own button')].some((it) => it.textContent === 'Deployment2')")
        .await;
    tab_to(&mut tab, "it.textContent === 'Deployment2'").await;
    tab.press("Enter").await;
    tab.until(&format!("{} === 2", rows_with("rows", "1/1"))).await;
    tab_to(&mut tab, "it.id === 'rows'").await;
    for key in ["ArrowDown", "ArrowDown", "Enter"] {
        tab.press(key).await;
    }
    tab.until(&format!("{pane}.includes('Deployment default/b')")).await;

    // The pane is filled again for each part and after each write; the focus remains on the same control.
    for (part, content) in [
        ("YAML", "kind: Deployment"),
        ("History", "ADDED"),
        ("Overview", "ScalingReplicaSet"),
    ] {
        tab.press("1").await;
        tab_to(&mut tab, &format!("it.textContent === '{part}'")).await;
        tab.press("Enter").await;
        tab.until(&format!("{pane}.includes('{content}')")).await;
        until_focused(&mut tab, part).await;
    }
    tab.press("1").await;
    tab_to(&mut tab, "it.textContent === 'Edit'").await;
    tab.press("Enter").await;
    tab.until("document.querySelector('#pane textarea') !== null").await;
    tab_to(&mut tab, "it.ariaLabel === 'Replicas'").await;
    tab.type_text("3").await;
    tab_to(&mut tab, "it.textContent === 'Scale'").await;
    tab.press("Enter").await;
    tab.until(&format!("{} === 1", rows_with("rows", "3/3"))).await;
    tab.until("document.querySelector('#pane textarea').value.includes('replicas: 3')")
        .await;
    until_focused(&mut tab, "Scale").await;

    tab_to(&mut tab, "it.textContent === 'Delete'").await;
    tab.press("Enter").await;
    until_focused(&mut tab, "Press again to delete").await;
    tab.press("Enter").await;
    tab.until(&format!("{} === 1", rows_with("rows", "/"))).await;
    let left = ask(&server, &format!("GET {DEPLOYMENTS}"), &[], "");
    let left: Value = serde_json::from_str(&left.body).expect("the text is valid JSON");
    assert_eq!(left["items"].as_array().map(Vec::len), Some(1));
    tab.press("Escape").await;
    tab.until(&format!(
        "{}.hidden && document.activeElement.id === 'rows'",
        id("pane")
    ))
    .await;
}
