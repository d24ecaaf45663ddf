"""An exlet as a workflow: a thin loop around `advance`. It carries ids; the incident and the worklets' data stay in the store and in their cases."""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import timedelta

from temporalio import workflow

from forestay.adapters.temporal.workflows import temporal_runtime
from forestay.adapters.temporal.workflows.temporal_runtime import Plain
from forestay.domain.exlets.exlet_plain import exlet_from_plain
from forestay.domain.exlets.exlet_run import (
    Command,
    DoStep,
    Event,
    ExletRun,
    FinishExlet,
    StartWorklets,
    StepDone,
    StepRefused,
    StepStage,
    StepState,
    TakeBack,
    advance,
    ask_again,
    event_from_plain,
    start_exlet,
)


@workflow.defn(name=temporal_runtime.EXLET)
class ExletWorkflow:
    """Its argument: ``incident``, ``n``, ``tenant``, ``limits``; continued, ``run`` too."""

    @workflow.init
    def __init__(self, given: Plain) -> None:
        self.given = given
        self.tie: Plain = {name: given[name] for name in ("incident", "n", "tenant")}
        self.inbox: deque[Event] = deque(event_from_plain(one) for one in given.get("inbox", ()))
        self.exlet: ExletRun | None = ExletRun.from_plain(given["run"]) if "run" in given else None

    @workflow.run
    async def run(self, given: Plain) -> Plain:
        if self.exlet is None:
            try:
                loaded = await temporal_runtime.do("load_exlet", self.tie)
            except temporal_runtime.ActivityRefused as error:
                return {"state": "refused", "reason": str(error)}
            self.exlet, commands = start_exlet(given["incident"], given["n"], exlet_from_plain(loaded))
        else:
            commands = ask_again(self.exlet)
        while True:
            for command in commands:
                await self._do(command)
                if isinstance(command, FinishExlet):
                    return {"state": command.state.value, "reason": command.reason}
            if not self.inbox:
                await self._wait(given["limits"]["look"])
            self.exlet, commands = advance(self.exlet, self.inbox.popleft())
            if temporal_runtime.too_long(given["limits"]["history"]) and not self.inbox and not _ends(commands):
                workflow.continue_as_new({**given, "run": self.exlet.as_plain()})

    @workflow.signal(name=temporal_runtime.MESSAGES)
    def messages(self, plain: list[Plain]) -> None:
        """That worklets have ended, or that a person stops the exlet."""
        self.inbox.extend(event_from_plain(one) for one in plain)

    @workflow.query(name=temporal_runtime.STATE)
    def state(self) -> Plain:
        return self.exlet.as_plain() if self.exlet is not None else {}

    async def _do(self, command: Command) -> None:
        match command:
            case DoStep(step, _, release):
                await self._ask("do_exlet_step", step, StepStage.ACT, {"release": release})
            case TakeBack(step, _, cases):
                await self._ask("take_back", step, StepStage.TAKE_BACK, {"cases": list(cases)})
            case StartWorklets(step, _, cases):
                try:
                    await temporal_runtime.do(
                        "start_worklets", self.tie | {"step": step, "cases": list(cases)}, seconds=600
                    )
                except temporal_runtime.ActivityRefused as error:
                    self.inbox.append(StepRefused(step, str(error)))
            case FinishExlet(state, reason, held):
                end = {"state": state.value, "reason": reason, "held": [target.value for target in held]}
                await temporal_runtime.do("finish_exlet", self.tie | end)

    async def _ask(self, activity: str, step: int, stage: StepStage, more: Plain) -> None:
        try:
            answer = await temporal_runtime.do(activity, self.tie | {"step": step} | more)
        except temporal_runtime.ActivityRefused as error:
            answer = {"state": StepState.REFUSED.value, "detail": str(error)}
        detail = answer["detail"]
        done = answer["state"] == StepState.DONE.value
        self.inbox.append(StepDone(step, detail, stage) if done else StepRefused(step, detail, stage))

    async def _wait(self, look: float) -> None:
        """Until something is told. Worklets tell their end themselves; one that cannot any more is looked for."""
        while not self.inbox:
            try:
                await workflow.wait_condition(lambda: bool(self.inbox), timeout=timedelta(seconds=look))
            except asyncio.TimeoutError:  # noqa: UP041 - what Temporal raises, by the name it has there
                assert self.exlet is not None  # noqa: S101 - it was loaded before anything is waited for
                ended = await temporal_runtime.do("worklets_ended", self.tie | {"step": self.exlet.at})
                self.inbox.extend(event_from_plain(one) for one in ended)
                look = min(2 * look, temporal_runtime.LAST_LOOK)


def _ends(commands: tuple[Command, ...]) -> bool:
    return any(isinstance(command, FinishExlet) for command in commands)
