"""`forestay try` on a real HTCondor, after a campaign whose failures are known: causes and core-hours against the truth."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests import servers
from tests.live.known_failures import BEAT, SECONDS, WAIT, KnownFailure, hold_to_truth

from forestay.formats.accounting.condor_history import ATTRIBUTES, read_condor_history
from forestay.formats.accounting.past_log import LogPath

pytestmark = [pytest.mark.live, pytest.mark.slow]
PYTHON = "/usr/bin/python3"
KINDS = (
    KnownFailure("good", WAIT, frozenset(), many=2),
    KnownFailure("missing", f"{WAIT}; cat /no/such/input.fastq", frozenset({"data-missing"}), many=2),
    KnownFailure("segfault", f"{WAIT}; kill $beat; kill -11 $$", frozenset({"code"}), many=2),
    KnownFailure("disk", f"{WAIT}; dd if=/dev/zero of=/dev/full bs=1k count=1", frozenset({"disk"}), many=2),
    KnownFailure("memory", f"sleep {SECONDS // 2}; {PYTHON} -c 'import time; x = bytearray(300_000_000); time.sleep(600)'", frozenset({"memory"}), ("request_memory = 100",), many=2),
    KnownFailure("time", "sleep 600", frozenset({"time"}), (f"allowed_job_duration = {SECONDS}",), many=2),
)  # fmt: skip


def condor(*words: str, stdin: str = "") -> str:
    program = str(servers.htcondor() / words[0])
    return subprocess.run([program, *words[1:]], check=True, capture_output=True, text=True, input=stdin).stdout


def submit(kind: KnownFailure, number: int, folder: Path) -> str:
    script = folder / f"{kind.name}-{number}.sh"
    script.write_text(f"{BEAT.format(beat=folder / f'{kind.name}-{number}.beat')}\n{kind.command}\n")
    options = {"request_memory": "50"} | dict(option.split(" = ", 1) for option in kind.options)
    lines = [
        "universe = vanilla", "executable = /bin/sh", "transfer_executable = false", "should_transfer_files = NO", f"arguments = {script}",
        f"initialdir = {folder}", f"output = {kind.name}-{number}.out", f"error = {kind.name}-{number}.err", f"request_cpus = {kind.cores}",
        *(f"{name} = {value}" for name, value in options.items()), "queue",
    ]  # fmt: skip
    return condor("condor_submit", "-terse", stdin="\n".join(lines) + "\n").split(" ")[0]


def tails(paths: Sequence[LogPath], _owner: str) -> str:
    """The jobs' user exists only in the root file system of this HTCondor, so the files cannot be known by their owner."""
    return "\n".join(Path(path.path).read_text() for path in paths if Path(path.path).exists())


def test_causes_and_hours_agree_with_the_truth(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o777)
    jobs = {submit(kind, number, tmp_path): (kind, number) for kind in KINDS for number in range(kind.many)}
    began = time.monotonic()
    while True:
        queue = json.loads(
            condor("condor_q", "-allusers", "-json", "-attributes", "ClusterId,ProcId,JobStatus") or "[]"
        )
        ours = {f"{ad['ClusterId']}.{ad['ProcId']}": ad["JobStatus"] for ad in queue}
        left = {job: status for job, status in ours.items() if job in jobs}
        if not left:
            break
        assert time.monotonic() - began < 500, left
        for job in [job for job, status in left.items() if status == 5]:  # held: a person removes it
            condor("condor_rm", job)
        time.sleep(2)
    text = condor("condor_history", "-json", "-attributes", ",".join(ATTRIBUTES), *jobs)

    hold_to_truth(read_condor_history([text], read_log=tails), jobs, tmp_path)
    environment = os.environ | {"PATH": f"{servers.htcondor()}:/usr/bin:/bin"}
    ran = subprocess.run(
        [sys.executable, "-m", "forestay", "try", "--json", "--out", str(tmp_path / "try.html")],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(ran.stdout)["sources"]["htcondor"] >= len(jobs), ran.stderr
