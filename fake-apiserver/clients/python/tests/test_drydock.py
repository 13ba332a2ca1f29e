import os
import re
import time

import pytest
from drydock import FailureFound, Refused, Server, explore, start

kubernetes = pytest.importorskip("kubernetes")
from kubernetes import client, stream, watch  # noqa: E402


def config_map(name):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


def test_each_test_has_a_server_of_its_own(drydock):
    core = client.CoreV1Api(drydock.api_client)
    core.create_namespaced_config_map("default", config_map("a"))
    with start() as other:
        assert other.url != drydock.url
        assert client.CoreV1Api(other.api_client).list_namespaced_config_map("default").items == []


def test_a_fault_strikes_as_often_as_it_is_told(drydock):
    core = client.CoreV1Api(drydock.api_client)
    drydock.inject_fault("conflict", on={"verbs": ["create"], "resource": "configmaps"}, times=1)
    with pytest.raises(client.ApiException) as refused:
        core.create_namespaced_config_map("default", config_map("a"))
    assert refused.value.status == 409
    core.create_namespaced_config_map("default", config_map("a"))
    assert drydock.list_faults()[0]["hits"] == 1
    codes = [it["request"]["code"] for it in drydock.read_journal()["entries"] if "request" in it]
    assert 409 in codes


def test_a_state_is_put_back(drydock):
    core = client.CoreV1Api(drydock.api_client)
    before = drydock.take_snapshot()
    drydock.load_objects([config_map("a"), config_map("b")])
    assert "a" in drydock.diff(before)
    drydock.restore(before)
    assert core.list_namespaced_config_map("default").items == []


def test_the_history_contains_each_write_and_its_author(drydock):
    core = client.CoreV1Api(drydock.api_client)
    created = core.create_namespaced_config_map("default", {**config_map("a"), "data": {"color": "red"}})
    core.patch_namespaced_config_map("a", "default", {"data": {"color": "blue"}})
    first, second = drydock.read_history(created.metadata.uid)["revisions"]
    assert (first["type"], second["type"]) == ("ADDED", "MODIFIED")
    assert 'data.color: "red" -> "blue"' in second["changes"]
    assert (first["by"]["verb"], second["by"]["verb"]) == ("create", "patch")
    later = drydock.list_changes(first["revision"])["changes"]
    assert [it["revision"] for it in later if it["uid"] == created.metadata.uid] == [second["revision"]]
    assert len(drydock.list_changes()["changes"]) > len(later)
    page = drydock.read_trace()
    assert page.startswith("<!doctype html>") and "configmaps" in page


def test_an_earlier_state_is_read(drydock):
    owner = {**config_map("a"), "data": {"color": "red"}}
    owner["metadata"]["uid"] = "uid/of a"
    drydock.load_objects(owner)
    before = drydock.take_snapshot()
    version = drydock.list_snapshots()["resourceVersion"]
    owned = config_map("b")
    owned["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "uid/of a"}]
    drydock.load_objects(owned)
    drydock.apply_event("MODIFIED", {**owner, "data": {"color": "blue"}})
    after = drydock.take_snapshot()

    def seen(**state):
        names = {it["name"] for it in drydock.list_objects(**state) if it["kind"] == "ConfigMap"}
        rows = {it["name"] for it in drydock.read_table("configmaps", "default", **state)["rows"]}
        counts = [it["namespaces"] for it in drydock.list_kinds(**state)["kinds"] if it["kind"] == "ConfigMap"]
        related = drydock.read_related("uid/of a", **state)["owned"]
        color = drydock.read_object("uid/of a", **state)["data"]["color"]
        return "b" in names, "b" in rows, counts[0]["default"], [it["name"] for it in related], color

    alone, owning = seen(snapshot=before), seen()
    assert alone[:2] == (False, False) and alone[3:] == ([], "red")
    assert owning == (True, True, alone[2] + 1, ["b"], "blue")
    assert seen(at=version) == alone
    assert seen(snapshot=after) == owning
    assert [it["name"] for it in drydock.search_objects("configmap default/b")["objects"]] == ["b"]
    assert drydock.search_objects("configmap default/b", snapshot=before)["total"] == 0
    drydock.load_objects(config_map("c"))
    assert "ConfigMap default/c" in drydock.diff(before)
    assert "ConfigMap default/c" not in drydock.diff(before, after)
    with pytest.raises(Refused, match="cannot be combined"):
        drydock.list_objects(snapshot=before, at=version)
    with pytest.raises(Refused, match="there is no resource nothing&more"):
        drydock.read_table("nothing&more")


@pytest.mark.drydock("--workers", "all")
def test_a_stopped_kubelet_starts_no_pods(drydock):
    nodes = ["stopped", "running"]
    drydock.load_objects([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in nodes])
    drydock.set_kubelet("stopped", "stopped")
    core = client.CoreV1Api(drydock.api_client)
    for name in nodes:
        pod = {"spec": {"nodeName": name, "containers": [{"name": "main", "image": "i"}]}}
        core.create_namespaced_pod("default", {"metadata": {"name": name}, **pod})

    def wait_until_running(name):
        for event in watch.Watch().stream(core.list_namespaced_pod, "default", timeout_seconds=20):
            if (event["object"].metadata.name, event["object"].status.phase) == (name, "Running"):
                return
        raise AssertionError(f"the Pod {name} does not run")

    wait_until_running("running")
    assert core.read_namespaced_pod("stopped", "default").status.phase == "Pending"
    drydock.set_kubelet("stopped", "running")
    wait_until_running("stopped")


@pytest.mark.drydock("--workers", "all")
def test_a_container_fails_and_answers_commands(drydock):
    core = client.CoreV1Api(drydock.api_client)
    drydock.script_pods({"runsForMs": 0, "exitCode": 3}, name="broken")
    answers = [{"command": ["hostname"], "stdout": "db-0\n"}, {"command": ["cat"], "echoesStdin": True}]
    drydock.script_pods({"startsAfterMs": 0, "logs": "ready\n", "exec": answers}, name="db")
    drydock.load_objects([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}])
    pod = {"spec": {"nodeName": "n", "containers": [{"name": "main", "image": "i"}]}}
    for name in ["broken", "db"]:
        core.create_namespaced_pod("default", {"metadata": {"name": name}, **pod})
    waits = {"broken", "db"}
    for event in watch.Watch().stream(core.list_namespaced_pod, "default", timeout_seconds=20):
        statuses = event["object"].status.container_statuses or []
        name = event["object"].metadata.name
        ended = [it for it in statuses if it.last_state.terminated or it.state.terminated]
        if name == "broken" and ended:
            last = ended[0].state.terminated or ended[0].last_state.terminated
            assert last.exit_code == 3
            waits.discard(name)
        if name == "db" and any(it.state.running for it in statuses):
            waits.discard(name)
        if not waits:
            break
    assert not waits
    assert core.read_namespaced_pod_log("db", "default") == "ready\n"
    said = stream.stream(
        core.connect_get_namespaced_pod_exec, "db", "default", command=["hostname"], stdout=True, stderr=True,
        stdin=False, tty=False,
    )
    assert said == "db-0\n"
    # This client cannot end the input of a command.
    talk = stream.stream(
        core.connect_get_namespaced_pod_exec, "db", "default", command=["cat"], stdout=True, stdin=True, stderr=True,
        tty=False, _preload_content=False,
    )
    for line in ["one", "two"]:
        talk.write_stdin(line + "\n")
        assert talk.readline_stdout(timeout=10) == line
    talk.close()


def test_what_cannot_be_is_said(drydock):
    with pytest.raises(Refused, match="not an HTTP error code"):
        drydock.inject_fault({"status": {"code": 200}})
    with pytest.raises(RuntimeError, match="--no-such-flag"):
        start("--no-such-flag")


def test_every_operation_has_a_method(drydock):
    paths = drydock.describe()["paths"].values()
    names = [it["operationId"] for path in paths for it in path.values() if isinstance(it, dict)]
    snake = {re.sub("([A-Z])", lambda found: "_" + found[1].lower(), name) for name in names}
    assert snake == {name for name in vars(Server) if not name.startswith("_")} - {"api_client", "close", "log"}


def test_a_server_is_there_within_the_blink_of_an_eye():
    begun = time.monotonic()
    for _ in range(10):
        start().close()
    # A release build takes 20 ms; a debug build on a busy machine is given more.
    assert (time.monotonic() - begun) / 10 < 2


SCENARIO = """
controllers:
  - {name: operator, command: ["${env.DRYDOCK_TEST}", controller.py]}
cluster: {workers: []}
steps:
  - object: {apiVersion: v1, kind: ConfigMap, metadata: {name: web, labels: {role: source}}}
faults: [crashes]
within: 3s
budget: {failures: 1, time: 120s}
"""

# It makes NAME-first and NAME-second for each source; the second only right after the first.
OPERATOR = """
from kubernetes import client, config, watch

config.load_kube_config()
core = client.CoreV1Api()
for event in watch.Watch().stream(core.list_namespaced_config_map, "default", label_selector="role=source"):
    for part in ["first", "second"]:
        name = event["object"].metadata.name
        try:
            core.create_namespaced_config_map("default", {"metadata": {"name": f"{name}-{part}"}})
        except client.ApiException:
            break
"""


@pytest.fixture
def scenario(tmp_path):
    if "DRYDOCK" not in os.environ:
        missing = "DRYDOCK does not name the command drydock"
        if os.environ.get("DRYDOCK_CLIENTS") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    (tmp_path / "controller.py").write_text(OPERATOR)
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO)
    return path


def test_a_crash_between_two_writes_is_found(scenario):
    with pytest.raises(FailureFound, match="web-second") as found:
        explore(scenario)
    replay = found.value.report["failures"][0]["replay"]
    assert replay == "crash-after=100@operator:create:configmaps:default/#1"


def test_a_plan_that_passes_returns_its_report(scenario):
    assert explore(scenario, "--replay", "restart@operator")["failures"] == []


def test_an_unusable_scenario_is_an_error(scenario):
    with pytest.raises(RuntimeError, match="missing.yaml"):
        explore(scenario.with_name("missing.yaml"))
