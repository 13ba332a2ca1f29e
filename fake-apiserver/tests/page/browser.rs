//! The page in Chromium: clicks, keys, and a thousand requests a second.
//!
//! Opt-in, because Rust's tools do not include a browser: `DRYDOCK_BROWSER` is the path of a Chromium executable.
//! Without it, each test prints that it is skipped. Screenshots are written to the directory `DRYDOCK_SCREENSHOTS`, if
//! it is set.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::interval;

use crate::common::Server;
use crate::devtools::Tab;
use crate::{MAPS, ask, create_map, get, send};

/// Opens the live journal of a server in a page; `None` without a browser.
async fn open(args: &[&str]) -> Option<(Server, Tab)> {
    open_view("journal", args).await
}

/// Returns the browser's executable, or prints that the test is skipped.
#[expect(clippy::print_stderr, reason = "a test that is left out has to say so")]
pub(crate) fn browser() -> Option<PathBuf> {
    let program = std::env::var_os("DRYDOCK_BROWSER").map(PathBuf::from);
    if program.is_none() {
        eprintln!("skipped: DRYDOCK_BROWSER names no Chromium");
    }
    program
}

/// Opens a live view of a server in a page; `None` without a browser.
pub(crate) async fn open_view(view: &str, args: &[&str]) -> Option<(Server, Tab)> {
    let program = browser()?;
    let server = Server::start(&[&["--control"], args].concat());
    let mut tab = Tab::open(&program).await;
    tab.go_to(&format!("{}/_fake/?view={view}", server.url)).await;
    if !args.contains(&"rbac") {
        tab.until("document.getElementById('link').textContent === 'live'")
            .await;
    }
    Some((server, tab))
}

/// Returns an expression for the element with this id.
pub(crate) fn id(name: &str) -> String {
    format!("document.getElementById('{name}')")
}

/// Returns an expression for the first button with this text within an element.
pub(crate) fn button(within: &str, text: &str) -> String {
    format!("[...document.querySelectorAll('{within} button')].find((it) => it.textContent.startsWith('{text}'))")
}

/// Returns an expression for the number of visible rows in a list that contain a string.
pub(crate) fn rows_with(list: &str, text: &str) -> String {
    format!(
        "[...document.querySelectorAll('#{list} .row')].filter((it) => it.style.display !== 'none' \
         && it.textContent.includes('{text}')).length"
    )
}

/// Opens a watch, and waits until its response begins.
pub(crate) fn watch(server: &Server) -> BufReader<TcpStream> {
    let path = format!("GET {MAPS}?watch=true&resourceVersion=0");
    let mut reader = BufReader::new(send(server, &path, &["User-Agent: watcher/1"], ""));
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).expect("the response has a head");
    }
    reader
}

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

#[tokio::test]
async fn filters_narrow_the_journal_and_a_row_shows_bodies() {
    let Some((server, mut tab)) = open(&[]).await else {
        return;
    };
    tab.picture("empty").await;
    create_map(&server, &named("first"));
    create_map(
        &server,
        &json!({"metadata": {"name": "second"}, "data": {"color": "vermilion"}}),
    );
    let missing = ask(&server, &format!("GET {MAPS}/third"), &["User-Agent: looker/2"], "");
    assert_eq!(missing.code, 404);
    tab.until(&format!("{} === 3", rows_with("entries", "configmaps")))
        .await;

    for (control, value, shown) in [
        ("verb", "create", "2 of"),
        ("status", "4", "1 of"),
        ("resource", "configmaps", "3 of"),
        ("resource", "pods", "0 of"),
        ("client", "LOOK", "1 of"),
        ("text", "Vermilion", "1 of"),
        ("verb", "events", "0 of"),
    ] {
        tab.eval(&format!("{}.focus()", id(control))).await;
        if matches!(control, "verb" | "status") {
            let choose = format!(
                "{0}.value = '{value}'; {0}.dispatchEvent(new Event('input'))",
                id(control)
            );
            tab.eval(&choose).await;
        } else {
            tab.type_text(value).await;
        }
        tab.until(&format!("{}.textContent.startsWith('{shown}')", id("shown")))
            .await;
        tab.click(&id("unfilter")).await;
        tab.until(&format!("{}.textContent.startsWith('3 of')", id("shown")))
            .await;
    }

    tab.click("[...document.querySelectorAll('#entries .row')].find((it) => it.textContent.includes('second'))")
        .await;
    tab.until("[...document.querySelectorAll('#entry pre')].every((it) => it.textContent.includes('vermilion'))")
        .await;
    tab.until("document.querySelectorAll('#entry pre')[1].textContent.includes('\"uid\"')")
        .await;
    tab.picture("light").await;
    tab.looks(1280, 800, "dark").await;
    tab.picture("dark").await;
    tab.looks(400, 800, "light").await;
    tab.picture("narrow").await;
    let widest = tab.eval("document.documentElement.scrollWidth").await;
    assert!(
        widest.as_u64() <= Some(400),
        "nothing is wider than a narrow window: {widest}"
    );
}

#[tokio::test]
async fn buttons_hold_a_watch_release_one_event_and_resume() {
    let Some((server, mut tab)) = open(&[]).await else {
        return;
    };
    let mut lines = watch(&server);
    tab.until(&format!("{}.textContent === '1'", id("watch-count"))).await;
    tab.click(&button("#watches", "Hold")).await;
    tab.until("document.querySelector('#watches .chip').textContent.startsWith('held')")
        .await;
    for name in ["a", "b", "c", "d"] {
        create_map(&server, &named(name));
    }
    tab.until("document.querySelector('#watches .chip').textContent === 'held, 4 behind'")
        .await;
    tab.until("document.querySelector('#watches .held').textContent.includes('ADDED default/a')")
        .await;
    tab.picture("held").await;
    tab.click(&button("#watches", "Let one pass")).await;
    tab.until("document.querySelector('#watches .chip').textContent === 'held, 3 behind'")
        .await;
    tab.click(&button("#watches", "Resume")).await;
    tab.until("document.querySelector('#watches .chip').textContent === 'up to date'")
        .await;
    let mut read = String::new();
    while !read.contains("\"name\":\"d\"") {
        lines.read_line(&mut read).expect("the events arrive");
    }
    tab.until(&format!("{} >= 4", rows_with("entries", "ADDED"))).await;
}

#[tokio::test]
async fn buttons_end_and_expire_watches() {
    let Some((server, mut tab)) = open(&[]).await else {
        return;
    };
    for (word, ending) in [("Cut", ""), ("Expire", "\"code\":410"), ("End", "\r\n0\r\n\r\n")] {
        let mut lines = watch(&server);
        tab.until("document.querySelectorAll('#watches li').length === 1").await;
        tab.click(&button("#watches", word)).await;
        let mut rest = Vec::new();
        // A broken connection ends with an error.
        let ended = lines.read_to_end(&mut rest);
        let rest = String::from_utf8_lossy(&rest);
        let is_whole = ended.is_ok() && rest.ends_with("0\r\n\r\n");
        assert_eq!(is_whole, word != "Cut", "{word}: {rest}");
        assert!(
            rest.contains(ending) || format!("\r\n{rest}").contains(ending),
            "{word}: {rest}"
        );
        tab.until("document.querySelectorAll('#watches li').length === 0").await;
    }
}

#[tokio::test]
async fn fault_is_injected_counted_and_ended() {
    let Some((server, mut tab)) = open(&[]).await else {
        return;
    };
    tab.press("f").await;
    tab.until("document.activeElement.id === 'effect'").await;
    tab.eval(&format!(
        "{0}.value = 'status'; {0}.dispatchEvent(new Event('input'))",
        id("effect")
    ))
    .await;
    tab.click("document.querySelector('#verbs [value=create]')").await;
    tab.click(&id("fault-resource")).await;
    tab.type_text("configmaps").await;
    tab.press("Enter").await;
    tab.until("document.querySelector('#faults .name')?.textContent.startsWith('503 ServiceUnavailable on create configmaps')")
        .await;
    let struck = ask(&server, &format!("POST {MAPS}"), &[], &named("a").to_string());
    assert_eq!(struck.code, 503, "{struck:?}");
    tab.until("document.querySelector('#faults .chip').textContent === 'hits: 1, used up'")
        .await;
    tab.until(&format!("{} === 1", rows_with("entries", "⚡"))).await;
    tab.picture("fault").await;
    tab.click(&button("#faults", "End")).await;
    tab.until("document.querySelectorAll('#faults li').length === 0").await;
    assert_eq!(get(&server, "/_fake/faults"), json!([]));
    // A refused request is shown, and does not count as a fault.
    tab.eval(&format!(
        "{0}.value = 'status'; {1}.value = 200",
        id("effect"),
        id("value")
    ))
    .await;
    tab.click(&id("inject")).await;
    tab.until(&format!(
        "{}.textContent.includes('200 is not an HTTP error code')",
        id("said")
    ))
    .await;
}

#[tokio::test]
async fn snapshot_is_compared_and_restored() {
    let Some((server, mut tab)) = open(&[]).await else {
        return;
    };
    create_map(&server, &json!({"metadata": {"name": "owner"}, "data": {"a": "1"}}));
    tab.press("s").await;
    tab.until("document.querySelectorAll('#snapshots li').length === 1")
        .await;
    let uid = get(&server, "/_fake/objects");
    let uid = uid
        .as_array()
        .into_iter()
        .flatten()
        .find(|it| it["name"] == "owner")
        .expect("the object exists")["uid"]
        .clone();
    let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]);
    create_map(
        &server,
        &json!({"metadata": {"name": "owned", "ownerReferences": owners}}),
    );
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}, "data": {"a": "2"}});
    assert_eq!(
        ask(&server, &format!("PUT {MAPS}/owner"), &[], &owner.to_string()).code,
        200
    );

    tab.click(&button("#snapshots", "Compare with now")).await;
    tab.until(&format!("{} === 1", rows_with("tree", "~ ConfigMap owner")))
        .await;
    tab.until(&format!("{} === 1", rows_with("tree", "+ ConfigMap owned")))
        .await;
    let depths = tab
        .eval(
            "['owner', 'owned'].map((name) => [...document.querySelectorAll('#tree .row')] \
             .find((it) => it.textContent.includes(`ConfigMap ${name}`)).getAttribute('aria-level'))",
        )
        .await;
    assert_eq!(depths, json!(["3", "4"]), "an object is listed below its owner");
    tab.click(
        "[...document.querySelectorAll('#tree .row')].find((it) => it.textContent.includes('~ ConfigMap owner'))",
    )
    .await;
    tab.until("document.querySelector('#object .plus').textContent === '+ \"2\"'")
        .await;
    tab.until("document.querySelector('#object .minus').textContent === '- \"1\"'")
        .await;
    tab.picture("objects").await;

    tab.click(&button("#snapshots", "Restore")).await;
    tab.until("document.querySelectorAll('#snapshots li').length === 2")
        .await;
    tab.until(&format!("{}.textContent === 'Nothing has changed.'", id("no-objects")))
        .await;
    let restored = ask(&server, &format!("GET {MAPS}/owner"), &[], "");
    assert!(restored.body.contains("\"a\":\"1\""), "{restored:?}");
    assert_eq!(ask(&server, &format!("GET {MAPS}/owned"), &[], "").code, 404);
    // Return to the previous state.
    tab.click(&button("#snapshots li", "Restore")).await;
    tab.until("document.querySelectorAll('#snapshots li').length === 3")
        .await;
    tab.until(&format!("{} === 1", rows_with("tree", "+ ConfigMap owned")))
        .await;
}

#[tokio::test]
async fn page_is_usable_with_only_the_keyboard() {
    let Some((server, mut tab)) = open(&[]).await else {
        return;
    };
    for name in ["a", "b", "c"] {
        create_map(&server, &named(name));
    }
    let _watch = watch(&server);
    tab.until(&format!("{} === 3", rows_with("entries", "maker/1"))).await;
    tab.press("2").await;
    for key in ["ArrowUp", "k", "k", "j", "Enter"] {
        tab.press(key).await;
    }
    tab.until(&format!(
        "{0}.hidden === false && {0}.querySelector('pre') !== null",
        id("entry")
    ))
    .await;
    let active = "document.getElementById(document.activeElement.getAttribute('aria-activedescendant'))";
    tab.until(&format!("{active}.getAttribute('aria-selected') === 'true'"))
        .await;
    tab.press("Escape").await;
    tab.until(&format!(
        "{}.hidden && document.activeElement.id === 'entries'",
        id("entry")
    ))
    .await;

    tab.press("/").await;
    tab.until("document.activeElement.id === 'text'").await;
    // In a text field, keys insert text.
    tab.press("p").await;
    tab.until(&format!(
        "{}.value === 'p' && {}.ariaPressed === 'false'",
        id("text"),
        id("pause")
    ))
    .await;
    tab.press("Escape").await;
    tab.press("p").await;
    tab.until(&format!("{}.ariaPressed === 'true'", id("pause"))).await;
    tab.eval(&format!("{}.click()", id("unfilter"))).await;
    create_map(&server, &named("d"));
    tab.until(&format!("{}.textContent.startsWith('paused, 2 more')", id("shown")))
        .await;
    tab.press("p").await;
    tab.until(&format!("{} === 2", rows_with("entries", "default/d"))).await;

    tab.until("document.querySelectorAll('#watches li').length === 1").await;
    tab.press("w").await;
    tab.until("document.activeElement.textContent === 'Hold'").await;
    let ring = tab.eval("getComputedStyle(document.activeElement).outlineStyle").await;
    assert_eq!(ring, "solid", "the focus is visible");
    tab.press("Enter").await;
    tab.until("document.activeElement.textContent === 'Resume'").await;
    tab.press("4").await;
    tab.until("document.activeElement.id === 'tree'").await;
    tab.until(&format!("{} > 0", rows_with("tree", "ConfigMap"))).await;
    tab.press("ArrowDown").await;
    tab.until("document.querySelector('#tree [aria-selected=true]') !== null")
        .await;
}

#[tokio::test]
async fn every_control_has_a_label_and_every_shortcut_is_listed() {
    let Some((server, mut tab)) = open(&[]).await else {
        return;
    };
    let _watch = watch(&server);
    tab.until("document.querySelectorAll('#watches li').length === 1").await;
    tab.press("?").await;
    tab.until(&format!("{}.open", id("help-dialog"))).await;
    let listed = tab
        .eval("[...document.querySelectorAll('#keys kbd')].map((it) => it.textContent).join(' ')")
        .await;
    for key in [
        "1", "2", "3", "4", "/", "o", "l", "[", "]", "n", "c", "p", "g", "w", "f", "s", "?", "Esc", "Enter",
    ] {
        assert!(
            listed.as_str().is_some_and(|it| it.split(' ').any(|it| it == key)),
            "{key}: {listed}"
        );
    }
    tab.press("Escape").await;
    let nameless = tab
        .eval(
            "[...document.querySelectorAll('button, input, select, textarea')].filter((it) => !it.textContent.trim() \
             && !it.labels?.length && !it.ariaLabel && !it.title).map((it) => it.id)",
        )
        .await;
    assert_eq!(nameless, json!([]));
}

#[tokio::test]
async fn placeholders_are_not_cut_off() {
    let Some((_server, mut tab)) = open(&[]).await else {
        return;
    };
    for width in [360, 800, 1000, 1280, 1366, 1440, 1920] {
        tab.looks(width, 800, "light").await;
        // The field must not be narrower than its placeholder.
        let cut = tab
            .eval(
                "[...document.querySelectorAll('input[placeholder]')].filter((it) => it.offsetWidth).filter((it) => { \
                 const before = it.value; const was = it.type; it.type = 'text'; it.value = it.placeholder; \
                 const isCut = it.scrollWidth > it.clientWidth; it.type = was; it.value = before; return isCut; \
                 }).map((it) => it.id)",
            )
            .await;
        assert_eq!(cut, json!([]), "at {width} pixels");
    }
    tab.looks(1280, 720, "light").await;
    tab.picture("filters").await;
}

#[tokio::test]
async fn text_from_clients_is_never_rendered_as_html() {
    let Some((server, mut tab)) = open(&[]).await else {
        return;
    };
    let attack = "<img src=x onerror=\"document.title='struck'\"><script>document.title='struck'</script>";
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"html": attack},
        "metadata": {"name": "mild", "annotations": {"example.com/note": attack}},
    });
    let agent = format!("User-Agent: {attack}");
    let made = ask(&server, &format!("POST {MAPS}"), &[&agent], &map.to_string());
    assert_eq!(made.code, 201, "{made:?}");
    // The API would refuse this name, but a dump may contain it.
    let event = json!({"type": "ADDED", "object": {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": attack, "namespace": "default", "uid": "u"}}});
    assert_eq!(ask(&server, "POST /_fake/events", &[], &event.to_string()).code, 200);
    let rule = json!({"effect": "conflict", "on": {"verbs": ["delete"], "client": attack}});
    assert_eq!(ask(&server, "POST /_fake/faults", &[], &rule.to_string()).code, 200);
    let path = format!("GET {MAPS}?watch=true&resourceVersion=0");
    let _watch = send(&server, &path, &[&agent], "");

    tab.until(&format!("{} > 0", rows_with("entries", "<img src=x"))).await;
    tab.until("document.querySelector('#watches .dim').textContent.includes('<img')")
        .await;
    tab.until("document.querySelector('#faults .name').textContent.includes('<img')")
        .await;
    tab.click("[...document.querySelectorAll('#entries .row')].find((it) => it.textContent.includes('create'))")
        .await;
    tab.until("document.querySelector('#entry pre').textContent.includes('onerror')")
        .await;
    tab.press("4").await;
    tab.until(&format!("{} === 1", rows_with("tree", "ConfigMap <img")))
        .await;
    tab.click("[...document.querySelectorAll('#tree .row')].find((it) => it.textContent.includes('<img'))")
        .await;
    tab.until("document.querySelector('#object pre').textContent.includes('onerror')")
        .await;
    assert_eq!(tab.eval("document.images.length").await, 0);
    assert_eq!(tab.eval("document.title").await, "fake-apiserver");
    assert_eq!(tab.eval("document.scripts.length").await, 1);
    // The policy of the page also forbids it.
    let barred = tab
        .eval("(() => { try { document.body.innerHTML = 'x'; return false; } catch (error) { return true; } })()")
        .await;
    assert_eq!(barred, true);
}

#[tokio::test]
async fn link_contains_the_token_and_the_page_removes_it() {
    let args = [
        "--authorization",
        "rbac",
        "--anonymous",
        "deny",
        "--control-token",
        "s3/cr=t",
    ];
    let Some((server, mut tab)) = open(&args).await else {
        return;
    };
    tab.until(&format!("{}.open", id("token-dialog"))).await;
    tab.go_to(&format!("{}/_fake/?view=journal&again#token=s3%2Fcr%3Dt", server.url))
        .await;
    tab.until("location.hash === ''").await;
    tab.until("sessionStorage.getItem('fake-apiserver-token') === 's3/cr=t'")
        .await;
    tab.until(&format!(
        "!{}.open && {}.textContent !== 'not authorized'",
        id("token-dialog"),
        id("link")
    ))
    .await;
}

#[tokio::test]
async fn page_prompts_for_the_token_and_keeps_it_for_the_tab() {
    let args = [
        "--authorization",
        "rbac",
        "--anonymous",
        "deny",
        "--control-token",
        "s3cret",
    ];
    let Some((_server, mut tab)) = open(&args).await else {
        return;
    };
    tab.until(&format!("{}.open", id("token-dialog"))).await;
    tab.picture("token").await;
    for (token, is_open) in [("wrong", true), ("s3cret", false)] {
        tab.until("document.activeElement.id === 'token'").await;
        tab.type_text(token).await;
        tab.press("Enter").await;
        match is_open {
            true => {
                tab.until(&format!(
                    "{}.textContent === 'Unauthorized' && {}.open",
                    id("token-why"),
                    id("token-dialog")
                ))
                .await;
            }
            false => tab.until(&format!("{}.textContent === 'live'", id("link"))).await,
        }
    }
    assert_eq!(tab.eval("Object.values(sessionStorage).join()").await, "s3cret");
    assert_eq!(tab.eval("localStorage.length + document.cookie.length").await, 0);
    tab.until(&format!("{}.textContent !== '–'", id("revision"))).await;
}

/// Sends this many requests for a missing object over one connection, and reads their responses.
async fn burst(stream: &mut Crowd, requests: usize) {
    let request = format!("GET {MAPS}/none HTTP/1.1\r\nHost: localhost\r\nUser-Agent: crowd/1\r\n\r\n");
    pipeline(stream, &request.repeat(requests), "HTTP/1.1 404", requests).await;
}

/// Sends requests over one connection, and reads this many responses with this status.
pub(crate) async fn pipeline(stream: &mut Crowd, requests: &str, status: &str, number: usize) {
    let (read, write) = stream;
    let sent = write.write_all(requests.as_bytes());
    let answered = async {
        let mut line = String::new();
        let mut answered = 0;
        while answered < number {
            line.clear();
            assert!(
                read.read_line(&mut line).await.expect("the server answers") > 0,
                "the stream has not ended"
            );
            answered += line.matches(status).count();
        }
    };
    let (sent, ()) = futures::join!(sent, answered);
    sent.expect("the connection is open");
}

/// A connection for many requests.
pub(crate) type Crowd = (tokio::io::BufReader<OwnedReadHalf>, OwnedWriteHalf);

pub(crate) async fn crowd(server: &Server) -> Crowd {
    let address = server.url.trim_start_matches("http://");
    let stream = tokio::net::TcpStream::connect(address)
        .await
        .expect("the server accepts connections");
    let (read, write) = stream.into_split();
    (tokio::io::BufReader::new(read), write)
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "a figure to know")]
async fn page_shows_a_thousand_requests_a_second() {
    const ROUNDS: usize = 60;
    const EACH: usize = 100;
    let Some((server, mut tab)) = open(&[]).await else {
        return;
    };
    tab.eval(
        "window.frames_ = 0; window.most = 0; window.taken = new Set(); (function look() { frames_ += 1; \
         most = Math.max(most, document.querySelectorAll('#entries .row').length); \
         taken.add(document.getElementById('shown').textContent); requestAnimationFrame(look); })()",
    )
    .await;
    let mut stream = crowd(&server).await;
    // Ten bursts per second make a thousand requests.
    let mut pace = interval(Duration::from_millis(100));
    let requests = async {
        for _ in 0..ROUNDS {
            pace.tick().await;
            burst(&mut stream, EACH).await;
        }
    };
    let looks = async {
        tab.until(&format!("{} > 20", rows_with("entries", "crowd/1"))).await;
        tab.click(&id("pause")).await;
        tab.until(&format!("{}.textContent.startsWith('paused, 1,')", id("shown")))
            .await;
        let first = "document.querySelector('#entries .row').textContent";
        let (before, frames) = (tab.eval(first).await, tab.eval("frames_").await);
        tab.until(&format!("frames_ > {frames} + 20")).await;
        assert_eq!(tab.eval(first).await, before, "a paused journal does not scroll");
        tab.picture("busy").await;
        tab.click(&id("pause")).await;
    };
    futures::join!(requests, looks);
    let all = ROUNDS * EACH;
    tab.until(&format!(
        "{}.textContent.replaceAll(',', '').endsWith('of {all}')",
        id("shown")
    ))
    .await;
    let drawn = tab.eval("({frames: frames_, rows: most, steps: taken.size})").await;
    println!("{all} entries: {drawn}");
    let number = |name: &str| drawn[name].as_u64().expect("the value is a number");
    assert!(number("rows") < 100, "only visible rows exist: {drawn}");
    assert!(
        number("steps") < number("frames"),
        "entries are drawn in batches: {drawn}"
    );
    assert!(number("steps") > 30, "entries are drawn continuously: {drawn}");
    // A selected entry remains visible while other entries arrive.
    tab.press("2").await;
    tab.press("ArrowUp").await;
    burst(&mut stream, EACH).await;
    tab.until(&format!(
        "{}.textContent.replaceAll(',', '').endsWith('of {}')",
        id("shown"),
        all + EACH
    ))
    .await;
    tab.until("document.querySelector('#entries [aria-selected=true]').style.display === ''")
        .await;
    tab.press("g").await;
    // Exceeds the number of entries that the page keeps: the oldest are dropped, and the newest are visible.
    burst(&mut stream, 7_000).await;
    tab.until(
        "(() => { const kept = Number(document.getElementById('shown').textContent.split(' of ')[1].replace(',', '')); \
         return kept >= 10000 && kept <= 11000; })()",
    )
    .await;
    let is_at_end = "(() => { const it = document.querySelector('#entries'); \
                     return it.scrollHeight > 200000 && it.scrollHeight - it.scrollTop - it.clientHeight < 30; })()";
    tab.until(is_at_end).await;
}
