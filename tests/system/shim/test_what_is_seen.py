"""What is seen of a failed job while it is shown as running: the table of the page of that name, row by row."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from tests.system.shim.test_transparent import call, ended, folder

__all__ = ["folder"]
pytestmark = pytest.mark.live


def test_only_the_state_is_hidden_and_only_where_it_is_asked_for_as_text(folder: Path) -> None:
    job = call(folder, "sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep 1; exit 3").stdout.strip()
    waits, answers = (
        call(None, "sbatch", "--parsable", "-o", "/dev/null", "-d", f"{when}:{job}", "--wrap", "true").stdout.strip()
        for when in ("afterok", "afternotok")
    )
    (folder / "spool" / "watch").write_text(f"{int(time.time()) + 600}\n")
    try:
        assert ended(job) == "FAILED"
        assert ended(answers) == "COMPLETED", "the answer to the failure has begun"

        def sacct(*words: str) -> list[str]:
            return call(folder, "sacct", "-X", "-n", "-P", "-j", job, *words).stdout.split()

        def squeue(*words: str) -> list[str]:
            return call(folder, "squeue", "-h", "-j", job, *words).stdout.split()

        assert sacct("-o", "JobID,State,ExitCode") == [f"{job}|RUNNING|3:0"]
        assert sacct("-o", "State") == ["RUNNING"]
        assert sacct("-o", "End")[0] not in ("Unknown", "None", "")
        assert squeue() == []
        assert squeue("-t", "all", "-o", "%i %t %r") == [job, "R", "NonZeroExitCode"]
        assert squeue("-t", "FAILED", "-o", "%i %T") == [job, "RUNNING"]
        assert sacct("-s", "FAILED", "-o", "JobID,State") == [f"{job}|RUNNING"]
        shown = call(folder, "scontrol", "show", "job", job).stdout.split()
        assert {"JobState=RUNNING", "Reason=NonZeroExitCode", "ExitCode=3:0"} <= set(shown)
        state = json.loads(call(folder, "sacct", "-j", job, "--json").stdout)["jobs"][0]["state"]["current"]
        assert state in ("FAILED", ["FAILED"])  # a list since 23.11
        assert call(folder, "scontrol", "wait_job", job).returncode != 0
        assert call(None, "squeue", "-h", "-j", waits, "-o", "%T").stdout.strip() == "PENDING"
        assert (
            call(folder, "sacct", "-X", "-n", "-P", "-j", job, "-o", "State", FORESTAY_SHIM="off").stdout == "FAILED\n"
        )
    finally:
        call(None, "scancel", job, waits)
