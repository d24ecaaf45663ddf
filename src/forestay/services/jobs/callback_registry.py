"""Registers callbacks for the completion of jobs that were submitted before."""

from __future__ import annotations

from dataclasses import dataclass

from forestay.domain.jobs.job_document import FINAL, Delivery, JobDocument
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.ports.clock import Clock
from forestay.services.shared.checked_writer import Answer, ProposedWrite, Writer


@dataclass(slots=True)
class CallbackRegistry:
    """The service. A job has one callback; a new one replaces it. If the job has ended, it is sent at once."""

    writer: Writer
    clock: Clock

    async def register(self, job: str, url: str) -> Answer:
        now = self.clock.now()

        def decide(document: JobDocument) -> JobDocument | TransitionRefused:
            return document.having(delivery=Delivery(url=url, due=now if document.state in FINAL else None))

        def already_applied(document: JobDocument) -> bool:
            return document.delivery is not None and document.delivery.url == url

        (answer,) = await self.writer.write([ProposedWrite(job, decide, already_applied)])
        return answer
