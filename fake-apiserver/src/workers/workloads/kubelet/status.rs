//! Computes the phase and the conditions of a Pod from its containers.

use jiff::Timestamp;

use super::command::known_run;
use super::container::{Container, Stage, stage};
use super::look::{Look, later, started};
use super::resize::RESIZE_PENDING;
use crate::api::json::{Map, Value, json};
use crate::registry::types::cursor::Cursor;
use crate::workers::workloads::pods::{generation, plus, status};
use crate::workers::workloads::sees::{conditions, drop_condition, find_condition};

/// The conditions that a kubelet writes, in order.
const CONDITIONS: [&str; 4] = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"];

/// The containers of a Pod after a sync.
struct Standing {
    init: Vec<Map>,
    main: Vec<Map>,
    ephemeral: Vec<Map>,
    /// Set if all init containers have succeeded, or have started if they are sidecars.
    is_initialized: bool,
}

impl Look<'_> {
    /// Returns the next status of a Pod that is not being deleted.
    pub(super) fn advance(&mut self) -> Map {
        let mut next = status(self.pod).clone();
        let begun = started(&next).map(|it| self.since("", Some(it)));
        let begun = begun.unwrap_or_else(|| {
            self.mark("");
            self.now
        });
        next.entry("startTime").or_insert_with(|| self.stamp.clone().into());
        next.insert("hostIP".into(), self.memory.host.clone().into());
        next.insert("hostIPs".into(), json!([{"ip": self.memory.host}]));
        let due = later(begun, self.script.starts_after);
        if due > self.now {
            self.look_again(due);
        }
        let standing = self.containers(due);
        if due <= self.now {
            let uses_host = Cursor::root(self.pod).flag("spec.hostNetwork") == Some(true);
            let address = if uses_host {
                &self.memory.host
            } else {
                &self.memory.address
            };
            next.insert("podIP".into(), address.clone().into());
            next.insert("podIPs".into(), json!([{"ip": address}]));
        }
        if self.is_over(&next) {
            return self.exceeded(next);
        }
        self.fill(&mut next, standing);
        next
    }

    /// Advances the containers; the first one may start at `due`.
    fn containers(&mut self, due: Timestamp) -> Standing {
        let pod = Cursor::root(self.pod);
        let old = Cursor::root(status(self.pod));
        let known = |list: &str, container: &Map| {
            let name = Cursor::root(container).text("name");
            old.maps(list).find(|it| Cursor::root(it).text("name") == name)
        };
        let has_init = !pod.is_empty("spec.initContainers");
        let mut turn = Some(due);
        let mut init = Vec::new();
        for container_spec in pod.maps("spec.initContainers") {
            let is_sidecar = Cursor::root(container_spec).text("restartPolicy") == "Always";
            let (runs_for, exit_code) = self.end_of_init(container_spec);
            let container = Container {
                list: "initContainers",
                spec: container_spec,
                waits_for: "PodInitializing",
                runs_for: runs_for.filter(|_| !is_sidecar),
                exit_code,
            };
            let fresh = self.fresh(&container);
            let before = known("initContainerStatuses", container_spec).unwrap_or(&fresh);
            let after = self.step(&container, before, turn);
            let is_done = match stage(&after) {
                Stage::Running => is_sidecar && Cursor::root(&after).flag("started") == Some(true),
                Stage::Ended(code) => code == 0,
                Stage::Waiting => false,
            };
            turn = turn.filter(|_| is_done);
            init.push(after);
        }
        let mut main = Vec::new();
        for container_spec in pod.maps("spec.containers") {
            let (runs_for, exit_code) = self.end_of(container_spec);
            let container = Container {
                list: "containers",
                spec: container_spec,
                waits_for: if has_init {
                    "PodInitializing"
                } else {
                    "ContainerCreating"
                },
                runs_for,
                exit_code,
            };
            let fresh = self.fresh(&container);
            let before = known("containerStatuses", container_spec).unwrap_or(&fresh);
            main.push(self.step(&container, before, turn));
        }
        // Ephemeral containers are added to a running Pod, end once, and do not affect its phase.
        let mut ephemeral = Vec::new();
        for container_spec in pod.maps("spec.ephemeralContainers") {
            let end = known_run(container_spec);
            let container = Container {
                list: "ephemeralContainers",
                spec: container_spec,
                waits_for: "ContainerCreating",
                runs_for: end.as_ref().map(|it| it.time),
                exit_code: end.map_or(0, |it| it.exit_code),
            };
            let fresh = self.fresh(&container);
            let before = known("ephemeralContainerStatuses", container_spec).unwrap_or(&fresh);
            let mut after = self.step(&container, before, turn);
            after.insert("ready".into(), false.into());
            ephemeral.push(after);
        }
        Standing {
            init,
            main,
            ephemeral,
            is_initialized: turn.is_some(),
        }
    }

    /// Returns `true` if the Pod has exceeded `activeDeadlineSeconds`.
    fn is_over(&mut self, next: &Map) -> bool {
        let limit = Cursor::root(self.pod).integer("spec.activeDeadlineSeconds");
        let (Some(limit), Some(begun)) = (limit, started(next)) else {
            return false;
        };
        let due = plus(begun, limit);
        if due > self.now {
            self.look_again(due);
        }
        due <= self.now
    }

    fn exceeded(&mut self, mut next: Map) -> Map {
        let old = status(self.pod);
        let main = Cursor::root(old)
            .maps("containerStatuses")
            .map(|it| super::stop::stopped(it, super::container::KILLED, &self.stamp))
            .collect();
        let kept = |list: &str| Cursor::root(old).maps(list).cloned().collect();
        let (init, ephemeral) = (kept("initContainerStatuses"), kept("ephemeralContainerStatuses"));
        self.fill(
            &mut next,
            Standing {
                init,
                main,
                ephemeral,
                is_initialized: true,
            },
        );
        next.insert("phase".into(), "Failed".into());
        next.insert("reason".into(), "DeadlineExceeded".into());
        next.insert(
            "message".into(),
            "Pod was active on the node longer than the specified deadline".into(),
        );
        self.again = None;
        next
    }

    /// Writes containers, phase and conditions into a status.
    fn fill(&self, next: &mut Map, standing: Standing) {
        let phase = self.phase(&standing);
        next.insert("phase".into(), phase.into());
        self.put_conditions(next, &standing, phase);
        if generation(self.pod) > 0 {
            next.insert("observedGeneration".into(), generation(self.pod).into());
        }
        if !standing.init.is_empty() {
            next.insert("initContainerStatuses".into(), to_list(standing.init));
        }
        next.insert("containerStatuses".into(), to_list(standing.main));
        if !standing.ephemeral.is_empty() {
            next.insert("ephemeralContainerStatuses".into(), to_list(standing.ephemeral));
        }
    }

    fn phase(&self, standing: &Standing) -> &'static str {
        let policy = Cursor::root(self.pod).text("spec.restartPolicy");
        if !standing.is_initialized {
            let failed = standing
                .init
                .iter()
                .any(|it| matches!(stage(it), Stage::Ended(code) if code != 0));
            return if failed && policy == "Never" {
                "Failed"
            } else {
                "Pending"
            };
        }
        let has_run = |it: &Map| Cursor::root(it).map("lastState.terminated").is_some();
        let stages: Vec<Stage> = standing.main.iter().map(stage).collect();
        let never_ran = standing
            .main
            .iter()
            .any(|it| stage(it) == Stage::Waiting && !has_run(it));
        if never_ran {
            return "Pending";
        }
        let all_ended = stages.iter().all(|it| matches!(it, Stage::Ended(_)));
        if !all_ended || policy == "Always" || policy.is_empty() {
            return "Running";
        }
        let failed = stages.iter().any(|it| matches!(it, Stage::Ended(code) if *code != 0));
        match (failed, policy) {
            (false, _) => "Succeeded",
            (true, "Never") => "Failed",
            (true, _) => "Running",
        }
    }

    fn put_conditions(&self, next: &mut Map, standing: &Standing, phase: &str) {
        let ended = |reason: &'static str| Some((reason, String::new()));
        let unready: Vec<&str> = standing
            .main
            .iter()
            .filter(|it| Cursor::root(it).flag("ready") != Some(true))
            .map(|it| Cursor::root(it).text("name"))
            .collect();
        let of_containers = match phase {
            "Succeeded" => ended("PodCompleted"),
            "Failed" => ended("PodFailed"),
            _ if !unready.is_empty() => Some((
                "ContainersNotReady",
                format!("containers with unready status: [{}]", unready.join(" ")),
            )),
            _ => None,
        };
        let incomplete: Vec<&str> = standing
            .init
            .iter()
            .filter(|it| match stage(it) {
                Stage::Ended(code) => code != 0,
                Stage::Running => {
                    Cursor::root(it).flag("started") != Some(true) || Cursor::root(it).flag("ready") != Some(true)
                }
                Stage::Waiting => true,
            })
            .map(|it| Cursor::root(it).text("name"))
            .collect();
        let of_init = match phase {
            "Succeeded" => ended("PodCompleted").filter(|_| false),
            _ if !standing.is_initialized => {
                let why = format!("containers with incomplete status: [{}]", incomplete.join(" "));
                Some(("ContainersNotInitialized", why))
            }
            _ => None,
        };
        let has_sandbox = next.contains_key("podIP") && !matches!(phase, "Succeeded" | "Failed");
        let of_pod = of_containers.clone().or_else(|| self.closed_gate());
        let mut list = conditions(next);
        for kind in CONDITIONS {
            let (is_true, why) = match kind {
                "PodReadyToStartContainers" => (has_sandbox, None),
                "Initialized" => (of_init.is_none(), of_init.clone()),
                "Ready" => (of_pod.is_none(), of_pod.clone()),
                _ => (of_containers.is_none(), of_containers.clone()),
            };
            self.put_condition(next, &mut list, kind, is_true, why);
        }
        if find_condition(next, "PodScheduled").is_none() {
            self.put_condition(next, &mut list, "PodScheduled", true, None);
        }
        match &self.refused_resize {
            Some(why) => self.put_condition(next, &mut list, RESIZE_PENDING, true, Some(why.clone())),
            None => drop_condition(&mut list, RESIZE_PENDING),
        }
        next.insert("conditions".into(), list.into());
    }

    fn put_condition(
        &self,
        before: &Map,
        list: &mut Vec<Value>,
        kind: &str,
        is_true: bool,
        why: Option<(&str, String)>,
    ) {
        let status = if is_true { "True" } else { "False" };
        let old = find_condition(before, kind);
        let since = old
            .filter(|it| Cursor::root(it).text("status") == status)
            .map(|it| Cursor::root(it).text("lastTransitionTime").to_owned());
        let mut condition = json!({
            "type": kind, "status": status, "lastProbeTime": null,
            "lastTransitionTime": since.unwrap_or_else(|| self.stamp.clone()),
        });
        if generation(self.pod) > 0 {
            condition["observedGeneration"] = generation(self.pod).into();
        }
        if let Some((reason, message)) = why {
            condition["reason"] = reason.into();
            if !message.is_empty() {
                condition["message"] = message.into();
            }
        }
        let place = list
            .iter()
            .position(|it| it.get("type").and_then(Value::as_str) == Some(kind));
        match place {
            Some(place) => list[place] = condition,
            None => {
                // The kubelet writes its conditions before the conditions of the scheduler.
                let end = list
                    .iter()
                    .position(|it| it.get("type").and_then(Value::as_str) == Some("PodScheduled"));
                list.insert(end.unwrap_or(list.len()), condition);
            }
        }
    }

    /// Returns the reason and the message for the readiness gates that are not satisfied; `None` if all are satisfied.
    fn closed_gate(&self) -> Option<(&'static str, String)> {
        let gates = Cursor::root(self.pod)
            .maps("spec.readinessGates")
            .map(|it| Cursor::root(it).text("conditionType"));
        let mut trouble = Vec::new();
        for gate in gates {
            match find_condition(status(self.pod), gate) {
                None => trouble.push(format!(
                    "corresponding condition of pod readiness gate \"{gate}\" does not exist."
                )),
                Some(it) if Cursor::root(it).text("status") != "True" => {
                    let says = Cursor::root(it).text("status");
                    trouble.push(format!(
                        "the status of pod readiness gate \"{gate}\" is not \"True\", but {says}"
                    ));
                }
                Some(_) => {}
            }
        }
        (!trouble.is_empty()).then(|| ("ReadinessGatesNotReady", trouble.join(", ")))
    }
}

fn to_list(maps: Vec<Map>) -> Value {
    maps.into_iter().map(Value::Object).collect()
}
