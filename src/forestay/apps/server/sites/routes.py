"""Routes for sites: the demand on one, its launches, and the state of its agent. Site agents use only these."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Response
from pydantic import AfterValidator, Field

from forestay.apps.server.http.answers import Out, Time, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import RequestContext, SiteCaller, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Id, Model, Name, Word
from forestay.apps.server.jobs.job_answers import ResourcesOut
from forestay.domain.jobs.specification import MAX_NODES
from forestay.domain.sites.fleet import size_for
from forestay.domain.sites.launch import Launch, LaunchEnd, LaunchReport, LaunchState, NotNext, end_to_plain
from forestay.formats.jobs.job_json import resources_to_json
from forestay.formats.jobs.job_public import time_text
from forestay.services.sites.demand_meter import Demand
from forestay.services.sites.site_registry import Site

router = Router(prefix="/v1/sites", tags=["sites"])
SiteName = Annotated[str, Path(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._@+-]+$")]
State = Literal["planned", "submitted", "running", "ended"]
MOST = 1000


def _line(text: str) -> str:
    """One line of another program's output: characters that could manipulate a terminal become blanks."""
    return "".join(char if char.isprintable() else " " for char in text)


Words = Annotated[str, Field(max_length=2000), AfterValidator(_line)]


class SizeIn(Model):
    name: Word
    slots: int = Field(ge=1, le=1024)
    cpus: int = Field(ge=0, le=100_000)
    memory: int = Field(ge=0, le=2**50)
    disk: int = Field(ge=0, le=2**55)
    gpus: int = Field(ge=0, le=100_000)
    wall: int | None = Field(default=None, ge=1, le=31_536_000)
    nodes: int = Field(default=1, ge=1, le=MAX_NODES)


class HelloIn(Model):
    """The report of a site agent at every poll."""

    agent: Id
    host: Name
    version: Annotated[str, Field(max_length=64), AfterValidator(_line)] = ""
    batch: Word
    """The kind of batch system."""
    every: float = Field(gt=0, le=3600)
    """Seconds between its polls."""
    min_pilots: int = Field(ge=0, le=100_000)
    max_pilots: int = Field(ge=0, le=100_000)
    min_idle: int = Field(ge=0, le=100_000)
    sizes: list[SizeIn] = Field(max_length=100)
    trouble: Words = ""
    """What keeps it from its work; empty when nothing does."""
    unfit: list[Annotated[str, Field(max_length=200), AfterValidator(_line)]] = Field(
        default_factory=list, max_length=1000
    )
    """Groups of queued jobs that no size of this site can run."""
    paced: int = Field(default=0, ge=0, le=1_000_000)
    """Pilots that wait for the pace toward the scheduler."""
    run_as: Literal["agent", "submitter"] = "agent"
    """As which Unix user jobs run: the one of the agent, or the one of each job's owner."""
    unmapped: list[Annotated[str, Field(max_length=64), AfterValidator(_line)]] = Field(
        default_factory=list, max_length=1000
    )
    """Owners of queued jobs who have no Unix user at this site."""


class PilotLaunchIn(Model):
    launch: Id
    size: Word
    owner: Word | None = None
    """Its pilot is to run the jobs of this owner only."""


class LaunchPlanIn(Model):
    launches: list[PilotLaunchIn] = Field(min_length=1, max_length=MOST)


class LaunchEndIn(Model):
    word: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_line)]
    reason: Words = ""
    exit_code: int | None = Field(default=None, ge=-(2**31), le=2**32)
    signal: int | None = Field(default=None, ge=0, le=256)
    nodes: list[Annotated[str, Field(max_length=255), AfterValidator(_line)]] = Field(
        default_factory=list, max_length=100
    )
    lost: bool = False


class ReportIn(Model):
    launch: Id
    state: State
    batch_job: Annotated[str, Field(max_length=200), AfterValidator(_line)] = ""
    tries: int = Field(default=1, ge=1, le=1000)
    end: LaunchEndIn | None = None


class ReportsIn(Model):
    reports: list[ReportIn] = Field(min_length=1, max_length=MOST)


class LaunchEndOut(Out):
    word: str
    reason: str
    exit_code: int | None
    signal: int | None
    nodes: list[str]
    lost: bool


class PilotLaunchOut(Out):
    launch: str
    name: str
    """The batch job's name."""
    size: str
    owner: str
    """Whose jobs alone its pilot runs; empty: those of all."""
    state: State
    planned: Time
    changed: Time
    age: float
    """Seconds since it was planned, by the server's clock."""
    tries: int
    tried: float
    """Seconds since the last try to submit it was stored."""
    since: float
    """Seconds since its last change."""
    batch_job: str
    pilot: str
    end: LaunchEndOut | None
    cancel: bool
    """Its pilot fell silent: the agent is to cancel the batch job."""


class PilotLaunchesOut(Out):
    launches: list[PilotLaunchOut]


class TellingOut(Out):
    launch: str
    result: Literal["noted", "refused", "unknown"]
    detail: str
    pilot: str
    """The pilot that registered; empty: none so far."""


class ReportsOut(Out):
    results: list[TellingOut]


class TaskGroupOut(Out):
    name: str
    tasks: int
    need: ResourcesOut
    owner: str
    """Whose they are, at a site that runs jobs as their submitters."""


class PilotCountOut(Out):
    inactive: int
    idle: int
    busy: int


class DemandOut(Out):
    site: str
    groups: list[TaskGroupOut]
    """Queued jobs by resource class, the most urgent first."""
    pilots: PilotCountOut
    sizes: dict[str, PilotCountOut]
    """By size; those that are one owner's by size and owner, with a slash between."""
    leaving: int
    launches: list[PilotLaunchOut]
    """All that have not ended."""


class SiteOut(Out):
    site: str
    agent: str
    host: str
    seen: Time
    overdue: bool
    """Its agent has been silent for too long."""
    every: float
    said: dict[str, Any]


class SitesOut(Out):
    sites: list[SiteOut]


class SiteWholeOut(SiteOut):
    demand: DemandOut
    ended: list[PilotLaunchOut]
    """The last that ended, the newest first, at most 20."""


@router.get("", response_model=SitesOut, responses=errors())
async def find_sites(context: TheDesk, who: Viewer) -> Response:
    """All sites whose agent has ever reported."""
    now = context.services.components.clock.now()
    return json_answer({"sites": [_site(site, now) for site in await context.services.sites.all(who.tenant)]})


@router.get("/{site}", response_model=SiteWholeOut, responses=errors(404))
async def read_site(context: TheDesk, who: Viewer, site: SiteName) -> Response:
    """A site: its agent, its demand, its pilots, its launches."""
    services = context.services
    known = await services.sites.get(who.tenant, site)
    if known is None:
        raise HttpProblem(404, f"there has been no agent for site {site} in tenant {who.tenant}")
    now = services.components.clock.now()
    demand = await services.demand.measure(who.tenant, site)
    ended = sorted(await services.launches.ended(who.tenant, site), key=lambda launch: -launch.changed)[:20]
    shown = {"demand": _demand(site, demand, now), "ended": [_launch(launch, now) for launch in ended]}
    return json_answer(_site(known, now) | shown)


@router.put("/{site}", response_model=SiteOut, responses=errors(409, body=True))
async def hello(context: TheDesk, who: SiteCaller, site: SiteName, body: HelloIn) -> Response:
    """A site agent reports itself. 409: another agent manages this site."""
    fields = body.model_dump(exclude={"agent", "host", "every"})
    returned_site = await context.services.sites.hello(
        who.tenant, site, agent=body.agent, host=body.host, every=body.every, report=fields
    )
    return json_answer(_site(returned_site, returned_site.seen))


@router.get("/{site}/demand", response_model=DemandOut, responses=errors())
async def demand(context: TheDesk, who: SiteCaller, site: SiteName) -> Response:
    """The demand on a site: queued jobs that may run there by their needs, its pilots by state, its open launches."""
    measured = await context.services.demand.measure(who.tenant, site)
    return json_answer(_demand(site, measured, context.services.components.clock.now()))


@router.get("/{site}/launches", response_model=PilotLaunchesOut, responses=errors())
async def find_launches(
    context: TheDesk, who: SiteCaller, site: SiteName, state: Literal["open", "ended"] = "open"
) -> Response:
    """The launches that have not ended, or those that ended in the last six hours and more."""
    keep = context.services.launches
    launches = await (keep.open if state == "open" else keep.ended)(who.tenant, site)
    now = context.services.components.clock.now()
    return json_answer({"launches": [_launch(launch, now) for launch in launches]})


@router.post("/{site}/launches", status_code=201, response_model=PilotLaunchesOut, responses=errors(body=True))
async def plan_launches(context: TheDesk, who: SiteCaller, site: SiteName, body: LaunchPlanIn) -> Response:
    """Write launches down before they are submitted; the same again changes nothing."""
    wanted = {launch.launch: size_for(launch.size, launch.owner or "") for launch in body.launches}
    planned = await context.services.launches.plan(who.tenant, site, wanted)
    now = context.services.components.clock.now()
    return json_answer({"launches": [_launch(planned[name], now) for name in wanted]}, 201)


@router.post("/{site}/launches/reports", response_model=ReportsOut, responses=errors(body=True))
async def report_launches(context: TheDesk, who: SiteCaller, site: SiteName, body: ReportsIn) -> Response:
    """Report the states of launches. States only move forward; a new try to submit is refused if another agent has stored it."""
    reports = {report.launch: _report(report) for report in body.reports}
    answers = await context.services.launches.report(who.tenant, site, list(reports.values()))
    ended = [report for report in reports if reports[report].state is LaunchState.ENDED]
    await context.services.components.batch.over(
        [launch for name in ended if isinstance(launch := answers[name], Launch)]
    )
    return json_answer({"results": [_telling(report, answers[report]) for report in reports]})


def _report(report: ReportIn) -> LaunchReport:
    end = report.end
    return LaunchReport(
        report.launch,
        LaunchState(report.state),
        report.batch_job,
        report.tries,
        None if end is None else LaunchEnd(**(end.model_dump() | {"nodes": tuple(end.nodes)})),
    )


def _telling(launch: str, answer: Launch | NotNext | None) -> dict[str, object]:
    if answer is None:
        return {"launch": launch, "result": "unknown", "detail": "there is no such launch", "pilot": ""}
    if isinstance(answer, NotNext):
        return {"launch": launch, "result": "refused", "detail": answer.reason, "pilot": ""}
    return {"launch": launch, "result": "noted", "detail": answer.state.value, "pilot": answer.pilot}


def _launch(launch: Launch, now: int) -> dict[str, object]:
    return {
        "launch": launch.id,
        "name": launch.job_name,
        "size": launch.size,
        "owner": launch.owner,
        "state": launch.state.value,
        "planned": time_text(launch.planned),
        "changed": time_text(launch.changed),
        "age": max(0, now - launch.planned) / 1000,
        "tries": launch.tries,
        "tried": max(0, now - launch.tried) / 1000,
        "since": max(0, now - launch.changed) / 1000,
        "batch_job": launch.batch_job,
        "pilot": launch.pilot,
        "end": None if launch.end is None else end_to_plain(launch.end),
        "cancel": launch.cancel,
    }


def _demand(site: str, demand: Demand, now: int) -> dict[str, object]:
    counts = {
        size: {"inactive": count.inactive, "idle": count.idle, "busy": count.busy}
        for size, count in demand.sizes.items()
    }
    return {
        "site": site,
        "groups": [
            {"name": group.name, "tasks": group.tasks, "need": resources_to_json(group.need), "owner": group.owner}
            for group in demand.groups
        ],
        "pilots": {state: sum(count[state] for count in counts.values()) for state in ("inactive", "idle", "busy")},
        "sizes": counts,
        "leaving": demand.leaving,
        "launches": [_launch(launch, now) for launch in demand.launches],
    }


def _site(site: Site, now: int) -> dict[str, object]:
    return {
        "site": site.name,
        "agent": site.agent,
        "host": site.host,
        "seen": time_text(site.seen),
        "overdue": site.overdue(now),
        "every": site.every,
        "said": dict(site.report),
    }


async def note_pilot(context: RequestContext, tenant: str, site: str, launch: str, pilot: str) -> None:
    """Record that the pilot of a launch has registered; a repetition changes nothing."""
    if launch:
        await context.services.launches.registered(tenant, site, launch, pilot)
