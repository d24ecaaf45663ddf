"""Compensations that fail, wait for a person, and outlive every process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.live.run_site import BAD, GOOD, run_site
from tests.system.chaos.runs.campaign import Campaign, Kill
from tests.system.chaos.runs.site import runs_site
from tests.unit.apps.server.running import until

from forestay.domain.flows.events import VerbKind

pytestmark = pytest.mark.live

TRIED = """
forestay: 1
name: tried
tasks:
  a: {command: [do], compensate: {command: [undo, a]}}
  b: {command: [do], after: [a], when_failed: hold, compensate: {command: [undo, b], tries: 2}}
  c: {command: [do], after: [b]}
"""


@pytest.mark.ledger("P2-06", "P2-09")
async def test_a_compensation_that_keeps_failing_waits_for_a_person(tmp_path: Path) -> None:
    """`b` itself fails first and is redone: it joins the way of success, so it is undone like the others."""
    ran: list[str] = []
    recovered = False

    def fate(claim: Mapping[str, Any]) -> dict[str, Any]:
        name = " ".join([claim["name"], *claim["specification"]["command"]])
        ran.append(name)
        if name == "b do":
            return BAD if ran.count(name) == 1 else GOOD
        return BAD if name == "c do" or (name.endswith("undo b") and not recovered) else GOOD

    async with run_site("sqlite", tmp_path) as site:
        site.fate = fate
        run = await site.start(TRIED)
        await site.task_is(run, "b", "faulted")
        assert (await site.verb(run, VerbKind.REDO, "b")).accepted

        async def held() -> bool:
            stack = (await site.engine.state(run))["stack"]
            return bool(stack and stack[-1].get("held"))

        await until(held, "the compensation of b to be held for a person")
        undone = [name for name in ran if "undo" in name]
        assert len(undone) == 2, "it was tried twice"
        assert all(name.endswith("undo b") for name in undone), "what is below it waits"
        assert [entry["task"] for entry in (await site.engine.state(run))["stack"]] == ["a", "b"]
        recovered = True
        held_one = (await site.engine.state(run))["stack"][-1]["number"]
        assert (await site.verb(run, VerbKind.REDO, f"!{held_one}")).accepted
        assert (await site.ended(run)).state == "failed"
        assert [name.rpartition(" ")[2] for name in ran if "undo" in name] == ["b", "b", "b", "a"]
        assert (await site.engine.state(run))["stack"] == []


@pytest.mark.pair
@pytest.mark.ledger("P2-09")
async def test_the_stack_survives_kills(tmp_path: Path) -> None:
    """While compensations run, the orchestrator, the server and Temporal are killed: all run, last in, first out, each once."""
    async with runs_site("postgresql", tmp_path) as site:
        campaign = Campaign(site)
        counts = await campaign.undisturbed()
        for point, back, temporal in (
            ("orchestrator.activity.submit_jobs:after", 3, False),
            ("server.store.write:after", 6, False),
            ("orchestrator.run.signal_workflow:before", 4, True),
        ):
            # A busy machine tells of several jobs at once, so that the last passes need not come: then it is killed earlier.
            for nth in range(counts[point] - back, counts[point] // 2, -3):
                if await campaign.kill(Kill(point, nth, temporal)):
                    break
        assert campaign.report.wrong == []
        assert campaign.report.kills == {"orchestrator": 1, "server": 1, "temporal": 1}
