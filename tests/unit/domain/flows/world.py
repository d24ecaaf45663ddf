"""The world outside a run, simulated: it does what commands ask for and lets the ends arrive in any order, some of them twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from forestay.domain.flows.commands import (
    AnswerVerb,
    AskPerson,
    AwaitEvent,
    BindWorklet,
    CancelTimer,
    CancelWork,
    Command,
    ContinueWork,
    FeedShard,
    FindCompensation,
    FinishRun,
    FollowShard,
    GrowShard,
    HoldWork,
    ListFiles,
    Report,
    StartRun,
    StartShard,
    StartTimer,
    StopWatch,
    SubmitJobs,
    UndoRun,
    WatchFiles,
)
from forestay.domain.flows.definition.flow import Flow
from forestay.domain.flows.definition.flow_version import planned
from forestay.domain.flows.events import (
    CompensationFound,
    Event,
    EventArrived,
    FilesAppeared,
    FilesListed,
    JobsAccepted,
    JobsEnded,
    RunEnded,
    TimerFired,
    Verb,
    VerbKind,
    WorkletBound,
)
from forestay.domain.flows.execution.advance import advance, start_run
from forestay.domain.flows.execution.flow_run import FlowRun, RunPhase
from forestay.domain.flows.execution.run_waits import waits_for
from forestay.domain.flows.scatter.elements import elements
from forestay.domain.flows.scatter.shard_run import (
    BatchEnded,
    ElementsReady,
    ShardCancelled,
    ShardContinued,
    ShardEvent,
    ShardFollowed,
    ShardGrew,
    ShardHeld,
    ShardRun,
    SubmitBatch,
    TellFollower,
    advance_shard,
    shard_ended,
    start_shard,
)

Fate = Callable[[str, int, bool], bool]
"""Whether an element of a task (or its compensation) ends well."""


def all_well(_task: str, _index: int, _undo: bool) -> bool:
    return True


@dataclass
class Batch:
    """Jobs or runs that were asked for and have not ended."""

    work: str
    task: str
    undo: bool
    shard: int | None = None
    runs: bool = False
    wait: bool = True
    left: set[int] = field(default_factory=set)
    ends: dict[int, bool] = field(default_factory=dict)
    reported: set[int] = field(default_factory=set)
    cancelled: bool = False
    holders: set[str] = field(default_factory=set)


class World:
    """Runs one run to its end."""

    answering = True
    """Whether somebody answers the questions of the run."""

    def __init__(
        self,
        flow: Flow,
        *,
        seed: int = 0,
        fate: Fate = all_well,
        params: Mapping[str, object] | None = None,
        files: int = 3,
        results: Callable[[str], object] | None = None,
        repeats: bool = True,
        undo_failures: Mapping[str, int] | None = None,
        streams: bool = True,
        library: Mapping[str, str] | None = None,
    ) -> None:
        self.library = library
        """The version of the compensation that is registered for each action now; None: the run started before there was a library."""
        self.undo_failures = undo_failures or {}
        """How many tries of a task's compensation fail."""
        self.random = Random(seed)
        self.fate = fate
        self.files = files
        self.results = results or (lambda work: {"n": 1})
        self.repeats = repeats
        self.now = 1000
        self.batches: dict[tuple[str, int | None], Batch] = {}
        self.shards: dict[tuple[str, int], ShardRun] = {}
        self.asked: list[Event] = []
        """Answers that are on their way."""
        self.between: list[tuple[str, int, ShardEvent]] = []
        """What shards are told by others, on its way."""
        self.watches: dict[str, WatchFiles] = {}
        self.seen_files: dict[str, int] = {}
        self.timers: dict[str, int] = {}
        self.sent: list[Event] = []
        self.commands: list[Command] = []
        self.undone: list[str] = []
        self.finished: FinishRun | None = None
        self.answers: dict[str, AnswerVerb] = {}
        self.reports: list[Report] = []
        self.plan = planned(flow)
        self.largest = 0
        self.carried = True
        """Whether the state is written down and read back before each event."""
        self.run, commands = start_run(
            self.plan, run="c1", at=self.now, params=params, streams=streams, library=library is not None
        )
        self.perform(commands)

    # What commands ask for

    def perform(self, commands: tuple[Command, ...]) -> None:
        for command in commands:
            self.commands.append(command)
            self._perform(command)
            if self.repeats and self.random.random() < 0.2:
                self._perform(command)  # carried out at least once, perhaps more often

    def _perform(self, command: Command) -> None:
        match command:
            case SubmitJobs(order, first, count, skip, holders, wait):
                batch = self.batches.setdefault(
                    (order.work, None), Batch(order.work, order.task, order.undo, wait=wait)
                )
                batch.holders |= set(holders)
                wanted = {first + place for place in range(count) if not skip >> place & 1}
                batch.left |= wanted - set(batch.ends)
                self.submitted(batch, wanted)
                if not wait:
                    self.asked.append(JobsAccepted(self.now, order.work, first, count))
            case StartShard(order, shard, first, count, skip, holders, wait, open_, streams):
                if (order.work, shard) in self.shards:
                    return
                run, made = start_shard(
                    first=first, count=count, skip=skip, open_=open_, wait=wait, holders=holders, streams=streams
                )
                self.shards[order.work, shard] = run
                batch = Batch(order.work, order.task, order.undo, shard, wait=wait, holders=set(holders))
                self.batches[order.work, shard] = batch
                self._submitted(batch, made)
                self._advance_shard(order.work, shard, None)
            case GrowShard(work, shard, count, open_):
                self._advance_shard(work, shard, ShardGrew(count, open_))
            case FeedShard(work, shard, ready, closed, works):
                self.between.append((work, shard, ElementsReady(ready, closed, works)))
            case FollowShard(work, shard, of, at):
                self.between.append((of, at, ShardFollowed(work, shard)))
            case StartRun(order, index):
                batch = self.batches.setdefault(
                    (order.work, None), Batch(order.work, order.task, order.undo, runs=True)
                )
                if index not in batch.ends:
                    batch.left.add(index)
            case UndoRun(work, of, index):
                task = self.batches[of, None].task
                batch = self.batches.setdefault((work, None), Batch(work, task, undo=True, runs=True))
                if index not in batch.ends:
                    batch.left.add(index)
            case CancelWork(work):
                for batch in self._of(work):
                    batch.cancelled = True
                    batch.holders.clear()
                    if batch.shard is not None:
                        self._advance_shard(work, batch.shard, ShardCancelled())
            case HoldWork(work, holder):
                for batch in self._of(work):
                    batch.holders.add(holder)
                    if batch.shard is not None:
                        self._advance_shard(work, batch.shard, ShardHeld(holder))
            case ContinueWork(work, holder):
                for batch in self._of(work):
                    batch.holders.discard(holder)
                    if batch.shard is not None:
                        self._advance_shard(work, batch.shard, ShardContinued(holder))
            case ListFiles(work, _, dimension):
                self.asked.append(FilesListed(self.now, work, dimension, f"list-{work}", self.files))
            case WatchFiles(work):
                self.watches.setdefault(work, command)
                self.seen_files.setdefault(work, 0)
            case StopWatch(work):
                self.watches.pop(work, None)
            case BindWorklet(work):
                self.asked.append(WorkletBound(self.now, work, "f" * 64))
            case FindCompensation(_, number, action):
                version = (self.library or {}).get(action, "")
                self.asked.append(CompensationFound(self.now, number, version, 3 if version else 0))
            case AskPerson(work, instance):
                verb = Verb(self.now, f"answer:{work}", VerbKind.ANSWER, instance=instance, by="ben", changes={"n": 2})
                if self.answering:
                    self.asked.append(verb)
            case AwaitEvent(work):
                if self.answering:
                    self.asked.append(EventArrived(self.now, work, f"event:{work}", "ben", {"n": 2}))
            case StartTimer(timer, at):
                self.timers[timer] = at
            case CancelTimer(timer):
                self.timers.pop(timer, None)
            case AnswerVerb(verb):
                self.answers[verb] = command
            case Report():
                self.reports.append(command)
            case FinishRun():
                assert self.finished in (None, command), "a run finishes once"
                self.finished = command
            case _:
                pass

    def _of(self, work: str) -> list[Batch]:
        return [batch for (name, _), batch in self.batches.items() if name == work]

    def _submitted(self, batch: Batch, commands: tuple[object, ...]) -> None:
        for command in commands:
            if isinstance(command, SubmitBatch):
                wanted = {command.first + at for at in range(command.count) if not command.skip >> at & 1}
                batch.left |= wanted - set(batch.ends)
                self.submitted(batch, wanted)
            if isinstance(command, TellFollower):
                self.between.append((command.work, command.shard, ElementsReady(command.well)))

    def submitted(self, batch: Batch, elements: set[int]) -> None:
        """Jobs are made; tests look here whether they may be."""

    def _advance_shard(self, work: str, shard: int, event: ShardEvent | None) -> None:
        run = self.shards[work, shard]
        if event is not None:
            run, commands = advance_shard(run, event)
            run = ShardRun.from_plain(json.loads(json.dumps(run.as_plain())))
            self.shards[work, shard] = run
            self._submitted(self.batches[work, shard], commands)
        if run.finished:
            self.asked.append(shard_ended(run, at=self.now, work=work, shard=shard))

    # What happens

    def send(self, event: Event) -> None:
        """Let the run take an event in, from a state that has been written down and read back."""
        if self.carried:
            plain = json.dumps(self.run.as_plain())
            self.largest = max(self.largest, len(plain))
            again = FlowRun.from_plain(self.plan, json.loads(plain))
            assert again == self.run
            self.run = again
        self.run, commands = advance(self.run, event)
        self.sent.append(event)
        self.perform(commands)
        self.check()

    def check(self) -> None:
        """What holds between any two events."""
        numbers = [entry.number for entry in self.run.stack]
        assert numbers == sorted(numbers)
        if self.run.phase is RunPhase.FINISHED:
            assert self.finished is not None
            assert self.timers == {}, "no timer outlives its run"
        else:
            assert waits_for(self.run), "an unfinished run waits for something"

    def step(self) -> bool:
        """Let one thing happen; whether there was any."""
        self.now += 1
        if self.repeats and self.sent and self.random.random() < 0.3:
            before = self.run
            event = self.random.choice(self.sent)
            self.send(event)
            assert self.run == before, f"a repeat of {event} changed the run"
        choices: list[Callable[[], None]] = []
        choices += [lambda place=place: self.send(self.asked.pop(place)) for place in range(len(self.asked))]  # type: ignore[misc]
        choices += [
            lambda place=place: self._advance_shard(*self.between.pop(place))  # type: ignore[misc]
            for place in range(len(self.between))
        ]
        choices += [
            lambda batch=batch: self.end_some(batch)  # type: ignore[misc]
            for batch in self.batches.values()
            if batch.left and batch.wait and not batch.holders
        ]
        choices += [lambda watch=watch: self.find_files(watch) for watch in self.watches.values()]  # type: ignore[misc]
        if not choices or self.finished is not None:
            return False
        self.random.choice(choices)()
        return True

    def end_some(self, batch: Batch) -> None:
        ended = self.random.sample(sorted(batch.left), self.random.randint(1, len(batch.left)))
        well: list[int] = []
        bad: list[int] = []
        for index in ended:
            ok = not batch.cancelled and self.ends_well(batch, index)
            batch.ends[index] = ok
            (well if ok else bad).append(index)
        batch.left -= set(ended)
        if batch.undo and not batch.left and all(batch.ends.values()):
            self.undone.append(batch.work)
        if batch.runs:
            self.asked += [
                RunEnded(self.now, batch.work, index, batch.ends[index], {"n": index}, left=1)
                for index in sorted(ended)
            ]
        elif batch.shard is None:
            result = self.results(batch.work) if well else None
            self.send(
                JobsEnded(
                    self.now, batch.work, elements(well), elements(bad), exit_code=0 if well else 1, result=result
                )
            )
        else:
            run = self.shards[batch.work, batch.shard]
            ends = BatchEnded(
                elements(index - run.first for index in well), elements(index - run.first for index in bad)
            )
            self._advance_shard(batch.work, batch.shard, ends)

    def ends_well(self, batch: Batch, index: int) -> bool:
        if batch.undo and int(batch.work.rpartition(".")[2]) <= self.undo_failures.get(batch.task, 0):
            return False
        return self.fate(batch.task, index, batch.undo)

    def find_files(self, watch: WatchFiles) -> None:
        count = self.seen_files[watch.work]
        more = min(self.files, count + self.random.randint(0, 2))
        self.seen_files[watch.work] = more
        if more >= self.files:
            self.watches.pop(watch.work)
        self.send(
            FilesAppeared(self.now, watch.work, watch.dimension, f"w-{watch.work}", more, ended=more >= self.files)
        )

    def fire(self, timer: str) -> None:
        self.now = max(self.now, self.timers.pop(timer))
        self.send(TimerFired(self.now, timer))

    def run_out(self) -> World:
        """Let everything happen that will."""
        for _ in range(10_000):
            if not self.step():
                return self
        raise AssertionError("the run does not come to an end")
