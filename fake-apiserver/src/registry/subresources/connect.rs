//! What needs a kubelet: refused as the real server refuses it where it can be, else by name (rule I7).

use super::{SubresourceRequest, first, text_at, value_at};
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::Registry;
use crate::registry::write::Written;

impl Registry {
    pub(super) async fn connect(&self, request: &SubresourceRequest<'_>) -> Result<Written, Status> {
        let stored = self.get(request.row, request.info, "").await?;
        if request.row.info.resource != "pods" {
            return Err(request.unsupported());
        }
        let pod = self.decode(request.row, &stored);
        if matches!(first(&request.info.subresource), "exec" | "attach") {
            chosen_container(&pod, request.query.get("container").unwrap_or_default())?;
        }
        if text_at(&pod, &["spec", "nodeName"]).is_empty() {
            return Err(Status::bad_request(format!(
                "pod {} does not have a host assigned",
                pod.name()
            )));
        }
        Err(request.unsupported())
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
