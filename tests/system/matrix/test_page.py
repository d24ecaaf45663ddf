"""The page of the matrix is what was measured, and every cell is on it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.system.matrix.cells import FAILURES, NOT_YET, SHOWN, STAGES, UNMEASURED, why_not
from tests.system.matrix.submitters import Submission

ROOT = Path(__file__).parents[3]
FIGURES = json.loads((ROOT / "docs" / "reference" / "failure-matrix.json").read_text())
ALL = {(failure, stage, way.value): why_not(failure, stage, way) for failure in FAILURES for stage in STAGES for way in Submission}  # fmt: skip


def test_the_page_says_what_was_measured() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "failure_matrix.py", "--check"], check=False)
    assert done.returncode == 0


def test_no_cell_that_can_exist_is_empty() -> None:
    assert [entry for entry in FIGURES["empty"] if entry["kind"] == NOT_YET] == []


def test_every_cell_is_shown_or_says_why_not() -> None:
    measured = [(cell["failure"], cell["stage"], cell["submission"]) for cell in FIGURES["cells"]]
    fields = {
        (entry["failure"], entry["stage"], entry["submission"]): (entry["kind"], entry["why"])
        for entry in FIGURES["empty"]
    }
    assert len(measured) == len(set(measured))
    for name, (kind, why) in ALL.items():
        if kind == SHOWN:
            assert name in measured or fields[name] == (NOT_YET, UNMEASURED)
        else:
            assert why
            assert fields[name] == (kind, why)
            assert name not in measured
    assert set(measured) | set(fields) == set(ALL)
