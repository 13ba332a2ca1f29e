"""Explores controllers with the command ``drydock``."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile


class FailureFound(AssertionError):
    """An exploration found a failure. The message is its report, and ``report`` contains the report as data."""

    def __init__(self, text, report):
        super().__init__(text)
        self.report = report


def explorer():
    """Returns the path of the command: ``DRYDOCK``, the command of the wheel, or the first ``drydock`` in ``PATH``."""
    named = os.environ.get("DRYDOCK")
    if named:
        return named
    beside = os.path.join(sysconfig.get_path("scripts"), "drydock")
    found = beside if os.path.exists(beside) else shutil.which("drydock")
    if not found:
        raise FileNotFoundError(
            "no program drydock: this package was installed without it (wheels for Linux and macOS contain it), and it "
            "is not in PATH; download it from a release, run `cargo install drydock-testkit --features processes`, or "
            "set DRYDOCK"
        )
    return found


def explore(scenario, *args):
    """Explores a scenario, a YAML file, and returns the report as data.

    Runs controllers as processes and injects faults. ``args`` are options of ``drydock explore``, such as
    ``"--budget", "60s"`` or ``"--replay", plan``. In the scenario, ``${env.DRYDOCK_TEST}`` is the path of this
    Python interpreter.

    Raises ``FailureFound`` if a failure is found, and ``RuntimeError`` if the scenario cannot be used.
    """
    with tempfile.TemporaryDirectory(prefix="drydock-") as folder:
        path = os.path.join(folder, "report.json")
        command = [explorer(), "explore", os.fspath(scenario), "--json", path, *args]
        environment = {**os.environ, "DRYDOCK_TEST": sys.executable}
        ended = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if ended.returncode not in (0, 1):
            raise RuntimeError(f"drydock explore exited with {ended.returncode}: {ended.stdout}{ended.stderr}")
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    if ended.returncode == 1:
        raise FailureFound(ended.stdout, report)
    return report
