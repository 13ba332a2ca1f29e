//! Scripts of Pods as data: the body of requests to the control API.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use serde::Deserialize;

use super::probe::ProbeKind;
use super::script::{PodScript, PodSelector};
use crate::api::streams::ExecOutput;
use crate::registry::types::quantity::Quantity;

/// A setter for a flag of a script.
type Flag = fn(PodScript) -> PodScript;

/// A script for selected Pods, as data.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let order: fake_apiserver::ScriptOrder = serde_json::from_str(
///     r#"{"pods": {"labels": "app=db"}, "script": {"runsForMs": 3000, "exitCode": 1, "logs": "out of luck\n",
///         "exec": [{"command": ["pg_isready"], "stdout": "no response\n", "exitCode": 2}]}}"#,
/// )?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptOrder {
    /// The selected Pods; all Pods by default.
    #[serde(default)]
    pods: Pods,
    /// The script of the selected Pods.
    script: Script,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pods {
    labels: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
}

/// The fields of [`PodScript`]; times are in milliseconds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Script {
    starts_after_ms: Option<u64>,
    ready_after_ms: Option<u64>,
    never_ready: bool,
    runs_for_ms: Option<u64>,
    runs_forever: bool,
    exit_code: Option<i32>,
    crash_loop: bool,
    image_pull_error: bool,
    init_runs_for_ms: Option<u64>,
    init_exit_code: Option<i32>,
    container_exit_codes: BTreeMap<String, i32>,
    usage: BTreeMap<String, String>,
    stops_after_ms: Option<u64>,
    failing_probes: Vec<FailingProbe>,
    logs: Option<String>,
    exec: Vec<Exec>,
    ports: Vec<Port>,
}

/// A period in which a probe fails, relative to the start of the container.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FailingProbe {
    probe: ProbeKind,
    #[serde(default)]
    from_ms: u64,
    until_ms: Option<u64>,
}

/// The output of a command in `exec`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Exec {
    /// The complete command line; if it is omitted, every command matches.
    command: Option<Vec<String>>,
    #[serde(default)]
    stdout: String,
    #[serde(default)]
    stderr: String,
    #[serde(default)]
    exit_code: i32,
    /// Set for a command that copies standard input to standard output as it arrives, like `cat`, and writes `stdout`
    /// at the end.
    #[serde(default)]
    echoes_stdin: bool,
}

/// Handler of a port: a web server with one response, or a fixed reply to any input.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Port {
    port: u16,
    #[serde(default)]
    http: Option<Http>,
    #[serde(default)]
    reply: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Http {
    #[serde(default = "ok")]
    status: u16,
    #[serde(default = "plain")]
    content_type: String,
    #[serde(default)]
    body: String,
}

fn ok() -> u16 {
    200
}

fn plain() -> String {
    "text/plain".to_owned()
}

impl ScriptOrder {
    /// Returns the selected Pods and their script, for [`Kubelet::script`](crate::Kubelet::script).
    ///
    /// # Errors
    ///
    /// Fails if a value is invalid, such as a selector; the error describes it.
    pub fn read(self) -> Result<(PodSelector, PodScript), String> {
        let Pods {
            labels,
            namespace,
            name,
            uid,
        } = self.pods;
        let pods = match (labels, namespace, name, uid) {
            (None, None, None, None) => PodSelector::all(),
            (Some(labels), None, None, None) => PodSelector::labelled(&labels)?,
            (None, namespace, Some(name), None) => PodSelector::named(namespace.as_deref().unwrap_or("default"), &name),
            (None, None, None, Some(uid)) => PodSelector::uid(&uid),
            _ => return Err("pods must be selected by labels, by namespace and name, or by uid".to_owned()),
        };
        Ok((pods, self.script.read()?))
    }
}

impl Script {
    fn read(self) -> Result<PodScript, String> {
        let exclusive = [self.runs_for_ms.is_some(), self.runs_forever, self.crash_loop];
        if exclusive.into_iter().filter(|it| *it).count() > 1 {
            return Err("runsForMs, runsForever and crashLoop are mutually exclusive".to_owned());
        }
        if self.never_ready && self.ready_after_ms.is_some() {
            return Err("readyAfterMs and neverReady are mutually exclusive".to_owned());
        }
        type Step = fn(PodScript, Duration) -> PodScript;
        let times: [(Option<u64>, Step); 5] = [
            (self.starts_after_ms, PodScript::starts_after),
            (self.ready_after_ms, PodScript::ready_after),
            (self.runs_for_ms, PodScript::runs_for),
            (self.init_runs_for_ms, PodScript::init_runs_for),
            (self.stops_after_ms, PodScript::stops_after),
        ];
        let mut script = PodScript::default();
        for (time, step) in times {
            script = time
                .into_iter()
                .fold(script, |it, ms| step(it, Duration::from_millis(ms)));
        }
        let flags: [(bool, Flag); 4] = [
            (self.never_ready, PodScript::never_ready),
            (self.runs_forever, PodScript::runs_forever),
            (self.crash_loop, PodScript::crash_loop),
            (self.image_pull_error, PodScript::image_pull_error),
        ];
        for (_, step) in flags.into_iter().filter(|(is_set, _)| *is_set) {
            script = step(script);
        }
        script = self.exit_code.into_iter().fold(script, PodScript::exits_with);
        script = self.init_exit_code.into_iter().fold(script, PodScript::init_exits_with);
        let codes = self.container_exit_codes.into_iter();
        script = codes.fold(script, |it, (name, code)| it.container_exits_with(name, code));
        for (name, amount) in self.usage {
            Quantity::parse(&amount).map_err(|why| format!("the usage of {name}: {why}"))?;
            script = script.uses(name, amount);
        }
        for failing in self.failing_probes {
            let from = Duration::from_millis(failing.from_ms);
            let until = failing.until_ms.map(Duration::from_millis);
            let until = until.map_or(Bound::Unbounded, Bound::Excluded);
            script = script.probe_fails(failing.probe, (Bound::Included(from), until));
        }
        script = self.logs.into_iter().fold(script, PodScript::logs);
        if !self.exec.is_empty() {
            script = answering(script, self.exec);
        }
        for port in self.ports {
            let number = port.port;
            script = match (port.http, port.reply) {
                (Some(http), None) => script.port(number, move |received| http.answer(received)),
                (None, Some(reply)) => script.port(number, move |received| {
                    (!received.is_empty()).then(|| reply.clone().into_bytes())
                }),
                _ => return Err(format!("port {number} must have either http or reply")),
            };
        }
        Ok(script)
    }
}

/// Adds a handler that runs a command by its first matching rule; other commands are not found.
fn answering(script: PodScript, rules: Vec<Exec>) -> PodScript {
    script.on_exec(move |command, stdin| {
        let fits = |rule: &&Exec| rule.command.as_deref().is_none_or(|it| it == command);
        let Some(rule) = rules.iter().find(fits) else {
            let program = command.first().map_or("", String::as_str);
            return ExecOutput::default()
                .with_stderr(format!("exec: \"{program}\": executable file not found in $PATH\n"))
                .exits_with(127);
        };
        if rule.echoes_stdin && !stdin.has_ended {
            return ExecOutput::stdout(stdin.unseen()).and_awaits_stdin();
        }
        let echoed = if rule.echoes_stdin { stdin.unseen() } else { &[] };
        ExecOutput::stdout([echoed, rule.stdout.as_bytes()].concat())
            .with_stderr(rule.stderr.clone())
            .exits_with(rule.exit_code)
    })
}

impl Http {
    /// Returns the response, or `None` until the request has arrived completely: a client that is still sending may
    /// lose an earlier response.
    fn answer(&self, received: &[u8]) -> Option<Vec<u8>> {
        if !is_whole(received) {
            return None;
        }
        let reason = http::StatusCode::from_u16(self.status).ok();
        let reason = reason.and_then(|it| it.canonical_reason()).unwrap_or("Unknown");
        let (status, kind, length) = (self.status, &self.content_type, self.body.len());
        let head = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        Some([head.as_bytes(), self.body.as_bytes()].concat())
    }
}

/// Returns `true` if the whole request, including its body, has arrived.
fn is_whole(request: &[u8]) -> bool {
    const END: &[u8] = b"\r\n\r\n";
    let Some(at) = request.windows(END.len()).position(|it| it == END) else {
        return false;
    };
    let (head, body) = request.split_at(at + END.len());
    let head = String::from_utf8_lossy(head).to_lowercase();
    let value = |name: &str| {
        let mut lines = head.lines().filter_map(|it| it.split_once(':'));
        lines
            .find(|(it, _)| *it == name)
            .map(|(_, value)| value.trim().to_owned())
    };
    if value("transfer-encoding").is_some_and(|it| it.ends_with("chunked")) {
        return body.ends_with(b"0\r\n\r\n");
    }
    let length = value("content-length").and_then(|it| it.parse::<usize>().ok());
    body.len() >= length.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    #[rstest]
    #[case::incomplete_head("GET / HTTP/1.1\r\nHost: x\r\n", false)]
    #[case::no_body("GET / HTTP/1.1\r\nHost: x\r\n\r\n", true)]
    #[case::incomplete_body("POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nab", false)]
    #[case::body("POST / HTTP/1.1\r\ncontent-length:4\r\n\r\nabcd", true)]
    #[case::first_chunk("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", false)]
    #[case::all_chunks("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", true)]
    fn response_is_sent_once_the_request_is_complete(#[case] received: &str, #[case] is_whole: bool) {
        assert_eq!(super::is_whole(received.as_bytes()), is_whole);
    }
}
