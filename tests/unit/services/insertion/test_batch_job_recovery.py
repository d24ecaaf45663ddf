"""The service that looks after users' own batch jobs, with a fake batch system, spool and exception service (each named one); the real ones are in tests/live."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from forestay.adapters.system.clock import SystemClock
from forestay.domain.sites.batch import BatchId, BatchJob, BatchOutcome, BatchState
from forestay.domain.sites.cancel_call import CancelCall
from forestay.domain.sites.watched_job import (
    ArrayReading,
    JobDetails,
    JobIdentity,
    JobKind,
    PayloadRecord,
    Question,
    WatchedJob,
    WatchedJobAction,
    evidence,
    fate,
    needed,
)
from forestay.ports.errors import Permanent, Transient
from forestay.ports.exceptions.exception_service import EngineNews, EventReply, OrderedAction
from forestay.ports.sites.batch_steering import never
from forestay.services.insertion.batch_job_recovery import ONLY_LOOKS, BatchJobRecovery

MIB = 1 << 20
OOM = BatchOutcome(BatchState.ENDED, "OUT_OF_MEMORY", exit_code=0, signal=9, nodes=("n1",), started=100, ended=130)
RUNS = BatchOutcome(BatchState.RUNNING, "RUNNING")
WAITS = BatchOutcome(BatchState.WAITING, "PENDING")
DONE = BatchOutcome(BatchState.ENDED, "COMPLETED", exit_code=0)
CANCELLED = BatchOutcome(BatchState.ENDED, "CANCELLED")
SILENT = BatchOutcome(BatchState.UNKNOWN)


@dataclass
class FakeSpool:
    words: dict[str, WatchedJob] = field(default_factory=dict)
    promised: float = 0
    since: float | None = 10.0
    """Since when somebody vouches."""
    records: dict[int, PayloadRecord] = field(default_factory=dict)
    foreign: list[WatchedJob] = field(default_factory=list)
    ended: set[BatchId] = field(default_factory=set)
    """Elements of arrays that are settled."""
    exit_code_written: bool = False
    """The job has written its exit code down for Nextflow."""
    asks: dict[BatchId, Question] = field(default_factory=dict)
    waiting: bool = True
    """Jobs that ask still wait for the answer."""
    calls: list[CancelCall] = field(default_factory=list)

    def jobs(self) -> Sequence[WatchedJob]:
        return [*self.foreign, *self.words.values()]

    def discard(self, job: WatchedJob) -> None:
        self.foreign.remove(job)

    def settle(self, job: WatchedJob) -> None:
        if job.id != job.base:
            self.ended.add(job.id)
        self.words.pop(job.id, None)
        self.asks.pop(job.id, None)

    def settled(self, array: WatchedJob) -> frozenset[BatchId]:
        return frozenset(self.ended)

    def questions(self, jobs: Mapping[BatchId, int]) -> Mapping[BatchId, Question]:
        return {name: question for name, question in self.asks.items() if name.partition("_")[0] in jobs}

    def take(self, job: WatchedJob, start: int) -> bool:
        return self.waiting

    def forget_questions(self, job: WatchedJob) -> None:
        self.asks.pop(job.id, None)

    def cancel_calls(self) -> Sequence[CancelCall]:
        return self.calls

    def forget_cancel_calls(self, before: float) -> None:
        self.calls = [call for call in self.calls if call.at >= before]

    def vouch(self, seconds: float, *, hide: float = 0) -> None:
        self.promised = seconds
        self.since = (self.since or 10.0) if seconds else None

    def vouched(self) -> float | None:
        return self.since

    def record(self, job: WatchedJob, restarts: int) -> PayloadRecord | None:
        return self.records.get(restarts)

    def tail(self, path: str, owner: int) -> str:
        return f"the end of {path}"

    def element_logs(self, job: WatchedJob) -> Sequence[str]:
        return ("/task.err",)

    def told_nextflow(self, job: WatchedJob) -> bool:
        return self.exit_code_written


@dataclass
class FakeBatch:
    """One Slurm with one job; counts what is done to it."""

    now: BatchOutcome = RUNS
    known: bool = True
    away: bool = False
    done: list[tuple[str, object]] = field(default_factory=list)
    marks: set[str] = field(default_factory=set)
    avoided: tuple[str, ...] = ()
    kind: JobKind = JobKind.SINGLE
    requeue: bool = True
    name: str = "align:reads"
    waits_for: tuple[BatchId, ...] = ()
    answers: dict[BatchId, tuple[BatchId, ...]] = field(default_factory=dict)
    """Jobs whose failure others wait for, by those."""
    ended_starts: list[int | None] = field(default_factory=list)
    """What was said of the start that failed when a job was held or run again."""
    on_requeue: Callable[[], None] = lambda: None
    """What happens while a job is queued again."""

    async def find(self, names: Collection[str]) -> Mapping[str, tuple[BatchJob, ...]]:
        raise NotImplementedError

    async def outcome(self, jobs: Collection[BatchId]) -> Mapping[BatchId, BatchOutcome]:
        return dict.fromkeys(jobs, SILENT if self.away else self.now)

    async def elements(self, arrays: Collection[BatchId]) -> Mapping[BatchId, ArrayReading]:
        raise NotImplementedError

    async def is_over(self, array: BatchId) -> bool:
        raise NotImplementedError

    async def release_dependents(self, array: BatchId, owner: int) -> None:
        self.done.append(("release dependents", (array, owner)))

    async def identities(self, jobs: Collection[BatchId]) -> Mapping[BatchId, JobIdentity]:
        return {job: JobIdentity(self.kind, 1000, self.answers.get(job, ())) for job in jobs}

    async def details(self, jobs: Collection[BatchId]) -> Mapping[BatchId, JobDetails]:
        if not self.known:
            return {}
        needs = {"memory": 100 * MIB, "wall": 600, "cpus": 1}
        logs = ("/x.err",)
        return {
            job: JobDetails(
                job,
                self.name,
                "ann",
                False,
                "",
                needs,
                logs,
                requeue=self.requeue,
                waits_in_vain_for=self.waits_for,
                running=self.now.state is BatchState.RUNNING,
            )
            for job in jobs
        }

    async def peak_memory(self, job: BatchId) -> int | None:
        return 99 * MIB

    async def allow_again(self, jobs: Collection[BatchId]) -> None:
        self.requeue = True
        self.done += [("allow", job) for job in jobs]

    async def hold(
        self, job: BatchId, *, failed_start: int | None = None, cancelled: Callable[[], bool] = never
    ) -> None:
        await self._obey(job, cancelled)
        self.ended_starts.append(failed_start)
        self.now = WAITS
        self.done.append(("hold", job))

    async def again(
        self,
        job: BatchId,
        *,
        needs: Mapping[str, int],
        wait: int,
        mark: str,
        avoid: Collection[str] = (),
        failed_start: int | None = None,
        cancelled: Callable[[], bool] = never,
    ) -> None:
        if self.away:
            raise Transient("no answer")
        if mark in self.marks:
            return
        await self._obey(job, cancelled)
        self.marks.add(mark)
        self.ended_starts.append(failed_start)
        self.now = replace(WAITS, restarts=self.now.restarts + 1)
        self.done.append(("again", (dict(needs), wait)))
        self.avoided = tuple(avoid)

    async def _obey(self, job: BatchId, cancelled: Callable[[], bool]) -> None:
        """It is queued again and held; then it is asked who cancelled it."""
        self.on_requeue()
        if cancelled():
            self.now = CANCELLED
            self.done.append(("cancel", job))
            raise Permanent("somebody cancelled the job")

    async def cancel(self, job: BatchId) -> None:
        self.done.append(("cancel", job))


@dataclass
class FakeService:
    """Says what it is told to say."""

    incident: str | None = "i-1"
    orders: list[OrderedAction] = field(default_factory=list)
    closed: dict[str, str] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[str, tuple[str, str]] = field(default_factory=dict)
    away: bool = False

    async def report(self, events: Sequence[Mapping[str, Any]]) -> Sequence[EventReply]:
        self.events += [dict(event) for event in events]
        return [EventReply("c-1", self.incident, "") for _ in events]

    async def news(self, incidents: Collection[str], *, wait: float) -> EngineNews:
        if self.away:
            raise Transient("nobody answers")
        return EngineNews([order for order in self.orders if order.id not in self.answers], self.closed)

    async def answer(self, order: str, outcome: str, detail: str = "") -> None:
        self.answers[order] = (outcome, detail)


def job(name: str = "7", run: str = "") -> WatchedJob:
    return WatchedJob(name, "", 1000, "/home/ann", run, 50)


def order(verb: str = "resubmit", **more: Any) -> OrderedAction:
    made = OrderedAction(1, "o-1", "slurm-7", verb, "align-reads:7", 0, {}, "i-1", "")
    return made._replace(**more)


@dataclass
class HandClock(SystemClock):
    """It stands still at a time shortly after the job's end."""

    at: float = 140.0

    def now(self) -> int:
        return int(self.at * 1000)


@dataclass
class Room:
    batch: FakeBatch = field(default_factory=FakeBatch)
    service: FakeService = field(default_factory=FakeService)
    spool: FakeSpool = field(default_factory=lambda: FakeSpool({"7": job()}))
    clock: HandClock = field(default_factory=lambda: HandClock())

    def recovery(self, *, acting: bool = True, hold: bool = False, override: bool = False) -> BatchJobRecovery:
        return BatchJobRecovery(
            self.spool,
            self.batch,
            self.batch,
            self.service,
            self.clock,
            acting=acting,
            hold=hold,
            override_no_requeue=override,
        )


async def test_a_job_that_goes_on_is_left_alone_and_one_that_is_done_is_settled() -> None:
    room = Room()
    recovery = room.recovery()
    await recovery.look()
    await recovery.look()
    assert not room.batch.done
    room.batch.now = DONE
    await recovery.look()
    assert not room.spool.words
    assert not room.service.events


async def test_a_failure_is_reported_once_with_its_evidence_and_recovered_under_its_id() -> None:
    room = Room(FakeBatch(OOM))
    room.service.orders = [order(needs={"memory": {"factor": 2.0}}, wait=30)]
    recovery = room.recovery()
    await recovery.look()
    (event,) = room.service.events
    assert (event["kind"], event["run"], event["task"], event["owner"]) == (
        "task-aborted",
        "slurm-7",
        "align-reads:7",
        "ann",
    )
    assert event["evidence"] == {
        "scheduler": "slurm",
        "scheduler_state": "OUT_OF_MEMORY",
        "exit_code": 0,
        "signal": 9,
        "node": "n1",
        "log_tail": "the end of /x.err",
        "peak_memory": 99 * MIB,
        "memory_limit": 100 * MIB,
        "time_limit": 600,
        "wall_time": 30.0,
    }
    assert room.batch.done == [("again", ({"memory": 200 * MIB}, 30))]
    assert room.service.answers == {"o-1": ("done", "")}
    assert room.spool.words
    room.batch.now = DONE
    await recovery.look()
    assert not room.spool.words


async def test_the_second_failure_of_a_job_is_another_event() -> None:
    room = Room(FakeBatch(OOM))
    room.service.orders = [order()]
    recovery = room.recovery()
    await recovery.look()
    room.batch.now = replace(OOM, restarts=1, ended=200)
    await recovery.look()
    assert [event["attempt"] for event in room.service.events] == [1, 2]
    assert len({event["id"] for event in room.service.events}) == 2


async def test_no_rule_and_nobody_asked_leaves_it_to_the_user() -> None:
    room = Room(FakeBatch(OOM), FakeService(incident=None))
    await room.recovery().look()
    assert not room.spool.words
    assert not room.batch.done


async def test_who_looks_on_touches_nothing() -> None:
    room = Room(FakeBatch(RUNS))
    room.service.orders = [order()]
    recovery = room.recovery(acting=False, hold=True)
    await recovery.look()
    room.batch.now = OOM
    await recovery.look()
    assert not room.batch.done
    await recovery.vouch()
    assert room.spool.promised == 0
    assert room.service.events[0]["otherwise"] == "go-on"
    assert room.service.answers == {"o-1": ("refused", ONLY_LOOKS)}


async def test_silence_is_no_end() -> None:
    room = Room(FakeBatch(away=True))
    await room.recovery().look()
    assert room.spool.words
    assert not room.service.events


async def test_an_order_waits_for_a_batch_system_that_is_away_and_is_carried_out_once() -> None:
    room = Room(FakeBatch(OOM))
    recovery = room.recovery()
    await recovery.look()
    room.service.orders = [order()]
    room.batch.away = True
    await recovery.look()
    assert not room.service.answers
    room.batch.away = False
    room.batch.now = OOM
    await recovery.look()
    # Killed before it answered: whoever comes next is told the order again.
    del room.service.answers["o-1"]
    room.batch.now = replace(OOM, restarts=1, ended=300)
    await room.recovery().look()
    assert [what for what, _ in room.batch.done].count("again") == 1
    assert room.service.answers == {"o-1": ("done", "")}


async def test_what_slurm_has_forgotten_cannot_be_recovered() -> None:
    room = Room(FakeBatch(OOM, known=False))
    room.service.orders = [order(instance="job:7")]
    await room.recovery().look()
    outcome, detail = room.service.answers["o-1"]
    assert outcome == "refused"
    assert "no longer has" in detail


async def test_other_orders() -> None:
    for verb, done, outcome in (
        ("suspend", [("hold", "7")], "done"),
        ("continue", [("again", ({}, 0))], "done"),
        ("force-fail", [], "done"),
        ("force-complete", [], "refused"),
    ):
        room = Room(FakeBatch(OOM))
        room.service.orders = [order(verb)]
        await room.recovery().look()
        assert room.batch.done == done, verb
        assert room.service.answers["o-1"][0] == outcome, verb
        assert bool(room.spool.words) is (verb != "force-fail"), verb


async def test_an_incident_that_is_closed_without_an_order_is_the_users() -> None:
    room = Room(FakeBatch(OOM))
    recovery = room.recovery(hold=True)
    await recovery.look()
    assert room.spool.words
    assert room.service.events[0]["otherwise"] == "hold"
    room.service.closed = {"i-1": "somebody gave it up"}
    await recovery.look()
    assert not room.spool.words
    assert room.service.events[-1]["kind"] == "run-failed"


@pytest.mark.finding("F-A1")
@pytest.mark.parametrize("verb", ["resubmit", "suspend", "continue", "force-fail"])
async def test_a_heterogeneous_job_is_reported_and_never_acted_on(verb: str) -> None:
    words = "heterogeneous"
    room = Room(FakeBatch(RUNS, kind=JobKind.HETEROGENEOUS))
    room.service.orders = [order(verb)]
    recovery = room.recovery(hold=True)
    await recovery.look()
    room.batch.now = OOM
    await recovery.look()
    assert not room.batch.done
    assert words in room.service.events[0]["evidence"]["not_recovered"]
    assert room.service.events[0]["otherwise"] == "go-on"
    assert words in room.service.answers["o-1"][1]
    assert not room.spool.words


@dataclass
class FakeArray(FakeBatch):
    """One array 7; every element that is not listed here ended well. Counts what is asked and done."""

    kind: JobKind = JobKind.ARRAY
    states: dict[BatchId, BatchOutcome] = field(default_factory=dict)
    asked: list[BatchId] = field(default_factory=list)
    over: bool = True

    async def outcome(self, jobs: Collection[BatchId]) -> Mapping[BatchId, BatchOutcome]:
        self.asked += jobs
        return {job: self.states.get(job, DONE) for job in jobs}

    async def elements(self, arrays: Collection[BatchId]) -> Mapping[BatchId, ArrayReading]:
        if self.away:
            raise Transient("no answer")
        failed = {job for job, state in self.states.items() if fate(state) is WatchedJobAction.FAILED}
        restarted = {job for job, state in self.states.items() if state.state is BatchState.WAITING and state.restarts}
        active = any(fate(state) is WatchedJobAction.GOING for state in self.states.values())
        stuck = {job for job, state in self.states.items() if state.reason}
        return {
            array: ArrayReading(frozenset(failed), frozenset(restarted), active, array in stuck) for array in arrays
        }

    async def is_over(self, array: BatchId) -> bool:
        return self.over

    async def again(
        self,
        job: BatchId,
        *,
        needs: Mapping[str, int],
        wait: int,
        mark: str,
        avoid: Collection[str] = (),
        failed_start: int | None = None,
        cancelled: Callable[[], bool] = never,
    ) -> None:
        await self._obey(job, cancelled)
        self.states[job] = replace(WAITS, restarts=1)
        self.done.append(("again", job))


def element(k: int, **more: Any) -> OrderedAction:
    made = order(id=f"o-{k}", key=f"slurm-7_{k}", instance=f"align-reads:7_{k}", incident=f"i-{k}")
    return made._replace(**more)


@dataclass
class ManyIncidents(FakeService):
    """One incident for each failure that it is told of."""

    async def report(self, events: Sequence[Mapping[str, Any]]) -> Sequence[EventReply]:
        self.events += [dict(event) for event in events]
        return [EventReply("c-1", f"i-{str(event.get('task')).rpartition('_')[2]}", "") for event in events]

    async def news(self, incidents: Collection[str], *, wait: float) -> EngineNews:
        every = await super().news(incidents, wait=wait)
        return EngineNews([order for order in every.orders if order.incident in incidents], {})


@pytest.mark.finding("F-A1")
async def test_each_element_of_an_array_is_reported_and_recovered_by_itself() -> None:
    """One is run again, one is given up; the elements that are well are neither asked for nor touched."""
    batch = FakeArray(states={"7_3": OOM, "7_5": OOM, "7_8": RUNS})
    room = Room(batch, ManyIncidents(orders=[element(3), element(5, verb="force-fail")]))
    recovery = room.recovery()
    await recovery.look()
    assert [(event["run"], event["task"]) for event in room.service.events[:2]] == [
        ("slurm-7_3", "align-reads:7_3"),
        ("slurm-7_5", "align-reads:7_5"),
    ]
    assert batch.done == [("again", "7_3")]
    assert {name: answer for name, (answer, _) in room.service.answers.items()} == {"o-3": "done", "o-5": "done"}
    assert room.spool.ended == {"7_5"}
    assert set(batch.asked) == {"7_3", "7_5"}
    batch.asked.clear()
    await recovery.look()
    assert batch.asked == ["7_3"]
    assert "7" in room.spool.words
    # Its next failure is another one; then all is over.
    batch.states = {"7_3": replace(OOM, restarts=1), "7_5": OOM}
    room.service.orders = [element(3, id="o-9", verb="force-fail")]
    await recovery.look()
    assert [event["attempt"] for event in room.service.events if event["kind"] == "task-aborted"] == [1, 1, 2]
    await recovery.look()
    assert not room.spool.words
    assert batch.done == [("again", "7_3"), ("release dependents", ("7", 1000))]


@pytest.mark.finding("F-A1")
async def test_an_array_is_settled_only_when_slurm_says_of_every_element_that_it_ended() -> None:
    batch = FakeArray(over=False)
    room = Room(batch)
    recovery = room.recovery()
    await recovery.look()
    assert room.spool.words
    batch.over, batch.away = True, True
    await recovery.look()
    assert room.spool.words
    batch.away = False
    await recovery.look()
    assert not room.spool.words
    assert not room.service.events
    assert not batch.asked


@pytest.mark.finding("F-A1")
async def test_no_order_reaches_an_array_as_a_whole() -> None:
    batch = FakeArray(states={"7_3": OOM})
    room = Room(batch, ManyIncidents(orders=[element(3, instance="align-reads:7")]))
    await room.recovery().look()
    assert not batch.done
    assert room.service.answers["o-3"][0] == "refused"
    assert room.spool.words


@pytest.mark.finding("F-A1")
async def test_of_many_elements_that_fail_at_once_some_are_taken_up_at_a_time_and_none_is_left_out() -> None:
    batch = FakeArray(states={f"7_{k}": OOM for k in range(300)})
    orders = [element(k, verb="force-fail") for k in range(300)]
    room = Room(batch, ManyIncidents(orders=orders))
    recovery = room.recovery()
    for _ in range(13):
        batch.asked.clear()
        await recovery.look()
        assert len(set(batch.asked)) <= 200
    assert not room.spool.words
    assert len({event["task"] for event in room.service.events if event["kind"] == "task-aborted"}) == 300


@pytest.mark.finding("F-A2")
@pytest.mark.parametrize("verb", ["resubmit", "suspend"])
async def test_a_job_whose_failure_another_job_waited_for_is_not_run_again(verb: str) -> None:
    """Also if the other one has run and was settled by then."""
    room = Room(FakeBatch(RUNS, answers={"9": ("7",)}), spool=FakeSpool({"7": job(), "9": job("9")}))
    room.service.orders = [order(verb)]
    recovery = room.recovery()
    await recovery.look()
    del room.spool.words["9"]
    room.batch.now = OOM
    await recovery.look()
    assert not room.batch.done
    assert "job 9 runs because job 7 failed" in room.service.answers["o-1"][1]
    assert not room.spool.words


@pytest.mark.finding("F-A17")
@pytest.mark.parametrize("kind", [JobKind.SINGLE, JobKind.ARRAY])
async def test_a_job_that_will_never_start_leaves_the_spool_when_nobody_decides_on_what_it_waits_for(
    kind: JobKind,
) -> None:
    never = replace(WAITS, reason="DependencyNeverSatisfied")
    batch = FakeArray(never, states={"7": never}, kind=kind, waits_for=("5",))
    room = Room(batch, spool=FakeSpool({"5": job("5"), "7": job()}))
    batch.states["5"] = RUNS
    recovery = room.recovery()
    await recovery.look()
    assert set(room.spool.words) == {"5", "7"}
    room.clock.at += 1000
    await recovery.look()
    assert set(room.spool.words) == {"5", "7"}, "the job that it waits for may still be run again"
    del room.spool.words["5"]
    await recovery.look()
    assert not room.spool.words
    assert not batch.done


@pytest.mark.finding("F-A17")
async def test_a_job_that_only_lately_cannot_start_stays() -> None:
    """What it waits for may be run again in a moment."""
    never = replace(WAITS, reason="DependencyNeverSatisfied")
    room = Room(FakeBatch(never, waits_for=("5",)))
    recovery = room.recovery()
    await recovery.look()
    room.clock.at += 100
    await recovery.look()
    room.batch.now = WAITS
    await recovery.look()
    room.batch.now = never
    room.clock.at += 100
    await recovery.look()
    assert room.spool.words


@pytest.mark.finding("F-A4")
async def test_it_vouches_only_while_the_service_answers() -> None:
    room = Room()
    recovery = room.recovery()
    await recovery.vouch()
    assert room.spool.promised >= 30
    room.service.away = True
    await recovery.vouch()
    assert room.spool.promised == 0
    assert room.spool.since is None


@pytest.mark.finding("F-A4")
async def test_a_job_that_is_not_decided_on_in_time_is_given_up_and_a_late_order_refused() -> None:
    room = Room(FakeBatch(OOM))
    recovery = room.recovery()
    await recovery.look()
    assert room.spool.words
    room.clock.at = 251.0
    await recovery.look()
    assert not room.spool.words
    assert room.service.events[-1]["kind"] == "run-failed"
    room.spool.words = {"7": job()}
    room.service.orders = [order()]
    await room.recovery().look()
    assert not room.batch.done
    assert "within 120 seconds" in room.service.answers["o-1"][1]


@pytest.mark.finding("F-A4")
async def test_a_job_that_a_person_holds_waits_in_the_queue_for_as_long_as_it_takes() -> None:
    room = Room(FakeBatch(OOM))
    room.service.orders = [order("suspend")]
    recovery = room.recovery(hold=True)
    await recovery.look()
    room.clock.at = 100_000.0
    room.service.orders = [order("continue", id="o-2")]
    await recovery.look()
    assert room.service.answers["o-2"] == ("done", "")
    assert [what for what, _ in room.batch.done] == ["hold", "again"]


@pytest.mark.finding("F-A5")
@pytest.mark.parametrize(
    ("since", "acts"),
    [(None, False), (10.0, True), (50.0, True), (50.5, True), (125.0, True), (126.0, False), (131.0, False)],
)
async def test_only_an_end_that_somebody_vouched_for_is_acted_on(since: float | None, acts: bool) -> None:
    """The job was submitted at 50 and ended at 130, by a clock that may differ by five seconds."""
    room = Room(FakeBatch(OOM))
    room.spool.since = since
    for verb in ("resubmit", "suspend", "continue"):
        room.batch.done.clear()
        room.batch.now, room.spool.words = OOM, {"7": job()}
        room.service.orders = [order(verb, id=f"o-{verb}")]
        await room.recovery(hold=True).look()
        assert bool(room.batch.done) is acts
        assert ("no watcher was active" in room.service.answers[f"o-{verb}"][1]) is not acts
        assert bool(room.spool.words) is acts


@pytest.mark.finding("F-A5")
@pytest.mark.parametrize(("ended", "acts"), [(130, True), (129, False)])
async def test_a_job_that_was_submitted_while_somebody_vouched_may_end_at_once(ended: int, acts: bool) -> None:
    """Only not in the second in which they began: Slurm tells no fractions."""
    room = Room(FakeBatch(replace(OOM, ended=ended)))
    room.spool.since, room.spool.words = 129.4, {"7": job()._replace(since=129.5)}
    room.service.orders = [order()]
    await room.recovery().look()
    assert bool(room.batch.done) is acts


@pytest.mark.finding("F-A5")
async def test_what_is_ordered_after_the_promise_was_broken_is_refused() -> None:
    room = Room(FakeBatch(OOM))
    recovery = room.recovery()
    await recovery.look()
    room.spool.since = 131.0
    room.service.orders = [order()]
    await recovery.look()
    assert not room.batch.done
    assert "may have seen it fail" in room.service.answers["o-1"][1]


@pytest.mark.finding("F-A3")
@pytest.mark.parametrize(
    ("name", "written", "again"), [("nf-part_(1)", True, False), ("nf-part_(1)", False, True), ("align", True, True)]
)
async def test_a_job_whose_end_nextflow_knows_is_not_run_again_for_nobody(
    name: str, written: bool, again: bool
) -> None:
    room = Room(FakeBatch(OOM, name=name))
    room.spool.exit_code_written = written
    room.service.orders = [order()]
    await room.recovery().look()
    assert bool(room.batch.done) == again
    (event,) = [event for event in room.service.events if event["kind"] == "task-aborted"]
    assert ("Nextflow has read" in event["evidence"].get("not_recovered", "")) != again
    assert (room.service.answers["o-1"][0] == "done") == again


@pytest.mark.finding("F-A3")
@pytest.mark.parametrize(("name", "tail"), [("nf-part_(1)", "the end of /x.err\nthe end of /task.err"), ("align", "the end of /x.err")])  # fmt: skip
async def test_what_a_task_of_nextflows_array_printed_is_evidence_too(name: str, tail: str) -> None:
    room = Room(FakeBatch(OOM, name=name))
    await room.recovery().look()
    assert room.service.events[0]["evidence"]["log_tail"] == tail


@pytest.mark.finding("F-A6")
async def test_a_job_that_must_not_be_requeued_is_reported_and_stays_as_it_is() -> None:
    room = Room(FakeBatch(RUNS, requeue=False))
    room.service.orders = [order()]
    recovery = room.recovery(hold=True)
    await recovery.look()
    room.batch.now = OOM
    await recovery.look()
    assert not room.batch.done
    (event,) = [event for event in room.service.events if event["kind"] == "task-aborted"]
    assert "--no-requeue" in event["evidence"]["not_recovered"]
    assert event["otherwise"] == "go-on"
    outcome, detail = room.service.answers["o-1"]
    assert outcome == "refused"
    assert "FORESTAY_REQUEUE=allow" in detail
    assert not room.spool.words


@pytest.mark.finding("F-A6")
@pytest.mark.parametrize("who", ["user", "site"])
async def test_user_or_site_may_let_such_a_job_be_requeued(who: str) -> None:
    room = Room(FakeBatch(RUNS, requeue=False))
    room.spool.words = {"7": job()._replace(allow_requeue=who == "user")}
    room.service.orders = [order()]
    recovery = room.recovery(override=who == "site")
    await recovery.look()
    await recovery.look()
    room.batch.now = OOM
    await recovery.look()
    assert room.batch.done == [("allow", "7"), ("again", ({}, 0))]


async def test_an_id_that_slurm_gives_to_another_job_later_is_let_requeue_too() -> None:
    """Slurm counts up to its `MaxJobId` and begins again."""
    room = Room(FakeBatch(RUNS, requeue=False))
    recovery = room.recovery(override=True)
    await recovery.look()
    word = room.spool.words.pop("7")
    await recovery.look()
    room.spool.words["7"] = word
    await recovery.look()
    assert room.batch.done == [("allow", "7"), ("allow", "7")]


@pytest.mark.finding("F-A7")
async def test_a_word_of_another_user_is_ignored_and_said_and_the_owners_word_still_counts() -> None:
    forged = job()._replace(owner=1001, file="7.0.1")
    room = Room(FakeBatch(OOM), spool=FakeSpool({}, foreign=[forged]))
    room.service.orders = [order()]
    names: list[str] = []
    recovery = room.recovery()
    recovery.troubled = names.append
    await recovery.look()
    assert not room.batch.done
    assert not room.service.events
    assert not room.spool.foreign
    assert recovery.rejected == 1
    assert names == ["record 7.0.1 of user 1001 is ignored: job 7 belongs to user 1000"]
    room.spool.foreign, room.spool.words = [forged], {"7": job()}
    await recovery.look()
    assert [event["evidence"]["scheduler_state"] for event in room.service.events] == ["OUT_OF_MEMORY"]
    assert [what for what, _ in room.batch.done] == ["again"]


async def test_a_word_of_a_job_in_another_cluster_is_not_taken_for_the_job_here_of_the_same_id() -> None:
    elsewhere = job()._replace(cluster="other", file="7.other.1")
    room = Room(FakeBatch(OOM), spool=FakeSpool({}, foreign=[elsewhere]))
    room.service.orders = [order()]
    await room.recovery().look()
    assert not room.batch.done
    assert not room.service.events
    assert not room.spool.foreign


async def test_a_job_that_the_batch_system_does_not_know_is_left_alone() -> None:
    room = Room(Unidentified(OOM))
    await room.recovery().look()
    assert not room.service.events
    assert room.spool.words


class Unidentified(FakeBatch):
    async def identities(self, jobs: Collection[BatchId]) -> Mapping[BatchId, JobIdentity]:
        return {}


def test_fates() -> None:
    assert fate(BatchOutcome(BatchState.ENDED, "CANCELLED")) is WatchedJobAction.DONE
    assert fate(BatchOutcome(BatchState.LOST, "NODE_FAIL")) is WatchedJobAction.FAILED
    assert fate(BatchOutcome(BatchState.ENDED, "TIMEOUT")) is WatchedJobAction.FAILED
    assert fate(SILENT) is WatchedJobAction.SILENT


def test_needs_never_shrink_and_keep_to_their_bound() -> None:
    known = JobDetails("7", "x", "ann", False, "", {"memory": 1000, "wall": 60})
    assert needed(known, {"memory": {"factor": 3.0, "at_most": 2000}}) == {"memory": 2000}
    assert needed(known, {"memory": {"factor": 3.0, "at_most": 10}}) == {"memory": 1000}
    assert needed(known, {"wall": {"to": 90}, "gpus": {"to": 2}, "disk": {"factor": 2.0}}) == {"wall": 90}


def test_evidence_leaves_out_what_nobody_knows() -> None:
    assert evidence(BatchOutcome(BatchState.LOST, "NODE_FAIL", node_events=("n2: DOWN",)), None, "", None) == {
        "scheduler": "slurm",
        "scheduler_state": "NODE_FAIL",
        "scheduler_reason": "n2: DOWN",
    }


LOST = replace(WAITS, restarts=1, node_events=("n1: NODE_FAIL",))
"""Slurm lost the node and queued the job again by itself."""


def waiting(known: Mapping[BatchId, JobDetails], mark: str = "") -> Mapping[BatchId, JobDetails]:
    return {name: replace(details, waiting=True, mark=mark) for name, details in known.items()}


class QueuedAgain(FakeBatch):
    mark = ""

    async def details(self, jobs: Collection[BatchId]) -> Mapping[BatchId, JobDetails]:
        return waiting(await super().details(jobs), self.mark)


async def test_a_start_that_was_lost_with_its_node_is_told_once_and_the_next_one_is_elsewhere() -> None:
    room = Room(QueuedAgain(LOST))
    room.service.orders = [order()]
    recovery = room.recovery()
    await recovery.look()
    (event,) = room.service.events
    assert (event["attempt"], event["evidence"]["scheduler_state"], event["evidence"]["node"]) == (1, "NODE_FAIL", "n1")
    assert room.batch.done == [("again", ({}, 0))]
    assert room.batch.avoided == ("n1",)
    room.batch.now = LOST
    await recovery.look()
    assert len(room.service.events) == 1


async def test_a_lost_start_that_no_rule_answers_is_left_in_the_queue() -> None:
    room = Room(QueuedAgain(LOST), FakeService(incident=None))
    await room.recovery().look()
    assert len(room.service.events) == 1
    assert room.spool.words
    assert not room.batch.done


async def test_a_lost_start_that_was_recovered_before_a_restart_is_not_told_again() -> None:
    batch = QueuedAgain(LOST)
    batch.mark = "o-1"
    room = Room(batch)
    recovery = room.recovery()
    await recovery.look()
    assert not room.service.events
    room.batch.now = replace(LOST, restarts=2)
    await recovery.look()
    assert [event["attempt"] for event in room.service.events] == [2]


async def test_with_other_needs_the_same_nodes_will_do() -> None:
    room = Room(FakeBatch(OOM))
    room.service.orders = [order(needs={"memory": {"factor": 2.0}})]
    await room.recovery().look()
    assert room.batch.avoided == ()


def test_what_a_job_wrote_down_itself_is_told_beside_what_its_batch_system_says() -> None:
    record = PayloadRecord("node17", 100, 160, 500, 3, None, "the last line")
    returned_evidence = evidence(replace(OOM, started=None), None, "", 400, record)
    assert (
        returned_evidence["peak_memory"],
        returned_evidence["payload_host"],
        returned_evidence["wall_time"],
        returned_evidence["log_tail"],
    ) == (
        500,
        "node17",
        60.0,
        "the last line",
    )
    assert (returned_evidence["exit_code"], returned_evidence["signal"]) == (0, 9)
    silent = evidence(BatchOutcome(BatchState.LOST, "NODE_FAIL"), None, "a log", 600, record)
    assert (silent["exit_code"], silent["log_tail"], silent["peak_memory"]) == (3, "a log", 600)
    assert evidence(OOM, None, "", 400)["wall_time"] == 30.0


async def test_many_that_wait_are_asked_for_a_few_at_a_time() -> None:
    """The service tells of twenty incidents in one answer, and refuses to tell of more."""
    room = Room(FakeBatch(OOM), CountingService(), FakeSpool({str(n): job(str(n)) for n in range(60)}))
    recovery = room.recovery()
    for _ in range(3):
        await recovery.look()
    assert len(room.service.events) == 60
    assert isinstance(room.service, CountingService)
    assert max(room.service.asked) == 20
    assert sum(room.service.asked[-3:]) == 60


@dataclass
class CountingService(FakeService):
    asked: list[int] = field(default_factory=list)

    async def report(self, events: Sequence[Mapping[str, Any]]) -> Sequence[EventReply]:
        self.events += [dict(event) for event in events]
        return [EventReply(event["run"], f"i-{event['run']}", "") for event in events]

    async def news(self, incidents: Collection[str], *, wait: float) -> EngineNews:
        self.asked.append(len(incidents))
        return await super().news(incidents, wait=wait)
