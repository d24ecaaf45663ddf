"""The route of right-sizing: the resources that jobs would have requested."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from forestay.apps.server.http.answers import Out, errors
from forestay.apps.server.http.request_context import TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.services.operations.right_sizing import TaskSizes

router = Router(tags=["watch"])
GIB_HOUR = float((1 << 30) * 3600)


class SizeRangeOut(Out):
    up_to: int
    """Bytes of all inputs together."""
    jobs: int
    memory: int | None
    """Bytes; null: there is no figure."""
    wall: int | None
    """Seconds."""


class BacktestOut(Out):
    """The newer half of the jobs, had they asked by what the older half used."""

    jobs: int
    failed: int
    """Jobs that would have run out of memory, though they had enough."""
    wasted: float
    """GiB-hours of memory that were requested and not used."""
    would_waste: float


class TaskSizesOut(Out):
    flow: str
    """Empty: jobs that were submitted one by one."""
    task: str
    jobs: int
    """Jobs that were measured: the newest, at most 1,000."""
    out_of_memory: int
    asked_memory: int
    """What most of them requested, in bytes; 0: they stated none."""
    asked_wall: int | None
    memory: int | None
    """What they would have requested; null: too few were measured, or too many ran out of memory."""
    wall: int | None
    by_input: list[SizeRangeOut]
    backtest: BacktestOut | None


class SizesOut(Out):
    tasks: list[TaskSizesOut]
    """Those with the most to save first."""
    read: int
    """Jobs that were read: those that ended last."""
    whole: bool
    """Whether those are all that there are."""


@router.get("/v1/sizes", response_model=SizesOut, responses=errors())
async def sizes(
    context: TheDesk,
    who: Viewer,
    task: Annotated[str, Query(max_length=200, description="The name of a task, or of jobs.")] = "",
    flow: Annotated[
        str | None, Query(max_length=200, description="The name of a flow; empty: jobs of no flow.")
    ] = None,
) -> Response:
    """What jobs would have requested, by what the newest of them used. Advice only: nothing acts on it. Up to 15 seconds old."""
    report = await context.services.right_sizing.report(who.tenant, task=task, flow=flow)
    tasks = [_shown(sizes) for sizes in report.tasks]
    return json_answer({"tasks": tasks, "read": report.read, "whole": report.whole})


def _shown(task_sizes: TaskSizes) -> dict[str, object]:
    advice = task_sizes.advice
    sizes, backtest = advice.sizes, advice.backtest
    return {
        "flow": task_sizes.flow,
        "task": task_sizes.task,
        "jobs": advice.jobs,
        "out_of_memory": advice.out_of_memory,
        "asked_memory": advice.asked_memory,
        "asked_wall": advice.asked_wall,
        "memory": sizes.memory if sizes else None,
        "wall": sizes.wall if sizes else None,
        "by_input": [part._asdict() for part in sizes.ranges] if sizes else [],
        "backtest": {
            "jobs": backtest.jobs,
            "failed": backtest.failed,
            "wasted": round(backtest.wasted / GIB_HOUR, 3),
            "would_waste": round(backtest.would_waste / GIB_HOUR, 3),
        }
        if backtest
        else None,
    }
