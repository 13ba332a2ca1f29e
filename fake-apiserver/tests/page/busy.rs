//! The cluster and the timeline in Chromium with 10,000 objects and 1,000 writes a second.
//!
//! The bounds do not depend on the speed of the machine: the number of elements, and the numbers of updates and
//! requests in relation to the time that has passed in the page. A slow machine makes fewer of each.

use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::time::interval;

use crate::browser::{Crowd, button, crowd, id, open_view, pipeline};
use crate::devtools::Tab;
use crate::search::load_maps;
use crate::{MAPS, newest};

const OBJECTS: usize = 10_000;

/// Number of bursts in each view, ten a second.
const ROUNDS: usize = 30;

/// Number of writes in a burst.
const EACH: usize = 100;

/// Records the largest number of rows and elements, the slowest frame, and the number of updates of the timeline.
const METER: &str = "performance.setResourceTimingBufferSize(100000); window.meter = {}; \
    (function look(then) { requestAnimationFrame((now) => { \
    meter.frames += 1; meter.slowest = Math.max(meter.slowest, now - then); \
    meter.rows = Math.max(meter.rows, document.querySelectorAll('.row').length); \
    meter.elements = Math.max(meter.elements, document.getElementsByTagName('*').length); \
    look(now); }); })(performance.now()); \
    { const show = showSteps; window.showSteps = () => { meter.updates += 1; show(); }; }";

/// Starts a new measurement.
const RESET: &str = "performance.clearResourceTimings(); \
    Object.assign(meter, { frames: 0, slowest: 0, rows: 0, elements: 0, updates: 0, start: performance.now() })";

/// Returns the measurement, with the number of requests for tables and of polls, and the number of kept entries.
const READ: &str = "(() => { \
    const requests = (path) => performance.getEntriesByType('resource').filter((it) => it.name.includes(path)).length; \
    return { ...meter, slowest: Math.round(meter.slowest), ms: Math.ceil(performance.now() - meter.start), \
    tables: requests('/_fake/table'), polls: requests('/_fake/watches'), entries: journal.all.length }; })()";

/// Writes 1,000 objects a second, and returns the measurement of the page.
async fn measured(tab: &mut Tab, stream: &mut Crowd, written: &mut usize) -> Value {
    tab.eval(RESET).await;
    let mut pace = interval(Duration::from_millis(100));
    for _ in 0..ROUNDS {
        pace.tick().await;
        let mut requests = String::new();
        for _ in 0..EACH {
            let body = format!("{{\"data\":{{\"n\":\"new {written}\"}}}}");
            // Consecutive writes do not change neighbouring rows.
            let name = format!("map-{:05}", (*written * 7) % OBJECTS);
            requests += &format!(
                "PATCH {MAPS}/{name} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: crowd/1\r\n\
                 Content-Type: application/merge-patch+json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            *written += 1;
        }
        pipeline(stream, &requests, "HTTP/1.1 200", EACH).await;
    }
    tab.eval(READ).await
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "a figure to know")]
async fn work_of_the_page_is_bounded_with_many_objects_and_writes() {
    let Some((server, mut tab)) = open_view("cluster", &[]).await else {
        return;
    };
    load_maps(&server, OBJECTS);
    // A watch makes the server send an event for each write.
    let (mut events, mut watch) = crowd(&server).await;
    let request = format!(
        "GET {MAPS}?watch=true&resourceVersion={} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: watcher/1\r\n\r\n",
        newest(&server)
    );
    watch
        .write_all(request.as_bytes())
        .await
        .expect("the connection is open");
    let events = tokio::spawn(async move { tokio::io::copy(&mut events, &mut tokio::io::sink()).await });

    tab.until(&format!("{} !== undefined", button("#kinds-own", "ConfigMap")))
        .await;
    tab.click(&button("#kinds-own", "ConfigMap")).await;
    tab.until(&format!("{}.textContent === '10,002'", id("rows-count")))
        .await;
    tab.eval(METER).await;
    let (mut stream, mut written) = (crowd(&server).await, 0);
    for (key, view) in [("1", "cluster"), ("3", "timeline")] {
        tab.press(key).await;
        let drawn = measured(&mut tab, &mut stream, &mut written).await;
        println!("{OBJECTS} objects, {view}: {drawn}");
        let number = |name: &str| drawn[name].as_u64().expect("the value is a number");
        assert!(number("rows") < 200, "only visible rows exist: {drawn}");
        assert!(
            number("elements") < 2_500,
            "the size of the page is independent of the number of objects: {drawn}"
        );
        // Loads that were requested before the start of the measurement are counted as well.
        assert!(
            number("tables") <= number("polls") + 4,
            "the table is loaded at most once for each poll: {drawn}"
        );
        assert!(
            view == "cluster" || number("tables") <= 3,
            "a hidden table is not loaded: {drawn}"
        );
        assert!(
            number("updates") <= number("ms") / 100 + 2,
            "the timeline is updated at most ten times a second: {drawn}"
        );
        assert!(number("entries") <= 11_000, "the oldest entries are removed: {drawn}");
    }
    // The page then shows the last write and the current revision.
    let last = format!("map-{:05}", ((written - 1) * 7) % OBJECTS);
    tab.until(&format!(
        "[...document.querySelectorAll('#steps .row')].some((it) => it.textContent.includes('{last}'))"
    ))
    .await;
    tab.press("1").await;
    tab.until(&format!("{}.textContent === '{}'", id("revision"), newest(&server)))
        .await;
    tab.until(&format!("{}.textContent === '10,002'", id("rows-count")))
        .await;
    events.abort();
}
