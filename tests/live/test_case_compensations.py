"""Compensations that fail, wait for a person, and outlive every process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.live.case_site import BAD, GOOD, case_site
from tests.system.chaos.cases.campaign import Campaign, Kill
from tests.system.chaos.cases.site import cases_site
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
    mended = False

    def fate(claim: Mapping[str, Any]) -> dict[str, Any]:
        name = " ".join([claim["name"], *claim["specification"]["command"]])
        ran.append(name)
        if name == "b do":
            return BAD if ran.count(name) == 1 else GOOD
        return BAD if name == "c do" or (name.endswith("undo b") and not mended) else GOOD

    async with case_site("sqlite", tmp_path) as site:
        site.fate = fate
        case = await site.start(TRIED)
        await site.item_is(case, "b", "faulted")
        assert (await site.verb(case, VerbKind.REDO, "b")).accepted

        async def held() -> bool:
            stack = (await site.engine.state(case))["stack"]
            return bool(stack and stack[-1].get("held"))

        await until(held, "the compensation of b to be held for a person")
        undone = [name for name in ran if "undo" in name]
        assert len(undone) == 2, "it was tried twice"
        assert all(name.endswith("undo b") for name in undone), "what is below it waits"
        assert [entry["item"] for entry in (await site.engine.state(case))["stack"]] == ["a", "b"]
        mended = True
        held_one = (await site.engine.state(case))["stack"][-1]["number"]
        assert (await site.verb(case, VerbKind.REDO, f"!{held_one}")).accepted
        assert (await site.ended(case)).state == "failed"
        assert [name.rpartition(" ")[2] for name in ran if "undo" in name] == ["b", "b", "b", "a"]
        assert (await site.engine.state(case))["stack"] == []


@pytest.mark.pair
@pytest.mark.ledger("P2-09")
async def test_the_stack_survives_kills(tmp_path: Path) -> None:
    """While compensations run, the worker, the server and Temporal are killed: all run, last in, first out, each once."""
    async with cases_site("postgresql", tmp_path) as site:
        campaign = Campaign(site)
        found = await campaign.undisturbed()
        for kill in (
            Kill("worker.activity.submit_jobs:after", found["worker.activity.submit_jobs:after"] - 3),
            Kill("server.store.write:after", found["server.store.write:after"] - 6),
            Kill("worker.case.signal_workflow:before", found["worker.case.signal_workflow:before"] - 4, temporal=True),
        ):
            assert await campaign.kill(kill), f"nothing came to {kill}"
        assert campaign.report.wrong == []
        assert campaign.report.kills == {"worker": 1, "server": 1, "temporal": 1}
