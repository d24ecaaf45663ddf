"""Registers for the end of a job that was submitted before."""

from __future__ import annotations

from dataclasses import dataclass

from forestay.domain.jobs.job_document import FINAL, Delivery, JobDocument
from forestay.domain.jobs.lifecycle import Refused
from forestay.ports.clock import Clock
from forestay.services.shared.write_checked import Answer, Wish, Writer


@dataclass(slots=True)
class RegisterCallbacks:
    """The service. A job has one callback; another takes its place. A job that has ended is told of at once."""

    writer: Writer
    clock: Clock

    async def register(self, job: str, url: str) -> Answer:
        now = self.clock.now()

        def decide(document: JobDocument) -> JobDocument | Refused:
            return document.having(delivery=Delivery(url=url, due=now if document.state in FINAL else None))

        def mine(document: JobDocument) -> bool:
            return document.delivery is not None and document.delivery.url == url

        (answer,) = await self.writer.write([Wish(job, decide, mine)])
        return answer
