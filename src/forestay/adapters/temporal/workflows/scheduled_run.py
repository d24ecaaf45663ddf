"""A start of a schedule as a workflow: it starts the run and lives as long as the run, so that Temporal can detect overlaps."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey

from forestay.adapters.temporal.workflows import temporal_runtime
from forestay.adapters.temporal.workflows.temporal_runtime import Plain
from forestay.domain.flows.events import RunEnded

PLANNED: SearchAttributeKey[datetime] = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")
"""Set by Temporal: the time for which the start was planned."""


@workflow.defn(name=temporal_runtime.SCHEDULED_RUN)
class ScheduledRunWorkflow:
    """Its argument: ``tenant``, ``owner``, ``schedule``, ``flow``, ``params``, ``cron``, ``time_zone``, ``look``."""

    @workflow.init
    def __init__(self, payload: Plain) -> None:
        self.ended = False

    @workflow.run
    async def run(self, payload: Plain) -> Plain:
        info = workflow.info()
        planned = info.typed_search_attributes.get(PLANNED) or info.start_time
        fields = {**payload, "at": round(planned.timestamp() * 1000), "starter": info.workflow_id}
        try:
            started: str = await temporal_runtime.do("start_scheduled", fields)
        except temporal_runtime.ActivityRefused as error:
            return {"run": "", "reason": str(error)}
        seconds = float(payload["look"])
        while not self.ended:
            try:
                await workflow.wait_condition(lambda: self.ended, timeout=timedelta(seconds=seconds))
            except TimeoutError:
                # A run that was terminated from outside does not report its end.
                seconds = min(2 * seconds, temporal_runtime.LAST_LOOK)
                self.ended = bool(await temporal_runtime.do("run_has_ended", {"run": started}))
        return {"run": started, "reason": ""}

    @workflow.signal(name=temporal_runtime.MESSAGES)
    def messages(self, plain: list[dict[str, Any]]) -> None:
        """Receives the run's completion; other messages are for runs."""
        if any(message.get("type") == RunEnded.__name__ for message in plain):
            self.ended = True
