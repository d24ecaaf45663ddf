"""The page of the insertion matrix is what was measured, and nothing in it is worse than without us."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.system.insertion.matrix.__main__ import RESULT, every, key

ROOT = RESULT.parents[2]
RESULTS = json.loads(RESULT.read_text())


def test_the_page_says_what_was_measured() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "insertion_matrix.py", "--check"], check=False)
    assert done.returncode == 0


def test_every_cell_is_one_that_can_exist_and_is_there_once() -> None:
    names = [key(cell) for cell in RESULTS["cells"]]
    assert len(names) == len(set(names))
    assert set(names) <= set(every())
