"""An incident whose rule was not agreed to waits for a person, and not for a second one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from forestay.adapters.sql.incident_store import SqlIncidentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.system.clock import SystemClock
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.inbox import WaitsFor, group_key_of
from forestay.domain.exceptions.incidents.incident import Incident, IncidentState, IncidentStatus, status_of
from forestay.domain.exceptions.safeguards.approval_policy import LASTS, ApprovalRequest
from forestay.services.exceptions.safeguards.approval_closer import ApprovalCloser
from forestay.services.exceptions.safeguards.approvals import ApprovalRecord, Approvals

WAITS = "force-complete of this task needs an approval: nobody has approved it yet"


@dataclass
class Desk:
    incidents: SqlIncidentStore
    approvals: Approvals
    close: ApprovalCloser

    async def asked(self, *, ago: int = 0, **act: Any) -> ApprovalRecord:
        """A rule's decision that waits for approval."""
        incident = Incident("i1", "lab", "ann", ExceptionType.ABORT, 1, job="one", attempt=1, cause="code")
        waiting = replace(status_of(incident), state=IncidentState.HELD, n=1, note=WAITS, group="g")
        await self.incidents.add_incidents([(incident, waiting)])
        at = SystemClock().now() - ago
        kind = {"kind": "decision", "incident": "i1", "n": 1, "job": "one"} | act
        words = "force-complete task: force-complete of this task needs an approval"
        return await self.approvals.ask(
            ApprovalRequest("lab", "d", words, "ann", at, at + LASTS, "one", "ann", "", kind)
        )

    async def refuse(self, known: ApprovalRecord, why: str) -> ApprovalRecord:
        return await self.approvals.answer("lab", known.id, agreed=False, by="ben", approver=True, why=why)

    async def status(self) -> IncidentStatus:
        return (await self.incidents.get_statuses(["i1"]))["i1"].status


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    store = SqlJobStore(f"sqlite:///{tmp_path / 'close.db'}")
    await store.open()
    clock, incidents = SystemClock(), SqlIncidentStore(store.database)
    approvals = Approvals(store, clock)
    yield Desk(incidents, approvals, ApprovalCloser(approvals, incidents, clock))
    await store.close()


@pytest.mark.parametrize("why", ["the file is cut off", "it needs an approval by who knows", ""])
async def test_what_was_refused_waits_for_a_person(desk: Desk, why: str) -> None:
    known = await desk.refuse(await desk.asked(), why)
    await desk.close.close([known])
    status = await desk.status()
    assert status.note.startswith("ben rejected the rule's action (force-complete task)")
    place = group_key_of(status)
    assert place is not None
    assert place.waits is WaitsFor.GROUP, "it is of a group; one that is not waits for a person alone"
    assert status.state is IncidentState.HELD


async def test_a_reconciler_closes_what_nobody_answered_in_time_and_what_a_server_left(desk: Desk) -> None:
    await desk.asked(ago=LASTS + 1)
    for _ in range(2):
        await desk.close.look()
    assert (await desk.status()).note == "the request for the rule's action expired (force-complete task)"


async def test_a_refusal_that_nobody_closed_is_found(desk: Desk) -> None:
    await desk.refuse(await desk.asked(), "no")
    await desk.close.look()
    assert "ben rejected" in (await desk.status()).note


@pytest.mark.parametrize(
    ("ago", "act"),
    [(0, {}), (LASTS + 1, {"n": 2}), (LASTS + 1, {"kind": "job.force"}), (LASTS + 1, {"incident": "i2"})],
)
async def test_what_still_waits_and_what_is_another_matter_is_left_alone(
    desk: Desk, ago: int, act: dict[str, Any]
) -> None:
    await desk.asked(ago=ago, **act)
    await desk.close.look()
    assert (await desk.status()).note == WAITS


async def test_what_has_moved_on_stays_so(desk: Desk) -> None:
    known = await desk.refuse(await desk.asked(), "no")
    stored = (await desk.incidents.get_statuses(["i1"]))["i1"]
    moved = stored.status.moved(IncidentState.COMPLETE, now=5, note="recovered")
    await desk.incidents.put_statuses([(moved, stored.version)])
    await desk.close.close([known])
    assert (await desk.status()).note == "recovered"
