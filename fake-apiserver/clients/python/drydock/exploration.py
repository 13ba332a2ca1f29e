"""Exploration of controllers by the command ``drydock``."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile


class FailureFound(AssertionError):
    """An exploration found a failure; the text is its report, and ``report`` the same as data."""

    def __init__(self, text, report):
        super().__init__(text)
        self.report = report


def explorer():
    """The path of the command: ``DRYDOCK``, that of the wheel, or the first ``drydock`` on the path."""
    named = os.environ.get("DRYDOCK")
    if named:
        return named
    beside = os.path.join(sysconfig.get_path("scripts"), "drydock")
    found = beside if os.path.exists(beside) else shutil.which("drydock")
    if not found:
        raise FileNotFoundError(
            "no program drydock: this package was installed without it (wheels for Linux and macOS contain it), and none "
            "is on the path; take it from a release, run `cargo install drydock-testkit --features processes`, or set "
            "DRYDOCK"
        )
    return found


def explore(scenario, *args):
    """Explores a scenario, a YAML file, and returns the report as data.

    It runs controllers as processes and injects faults. ``args`` are options of ``drydock explore``, such as
    ``"--budget", "60s"`` or ``"--replay", plan``. In the scenario, ``${env.DRYDOCK_TEST}`` is this Python.

    Raises ``FailureFound`` for a failure, and ``RuntimeError`` for a scenario that cannot be used.
    """
    with tempfile.TemporaryDirectory(prefix="drydock-") as folder:
        path = os.path.join(folder, "report.json")
        command = [explorer(), "explore", os.fspath(scenario), "--json", path, *args]
        environment = {**os.environ, "DRYDOCK_TEST": sys.executable}
        ended = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if ended.returncode not in (0, 1):
            raise RuntimeError(f"drydock explore ends with {ended.returncode}: {ended.stdout}{ended.stderr}")
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    if ended.returncode == 1:
        raise FailureFound(ended.stdout, report)
    return report
