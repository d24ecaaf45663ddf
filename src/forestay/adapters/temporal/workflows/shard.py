"""A shard as a workflow: at most 5,000 jobs of a round, represented by three bitmaps."""

from __future__ import annotations

import asyncio
from collections import deque

from temporalio import workflow

from forestay.adapters.temporal.workflows import temporal_runtime
from forestay.adapters.temporal.workflows.temporal_runtime import Plain
from forestay.domain.flows.execution.messages import as_plain, from_plain
from forestay.domain.flows.execution.run_names import shard_of
from forestay.domain.flows.scatter.elements import every, from_text
from forestay.domain.flows.scatter.shard_run import (
    BATCH_JOBS,
    BatchAccepted,
    BatchEnded,
    CancelBatch,
    ContinueBatch,
    ElementsReady,
    HoldBatch,
    ShardCommand,
    ShardEvent,
    ShardRun,
    SubmitBatch,
    TellFollower,
    advance_shard,
    shard_ended,
    start_shard,
)

STEERED = {CancelBatch: "cancel", HoldBatch: "hold", ContinueBatch: "continue"}


@workflow.defn(name=temporal_runtime.SHARD)
class ShardWorkflow:
    """Its argument holds what never changes (``flow_ref``, ``order``, ``limits``) and either ``start`` or, continued, ``run`` and ``outbox``."""

    @workflow.init
    def __init__(self, payload: Plain) -> None:
        self.given = payload
        self.inbox: deque[ShardEvent] = deque()
        self.outbox: deque[Plain] = deque(payload.get("outbox", ()))
        self.tasks = temporal_runtime.WorkflowTasks()
        self.news = 0
        """Counts messages, so that the jobs are not polled while messages arrive."""
        if "run" in payload:
            self.shard = ShardRun.from_plain(payload["run"])
        else:
            start = payload["start"]
            self.shard, commands = start_shard(
                first=start["first"],
                count=start["count"],
                skip=int(start.get("skip", "0"), 16),
                open_=start.get("open", False),
                wait=start.get("wait", True),
                holders=tuple(start.get("holders", ())),
                batch=payload["limits"].get("batch", BATCH_JOBS),
                streams=start.get("streams", False),
            )
            self.outbox.extend(as_plain(command) for command in commands)

    @workflow.run
    async def run(self, payload: Plain) -> None:
        limits = payload["limits"]
        self.tasks.spawn(self._carry_out())
        if self.shard.wait:
            self.tasks.spawn(self._look(limits["look"]))
        while True:
            self.tasks.check()
            while self.inbox:
                self._take(self.inbox.popleft())
            if self.shard.finished and not self.outbox:
                break
            if temporal_runtime.too_long(limits["history"]):
                workflow.continue_as_new(
                    {
                        **{name: payload[name] for name in ("flow_ref", "order", "limits", "shard")},
                        "run": self.shard.as_plain(),
                        "outbox": list(self.outbox),
                    }
                )
            await workflow.wait_condition(
                lambda: bool(
                    self.inbox
                    or self.tasks.error
                    or (self.shard.finished and not self.outbox)
                    or temporal_runtime.too_long(limits["history"])
                )
            )
        self.tasks.stop()
        flow_ref = payload["flow_ref"]
        last = shard_ended(self.shard, at=temporal_runtime.now(), work=payload["order"]["work"], shard=payload["shard"])
        await temporal_runtime.tell(flow_ref["run"], as_plain(last))

    @workflow.signal(name=temporal_runtime.MESSAGES)
    def messages(self, plain: list[Plain]) -> None:
        """Receives completions from the relay, and growth, holds and cancellation from the run."""
        self.news += 1
        for event in plain:
            message = from_plain(event)
            if isinstance(message, ShardEvent):
                self.inbox.append(message)

    @workflow.query(name=temporal_runtime.STATE)
    def state(self) -> Plain:
        return self.shard.as_plain()

    def _take(self, event: ShardEvent) -> None:
        self.shard, commands = advance_shard(self.shard, event)
        self.outbox.extend(as_plain(command) for command in commands)

    async def _carry_out(self) -> None:
        """One command after the other: a hold must find the jobs that were submitted before it."""
        while True:
            await workflow.wait_condition(lambda: bool(self.outbox))
            message = from_plain(self.outbox[0])
            assert isinstance(message, ShardCommand)  # noqa: S101 - nothing else is put there
            await self._do(message)
            self.outbox.popleft()

    async def _do(self, command: ShardCommand) -> None:
        if isinstance(command, TellFollower):
            follower = shard_of(self.given["flow_ref"]["run"], command.work, command.shard)
            await temporal_runtime.tell(follower, as_plain(ElementsReady(command.well)))
            return
        batch = self._batch()
        batch |= {"first": command.first, "count": command.count, "base": self.shard.first}
        if not isinstance(command, SubmitBatch):
            batch["verb"] = STEERED[type(command)]
            if not isinstance(command, CancelBatch):
                batch["holder"] = command.holder
            await temporal_runtime.do("steer_jobs", batch)
            return
        batch |= {"skip": f"{command.skip:x}", "holders": list(command.holders), "of": self._waited_for()}
        try:
            refused = await temporal_runtime.do("submit_jobs", batch, seconds=600)
        except temporal_runtime.ActivityRefused as error:
            bad = (every(command.count) & ~command.skip) << (command.first - self.shard.first)
            self.inbox.append(BatchEnded(bad=bad, reason=str(error)))
            return
        if refused:
            bad = from_text(refused["bad"]) << (command.first - self.shard.first)
            self.inbox.append(BatchEnded(bad=bad, reason=refused["reason"]))
        self.inbox.append(BatchAccepted(command.first, command.count))

    def _batch(self) -> Plain:
        """The fields that identify the jobs of this shard and their order."""
        batch: Plain = {**self.given["flow_ref"], "order": self.given["order"], "shard": self.given["shard"]}
        return batch | ({"works": list(self.shard.works)} if self.shard.works else {})

    def _waited_for(self) -> int:
        run = self.shard
        return run.count - run.skipped.bit_count() if run.wait else 0

    async def _look(self, seconds: float) -> None:
        """Anti-entropy: after long silence, poll the jobs and create again those that the store has lost."""
        while True:
            news = self.news
            await asyncio.sleep(seconds)
            if self.news != news or self.outbox:
                continue
            seconds = min(2 * seconds, temporal_runtime.LAST_LOOK)
            run = self.shard
            batch = self._batch() | ({"waiting": f"{run.waiting:x}"} if run.waiting else {})
            batch |= {"first": run.first, "count": run.submitted, "base": run.first, "of": self._waited_for()}
            batch |= {"ended": f"{run.ended:x}", "holders": list(run.holders), "cancelled": run.cancelled}
            states = from_plain(await temporal_runtime.do("check_jobs", batch, seconds=600))
            if isinstance(states, BatchEnded):
                self.inbox.append(states)
