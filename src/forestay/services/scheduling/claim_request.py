"""A pilot's request for work, as it is passed from the route to the candidate buffers."""

from __future__ import annotations

from dataclasses import dataclass

from forestay.domain.jobs.job_document import queue_named
from forestay.domain.jobs.resources import Resources
from forestay.domain.pilots.pilot import PilotClass


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What a pilot asks for, and what decides which jobs it may have."""

    pilot: str
    host: str
    tenant: str
    free: Resources
    most: int
    batch: int = 1
    """How often over the free resources are filled: those jobs run one after another."""
    site: str = ""
    slots: int = 1
    downstream: str = ""
    """The task server for which it asks; empty: a pilot."""
    runtimes: frozenset[str] | None = None
    """The container runtimes of its machine; None: not reported."""
    machine: PilotClass | None = None
    """What it says of itself."""
    owner: str = ""
    """The one owner whose jobs it may have; empty: it may have those of all."""

    @property
    def queue(self) -> str:
        """The queue of the jobs that it may claim."""
        return queue_named(self.tenant, self.downstream)
