"""DAGMan as its manual describes it towards POST scripts, for a node whose runs are recorded: no HTCondor is needed, and none is pretended to run.

The script gets the macros as arguments in the DAG's folder; it is run again when it ends by the code of DEFER; the node is tried again while it has
retries, unless it ended by the code of UNLESS-EXIT. The events are written as HTCondor writes them.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "plugins" / "dagman-hook-forestay" / "forestay_dagman_post.py"
DEFER, GIVE_UP = 75, 77
HOST = "<10.1.2.7:9618?addrs=10.1.2.7-9618&alias=node7.example.org>"
AT = "2026-11-15 10:00:0"


def submitted(cluster: int, node: str) -> str:
    return f"000 ({cluster:03d}.000.000) {AT}1 Job submitted from host: {HOST}\n    DAG Node: {node}\n...\n"


def executing(cluster: int) -> str:
    return (
        f"001 ({cluster:03d}.000.000) {AT}2 Job executing on host: {HOST}\n\tSlotName: slot1_3@node7.example.org\n...\n"
    )


def size(cluster: int, megabytes: int) -> str:
    return (
        f"006 ({cluster:03d}.000.000) {AT}3 Image size of job updated: {megabytes * 1024}\n"
        f"\t{megabytes}  -  MemoryUsage of job (MB)\n\t{megabytes * 1000}  -  ResidentSetSize of job (KB)\n...\n"
    )


def terminated(cluster: int, how: str, *, used: int = 90, asked: int = 128) -> str:
    return (
        f"005 ({cluster:03d}.000.000) {AT}5 Job terminated.\n\t{how}\n"
        "\t\tUsr 0 00:00:01, Sys 0 00:00:00  -  Run Remote Usage\n\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage\n"
        "\t\tUsr 0 00:00:01, Sys 0 00:00:00  -  Total Remote Usage\n\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Total Local Usage\n"
        "\t0  -  Run Bytes Sent By Job\n\t0  -  Run Bytes Received By Job\n\t0  -  Total Bytes Sent By Job\n\t0  -  Total Bytes Received By Job\n"
        "\tPartitionable Resources :    Usage  Request Allocated\n"
        "\t   Cpus                 :        0        1         1\n\t   Disk (KB)            :       17     1024     98304\n"
        f"\t   Memory (MB)          :      {used:3d}      {asked:3d}       {asked:3d}\n\n"
        "\tJob terminated of its own accord at 2026-11-15T10:00:05Z.\n...\n"
    )


NORMAL = "(1) Normal termination (return value {})"
KILLED = "(0) Abnormal termination (signal 9)\n\t(0) No core file"


def held(cluster: int, words: str, code: int, subcode: int = 0) -> str:
    return f"012 ({cluster:03d}.000.000) {AT}4 Job was held.\n\t{words}\n\tCode {code} Subcode {subcode}\n...\n"


def removed(cluster: int) -> str:
    return f"009 ({cluster:03d}.000.000) {AT}6 Job was aborted.\n\tvia condor_rm (by user ada)\n...\n"


def lost(cluster: int) -> str:
    return (
        f"022 ({cluster:03d}.000.000) {AT}4 Job disconnected, attempting to reconnect\n"
        "    Socket between submit and execute hosts closed unexpectedly\n    Trying to reconnect to slot1_3@node7.example.org "
        f"{HOST}\n...\n"
        f"024 ({cluster:03d}.000.000) {AT}5 Job reconnection failed\n    Job not found at execution machine\n"
        "    Can not reconnect to slot1_3@node7.example.org, rescheduling job\n...\n"
    )


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a node's job: what its log says, and what DAGMan makes of it."""

    returned: int
    events: Callable[[int], str]


@dataclass(slots=True)
class Dag:
    """One node of a DAG, in a folder of its own."""

    folder: Path
    options: Sequence[str]
    node: str = "A"
    retries: int = 3
    runs: int = 0
    scripts: int = 0
    output: list[str] = field(default_factory=list)
    environment: dict[str, str] | None = None

    def go(self, *recorded: Run, patience: float = 60.0) -> bool:
        """Whether the node succeeds, when its runs come out so; the last one as often as it is run."""
        log = self.folder / "diamond.dag.nodes.log"
        for retry in range(self.retries + 1):
            run = recorded[min(retry, len(recorded) - 1)]
            cluster = 4711 + retry
            with log.open("a") as text:
                text.write(submitted(cluster, self.node) + executing(cluster) + run.events(cluster))
            self.runs += 1
            code = self._post(f"{cluster}.0", run.returned, retry, patience)
            if code == 0:
                return True
            if code == GIVE_UP:
                return False
        return False

    def _post(self, jobid: str, returned: int, retry: int, patience: float) -> int:
        give_up = time.monotonic() + patience
        while True:
            macros = [self.node, jobid, str(returned), str(retry), str(self.retries), "0"]
            self.scripts += 1
            ended = subprocess.run(
                [sys.executable, SCRIPT, *macros, *self.options],
                cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            self.output.append(ended.stderr)
            if ended.returncode != DEFER:
                return ended.returncode
            assert time.monotonic() < give_up, f"deferred for ever: {ended.stderr}"
            time.sleep(0.2)
