"""What PSI/J hands to submit commands of batch systems that are not at hand: a program in their place writes down what it was given."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from forestay.adapters.psij.batch import PsijSubmitter
from forestay.domain.sites.batch import PilotJob, SubmitRefusal, SubmitRefused
from forestay.ports.errors import Permanent, Transient

RECORDER = """#!/bin/sh
printf '%s\\n' "$@" > {folder}/arguments
env > {folder}/environment
for last; do :; done
cat "$last" > {folder}/script
{end}
"""
SAYS = {
    "pbs": "echo 4711.head",
    "lsf": "echo 'Job <4711> is submitted to queue <normal>.'",
    "slurm": "echo 'Submitted batch job 4711'",
}
PROGRAMS = {
    "pbs": ("qsub", ["-r", "n", "-N"]),
    "lsf": ("bsub", ["-rn", "-J"]),
    "slurm": ("sbatch", ["--no-requeue", "--job-name"]),
}
JOB = PilotJob(
    name="forestay-l1",
    command=("python3", "/shared/pilot.pyz", "--enrolment-file", "/shared/secrets/l1", "it's one word"),
    directory="/",
    environment={"ENROLMENT": "very secret"},
    cpus=4,
    memory=1 << 30,
    wall=3601,
    output="/shared/logs/l1.log",
    options=("--theirs",),
)


def submitter(kind: str, folder: Path, end: str, seconds: float = 20.0) -> PsijSubmitter:
    program, _ = PROGRAMS[kind]
    place = folder / program
    place.write_text(RECORDER.format(folder=folder, end=end))
    place.chmod(0o755)
    own = {"PATH": f"{folder}:{os.environ['PATH']}", "AGENTS_SECRET": "stays at home"}
    return PsijSubmitter(kind, folder=folder / "psij", environment=own, seconds=seconds)


@pytest.mark.parametrize("kind", SAYS)
async def test_a_pilot_is_named_never_requeued_and_shows_no_secret(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    own = submitter(kind, tmp_path, SAYS[kind])
    answer = await own.submit(JOB)
    assert isinstance(answer, str)
    assert answer.startswith("4711")
    arguments = (tmp_path / "arguments").read_text().splitlines()
    options = PROGRAMS[kind][1]
    assert arguments[:-1] == ["--theirs", *options, "forestay-l1"], "ours after theirs: the last one counts"
    script = (tmp_path / "script").read_text()
    assert "pilot.pyz" in script
    assert "very secret" not in script + "".join(arguments)
    text = (tmp_path / "environment").read_text()
    assert "ENROLMENT=very secret" in text
    assert "stays at home" not in text
    assert list((tmp_path / "psij" / kind).iterdir()) == [], "the script is cleared away"


async def test_what_went_wrong_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    answer = await submitter("pbs", tmp_path, "echo 'qsub: Unknown queue' >&2; exit 170").submit(JOB)
    assert answer == SubmitRefused(SubmitRefusal.REFUSED, "qsub: Unknown queue")
    with pytest.raises(Transient, match="did not finish"):
        await submitter("pbs", tmp_path, "sleep 30", seconds=0.5).submit(JOB)
    (tmp_path / "qsub").unlink()
    gone = PsijSubmitter("pbs", folder=tmp_path / "psij", environment={"PATH": str(tmp_path)})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Permanent, match="is this a host of the batch system"):
        await gone.submit(replace(JOB, options=()))
    with pytest.raises(Permanent, match="slurm, pbs, lsf"):
        PsijSubmitter("sge", folder=tmp_path, environment={})
    with pytest.raises(Permanent, match="blanks"):
        PsijSubmitter("pbs", folder=tmp_path / "a b", environment={})
