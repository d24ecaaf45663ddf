"""How a relay asks after its tasks: in few calls, whatever the server makes of lists."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from forestay.adapters.system.clock import SystemClock
from forestay.domain.jobs.claim import claim
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import Submission, new_job
from forestay.ports.insertion.task_service import Json, TaskPage
from forestay.ports.jobs.job_store import JobStore
from forestay.services.insertion.held_tasks import HeldTasks
from forestay.services.insertion.task_poller import STRAY_AGAIN, TaskPoller
from forestay.services.insertion.task_server_connection import ProxyPolicy, TaskServerConnection

SPEC = Specification("s", "t", "noop", ("true",))


@dataclass
class Tasks:
    """A task server's tasks, the oldest first, and the calls that were made."""

    states: dict[str, str] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    filters: bool = True

    async def listed(
        self, *, tags: Mapping[str, str], state: str = "", full: bool = False, page: str = "", size: int = 256
    ) -> TaskPage:
        self.calls.append(f"list {state}".strip())
        known = [
            other_state
            for other_state in self.states.items()
            if not state or not self.filters or other_state[1] == state
        ][::-1]
        start = int(page or 0)
        more = str(start + size) if start + size < len(known) else ""
        return TaskPage([{"id": task, "state": now} for task, now in known[start : start + size]], more)

    async def get(self, task: str, *, full: bool) -> Json:
        self.calls.append(f"get {task}")
        return {"id": task, "state": self.states[task], "executors": [{"image": "i", "command": ["true"]}], "logs": []}


class Hand(SystemClock):
    at = 0.0

    def monotonic(self) -> float:
        return self.at


class Looking:
    """One relay's look at such a server."""

    def __init__(self) -> None:
        self.tasks, self.held, self.clock = Tasks(), HeldTasks(), Hand()
        self.strays: list[Coroutine[Any, Any, None]] = []
        server = TaskServerConnection(cast(Any, self.tasks), self.clock, ProxyPolicy(), lambda _event, _facts: None)
        self.look_at = TaskPoller(
            "there",
            "t",
            server,
            self.held,
            cast(JobStore, None),
            self.clock,
            spawn=self.strays.append,
            on_event=lambda _event, _facts: None,
        )

    def hold(self, *names: str, state: str = "RUNNING") -> None:
        for name in names:
            self.tasks.states[name] = state
            job = new_job(Submission(SPEC, "o"), job=f"job {name}", now=1, by="o")
            document = claim(job, claim_id=f"claim {name}", pilot="p", host="h", now=2)
            assert isinstance(document, JobDocument)
            assert document.claim is not None
            self.held.add(document, document.claim).task = name

    async def completions(self) -> list[str]:
        self.tasks.calls.clear()
        return [held_task.task for held_task, _ in await self.look_at.look(self.held.watched, whole=True)]


async def test_one_page_of_the_newest_says_how_all_stand() -> None:
    here = Looking()
    here.hold(*(f"old {n}" for n in range(5000)), state="COMPLETE")
    for task in here.held:
        here.held.drop(task)
    here.hold(*(f"new {n}" for n in range(50)))
    assert await here.completions() == []
    assert here.tasks.calls == ["list"]
    here.tasks.states |= {"new 3": "COMPLETE", "new 7": "EXECUTOR_ERROR"}
    assert await here.completions() == ["new 3", "new 7"]
    assert here.tasks.calls == ["list", "get new 3", "get new 7"]


async def test_old_tasks_are_found_by_their_state() -> None:
    here = Looking()
    here.hold(*(f"mine {n}" for n in range(50)))
    here.tasks.states |= {f"later {n}": "COMPLETE" for n in range(5000)}
    assert await here.completions() == []
    assert here.tasks.calls == ["list", "list QUEUED", "list INITIALIZING", "list RUNNING"]


async def test_of_a_server_that_does_not_filter_each_is_asked_for() -> None:
    here = Looking()
    here.hold(*(f"mine {n}" for n in range(5)))
    here.tasks.states |= {f"later {n}": "COMPLETE" for n in range(500)}
    here.tasks.filters = False
    here.tasks.states["mine 4"] = "COMPLETE"
    assert await here.completions() == ["mine 4"]
    assert sum(call.startswith("get") for call in here.tasks.calls) == 5
    await here.completions()
    assert "list QUEUED" not in here.tasks.calls, "it is not asked again for what it does not do"


async def test_tasks_of_others_are_looked_at_late_and_seldom() -> None:
    here = Looking()
    here.hold(*(f"mine {n}" for n in range(5)))
    here.tasks.states["another's"] = "RUNNING"
    looks = []
    for seconds in (0.0, 0.1, 5.0, 5.0, STRAY_AGAIN):
        here.clock.at += seconds
        await here.completions()
        looks.append(len(here.strays))
    assert looks == [0, 0, 1, 1, 2], "it may just be in the making, and is most likely another server's"
    for stray in here.strays:
        stray.close()


@pytest.mark.parametrize("many", [1, 3])
async def test_few_are_asked_for_at_once(many: int) -> None:
    here = Looking()
    here.hold(*(f"mine {n}" for n in range(many)))
    await here.completions()
    assert here.tasks.calls == [f"get mine {n}" for n in range(many)]
