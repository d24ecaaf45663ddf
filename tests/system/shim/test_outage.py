"""A scheduler that is away, as a user of the shim sees it: while somebody watches the shim waits for it, for so long; otherwise it says what Slurm says."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.live.own_slurm import OwnSlurm, until
from tests.system.insertion.shell import install

pytestmark = [pytest.mark.live, pytest.mark.pair]

UNREACHED = "Unable to contact slurm controller (connect failure)"
SCRIPT = "#!/bin/sh\necho worked\n"


@pytest.fixture(scope="module")
def slurm() -> Iterator[OwnSlurm]:
    with TemporaryDirectory(prefix="fs-slurm-", ignore_cleanup_errors=True) as folder:
        made = OwnSlurm(Path(folder))
        try:
            made.start()
            yield made
        finally:
            made.order("stop")


@pytest.fixture
def known(slurm: OwnSlurm, tmp_path: Path) -> dict[str, str]:
    """The environment of a user with the shim, and somebody who watches."""
    install(tmp_path / "bin")
    (tmp_path / "spool" / "new").mkdir(parents=True)
    (tmp_path / "spool" / "watch").write_text(f"{int(time.time()) + 600}\n")
    more = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "FORESTAY_SHIM_SPOOL": str(tmp_path / "spool")}
    return slurm.environment | more


def begin(known: dict[str, str], folder: Path, *words: str, text: str | None = None) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        words, env=known, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    process.stdin.write(text or "")
    process.stdin.close()
    process.stdin = None
    return process


def test_while_somebody_watches_every_call_waits_for_the_scheduler_for_so_long(
    slurm: OwnSlurm, known: dict[str, str], tmp_path: Path
) -> None:
    """Each way to submit is one job in the end, and a question has its answer. Where nobody watches, or patience has an end, Slurm has the last word."""
    (tmp_path / "work.sh").write_text(SCRIPT)
    before = set(slurm.slurm("squeue", "-h", "-t", "all", "-o", "%i").split())
    slurm.stop_controller()
    out = ("--parsable", "-o", f"{tmp_path}/out-%j")
    unwatched = known | {"FORESTAY_SHIM_SPOOL": f"{tmp_path}/nowhere"}
    refused = [
        begin(arm, tmp_path, "sbatch", "--wrap", "true")
        for arm in (slurm.environment, unwatched, known | {"FORESTAY_SHIM_PATIENCE": "2"})
    ]
    calls = [
        begin(known, tmp_path, "sbatch", *out, "--wrap", "echo worked"),
        begin(known, tmp_path, "sbatch", *out, "work.sh"),
        begin(known, tmp_path, "sbatch", *out, text=SCRIPT),
        begin(known, tmp_path, "squeue", "-h", "-o", "%i"),
        begin(known, tmp_path, "scontrol", "show", "config"),
    ]
    answers = [(*process.communicate(timeout=60), process.returncode) for process in refused]
    waiting = [call.poll() for call in calls]
    slurm.order("launch", "slurm", "ctld")
    outputs = [call.communicate(timeout=60) for call in calls]
    assert answers[0][2] == 1
    assert UNREACHED in answers[0][1]
    assert answers[1] == answers[2] == answers[0]
    assert waiting == [None] * len(calls)
    assert [(call.returncode, err) for call, (_, err) in zip(calls, outputs, strict=True)] == [(0, "")] * len(calls)
    jobs = {text.strip() for text, _ in outputs[:3]}
    assert len(jobs) == 3
    assert set(slurm.slurm("squeue", "-h", "-t", "all", "-o", "%i").split()) - before == jobs
    assert {path.name.partition(".")[0] for path in (tmp_path / "spool" / "new").iterdir()} == jobs
    until(lambda: all(_worked(tmp_path, job) for job in jobs), 60, "the jobs to work")


def _worked(folder: Path, job: str) -> bool:
    place = folder / f"out-{job}"
    return place.exists() and place.read_text() == "worked\n"
