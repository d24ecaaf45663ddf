"""Routes for late-bound tasks: which flow such a task runs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Response
from pydantic import Field

from forestay.apps.server.flows.flow_routes import Version, engine_of
from forestay.apps.server.http.answers import Out, Time, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import Operator, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Id, Model, PlainValue
from forestay.formats.jobs.job_public import time_text
from forestay.services.rules.worklet_bindings import WorkletBinding
from forestay.services.rules.worklet_replacement import WorkletReplacement

router = Router(prefix="/v1", tags=["runs"])
LateBoundTask = Annotated[str, Path(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,99}$")]


class LateBoundTaskIn(Model):
    flow: Version
    params: dict[Annotated[str, Field(max_length=200)], PlainValue] = Field(default_factory=dict, max_length=1000)
    """Parameters that override those of the task."""


class LateBoundTaskOut(Out):
    task: str
    flow: str
    params: dict[str, Any]
    by: str
    at: Time


class ChooseIn(Model):
    id: Id | None = None
    """The same in every repeat; one is made if it is left out."""


class ChosenOut(Out):
    replaced: bool
    detail: str
    """Why not, in words."""
    flow: str
    """The flow that runs now."""
    id: str


class LateBoundTasksOut(Out):
    late_bound_tasks: list[LateBoundTaskOut]


def _shown(binding: WorkletBinding) -> dict[str, object]:
    return {
        "task": binding.late_bound,
        "flow": binding.flow,
        "params": binding.params,
        "by": binding.by,
        "at": time_text(binding.at),
    }


@router.get("/late-bound-tasks", response_model=LateBoundTasksOut, responses=errors())
async def find_places(context: TheDesk, who: Viewer) -> Response:
    """Every place that has a flow."""
    return json_answer(
        {"late_bound_tasks": [_shown(binding) for binding in await context.services.worklets.all(who.tenant)]}
    )


@router.put("/late-bound-tasks/{task}", response_model=LateBoundTaskOut, responses=errors(400, 404, body=True))
async def bind_late_bound_task(context: TheDesk, who: Operator, task: LateBoundTask, body: LateBoundTaskIn) -> Response:
    """Bind a stored flow to a place: tasks that begin from now on run it."""
    await context.note(who, "late-bound.bind", task, flow=body.flow)
    binding = WorkletBinding(task, body.flow, dict(body.params), who.subject, context.services.components.clock.now())
    await context.services.worklets.bind(who.tenant, binding)
    return json_answer(_shown(binding))


@router.post("/runs/{run}/tasks/{task}/choose", response_model=ChosenOut, responses=errors(404, 409, 501, body=True))
async def choose_again(context: TheDesk, who: Operator, run: str, task: str, body: ChooseIn) -> Response:
    """Choose again for a running late-bound task: the rules are evaluated first, and only if they choose another flow is the running one replaced."""
    parts = context.services.components
    engine = engine_of(context)
    await context.note(who, "task.choose", run, task=task)
    replacing = WorkletReplacement(engine, parts.flows, context.services.worklets)
    order = body.id or parts.ids.claim()
    done = await replacing.replace(who.tenant, run, task, order=order, at=parts.clock.now(), by=who.subject)
    return json_answer({"replaced": done.done, "detail": done.detail, "flow": done.flow, "id": order})


@router.delete("/late-bound-tasks/{task}", response_model=LateBoundTaskOut, responses=errors(404))
async def unbind_late_bound_task(context: TheDesk, who: Operator, task: LateBoundTask) -> Response:
    """Remove the binding of a place; returns the removed binding."""
    before = await context.services.worklets.binding(who.tenant, task)
    if before is None:
        raise HttpProblem(404, f"no flow is bound to {task}")
    await context.note(who, "late-bound.unbind", task)
    await context.services.worklets.bind(
        who.tenant, WorkletBinding(task, "", {}, who.subject, context.services.components.clock.now())
    )
    return json_answer(_shown(before))
