"""The claims of a relay, and the task of each at the task server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from forestay.domain.jobs.job_document import Claim, JobDocument
from forestay.services.jobs.job_completions import CompletionReport


@dataclass(slots=True, eq=False)
class HeldTask:
    """One claim, and its task."""

    document: JobDocument
    claim: Claim
    task: str = ""
    """The task's id at the task server; empty until it is known."""
    tried: bool = False
    """Its creation was attempted; whether that succeeded is known only once it has a task."""
    missing: int = 0
    """Polls in a row at which the server did not know it."""
    due: bool = False
    """Someone reported that it is over."""
    registered: bool = False
    """Its server was asked to call back, and it need not be polled more often."""
    report: CompletionReport | None = None
    """Its completion, until that is settled."""


@dataclass(slots=True)
class HeldTasks:
    """All of them, by claim, by job and by task."""

    _by_claim: dict[str, HeldTask] = field(default_factory=dict)
    _by_job: dict[str, HeldTask] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._by_claim)

    def __iter__(self) -> Iterator[HeldTask]:
        """In the order in which they were claimed; tasks may be removed during the iteration."""
        return iter(list(self._by_claim.values()))

    def __contains__(self, task: HeldTask) -> bool:
        return self._by_claim.get(task.claim.id) is task

    @property
    def claims(self) -> tuple[str, ...]:
        return tuple(self._by_claim)

    @property
    def jobs(self) -> list[str]:
        return list(self._by_job)

    @property
    def watched(self) -> list[HeldTask]:
        """The tasks whose completion is awaited, or has yet to be settled."""
        return [held_task for held_task in self._by_claim.values() if held_task.task or held_task.report]

    def of_job(self, job: str) -> HeldTask | None:
        return self._by_job.get(job)

    def add(self, document: JobDocument, claim: Claim) -> HeldTask:
        task = HeldTask(document, claim)
        self._by_claim[claim.id] = self._by_job[document.id] = task
        return task

    def drop(self, task: HeldTask) -> None:
        self._by_claim.pop(task.claim.id, None)
        if self._by_job.get(task.document.id) is task:
            del self._by_job[task.document.id]
