"""Notifies the callback of each ended job, again and again until it is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from forestay.domain.jobs.claim import confirm
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.domain.jobs.steering import take_notice
from forestay.ports.clock import Clock
from forestay.ports.errors import Permanent, PortError
from forestay.ports.jobs.job_store import JobQuery, JobStore, Stored
from forestay.ports.operations.callback_transport import CallbackTransport
from forestay.services.shared.checked_writer import ProposedWrite, WriteApplied, Writer

GIVE_UP_AFTER = 20
"""Tries; with growing waits that is about three days."""
AT_ONCE = 16


@dataclass(slots=True)
class CallbackSender:
    """The service. Several may run: a callback may then be told twice, with the same delivery id."""

    store: JobStore
    writer: Writer
    clock: Clock
    notify: CallbackTransport
    every: float = 1.0
    sent: int = 0
    failed: int = 0

    async def run(self) -> None:
        while True:
            more = False
            with suppress(PortError):
                more = await self.send_due()
            if not more:
                await asyncio.sleep(self.every)

    async def send_due(self) -> bool:
        """Send what is due now; says whether there may be more."""
        query = JobQuery(at_most={"notify_due": self.clock.now()})
        page = await self.store.search(query, sort="notify_due", limit=200)
        due = await self._proven([job.document.id for job in page.jobs])
        for start in range(0, len(due), AT_ONCE):
            await self._send(due[start : start + AT_ONCE])
        return len(page.jobs) == 200 and bool(due)

    async def _proven(self, jobs: Sequence[str]) -> list[Stored]:
        """Those that are due and surely ended: what was read may yet be rolled back, what was told cannot be untold."""
        now = self.clock.now()

        def decide(document: JobDocument) -> JobDocument | TransitionRefused:
            return confirm(document) if _is_due(document, now) else TransitionRefused("nothing is due")

        writes = [ProposedWrite(job, decide, lambda _document: False) for job in jobs]
        answers = await self.writer.write(writes) if writes else ()
        return [answer.stored for answer in answers if isinstance(answer, WriteApplied)]

    async def _send(self, jobs: Sequence[Stored]) -> None:
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
    """Milliseconds before the next try: one second, doubled each time, at most six hours."""
    return min(1000 << (tries - 1), 6 * 3600 * 1000)


def delivery_id(document: JobDocument) -> str:
    """The same in every repeat of one notification, so that its notification channel can tell."""
    return f"{document.id}:{document.generation}.{document.attempt}"


def _is_due(document: JobDocument, now: int) -> bool:
    delivery = document.delivery
    return delivery is not None and not delivery.done and delivery.due is not None and delivery.due <= now
