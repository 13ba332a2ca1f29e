//! The life cycle of a container: waiting, running, terminated and restarted.

use std::time::Duration;

use jiff::Timestamp;

use super::command::{AT_ONCE, known_run};
use super::environment;
use super::look::{Look, later};
use super::probe::{ProbeKind, Probes};
use super::resize;
use super::script::Runs;
use crate::api::json::{Map, Value, json};
use crate::registry::types::cursor::Cursor;
use crate::workers::hash::long_hex;
use crate::workers::workloads::cluster::controller_of;
use crate::workers::workloads::pods;

/// Delay of the restart after the first one, in seconds; each further restart doubles it. The first one is immediate.
const BACK_OFF_FIRST: u64 = 10;
/// Maximum delay of a restart, in seconds.
const BACK_OFF_MOST: u64 = 300;

/// The exit code of a container that was killed.
pub(super) const KILLED: i32 = 137;

/// Maximum number of lines of output in a termination message.
const MESSAGE_LINES_MAX: usize = 80;
/// Maximum size of output in a termination message, in bytes.
const MESSAGE_BYTES_MAX: usize = 2048;

/// A container of a Pod, and the list in the spec that contains it.
#[derive(Clone, Copy)]
pub(super) struct Container<'a> {
    pub(super) list: &'static str,
    pub(super) spec: &'a Map,
    /// Reason of the waiting state before the container may start.
    pub(super) waits_for: &'static str,
    /// Time for which the container runs; `None` if it runs forever.
    pub(super) runs_for: Option<Duration>,
    pub(super) exit_code: i32,
}

/// Stage in the life cycle of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Waiting,
    Running,
    /// The container has ended with this code and has not been restarted.
    Ended(i64),
}

/// Returns the stage of a container according to its status; a container in `CrashLoopBackOff` is waiting.
pub(super) fn stage(status: &Map) -> Stage {
    let state = Cursor::root(status).map_or_empty("state");
    match (
        Cursor::root(state).map("running"),
        Cursor::root(state).map("terminated"),
    ) {
        (Some(_), _) => Stage::Running,
        (_, Some(end)) => Stage::Ended(Cursor::root(end).integer("exitCode").unwrap_or(0)),
        (None, None) => Stage::Waiting,
    }
}

impl Look<'_> {
    /// Returns `true` if a container that has ended with `code` is restarted.
    fn restarts(&self, container: &Container<'_>, code: i64) -> bool {
        if container.list == "ephemeralContainers" {
            return false;
        }
        let own = Cursor::root(container.spec).text("restartPolicy");
        let policy = match (own, Cursor::root(self.pod).text("spec.restartPolicy")) {
            ("", "Always") if container.list == "initContainers" => "OnFailure",
            ("", policy) => policy,
            (own, _) => own,
        };
        match policy {
            "Never" => false,
            "OnFailure" => code != 0,
            _ => true,
        }
    }

    /// Returns the time for which a container of the Pod runs (`None` if it is unlimited) and its exit code.
    pub(super) fn end_of(&self, container: &Map) -> (Option<Duration>, i32) {
        let code = self.script.exit_code_of(Cursor::root(container).text("name"));
        let code = code.or(self.script.exit_code);
        match (self.script.runs, Cursor::root(self.pod).text("spec.restartPolicy")) {
            (Runs::For(time), _) => (Some(time), code.unwrap_or(0)),
            (Runs::Forever, _) | (Runs::ByRestartPolicy, "Always" | "") => (None, code.unwrap_or(0)),
            (Runs::ByRestartPolicy, _) => match (known_run(container), code) {
                (Some(known), code) => (Some(known.time), code.unwrap_or(known.exit_code)),
                (None, Some(code)) => (Some(AT_ONCE), code),
                (None, None) if self.is_of_a_job() || reads_once(container) => (Some(AT_ONCE), 0),
                (None, None) => (None, 0),
            },
        }
    }

    /// Returns the time for which an init container of the Pod runs, and its exit code.
    pub(super) fn end_of_init(&self, container: &Map) -> (Option<Duration>, i32) {
        let known = known_run(container);
        let known_time = known.as_ref().map_or(AT_ONCE, |it| it.time);
        let code = self.script.exit_code_of(Cursor::root(container).text("name"));
        let code = code.or(self.script.init_exit_code);
        (
            Some(self.script.init_runs_for.unwrap_or(known_time)),
            code.or(known.map(|it| it.exit_code)).unwrap_or(0),
        )
    }

    /// Returns `true` if a Job controls the Pod.
    fn is_of_a_job(&self) -> bool {
        controller_of(self.pod).is_some_and(|(kind, ..)| kind == "Job")
    }

    /// Returns the status of a container that has not been started.
    pub(super) fn fresh(&self, container: &Container<'_>) -> Map {
        to_map(json!({
            "name": Cursor::root(container.spec).text("name"), "image": Cursor::root(container.spec).text("image"), "imageID": "",
            "lastState": {}, "ready": false, "restartCount": 0, "started": false,
            "state": {"waiting": {"reason": container.waits_for}},
        }))
    }

    /// Computes the next status of a container. `may_start` is the earliest start time; `None` if it may not start yet.
    pub(super) fn step(&mut self, container: &Container<'_>, old: &Map, may_start: Option<Timestamp>) -> Map {
        let name = Cursor::root(container.spec).text("name").to_owned();
        let state = Cursor::root(old).map_or_empty("state");
        if let Some(running) = Cursor::root(state).map("running") {
            return self.step_running(
                container,
                &name,
                old,
                pods::time(Cursor::root(running).text("startedAt")),
            );
        }
        if let Some(end) = Cursor::root(state).map("terminated") {
            return self.step_ended(container, &name, old, end);
        }
        let Some(turn) = may_start else { return old.clone() };
        let waiting = Cursor::root(state).map_or_empty("waiting");
        if Cursor::root(waiting).text("reason") == "CrashLoopBackOff" {
            let ended = Cursor::root(old).map_or_empty("lastState.terminated");
            let since = self.since(&name, pods::time(Cursor::root(ended).text("finishedAt")));
            if !self.has_passed(since, back_off(old)) {
                return old.clone();
            }
            return self.run(container, &name, old);
        }
        if !self.has_passed(turn, Duration::ZERO) {
            return old.clone();
        }
        if self.script.pull_fails {
            return self.fail_pull(container, &name, old);
        }
        match environment::sub_path_error(self.pod, container.spec, self.sees) {
            Some(why) => self.fail_config(container, &name, old, &why),
            None => self.run(container, &name, old),
        }
    }

    /// Returns the status of a container with an invalid configuration. The container starts once the configuration is
    /// valid.
    fn fail_config(&mut self, container: &Container<'_>, name: &str, old: &Map, why: &str) -> Map {
        if Cursor::root(old).text("state.waiting.message") != why {
            self.note(container.list, name, "Failed", format!("Error: {why}"), true);
        }
        let mut next = old.clone();
        let waiting = json!({"waiting": {"reason": "CreateContainerConfigError", "message": why}});
        next.insert("state".into(), waiting);
        next
    }

    fn fail_pull(&mut self, container: &Container<'_>, name: &str, old: &Map) -> Map {
        let image = Cursor::root(container.spec).text("image").to_owned();
        let reason = Cursor::root(old).text("state.waiting.reason");
        let trouble =
            format!("failed to pull and unpack image \"{image}\": failed to resolve reference \"{image}\": not found");
        let (reason, message) = match reason {
            "ImagePullBackOff" => return old.clone(),
            "ErrImagePull" => {
                let since = self.since(name, None);
                if !self.has_passed(since, Duration::from_secs(BACK_OFF_FIRST)) {
                    return old.clone();
                }
                let text = format!("Back-off pulling image \"{image}\"");
                self.note(container.list, name, "BackOff", text.clone(), false);
                (
                    "ImagePullBackOff",
                    format!("{text}: ErrImagePull: rpc error: code = NotFound desc = {trouble}"),
                )
            }
            _ => {
                let text = format!("rpc error: code = NotFound desc = {trouble}");
                self.note(
                    container.list,
                    name,
                    "Pulling",
                    format!("Pulling image \"{image}\""),
                    false,
                );
                self.note(
                    container.list,
                    name,
                    "Failed",
                    format!("Failed to pull image \"{image}\": {text}"),
                    true,
                );
                self.look_again(later(self.now, Duration::from_secs(BACK_OFF_FIRST)));
                ("ErrImagePull", text)
            }
        };
        self.mark(name);
        let mut next = old.clone();
        next.insert(
            "state".into(),
            json!({"waiting": {"reason": reason, "message": message}}),
        );
        next
    }

    /// Starts a container.
    fn run(&mut self, container: &Container<'_>, name: &str, old: &Map) -> Map {
        let mut next = old.clone();
        let has_run = Cursor::root(old).map("lastState.terminated").is_some()
            || Cursor::root(old).map("state.terminated").is_some();
        let restarts = Cursor::root(old).integer("restartCount").unwrap_or(0) + i64::from(has_run);
        if let Some(end) = Cursor::root(old).map_or_empty("state").get("terminated") {
            next.insert("lastState".into(), json!({"terminated": end}));
        }
        let image = Cursor::root(container.spec).text("image");
        let id = long_hex(&[self.pod.uid(), name, &restarts.to_string()]);
        next.insert("restartCount".into(), restarts.into());
        next.insert("containerID".into(), format!("containerd://{id}").into());
        next.insert("image".into(), image.into());
        next.insert(
            "imageID".into(),
            format!("{image}@sha256:{}", long_hex(&[image])).into(),
        );
        next.insert("state".into(), json!({"running": {"startedAt": self.stamp}}));
        resize::allocate(&mut next, container.spec);
        self.mark(name);
        let pulled = format!("Container image \"{image}\" already present on machine");
        self.note(container.list, name, "Pulled", pulled, false);
        self.note(
            container.list,
            name,
            "Created",
            format!("Container created: {name}"),
            false,
        );
        self.note(
            container.list,
            name,
            "Started",
            format!("Container started: {name}"),
            false,
        );
        let probes = self.probes(container.spec, self.now);
        self.put_health(container, &probes, self.now, &mut next);
        let ends = [container.runs_for, probes.killed.map(|(at, _)| at)];
        if let Some(time) = ends.into_iter().flatten().min() {
            self.look_again(later(self.now, time));
        }
        next
    }

    /// Sets whether a running container is started and ready.
    fn put_health(&mut self, container: &Container<'_>, probes: &Probes, since: Timestamp, status: &mut Map) {
        let started = probes.started.is_some_and(|delay| self.has_passed(since, delay));
        status.insert("started".into(), started.into());
        let ready = self.is_ready_by(container, probes, since);
        status.insert("ready".into(), ready.into());
    }

    fn is_ready_by(&mut self, container: &Container<'_>, probes: &Probes, since: Timestamp) -> bool {
        if container.list == "initContainers" && Cursor::root(container.spec).text("restartPolicy") != "Always" {
            return false;
        }
        let mut is_healthy = false;
        for (at, healthy) in &probes.ready {
            if !self.has_passed(since, *at) {
                break;
            }
            is_healthy = *healthy;
        }
        let delay = self.script.ready_after;
        delay.is_some_and(|delay| self.has_passed(since, delay)) && is_healthy
    }

    fn step_running(&mut self, container: &Container<'_>, name: &str, old: &Map, recorded: Option<Timestamp>) -> Map {
        let since = self.since(name, recorded);
        let probes = self.probes(container.spec, since);
        let runs_for = container.runs_for.unwrap_or(Duration::MAX);
        if let Some((time, probe)) = probes.killed.filter(|(time, _)| *time < runs_for)
            && self.has_passed(since, time)
        {
            let killed = Container {
                exit_code: KILLED,
                ..*container
            };
            return self.fail_probe(&killed, name, old, probe);
        }
        if let Some(time) = container.runs_for
            && self.has_passed(since, time)
        {
            return self.end(container, name, old);
        }
        let mut next = old.clone();
        if self.resize(&mut next, container.spec) {
            let started = Cursor::root(old).text("state.running.startedAt");
            let end = ended(0, started, &self.stamp, Cursor::root(old).text("containerID"));
            next.insert("state".into(), json!({"terminated": end}));
            return self.run(container, name, &next);
        }
        self.put_health(container, &probes, since, &mut next);
        let is_ready = |status: &Map| Cursor::root(status).flag("ready") == Some(true);
        if is_ready(old) && !is_ready(&next) && self.script.fails(ProbeKind::Readiness) {
            self.note_unhealthy(container.list, container.spec, ProbeKind::Readiness);
        }
        next
    }

    /// Kills a container because of a failed probe.
    fn fail_probe(&mut self, container: &Container<'_>, name: &str, old: &Map, probe: ProbeKind) -> Map {
        self.note_unhealthy(container.list, container.spec, probe);
        let ending = match self.restarts(container, i64::from(container.exit_code)) {
            true => ", will be restarted",
            false => "",
        };
        let text = format!("Container {name} failed {} probe{ending}", probe.name());
        self.note(container.list, name, "Killing", text, false);
        self.end(container, name, old)
    }

    /// Returns the status of a container that ends now.
    fn end(&mut self, container: &Container<'_>, name: &str, old: &Map) -> Map {
        let mut next = old.clone();
        let started = Cursor::root(old).text("state.running.startedAt");
        self.mark(name);
        let mut end = ended(
            container.exit_code,
            started,
            &self.stamp,
            Cursor::root(old).text("containerID"),
        );
        if let Some(message) = self.last_words(container) {
            end["message"] = message.into();
        }
        next.insert("state".into(), json!({"terminated": end}));
        next.insert(
            "ready".into(),
            (container.list == "initContainers" && container.exit_code == 0).into(),
        );
        next.insert("started".into(), false.into());
        if self.restarts(container, i64::from(container.exit_code)) {
            self.look_again(self.now);
        }
        next
    }

    /// Returns the end of a failed container's output, if the container's policy makes it the termination message.
    fn last_words(&self, container: &Container<'_>) -> Option<String> {
        let policy = Cursor::root(container.spec).text("terminationMessagePolicy");
        if container.exit_code == 0 || policy != "FallbackToLogsOnError" {
            return None;
        }
        let output = self.script.output_of(container.spec, true);
        let lines: Vec<&str> = output.split_inclusive('\n').collect();
        let mut text = lines[lines.len().saturating_sub(MESSAGE_LINES_MAX)..].concat();
        let cut = text.len().saturating_sub(MESSAGE_BYTES_MAX);
        let cut = (cut..text.len()).find(|at| text.is_char_boundary(*at));
        text.drain(..cut.unwrap_or_default());
        Some(text).filter(|it| !it.is_empty())
    }

    fn step_ended(&mut self, container: &Container<'_>, name: &str, old: &Map, end: &Map) -> Map {
        let code = Cursor::root(end).integer("exitCode").unwrap_or(0);
        if !self.restarts(container, code) {
            return old.clone();
        }
        let wait = back_off(old);
        if wait.is_zero() {
            return self.run(container, name, old);
        }
        let pod = self.pod;
        let mut next = old.clone();
        let (namespace, pod_name, uid) = (pod.namespace(), pod.name(), pod.uid());
        let message = format!(
            "back-off {} restarting failed container={name} pod={pod_name}_{namespace}({uid})",
            go_duration(wait)
        );
        let text = format!("Back-off restarting failed container {name} in pod {pod_name}_{namespace}({uid})");
        self.note(container.list, name, "BackOff", text, true);
        next.insert("lastState".into(), json!({"terminated": end}));
        next.insert(
            "state".into(),
            json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}}),
        );
        let since = self.since(name, pods::time(end["finishedAt"].as_str().unwrap_or_default()));
        self.look_again(later(since, wait));
        next
    }
}

/// Returns `true` if a container ends when the standard input of its first client ends, as with `kubectl run -i`.
fn reads_once(container: &Map) -> bool {
    let container = Cursor::root(container);
    container.flag("stdin") == Some(true) && container.flag("stdinOnce") == Some(true)
}

/// Returns the delay before an ended container is restarted; zero for the first restart.
fn back_off(status: &Map) -> Duration {
    let restarts = u32::try_from(Cursor::root(status).integer("restartCount").unwrap_or(0)).unwrap_or(0);
    match restarts.checked_sub(1) {
        None => Duration::ZERO,
        Some(times) => {
            let seconds = BACK_OFF_FIRST.saturating_mul(2_u64.saturating_pow(times));
            Duration::from_secs(seconds.min(BACK_OFF_MOST))
        }
    }
}

/// Formats whole seconds like Go's `time.Duration`.
fn go_duration(time: Duration) -> String {
    match (time.as_secs() / 60, time.as_secs() % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

/// Returns the state of a terminated container.
pub(super) fn ended(code: i32, started: &str, finished: &str, id: &str) -> Value {
    let reason = if code == 0 { "Completed" } else { "Error" };
    let started = if started.is_empty() { finished } else { started };
    json!({
        "exitCode": code, "reason": reason, "startedAt": started, "finishedAt": finished, "containerID": id,
    })
}

fn to_map(value: Value) -> Map {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
