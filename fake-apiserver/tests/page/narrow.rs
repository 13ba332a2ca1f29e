//! The object pane and the dialogs in a narrow window of Chromium.

use serde_json::{Value, json};

use crate::browser::{button, id, open_view, rows_with};
use crate::devtools::Tab;
use crate::{ask, control};

/// Lists controls that exceed the window, and areas that scroll sideways. Rows of lists are cut off on purpose.
const TOO_WIDE: &str = "(() => { \
    const area = document.querySelector('dialog[open]') ?? document.getElementById('pane'); \
    const exceeds = (it) => { const box = it.getBoundingClientRect(); \
    return box.width > 0 && (box.left < -1 || box.right > innerWidth + 1); }; \
    const controls = [...area.querySelectorAll('button, input, select, textarea, strong, p')]; \
    const scrolling = [area, ...area.querySelectorAll('.pane, pre, dl')] \
    .filter((it) => it.scrollWidth > it.clientWidth + 1); \
    return [...controls.filter((it) => !it.closest('.list') && exceeds(it)), ...scrolling] \
    .map((it) => it.outerHTML.slice(0, 100)); })()";

async fn assert_fits(tab: &mut Tab, width: u32, what: &str) {
    assert_eq!(tab.eval(TOO_WIDE).await, json!([]), "{what} at {width} pixels");
    let widest = tab.eval("document.documentElement.scrollWidth").await;
    assert!(
        widest.as_u64() <= Some(width.into()),
        "{what} has {widest} pixels at {width}"
    );
}

#[tokio::test]
async fn object_pane_and_dialogs_fit_a_narrow_window() {
    let Some((server, mut tab)) = open_view("cluster", &["--workers", "all"]).await else {
        return;
    };
    let script = json!({"script": {"logs": format!("{}\n", "x".repeat(300))}});
    control(&server, "POST /_fake/pods", &[], script);
    let name = format!("{}x", "a-rather-long-name-".repeat(8));
    let pod: Value = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": {"long": "w".repeat(400)}},
        "spec": {"containers": [{"name": "c", "image": "c:1"}]}});
    let made = ask(&server, "POST /api/v1/namespaces/default/pods", &[], &pod.to_string());
    assert_eq!(made.code, 201, "{made:?}");
    tab.until(&format!("{} !== undefined", button("#kinds-own", "Pod")))
        .await;
    tab.click(&button("#kinds-own", "Pod")).await;
    tab.until(&format!("{} === 1", rows_with("rows", "Running"))).await;
    tab.click("document.querySelector('#rows .row')").await;
    for width in [360, 420] {
        tab.looks(width, 800, "light").await;
        for part in ["Overview", "YAML", "History", "Edit", "Logs"] {
            tab.until(&format!("{} !== undefined", button("#pane", part))).await;
            tab.click(&button("#pane", part)).await;
            tab.until(&format!("{}?.ariaPressed === 'true'", button("#pane", part)))
                .await;
            assert_fits(&mut tab, width, part).await;
        }
        for (key, dialog) in [("n", "apply-dialog"), ("o", "search-dialog"), ("?", "help-dialog")] {
            tab.eval(&format!("{}.focus()", id("rows"))).await;
            tab.press(key).await;
            tab.until(&format!("{}.open", id(dialog))).await;
            assert_fits(&mut tab, width, dialog).await;
            tab.picture(&format!("{dialog}-narrow")).await;
            tab.eval(&format!("{}.close()", id(dialog))).await;
        }
        tab.eval(&format!("{}.showModal()", id("token-dialog"))).await;
        assert_fits(&mut tab, width, "token-dialog").await;
        tab.eval(&format!("{}.close()", id("token-dialog"))).await;
    }
}
