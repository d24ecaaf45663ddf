"""The buffer of one queue lane: its next candidates, in a server's memory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from forestay.domain.jobs.job_document import QueueLane
from forestay.ports.jobs.job_store import Stored


@dataclass(slots=True, eq=False)
class LaneBuffer:
    """Candidates of one lane, in order, and where the next page begins."""

    lane: QueueLane
    foreign: bool
    jobs: deque[Stored] = field(default_factory=deque)
    cursor: str | None = None
    reading: bool = False
    ended_at: float | None = None
    """When the end of the lane was reached; None while there is more to read."""
    unfit: int = 0
    """Candidates looked at in a row that did not fit into what was free."""
    granted: set[str] = field(default_factory=set)
    """Candidates that were given out of their turn."""
    served: int = 0
    """The desk's count at which this buffer was served last; the lowest goes first among equals."""

    def clear(self) -> None:
        """Forget the candidates; where the next page begins stays."""
        self.jobs.clear()
        self.granted.clear()
        self.unfit = 0
