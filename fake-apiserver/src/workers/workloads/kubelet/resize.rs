//! Resizes the resources of running containers in place (KEP 1287). A resize takes effect immediately if the Node has
//! enough resources; otherwise the Pod gets the condition `PodResizePending`.

use super::look::Look;
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::workers::workloads::fit::{Amounts, Load, allocatable, exceeds, kubelet_amount, requests};
use crate::workers::workloads::resource::Resource;
use crate::workers::workloads::sees::Sees;

/// The condition of a Pod after a refused resize.
pub(super) const RESIZE_PENDING: &str = "PodResizePending";

/// The resources that can be resized while a container runs.
const RESIZABLE: [&str; 2] = ["memory", "cpu"];

/// Writes the resources of a container's spec into its status.
pub(super) fn allocate(status: &mut Map, container: &Map) {
    let asked = Cursor::root(container).map_or_empty("resources");
    let of = |name: &str| {
        asked
            .get(name)
            .filter(|it| it.as_object().is_some_and(|it| !it.is_empty()))
    };
    match of("requests") {
        Some(requests) => drop(status.insert("allocatedResources".into(), requests.clone())),
        None => drop(status.remove("allocatedResources")),
    }
    let mut resources = Map::new();
    for name in ["limits", "requests"] {
        if let Some(amounts) = of(name) {
            resources.insert(name.into(), amounts.clone());
        }
    }
    status.insert("resources".into(), Value::Object(resources));
}

/// Returns `true` if the resources in the status of a container differ from its spec.
fn differs(status: &Map, container: &Map) -> bool {
    let mut wanted = Map::new();
    allocate(&mut wanted, container);
    status.get("resources") != wanted.get("resources")
}

/// Returns the reason and the message if a Pod does not get the resources that its spec requests.
pub(super) fn refusal(pod: &Object, load: Option<&Load>, sees: &Sees<'_>) -> Option<(&'static str, String)> {
    let status = |name: &str| {
        let mut known = Cursor::root(pod).maps("status.containerStatuses");
        known.find(|it| Cursor::root(it).text("name") == name)
    };
    let mut containers = Cursor::root(pod).maps("spec.containers");
    let is_resized = containers.any(|it| {
        let status = status(Cursor::root(it).text("name"));
        status.is_some_and(|status| Cursor::root(status).is_set("resources") && differs(status, it))
    });
    if !is_resized {
        return None;
    }
    let node = Cursor::root(pod).text("spec.nodeName");
    let room = allocatable(sees.cluster.find(Resource::Node, "", node)?);
    let asked = requests(pod);
    let lacks = |amounts: &Amounts| {
        let mut names = RESIZABLE.into_iter();
        names.find(|name| !room.is_empty() && exceeds(amounts, &room, name))
    };
    if let Some(name) = lacks(&asked) {
        let (asked, room) = (kubelet_amount(&asked, name), kubelet_amount(&room, name));
        let why = format!("Node didn't have enough capacity: {name}, requested: {asked}, capacity: {room}");
        return Some(("Infeasible", why));
    }
    let load = load?;
    let name = lacks(load.asked())?;
    let [own, all, room] = [&asked, load.asked(), &room].map(|it| kubelet_amount(it, name));
    let used = all - own;
    let why = format!("Node didn't have enough resource: {name}, requested: {own}, used: {used}, capacity: {room}");
    Some(("Deferred", why))
}

impl Look<'_> {
    /// Resizes a running container to the resources in its spec. Returns `true` if the container must restart.
    pub(super) fn resize(&self, status: &mut Map, container: &Map) -> bool {
        if self.refused_resize.is_some() || !differs(status, container) {
            return false;
        }
        let before = status.clone();
        allocate(status, container);
        let amount = |status: &Map, name: &str| {
            let of = |list: &str| {
                let amounts = Cursor::root(status).map("resources").map(Cursor::root);
                amounts.and_then(|it| it.map_or_empty(list).get(name).cloned())
            };
            [of("limits"), of("requests")]
        };
        let mut policies = Cursor::root(container).maps("resizePolicy").map(Cursor::root);
        policies.any(|policy| {
            let name = policy.text("resourceName");
            policy.text("restartPolicy") == "RestartContainer" && amount(&before, name) != amount(status, name)
        })
    }
}
