"""A scheduler that is away, as a user of the shim sees it: while somebody watches the shim waits for it, for so long; otherwise it says what Slurm says."""

from __future__ import annotations

import os
import signal
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


@pytest.mark.finding("F-A8")
@pytest.mark.parametrize("comment", [(), ("--comment=mine",)], ids=["without a comment", "with the user's comment"])
def test_a_submission_that_a_hung_controller_took_is_told_to_its_caller(
    slurm: OwnSlurm, known: dict[str, str], tmp_path: Path, comment: tuple[str, ...]
) -> None:
    """sbatch gives up while the request waits in the controller's socket, and the job is queued once the controller goes on. Without the shim its
    caller holds it for failed, and never learns its id."""
    before = set(slurm.slurm("squeue", "-h", "-t", "all", "-o", "%F").split())
    (tmp_path / "array.sh").write_text("#!/bin/sh\n#SBATCH --array=0-1\necho worked\n")
    controller = slurm.pid("ctld")
    os.kill(controller, signal.SIGSTOP)
    try:
        bare = begin(slurm.environment, tmp_path, "sbatch", "--hold", "-o", "/dev/null", "--wrap", "true")
        calls = [
            begin(known, tmp_path, "sbatch", *comment, "--hold", "-o", "/dev/null", "--wrap", "true"),
            begin(known, tmp_path, "sbatch", *comment, "--parsable", "--hold", "-o", "/dev/null", "array.sh"),
        ]
        _, error = bare.communicate(timeout=60)
        assert bare.returncode == 1
        assert "Socket timed out" in error
        assert [call.poll() for call in calls] == [None, None]
    finally:
        os.kill(controller, signal.SIGCONT)
    answers = [call.communicate(timeout=90) for call in calls]
    jobs = set(slurm.slurm("squeue", "-h", "-t", "all", "-o", "%F").split()) - before
    assert len(jobs) == 3, "each call is one job"
    assert [call.returncode for call in calls] == [0, 0], answers
    first, second = (text for text, _ in answers)
    assert first.startswith("Submitted batch job ")
    ids = {first.split()[-1], second.strip()}
    assert len(ids) == 2
    assert ids < jobs
    assert {path.name.partition(".")[0] for path in (tmp_path / "spool" / "new").iterdir()} == ids
    own = slurm.slurm("squeue", "-h", "-t", "all", "-j", first.split()[-1], "-O", "Comment:")
    assert own.startswith("mine forestay-submit:" if comment else "forestay-submit:")


@pytest.mark.finding("F-A8")
def test_a_submission_that_the_controller_never_took_has_failed(
    slurm: OwnSlurm, known: dict[str, str], tmp_path: Path
) -> None:
    """It is not made again: whoever asked decides that."""
    slurm.saved()
    before = set(slurm.slurm("squeue", "-h", "-t", "all", "-o", "%i").split())
    controller = slurm.pid("ctld")
    os.kill(controller, signal.SIGSTOP)
    call = begin(known, tmp_path, "sbatch", "--hold", "-o", "/dev/null", "--wrap", "true")
    bare = begin(slurm.environment, tmp_path, "sbatch", "--hold", "-o", "/dev/null", "--wrap", "true")
    bare.communicate(timeout=60)
    slurm.order("kill9", "slurm", "ctld")
    slurm.order("launch", "slurm", "ctld")
    _, error = call.communicate(timeout=90)
    assert call.returncode == 1
    # The latter if it was still waiting for its answer when the controller was killed.
    assert "Socket timed out" in error or "Connection reset" in error
    assert set(slurm.slurm("squeue", "-h", "-t", "all", "-o", "%i").split()) == before


def _worked(folder: Path, job: str) -> bool:
    place = folder / f"out-{job}"
    return place.exists() and place.read_text() == "worked\n"
