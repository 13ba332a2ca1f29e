//! Connections to Pods, Nodes and Services. After admission, `exec` and `portforward` call the handlers of the Pod's
//! script, and `attach` returns the output of the container. Other connections fail with kube-apiserver's error if
//! there is one, or with an error that names the unsupported feature (rule I7).

use super::containers::{chosen_container, is_running};
use super::{SubresourceRequest, first, text_at};
use crate::api::field::quote;
use crate::api::json::{Map, Value};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::api::options::{Query, WriteOptions};
use crate::api::rbac;
use crate::api::request_info::Verb;
use crate::api::status::Status;
use crate::api::streams::{Connection, Streams};
use crate::registry::Registry;
use crate::registry::answer::{Answer, Written};

impl Registry {
    pub(super) async fn connect(&self, request: &SubresourceRequest<'_>) -> Result<Written, Status> {
        if request.query.get("dryRun").is_some() {
            return Err(Status::bad_request("dryRun is not supported"));
        }
        if first(&request.info.subresource) == "portforward" {
            request
                .query
                .all("ports")
                .flat_map(|it| it.split(','))
                .try_for_each(check_port)?;
        }
        self.admit_options(request).await?;
        self.check_create(request)?;
        let connection = self.open(request).await?;
        Ok(Written::updated(Answer::Connection(connection)))
    }

    /// Runs admission, before the object is looked up.
    async fn admit_options(&self, request: &SubresourceRequest<'_>) -> Result<(), Status> {
        let subresource = first(&request.info.subresource);
        let Some(options) = connect_options(request) else {
            return Ok(());
        };
        let write_options = WriteOptions::default();
        let write = request.write(&write_options);
        self.admission.admit_connection(&write, subresource, options).await
    }

    /// Checks that a user who opens a stream with GET may also create it. kube-apiserver requires this for WebSocket
    /// upgrades since 1.35 (`AuthorizePodWebsocketUpgradeCreatePermission`).
    fn check_create(&self, request: &SubresourceRequest<'_>) -> Result<(), Status> {
        let info = request.info;
        let is_stream = matches!(first(&info.subresource), "exec" | "attach" | "portforward");
        if !is_stream || info.verb == Verb::Create || self.reader.scheme().version < KubernetesVersion::V1_35 {
            return Ok(());
        }
        let create = rbac::Attributes {
            verb: "create",
            ..info.attributes()
        };
        let decision = self.authorization.decide(request.user, &create);
        match decision.is_allowed {
            true => Ok(()),
            false => Err(Status::forbidden(
                &request.row.info.group_resource(),
                &info.name,
                decision.reason,
            )),
        }
    }

    /// Opens the connection, if the Pod's script supports it.
    async fn open(&self, request: &SubresourceRequest<'_>) -> Result<Connection, Status> {
        let stored = self.reader.get(request.row, request.info, "").await?;
        if request.row.info.resource != "pods" {
            return Err(request.unsupported());
        }
        let pod = self.reader.decode(request.row, &stored);
        let subresource = first(&request.info.subresource);
        let query = request.query;
        let mut container = "";
        if matches!(subresource, "exec" | "attach") {
            container = chosen_container(&pod, query.get("container").unwrap_or_default())?;
        }
        if text_at(&pod, &["spec", "nodeName"]).is_empty() {
            let why = format!("pod {} does not have a host assigned", pod.name());
            return Err(Status::bad_request(why));
        }
        let Some(scripted) = self.pod_streams() else {
            return Err(request.unsupported());
        };
        let runs = || match is_running(&pod, container) {
            true => Ok(()),
            false => Err(Status::internal(format!("container not found ({})", quote(container)))),
        };
        match subresource {
            "exec" => {
                let handler = scripted.exec(&pod).ok_or_else(|| request.unsupported())?;
                runs()?;
                let command: Vec<String> = query.all("command").map(str::to_owned).collect();
                if command.is_empty() {
                    return Err(Status::bad_request(
                        "you must specify at least 1 command for the container",
                    ));
                }
                Ok(Connection::Exec(handler, command, streams(query)?))
            }
            "attach" => {
                runs()?;
                Ok(Connection::Attach(scripted.logs(&pod, container), streams(query)?))
            }
            "portforward" => {
                let listening = scripted.ports(&pod);
                if listening.is_empty() {
                    return Err(request.unsupported());
                }
                let asked = query.all("ports").flat_map(|it| it.split(','));
                let port = |text: &str| {
                    let port = text.parse().ok().filter(|it| *it > 0);
                    port.ok_or_else(|| Status::bad_request(format!("unable to parse {} as a port", quote(text))))
                };
                let asked = asked.filter(|it| !it.is_empty()).map(port);
                Ok(Connection::Ports(asked.collect::<Result<_, _>>()?, listening))
            }
            _ => Err(request.unsupported()),
        }
    }
}

/// Checks that a string is a port, like Go's `strconv.ParseUint`.
fn check_port(text: &str) -> Result<(), Status> {
    let is_number = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    let why = match is_number {
        true if text.parse::<u16>().is_ok() => return Ok(()),
        true => "value out of range",
        false => "invalid syntax",
    };
    let text = quote(text);
    Err(Status::bad_request(format!(
        "cannot convert to []int32: strconv.ParseUint: parsing {text}: {why}"
    )))
}

/// Returns the streams that a client requests; fails if the client does not request a stream.
fn streams(query: &Query) -> Result<Streams, Status> {
    let wants = |name: &str| query.flag(name) == Some(true);
    let streams = Streams {
        stdin: wants("stdin"),
        stdout: wants("stdout"),
        stderr: wants("stderr") && !wants("tty"),
        tty: wants("tty"),
    };
    if !(streams.stdin || streams.stdout || streams.stderr) {
        return Err(Status::bad_request(
            "you must specify at least 1 of stdin, stdout, stderr",
        ));
    }
    Ok(streams)
}

/// Creates the options object of the connection, which is sent to webhooks.
fn connect_options(request: &SubresourceRequest<'_>) -> Option<Object> {
    let subresource = first(&request.info.subresource);
    let sub = request
        .row
        .info
        .subresources
        .iter()
        .find(|it| *it.name == *subresource)?;
    let query = request.query;
    let mut object = Map::new();
    object.insert("apiVersion".into(), sub.version.to_string().into());
    object.insert("kind".into(), sub.kind.to_string().into());
    match subresource {
        "exec" | "attach" => {
            add_streams(&mut object, query);
            if subresource == "exec" {
                let command: Vec<Value> = query.all("command").map(Value::from).collect();
                // Go encodes a missing list as null here.
                let command = if command.is_empty() {
                    Value::Null
                } else {
                    command.into()
                };
                object.insert("command".into(), command);
            }
        }
        "portforward" => {
            let numbers = query.all("ports").flat_map(|it| it.split(','));
            let ports: Vec<Value> = numbers
                .filter_map(|it| it.parse::<i32>().ok())
                .map(Value::from)
                .collect();
            if !ports.is_empty() {
                object.insert("ports".into(), ports.into());
            }
        }
        _ => {
            if let Some((_, path)) = request.info.subresource.split_once('/') {
                object.insert("path".into(), format!("/{path}").into());
            } else if let Some(path) = query.get("path").filter(|it| !it.is_empty()) {
                object.insert("path".into(), path.into());
            }
        }
    }
    Some(Object(object))
}

/// Adds the options that `exec` and `attach` have in common.
fn add_streams(object: &mut Map, query: &Query) {
    for name in ["stdin", "stdout", "stderr", "tty"] {
        if query.flag(name) == Some(true) {
            object.insert(name.into(), true.into());
        }
    }
    if let Some(container) = query.get("container").filter(|it| !it.is_empty()) {
        object.insert("container".into(), container.into());
    }
}
