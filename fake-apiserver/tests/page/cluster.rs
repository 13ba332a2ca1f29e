//! The cluster view of the page in Chromium: kinds, tables, objects, their history, and changes to them.

use serde_json::{Value, json};

use crate::browser::{button, id, open_view, rows_with};
use crate::common::Server;
use crate::search::load_maps;
use crate::{MAPS, ask, create_map, get};

const SHOPS: &str = "/apis/example.com/v1/namespaces/shop/shops";

/// Defines the kind `Shop`, with its own column and a scale, and creates a Shop in the namespace `shop`.
fn open_shop(server: &Server) {
    let version = json!({
        "name": "v1", "served": true, "storage": true,
        "additionalPrinterColumns": [{"name": "Open", "type": "string", "jsonPath": ".spec.open"}],
        "subresources": {"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "open": {"type": "string"}, "note": {"type": "string"},
                "replicas": {"type": "integer", "maximum": 9},
            }},
            "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
        }}},
    });
    let names = json!({"kind": "Shop", "plural": "shops"});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "shops.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    });
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    let shop = json!({
        "apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "bakery"},
        "spec": {"open": "mornings", "note": "first line\nsecond: line\n", "replicas": 1},
    });
    for (path, object) in [
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd),
        ("/api/v1/namespaces", namespace),
        (SHOPS, shop),
    ] {
        let made = ask(
            server,
            &format!("POST {path}"),
            &["User-Agent: opener/1"],
            &object.to_string(),
        );
        assert_eq!(made.code, 201, "{made:?}");
    }
}

/// Creates a Deployment that the Shop owns.
fn deploy_oven(server: &Server) {
    let uid = get(server, "/_fake/objects");
    let uid = uid.as_array().into_iter().flatten().find(|it| it["kind"] == "Shop");
    let uid = uid.expect("the object exists")["uid"].clone();
    let owners = json!([{"apiVersion": "example.com/v1", "kind": "Shop", "name": "bakery", "uid": uid}]);
    let labels = json!({"app": "oven"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "oven", "ownerReferences": owners},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "oven", "image": "oven:1"}]}}},
    });
    let made = ask(
        server,
        "POST /apis/apps/v1/namespaces/shop/deployments",
        &[],
        &deployment.to_string(),
    );
    assert_eq!(made.code, 201, "{made:?}");
}

fn spec(server: &Server) -> Value {
    let shop = ask(server, &format!("GET {SHOPS}/bakery"), &[], "");
    let shop: Value = serde_json::from_str(&shop.body).expect("the text is valid JSON");
    shop["spec"].clone()
}

/// Returns an expression for the first row of the table with this text.
fn row(text: &str) -> String {
    format!("[...document.querySelectorAll('#rows .row')].find((it) => it.textContent.includes('{text}'))")
}

const PANE: &str = "document.getElementById('pane').textContent";

#[tokio::test]
async fn custom_resources_are_shown_first_with_the_columns_of_the_crd() {
    let Some((server, mut tab)) = open_view("cluster", &["--workers", "all"]).await else {
        return;
    };
    open_shop(&server);
    tab.until(&format!("{} === 1", rows_with("rows", "mornings"))).await;
    let heads = "[...document.querySelectorAll('#rows-columns button')].map((it) => it.textContent).join(' ')";
    assert_eq!(tab.eval(heads).await, "NAMESPACE NAME OPEN");
    let first = "document.querySelector('.kinds button').textContent";
    assert_eq!(tab.eval(first).await, "Shop1");
    tab.until(
        "[...document.querySelectorAll('#namespace option')].map((it) => it.value).slice(0, 3).join() \
               === ',default,shop'",
    )
    .await;

    create_map(&server, &json!({"metadata": {"name": "color"}, "data": {"a": "1"}}));
    tab.click(&button("#kinds-own", "ConfigMap")).await;
    tab.until(&format!("{} === 1", rows_with("rows", "color"))).await;
    tab.press("/").await;
    tab.type_text("colo").await;
    tab.until(&format!("{}.textContent.startsWith('1 of')", id("rows-count")))
        .await;
    tab.press("Escape").await;
    tab.until("document.activeElement.id === 'rows'").await;
    assert_eq!(tab.eval("document.getElementById('built-in').open").await, false);
}

#[tokio::test]
async fn object_view_shows_events_owners_and_yaml() {
    let Some((server, mut tab)) = open_view("cluster", &["--workers", "all"]).await else {
        return;
    };
    open_shop(&server);
    tab.until(&format!("{} === 1", rows_with("rows", "bakery"))).await;
    deploy_oven(&server);
    tab.until("[...document.querySelectorAll('#kinds-own button')].some((it) => it.textContent.startsWith('Pod'))")
        .await;
    tab.click(&row("bakery")).await;
    tab.until(&format!("{PANE}.includes('Owns 3') && {PANE}.includes('Pod oven-')"))
        .await;
    tab.picture("cluster").await;
    tab.click(&button("#pane", "Deployment oven")).await;
    tab.until(&format!(
        "{PANE}.includes('ScalingReplicaSet') && {PANE}.includes('Shop bakery')"
    ))
    .await;
    tab.click(&button("#pane", "Shop bakery")).await;
    tab.until(&format!("{PANE}.includes('Shop shop/bakery')")).await;

    tab.click(&button("#pane", "YAML")).await;
    tab.until(&format!(
        "{PANE}.includes('note: |\\n    first line\\n    second: line\\n')"
    ))
    .await;
    assert_eq!(tab.eval(&format!("{PANE}.includes('managedFields:')")).await, false);
    tab.click(&button("#pane", "managedFields")).await;
    tab.until(&format!("{PANE}.includes('managedFields:')")).await;
}

#[tokio::test]
async fn object_history_links_to_the_cluster_state_at_each_revision() {
    let Some((server, mut tab)) = open_view("cluster", &["--workers", "all"]).await else {
        return;
    };
    open_shop(&server);
    deploy_oven(&server);
    tab.until(&format!("{} === 1", rows_with("rows", "bakery"))).await;
    tab.click(&row("bakery")).await;
    tab.until(&format!("{PANE}.includes('Shop shop/bakery')")).await;
    let patch = ["User-Agent: baker/2", "Content-Type: application/merge-patch+json"];
    let patched = ask(
        &server,
        &format!("PATCH {SHOPS}/bakery"),
        &patch,
        r#"{"spec": {"open": "always"}}"#,
    );
    assert_eq!(patched.code, 200, "{patched:?}");
    tab.click(&button("#pane", "History")).await;
    tab.until(&format!(
        "{PANE}.includes('patch by baker/2') && {PANE}.includes('spec.open: \"mornings\" → \"always\"')"
    ))
    .await;
    tab.picture("history").await;
    // Show the complete cluster as it was after the creation of the object.
    tab.click("[...document.querySelectorAll('#pane li')].at(-1).querySelector('button')")
        .await;
    tab.until(&format!("{} === 1", rows_with("rows", "mornings"))).await;
    tab.until(&format!(
        "{}.textContent.includes('ADDED Shop shop/bakery by opener/1')",
        id("moment-text")
    ))
    .await;
    tab.until("![...document.querySelectorAll('#kinds-own button')].some((it) => it.textContent.startsWith('Pod'))")
        .await;
    tab.picture("past").await;
    tab.press("[").await;
    tab.until(&format!("{} === 0", rows_with("rows", "bakery"))).await;
    tab.press("]").await;
    tab.until(&format!("{} === 1", rows_with("rows", "mornings"))).await;
    tab.press("l").await;
    tab.until(&format!("{} === 1", rows_with("rows", "always"))).await;
}

#[tokio::test]
async fn object_is_edited_scaled_and_deleted_with_all_checks() {
    let Some((server, mut tab)) = open_view("cluster", &[]).await else {
        return;
    };
    open_shop(&server);
    tab.until(&format!("{} === 1", rows_with("rows", "bakery"))).await;
    tab.click(&row("bakery")).await;
    tab.until(&format!("{PANE}.includes('Events')")).await;
    tab.click(&button("#pane", "Edit")).await;
    let edit = |from: &str, to: &str| {
        format!(
            "(() => {{ const it = document.querySelector('#pane textarea'); \
             it.value = it.value.replace('{from}', '{to}'); it.dispatchEvent(new Event('input')); }})()"
        )
    };
    tab.until("document.querySelector('#pane textarea').value.includes('open: mornings')")
        .await;
    tab.eval(&edit("replicas: 1", "replicas: 10")).await;
    tab.click(&button("#pane", "Save")).await;
    tab.until(&format!("{PANE}.includes('spec.replicas: Invalid value: 10')"))
        .await;
    tab.eval(&edit("replicas: 10", "replicas: 2")).await;
    tab.eval(&edit("open: mornings", "open: \"no\"")).await;
    tab.click(&button("#pane", "Save")).await;
    tab.until(&format!("{}.textContent === 'Shop shop/bakery was saved.'", id("said")))
        .await;
    let saved = json!({"note": "first line\nsecond: line\n", "open": "no", "replicas": 2});
    assert_eq!(spec(&server), saved);

    tab.until("document.querySelector('#pane textarea').value.includes('open: \"no\"')")
        .await;
    tab.eval(
        "(() => { const it = document.querySelector('#pane [aria-label=Replicas]'); it.value = 5; \
         it.dispatchEvent(new Event('input')); })()",
    )
    .await;
    tab.click(&button("#pane", "Scale")).await;
    tab.until(&format!(
        "{}.textContent === 'Shop shop/bakery was scaled.'",
        id("said")
    ))
    .await;
    assert_eq!(spec(&server)["replicas"], 5);

    tab.until("document.querySelector('#pane textarea').value.includes('replicas: 5')")
        .await;
    tab.click(&button("#pane", "Delete")).await;
    tab.until(&format!("{} !== undefined", button("#pane", "Press again to delete")))
        .await;
    assert_eq!(
        spec(&server)["replicas"],
        5,
        "a single press does not delete the object"
    );
    tab.click(&button("#pane", "Press again to delete")).await;
    tab.until(&format!("{} === 0", rows_with("rows", "bakery"))).await;
    assert_eq!(ask(&server, &format!("GET {SHOPS}/bakery"), &[], "").code, 404);
}

#[tokio::test]
async fn documents_are_applied_in_order_and_refusals_are_shown() {
    let Some((server, mut tab)) = open_view("cluster", &[]).await else {
        return;
    };
    open_shop(&server);
    tab.until(&format!("{} === 1", rows_with("rows", "bakery"))).await;
    tab.press("n").await;
    tab.until(&format!("{}.open", id("apply-dialog"))).await;
    let documents = "kind: Shop\napiVersion: example.com/v1\nmetadata:\n  namespace: shop\n  name: cafe # another\n\
                     spec:\n  open: nights\n---\n# a comment\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  \
                     labels: {a: b}\n  name: menu\n";
    tab.eval(&format!("{}.focus()", id("apply-text"))).await;
    tab.type_text(documents).await;
    tab.click(&id("apply-go")).await;
    tab.until(&format!(
        "{}.textContent === 'Applied: Shop shop/cafe, ConfigMap default/menu.'",
        id("said")
    ))
    .await;
    tab.until(&format!("{} === 1", rows_with("rows", "nights"))).await;
    assert_eq!(ask(&server, &format!("GET {MAPS}/menu"), &[], "").code, 200);
    // A refused change is shown, and the entered text is kept.
    tab.press("n").await;
    tab.eval(&format!(
        "{}.value = 'kind: Shop\\nmetadata: {{name: x}}'",
        id("apply-text")
    ))
    .await;
    tab.click(&id("apply-go")).await;
    tab.until(&format!(
        "{}.textContent.includes('a document lacks apiVersion')",
        id("apply-why")
    ))
    .await;
}

#[tokio::test]
async fn timeline_links_a_write_to_the_resulting_events_and_requests() {
    let Some((server, mut tab)) = open_view("timeline", &["--workers", "all"]).await else {
        return;
    };
    let mut lines = crate::browser::watch(&server);
    create_map(&server, &json!({"metadata": {"name": "cause"}}));
    let follow = ["User-Agent: watcher/1"];
    let mut read = String::new();
    while !read.contains("\"name\":\"cause\"") {
        std::io::BufRead::read_line(&mut lines, &mut read).expect("the event arrives");
    }
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cause-effect"}});
    assert_eq!(
        ask(&server, &format!("POST {MAPS}"), &follow, &map.to_string()).code,
        201
    );
    let step = |text: &str| {
        format!("[...document.querySelectorAll('#steps .row')].find((it) => it.textContent.includes('{text}'))")
    };
    tab.until(&format!(
        "{} !== undefined",
        step("create configmaps default/cause-effect")
    ))
    .await;
    tab.until("document.getElementById('lane-names').textContent.includes('maker')")
        .await;
    tab.click(&step("create configmaps default/cause 201")).await;
    let chain = "[...document.querySelectorAll('#cause li button')].map((it) => it.textContent.replace(/^\\S+ +/, ''))";
    tab.until(&format!("{chain}.length === 4")).await;
    let chain = tab.eval(chain).await;
    let begins = [
        "create configmaps default/cause 201",
        "ADDED configmaps default/cause ",
        "create configmaps default/cause-effect 201",
        "ADDED configmaps default/cause-effect ",
    ];
    for (step, begin) in chain.as_array().into_iter().flatten().zip(begins) {
        assert!(
            step.as_str().is_some_and(|it| it.starts_with(begin)),
            "{begin}: {chain}"
        );
    }
    tab.picture("timeline").await;
}

#[tokio::test]
async fn one_click_makes_the_next_similar_request_fail() {
    let Some((server, mut tab)) = open_view("journal", &[]).await else {
        return;
    };
    create_map(&server, &json!({"metadata": {"name": "a"}}));
    tab.until(&format!("{} === 1", rows_with("entries", "default/a"))).await;
    tab.click("document.querySelector('#entries .row')").await;
    tab.until(&format!("{} !== undefined", button("#entry", "Fail the next")))
        .await;
    tab.click(&button("#entry", "Fail the next")).await;
    tab.until("document.querySelectorAll('#faults li').length === 1").await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}}).to_string();
    for (agent, code) in [
        ("User-Agent: other/1", 201),
        ("User-Agent: maker/1", 503),
        ("User-Agent: maker/1", 409),
    ] {
        assert_eq!(
            ask(&server, &format!("POST {MAPS}"), &[agent], &map).code,
            code,
            "{agent}"
        );
    }
    tab.until("document.querySelector('#faults .chip').textContent === 'hits: 1, used up'")
        .await;
}

#[tokio::test]
async fn names_and_values_of_objects_are_rendered_as_text_in_every_view() {
    let Some((server, mut tab)) = open_view("cluster", &[]).await else {
        return;
    };
    let attack = "<img src=x onerror=\"document.title='struck'\">";
    let event = json!({"type": "ADDED", "object": {
        "apiVersion": "v1", "kind": "ConfigMap", "data": {attack: attack},
        "metadata": {"name": attack, "namespace": attack, "uid": "u", "annotations": {"note": attack}}}});
    assert_eq!(ask(&server, "POST /_fake/events", &[], &event.to_string()).code, 200);
    let regarding = json!({"apiVersion": "v1", "kind": "Event", "message": attack, "reason": attack,
        "metadata": {"name": "e", "namespace": "default", "uid": "v"},
        "involvedObject": {"kind": "ConfigMap", "name": attack, "namespace": attack, "uid": "u"}});
    let told = json!({"type": "ADDED", "object": regarding});
    assert_eq!(ask(&server, "POST /_fake/events", &[], &told.to_string()).code, 200);
    tab.until(&format!("{} !== undefined", button("#kinds-own", "ConfigMap")))
        .await;
    tab.click(&button("#kinds-own", "ConfigMap")).await;
    tab.until(&format!("{} === 1", rows_with("rows", "onerror"))).await;
    tab.click(&row("onerror")).await;
    tab.until(&format!("{PANE}.split('onerror').length > 3")).await;
    for part in ["YAML", "History", "Edit"] {
        tab.click(&button("#pane", part)).await;
        tab.until(&format!("{}?.ariaPressed === 'true'", button("#pane", part)))
            .await;
    }
    assert_eq!(tab.eval("document.images.length").await, 0);
    assert_eq!(tab.eval("document.title").await, "fake-apiserver");
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "a figure to know")]
async fn ten_thousand_objects_are_shown_and_updated() {
    let Some((server, mut tab)) = open_view("cluster", &[]).await else {
        return;
    };
    load_maps(&server, 10_000);
    tab.until(&format!("{} !== undefined", button("#kinds-own", "ConfigMap")))
        .await;
    tab.eval(
        "window.frames_ = 0; window.slow = 0; (function look(then) { requestAnimationFrame((now) => { frames_ += 1; \
         slow = Math.max(slow, now - then); look(now); }); })(performance.now())",
    )
    .await;
    tab.click(&button("#kinds-own", "ConfigMap")).await;
    tab.until(&format!("{}.textContent === '10,002'", id("rows-count")))
        .await;
    create_map(&server, &json!({"metadata": {"name": "zz-last"}}));
    tab.until(&format!("{}.textContent === '10,003'", id("rows-count")))
        .await;
    tab.eval(&format!("{}.focus()", id("rows"))).await;
    tab.press("End").await;
    tab.until(&format!("{} === 1", rows_with("rows", "zz-last"))).await;
    let drawn = tab
        .eval("({rows: document.querySelectorAll('#rows .row').length, slowest: Math.round(slow)})")
        .await;
    println!("10,003 objects: {drawn}");
    assert!(
        drawn["rows"].as_u64() < Some(100),
        "only rows that can be seen exist: {drawn}"
    );
}

#[tokio::test]
async fn cluster_view_fits_a_narrow_window_and_dark_mode() {
    let Some((server, mut tab)) = open_view("cluster", &[]).await else {
        return;
    };
    open_shop(&server);
    tab.until(&format!("{} === 1", rows_with("rows", "bakery"))).await;
    for view in ["1", "3"] {
        tab.press(view).await;
        for width in [360, 420, 800] {
            tab.looks(width, 800, "dark").await;
            let widest = tab.eval("document.documentElement.scrollWidth").await;
            assert!(
                widest.as_u64() <= Some(width.into()),
                "an element of {widest} pixels exceeds the width of {width} in view {view}"
            );
        }
    }
    tab.press("1").await;
    tab.looks(420, 800, "dark").await;
    tab.picture("cluster-narrow").await;
}
