"""One run of a workload on a simulated site, driven by the code that servers, pilots and site agents run.

What is real: the choice of a job for a pilot (`forestay.domain.scheduling.matching`), what a cache keeps (`forestay_pilot.cache.cache_policy`), how many pilots
are sent (`forestay.domain.sites.fleet`). What is simulated: time, storage, the batch system's queue, and the pilots themselves.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from bench.pilots.arms import Arm, Caching, Submission
from bench.pilots.caches import Caches
from bench.pilots.desk import Desk, file_name
from bench.pilots.draws import NEWS, ORDER, QUEUE, READ, WRITE, Draws, uniform
from bench.pilots.events import Events
from bench.pilots.workloads import Workload
from forestay.domain.jobs.resources import Resources
from forestay.domain.sites.fleet import PilotCount, PilotSize, SubmissionPace, TaskGroup, Thresholds, plan


@dataclass(frozen=True, slots=True)
class Costs:
    """What messages and batch systems cost, in seconds."""

    claim: float = 0.02
    """From a question that can be answered to the start of the job."""
    release: float = 0.05
    """From the end of a job to the moment its readers wait."""
    queue: float = 300.0
    """Mean time that a batch job waits before it runs."""
    news: float = 300.0
    """Mean time until the end of a batch job is known, where nobody but the batch system tells."""
    look: float = 60.0
    """Time between two looks at how many pilots are needed."""


@dataclass(slots=True)
class Outcome:
    """What one run came to."""

    makespan: float = 0.0
    hits: int = 0
    """Reads of files that jobs wrote, from the holder's own cache."""
    peer_reads: int = 0
    reads: int = 0
    """Reads of files that jobs wrote, each counted once for every time that a job ran."""
    stage_in: float = 0.0
    """Seconds that jobs with inputs spent bringing them, all together."""
    stagings: int = 0
    """How many times jobs with inputs began."""
    runs: int = 0
    storage_reads: int = 0
    storage_writes: int = 0
    evicted: int = 0
    events: int = 0
    pilots: int = 0
    running: list[tuple[float, int]] = field(default_factory=list)
    """How many jobs run from when on."""

    @property
    def hit_ratio(self) -> float:
        return self.hits / self.reads if self.reads else 0.0

    @property
    def stage_in_mean(self) -> float:
        return self.stage_in / self.stagings if self.stagings else 0.0


class Simulation:
    """A workload, its luck, and an arm, on so many hosts."""

    def __init__(
        self,
        workload: Workload,
        draws: Draws,
        arm: Arm,
        *,
        hosts: int = 30,
        slots: int = 4,
        submission: Submission = Submission.RUNNING,
        costs: Costs | None = None,
        policy: str = "lru",
        record: bool = False,
        window: int = 1_000_000,
    ) -> None:
        self.workload, self.draws, self.arm, self.submission = workload, draws, arm, submission
        self.costs = costs or Costs()
        self.events = Events()
        self.outcome = Outcome()
        self.many = hosts * slots
        self.caches = Caches(
            Caching.NONE if submission is Submission.DIRECT else arm.caching, hosts, slots, policy=policy
        )
        self.desk = Desk(workload, self.caches, arm)
        self.window = window
        self._record = record
        self._hit = workload.size / draws.storage.local
        self._peer = workload.size / draws.storage.peer
        self._made = 0
        """How many jobs of the first step were made so far."""
        self._came = bytearray(workload.jobs)
        """How many of its inputs are there, by job."""
        self._step_left = [len(step) for step in workload.steps]
        self._tries: dict[tuple[int, int], int] = {}
        self._to_end = workload.jobs
        self._asked: dict[int, int] = {}
        self._resting: list[int] = []
        self._queued: deque[int] = deque()
        self._free: list[int] = list(range(self.many))
        self._inactive = 0
        self._running = 0
        self._active = 0

    def run(self) -> Outcome:
        if self.submission is Submission.RUNNING:
            for pilot in self._shuffled():
                self._join(pilot, 0)
        self._make()
        if self.submission is Submission.ON_DEMAND:
            self._free = self._shuffled()
            self._look(0, 0)
        self.events.run(lambda: self._to_end == 0)
        if self._to_end:
            raise RuntimeError(f"{self._to_end} jobs of {self.workload.name} never ended in arm {self.arm.name}")
        self.outcome.makespan = self.events.now
        self.outcome.events = self.events.count
        self.outcome.evicted = self.caches.evicted
        return self.outcome

    def _make(self) -> None:
        """Make jobs of the first step, no more than so many ahead of the pilots, as a flow does."""
        first = len(self.workload.steps[0])
        while self._made < first and self.desk.waiting < self.window:
            self._made += 1
            self._ready(self._made - 1, 0)

    def _shuffled(self) -> list[int]:
        return sorted(range(self.many), key=lambda pilot: uniform(self.draws.seed, pilot, ORDER, 0))

    # Pilots ask, jobs wait.

    def _join(self, pilot: int, _: int) -> None:
        self.outcome.pilots += 1
        self._active += 1
        self.desk.join(pilot)
        if self.arm.poll:
            self.events.after(uniform(self.draws.seed, pilot, ORDER, 1) * self.arm.poll, self._ask, pilot)
        else:
            self._ask(pilot, 0)

    def _ask(self, pilot: int, _: int) -> None:
        """A pilot that has nothing to do asks for a job."""
        job = self.desk.ask(pilot, self.events.now)
        if job is not None:
            self.events.after(self.costs.claim, self._start, job, pilot)
        elif not self.arm.poll:
            return
        elif self.desk.waiting:
            self._ask_again(pilot, 0.5)
        else:  # what it would ask for nothing need not be played
            self._resting.append(pilot)

    def _ask_again(self, pilot: int, least: float) -> None:
        """Pilots do not ask in step with each other."""
        asked = self._asked[pilot] = self._asked.get(pilot, 1) + 1
        self.events.after(self.arm.poll * (least + uniform(self.draws.seed, pilot, ORDER, asked)), self._ask, pilot)

    def _ready(self, job: int, _: int) -> None:
        if self.submission is Submission.DIRECT:
            again = self._tries.get((job, QUEUE), 0)
            self._tries[job, QUEUE] = again + 1
            self.events.after(self.draws.exponential(job, QUEUE, again, self.costs.queue), self._queue, job)
            return
        self.desk.wait(job, self.events.now)
        if not self.arm.poll:
            self._wake(job, 1)
            return
        for pilot in self._resting:
            self._ask_again(pilot, 0.0)
        self._resting.clear()

    def _wake(self, job: int, first: int) -> None:
        """A job waits and pilots may be idle: the one that should have it looks for work."""
        for _ in range(3):  # who is woken may find something better to do
            pilot = self.desk.wake(job, self.events.now)
            if pilot is None:
                return
            self._ask(pilot, 0)
        if first:  # it is held back for someone: look again when that has lasted long enough
            self.events.after(self.desk.bound + 0.001, self._wake, job, 0)

    def _queue(self, job: int, _: int) -> None:
        if self._free:
            self._start(job, self._free.pop())
        else:
            self._queued.append(job)

    def _look(self, _: int, __: int) -> None:
        """The site agent looks how many pilots are needed, and sends them."""
        waiting = self.desk.waiting
        need = Resources(cpus=1, memory=1, disk=0, gpus=0, wall=0)
        fleet_plan = plan(
            thresholds=Thresholds(max_pilots=self.many),
            sizes=[PilotSize("one", Resources(cpus=1, memory=1, disk=0, gpus=0, wall=0))],
            groups=[TaskGroup("all", waiting, need)] if waiting else [],
            pilots={"one": PilotCount(self._inactive, self.desk.idle, self._active - self.desk.idle)},
            pace=SubmissionPace(per_minute=self.many, at_once=self.many),
        )
        for _number in range(fleet_plan.total):
            pilot = self._free.pop()
            self._inactive += 1
            self.events.after(self.draws.exponential(pilot, QUEUE, 0, self.costs.queue), self._begin, pilot)
        self.events.after(self.costs.look, self._look)

    def _begin(self, pilot: int, _: int) -> None:
        self._inactive -= 1
        self._join(pilot, 0)

    # A job runs.

    def _start(self, job: int, pilot: int) -> None:
        self._make()
        self.outcome.runs += 1
        if self._record:
            self._running += 1
            self.outcome.running.append((self.events.now, self._running))
        reads = self.workload.reads(job)
        if not reads:
            self._staged(job, pilot)
            return
        caches, outcome, own = self.caches, self.outcome, self.caches.holder(pilot)
        seconds, well, each = 0.0, True, 0.0
        for place, number in enumerate(reads):
            file = file_name(number)
            made = number < self.workload.jobs
            outcome.reads += made
            if caches.use(own, file):
                outcome.hits += made
                each = self._hit
            elif caches.caching is Caching.SITE and file in caches.holders:
                outcome.peer_reads += 1
                each = self._peer
            else:
                each, well = self._transfer(job, READ + place)
                outcome.storage_reads += 1
            seconds = max(seconds, each) if self.arm.parallel else seconds + each
            if not well:
                break
        outcome.stage_in += seconds
        outcome.stagings += 1
        self.events.after(seconds, self._staged if well else self._failed, job, pilot)

    def _transfer(self, job: int, what: int) -> tuple[float, bool]:
        """One access to the storage element: until it does well if transfers are tried again, else once."""
        if self.arm.restage:
            return self.draws.until_well(job, what, self.workload.size)[0], True
        again = self._tries.get((job, what), 0)
        self._tries[job, what] = again + 1
        return self.draws.access(job, what, again, self.workload.size)

    def _staged(self, job: int, pilot: int) -> None:
        own = self.caches.holder(pilot)
        for number in self.workload.reads(job):
            self._keep(own, number)
        computing = self.draws.compute(job, self.workload.computing.get(self.workload.step(job)))
        writing, well = self._transfer(job, WRITE)
        self.outcome.storage_writes += 1
        if not self.arm.write_behind:
            self.events.after(computing + writing, self._ended if well else self._failed, job, pilot)
        else:
            self.events.after(computing, self._computed, job, pilot)
            self.events.after(computing + writing, self._written, job, pilot)

    def _keep(self, holder: int, number: int) -> None:
        self.desk.kept(holder, file_name(number), self.workload.size)

    def _ended(self, job: int, pilot: int) -> None:
        self._to_end -= 1
        self._done(job, pilot)

    def _computed(self, job: int, pilot: int) -> None:
        self._done(job, pilot)

    def _written(self, job: int, _: int) -> None:
        self._to_end -= 1

    def _done(self, job: int, pilot: int) -> None:
        self._keep(self.caches.holder(pilot), job)
        self.desk.over(job, self.events.now)
        if self.submission is Submission.DIRECT:
            self.events.after(self.draws.exponential(job, NEWS, 0, self.costs.news), self._known, job)
        else:
            self._known(job, pilot)
        self._next(pilot)

    def _failed(self, job: int, pilot: int) -> None:
        self.desk.over(job, self.events.now)
        again = self._tries.get((job, NEWS), 0)
        self._tries[job, NEWS] = again + 1
        news = self.costs.news if self.submission is Submission.DIRECT else 0.0
        delay = self.arm.resubmit + self.draws.exponential(job, NEWS, again + 1, news)
        self.events.after(delay, self._ready, job)
        self._next(pilot)

    def _known(self, job: int, _: int) -> None:
        """The end of a job is known: what reads its file may wait for a pilot."""
        if self.arm.barrier:
            step = self.workload.step(job)
            self._step_left[step] -= 1
            if not self._step_left[step] and step + 1 < len(self.workload.steps):
                for other in self.workload.steps[step + 1]:
                    self.events.after(self.costs.release, self._ready, other)
            return
        for other in self.workload.readers(job):
            self._came[other] += 1
            if self._came[other] == sum(file < self.workload.jobs for file in self.workload.reads(other)):
                self.events.after(self.costs.release, self._ready, other)

    def _next(self, pilot: int) -> None:
        if self._record:
            self._running -= 1
            self.outcome.running.append((self.events.now, self._running))
        if self.submission is not Submission.DIRECT:
            self.desk.freed(pilot)
            self._ask(pilot, 0)
        elif self._queued:
            self._start(self._queued.popleft(), pilot)
        else:
            self._free.append(pilot)
