"""Histories of every release replay with the code as it is: nobody's run breaks by an upgrade."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from forestay.adapters.temporal.orchestrator import PYTHON_WORKFLOWS, runner
from forestay.apps.flow_formats import InstalledFormats

HISTORIES = sorted(Path(__file__).parent.glob("*.json"))
OLD_WORDS = re.compile(
    r"(?<![a-z])(holdfast|exlet|keeper|ladder|cornerstone|brake|cases?|items?|standing|mended|letter|gate|tie|slip|beat|meet|house)(?![a-z])"
)
"""Words that the glossary replaced: a stored name with one of them would have to be kept for ever."""


def test_there_are_histories() -> None:
    assert HISTORIES


@pytest.fixture(params=HISTORIES, ids=lambda place: place.stem)
def history(request: pytest.FixtureRequest) -> WorkflowHistory:
    place: Path = request.param
    return WorkflowHistory.from_json(place.stem, place.read_text())


async def test_a_history_replays(history: WorkflowHistory) -> None:
    formats = InstalledFormats().installed()
    workflows: list[type[Any]] = [*PYTHON_WORKFLOWS, *(flow_format.workflow() for flow_format in formats)]
    await Replayer(workflows=workflows, workflow_runner=runner(formats)).replay_workflow(history)


def texts(history: Any) -> Iterator[str]:
    """Everything that is written in a history: keys, names and the decoded payloads."""
    match history:
        case dict():
            for key, value in history.items():
                yield key
                is_payload = key == "data" and isinstance(value, str)
                yield from [base64.b64decode(value).decode()] if is_payload else texts(value)
        case list():
            for value in history:
                yield from texts(value)
        case str():
            yield history


@pytest.mark.parametrize("place", HISTORIES, ids=lambda place: place.stem)
def test_a_history_has_no_old_words(place: Path) -> None:
    assert [text[:200] for text in texts(json.loads(place.read_text())) if OLD_WORDS.search(text)] == []
