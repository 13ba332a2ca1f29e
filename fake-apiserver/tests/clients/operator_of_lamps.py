"""A kopf operator: each Lamp gets a ConfigMap, and its status says so."""

import kopf
from kubernetes import client, config


@kopf.on.startup()
def start(settings: kopf.OperatorSettings, **_) -> None:
    config.load_kube_config()
    settings.posting.loggers = True
    settings.persistence.finalizer = "kopf.example.com/finalizer"


@kopf.on.create("kopf.example.com", "v1", "lamps")
def create(spec, name, namespace, logger, **_):
    body = {"metadata": {"name": name}, "data": {"watts": str(spec.get("watts"))}}
    kopf.adopt(body)
    client.CoreV1Api().create_namespaced_config_map(namespace, body)
    logger.info("a ConfigMap is made")
    return {"made": name}


@kopf.on.field("kopf.example.com", "v1", "lamps", field="spec.watts")
def change(old, new, name, namespace, **_) -> None:
    if old is not None:
        client.CoreV1Api().patch_namespaced_config_map(name, namespace, {"data": {"watts": str(new)}})


@kopf.on.delete("kopf.example.com", "v1", "lamps")
def delete(name, namespace, **_) -> None:
    client.CoreV1Api().create_namespaced_config_map(namespace, {"metadata": {"name": f"{name}-gone"}})
