"""The claims this pilot holds: from the answer that brought one until its end is settled.

Beats name exactly these. A claim whose answer was lost is never in here, so it is not named, and the
servers free it.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from typing import TYPE_CHECKING

from holdfast_pilot.clock import steady

if TYPE_CHECKING:
    from holdfast_pilot.payload import ClaimedJob

QUANTITIES = ("cpus", "memory", "disk", "gpus")


class Held:
    """One claim in the pilot's hands."""

    def __init__(self, job: ClaimedJob) -> None:
        self.job = job
        self.stop_why = ""  # set before the guard is asked, so that a stop cannot fall between two steps
        self.running = False
        self.finished = threading.Event()
        self.log_path = ""

    @property
    def claim(self) -> str:
        return self.job.claim


def wants(job: ClaimedJob, quantity: str) -> int:
    """How much of a resource a job asks for; nothing when it does not say."""
    amount = job.resources.get(quantity)
    return math.ceil(amount) if isinstance(amount, (int, float)) else 0


class HeldClaims:
    """Claims that wait for a slot, run, or have ended but are not settled."""

    def __init__(self, *, slots: int, batch: int, resources: dict[str, int]) -> None:
        self._slots = slots
        self._batch = batch
        self._resources = resources
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # slots wait here
        self._space = threading.Condition(self._lock)  # the claim loop waits here
        self._held: dict[str, Held] = {}
        self._queue: deque[Held] = deque()
        self._running: set[Held] = set()
        self._closed = False
        self._idle_since = steady()
        self.taken_in = 0

    def add(self, jobs: list[ClaimedJob], *, queue: bool = True) -> list[Held]:
        """Take in newly claimed jobs, to be run unless ``queue`` is false; one held already is passed over."""
        with self._lock:
            added = []
            for job in jobs:
                if job.claim not in self._held:
                    held = Held(job)
                    self._held[job.claim] = held
                    if queue:
                        self._queue.append(held)
                    added.append(held)
            self.taken_in += len(added)
            if queue:
                self._work.notify(len(added))
            return added

    def names(self) -> list[str]:
        """The claims to be named in a beat."""
        with self._lock:
            return list(self._held)

    def get(self, claim: str) -> Held | None:
        """One held claim."""
        with self._lock:
            return self._held.get(claim)

    def take(self) -> Held | None:
        """The next claim for a free slot, once its resources are free; none when the pilot is ending."""
        with self._lock:
            while True:
                if self._queue and self._fits(self._queue[0]):
                    held = self._queue.popleft()
                    held.running = True
                    self._running.add(held)
                    return held
                if self._closed and not self._queue:
                    return None
                self._work.wait()

    def release(self, held: Held) -> None:
        """Give back the slot; the claim stays held until it is settled."""
        with self._lock:
            held.running = False
            self._running.discard(held)
            self._idle_since = steady()
            held.finished.set()
            if self._queue:
                self._work.notify_all()  # one that did not fit may fit now, and what is behind it too
            self._space.notify_all()

    def settle(self, claim: str) -> None:
        """Let go of a claim whose end the servers have answered."""
        with self._lock:
            self._held.pop(claim, None)

    def withdraw_queued(self) -> list[Held]:
        """Take back every claim that has not started."""
        with self._lock:
            waiting = list(self._queue)
            self._queue.clear()
            for held in waiting:
                held.finished.set()
            return waiting

    def running(self) -> list[Held]:
        """The claims that have a slot."""
        with self._lock:
            return list(self._running)

    def wait_for_room(self, timeout: float) -> int:
        """How many more claims to ask for; waits while there is no room.

        A pilot with one job a slot asks as soon as a slot is free. With batches it asks when half a batch
        has room, so that very short jobs do not cost a request each.
        """
        room_for = self._slots * self._batch
        worth_asking = 1 if self._batch == 1 else max(1, room_for // 2)
        with self._space:
            self._space.wait_for(lambda: self._closed or self._room() >= worth_asking, timeout)
            room = self._room()
            return room if room >= worth_asking else 0

    def free(self) -> dict[str, int]:
        """The resources to ask for work with."""
        if self._batch > 1:
            # Queued claims run one after another, so each may have all there is.
            return dict(self._resources)
        with self._lock:
            jobs = [held.job for held in [*self._running, *self._queue]]
        return {
            quantity: max(0, amount - sum(wants(job, quantity) for job in jobs))
            for quantity, amount in self._resources.items()
        }

    def idle_for(self) -> float:
        """Seconds since the last claim left its slot; none while there is work."""
        with self._lock:
            return 0.0 if self._running or self._queue else steady() - self._idle_since

    def close(self) -> None:
        """Let the slots end once the queue is empty."""
        with self._lock:
            self._closed = True
            self._work.notify_all()
            self._space.notify_all()

    def _room(self) -> int:
        return self._slots * self._batch - len(self._queue) - len(self._running)

    def _fits(self, held: Held) -> bool:
        if not self._running:
            return True  # the servers gave it; nothing more will ever be free
        return all(
            sum(wants(other.job, quantity) for other in self._running) + wants(held.job, quantity) <= amount
            for quantity, amount in self._resources.items()
        )
