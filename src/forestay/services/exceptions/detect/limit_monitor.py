"""Raises a constraint violation for a job that exceeds its expected limits (paper P1: a constraint during execution is violated).

Of a running job a pilot reports today only that it runs; so the monitored limit is its time. The violation is raised when the expected runtime has passed,
and again each time the elapsed time has doubled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.ports.clock import Clock
from forestay.ports.jobs.job_store import JobQuery, JobStore
from forestay.services.exceptions.exception_event import ExceptionEvent
from forestay.services.exceptions.pipeline import ExceptionPipeline
from forestay.services.flows.flow_store import FlowStore
from forestay.services.jobs.job_context import job_context, place_of
from forestay.services.shared.polling import poll_forever
from forestay.services.shared.quarantine import Quarantine

KIND = ExceptionType.CONSTRAINT_VIOLATION
PAGE = 1000


@dataclass(slots=True)
class LimitMonitor:
    """The service; incidents are create-only, so any number of these may run."""

    store: JobStore
    pipeline: ExceptionPipeline
    flows: FlowStore
    clock: Clock
    every: float = 5.0
    troubled: Callable[[str], None] = lambda _text: None
    raised: int = 0
    quarantine: Quarantine = field(default_factory=Quarantine)
    """Counts what this loop could not handle."""
    _told: set[str] = field(default_factory=set)
    """Violations raised before: they are not sent to the store again."""

    async def run(self) -> None:
        await poll_forever(self.look, self.every, self.troubled)

    async def look(self) -> None:
        """Raise a violation for every limit that was exceeded since the last poll."""
        await self.pipeline.decider.get_ready()
        now = self.clock.now()
        ids: set[str] = set()
        query = JobQuery(states=frozenset({State.RUNNING}), at_most={"overdue": now})
        cursor: str | None = None
        while True:
            page = await self.store.search(query, sort="overdue", limit=PAGE, cursor=cursor)
            fresh = list[ExceptionEvent]()

            async def look_at(document: JobDocument, fresh: list[ExceptionEvent] = fresh) -> None:
                event = await self._raise(document, now)
                if event is not None:
                    ids.add(event.id)
                    fresh += [] if event.id in self._told else [event]

            later = await self.quarantine.each(
                [stored.document for stored in page.jobs],
                look_at,
                name=lambda document: f"job {document.id}",
                troubled=self.troubled,
            )
            if later is not None:
                raise later
            self.raised += sum(not exception.ignored for exception in await self.pipeline.handle(fresh))
            cursor = page.cursor
            if cursor is None:
                self._told = ids
                return

    async def _raise(self, document: JobDocument, now: int) -> ExceptionEvent | None:
        claim, expected = document.claim, document.expected_runtime
        if claim is None or not expected:
            return None
        place = place_of(document)
        name = await self.flows.name_of(document)
        if not self.pipeline.decider.wanted(document.tenant, name, KIND, place.get("task", "")):
            return None
        ran = (now - claim.granted) / 1000
        times = 1
        while 2 * times * expected <= ran:
            times *= 2
        context = job_context(document, now)
        context["evidence"] = {
            "wall_time": ran,
            "time_limit": float(expected),
            "node": claim.host,
            "more": {"limit": "expected-runtime", "times": times},
        }
        context["host"] = {"name": claim.host}
        event = f"runtime-{claim.id}-{times}"
        return ExceptionEvent(
            KIND, document.tenant, document.owner, event, now, flow_name=name, cause="time", context=context, **place
        )
