//! Connections to Pods, Nodes and Services: reviewed by admission, refused as the real server refuses them where it can
//! be, else by name (rule I7).

use serde_json::{Map, Value};

use super::{SubresourceRequest, first, text_at, value_at};
use crate::api::object::Object;
use crate::api::options::{Query, WriteOptions};
use crate::api::status::Status;
use crate::registry::Registry;
use crate::registry::write::Written;

impl Registry {
    pub(super) async fn connect(&self, request: &SubresourceRequest<'_>) -> Result<Written, Status> {
        let mut warnings = Vec::new();
        // Nobody has a say in what becomes of a warning: every connection ends in a refusal, which tells them.
        self.admit_options(request, &mut warnings).await?;
        let refused = self.refuse(request).await;
        Err(refused.warned(warnings))
    }

    /// Admission, which is asked before anybody looks for the object.
    async fn admit_options(&self, request: &SubresourceRequest<'_>, warnings: &mut Vec<String>) -> Result<(), Status> {
        let subresource = first(&request.info.subresource);
        let Some(options) = connect_options(request) else {
            return Ok(());
        };
        let write_options = WriteOptions::default();
        let write = request.write(&write_options);
        self.admit_connection(&write, subresource, options, warnings).await
    }

    async fn refuse(&self, request: &SubresourceRequest<'_>) -> Status {
        let stored = match self.get(request.row, request.info, "").await {
            Ok(stored) => stored,
            Err(refused) => return refused,
        };
        if request.row.info.resource != "pods" {
            return request.unsupported();
        }
        let pod = self.decode(request.row, &stored);
        if matches!(first(&request.info.subresource), "exec" | "attach")
            && let Err(refused) = chosen_container(&pod, request.query.get("container").unwrap_or_default())
        {
            return refused;
        }
        if text_at(&pod, &["spec", "nodeName"]).is_empty() {
            return Status::bad_request(format!("pod {} does not have a host assigned", pod.name()));
        }
        request.unsupported()
    }
}

/// How the client wants the connection, as an object: what webhooks are shown.
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
                // Go writes a list that is not there as null, and this one even then.
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

/// What `exec` and `attach` have in common.
fn add_streams(object: &mut Map<String, Value>, query: &Query) {
    for name in ["stdin", "stdout", "stderr", "tty"] {
        if query.flag(name) == Some(true) {
            object.insert(name.into(), true.into());
        }
    }
    if let Some(container) = query.get("container").filter(|it| !it.is_empty()) {
        object.insert("container".into(), container.into());
    }
}

/// The container a client means, which it has to say where there are several.
pub(super) fn chosen_container<'a>(pod: &'a Object, wanted: &'a str) -> Result<&'a str, Status> {
    let named = |field: &str| -> Vec<&'a str> {
        let list = value_at(pod, &["spec", field]).and_then(|it| it.as_array());
        let names = list.into_iter().flatten().filter_map(|it| it.get("name")?.as_str());
        names.collect()
    };
    let containers = named("containers");
    if let ("", [only]) = (wanted, containers.as_slice()) {
        return Ok(only);
    }
    let all = [named("initContainers"), containers, named("ephemeralContainers")].concat();
    let name = pod.name();
    match wanted {
        "" => Err(Status::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            all.join(" ")
        ))),
        wanted if all.contains(&wanted) => Ok(wanted),
        wanted => Err(Status::bad_request(format!(
            "container {wanted} is not valid for pod {name}"
        ))),
    }
}
