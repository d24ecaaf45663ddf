"""Histories of every release replay with the code as it is: nobody's run breaks by an upgrade."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from forestay.adapters.temporal.orchestrator import PYTHON_WORKFLOWS, runner

HISTORIES = sorted(Path(__file__).parent.glob("*.json"))


def test_there_are_histories() -> None:
    assert HISTORIES


@pytest.fixture(params=HISTORIES, ids=lambda place: place.stem)
def history(request: pytest.FixtureRequest) -> WorkflowHistory:
    place: Path = request.param
    return WorkflowHistory.from_json(place.stem, place.read_text())


async def test_a_history_replays(history: WorkflowHistory) -> None:
    await Replayer(workflows=PYTHON_WORKFLOWS, workflow_runner=runner()).replay_workflow(history)
