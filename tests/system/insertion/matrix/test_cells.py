"""A few rounds of the insertion matrix: none does harm, and what the docs promise is unseen. `just insertion` runs them; `just insertion-matrix` runs all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.system.insertion.matrix.__main__ import play
from tests.system.insertion.matrix.engines import WAYS
from tests.system.insertion.matrix.room import PROCESS, Room, opened
from tests.system.insertion.matrix.verdict import NOT_RECOVERED, UNSEEN

pytestmark = [pytest.mark.live, pytest.mark.pair, pytest.mark.slow]


@pytest.fixture(scope="module")
async def room() -> AsyncIterator[Room]:
    """Not in pytest's folders, whose names are too long for the first line of a script."""
    with TemporaryDirectory(prefix="fm-", ignore_cleanup_errors=True) as folder:
        async with opened(PROCESS, Path(folder)) as made:
            yield made


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        ("memory, one process", UNSEEN),
        ("memory while the watcher is killed", UNSEEN),
        ("memory before the watcher is started", NOT_RECOVERED),
        ("preemption with --no-requeue", NOT_RECOVERED),
    ],
)
async def test_plain_sbatch(room: Room, failure: str, expected: str) -> None:
    ways = [way for way in WAYS if way.engine == "sbatch" and way.name != "heterogeneous"]
    cells = await play(room, ways, failure)
    assert {cell["way"]: (cell["verdict"], cell["harms"]) for cell in cells} == {
        way.name: (expected, []) for way in ways
    }


@pytest.mark.finding("F-A3")
async def test_nextflow_whose_tasks_are_preempted(room: Room) -> None:
    """Its user allows requeues, so Slurm itself runs them again."""
    ways = [way for way in WAYS if way.engine == "Nextflow"]
    cells = await play(room, ways, "preemption")
    assert {cell["way"]: (cell["verdict"], cell["harms"]) for cell in cells} == {way.name: (UNSEEN, []) for way in ways}
