"""How a relay sends tasks to a server that answers some calls and not others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from forestay.adapters.system.clock import SystemClock
from forestay.domain.jobs.claim import claim
from forestay.domain.jobs.conversation import SILENT
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import Submission, new_job
from forestay.ports.errors import Transient
from forestay.ports.insertion.task_service import Json, TaskPage
from forestay.ports.jobs.job_store import JobStore
from forestay.services.insertion import task_sender
from forestay.services.insertion.held_tasks import HeldTask, HeldTasks
from forestay.services.insertion.task_sender import TaskSender
from forestay.services.insertion.task_server_connection import ProxyPolicy, TaskServerConnection

SPEC = Specification("s", "t", "noop", ("true",))


@dataclass
class CreatesNothing:
    """A task server that lists its tasks, of which there are none, and fails every creation."""

    clock: HandClock
    created: list[float] = field(default_factory=list)

    async def create(self, _body: Json, *, key: str) -> str:
        assert key
        self.created.append(self.clock.at)
        raise Transient("500 Internal Server Error")

    async def listed(self, *, tags: Mapping[str, str], full: bool = False, page: str = "", size: int = 256) -> TaskPage:
        assert tags
        return TaskPage([], "")


class HandClock(SystemClock):
    at = 0.0

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds
        await asyncio.sleep(0)


async def test_a_server_that_fails_every_creation_is_asked_ever_less_often_and_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, held, policy = HandClock(), HeldTasks(), ProxyPolicy(patience=300)
    # Its own name for the module: everything else on this loop still sleeps in earnest.
    monkeypatch.setattr(task_sender, "asyncio", SimpleNamespace(sleep=clock.sleep))
    service = CreatesNothing(clock)
    given_up: list[tuple[str, str]] = []

    async def specification(_name: str) -> Specification | None:
        return SPEC

    async def failure(task: HeldTask, reason: str, words: str) -> None:
        given_up.append((reason, words))
        held.drop(task)

    sender = TaskSender(
        "there",
        TaskServerConnection(cast(Any, service), clock, policy, lambda _event, _facts: None),
        held,
        cast(JobStore, None),
        clock,
        specification=specification,
        failure=failure,
        spawn=lambda coroutine: coroutine.close(),
        on_event=lambda _event, _facts: None,
        passed=lambda _point: None,
    )
    job = new_job(Submission(SPEC, "o"), job="job", now=1, by="o")
    document = claim(job, claim_id="claim", pilot="p", host="h", now=2)
    assert isinstance(document, JobDocument)
    assert document.claim is not None
    await sender.send(held.add(document, document.claim))
    assert given_up == [(SILENT, "500 Internal Server Error")]
    assert policy.patience <= clock.at <= policy.patience + 2 * policy.slow
    assert 20 <= len(service.created) <= 40, "every ten seconds, not every two"
