"""A fake Kubernetes API server in a separate process, controlled by a test.

    with drydock.start() as server:
        config = server.kubeconfig          # the path of a kubeconfig, for any client
        server.inject_fault("conflict", on={"verbs": ["update"]}, times=1)

Each method that sends a request calls the operation of the control API with the same name, in the spelling of Python;
``GET /_fake/openapi.json`` describes the operations. Times are in milliseconds.
"""

import json
import os
import platform
import secrets
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import urllib.error
import urllib.parse
import urllib.request

from .exploration import FailureFound, explore, explorer

__all__ = ["FailureFound", "Refused", "Server", "explore", "explorer", "program", "start"]

_READY = "listening on "


class Refused(Exception):
    """The server refused a request. The message contains the reason."""

    def __init__(self, code, reason):
        super().__init__(reason)
        self.code = code


def program():
    """Returns the path of the program: ``FAKE_APISERVER``, the program of the wheel, or the first one in ``PATH``."""
    name = "fake-apiserver" + (".exe" if sys.platform == "win32" else "")
    named = os.environ.get("FAKE_APISERVER")
    if named:
        return named
    beside = os.path.join(sysconfig.get_path("scripts"), name)
    found = beside if os.path.exists(beside) else shutil.which(name)
    if not found:
        system = f"{platform.system()} {platform.machine()}"
        raise FileNotFoundError(
            f"no program {name} for {system}: this package was installed without it, and it is not in PATH; "
            "run `cargo install fake-apiserver`, or set FAKE_APISERVER"
        )
    return found


def _quoted(text):
    """Encodes a string as a segment of a path."""
    return urllib.parse.quote(text, safe="")


def _with(path, parameters):
    """Returns a path with the parameters that are not None."""
    given = {name: value for name, value in parameters.items() if value is not None}
    return f"{path}?{urllib.parse.urlencode(given)}" if given else path


def start(*args):
    """Starts a server on a free port, with these options of ``fake-apiserver``, and waits until it is ready."""
    return Server(args)


class Server:
    """A running server, which ends with ``close``, its ``with`` block, or this process."""

    def __init__(self, args):
        self._folder = tempfile.TemporaryDirectory(prefix="drydock-")
        #: The path of a kubeconfig for the server.
        self.kubeconfig = os.path.join(self._folder.name, "kubeconfig")
        self._token = secrets.token_hex(16)
        own = ["--exit-with-parent", "--control", "--control-token", self._token, "--kubeconfig", self.kubeconfig]
        self._log = open(os.path.join(self._folder.name, "log"), "w+b")
        self._process = subprocess.Popen(
            [program(), *own, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._log
        )
        line = self._process.stdout.readline().decode()
        if not line.startswith(_READY):
            self._process.wait()
            said = self.log()
            self.close()
            raise RuntimeError(f"fake-apiserver did not start: {said}")
        #: The URL at which the server listens.
        self.url = line[len(_READY):].strip()
        self._api_client = None

    def log(self):
        """Returns the output that the server has written to stderr."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    @property
    def api_client(self):
        """An ``ApiClient`` of the package ``kubernetes``, created on first use."""
        if self._api_client is None:
            from kubernetes import config

            self._api_client = config.new_client_from_config(self.kubeconfig)
        return self._api_client

    def close(self):
        """Ends the server."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process.stdout.close()
        self._log.close()
        self._folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _ask(self, method, path, body=None, kind="application/json"):
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}"}
        if data is not None:
            headers["Content-Type"] = kind
        context = None
        if self.url.startswith("https"):
            import ssl

            # The certificate is created for this run, and the port is on this machine.
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        request = urllib.request.Request(f"{self.url}/_fake{path}", data, headers, method=method)
        try:
            # Do not use a proxy for loopback addresses.
            handlers = [urllib.request.ProxyHandler({})]
            if context:
                handlers.append(urllib.request.HTTPSHandler(context=context))
            with urllib.request.build_opener(*handlers).open(request, timeout=60) as answer:
                text = answer.read().decode()
                is_json = answer.headers.get_content_type() == "application/json"
                return json.loads(text) if is_json else text
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode(errors="replace")
            try:
                text = json.loads(text)["error"]
            except (ValueError, KeyError, TypeError):
                pass
            raise Refused(error.code, text) from None

    def help(self):
        """Lists the requests, as text."""
        return self._ask("GET", "")

    def describe(self):
        """Returns the OpenAPI document of the control API."""
        return self._ask("GET", "/openapi.json")

    def inject_fault(self, effect, **rule):
        """Injects a fault: ``inject_fault({"status": {"code": 503}}, on={"resource": "pods"}, times=2)``."""
        return self._ask("POST", "/faults", {"effect": effect, **rule})["id"]

    def list_faults(self):
        """Lists active faults, each with the number of requests that it has affected."""
        return self._ask("GET", "/faults")

    def end_fault(self, number):
        """Ends a fault."""
        self._ask("DELETE", f"/faults/{number}")

    def end_faults(self):
        """Ends all faults; returns their number."""
        return self._ask("DELETE", "/faults")["ended"]

    def list_watches(self):
        """Lists open watches."""
        return self._ask("GET", "/watches")

    def act_on_watches(self, action, **on):
        """Controls watches: ``act_on_watches("hold", resource="pods")``; returns their number."""
        return self._ask("POST", "/watches", {"on": on, "do": action})["watches"]

    def read_journal(self, since=0):
        """Returns a page of the journal: ``next``, ``total`` and ``entries``."""
        return self._ask("GET", f"/journal?since={since}")

    def read_entry(self, number):
        """Returns an entry of the journal: ``entry``, ``user`` and ``answer``."""
        return self._ask("GET", f"/journal/{number}")

    def clear_journal(self):
        """Removes all entries of the journal."""
        self._ask("DELETE", "/journal")

    def read_trace(self):
        """Returns an HTML page with every step of the journal, and the fields that each write changed."""
        return self._ask("GET", "/trace")

    def set_replica(self, client, sees):
        """Sets the view of a client: ``"everything"``, ``"nothingMore"``, ``{"behind": 3}``, ``{"asFarAs": 7}``."""
        return self._ask("POST", "/replicas", {"client": client, "sees": sees})

    def skew_clock(self, client, ahead_ms):
        """Sets the clock of a client ahead, or behind if ``ahead_ms`` is negative."""
        self._ask("POST", "/clocks", {"client": client, "aheadMs": ahead_ms})

    def script_pods(self, script, **pods):
        """Sets the scripts of Pods: ``script_pods({"crashLoop": True}, labels="app=db")``."""
        self._ask("POST", "/pods", {"pods": pods, "script": script})

    def clear_pods(self):
        """Removes the scripts of Pods."""
        self._ask("DELETE", "/pods")

    def set_kubelet(self, node, kubelet):
        """Stops or starts the kubelet of a Node: ``"stopped"`` or ``"running"``.

        The Pods of a Node with a stopped kubelet do not change, and after 50 s the Node is lost.
        """
        self._ask("POST", "/nodes", {"node": node, "kubelet": kubelet})

    def compact(self):
        """Removes the history: a watch that resumes from an earlier version gets 410."""
        return self._ask("POST", "/compact")["resourceVersion"]

    def restart(self, log="kept", down_ms=0):
        """Ends all connections, and refuses new ones for ``down_ms``; ``log="lost"`` also removes the history."""
        self._ask("POST", "/restart", {"log": log, "downMs": down_ms})

    def take_snapshot(self):
        """Saves the state; returns its number."""
        return self._ask("POST", "/snapshot")["snapshot"]

    def list_snapshots(self):
        """Lists saved states in ``snapshots``, with the newest ``resourceVersion``."""
        return self._ask("GET", "/snapshot")

    def restore(self, snapshot):
        """Restores a state."""
        return self._ask("POST", "/restore", {"snapshot": snapshot})["resourceVersion"]

    def diff(self, snapshot, to=None):
        """Returns the changes from a saved state to a later one, by default the current state, as text."""
        return self._ask("GET", _with("/diff", {"from": snapshot, "to": to}))

    def read_world(self):
        """Returns all objects as YAML."""
        return self._ask("GET", "/world")

    def list_objects(self, snapshot=None, at=None):
        """Lists all objects with their owners.

        ``snapshot`` selects a saved state, and ``at`` the state after the write with this resourceVersion. By default,
        the current state is used. The same applies to other methods with these parameters.
        """
        return self._ask("GET", _with("/objects", {"snapshot": snapshot, "at": at}))

    def search_objects(self, text, snapshot=None, at=None):
        """Searches all kinds for at most 200 ``objects`` that contain all words, and returns their ``total`` number.

        The kind, the name with its namespace, and the labels are searched. Case is ignored.
        """
        return self._ask("GET", _with("/search", {"text": text, "snapshot": snapshot, "at": at}))

    def read_object(self, uid, snapshot=None, at=None):
        """Returns the object with a uid."""
        return self._ask("GET", _with(f"/objects/{_quoted(uid)}", {"snapshot": snapshot, "at": at}))

    def read_history(self, uid):
        """Returns the ``revisions`` of the object with a uid: the fields that each write changed, and its author."""
        return self._ask("GET", f"/objects/{_quoted(uid)}/history")

    def read_related(self, uid, snapshot=None, at=None):
        """Returns the ``owners`` of an object, the objects that it owns (``owned``), and ``events`` about it."""
        return self._ask("GET", _with(f"/objects/{_quoted(uid)}/related", {"snapshot": snapshot, "at": at}))

    def list_changes(self, since=None):
        """Lists the writes in the history after the resourceVersion ``since``: ``changes``, with ``oldest``."""
        return self._ask("GET", _with("/changes", {"since": since}))

    def list_kinds(self, snapshot=None, at=None):
        """Lists the ``kinds`` that have objects, with the number of objects in each namespace."""
        return self._ask("GET", _with("/kinds", {"snapshot": snapshot, "at": at}))

    def read_table(self, resource, namespace=None, snapshot=None, at=None):
        """Returns the objects of a resource as ``kubectl get`` shows them: ``columns`` and ``rows``.

        ``resource`` is a name such as ``"pods"`` or ``"deployments.apps"``.
        """
        query = {"resource": resource, "namespace": namespace, "snapshot": snapshot, "at": at}
        return self._ask("GET", _with("/table", query))

    def load_objects(self, objects):
        """Stores objects unchanged: an object, a list of objects, or YAML. Returns the number of objects."""
        if isinstance(objects, str):
            return self._ask("POST", "/objects", objects.encode(), "application/yaml")["loaded"]
        if isinstance(objects, list):
            objects = {"apiVersion": "v1", "kind": "List", "items": objects}
        return self._ask("POST", "/objects", objects)["loaded"]

    def apply_event(self, kind, object):
        """Applies a watch event to the state: ``apply_event("DELETED", pod)``."""
        return self._ask("POST", "/events", {"type": kind, "object": object})["resourceVersion"]
