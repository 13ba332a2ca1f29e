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
        pytest.skip("DRYDOCK does not name the command drydock")
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
