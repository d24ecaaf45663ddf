"""The constraint checks that runs and tasks request before they start and complete; the exception services answer them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.jobs.job_document import FlowRef, instance_of


@dataclass(frozen=True, slots=True)
class InstanceRound:
    """The round of a task that is to begin or to end."""

    tenant: str
    owner: str
    run: str
    flow: str
    """The flow's version."""
    work: str
    instance: str
    task: str

    @property
    def number(self) -> int:
        return instance_of(self.work)[1]


class FlowChecks(Protocol):
    """The constraints of runs and tasks: `ConstraintChecker`."""

    async def asked(self, tenant: str, flow: str, kind: ExceptionType, task: str = "") -> bool:
        """Whether any rule could conclude; up to half a second old."""
        ...

    async def run_begins(
        self, *, tenant: str, owner: str, run: str, flow: str, name: str, params: Mapping[str, object]
    ) -> str:
        """The incident that keeps a run from beginning; empty: it may begin."""
        ...

    async def instance_begins(self, instance_round: InstanceRound, data: Mapping[str, object]) -> str:
        """The incident that keeps a round from beginning; empty: it may begin. ``data``: the data that its task refers to."""
        ...

    async def job_ended(self, tenant: str, owner: str, flow_ref: FlowRef, bad: int, data: Mapping[str, object]) -> str:
        """The incident that keeps a round whose last job has ended from completing; empty: it may. ``bad``: the failed jobs of which the run does not know yet."""
        ...
