//! Scripts of Pods, and the kubelets of nodes.

use axum::extract::State;
use serde_json::json;

use super::answer::{Answer, Answered, Order, Refusal};
use super::controlled::Controlled;
use crate::workers::{ScriptOrder, Worker};

pub(super) async fn script_pods(State(it): State<Controlled>, Order(order): Order<ScriptOrder>) -> Answered {
    if !it.server.runs(Worker::Kubelet) {
        return Err(Refusal::bad("Pods only run with --workers kubelet, workloads or all"));
    }
    let (pods, script) = order.read().map_err(Refusal::bad)?;
    it.server.kubelet().script(pods, script);
    Ok(Answer::Json(json!({})))
}

/// Request body that stops or starts the kubelet of a node.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KubeletOrder {
    node: String,
    kubelet: KubeletState,
}

#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
enum KubeletState {
    Running,
    Stopped,
}

pub(super) async fn set_kubelet(State(it): State<Controlled>, Order(order): Order<KubeletOrder>) -> Answered {
    if !it.server.runs(Worker::Kubelet) {
        return Err(Refusal::bad(
            "nodes only have kubelets with --workers kubelet, workloads or all",
        ));
    }
    match order.kubelet {
        KubeletState::Running => it.server.kubelet().start_node(&order.node),
        KubeletState::Stopped => it.server.kubelet().stop_node(order.node),
    }
    Ok(Answer::Json(json!({})))
}

pub(super) async fn forget_scripts(State(it): State<Controlled>) -> Answer {
    it.server.kubelet().clear();
    Answer::Json(json!({}))
}
