"""`forestay try` on a real Slurm, after a campaign whose failures are known: causes and core-hours against the truth."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.live.known_failures import BEAT, SECONDS, WAIT, KnownFailure, held, hold_to_truth

from forestay.formats.accounting.lookback import read_file
from forestay.formats.accounting.sacct import COLUMNS

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("FORESTAY_TEST_SLURM"), reason="needs a Slurm: scripts/servers start slurm"),
]
LOST = "n4"
"""The node that fails; only the job that is meant to be lost is on it."""
PYTHON = shlex.quote(sys.executable)
KINDS = (
    KnownFailure("good", WAIT, frozenset(), many=3),
    KnownFailure("traceback", f"{WAIT}; {PYTHON} -c 'import json; json.loads(\"{{\")'", frozenset({"code", "bad-input", "data-corrupt"}), cores=2, many=2),
    KnownFailure("missing", f"{WAIT}; cat /no/such/input.fastq", frozenset({"data-missing"}), many=2),
    KnownFailure("segfault", f"{WAIT}; {PYTHON} -c 'import os; os.kill(os.getpid(), 11)'", frozenset({"code"}), many=2),
    KnownFailure("disk", f"{WAIT}; dd if=/dev/zero of=/dev/full bs=1k count=1", frozenset({"disk"}), many=2),
    KnownFailure("network", f"{WAIT}; {PYTHON} -c 'import urllib.request; urllib.request.urlopen(\"http://127.0.0.1:9/\")'", frozenset({"network"}), many=2),
    KnownFailure("memory", f"sleep {SECONDS // 2}; {PYTHON} -c 'import time; x = bytearray(300_000_000); time.sleep(300)'", frozenset({"memory"}), ("--mem=100",), many=2),
    KnownFailure("time", "sleep 600", frozenset({"time"}), ("--time=1",), many=2),
    KnownFailure("node", "sleep 600", frozenset({"node"}), (f"--nodelist={LOST}", "--no-requeue"), cores=2),
)  # fmt: skip


def slurm(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def resume() -> None:
    """Give the node back; it may have come back by itself."""
    subprocess.run(["scontrol", "update", f"nodename={LOST}", "state=resume"], check=False, capture_output=True)


def submit(kind: KnownFailure, number: int, folder: Path) -> str:
    beat = folder / f"{kind.name}-{number}.beat"
    script = f"{BEAT.format(beat=beat)} {kind.command}"
    elsewhere = () if kind.name == "node" else (f"--exclude={LOST}",)
    return slurm(
        "sbatch", "--parsable", f"--job-name=try-{kind.name}", f"--chdir={folder}", f"--cpus-per-task={kind.cores}",
        *elsewhere,
        *(kind.options if any(option.startswith("--mem") for option in kind.options) else (*kind.options, "--mem=50")),
        f"--output={folder}/%x-%j.log", f"--wrap={script}",
    ).strip()  # fmt: skip


def test_causes_and_hours_agree_with_the_truth(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    resume()
    jobs = {submit(kind, number, tmp_path): (kind, number) for kind in KINDS for number in range(kind.many)}
    began = time.monotonic()
    lost = False
    try:
        while waiting := slurm("squeue", "-h", "-o", "%i", "-t", "PD,R,CG", "-j", ",".join(jobs)).split():
            assert time.monotonic() - began < 500, waiting
            beats = tmp_path / "node-0.beat"
            if not lost and beats.exists() and held(beats) >= SECONDS:
                slurm("scontrol", "update", f"nodename={LOST}", "state=down", "reason=campaign")
                lost = True
            time.sleep(1)
        deadline = time.monotonic() + 60
        while True:  # the accounting hears of an end a little later
            states = slurm("sacct", "-nXP", "-j", ",".join(jobs), "-o", "State").split()
            if (
                not any(state in ("RUNNING", "PENDING", "COMPLETING") for state in states)
                or time.monotonic() > deadline
            ):
                break
            time.sleep(1)
    finally:
        if lost:
            resume()

    kept = tmp_path / "sacct.txt"
    known = {word.lower() for word in slurm("sacct", "--helpformat").split()}
    columns = ",".join(name for name in COLUMNS if name.lower() in known)
    kept.write_text(slurm("sacct", "-D", "--parsable2", "-j", ",".join(jobs), f"--format={columns}"))
    page = tmp_path / "try.html"
    ran = subprocess.run(
        [sys.executable, "-m", "forestay", "try", "--json", "--days", "1", "--out", str(page)],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(ran.stdout)["failed"]["attempts"] >= sum(kind.many for kind in KINDS if kind.acceptable)

    hold_to_truth(read_file(kept), jobs, tmp_path)
