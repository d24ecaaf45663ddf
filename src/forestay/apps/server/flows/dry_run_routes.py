"""The route for a dry run: what a run would do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Response
from pydantic import Field

from forestay.apps.server.flows.flow_routes import FlowName, FlowText, Version, flow_of_text
from forestay.apps.server.http.answers import Out, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import RequestContext, Submitter, TheDesk, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Model, PlainValue
from forestay.apps.server.jobs.job_answers import ResourcesOut
from forestay.domain.flows.definition.flow_plan import FlowPlan
from forestay.domain.flows.definition.flow_version import planned
from forestay.domain.flows.execution.grown import grown_plan
from forestay.domain.rules.rule_count import count_rules
from forestay.ports.errors import Permanent
from forestay.ports.operations.identity import Principal
from forestay.services.flows.run_starter import check_params

router = Router(prefix="/v1", tags=["runs"])


class DryRunIn(Model):
    flow: Version | FlowName | None = None
    """The version of a stored flow, or the name of a Python flow."""
    text: FlowText | None = None
    """Or a flow in YAML or JSON, which is not stored."""
    params: dict[Annotated[str, Field(max_length=200)], PlainValue] = Field(default_factory=dict, max_length=1000)


class InputCheckOut(Out):
    checked: int
    """Input files that were checked, each once; for the first 1,000 jobs."""
    missing: list[str]
    """The first missing ones."""
    missing_count: int
    elsewhere: int
    """The number that cannot be checked from here."""
    later: list[str]
    """Names of inputs that earlier tasks produce."""


class ReuseForecastOut(Out):
    reused: int
    run: int
    open: int
    """Jobs of which it is not known before the run."""
    why: str


class TaskRetryOut(Out):
    max_attempts: int
    wait: int
    when_exhausted: str


class PlannedTaskOut(Out):
    name: str
    kind: str
    inside: list[str]
    branch: str
    after: list[str]
    condition: str
    runs: bool | None
    """Whether its condition holds; null: not known before the run."""
    jobs: int | None
    """Its jobs, or the runs of its sub-flow, in one round; null: not known before the run."""
    open: str
    """Why the number is not known."""
    rounds: int
    resources: ResourcesOut | None
    retry: TaskRetryOut | None
    when_failed: str
    tolerate: int
    inputs: InputCheckOut | None
    reuse: ReuseForecastOut | None


class RuleCountOut(Out):
    rule_set: str
    type: str
    task: str
    """Empty: the run as a whole; `*`: every task."""
    active: int
    shadow: int


class DryRunOut(Out):
    name: str
    version: str
    params: dict[str, Any]
    problems: list[str]
    """Why the run could not be started with these parameters."""
    reuse: bool
    grown: bool
    """The tasks become known only in the run itself, as for a Python flow."""
    tasks: list[PlannedTaskOut]
    """Each after those that it waits for."""
    jobs: int
    missing: int
    holders: list[str]
    """Who holds all runs of the flow: the run would start and wait."""
    rules: list[RuleCountOut]
    free_tries: list[int]
    """Seconds before each retry after an infrastructure failure, where no rule answers."""


@router.post("/runs/dry-run", response_model=DryRunOut, responses=errors(404, body=True))
async def dry_run(context: TheDesk, who: Submitter, body: DryRunIn) -> Response:
    """What a run would do: its tasks in order, their jobs, resources and missing inputs, results that would be reused, the rules that would be evaluated. Nothing is stored or started."""
    services = context.services
    plan, known, needed = await _plan(context, who, body)
    problems: list[str] = []
    try:
        check_params(known.keys(), needed, body.params)
    except Permanent as error:
        problems.append(str(error))
    params: Mapping[str, object] = {name: value for name, value in body.params.items() if name in known}
    forecast = await services.dry_runner.dry_run(
        plan, {**known, **params}, tenant=who.tenant, owner=who.subject, problems=problems
    )
    await services.rule_cache.refresh()
    sets = services.rule_cache.sets_for(who.tenant, plan.flow.name)
    suspension = await services.suspensions.suspension(who.tenant, plan.version)
    return json_answer(
        asdict(forecast)
        | {"jobs": forecast.jobs, "missing": forecast.missing, "holders": list(suspension.holders)}
        | {"rules": [count._asdict() for count in count_rules(sets, plan.tasks)]}
        | {"free_tries": list(services.components.settings.free_tries)}
    )


async def _plan(
    context: RequestContext, who: Principal, body: DryRunIn
) -> tuple[FlowPlan, Mapping[str, object], list[str]]:
    """The flow, its parameters with their defaults, and the required ones."""
    parts = context.services.components
    if (body.flow is None) == (body.text is None):
        raise HttpProblem(422, "give either flow or text")
    if body.text is not None:
        plan = planned(flow_of_text(body.text))
    elif re.fullmatch(r"[0-9a-f]{64}", body.flow or ""):
        plan = await parts.flows.plan(who.tenant, body.flow or "")
    else:
        python = parts.folder.flows().get(body.flow or "")
        if python is None:
            raise HttpProblem(404, f"there is no Python flow {body.flow}; GET /v1/flows lists all")
        return grown_plan(python.name, python.version), {**dict.fromkeys(python.needed), **python.params}, list(python.needed)  # fmt: skip
    if plan.grown:
        grown = await parts.flows.grown(who.tenant, plan.version)
        return plan, {**dict.fromkeys(grown.needed), **grown.params}, list(grown.needed)
    known = plan.flow.params
    return plan, known, [name for name, default in known.items() if default is None]
