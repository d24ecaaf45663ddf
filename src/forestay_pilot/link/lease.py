"""The pilot's lease: until when the servers certainly leave its claims alone."""

from __future__ import annotations

import threading
from typing import Callable

from forestay_pilot.clock import steady


class PilotLease:
    """Runs from the *sending* of the last heartbeat that was acknowledged, on the steady clock."""

    def __init__(self, until: float, on_change: Callable[[float], None]) -> None:
        self._changed = threading.Condition()
        self._until = until
        self._unbroken_since = steady()
        self._on_change = on_change
        on_change(until)

    @property
    def until(self) -> float:
        """When it passes, if no further heartbeat is acknowledged."""
        return self._until

    def good(self) -> bool:
        """Whether it has not passed."""
        return steady() < self._until

    def unbroken(self, since: float) -> bool:
        """Whether the lease is valid, and has been since then."""
        with self._changed:
            return self.good() and since >= self._unbroken_since

    def extend(self, until: float) -> None:
        """A heartbeat was acknowledged."""
        with self._changed:
            if not self.good():
                self._unbroken_since = steady()
            self._until = until
            self._changed.notify_all()
        self._on_change(until)

    def wait_good(self, since: float, give_up: Callable[[], bool]) -> bool:
        """Wait until the lease is valid; False when given up, and for claims held since before it was last lost.

        A job that was claimed but not begun when the lease lapsed may be someone else's by now, and may have ended there: no
        later heartbeat makes that claim good again.
        """
        with self._changed:
            while not self.good():
                if give_up():
                    return False
                self._changed.wait(0.2)
            return since >= self._unbroken_since
