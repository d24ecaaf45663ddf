"""Sends the callback of each ended job, and repeats it until the receiver has accepted it.

Each receiver is served separately: one that does not answer delays only its own callbacks. Callbacks in progress are postponed in the
store for a while, so that the next search finds others; if the process dies, they are found again after that time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from forestay.domain.jobs.claim import confirm
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.domain.jobs.steering import take_notice
from forestay.ports.clock import Clock
from forestay.ports.errors import Permanent, PortError
from forestay.ports.jobs.job_store import JobQuery, JobStore, Stored
from forestay.ports.operations.callback_transport import CallbackTransport
from forestay.services.shared.background_tasks import BackgroundTasks
from forestay.services.shared.checked_writer import ProposedWrite, WriteApplied, Writer

GIVE_UP_AFTER = 20
"""Attempts; with growing waits that is about three days."""
AT_ONCE = 16
"""Concurrent requests to one receiver."""
PAGE = 200
HOLD = 120_000
"""Milliseconds for which a callback in progress is not due; longer than a request to a silent receiver takes."""
STALE = 60_000
"""Milliseconds after which a callback that still waits in this process is left to a later search."""
MOST_WAITING = 2000
"""The most callbacks of one receiver that wait in this process; further ones are found again later."""

Receiver = tuple[str, str]
"""The tenant, and the host and port of its URL."""


@dataclass(slots=True)
class CallbackSender:
    """The service. Several may run: a callback may then be sent twice, with the same delivery id."""

    store: JobStore
    writer: Writer
    clock: Clock
    notify: CallbackTransport
    every: float = 1.0
    sent: int = 0
    failed: int = 0
    _waiting: dict[Receiver, deque[Stored]] = field(default_factory=dict)
    """The waiting callbacks of each receiver that is being served."""

    async def run(self) -> None:
        serving = BackgroundTasks()
        try:
            while True:
                more = False
                with suppress(PortError):
                    more = await self._take_up(serving.begin)
                if not more:
                    await asyncio.sleep(self.every)
        finally:
            serving.stop()

    async def send_due(self) -> bool:
        """Send what is due now, and wait for every receiver; returns whether there may be more."""
        serving: list[Coroutine[Any, Any, None]] = []
        more = await self._take_up(serving.append)
        await asyncio.gather(*serving)
        return more

    async def _take_up(self, begin: Callable[[Coroutine[Any, Any, None]], None]) -> bool:
        """Queue what is due now for its receivers; returns whether there may be more."""
        query = JobQuery(at_most={"notify_due": self.clock.now()})
        page = await self.store.search(query, sort="notify_due", limit=PAGE)
        due = await self._proven([job.document.id for job in page.jobs])
        for job in due:
            receiver = _receiver_of(job.document)
            waiting = self._waiting.get(receiver)
            if waiting is None:
                waiting = self._waiting[receiver] = deque()
                begin(self._serve(receiver, waiting))
            if len(waiting) < MOST_WAITING:
                waiting.append(job)
        return len(page.jobs) == PAGE and bool(due)

    async def _serve(self, receiver: Receiver, waiting: deque[Stored]) -> None:
        try:
            while waiting:
                jobs = [waiting.popleft() for _ in range(min(AT_ONCE, len(waiting)))]
                now = self.clock.now()
                with suppress(PortError):
                    await self._send([job for job in jobs if _held_until(job.document) > now + HOLD - STALE])
        finally:
            del self._waiting[receiver]

    async def _proven(self, jobs: Sequence[str]) -> list[Stored]:
        """The due jobs whose end is confirmed, postponed in the store: a read may yet be rolled back, but a sent callback cannot be recalled."""
        now = self.clock.now()

        def decide(document: JobDocument) -> JobDocument | TransitionRefused:
            if document.delivery is None or not _is_due(document, now):
                return TransitionRefused("nothing is due")
            return confirm(document).having(delivery=replace(document.delivery, due=now + HOLD))

        writes = [ProposedWrite(job, decide, lambda _document: False) for job in jobs]
        answers = await self.writer.write(writes) if writes else ()
        return [answer.stored for answer in answers if isinstance(answer, WriteApplied)]

    async def _send(self, jobs: Sequence[Stored]) -> None:
        if not jobs:
            return
        outcomes = await asyncio.gather(*(self._post(job.document) for job in jobs))
        await self.writer.write([self._proposed(job, failure) for job, failure in zip(jobs, outcomes, strict=True)])

    async def _post(self, document: JobDocument) -> PortError | None:
        assert document.delivery is not None  # noqa: S101 - only such jobs are due
        last = document.last
        body = {
            "job": document.id,
            "name": document.name,
            "state": document.state.value,
            "attempt": document.attempt,
            "exit_code": last.exit_code if last else None,
            "signal": last.signal if last else None,
            "delivery": delivery_id(document),
        }
        try:
            await self.notify.post(document.delivery.url, body, delivery=delivery_id(document))
        except PortError as error:
            self.failed += 1
            return error
        except Exception as error:
            self.failed += 1
            return Permanent(f"{type(error).__name__}: {error}")
        self.sent += 1
        return None

    def _proposed(self, stored: Stored, failure: PortError | None) -> ProposedWrite:
        assert stored.document.delivery is not None  # noqa: S101
        tries = stored.document.delivery.tries + 1
        now = self.clock.now()
        given_up = isinstance(failure, Permanent) or tries >= GIVE_UP_AFTER
        due = None if failure is None or given_up else now + wait_after(tries)
        note = "taken" if failure is None else f"try {tries}: {failure}"

        def decide(document: JobDocument) -> JobDocument | TransitionRefused:
            if document.delivery is None or document.delivery.done or document.delivery.tries >= tries:
                return TransitionRefused("somebody else sent it")
            return take_notice(document, due=due, done=failure is None, now=now, by="reconciler", note=note)

        def already_applied(document: JobDocument) -> bool:
            return document.delivery is not None and document.delivery.tries >= tries

        return ProposedWrite(stored.document.id, decide, already_applied, known=stored)


def wait_after(tries: int) -> int:
    """Milliseconds before the next attempt: one second, doubled each time, at most six hours."""
    return min(1000 << (tries - 1), 6 * 3600 * 1000)


def delivery_id(document: JobDocument) -> str:
    """An id that is the same in every repeat of a callback, so that the receiver can recognise repeats."""
    return f"{document.id}:{document.generation}.{document.attempt}"


def _receiver_of(document: JobDocument) -> Receiver:
    return document.tenant, urlsplit(document.delivery.url).netloc if document.delivery is not None else ""


def _held_until(document: JobDocument) -> int:
    return document.delivery.due or 0 if document.delivery is not None else 0


def _is_due(document: JobDocument, now: int) -> bool:
    delivery = document.delivery
    return delivery is not None and not delivery.done and delivery.due is not None and delivery.due <= now
