"""One attempt of a job, as recorded in an accounting database, a history or an engine's log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from forestay.domain.exceptions.evidence.evidence import Evidence


class PastState(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """Cancelled by a person; not counted as a failure."""


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """One attempt. Times are seconds since 1970, None if they were not recorded."""

    source: str
    """What recorded it: slurm, htcondor, nextflow or snakemake."""
    id: str
    name: str
    owner: str
    hosts: tuple[str, ...]
    state: PastState
    cores: float
    seconds: float
    """How long it held the cores."""
    attempt: int = 1
    evidence: Evidence | None = None
    """Of a failure."""
    submitted: float | None = None
    ended: float | None = None
    element: str = ""
    """The index in an array."""

    @property
    def core_hours(self) -> float:
        return self.cores * self.seconds / 3600

    @property
    def same_work(self) -> tuple[str, str, str, str]:
        """What a resubmitted job shares with the first: its owner and name, since nothing better is recorded."""
        return (self.source, self.owner, self.name, self.element)
