"""Records that a pilot found its host unfit and ended before it got a job: an alert, and a report to the host health tracker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from forestay.domain.exceptions.evidence.redaction import redacted
from forestay.ports.clock import Clock
from forestay.ports.jobs.job_store import JobStore, Record

ALERT = "failed-checks"


@dataclass(frozen=True, slots=True)
class UnfitMachine:
    """A pilot's findings on the machine where it was started."""

    tenant: str
    site: str
    host: str
    launch: str
    batch_job: str
    findings: tuple[tuple[str, str], ...]
    """The failed checks, and their messages."""


@dataclass(slots=True)
class NodeCheckFailures:
    """The service. Its writes are create-only, so a pilot may repeat its reports."""

    store: JobStore
    clock: Clock
    listeners: list[Callable[[UnfitMachine], Awaitable[None]]] = field(default_factory=list)
    """Called for each report, also for a repeated one: a host may be closed for it."""

    async def note(self, unfit: UnfitMachine, *, event: str) -> None:
        """`Transient` if the store does not answer: the pilot repeats its report."""
        findings = [(check, redacted(words)) for check, words in unfit.findings]
        text = "; ".join(f"{check}: {words}" for check, words in findings)
        body = {
            "alert": ALERT,
            "words": f"a pilot of site {unfit.site} on {unfit.host} exited before it took a job: {text}",
            "host": unfit.host,
            "site": unfit.site,
            "launch": unfit.launch,
            "batch_job": unfit.batch_job,
            "checks": [check for check, _ in findings],
        }
        name = f"alert:{ALERT}:{event}"
        await self.store.add_records([Record(name, unfit.tenant, "alert", "", self.clock.now(), body)])
        for listener in self.listeners:
            await listener(unfit)
