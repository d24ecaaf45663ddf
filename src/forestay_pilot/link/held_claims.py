"""The claims that this pilot holds: from the response with the claim until its completion is settled.

Heartbeats name exactly these. A claim whose answer was lost is never in here, so it is not named, and the
servers free it.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from forestay_pilot.clock import steady

if TYPE_CHECKING:
    from forestay_pilot.containers.image_store import StagedImage
    from forestay_pilot.job_secrets.job_secrets import JobSecrets
    from forestay_pilot.process.devices import HostDevices
    from forestay_pilot.process.payload import ClaimedJob

QUANTITIES = ("cpus", "memory", "disk", "gpus")
UNNAMED = 2
"""The number of heartbeats without its name after which a claim is released: `forestay.domain.pilots.orphans.forgotten`."""

# A call of a function that takes less is short, and the next may be held ready; after one that takes more, none is.
_SHORT = 0.05
_LONG = 0.25
_EARLY = 1000  # cancels kept for claims that are still on their way here
_STUCK = 0.5  # what is held ready behind calls or jobs that take so long is given back, for others to run

# Jobs that take less than this are held ready too, as many for each slot as run in this time, and no more than these.
_AHEAD_SECONDS = 0.2
_MOST_AHEAD = 8


class SentRequest(NamedTuple):
    """When a request for work was sent: no claim in its response can be older."""

    sent: float
    heartbeats: int  # acknowledged by then


class ClaimInHand:
    """One claim in the pilot's hands."""

    def __init__(self, job: ClaimedJob, since: float) -> None:
        self.job = job
        self.since = since  # it was claimed then or later
        self.stop_why = ""  # set before the guard is called, so that no stop is lost between two steps
        self.running = False
        self.begun = False  # whether the guard was told to start it
        self.finished = threading.Event()
        self.log_path = ""
        self.has_folder = not job.warm  # calls of functions mostly need none
        self.given_back = False  # taken from behind a long call
        self.staged: list[dict[str, Any]] = []  # how its inputs came
        self.devices: list[str] = []  # names of those that its payload was given
        self.image: StagedImage | None = None  # what its command runs in
        self.secrets: JobSecrets | None = None  # what its pilot has read for it
        self.on_settled: Callable[[str], None] = lambda _result: None  # told what the servers made of its end
        self.stop_call: Callable[[ClaimInHand, str], None] | None = None  # how a call in a runner is stopped

    @property
    def claim(self) -> str:
        return self.job.claim


def wants(job: ClaimedJob, quantity: str) -> int:
    """How much of a resource a job requests; 0 when it does not say."""
    amount = job.resources.get(quantity)
    return math.ceil(amount) if isinstance(amount, (int, float)) else 0


class HeldClaims:
    """Claims that wait for a slot, run, or have ended but are not settled."""

    def __init__(
        self,
        *,
        slots: int,
        batch: int,
        resources: dict[str, int],
        calls: int = 1,
        devices: HostDevices | None = None,
    ) -> None:
        self._slots = slots
        self._batch = batch
        self._calls = max(calls, batch)
        self._short = False  # whether the last call was
        self._warm = False  # whether what was taken last is a call
        self._ahead = batch  # claims to hold for each slot, as short as the last ones were
        self._resources = resources
        self._devices = devices if devices else None
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # slots wait here
        self._space = threading.Condition(self._lock)  # the claim loop waits here
        self._held: dict[str, ClaimInHand] = {}
        self._cancelled_early: deque[str] = deque(maxlen=_EARLY)
        self._queue: deque[ClaimInHand] = deque()
        self._running: dict[ClaimInHand, float] = {}  # since when
        self._burst: set[ClaimInHand] = set()  # with a slot, but behind another one there
        self._closed = False
        self._idle_since = steady()
        self._heartbeats = 0
        self._acknowledged = 0
        self.taken_in = 0

    def request(self) -> SentRequest:
        """To be called before a request for work is sent."""
        with self._lock:
            return SentRequest(steady(), self._acknowledged)

    def add(self, jobs: list[ClaimedJob], request: SentRequest, *, queue: bool = True) -> list[ClaimInHand]:
        """Take in newly claimed jobs, to be run unless ``queue`` is false; one held already is passed over. Those that are not to be run.

        An answer that was overtaken by two heartbeats is too late: they did not name its claims, which the servers free for that.
        """
        with self._lock:
            queue = queue and self._heartbeats - request.heartbeats < UNNAMED
            added = []
            for job in jobs:
                if job.claim not in self._held:
                    held = ClaimInHand(job, request.sent)
                    if job.claim in self._cancelled_early:
                        held.stop_why = "cancelled"
                    self._held[job.claim] = held
                    if queue:
                        self._queue.append(held)
                    added.append(held)
            self.taken_in += len(added)
            if not queue:
                return added
            self._work.notify(len(added))
            return []

    def names(self) -> list[str]:
        """The claims to be named in the next heartbeat."""
        with self._lock:
            self._heartbeats += 1
            return list(self._held)

    def acknowledged(self) -> None:
        """Note that the servers have stored the last heartbeat with names."""
        with self._lock:
            self._acknowledged = self._heartbeats

    def get(self, claim: str) -> ClaimInHand | None:
        """One held claim."""
        with self._lock:
            return self._held.get(claim)

    def to_cancel(self, claim: str) -> ClaimInHand | None:
        """One held claim. An order may overtake the response with its claim: then it is kept until the claim arrives."""
        with self._lock:
            if claim not in self._held:
                self._cancelled_early.append(claim)
            return self._held.get(claim)

    def take(self) -> ClaimInHand | None:
        """The next claim for a free slot, once its resources are free; none when the pilot is ending."""
        with self._lock:
            while True:
                if self._queue and self._fits(self._queue[0]):
                    held = self._queue.popleft()
                    held.running = True
                    self._running[held] = steady()
                    if held.job.warm != self._warm:
                        self._warm = held.job.warm
                        self._ahead, self._short = self._batch, False
                    return held
                if self._closed and not self._queue:
                    return None
                self._work.wait()

    def take_like(self, first: ClaimInHand, key: Callable[[ClaimedJob], str]) -> list[ClaimInHand]:
        """Claims that may follow a call in the same runner at once: none unless calls are short just now."""
        with self._lock:
            if not self._short or first.job.external or first.job.outputs or first.job.inputs:
                return []
            most = min(self._ahead, len(self._queue) // self._slots)  # the other slots have their share
            wanted = key(first.job)
            taken: list[ClaimInHand] = []
            while len(taken) < most and self._queue:
                job = self._queue[0].job
                alike = job.warm and job.resources == first.job.resources and key(job) == wanted
                if not alike or job.outputs or job.inputs:
                    break
                taken.append(self._queue.popleft())
            self._burst.update(taken)
            return taken

    def begin(self, held: ClaimInHand) -> None:
        """A claim of a burst has its turn."""
        with self._lock:
            self._burst.discard(held)
            held.running = True
            self._running[held] = steady()

    def note_call(self, wall: float) -> None:
        """Learn from a call how many to hold ready."""
        with self._lock:
            self._short = wall <= _SHORT
            if self._short:
                self._ahead = min(self._calls, self._ahead * 2)
            elif wall > _LONG:
                self._ahead = self._batch

    def note_job(self, held: ClaimInHand, *, ok: bool) -> None:
        """Learn from a job that is over how many to hold ready: none behind one that failed, for the next ones here may as well."""
        with self._lock:
            took = steady() - self._running.get(held, 0.0)
            most = min(_MOST_AHEAD, int(_AHEAD_SECONDS / took)) if ok and took else 1
            self._ahead = max(self._batch, min(most, self._ahead * 2))

    def stuck(self) -> list[ClaimInHand]:
        """Take back claims that were held ready because others were short, and now wait behind something long, or for its resources."""
        with self._lock:
            late = steady() - _STUCK
            blocked = bool(self._queue) and not self._fits(self._queue[0])
            allowed = 0 if blocked else self._slots * self._batch - len(self._running)
            if len(self._queue) <= allowed or (len(self._running) < self._slots and not blocked):
                return []
            if any(since > late for since in self._running.values()):
                return []
            self._ahead, self._short = self._batch, False
            kept = [self._queue.popleft() for _ in range(max(0, allowed))]
            withdrawn = self._withdraw()
            self._queue.extend(kept)
            return withdrawn

    @property
    def ahead(self) -> int:
        """How many claims to hold for each slot now."""
        return self._ahead

    def release(self, *ended: ClaimInHand) -> None:
        """Give back the slot; the claims stay held until they are settled."""
        with self._lock:
            for held in ended:
                held.running = False
                self._burst.discard(held)
                self._running.pop(held, None)
                held.finished.set()
            self._idle_since = steady()
            if self._queue:
                self._work.notify_all()  # one that did not fit may fit now, and what is behind it too
            if self._room() >= self._worth_asking():
                self._space.notify_all()

    def settle(self, claim: str) -> None:
        """Let go of a claim whose end the servers have answered."""
        with self._lock:
            self._held.pop(claim, None)

    def withdraw_queued(self) -> list[ClaimInHand]:
        """Take back every claim that has not started."""
        with self._lock:
            return self._withdraw()

    def _withdraw(self) -> list[ClaimInHand]:
        waiting = list(self._queue)
        self._queue.clear()
        for held in waiting:
            held.finished.set()
        return waiting

    def running(self) -> list[ClaimInHand]:
        """The claims that have a slot."""
        with self._lock:
            return list(self._running)

    def room(self) -> int:
        """How many more claims may be asked for."""
        with self._lock:
            return self._room()

    def wait_for_room(self, timeout: float) -> bool:
        """Wait until it is worth a request to ask for more; whether it is.

        A pilot with one job a slot asks as soon as a slot is free. With batches it asks when half a batch
        has room, so that very short jobs do not cost a request each.
        """
        with self._space:
            self._space.wait_for(lambda: self._closed or self._room() >= self._worth_asking(), timeout)
            return self._room() >= self._worth_asking()

    def enough_ahead(self) -> bool:
        """Whether so much is held ready that it is not worth a request to ask for more."""
        with self._lock:
            return self._ahead > 1 and self._room() < self._worth_asking()

    def _worth_asking(self) -> int:
        return 1 if self._ahead == 1 else max(1, self._slots * self._ahead // 2)

    def free(self) -> dict[str, int]:
        """The resources to ask for work with."""
        if self._ahead > 1:
            # Queued claims run one after another, so each may have all there is.
            return self._less_devices(dict(self._resources), [])
        with self._lock:
            jobs = [held.job for held in [*self._running, *self._queue]]
            waiting = [held.job for held in [*self._running, *self._queue] if not held.devices]
        free = {
            quantity: max(0, amount - sum(wants(job, quantity) for job in jobs))
            for quantity, amount in self._resources.items()
        }
        return self._less_devices(free, waiting)

    def _less_devices(self, free: dict[str, int], waiting: list[ClaimedJob]) -> dict[str, int]:
        """The free resources, with no more devices than are unused, minus those that jobs here wait for."""
        if self._devices is None:
            return free
        left = max(0, self._devices.free() - sum(wants(job, "gpus") for job in waiting))
        return {**free, "gpus": min(free["gpus"], left)}

    def idle_for(self) -> float:
        """Seconds since the last claim left its slot; none while there is work."""
        with self._lock:
            return 0.0 if self._running or self._queue or self._burst else steady() - self._idle_since

    def close(self) -> None:
        """Let the slots end once the queue is empty."""
        with self._lock:
            self._closed = True
            self._work.notify_all()
            self._space.notify_all()

    def _room(self) -> int:
        return self._slots * self._ahead - len(self._queue) - len(self._running) - len(self._burst)

    def _fits(self, held: ClaimInHand) -> bool:
        if not self._running:
            return True  # the servers gave it; nothing more will ever be free
        return all(
            sum(wants(other.job, quantity) for other in self._running) + wants(held.job, quantity) <= amount
            for quantity, amount in self._resources.items()
        )
