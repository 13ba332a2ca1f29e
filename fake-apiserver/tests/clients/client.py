"""The official Python client against the command: create, watch, patch, apply, leader election, errors."""

import os
import sys
import threading
import uuid

from kubernetes import client, config, watch
from kubernetes.client.rest import ApiException
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.configmaplock import ConfigMapLock

NAMESPACE = "python"


def create_watch_patch(core: client.CoreV1Api) -> None:
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
    listed = core.list_namespaced_config_map(NAMESPACE, field_selector="metadata.name=settings")
    assert not listed.items

    seen = []
    ready = threading.Event()

    def follow() -> None:
        stream = watch.Watch()
        events = stream.stream(
            core.list_namespaced_config_map,
            NAMESPACE,
            resource_version=listed.metadata.resource_version,
            field_selector="metadata.name=settings",
            timeout_seconds=30,
        )
        ready.set()
        for event in events:
            seen.append((event["type"], event["object"].data))
            if event["type"] == "DELETED":
                stream.stop()

    follower = threading.Thread(target=follow)
    follower.start()
    ready.wait()
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="settings"), data={"a": "1"})
    created = core.create_namespaced_config_map(NAMESPACE, body)
    assert created.metadata.uid and created.metadata.creation_timestamp
    patched = core.patch_namespaced_config_map("settings", NAMESPACE, {"data": {"b": "2"}})
    assert patched.data == {"a": "1", "b": "2"}
    jsons = [{"op": "remove", "path": "/data/a"}]
    core.patch_namespaced_config_map("settings", NAMESPACE, jsons)
    core.delete_namespaced_config_map("settings", NAMESPACE)
    follower.join(30)
    assert seen == [
        ("ADDED", {"a": "1"}),
        ("MODIFIED", {"a": "1", "b": "2"}),
        ("MODIFIED", {"b": "2"}),
        ("DELETED", {"b": "2"}),
    ], seen
    print("python: create, watch, patch")


def errors(core: client.CoreV1Api) -> None:
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="one"))
    core.create_namespaced_config_map(NAMESPACE, body)
    for expected, call in [
        (409, lambda: core.create_namespaced_config_map(NAMESPACE, body)),
        (404, lambda: core.read_namespaced_config_map("two", NAMESPACE)),
        (422, lambda: core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "Not_A_Name"}})),
    ]:
        try:
            call()
        except ApiException as error:
            assert error.status == expected, error
        else:
            raise AssertionError(f"no error {expected}")
    pages = core.list_namespaced_config_map(NAMESPACE, limit=1)
    assert pages.metadata._continue and len(pages.items) == 1
    rest = core.list_namespaced_config_map(NAMESPACE, limit=500, _continue=pages.metadata._continue)
    assert not rest.metadata._continue
    print("python: errors, pages")


def workloads(apps: client.AppsV1Api, core: client.CoreV1Api) -> None:
    labels = {"app": "web"}
    container = client.V1Container(name="web", image="web:1")
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels=labels), spec=client.V1PodSpec(containers=[container])
    )
    spec = client.V1DeploymentSpec(replicas=2, selector=client.V1LabelSelector(match_labels=labels), template=template)
    deployment = client.V1Deployment(metadata=client.V1ObjectMeta(name="web"), spec=spec)
    apps.create_namespaced_deployment(NAMESPACE, deployment)
    for event in watch.Watch().stream(apps.list_namespaced_deployment, NAMESPACE, timeout_seconds=30):
        if event["object"].status.available_replicas == 2:
            break
    else:
        raise AssertionError("the Deployment does not become available")
    apps.patch_namespaced_deployment_scale("web", NAMESPACE, {"spec": {"replicas": 1}})
    assert apps.read_namespaced_deployment_scale("web", NAMESPACE).spec.replicas == 1
    pods = core.list_namespaced_pod(NAMESPACE, label_selector="app=web").items
    assert all(pod.metadata.owner_references[0].kind == "ReplicaSet" for pod in pods)
    print("python: workloads")


def leader_election() -> None:
    led = threading.Event()
    lock = ConfigMapLock("lock", NAMESPACE, str(uuid.uuid4()))

    elected = electionconfig.Config(
        lock, lease_duration=5, renew_deadline=4, retry_period=1, onstarted_leading=led.set, onstopped_leading=None
    )
    threading.Thread(target=leaderelection.LeaderElection(elected).run, daemon=True).start()
    assert led.wait(30), "nobody is elected"
    print("python: leader election")


def main() -> None:
    config.load_kube_config()
    core = client.CoreV1Api()
    create_watch_patch(core)
    errors(core)
    workloads(client.AppsV1Api(), core)
    leader_election()


main()
# The leader never stops by itself, and writes while the interpreter is taken down.
sys.stdout.flush()
os._exit(0)
