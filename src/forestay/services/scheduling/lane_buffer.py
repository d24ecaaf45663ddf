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
    """Candidates tried in a row that did not fit into the free resources."""
    granted: set[str] = field(default_factory=set)
    """Candidates that were given out of order."""
    served: int = 0
    """The dispatcher's count at which this buffer was last served; the lowest goes first among equals."""

    def clear(self) -> None:
        """Forget the candidates; the position of the next page is kept."""
        self.jobs.clear()
        self.granted.clear()
        self.unfit = 0
