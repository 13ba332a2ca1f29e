//! The object pane of the page in Chromium: the copied lines for kubectl and curl, and the logs of Pods.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output};

use rstest::rstest;
use serde_json::json;

use crate::browser::{browser, button, id, open_view, rows_with};
use crate::common::{Server, folder};
use crate::devtools::Tab;
use crate::kubectl::kubectl;
use crate::{MAPS, ask, control, create_map};

const PANE: &str = "document.getElementById('pane').textContent";

/// A token with a character that must be quoted in a shell.
const TOKEN: &str = "s3'cret";

/// Name of the kubeconfig in the copied lines.
const KUBECONFIG: &str = "fake.kubeconfig";

/// Arguments of a server that refuses requests without credentials.
const PROTECTED: &[&str] = &[
    "--authorization",
    "rbac",
    "--anonymous",
    "deny",
    "--control-token",
    TOKEN,
];

#[expect(clippy::print_stderr, reason = "a part that is left out has to say so")]
fn skip(reason: &str) {
    eprintln!("skipped: the copied line is not run: {reason}");
}

/// Runs a line in a shell in this directory, with the tested kubectl first in `PATH`.
fn run(line: &str, folder: &Path, kubectl: Option<&Path>) -> Output {
    let mut path = OsString::new();
    if let Some(programs) = kubectl.and_then(Path::parent) {
        path.push(programs);
        path.push(":");
    }
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut shell = Command::new("bash");
    shell
        .args(["-c", line])
        .current_dir(folder)
        .env("PATH", path)
        .env("KUBECONFIG", "/dev/null");
    shell.output().expect("bash can be run")
}

/// Presses a button of the pane that copies a line, and returns the line.
async fn copied(tab: &mut Tab, name: &str) -> String {
    tab.eval(&format!("{}.textContent = ''", id("said"))).await;
    tab.click(&button("#pane", name)).await;
    tab.until(&format!("{}.textContent.startsWith('Copied: ')", id("said")))
        .await;
    let shown = tab.eval(&format!("{}.textContent", id("said"))).await;
    assert_eq!(
        shown.as_str().map(|it| it.contains("cret")),
        Some(false),
        "the page does not show the token: {shown}"
    );
    let line = tab.eval("navigator.clipboard.readText()").await;
    line.as_str().expect("the clipboard contains text").to_owned()
}

#[rstest]
#[case::open(&[], "")]
#[case::token(PROTECTED, TOKEN)]
#[case::open_over_tls(&["--tls"], "")]
#[case::token_over_tls(&["--tls", "--authorization", "rbac", "--anonymous", "deny", "--control-token", TOKEN], TOKEN)]
#[tokio::test]
async fn copied_lines_read_the_object_with_the_credentials_of_the_page(#[case] args: &[&str], #[case] token: &str) {
    let Some(program) = browser() else { return };
    let folder = folder();
    let manifest = folder.join("map.yaml");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"color": "vermilion"},
        "metadata": {"name": "color", "namespace": "default"}});
    std::fs::write(&manifest, map.to_string()).expect("the directory is writable");
    let kubeconfig = folder.join(KUBECONFIG);
    let [manifest, kubeconfig] = [&manifest, &kubeconfig].map(|it| it.to_str().expect("the path is UTF-8"));
    let files = ["--control", "--load", manifest, "--kubeconfig", kubeconfig];
    let server = Server::start(&[&files[..], args].concat());

    let mut tab = Tab::open(&program).await;
    tab.trust_everything().await;
    let fragment = if token.is_empty() { "" } else { "#token=s3%27cret" };
    tab.go_to(&format!("{}/_fake/{fragment}", server.url)).await;
    tab.until(&format!("{}.textContent === 'live'", id("link"))).await;
    tab.until(&format!("{} !== undefined", button(".kinds", "ConfigMap")))
        .await;
    tab.eval(&format!("{}.open = true", id("built-in"))).await;
    tab.click(&button(".kinds", "ConfigMap")).await;
    tab.until(&format!("{} === 1", rows_with("rows", "color"))).await;
    tab.click("[...document.querySelectorAll('#rows .row')].find((it) => it.textContent.includes('color'))")
        .await;
    tab.until(&format!("{PANE}.includes('ConfigMap default/color')")).await;

    let is_tls = args.contains(&"--tls");
    let found = kubectl();
    for name in ["kubectl", "curl"] {
        let line = copied(&mut tab, name).await;
        assert!(line.contains(&server.url), "{line}");
        assert_eq!(line.contains(KUBECONFIG), is_tls, "{line}");
        let is_curl = name == "curl";
        assert_eq!(line.contains("cret"), is_curl && !token.is_empty(), "{line}");
        assert_eq!(
            line.contains("Bearer TOKEN"),
            is_curl && is_tls && token.is_empty(),
            "{line}"
        );
        if !is_curl && !is_tls && !token.is_empty() {
            assert!(line.starts_with("# kubectl sends no token over plain HTTP"), "{line}");
            continue;
        }
        if let (false, Err(reason)) = (is_curl && !is_tls, found) {
            skip(reason);
            continue;
        }
        let output = run(&line, &folder, found.ok());
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("vermilion"), "{line}: {output:?}");
    }
}

#[tokio::test]
async fn line_is_copied_if_the_page_has_no_clipboard_api() {
    let Some((server, mut tab)) = open_view("cluster", &[]).await else {
        return;
    };
    tab.trust_everything().await;
    create_map(&server, &json!({"metadata": {"name": "color"}}));
    tab.until(&format!("{} === 1", rows_with("rows", "color"))).await;
    tab.click("document.querySelector('#rows .row')").await;
    tab.until(&format!("{} !== undefined", button("#pane", "curl"))).await;
    // Browsers only have the API on HTTPS and on loopback addresses.
    tab.eval(
        "window.readClipboard = navigator.clipboard.readText.bind(navigator.clipboard); \
         Object.defineProperty(navigator, 'clipboard', { value: undefined }); true",
    )
    .await;
    tab.click(&button("#pane", "curl")).await;
    tab.until(&format!("{}.textContent.startsWith('Copied: curl ')", id("said")))
        .await;
    let line = tab.eval("readClipboard()").await;
    assert_eq!(line, format!("curl {}{MAPS}/color", server.url));
    tab.until("document.activeElement.textContent === 'curl'").await;
}

#[tokio::test]
async fn logs_of_a_scripted_pod_are_shown_as_text() {
    let Some((server, mut tab)) = open_view("cluster", &["--workers", "all"]).await else {
        return;
    };
    let attack = "<img src=x onerror=\"document.title='struck'\">";
    let script = json!({"pods": {"labels": "app=oven"}, "script": {"logs": format!("warm\nhot {attack}\n")}});
    control(&server, "POST /_fake/pods", &[], script);
    let containers = json!([{"name": "oven", "image": "oven:1"}, {"name": "timer", "image": "timer:1"}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "oven", "labels": {"app": "oven"}},
        "spec": {"containers": containers}});
    let made = ask(&server, "POST /api/v1/namespaces/default/pods", &[], &pod.to_string());
    assert_eq!(made.code, 201, "{made:?}");
    tab.until(&format!("{} !== undefined", button("#kinds-own", "Pod")))
        .await;
    tab.click(&button("#kinds-own", "Pod")).await;
    tab.until(&format!("{} === 1", rows_with("rows", "Running"))).await;
    tab.click("document.querySelector('#rows .row')").await;
    tab.until(&format!("{} !== undefined", button("#pane", "Logs"))).await;
    tab.click(&button("#pane", "Logs")).await;
    let log = "document.querySelector('#pane pre').textContent";
    tab.until(&format!("{log}.startsWith('warm\\nhot <img')")).await;
    let choice = "document.querySelector('#pane [aria-label=Container]')";
    let options = format!("[...{choice}.options].map((it) => it.value).join()");
    assert_eq!(tab.eval(&options).await, "oven,timer");
    // The choice of another container requests its log.
    tab.eval(&format!(
        "document.querySelector('#pane pre').textContent = ''; {choice}.value = 'timer'; \
         {choice}.dispatchEvent(new Event('change'))"
    ))
    .await;
    tab.until(&format!("{log}.startsWith('warm')")).await;
    tab.press("2").await;
    tab.until(&format!("{} > 0", rows_with("entries", "pods/log"))).await;
    assert_eq!(tab.eval("document.images.length").await, 0);
    assert_eq!(tab.eval("document.title").await, "fake-apiserver");
}
