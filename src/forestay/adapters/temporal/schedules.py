"""Schedules on Temporal: each start is a small workflow that starts the run and lives as long as the run.

Temporal is the only place where schedules are stored, so the list always matches what is executed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleDescription,
    ScheduleHandle,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleState,
    ScheduleUpdate,
    ScheduleUpdateInput,
)

from forestay.adapters.temporal.flow_engine import ANSWER, TemporalFlowEngine, searched, translated
from forestay.adapters.temporal.workflows import temporal_runtime
from forestay.domain.flows.schedule import Overlap, RunSchedule
from forestay.ports.errors import NotFound
from forestay.ports.flows.schedules import StoredSchedule

OVERLAPS = {
    Overlap.SKIP: ScheduleOverlapPolicy.SKIP,
    Overlap.BUFFER_ONE: ScheduleOverlapPolicy.BUFFER_ONE,
    Overlap.BUFFER_ALL: ScheduleOverlapPolicy.BUFFER_ALL,
    Overlap.ALLOW: ScheduleOverlapPolicy.ALLOW_ALL,
}
"""Temporal's policies that cancel or terminate are excluded: a run is ended by its own verbs, so that it is compensated."""
SHOWN = 10
T = TypeVar("T")


class TemporalSchedules:
    """Implements the port `Schedules`."""

    def __init__(self, engine: TemporalFlowEngine) -> None:
        self.engine = engine

    async def put_schedule(self, tenant: str, owner: str, schedule: RunSchedule, *, flow_name: str) -> bool:
        client = await self.engine.client()
        plain = _as_plain(tenant, owner, schedule, flow_name, self.engine)
        attributes = temporal_runtime.attributes(
            temporal_runtime.TENANT.value_set(tenant), temporal_runtime.OWNER.value_set(owner)
        )
        with translated():
            try:
                await client.create_schedule(
                    schedule_id(tenant, schedule.name),
                    _schedule(plain, schedule, self.engine.task_queue),
                    search_attributes=attributes,
                    rpc_timeout=ANSWER,
                )
            except ScheduleAlreadyRunningError:
                pass
            else:
                return True

            async def changed(seen: ScheduleUpdateInput) -> ScheduleUpdate:
                before = await _plain(seen.description)
                kept = plain | {"owner": before["owner"]}
                return ScheduleUpdate(_schedule(kept, schedule, self.engine.task_queue))

            await (await self._handle(tenant, schedule.name)).update(changed, rpc_timeout=ANSWER)
        return False

    async def get_schedule(self, tenant: str, name: str) -> StoredSchedule:
        return await self._with(tenant, name, _described)

    async def find_schedules(self, tenant: str) -> Sequence[StoredSchedule]:
        client = await self.engine.client()
        found: list[StoredSchedule] = []
        with translated():
            query = f"{temporal_runtime.TENANT.name} = '{searched(tenant)}'"
            names = [entry.id async for entry in await client.list_schedules(query)]
            for name in names:
                if name.startswith(schedule_id(tenant, "")):
                    try:
                        found.append(await _described(client.get_schedule_handle(name)))
                    except NotFound:
                        continue  # the list is up to a second old
        return sorted(found, key=lambda stored: stored.schedule.name)

    async def pause_schedule(self, tenant: str, name: str, *, paused: bool, note: str) -> None:
        async def pause(handle: ScheduleHandle) -> None:
            if paused:
                await handle.pause(note=note, rpc_timeout=ANSWER)
            else:
                await handle.unpause(note=note, rpc_timeout=ANSWER)

        await self._with(tenant, name, pause)

    async def trigger_schedule(self, tenant: str, name: str) -> None:
        async def trigger(handle: ScheduleHandle) -> None:
            await handle.trigger(overlap=ScheduleOverlapPolicy.ALLOW_ALL, rpc_timeout=ANSWER)

        await self._with(tenant, name, trigger)

    async def delete_schedule(self, tenant: str, name: str) -> None:
        await self._with(tenant, name, lambda handle: handle.delete(rpc_timeout=ANSWER))

    async def _with(self, tenant: str, name: str, do: Callable[[ScheduleHandle], Awaitable[T]]) -> T:
        with translated():
            return await do(await self._handle(tenant, name))

    async def _handle(self, tenant: str, name: str) -> ScheduleHandle:
        client: Client = await self.engine.client()
        return client.get_schedule_handle(schedule_id(tenant, name))


def schedule_id(tenant: str, name: str) -> str:
    return f"forestay-schedule:{tenant}:{name}"


def _schedule(plain: dict[str, Any], schedule: RunSchedule, queue: str) -> Schedule:
    name = schedule_id(plain["tenant"], schedule.name)
    attributes = temporal_runtime.attributes(
        temporal_runtime.TENANT.value_set(plain["tenant"]), temporal_runtime.OWNER.value_set(plain["owner"])
    )
    return Schedule(
        action=ScheduleActionStartWorkflow(
            temporal_runtime.SCHEDULED_RUN, plain, id=name, task_queue=queue, typed_search_attributes=attributes
        ),
        spec=ScheduleSpec(cron_expressions=schedule.cron, time_zone_name=schedule.time_zone),
        policy=SchedulePolicy(overlap=OVERLAPS[schedule.overlap], catchup_window=timedelta(seconds=schedule.catch_up)),
        state=ScheduleState(note=schedule.note, paused=schedule.paused),
    )


def _as_plain(
    tenant: str, owner: str, schedule: RunSchedule, flow_name: str, engine: TemporalFlowEngine
) -> dict[str, Any]:
    """The argument of each start: the parts of the schedule that Temporal itself need not know."""
    return {
        "tenant": tenant,
        "owner": owner,
        "schedule": schedule.name,
        "flow": schedule.flow,
        "flow_name": flow_name,
        "params": dict(schedule.params),
        "time_zone": schedule.time_zone,
        "cron": list(schedule.cron),
        "look": engine.limits.look,
    }


async def _plain(description: ScheduleDescription) -> dict[str, Any]:
    action = description.schedule.action
    assert isinstance(action, ScheduleActionStartWorkflow)  # noqa: S101 - we made it
    (payload,) = await description.data_converter.decode(action.args, [dict])
    return dict(payload)


async def _described(handle: ScheduleHandle) -> StoredSchedule:
    description = await handle.describe(rpc_timeout=ANSWER)
    plain = await _plain(description)
    policy, state, info = description.schedule.policy, description.schedule.state, description.info
    schedule = replace(
        from_plain(plain),
        catch_up=round((policy.catchup_window or timedelta()).total_seconds()),
        overlap=next(overlap for overlap, known in OVERLAPS.items() if known == policy.overlap),
        paused=state.paused,
        note=state.note or "",
    )
    return StoredSchedule(
        schedule,
        plain["owner"],
        plain["flow_name"],
        next=[] if state.paused else [_millis(at) for at in info.next_action_times[:SHOWN]],
        recent=[_millis(action.scheduled_at) for action in reversed(info.recent_actions[-SHOWN:])],
        missed=info.num_actions_missed_catchup_window,
        skipped=info.num_actions_skipped_overlap,
    )


def from_plain(plain: dict[str, Any]) -> RunSchedule:
    """The schedule from the argument of a start."""
    return RunSchedule(
        plain["schedule"], plain["flow"], tuple(plain["cron"]), params=plain["params"], time_zone=plain["time_zone"]
    )


def _millis(at: datetime) -> int:
    return round(at.timestamp() * 1000)
