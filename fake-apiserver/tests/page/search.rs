//! The search for objects of all kinds: its responses, and its dialog in Chromium.

use serde_json::{Value, json};

use crate::browser::{id, open_view};
use crate::common::Server;
use crate::{MAPS, ask, assert_documented, control, create_map, get, newest};

/// Stores this many ConfigMaps, `map-00000` and so on.
pub(crate) fn load_maps(server: &Server, number: usize) {
    let maps: Vec<_> = (0..number)
        .map(|it| {
            let metadata = json!({"name": format!("map-{it:05}"), "namespace": "default"});
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"n": it.to_string()}})
        })
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": maps});
    control(server, "POST /_fake/objects", &[], list);
}

fn create_secret(server: &Server) {
    let metadata = json!({"name": "map-secret", "labels": {"tier": "Gold"}});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata});
    let made = ask(
        server,
        "POST /api/v1/namespaces/default/secrets",
        &[],
        &secret.to_string(),
    );
    assert_eq!(made.code, 201, "{made:?}");
}

/// Returns the objects that contain these words, as `Kind name`.
fn found(server: &Server, query: &str) -> Vec<String> {
    let found = get(server, &format!("/_fake/search?text={query}"));
    assert_documented(server, &found, "get", "/_fake/search");
    let objects = found["objects"].as_array().expect("the value is a list");
    assert_eq!(found["total"], objects.len());
    let text = |it: &Value| it.as_str().expect("the value is a string").to_owned();
    let objects = objects.iter();
    objects
        .map(|it| format!("{} {}", text(&it["kind"]), text(&it["name"])))
        .collect()
}

#[test]
fn search_finds_objects_by_kind_name_namespace_and_label() {
    let server = Server::start(&["--control"]);
    create_map(
        &server,
        &json!({"metadata": {"name": "map-a", "labels": {"app": "oven"}}}),
    );
    create_secret(&server);
    let (map, secret) = ("ConfigMap map-a", "Secret map-secret");
    for (query, wanted) in [
        ("map-a", vec![map]),
        ("MAP-", vec![map, secret]),
        ("default%2Fmap-", vec![map, secret]),
        ("secret%20default", vec![secret]),
        ("secret+default", vec![secret]),
        ("tier%3Dgold", vec![secret]),
        ("app%3D%20map", vec![map]),
        ("tier%20configmap", vec![]),
        ("%20", vec![]),
        ("", vec![]),
    ] {
        let mut all = found(&server, query);
        all.sort();
        assert_eq!(all, wanted, "{query}");
    }
    let before = newest(&server);
    assert_eq!(ask(&server, &format!("DELETE {MAPS}/map-a"), &[], "").code, 200);
    assert_eq!(found(&server, "map-a"), [] as [&str; 0]);
    assert_eq!(found(&server, &format!("map-a&at={before}")), [map]);
}

#[test]
fn search_returns_at_most_200_of_10000_objects_and_counts_all() {
    let server = Server::start(&["--control"]);
    load_maps(&server, 10_000);
    let found = get(&server, "/_fake/search?text=map-0");
    assert_eq!(found["total"], 10_000);
    assert_eq!(found["objects"].as_array().map(Vec::len), Some(200));
}

#[tokio::test]
async fn search_by_keyboard_opens_an_object_of_another_kind() {
    let Some((server, mut tab)) = open_view("journal", &[]).await else {
        return;
    };
    load_maps(&server, 10_000);
    create_secret(&server);
    let pane = "document.getElementById('pane').textContent";
    let selected =
        |text: &str| format!("document.querySelector('#rows [aria-selected=true]')?.textContent.includes('{text}')");
    let count = |text: &str| format!("{}.textContent === '{text}'", id("found-count"));
    tab.press("o").await;
    tab.until("document.activeElement.id === 'search-text'").await;
    tab.type_text("map-").await;
    tab.until(&count("the first 200 of 10,001")).await;
    let rows = tab.eval("document.querySelectorAll('#found .row').length").await;
    assert!(rows.as_u64() < Some(100), "only visible rows exist: {rows}");
    tab.picture("search").await;
    tab.eval(&format!("{}.select()", id("search-text"))).await;
    tab.type_text("tier=gold").await;
    tab.until(&count("1")).await;
    tab.press("Enter").await;
    tab.until(&format!("{pane}.includes('Secret default/map-secret')"))
        .await;
    tab.until(&selected("map-secret")).await;
    tab.until("viewOf() === 'cluster' && document.activeElement.id === 'rows'")
        .await;

    // The row of the object is scrolled into view.
    tab.press("o").await;
    tab.until("document.activeElement.id === 'search-text'").await;
    tab.type_text("map-098").await;
    tab.until(&count("100")).await;
    let active = format!(
        "document.getElementById({}.getAttribute('aria-activedescendant')).textContent",
        id("search-text")
    );
    for (key, name) in [
        ("ArrowDown", "map-09801"),
        ("ArrowDown", "map-09802"),
        ("ArrowUp", "map-09801"),
    ] {
        tab.press(key).await;
        tab.until(&format!("{active}.includes('{name}')")).await;
    }
    tab.press("Enter").await;
    tab.until(&format!("{pane}.includes('ConfigMap default/map-09801')"))
        .await;
    tab.until(&selected("map-09801")).await;
    // Without an object, the key does nothing, and the dialog can be left.
    tab.press("o").await;
    tab.type_text("nothing-like-this").await;
    let none = id("no-found");
    tab.until(&format!("!{none}.hidden && {none}.textContent === 'No objects found.'"))
        .await;
    tab.press("Enter").await;
    assert_eq!(tab.eval(&format!("{}.open", id("search-dialog"))).await, true);
    tab.click(&id("search-close")).await;
    tab.until(&format!("!{}.open", id("search-dialog"))).await;
}
