//! Finds the container for a request for logs or a connection.

use super::value_at;
use crate::api::json::Value;
use crate::api::object::Object;
use crate::api::status::Status;

/// Returns the container that a client selects. The client must select one if there are several.
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

/// Returns `true` if a container is running.
pub(super) fn is_running(pod: &Object, container: &str) -> bool {
    status_of(pod, container).is_some_and(|it| it.pointer("/state/running").is_some())
}

/// Returns the status of a container.
pub(super) fn status_of<'a>(pod: &'a Object, container: &str) -> Option<&'a Value> {
    let lists = [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ];
    let mut all = lists
        .into_iter()
        .flat_map(|list| value_at(pod, &["status", list]).and_then(Value::as_array))
        .flatten();
    all.find(|it| it.get("name").and_then(Value::as_str) == Some(container))
}
