"""What the workflows of exlets have done outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio import activity

from forestay.adapters.temporal.activity_errors import refusing
from forestay.adapters.temporal.workflows.temporal_runtime import Plain
from forestay.domain.exlets.exlet_plain import exlet_as_plain
from forestay.domain.exlets.exlet_run import PlaybookRunState, StepEnd, event_as_plain
from forestay.services.exceptions.act.playbook_runner import PlaybookRunner


@dataclass(slots=True)
class ExletActivities:
    """Bound to the service of one worker."""

    exlets: PlaybookRunner

    def all(self) -> Sequence[Callable[..., Any]]:
        return (
            self.load_exlet,
            self.do_exlet_step,
            self.start_worklets,
            self.take_back,
            self.worklets_ended,
            self.finish_exlet,
        )

    @activity.defn(name="load_exlet")
    async def load_exlet(self, given: Plain) -> Plain:
        with refusing():
            return exlet_as_plain(await self.exlets.exlet(given["incident"], given["n"]))

    @activity.defn(name="do_exlet_step")
    async def do_exlet_step(self, given: Plain) -> Plain:
        with refusing():
            end = await self.exlets.do_step(given["incident"], given["n"], given["step"], release=given["release"])
        return _end(end)

    @activity.defn(name="start_worklets")
    async def start_worklets(self, given: Plain) -> None:
        with refusing():
            await self.exlets.start_worklets(given["incident"], given["n"], given["step"])

    @activity.defn(name="take_back")
    async def take_back(self, given: Plain) -> Plain:
        with refusing():
            return _end(await self.exlets.take_back(given["incident"], given["n"], given["step"]))

    @activity.defn(name="worklets_ended")
    async def worklets_ended(self, given: Plain) -> list[Plain]:
        with refusing():
            ended = await self.exlets.worklets_ended(given["incident"], given["n"], given["step"])
        return [event_as_plain(one) for one in ended]

    @activity.defn(name="finish_exlet")
    async def finish_exlet(self, given: Plain) -> None:
        with refusing():
            await self.exlets.finish(
                given["incident"],
                given["n"],
                PlaybookRunState(given["state"]),
                reason=given["reason"],
                held=given["held"],
            )


def _end(end: StepEnd) -> Plain:
    return {"state": end.state.value, "detail": end.detail}
