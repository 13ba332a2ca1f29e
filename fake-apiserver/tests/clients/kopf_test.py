"""kopf against the command: the operator beside this file is run, and what it does is watched."""

import pathlib

from kopf.testing import KopfRunner
from kubernetes import client, config, watch

NAMESPACE = "kopf"
GROUP, VERSION, PLURAL = "kopf.example.com", "v1", "lamps"
LAMP = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": PLURAL, "singular": "lamp", "kind": "Lamp"},
        "versions": [{"name": VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": LAMP}}],
    },
}


def until(what: str, call, *args, holds) -> None:
    """Watches until an object is as expected, or 30 seconds have gone."""
    for event in watch.Watch().stream(call, *args, timeout_seconds=30):
        if holds(event["type"], event["object"]):
            return
    raise AssertionError(f"not seen: {what}")


def main() -> None:
    config.load_kube_config()
    core, custom = client.CoreV1Api(), client.CustomObjectsApi()
    core.create_namespace({"metadata": {"name": NAMESPACE}})
    client.ApiextensionsV1Api().create_custom_resource_definition(CRD)
    until(
        "the CRD is established",
        client.ApiextensionsV1Api().list_custom_resource_definition,
        holds=lambda _, it: any(c.type == "Established" and c.status == "True" for c in it.status.conditions or []),
    )
    program = pathlib.Path(__file__).with_name("operator_of_lamps.py")
    lamps = (GROUP, VERSION, NAMESPACE, PLURAL)
    with KopfRunner(["run", "--standalone", "-n", NAMESPACE, str(program)], timeout=60) as runner:
        lamp = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Lamp", "metadata": {"name": "desk"}, "spec": {"watts": 40}}
        custom.create_namespaced_custom_object(*lamps, lamp)
        until(
            "status",
            custom.list_namespaced_custom_object,
            *lamps,
            holds=lambda _, it: it.get("status", {}).get("create", {}).get("made") == "desk",
        )
        made = core.read_namespaced_config_map("desk", NAMESPACE)
        assert made.data == {"watts": "40"} and made.metadata.owner_references[0].kind == "Lamp"
        custom.patch_namespaced_custom_object(*lamps, "desk", {"spec": {"watts": 60}})
        until(
            "the change",
            core.list_namespaced_config_map,
            NAMESPACE,
            holds=lambda _, it: it.metadata.name == "desk" and it.data == {"watts": "60"},
        )
        held = custom.get_namespaced_custom_object(*lamps, "desk")["metadata"]["finalizers"]
        assert held == ["kopf.example.com/finalizer"], held
        custom.delete_namespaced_custom_object(*lamps, "desk")
        until(
            "the work of the finalizer",
            core.list_namespaced_config_map,
            NAMESPACE,
            holds=lambda _, it: it.metadata.name == "desk-gone",
        )
        events = core.list_namespaced_event(NAMESPACE).items
        assert any("a ConfigMap is made" in it.message for it in events), runner.output
    assert runner.exit_code == 0, runner.output
    assert runner.exception is None, runner.exception
    print("kopf: create, field, delete, finalizer, events")


main()
