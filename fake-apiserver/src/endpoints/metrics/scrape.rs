//! Builds the page `/metrics`, with the names and help texts of kube-apiserver 1.36.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum_core::body::Body;
use http::{HeaderValue, Method, Response, header};

use super::exposition::{Exposition, MetricKind, count, number};
use super::{BUCKETS, Counters, Durations, Labels, Metrics};
use crate::endpoints::{discovery, encode};
use crate::registry::Registry;
use crate::registry::scheme::Row;

const REQUESTS: &str = "apiserver_request_total";
const DURATIONS: &str = "apiserver_request_duration_seconds";
const INFLIGHT: &str = "apiserver_current_inflight_requests";
const LONG_RUNNING: &str = "apiserver_longrunning_requests";
const RESOURCE_OBJECTS: &str = "apiserver_resource_objects";
const STORAGE_OBJECTS: &str = "apiserver_storage_objects";
const WATCH_EVENTS: &str = "apiserver_watch_events_total";
const BUILD_INFO: &str = "kubernetes_build_info";
const START_TIME: &str = "process_start_time_seconds";

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// Handles a request for `/metrics`. DELETE resets the counters; all other methods return them.
pub(crate) fn answer(metrics: &Metrics, registry: &Registry, method: &Method) -> Response<Body> {
    if method == Method::DELETE {
        metrics.reset();
        let mut response = encode::respond_whole(200, "text/plain; charset=utf-8", "metrics reset\n".into());
        let plain = HeaderValue::from_static("nosniff");
        response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, plain);
        return response;
    }
    encode::respond_whole(200, CONTENT_TYPE, page(metrics, registry).into())
}

/// Builds the page. Families and samples are sorted, so that equal counters result in equal pages.
fn page(metrics: &Metrics, registry: &Registry) -> String {
    let now = registry.reader.entropy.elapsed();
    let mut page = Exposition::default();
    inflight(&mut page, metrics.inflight.highest(now));
    {
        let counters = metrics.lock();
        long_running(&mut page, &counters);
        durations(&mut page, &counters);
        requests(&mut page, &counters);
    }
    let objects = objects(registry);
    page.family(
        RESOURCE_OBJECTS,
        MetricKind::Gauge,
        "[ALPHA] Number of stored objects at the time of last check split by kind. In case of a fetching error, the \
         value will be -1.",
    );
    for ((group, resource), number) in &objects {
        page.sample(
            RESOURCE_OBJECTS,
            &[("group", group), ("resource", resource)],
            count(*number),
        );
    }
    page.family(
        STORAGE_OBJECTS,
        MetricKind::Gauge,
        "[STABLE] [DEPRECATED, consider using apiserver_resource_objects instead] Number of stored objects at the time \
         of last check split by kind. In case of a fetching error, the value will be -1.",
    );
    let whole_name = |((group, resource), number): (&(String, String), &u64)| match group.as_str() {
        "" => (resource.clone(), *number),
        group => (format!("{resource}.{group}"), *number),
    };
    for (resource, number) in objects.iter().map(whole_name).collect::<BTreeMap<_, _>>() {
        page.sample(STORAGE_OBJECTS, &[("resource", &resource)], count(number));
    }
    events(&mut page, &metrics.lock());
    process(&mut page, registry, now);
    page.into_text()
}

fn inflight(page: &mut Exposition, [read_only, mutating]: [usize; 2]) {
    page.family(
        INFLIGHT,
        MetricKind::Gauge,
        "[STABLE] Maximal number of currently used inflight request limit of this apiserver per request kind in last \
         second.",
    );
    for (kind, number) in [("mutating", mutating), ("readOnly", read_only)] {
        page.sample(INFLIGHT, &[("request_kind", kind)], count(number as u64));
    }
}

fn long_running(page: &mut Exposition, counters: &Counters) {
    if counters.long_running.is_empty() {
        return;
    }
    page.family(
        LONG_RUNNING,
        MetricKind::Gauge,
        "[STABLE] Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, \
         scope and component. Not all requests are tracked this way.",
    );
    for (labels, number) in &counters.long_running {
        let labels: Vec<_> = labels
            .pairs()
            .into_iter()
            .filter(|(name, _)| *name != "dry_run")
            .collect();
        page.sample(LONG_RUNNING, &labels, count(*number));
    }
}

fn durations(page: &mut Exposition, counters: &Counters) {
    let mut observed = counters
        .answered
        .iter()
        .filter(|(_, it)| it.durations.total > 0)
        .peekable();
    if observed.peek().is_none() {
        return;
    }
    page.family(
        DURATIONS,
        MetricKind::Histogram,
        "[STABLE] Response latency distribution in seconds for each verb, dry run value, group, version, resource, \
         subresource, scope and component.",
    );
    for (labels, answered) in observed {
        histogram(page, labels, &answered.durations);
    }
}

fn histogram(page: &mut Exposition, labels: &Labels, durations: &Durations) {
    let name = |suffix: &str| format!("{DURATIONS}_{suffix}");
    let pairs = labels.pairs();
    let mut below = 0;
    let bounds = BUCKETS.map(number);
    let bounds = bounds.iter().map(String::as_str).zip(durations.counts);
    for (bound, number) in bounds {
        below += number;
        let labels: Vec<_> = pairs.into_iter().chain([("le", bound)]).collect();
        page.sample(&name("bucket"), &labels, count(below));
    }
    let labels: Vec<_> = pairs.into_iter().chain([("le", "+Inf")]).collect();
    page.sample(&name("bucket"), &labels, count(durations.total));
    page.sample(&name("sum"), &pairs, durations.sum);
    page.sample(&name("count"), &pairs, count(durations.total));
}

fn requests(page: &mut Exposition, counters: &Counters) {
    if counters.answered.is_empty() {
        return;
    }
    page.family(
        REQUESTS,
        MetricKind::Counter,
        "[STABLE] Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, \
         scope, component, and HTTP response code.",
    );
    // The code is the first label.
    let mut samples = BTreeMap::new();
    for (labels, answered) in &counters.answered {
        samples.extend(answered.by_code.iter().map(|(code, number)| ((code, labels), number)));
    }
    for ((code, labels), number) in samples {
        let code = code.to_string();
        let labels: Vec<_> = [("code", code.as_str())].into_iter().chain(labels.pairs()).collect();
        page.sample(REQUESTS, &labels, count(*number));
    }
}

fn events(page: &mut Exposition, counters: &Counters) {
    if counters.events.is_empty() {
        return;
    }
    page.family(
        WATCH_EVENTS,
        MetricKind::Counter,
        "[ALPHA] Number of events sent in watch clients",
    );
    let mut samples: Vec<_> = counters.events.iter().collect();
    samples.sort_by_key(|([group, version, resource], _)| (group, resource, version));
    for ([group, version, resource], number) in samples {
        let labels = [("group", group.as_str()), ("resource", resource), ("version", version)];
        page.sample(WATCH_EVENTS, &labels, count(number.load(Ordering::Relaxed)));
    }
}

/// Returns the number of objects of each stored resource, by group and plural.
fn objects(registry: &Registry) -> BTreeMap<(String, String), u64> {
    let scheme = registry.reader.scheme();
    let counts = registry.reader.store.counts();
    let mut seen = BTreeSet::new();
    // kube-apiserver does not store component statuses: it probes the components on each request.
    let is_asked = |row: &Row| row.info.resource == "componentstatuses" && row.info.group.is_empty();
    let stored = scheme.rows();
    let stored = stored.filter(|row| row.is_stored() && row.is_storage_version && !is_asked(row));
    stored
        .filter(|row| seen.insert(row.storage.clone()))
        .map(|row| {
            let number = counts.get(&row.storage).copied().unwrap_or_default();
            (
                (row.info.group.to_string(), row.info.resource.to_string()),
                number as u64,
            )
        })
        .collect()
}

fn process(page: &mut Exposition, registry: &Registry, now: Duration) {
    page.family(
        BUILD_INFO,
        MetricKind::Gauge,
        "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, \
         build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
    );
    let version = discovery::version(registry.reader.scheme().version);
    let fact = |name: &str| version[name].as_str().unwrap_or_default().to_owned();
    let facts = [
        ("build_date", fact("buildDate")),
        ("compiler", fact("compiler")),
        ("git_commit", fact("gitCommit")),
        ("git_tree_state", fact("gitTreeState")),
        ("git_version", fact("gitVersion")),
        ("go_version", fact("goVersion")),
        ("major", fact("major")),
        ("minor", fact("minor")),
        ("platform", fact("platform")),
    ];
    page.sample(
        BUILD_INFO,
        &facts.each_ref().map(|(name, value)| (*name, value.as_str())),
        1.0,
    );
    page.family(
        START_TIME,
        MetricKind::Gauge,
        "Start time of the process since unix epoch in seconds.",
    );
    let started = registry.reader.entropy.now().as_duration().as_secs_f64() - now.as_secs_f64();
    page.sample(START_TIME, &[], started);
}

impl Labels {
    /// Returns all labels except the code, in the order of their names.
    fn pairs(&self) -> [(&'static str, &str); 8] {
        [
            ("component", self.component),
            ("dry_run", self.dry_run),
            ("group", &self.group),
            ("resource", &self.resource),
            ("scope", self.scope),
            ("subresource", &self.subresource),
            ("verb", self.verb),
            ("version", &self.version),
        ]
    }
}
