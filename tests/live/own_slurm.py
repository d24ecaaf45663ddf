"""A Slurm of a test's own, whose parts it may kill: started by `scripts/servers` in a folder of its own, beside any other."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.servers import SCRIPT

from forestay.adapters.slurm.batch import SlurmBatch
from forestay.adapters.system.commands import SystemCommands

NODES = 3
CPUS = 4


class OwnSlurm:
    """Three nodes with four slots each."""

    def __init__(self, folder: Path) -> None:
        # Its accounting runs as another user, who must be able to walk there.
        folder.chmod(0o755)
        self.folder = folder
        self.conf = folder / "clients.conf"

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "FORESTAY_SERVERS_DIR": str(self.folder), "SLURM_CONF": str(self.conf)}

    def start(self, *more: str) -> None:
        version = os.environ.get(
            "FORESTAY_TEST_SLURM_VERSION", ""
        )  # of the Slurm under test, whose commands are on the PATH
        of_version = ("--version", version) if version else ()
        self.order("start", "slurm", "--nodes", str(NODES), "--cpus", str(CPUS), *of_version, *more)
        # The commands go on trying for so long before they say that there is no controller.
        text = (self.folder / "slurm" / "etc" / "slurm.conf").read_text()
        self.conf.write_text(re.sub(r"(?m)^MessageTimeout=.*$", "MessageTimeout=2", text))

    def order(self, *words: str) -> str:
        done = subprocess.run([SCRIPT, *words], env=self.environment, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def slurm(self, *command: str) -> str:
        """One of Slurm's own commands."""
        done = subprocess.run(command, env=self.environment, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def pid(self, part: str) -> int:
        """The process of ctld, dbd or dN."""
        return int(self.order("pid", "slurm", part))

    def lose_power(self, number: int) -> None:
        """Everything of node N is gone at once: its daemon, its step daemons and what runs below them."""
        doomed = [self.pid(f"d{number}"), *_tree(_step_daemons(self.folder / "slurm", f"n{number}"))]
        for pid in doomed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop_controller(self) -> None:
        """As an administrator stops it: it writes down what it knows first."""
        pid = self.pid("ctld")
        os.kill(pid, signal.SIGTERM)
        until(lambda: not Path(f"/proc/{pid}/exe").exists(), 30, "the controller stops")

    def batch(self) -> SlurmBatch:
        return SlurmBatch(SystemCommands(), self.environment)

    def saved(self) -> None:
        """Wait until the controller has written down what it knows: what is newer a kill makes it forget."""
        state = Path(self.folder, "slurm", "state", "job_state")
        now = time.time()
        job = self.slurm(
            "sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true"
        )  # something to write down
        until(lambda: state.exists() and state.stat().st_mtime > now, 60, "the controller saves its jobs")
        self.slurm("scancel", job)


def _step_daemons(slurm: Path, node: str) -> set[int]:
    """Those of one node, by the files that they hold open; other Slurms on this machine have nodes of the same name."""
    log, spool = str(slurm / "log" / f"slurmd-{node}.log"), f"{slurm / 'spool' / node}/"
    names = set()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (place / "comm").read_text().strip() == "slurmstepd" and any(
                file == log or file.startswith(spool) for file in map(os.readlink, (place / "fd").iterdir())
            ):
                names.add(int(place.name))
    return names


def _tree(roots: set[int]) -> set[int]:
    """Processes and all below them."""
    parents: dict[int, int] = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(place.name)] = int((place / "stat").read_text().rpartition(") ")[2].split()[1])
    found_roots = set(roots)
    while more := {pid for pid, parent in parents.items() if parent in found_roots} - found_roots:
        found_roots |= more
    return found_roots


def until(true: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:g} s: {what}")
        time.sleep(0.1)
