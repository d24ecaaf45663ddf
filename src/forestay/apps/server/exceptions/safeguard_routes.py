"""Routes of the safeguards: the emergency stop, the groups of storms, the limits."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Response
from pydantic import Field

from forestay.apps.server.http.answers import Out, Time, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import Operator, RequestContext, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Model, Reason
from forestay.domain.exceptions.safeguards.rate_limit import pass_time
from forestay.domain.exceptions.safeguards.safeguards import EVERY_TENANT, Stop
from forestay.domain.exceptions.safeguards.storm import StormGroup
from forestay.formats.jobs.job_public import time_text
from forestay.ports.operations.identity import Principal, Role

router = Router(prefix="/v1", tags=["safeguards"])


class StopOut(Out):
    everywhere: bool
    """In all tenants."""
    by: str
    why: str
    at: Time


class StopsOut(Out):
    stops: list[StopOut]
    """The stops that apply here; none: rules may act."""


class CanaryOut(Out):
    rule: str
    """Empty: the default retry policy."""
    fingerprint: str
    """The error that it is tried on; empty: all errors together that are not tried on their own."""
    state: Literal["trying", "all", "held"]
    step: int
    pending: list[str]
    """Actions with a pending outcome, each a job and its attempt."""
    well: int
    bad: int


class StormGroupOut(Out):
    id: str
    trait: Literal["cause", "site", "host"]
    value: str
    opened: Time
    failures: int
    held: bool
    """All tries have failed; it waits for a person."""
    tried: list[CanaryOut]


class LimitOut(Out):
    meter: Literal["global", "owner", "site", "rule", "tenant-hours", "owner-hours"]
    key: str
    allowed: int
    """Acts, or core-seconds."""
    seconds: int
    """The length of the window in seconds."""
    free: int


class SafeguardsOut(StopsOut):
    groups: list[StormGroupOut]
    limits: list[LimitOut]
    """Limits that were ever used; tokens leased by a handler are not free."""


class StopIn(Model):
    reason: Reason = Field(min_length=1)
    everywhere: bool = False
    """In all tenants; for administrators of the administrative tenant's own tenant."""


class StormGroupIn(Model):
    group: Annotated[str, Field(min_length=1, max_length=500)]
    rule: Annotated[str, Field(max_length=500)] = ""
    fingerprint: Annotated[str, Field(max_length=64)] | None = None
    """The error whose try it is; left out: each error that the rule is tried on."""
    do: Literal["try", "all"]
    """Try one again, or let all through."""
    reason: Reason = Field(min_length=1)


def _stops(stops: tuple[Stop, ...]) -> list[dict[str, object]]:
    return [
        {"everywhere": stop.tenant == EVERY_TENANT, "by": stop.by, "why": stop.why, "at": time_text(stop.at)}
        for stop in stops
    ]


def _group(group: StormGroup) -> dict[str, object]:
    return {
        "id": group.id,
        "trait": group.key.trait.value,
        "value": group.key.value,
        "opened": time_text(group.opened),
        "failures": group.failures,
        "held": group.held,
        "tried": [
            {
                "rule": trial.rule,
                "fingerprint": trial.fingerprint,
                "state": "held" if canary.held else "all" if canary.open_to_all else "trying",
                "step": canary.step,
                "pending": list(canary.pending),
                "well": canary.well,
                "bad": canary.bad,
            }
            for trial, canary in group.canaries.items()
        ],
    }


def _where(context: RequestContext, who: Principal, body: StopIn) -> str:
    if not body.everywhere:
        return who.tenant
    admin = context.services.components.settings.admin_tenant
    if who.tenant != admin or not who.may(Role.ADMINISTRATOR):
        raise HttpProblem(403, f"only an administrator of tenant {admin} may stop or resume all tenants")
    return EVERY_TENANT


async def _answer(context: RequestContext, who: Principal) -> Response:
    return json_answer({"stops": _stops(tuple(await context.services.components.stops.stops(who.tenant)))})


@router.get("/safeguards", response_model=SafeguardsOut, responses=errors())
async def read_safeguards(context: TheDesk, who: Viewer) -> Response:
    """The safeguards of the tenant: stops, groups of storms, limits."""
    parts = context.services.components
    now = parts.clock.now()
    limits = [
        {
            "meter": name.meter.value,
            "key": name.key,
            "allowed": bucket.limit.tokens,
            "seconds": bucket.limit.window // 1000,
            "free": pass_time(bucket, now).free,
        }
        for name, bucket in sorted((await parts.safeguards.buckets(who.tenant)).items())
    ]
    groups = [_group(group) for group in await parts.safeguards.storms.groups(who.tenant)]
    stops = _stops(tuple(await parts.stops.stops(who.tenant)))
    return json_answer({"stops": stops, "groups": groups, "limits": limits})


@router.post("/safeguards/stop", response_model=StopsOut, responses=errors(body=True))
async def stop_acts(context: TheDesk, who: Operator, body: StopIn) -> Response:
    """Stop all actions of rules. Failures wait; jobs continue."""
    where = _where(context, who, body)
    # Stop first: an emergency stop must not wait for the log.
    await context.services.components.stops.stop(where, by=who.subject, why=body.reason)
    await context.note(who, "safeguard.stop", "all tenants" if body.everywhere else who.tenant, why=body.reason)
    return await _answer(context, who)


@router.post("/safeguards/go", response_model=StopsOut, responses=errors(409, body=True))
async def let_acts_go_on(context: TheDesk, who: Operator, body: StopIn) -> Response:
    """Let rules act again."""
    where = _where(context, who, body)
    await context.note(who, "safeguard.go", "all tenants" if body.everywhere else who.tenant, why=body.reason)
    await context.services.components.stops.go(where)
    return await _answer(context, who)


@router.post("/safeguards/groups", response_model=StormGroupOut, responses=errors(404, body=True))
async def decide_group(context: TheDesk, who: Operator, body: StormGroupIn) -> Response:
    """Decide whether a rule tries again, or acts on all, in a held group of a storm."""
    storms = context.services.components.safeguards.storms
    decide = storms.try_again if body.do == "try" else storms.let_all
    await context.note(who, f"group.{body.do}", body.group, why=body.reason, rule=body.rule)
    group = await decide(who.tenant, body.group, body.rule, body.fingerprint)
    await context.services.components.recovery.wake(who.tenant, body.group)
    return json_answer(_group(group))
