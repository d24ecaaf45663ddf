"""Schedules of runs: validated before they are stored; their runs are started by the same service as all others."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from forestay.domain.flows.schedule import RunSchedule, check_schedule, params_at, start_key
from forestay.ports.clock import Clock
from forestay.ports.errors import NotFound, Permanent
from forestay.ports.flows.schedules import Schedules
from forestay.services.flows.run_starter import RunStarter


@dataclass(slots=True)
class RunSchedules:
    """The service."""

    kept: Schedules
    starter: RunStarter
    clock: Clock

    async def put(self, tenant: str, owner: str, schedule: RunSchedule) -> bool:
        """Create or replace a schedule; False: it existed already. `Permanent`: it has errors, which the message lists; `NotFound`: its flow is not stored."""
        problems = [f"{problem.where}: {problem.message}" for problem in check_schedule(schedule)]
        if problems:
            raise Permanent("; ".join(problems))
        params = params_at(schedule, _planned(schedule, self.clock.now()))
        plan, _ = await self.starter.checked(schedule.flow, params, tenant=tenant)
        return await self.kept.put_schedule(tenant, owner, schedule, flow_name=plan.flow.name)

    async def start(self, tenant: str, owner: str, schedule: RunSchedule, *, at: int, starter: str) -> str:
        """Start the run planned for a time; a repeat finds the same run. ``starter`` is notified of its end."""
        started = await self.starter.start(
            schedule.flow,
            params_at(schedule, _planned(schedule, at)),
            tenant=tenant,
            owner=owner,
            key=start_key(schedule.name, at),
            schedule=schedule.name,
            parent={"run": starter, "work": "schedule", "index": 0},
        )
        return started.run

    async def has_ended(self, run: str) -> bool:
        """Whether a run has ended, or is not known any more."""
        try:
            return (await self.starter.engine.describe(run)).ended is not None
        except NotFound:
            return True


def _planned(schedule: RunSchedule, at: int) -> datetime:
    try:
        return datetime.fromtimestamp(at / 1000, ZoneInfo(schedule.time_zone))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Permanent("time_zone: there is no such time zone; use a name such as Europe/Berlin") from None
