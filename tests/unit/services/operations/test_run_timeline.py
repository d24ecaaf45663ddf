"""The story of a run: where its sub-flows ran."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from forestay.domain.flows.execution.run_names import run_of
from forestay.domain.peers.placing import Placing, PlacingState
from forestay.formats.flows.run_story import story_public
from forestay.ports.documents import Document, StoredDocument
from forestay.ports.flows.flow_engine import RunHistoryEvent
from forestay.ports.jobs.job_store import Version
from forestay.services.flows.placed_runs import placing_name
from forestay.services.operations.run_timeline import RunTimeline


def answering(value: object) -> Any:
    async def answer(*_args: object, **_named: object) -> Any:
        return value

    return answer


async def test_a_story_names_the_domains_of_sub_flows_that_may_run_elsewhere() -> None:
    lines = [
        RunHistoryEvent(index, "place_run", {"command": {"order": {"work": "fit@1"}, "index": index}})
        for index in range(3)
    ]
    stored: dict[str, StoredDocument] = {}
    for index, at, tried in ((0, "west", ("east",)), (1, "", ())):
        run = run_of("r", "fit@1", index)
        placing = Placing(
            run, "t", "ada", "r", "fit@1", index, "f", "fit", "any", at=at, state=PlacingState.SENT, tried=tried
        )
        stored[placing_name(run)] = StoredDocument(
            Document(placing_name(run), "t", "placing", placing.as_plain()), Version(1, 1)
        )

    async def get(names: Sequence[str]) -> dict[str, StoredDocument]:
        return {name: stored[name] for name in names if name in stored}

    fakes: Any = SimpleNamespace(
        find=answering(SimpleNamespace(statuses=[])),
        get_incidents=answering({}),
        find_records=answering([]),
        history=answering(SimpleNamespace(happenings=lines, cursor=None)),
        head=answering(SimpleNamespace(number=0)),
        read=answering(([], None)),
        get=get,
    )
    timeline = RunTimeline(fakes, fakes, fakes, fakes, fakes, fakes)
    story = await timeline.story("r", tenant="t", started=0, ours=True)
    assert [story_public(*line)["words"] for line in story] == [
        "fit: sub-flow run 0 runs in domain west, before that in east",
        "fit: sub-flow run 1 runs in this domain",
        "fit: sub-flow run 2 is placed in a domain",
    ]
