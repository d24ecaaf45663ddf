"""Routes for pilots: register, heartbeat, claim, complete. The HTTP interface's page has the contract."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Annotated

from fastapi import Query, Request, Response

from forestay.apps.server.http.answers import NothingOut, errors
from forestay.apps.server.http.event_stream import EventStream, event, while_wanted
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import (
    REVOKED,
    AnEnroller,
    LatePilot,
    PilotCaller,
    RequestContext,
    TheDesk,
    json_answer,
)
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import INT64
from forestay.apps.server.jobs.submissions import resources_from
from forestay.apps.server.pilots.checkpoint_routes import manifest_from, report_from, stored_checkpoints
from forestay.apps.server.pilots.claim_inputs import inputs_of
from forestay.apps.server.pilots.claim_outputs import ClaimedAttempt, is_its_own, outputs_of
from forestay.apps.server.pilots.claim_tasks import tasks_told
from forestay.apps.server.pilots.enrolment_routes import let_in
from forestay.apps.server.pilots.pilot_answers import (
    ByeOut,
    ClaimsOut,
    CompletionRepliesOut,
    HeartbeatOut,
    RegisteredOut,
    TokenOut,
)
from forestay.apps.server.pilots.schemas import (
    MAX_STAGED,
    BegunIn,
    CacheReportIn,
    ClaimIn,
    CompletionIn,
    CompletionsIn,
    HeartbeatIn,
    LogIn,
    PilotIn,
    StagedIn,
)
from forestay.apps.server.sites.routes import note_pilot
from forestay.domain.data.replica import Viewpoint
from forestay.domain.data.staging_terms import free_of
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, RankEnd, State, Token
from forestay.domain.jobs.specification import Specification
from forestay.domain.pilots.pilot import (
    DEVICES,
    FEATURES,
    RUNTIMES,
    Heartbeat,
    Pilot,
    PilotState,
    pilot_class,
    runtimes_of,
)
from forestay.formats.ga4gh.tes_job import TES
from forestay.formats.jobs.job_json import Json, resources_to_json
from forestay.formats.jobs.job_public import specification_public, time_millis, time_text
from forestay.ports.errors import PortError
from forestay.ports.jobs.job_store import JobQuery, Record, Stored, Written
from forestay.ports.operations.identity import Principal, Role
from forestay.services.jobs.job_completions import CompletionReport, CompletionStatus, FailedCleanup
from forestay.services.pilots.pilot_channels import HANG_UP, PilotChannel
from forestay.services.pilots.pilot_drain import ORDER as DRAIN
from forestay.services.scheduling.claim_request import ClaimRequest
from forestay.services.scheduling.pilot_caches import CacheEndpoint, CacheReport

router = Router(prefix="/v1/pilots", tags=["pilots"])
PING = 5.0
LOGGED = 1000
ONE_LOOK = 0.25
"""Seconds: a pilot that does not want to wait still gets what one look at the queue finds."""
ONE_MOMENT = 0.05
"""Seconds for which the answer to completions may wait for claims, where jobs are queued that may fit."""


@router.post("", status_code=201, response_model=RegisteredOut, responses=errors(body=True))
async def register(context: TheDesk, who: AnEnroller, body: PilotIn) -> Response:
    """Register a pilot; it gets its id and a token of its own."""
    parts = context.services.components
    now = parts.clock.now()
    name, tenant, site, owner = f"p-{secrets.token_hex(8)}", who.tenant, body.site or "local", ""
    if who.secret:
        enrolled = await let_in(context, who, name, body)
        name, tenant, site, owner = enrolled.pilot, enrolled.tenant, enrolled.site, enrolled.owner
    if await context.services.sites.bars(tenant, site, owner):
        raise HttpProblem(403, f"site {site} runs jobs as their submitters: its pilots are enrolled for one owner each")
    lease = parts.settings.lease
    pilot = Pilot(
        id=name,
        tenant=tenant,
        host=body.host,
        site=site,
        slots=body.slots,
        resources=resources_from(body.resources, body.time_left),
        lease=lease,
        registered=now,
        changed=now,
        batch_job=body.batch_job,
        version=body.version,
        launch=body.launch,
        owner=owner,
        extra=_extra(body),
    )
    if not isinstance(await parts.pilots.put_pilot(pilot, None), Written) and not await _known(context, name, tenant):
        raise HttpProblem(503, "the pilot could not be stored; register again")
    if who.secret:
        await note_pilot(context, tenant, site, enrolled.launch, name)
    answer = {
        "pilot": name,
        "lease": lease,
        "heartbeat_every": lease / 3,
        "servers": sorted(set(context.services.heartbeats.alive.values()) - {""}),
        "neighbours": await context.services.neighbours.register(pilot, body.cache.path)
        if body.cache and not owner
        else [],
    }
    return json_answer(answer | _pilot_token(context, name, tenant), 201)


def _pilot_token(context: RequestContext, pilot: str, tenant: str) -> dict[str, object]:
    """A new token for a pilot."""
    seconds = context.services.components.settings.token_seconds
    identity = context.services.components.identity
    token = identity.issue(subject=pilot, tenant=tenant, roles=frozenset({Role.PILOT}), seconds=seconds)
    return {"token": token, "token_seconds": seconds}


def _extra(body: PilotIn) -> dict[str, object]:
    """Fields that only some pilots report."""
    extra: dict[str, object] = {"element": body.element, "cache": body.cache.path if body.cache else None}
    extra[FEATURES] = body.features
    extra[DEVICES] = [device.model_dump() for device in body.devices]
    extra = {name: value for name, value in extra.items() if value}
    return extra if body.runtimes is None else {**extra, RUNTIMES: body.runtimes}


async def _known(context: RequestContext, pilot: str, tenant: str) -> bool:
    """Whether a pilot is registered already: it repeats its request because the answer was lost."""
    known = await context.services.components.pilots.get_pilot(pilot)
    if known is not None and known.pilot.revoked:
        raise HttpProblem(403, REVOKED)
    return known is not None and known.pilot.tenant == tenant and known.pilot.state is not PilotState.GONE


@router.post("/{pilot}/token", response_model=TokenOut, responses=errors())
async def renew(context: TheDesk, who: LatePilot, pilot: str) -> Response:
    """A new token, also in exchange for one that expired less than a day ago."""
    known = await context.services.components.pilots.get_pilot(pilot)
    if known is None or known.pilot.tenant != who.tenant:
        raise HttpProblem(403, "the pilot is not registered")
    if known.pilot.revoked:
        raise HttpProblem(403, REVOKED)
    return json_answer(_pilot_token(context, pilot, who.tenant))


@router.get("/{pilot}/channel", status_code=200, response_class=EventStream, responses=errors())
async def channel(
    context: TheDesk, who: PilotCaller, pilot: str, session: Annotated[int, Query(ge=1, le=2**62)]
) -> Response:
    """The channel that a pilot holds open for its whole life."""
    draining = await context.services.drains.ordered(pilot)
    opened = await context.services.channels.open(pilot, session, context.services.components.settings.lease)
    context.refuse_revoked(pilot)  # it may have been revoked while the session was being stored
    if draining:
        context.services.channels.order(pilot, DRAIN, {})
    return EventStream(_orders(context, opened), context.stopping)


async def _orders(context: RequestContext, held: PilotChannel) -> AsyncGenerator[bytes, None]:
    try:
        yield event("open", {"session": held.session})
        while True:
            try:
                async with asyncio.timeout(PING):
                    order = await held.orders.get()
                if order.event == HANG_UP:
                    return
                yield event(order.event, order.data)
            except TimeoutError:
                yield event("ping", {})
    finally:
        if not context.stopping.is_set():
            context.services.channels.closed(held)


@router.post("/{pilot}/heartbeat", response_model=HeartbeatOut, responses=errors(body=True))
async def heartbeat(context: TheDesk, who: PilotCaller, pilot: str, body: HeartbeatIn) -> Response:
    """A sign of life, acknowledged when it is stored."""
    lease = context.services.components.settings.lease
    await context.services.heartbeats.heartbeat(pilot, Heartbeat(body.counter, body.session, lease, tuple(body.claims)))
    return json_answer(_heartbeat_answer(context, who))


def _heartbeat_answer(context: RequestContext, who: Principal) -> dict[str, object]:
    """The response to a stored heartbeat."""
    services, pilot = context.services, who.subject
    answer: dict[str, object] = {
        "token": None,
        "token_seconds": 0,
        "cancel": [],
        "drain": pilot in services.drains.known,
    }
    half = services.components.settings.token_seconds / 2
    if who.expires - services.components.clock.now() / 1000 < half:
        answer |= _pilot_token(context, pilot, who.tenant)
    neighbours = services.neighbours.of(pilot)
    if neighbours is not None:
        answer["neighbours"] = neighbours
    return answer


@router.post("/{pilot}/claims", response_model=ClaimsOut, responses=errors(body=True))
async def claim(request: Request, context: TheDesk, who: PilotCaller, pilot: str, body: ClaimIn) -> Response:
    """Wait for suitable jobs. A pilot that has disconnected by then gets none: they would wait for its lease to end."""
    host = await _pilot_host(context, pilot, who)
    cache = _cache_known(context, who, host, body.cache)
    if not await _may_claim(context, who):
        await asyncio.sleep(min(body.wait, ONE_LOOK))
        return json_answer({"claims": []})
    asking = _claimed(context, who, host, body, wait=max(body.wait, ONE_LOOK))
    granted = await while_wanted(asking, request, context.stopping) or []
    return json_answer(cache | {"claims": await _handed_over(context, who, granted)})


async def _may_claim(context: RequestContext, who: Principal) -> bool:
    """Whether a pilot may be given jobs: it does not drain, and its site admits it."""
    services, pilot = context.services, who.subject
    site, _ = context.places.get(pilot, ("", 1))
    return pilot not in services.drains.known and not await services.sites.bars(who.tenant, site, context.owners[pilot])


async def _claimed(
    context: RequestContext, who: Principal, host: str, body: ClaimIn, *, wait: float, queued_only: bool = False
) -> list[Stored]:
    """The claims that a pilot is granted, of which it does not know yet."""
    services, pilot = context.services, who.subject
    site, slots = context.places.get(pilot, ("", 1))
    # What is given at the end of the wait must end in time as well.
    free = resources_from(body.resources, None if body.time_left is None else max(0.0, body.time_left - body.wait))
    if queued_only and not services.claims.has_some_for(who.tenant, free):
        return []
    request = ClaimRequest(
        pilot=pilot,
        host=host,
        tenant=who.tenant,
        free=free,
        most=body.max,
        batch=body.batch,
        site=site,
        slots=slots,
        runtimes=context.runtimes.get(pilot),
        machine=context.machines.get(pilot),
        owner=context.owners[pilot],
    )
    return await services.claims.claim(request, wait=wait)


async def _handed_over(context: RequestContext, who: Principal, granted: list[Stored]) -> list[Json]:
    """What a pilot is told of the claims that it was granted."""
    services, pilot = context.services, who.subject
    if granted and pilot in services.revocations.known:
        await _take_back(context, granted, "its pilot's access was revoked while it waited")
        raise HttpProblem(403, REVOKED)
    services.completions.granted(granted)
    for stored in granted:
        if stored.document.attempt == 1 and stored.document.claim is not None:
            context.metrics.waits.observe((stored.document.claim.granted - stored.document.created) / 1000)
    view, specs, inputs, more = await _specifications(context, who, granted)
    outputs_to = outputs_of(context, view)
    return [
        _claim_json(stored, specs[stored.document.specification], inputs.get(stored.document.id), outputs_to)
        | more.get(stored.document.id, {})
        for stored in granted
    ]


def _cache_known(context: RequestContext, who: Principal, host: str, given_report: CacheReportIn | None) -> Json:
    """Record a pilot's report of its cache, and answer with the known version of it. Pilots of an owner share none."""
    pilot = who.subject
    if given_report is None or context.owners[pilot]:
        return {}
    site, _ = context.places.get(pilot, ("", 1))
    share = CacheEndpoint(given_report.share.url, given_report.share.secret) if given_report.share is not None else None
    report = CacheReport(
        given_report.version, given_report.base, given_report.added, given_report.removed, given_report.gone, share
    )
    return {"cache": {"known": context.services.caches.report(pilot, who.tenant, host, site, report)}}


async def _specifications(
    context: RequestContext, who: Principal, granted: list[Stored]
) -> tuple[Viewpoint, dict[str, Specification], dict[str, list[Json]], dict[str, Json]]:
    """The pilot's viewpoint, what the claimed jobs run, their inputs, and what belongs to checkpoints and to tasks of TES. If it cannot be read the pilot gets nothing, and the claims go back."""
    names = [stored.document.specification for stored in granted]
    try:
        view = await context.view(who.subject, who.tenant) if granted else Viewpoint(who.tenant)
        specs = await context.specifications(names)
        if all(name in specs for name in names):
            inputs = await inputs_of(context, granted, specs, who.subject, view)
            more = await stored_checkpoints(context, granted) | await tasks_told(context, granted, specs)
            return view, specs, inputs, more
        why = "a specification is missing"
    except PortError as error:
        why = str(error)
    except Exception:
        await _take_back(context, granted, "what its claim consists of could not be read")
        raise
    await _take_back(context, granted, why)
    raise HttpProblem(503, why)


async def _pilot_host(context: RequestContext, pilot: str, who: Principal) -> str:
    host = context.hosts.get(pilot)
    if host is None or pilot not in context.owners:
        known = await context.services.components.pilots.get_pilot(pilot)
        if known is None or known.pilot.tenant != who.tenant:
            raise HttpProblem(403, "the pilot is not registered; register again")
        if known.pilot.revoked:  # also at a server that has just started and has not heard of it yet
            raise HttpProblem(403, REVOKED)
        host = context.hosts[pilot] = known.pilot.host
        context.owners[pilot] = known.pilot.owner
        if not known.pilot.owner:
            context.services.neighbours.meet(known.pilot)
        context.places[pilot] = (known.pilot.site, known.pilot.slots)
        context.runtimes[pilot] = runtimes_of(known.pilot)
        context.machines[pilot] = pilot_class(known.pilot)
    return host


def _claim_json(stored: Stored, spec: Specification, inputs: list[Json] | None, outputs_to: Json | None = None) -> Json:
    document = stored.document
    held = document.claim
    assert held is not None  # noqa: S101 - it was just granted
    body: Json = {} if inputs is None else {"inputs": inputs}
    if outputs_to is not None and (spec.outputs or spec.checkpoint is not None or TES in spec.extra):
        body["outputs_to"] = outputs_to
    if free := free_of(document.extra):
        body["free"] = free
    return body | {
        "job": document.id,
        "generation": document.generation,
        "attempt": document.attempt,
        "claim": held.id,
        "tenant": document.tenant,
        "owner": document.owner,
        "name": document.name,
        "index": document.index,
        "parameters": dict(document.parameters),
        "resources": resources_to_json(document.resources),
        "specification": specification_public(spec),
    }


@router.post("/{pilot}/completions", response_model=CompletionRepliesOut, responses=errors(body=True))
async def completions(
    request: Request, context: TheDesk, who: PilotCaller, pilot: str, body: CompletionsIn
) -> Response:
    """Report completed attempts, and take along the next claims if there are any now."""
    reports = [_report(_believed(context, who.tenant, completion)) for completion in body.completions]
    next_claims = None if body.claim is None else asyncio.create_task(_next_claims(context, who, body.claim))
    answer: Json = {}
    try:
        owner = await context.pilot_owner(pilot, who.tenant)
        results = await context.services.completions.end(reports, pilot=pilot, tenant=who.tenant, owner=owner)
        # A pilot that has disconnected by now hears of no claim, but its completions count.
        if next_claims is not None and not await request.is_disconnected():
            cache, granted = await next_claims
            next_claims = None
            with suppress(HttpProblem, PortError):  # then they were taken back
                answer = cache | {"claims": await _handed_over(context, who, granted)}
    finally:
        if next_claims is not None and not next_claims.cancel():
            context.services.claims.give_back(next_claims.result()[1])
    for end, report, reply in zip(body.completions, reports, results, strict=True):
        if reply.result is CompletionStatus.COMMITTED:
            if report.staging:
                context.services.inputs.take(who.tenant, pilot, end.claim, report.staging)
            if end.wall is not None:
                context.metrics.runs.labels(end.outcome).observe(end.wall)
        elif reply.never_held:
            await context.note_never_held(who, "job.completion", report.job, reply.detail)
    answer["results"] = [
        {"claim": reply.claim, "result": reply.result.value, "detail": reply.detail} for reply in results
    ]
    return json_answer(answer)


async def _next_claims(context: RequestContext, who: Principal, body: ClaimIn) -> tuple[Json, list[Stored]]:
    """What is queued for a pilot now. Whatever is in the way costs no completion: the pilot's next request for work hears of it."""
    try:
        host = await _pilot_host(context, who.subject, who)
        cache = _cache_known(context, who, host, body.cache)
        if context.stopping.is_set() or not await _may_claim(context, who):
            return cache, []
        return cache, await _claimed(context, who, host, body, wait=ONE_MOMENT, queued_only=True)
    except (HttpProblem, PortError):
        return {}, []


async def _take_back(context: RequestContext, granted: list[Stored], why: str) -> None:
    """Release claims that their pilot will never hear of."""
    release = context.services.components.release
    await release.release(granted, by="server", reason=why, overlap_possible=False, executed=False)


def _believed(context: RequestContext, tenant: str, end: CompletionIn) -> CompletionIn:
    """An end is believed only if its manifest is the attempt's own; a checkpoint that is not is as if there were none."""
    attempt = ClaimedAttempt(tenant, end.job, Token(end.generation, end.attempt), end.claim)
    checkpoint = end.checkpoint
    if checkpoint is not None and not is_its_own(context, attempt, checkpoint.manifest.path, checkpoint.number):
        end = end.model_copy(update={"checkpoint": None})
    if end.manifest is None or is_its_own(context, attempt, end.manifest.path):
        return end
    words = {"outcome": "failure", "reason": "output-failed", "error": "bad-manifest", "stage": "staging-out"}
    return end.model_copy(update={"manifest": None, **words})


def _report(end: CompletionIn) -> CompletionReport:
    manifest = end.manifest
    ending = AttemptResult(
        token=Token(end.generation, end.attempt),
        claim=end.claim,
        outcome=AttemptOutcome(end.outcome),
        reason=end.reason,
        exit_code=end.exit_code,
        signal=end.signal,
        started=_started(end.started),
        wall=end.wall,
        cpu=end.cpu,
        peak_memory=end.peak_memory,
        oom_kills=end.oom_kills,
        left_running=end.left_running,
        disk_left=end.disk_left,
        stage=end.stage,
        error=end.error,
        file=end.file,
        host=end.host,
        manifest=manifest_from(manifest) if manifest else None,
        devices=tuple(end.devices),
        ranks=tuple(RankEnd(**rank.model_dump()) for rank in end.ranks),
        result=end.result,
        input_bytes=_input_bytes(end.staging),
        image=end.image,
    )
    cleanup = FailedCleanup(end.cleanup.error, end.cleanup.words) if end.cleanup else None
    staging = [staged.model_dump(by_alias=True, exclude_defaults=True) for staged in end.staging]
    checkpoint = report_from(end.checkpoint) if end.checkpoint else None
    return CompletionReport(end.job, ending, end.log_tail, end.log_bytes, cleanup, staging, end.task, checkpoint)


def _input_bytes(staging: Sequence[StagedIn]) -> int | None:
    """What all inputs have together; None if there are none, or not every size is known."""
    files = [staged for staged in staging if staged.kind not in ("image", "checkpoint")]
    whole = len(files) > 0 and len(staging) < MAX_STAGED and all("bytes" in file.model_fields_set for file in files)
    return min(sum(file.bytes for file in files), INT64) if whole else None


def _started(value: str | float | None) -> int | None:
    """When an attempt began: only for display, so a pilot's wrong clock must not invalidate the end."""
    try:
        millis = time_millis(value) if isinstance(value, str) else None if value is None else int(value * 1000)
        time_text(millis)
    except (ValueError, OverflowError):
        return None
    return millis


@router.post("/{pilot}/begun", response_model=NothingOut, responses=errors(404, 409, body=True))
async def begun(context: TheDesk, who: PilotCaller, pilot: str, body: BegunIn) -> Response:
    """The inputs of a job are staged, and it starts."""
    answer = await context.services.steer.begin(body.job, claim=body.claim, pilot=pilot, tenant=who.tenant)
    await context.settled_report(who, "job.begin", body.job, answer)
    return json_answer({})


@router.post("/{pilot}/log", response_model=NothingOut, responses=errors(body=True))
async def log(context: TheDesk, who: PilotCaller, pilot: str, body: LogIn) -> Response:
    """A piece of a log that someone follows."""
    followers = context.logs.get((pilot, body.claim))
    if followers:
        for queue in followers:
            if not queue.full():
                queue.put_nowait((body.offset, body.text, body.last))
        return json_answer({})
    await _leave_piece(context, who, pilot, body)
    return json_answer({})


async def _leave_piece(context: RequestContext, who: Principal, pilot: str, body: LogIn) -> None:
    """Store a piece for followers at another server, which finds it in the store."""
    parts = context.services.components
    known = (pilot, body.claim)
    if known not in context.logged:
        context.logged[known] = await _job_held(context, who, pilot, body.claim)
        if len(context.logged) > LOGGED:
            context.logged.popitem(last=False)
    if job := context.logged[known]:
        name = f"live:{body.claim}:{body.offset}:{body.last}"
        piece = {"claim": body.claim, "offset": body.offset, "text": body.text, "last": body.last}
        await parts.store.add_records([Record(name, who.tenant, "live-log", job, parts.clock.now(), piece)])


async def _job_held(context: RequestContext, who: Principal, pilot: str, claim: str) -> str | None:
    """The job that a pilot holds by a claim."""
    store = context.services.components.store
    query = JobQuery(tenant=who.tenant, states=frozenset({State.RUNNING}), anyof={"pilot": [pilot]})
    await store.refresh()  # it may have just been claimed
    page = await store.search(query, limit=1000)
    held = (job.document for job in page.jobs if job.document.claim is not None and job.document.claim.id == claim)
    return next((document.id for document in held), None)


@router.delete("/{pilot}", response_model=ByeOut, responses=errors())
async def bye(context: TheDesk, who: PilotCaller, pilot: str) -> Response:
    """The pilot ends by itself."""
    services = context.services
    services.channels.dismiss(pilot)
    release = services.components.release
    count = await release.of_pilots([pilot], by=pilot, reason="its pilot deregistered", overlap_possible=False)
    services.heartbeats.forget(pilot)
    services.drains.forget(pilot)
    await services.neighbours.bye(pilot)
    services.caches.forget(pilot)
    await release.mark(pilot, PilotState.GONE, "it deregistered")
    return json_answer({"released": count})
