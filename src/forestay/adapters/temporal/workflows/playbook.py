"""A playbook as a workflow: a thin loop around `advance`. It carries ids; the incident and the worklets' data stay in the store and in their runs."""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import timedelta

from temporalio import workflow

from forestay.adapters.temporal.workflows import temporal_runtime
from forestay.adapters.temporal.workflows.temporal_runtime import Plain
from forestay.domain.playbooks.playbook import playbook_from_plain
from forestay.domain.playbooks.playbook_run import (
    Command,
    DoStep,
    Event,
    FinishPlaybook,
    PlaybookRun,
    StartWorklets,
    StepDone,
    StepRefused,
    StepStage,
    StepState,
    TakeBack,
    advance,
    ask_again,
    event_from_plain,
    start_playbook,
)


@workflow.defn(name=temporal_runtime.PLAYBOOK)
class PlaybookWorkflow:
    """Its argument: ``incident``, ``n``, ``tenant``, ``limits``; continued, ``run`` too."""

    @workflow.init
    def __init__(self, payload: Plain) -> None:
        self.given = payload
        self.flow_ref: Plain = {name: payload[name] for name in ("incident", "n", "tenant")}
        self.inbox: deque[Event] = deque(event_from_plain(event) for event in payload.get("inbox", ()))
        self.playbook: PlaybookRun | None = PlaybookRun.from_plain(payload["run"]) if "run" in payload else None

    @workflow.run
    async def run(self, payload: Plain) -> Plain:
        if self.playbook is None:
            try:
                loaded = await temporal_runtime.do("load_playbook", self.flow_ref)
            except temporal_runtime.ActivityRefused as error:
                return {"state": "refused", "reason": str(error)}
            self.playbook, commands = start_playbook(payload["incident"], payload["n"], playbook_from_plain(loaded))
        else:
            commands = ask_again(self.playbook)
        while True:
            for command in commands:
                await self._do(command)
                if isinstance(command, FinishPlaybook):
                    return {"state": command.state.value, "reason": command.reason}
            if not self.inbox:
                await self._wait(payload["limits"]["look"])
            self.playbook, commands = advance(self.playbook, self.inbox.popleft())
            if temporal_runtime.too_long(payload["limits"]["history"]) and not self.inbox and not _ends(commands):
                workflow.continue_as_new({**payload, "run": self.playbook.as_plain()})

    @workflow.signal(name=temporal_runtime.MESSAGES)
    def messages(self, plain: list[Plain]) -> None:
        """Receives completions of worklets, and a person's request to stop the playbook."""
        self.inbox.extend(event_from_plain(event) for event in plain)

    @workflow.query(name=temporal_runtime.STATE)
    def state(self) -> Plain:
        return self.playbook.as_plain() if self.playbook is not None else {}

    async def _do(self, command: Command) -> None:
        match command:
            case DoStep(step, _, release):
                await self._ask("do_playbook_step", step, StepStage.ACT, {"release": release})
            case TakeBack(step, _, runs):
                await self._ask("take_back", step, StepStage.TAKE_BACK, {"runs": list(runs)})
            case StartWorklets(step, _, runs):
                try:
                    await temporal_runtime.do(
                        "start_worklets", self.flow_ref | {"step": step, "runs": list(runs)}, seconds=600
                    )
                except temporal_runtime.ActivityRefused as error:
                    self.inbox.append(StepRefused(step, str(error)))
            case FinishPlaybook(state, reason, held):
                end = {"state": state.value, "reason": reason, "held": [target.value for target in held]}
                await temporal_runtime.do("finish_playbook", self.flow_ref | end)

    async def _ask(self, activity: str, step: int, stage: StepStage, more: Plain) -> None:
        try:
            answer = await temporal_runtime.do(activity, self.flow_ref | {"step": step} | more)
        except temporal_runtime.ActivityRefused as error:
            answer = {"state": StepState.REFUSED.value, "detail": str(error)}
        detail = answer["detail"]
        done = answer["state"] == StepState.DONE.value
        self.inbox.append(StepDone(step, detail, stage) if done else StepRefused(step, detail, stage))

    async def _wait(self, look: float) -> None:
        """Wait for a message. Worklets report their completion themselves; those that no longer can are polled."""
        while not self.inbox:
            try:
                await workflow.wait_condition(lambda: bool(self.inbox), timeout=timedelta(seconds=look))
            except asyncio.TimeoutError:  # noqa: UP041 - what Temporal raises, by the name it has there
                assert self.playbook is not None  # noqa: S101 - it was loaded before anything is waited for
                ended = await temporal_runtime.do("worklets_ended", self.flow_ref | {"step": self.playbook.at})
                self.inbox.extend(event_from_plain(event) for event in ended)
                look = min(2 * look, temporal_runtime.LAST_LOOK)


def _ends(commands: tuple[Command, ...]) -> bool:
    return any(isinstance(command, FinishPlaybook) for command in commands)
