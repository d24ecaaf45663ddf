"""The activities of playbook workflows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio import activity

from forestay.adapters.temporal.activity_errors import refusing
from forestay.adapters.temporal.workflows.temporal_runtime import Plain
from forestay.domain.playbooks.playbook import playbook_as_plain
from forestay.domain.playbooks.playbook_run import PlaybookRunState, StepEnd, event_as_plain
from forestay.services.exceptions.act.playbook_runner import PlaybookRunner
from forestay.services.exceptions.act.worklet_runner import WorkletRunner


@dataclass(slots=True)
class PlaybookActivities:
    """Bound to the service of one orchestrator."""

    playbooks: PlaybookRunner
    worklets: WorkletRunner

    def all(self) -> Sequence[Callable[..., Any]]:
        return (
            self.load_playbook,
            self.do_playbook_step,
            self.start_worklets,
            self.take_back,
            self.worklets_ended,
            self.finish_playbook,
        )

    @activity.defn(name="load_playbook")
    async def load_playbook(self, payload: Plain) -> Plain:
        with refusing():
            return playbook_as_plain(await self.playbooks.playbook(payload["incident"], payload["n"]))

    @activity.defn(name="do_playbook_step")
    async def do_playbook_step(self, payload: Plain) -> Plain:
        with refusing():
            end = await self.playbooks.do_step(
                payload["incident"], payload["n"], payload["step"], release=payload["release"]
            )
        return _end(end)

    @activity.defn(name="start_worklets")
    async def start_worklets(self, payload: Plain) -> None:
        with refusing():
            await self.worklets.start_worklets(payload["incident"], payload["n"], payload["step"])

    @activity.defn(name="take_back")
    async def take_back(self, payload: Plain) -> Plain:
        with refusing():
            return _end(await self.worklets.take_back(payload["incident"], payload["n"], payload["step"]))

    @activity.defn(name="worklets_ended")
    async def worklets_ended(self, payload: Plain) -> list[Plain]:
        with refusing():
            ended = await self.worklets.worklets_ended(payload["incident"], payload["n"], payload["step"])
        return [event_as_plain(event) for event in ended]

    @activity.defn(name="finish_playbook")
    async def finish_playbook(self, payload: Plain) -> None:
        with refusing():
            await self.playbooks.finish(
                payload["incident"],
                payload["n"],
                PlaybookRunState(payload["state"]),
                reason=payload["reason"],
                held=payload["held"],
            )


def _end(end: StepEnd) -> Plain:
    return {"state": end.state.value, "detail": end.detail}
