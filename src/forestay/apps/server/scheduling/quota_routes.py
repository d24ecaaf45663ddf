"""Routes for quotas: limits and shares of owners and teams, who is in which team, and what is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Path, Response
from pydantic import Field

from forestay.apps.server.http.answers import NothingOut, Out, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import Operator, RequestContext, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Model
from forestay.domain.scheduling.quota import QuotaKind, QuotaLimits, QuotaPolicy, QuotaSubject
from forestay.formats.jobs.job_json import Json
from forestay.ports.errors import Conflict
from forestay.ports.operations.identity import Principal
from forestay.services.scheduling.quota_ledgers import QuotaState

router = Router(prefix="/v1/quotas", tags=["quotas"])
SubjectName = Annotated[
    str,
    Path(
        pattern=r"^([A-Za-z0-9._@+-]+|\*)$",
        max_length=64,
        description="An owner or a team; `*`: each one that has no limits of its own.",
    ),
]
OwnerName = Annotated[str, Path(pattern=r"^[A-Za-z0-9._@+-]+$", max_length=64, description="An owner of jobs.")]
MOST = 1_000_000
LONGEST = 366 * 86_400


class QuotaIn(Model):
    jobs: int | None = Field(None, ge=0, le=MOST, description="The most running jobs; null: no limit.")
    cpus: int | None = Field(None, ge=0, le=MOST, description="The most cores in use.")
    gpus: int | None = Field(None, ge=0, le=MOST, description="The most GPUs in use.")
    share: float | None = Field(
        None, ge=0.001, le=1_000_000, description="The share beside others; null: 1. Only with a half-life."
    )


class MemberIn(Model):
    team: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._@+-]+$")]


class FairShareIn(Model):
    half_life: int = Field(
        ge=0, le=LONGEST, description="Seconds after which past use counts half; 0: owners take turns."
    )


class QuotaUseOut(Out):
    jobs: int
    cpus: int
    gpus: int


class QuotaOut(Out):
    kind: str
    """`owner` or `team`."""
    name: str
    jobs: int | None
    cpus: int | None
    gpus: int | None
    share: float | None
    used: QuotaUseOut


class MemberOut(Out):
    owner: str
    team: str


class ShareUseOut(Out):
    owner: str
    team: str
    running: float
    """Cores that its jobs use now; jobs of similar size are counted with the cores of the largest."""
    recent: float
    """Cores that its jobs used on average; the half-life says how fast older use is forgotten."""


class QuotasOut(Out):
    quotas: list[QuotaOut]
    members: list[MemberOut]
    half_life: int
    shares: list[ShareUseOut]


class FairShareOut(Out):
    half_life: int


@router.get("", response_model=QuotasOut, responses=errors())
async def quotas(context: TheDesk, who: Viewer) -> Response:
    """The quotas, teams and shares of the tenant, with what is used."""
    services = context.services
    policy = await services.quotas.policies.read(who.tenant)
    return json_answer(
        {
            "quotas": [_shown(state) for state in await services.quotas.states(who.tenant)],
            "members": [{"owner": owner, "team": team} for owner, team in sorted(policy.teams.items())],
            "half_life": policy.half_life,
            "shares": [
                {
                    "owner": owner,
                    "team": policy.teams.get(owner, ""),
                    "running": use.running,
                    "recent": round(use.recent, 3),
                }
                for owner, use in services.shares.uses(who.tenant).items()
            ],
        }
    )


@router.put("/members/{owner}", response_model=MemberOut, responses=errors(409, body=True))
async def put_member(context: TheDesk, who: Operator, owner: OwnerName, body: MemberIn) -> Response:
    """Put an owner into a team; it leaves the one in which it was."""
    await context.note(who, "set team", owner, why=body.team)
    await _changed(context, who, lambda policy: policy.with_member(owner, body.team))
    return json_answer({"owner": owner, "team": body.team})


@router.delete("/members/{owner}", response_model=NothingOut, responses=errors(404))
async def remove_member(context: TheDesk, who: Operator, owner: OwnerName) -> Response:
    """Take an owner out of its team."""
    await context.note(who, "remove from team", owner)
    if owner not in (await context.services.quotas.policies.read(who.tenant)).teams:
        raise HttpProblem(404, f"{owner} is in no team")
    await _changed(context, who, lambda policy: policy.with_member(owner, ""))
    return json_answer({})


@router.put("/fair-share", response_model=FairShareOut, responses=errors(409, body=True))
async def put_fair_share(context: TheDesk, who: Operator, body: FairShareIn) -> Response:
    """Set how fast past use is forgotten in the fair share of the tenant."""
    await context.note(who, "set fair share", "half-life", why=f"{body.half_life} seconds")
    await _changed(context, who, lambda policy: policy.with_half_life(body.half_life))
    return json_answer({"half_life": body.half_life})


@router.put("/{kind}/{name}", response_model=QuotaOut, responses=errors(409, body=True))
async def put(context: TheDesk, who: Operator, kind: QuotaKind, name: SubjectName, body: QuotaIn) -> Response:
    """Set the limits of an owner or a team. Running jobs go on."""
    subject, limits = QuotaSubject(kind, name), QuotaLimits(body.jobs, body.cpus, body.gpus, body.share)
    if limits == QuotaLimits():
        raise HttpProblem(422, "state at least one limit, or the share")
    stated = {name: value for name, value in body.model_dump().items() if value is not None}
    await context.note(who, "set quota", str(subject), **stated)
    await _changed(context, who, lambda policy: policy.having(subject, limits))
    states = await context.services.quotas.states(who.tenant)
    return json_answer(next(_shown(state) for state in states if state.subject == subject))


@router.delete("/{kind}/{name}", response_model=NothingOut, responses=errors(404))
async def remove(context: TheDesk, who: Operator, kind: QuotaKind, name: SubjectName) -> Response:
    """Remove the limits and the share of an owner or a team."""
    subject = QuotaSubject(kind, name)
    await context.note(who, "remove quota", str(subject))
    if subject not in (await context.services.quotas.policies.read(who.tenant)).limits:
        raise HttpProblem(404, f"there is no quota of {kind} {name}")
    await _changed(context, who, lambda policy: policy.having(subject, None))
    return json_answer({})


async def _changed(context: RequestContext, who: Principal, change: Callable[[QuotaPolicy], QuotaPolicy | str]) -> None:
    try:
        await context.services.quotas.change(who.tenant, change)
    except Conflict as error:
        raise HttpProblem(409, str(error)) from error


def _shown(state: QuotaState) -> Json:
    limits = state.limits
    return {
        "kind": state.subject.kind,
        "name": state.subject.name,
        "jobs": limits.jobs,
        "cpus": limits.cpus,
        "gpus": limits.gpus,
        "share": limits.share,
        "used": state.used._asdict(),
    }
