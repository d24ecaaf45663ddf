"""Polls a task server for the states of a relay's tasks in few calls, and reads the results of those that have ended.

Most awaited tasks are among the newest, so one page of the newest has their states, and costs a server without an index over states no
more than that page. For those that are not on it there is one list for each state in which tasks spend their time; a task in none of them is requested
separately.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from forestay.domain.jobs.conversation import ATTEMPT_TAG, JOB_TAG, RELAY_TAG, Exchange, token_named
from forestay.formats.ga4gh.tes_reading import read_shown_task
from forestay.formats.ga4gh.tes_task import ENDED
from forestay.ports.clock import Clock
from forestay.ports.errors import NotFound, Permanent, PortError
from forestay.ports.insertion.task_service import Json
from forestay.ports.jobs.job_store import JobStore
from forestay.services.insertion.held_tasks import HeldTask, HeldTasks
from forestay.services.insertion.task_completions import LIVE, LOST, end_of, failure_of
from forestay.services.insertion.task_server_connection import TaskServerConnection, tags_in
from forestay.services.jobs.job_completions import CompletionReport

FEW = len(LIVE)
"""Up to this many tasks are requested one by one: a list for each state would take as many calls."""
BESIDE = 32
"""Newer tasks than the awaited ones that a page has room for."""
PAGE = 1000
STRAY_AGAIN = 60.0
"""Seconds until a task without a claim here is checked again."""
MOST_STRAYS = 10_000
_LIVE = frozenset(state.value for state in LIVE)


class TaskPoller:
    """The service, for one server and one tenant."""

    def __init__(
        self,
        name: str,
        tenant: str,
        server: TaskServerConnection,
        held: HeldTasks,
        store: JobStore,
        clock: Clock,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        on_event: Callable[[str, Mapping[str, object]], None],
    ) -> None:
        self.name = name
        self.tenant = tenant
        self.server = server
        self.held = held
        self.store = store
        self.clock = clock
        self.spawn = spawn
        self.told = on_event
        self._filters = True
        """Whether the server applies the filters when it lists by tags and state."""
        self._strays: dict[str, float] = {}
        """Tasks without a claim here, and when each is checked next."""

    async def look(self, watched: Sequence[HeldTask], *, whole: bool) -> list[tuple[HeldTask, CompletionReport]]:
        """The completions among all of them, or among those that were reported as over."""
        waiting = [task for task in watched if task.report is None]
        live = await self._live(waiting) if whole and len(waiting) > FEW else frozenset()
        asked = [held_task for held_task in waiting if held_task.due or (whole and held_task.task not in live)]
        reports = await asyncio.gather(*(self._ask(task) for task in asked))
        return [(task, report) for task, report in zip(asked, reports, strict=True) if report is not None]

    async def _live(self, waiting: Sequence[HeldTask]) -> frozenset[str]:
        """The tasks that are certainly in progress."""
        size = min(PAGE, len(waiting) + BESIDE)
        newest = await self._listed("", "", size)
        states = {str(task.get("id", "")): str(task.get("state", "")) for task in newest[0]}
        live = {task for task, state in states.items() if state in _LIVE}
        if sum(held_task.task not in states for held_task in waiting) > FEW and self._filters:
            live |= await self._in_states()
        self._note_strays(live)
        return frozenset(live)

    async def _in_states(self) -> set[str]:
        live: set[str] = set()
        for state in LIVE:
            page = ""
            while True:
                tasks, page = await self._listed(state.value, page, PAGE)
                if any(task.get("state") != state.value for task in tasks):
                    self._filters = False  # from now on each task is requested separately
                    return set()
                live |= {str(task.get("id", "")) for task in tasks}
                if not page:
                    break
        return live

    async def _listed(self, state: str, page: str, size: int) -> tuple[Sequence[Json], str]:
        listed = await self.server.call(
            self.server.service.listed(tags={RELAY_TAG: self.tenant}, state=state, page=page, size=size)
        )
        return listed.tasks, listed.next

    async def _ask(self, held_task: HeldTask) -> CompletionReport | None:
        """Request one task; returns its completion if it is over."""
        try:
            task = read_shown_task(await self.server.call(self.server.service.get(held_task.task, full=True)))
        except NotFound as error:
            held_task.missing += 1
            if held_task.missing < 2:
                return None
            self.told("a task is lost", {"job": held_task.document.id, "task": held_task.task})
            return failure_of(held_task.document, held_task.claim, LOST, str(error), where=self.name)
        except (ValueError, Permanent):
            return None
        held_task.missing, held_task.due = 0, False
        if task.state not in ENDED:
            return None
        return end_of(held_task.document, held_task.claim, task, where=self.name, now=self.clock.now())

    # -- tasks without a claim here ----------------------------------------------------------------------------

    def _note_strays(self, live: set[str]) -> None:
        """Check tasks of this tenant without a claim here, with delay and rarely: most are just being created, or another server's."""
        now = self.clock.monotonic()
        for stray in live - {held_task.task for held_task in self.held}:
            due = self._strays.setdefault(stray, now + self.server.policy.settle)
            if now >= due:
                self._strays[stray] = now + STRAY_AGAIN
                self.spawn(self._stray(stray))
        while len(self._strays) > MOST_STRAYS:
            del self._strays[next(iter(self._strays))]

    async def _stray(self, task: str) -> None:
        """Cancel such a task if its job has ended, or continues as another task."""
        with suppress(PortError, ValueError):
            shown = await self.server.call(self.server.service.get(task, full=True))
            job, token = str(tags_in(shown).get(JOB_TAG, "")), token_named(str(tags_in(shown).get(ATTEMPT_TAG, "")))
            stored = (await self.store.get([job])).get(job) if job else None
            if stored is None or token is None or stored.document.tenant != self.tenant:
                return
            document = stored.document
            other = await self.store.get_record(Exchange(job, document.token, "", "").name)
            gone_on = other is not None and other.body.get("task") != task and document.token > token
            if document.final or gone_on:
                self.told("a task is left over", {"job": job, "task": task})
                await self.server.cancel(task)
