"""The context of every route: the services, the caller, the caches, and how it answers."""

from __future__ import annotations

import asyncio
import secrets
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

import orjson
from fastapi import Depends, Request, Response

from forestay.adapters.prometheus.metrics import Metrics
from forestay.apps.compose.proxies import CALLBACK_PURPOSE
from forestay.apps.compose.server import ServerComponents
from forestay.apps.server.http.caller_limits import CALLER, CallerLimits
from forestay.apps.server.http.event_stream import ENDED
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.pages.site_notice import SiteNotice
from forestay.domain.data.replica import Viewpoint
from forestay.domain.exceptions.safeguards.audit import AuditNote
from forestay.domain.jobs.claim_access import ReportRefused
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.domain.jobs.specification import Specification
from forestay.domain.pilots.enrolment import MARK
from forestay.domain.pilots.pilot import PilotClass
from forestay.ports.errors import PortError
from forestay.ports.jobs.job_store import Stored
from forestay.ports.operations.identity import BadToken, Principal, Role
from forestay.services.operations.browser_sessions import word_against_forgery
from forestay.services.shared.checked_writer import Answer, JobMissing, WriteApplied
from forestay.services.shared.coalescing_cache import CoalescingCache
from forestay.services.shared.recent import Recent

MAX_TOKEN = 8192
KNOWN_PILOTS = 150_000
"""The number of pilots whose location a server caches: more than it can have at a time."""
DOWNSTREAMS = "/v1/downstreams/"
FOR_PEERS = ("/ga4gh/wes/v1/", "/v1/peering/")
"""The paths for other domains, which have access to no others."""
LATEST = 86_400
"""Seconds for which the expired token of a pilot can still be exchanged for a new one."""
REVOKED = "the access of this pilot was revoked"
LOOK_EVERY = 60.0
"""Seconds between checks whether the token of an open stream is still valid."""
WORD_HEADER = "X-Forestay-Word"
"""The CSRF header: it shows that a request comes from our own page, since no other site can read the token, nor send the header without a preflight."""


@dataclass(slots=True)
class RequestContext:
    """One server's state behind the routes."""

    services: ServerComponents
    metrics: Metrics
    callers: CallerLimits
    open_jobs: CoalescingCache[str, dict[str, int]]
    """The number of a tenant's jobs that have not ended, by state."""
    notice: SiteNotice
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    logs: dict[tuple[str, str], set[asyncio.Queue[tuple[int, str, bool]]]] = field(default_factory=dict)
    """The followers of logs at this server, by pilot and claim."""
    logged: OrderedDict[tuple[str, str], str | None] = field(default_factory=OrderedDict)
    """The jobs of claims whose pilots sent pieces of logs that are followed at other servers; None if there is no such job."""
    hosts: Recent[str, str] = field(default_factory=lambda: Recent(KNOWN_PILOTS))
    """The host of each pilot, as reported at registration."""
    places: Recent[str, tuple[str, int]] = field(default_factory=lambda: Recent(KNOWN_PILOTS))
    """The site and the slots of each pilot."""
    runtimes: Recent[str, frozenset[str] | None] = field(default_factory=lambda: Recent(KNOWN_PILOTS))
    """The container runtimes of each pilot; None: not reported."""
    owners: Recent[str, str] = field(default_factory=lambda: Recent(KNOWN_PILOTS))
    """For whom each pilot was enrolled; empty: for the jobs of all. Of a pilot that is not here nothing may be assumed."""
    machines: Recent[str, PilotClass] = field(default_factory=lambda: Recent(KNOWN_PILOTS))
    """The class of each pilot, for jobs with requirements."""
    peers_for: Callable[[str, str], list[dict[str, object]]] = lambda _file, _pilot: []
    """Returns the pilots that have a file as sources for another pilot, the nearest first."""
    views: Recent[str, Viewpoint] = field(default_factory=lambda: Recent(KNOWN_PILOTS))
    """The viewpoint of each pilot on storage elements."""
    refused_reports: Recent[tuple[str, str, str], None] = field(default_factory=lambda: Recent(KNOWN_PILOTS))
    """The pilots, actions and jobs for which the audit log has the refusal of a report."""
    waiting_engines: int = 0
    """Requests of other engines that wait for orders here."""

    def refuse_revoked(self, pilot: str) -> None:
        """Refuse a revoked pilot."""
        if pilot in self.services.revocations.known:
            raise HttpProblem(403, REVOKED)

    async def specifications(self, ids: Sequence[str]) -> dict[str, Specification]:
        return await self.services.specifications.find(ids)

    def know(self, specifications: Iterable[Specification]) -> None:
        """Cache specifications that are about to be stored: a claim of their jobs right after need not read them."""
        known = list(specifications)
        self.services.specifications.know(known)
        self.services.match.know(known)

    async def job(self, job: str, who: Principal) -> Stored:
        """A job of the caller's tenant; jobs of others are reported as missing."""
        stored = (await self.services.components.store.get([job])).get(job) if len(job) <= 64 else None
        if stored is None or stored.document.tenant != who.tenant:
            raise HttpProblem(404, f"there is no job {job[:64]} in tenant {who.tenant}")
        return stored

    async def view(self, pilot: str, tenant: str) -> Viewpoint:
        """The viewpoint of a pilot on storage elements; needed only if there are any."""
        if not self.services.components.elements.elements:
            return Viewpoint(tenant)
        view = self.views.get(pilot)
        if view is None:
            known = await self.services.components.pilots.get_pilot(pilot)
            extra = known.pilot.extra if known is not None else {}
            view = Viewpoint(tenant, known.pilot.site if known is not None else "", str(extra.get("element") or ""))
            self.views[pilot] = view
        return view

    async def pilot_owner(self, pilot: str, tenant: str) -> str | None:
        """For whom a pilot was enrolled; empty: for the jobs of all. None: it is not registered."""
        owner = self.owners.get(pilot)
        if owner is None:
            known = await self.services.components.pilots.get_pilot(pilot)
            if known is not None and known.pilot.tenant == tenant:
                owner = self.owners[pilot] = known.pilot.owner
        return owner

    async def note(
        self, who: Principal, what: str, on: str, *, owner: str = "", why: str = "", **detail: object
    ) -> None:
        """Record in the audit log an action on something that belongs to another person, before it is done: without the entry it is not done."""
        if owner == who.subject:
            return
        if owner:
            detail["owner"] = owner
        await self.services.components.audit.write(who.tenant, [AuditNote(who.subject, what, on, why, detail)])

    async def note_refusal(
        self, who: Principal, what: str, on: str, reason: str, *, owner: str = "", **detail: object
    ) -> None:
        """Record in the audit log that a recorded action was not done, and why. Nothing was changed, so the caller is answered even if the log cannot be written."""
        with suppress(PortError):
            await self.note(who, f"{what}.refused", on, owner=owner, why=reason, **detail)

    async def note_never_held(self, who: Principal, what: str, job: str, reason: str) -> None:
        """Record in the audit log that a pilot reported on a claim that it never held. Once for each job: repeating it fills no log."""
        if (who.subject, what, job) not in self.refused_reports:
            self.refused_reports[who.subject, what, job] = None
            await self.note_refusal(who, what, job, reason)

    async def settled_report(self, who: Principal, what: str, job: str, answer: Answer) -> Stored:
        """The document after a pilot's report, or the problem as an exception."""
        if isinstance(answer, ReportRefused):
            await self.note_never_held(who, what, job, answer.reason)
        return settled(answer)


def context_of(request: Request) -> RequestContext:
    context: RequestContext = request.app.state.context
    return context


def cookie_of(context: RequestContext) -> str:
    """The name of the session cookie. Browsers send cookies to every port of a host, so it differs between servers on one host."""
    return f"forestay-{urlsplit(context.services.components.settings.public_url).port or 'session'}"


async def _request_context(request: Request) -> RequestContext:
    """The request context. Async, since any other dependency is run in a thread, for which every request would wait."""
    return context_of(request)


def _session(request: Request) -> str:
    """The token of a browser's session: only for requests not initiated by another site, and for changes only with the page's CSRF token."""
    if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return ""
    token = request.cookies.get(cookie_of(context_of(request)), "")
    if token and request.method != "GET":
        header = request.headers.get(WORD_HEADER, "")
        if not secrets.compare_digest(header.encode(), word_against_forgery(token).encode()):
            raise HttpProblem(403, f"a browser request needs the header {WORD_HEADER}; reload the page")
    return token


def session_of(request: Request) -> str:
    """The token of the requesting browser; empty: it is not a browser session."""
    return "" if request.headers.get("authorization") is not None else _session(request)


def _password(text: str) -> str:
    """The token of clients that support only names and passwords, or read them from a file for a host: they send it as the password; the name is ignored."""
    try:
        return b64decode(text, validate=True).decode().partition(":")[2] if len(text) <= 2 * MAX_TOKEN else ""
    except ValueError:
        return ""


def token_of(request: Request) -> str:
    """The token of a request, not yet verified; 401 without one."""
    header = request.headers.get("authorization")
    if len(request.headers.getlist("authorization")) > 1:
        # A proxy in front of us may have checked the other one.
        raise HttpProblem(401, "send exactly one Authorization header")
    scheme, _, token = header.partition(" ") if header is not None else ("bearer", "", _session(request))
    if scheme.lower() == "basic":
        scheme, token = "bearer", _password(token)
    if scheme.lower() != "bearer" or not token or len(token) > MAX_TOKEN:
        raise HttpProblem(
            401,
            "a token is required: Authorization: Bearer <token>; `forestay token` creates one, and `forestay link` a link for a browser",
        )
    return token


class TaskHint(NamedTuple):
    """Who reports that a task has ended."""

    tenant: str
    downstream: str
    job: str
    """The only job that the hint may be about; empty: any of the tenant's, with a token."""


async def known_caller(request: Request) -> None:
    """Refuse to read the body of a request without a token of ours, of whatever role, even an expired one; the route checks in detail."""
    hint = _called_back(request)
    if hint is not None:
        request.scope[CALLER] = f"{hint.tenant}:downstream:{hint.downstream}"
        return
    token = token_of(request)
    if not token.startswith(MARK):
        await _verified(request, token, LATEST)


def _called_back(request: Request) -> TaskHint | None:
    """What the callback address given to a downstream permits; None: it carries no capability.

    Callbacks carry none of our headers. A token is never accepted in an address: addresses are written to logs.
    """
    capability = request.query_params.get("capability", "") if request.scope["path"].startswith(DOWNSTREAMS) else ""
    if not capability or len(capability) > MAX_TOKEN:
        return None
    try:
        words = context_of(request).services.components.identity.unseal(capability, purpose=CALLBACK_PURPOSE)
        return TaskHint(words["tenant"], words["downstream"], words["job"])
    except (BadToken, KeyError) as error:
        raise HttpProblem(401, str(error)) from error


async def _verified(request: Request, token: str, late: int) -> Principal:
    services = context_of(request).services
    try:
        peer = services.components.peers.caller(token)
        if peer is not None and not request.scope["path"].startswith(FOR_PEERS):
            raise HttpProblem(403, "a peer's token is valid for the Workflow Execution Service only")
        principal = peer or await services.callers.verify(token, late=late)
    except BadToken as error:
        raise HttpProblem(401, str(error)) from error
    request.scope[CALLER] = f"{principal.tenant}:{principal.subject}"
    return principal


async def _until_bad(request: Request, token: str) -> None:
    """Wait until a token is no longer valid: at its expiry, or soon after it was revoked. The channel of a pilot is kept by its heartbeats, and is not checked."""
    while True:
        try:
            who = await _verified(request, token, 0)
        except HttpProblem:
            return
        except PortError:  # the provider is unreachable; its last answer stays valid
            await asyncio.sleep(LOOK_EVERY)
            continue
        left = who.expires - context_of(request).services.components.clock.now() / 1000
        await asyncio.sleep(min(max(left, 0.1), LOOK_EVERY))


def allow(role: Role, *, late: int = 0) -> Callable[[Request], Awaitable[Principal]]:
    """A dependency that requires a token with that role."""

    async def check(request: Request) -> Principal:
        token = token_of(request)
        principal = await _verified(request, token, late)
        if not principal.may(role):
            raise HttpProblem(403, f"the role {role} is required; the token has {', '.join(sorted(principal.roles))}")
        named = request.path_params.get("pilot")
        if role is Role.PILOT and named != principal.subject:
            raise HttpProblem(403, "the token belongs to another pilot")
        if role is Role.PILOT:
            context_of(request).refuse_revoked(principal.subject)
        else:
            request.scope[ENDED] = lambda: _until_bad(request, token)
        return principal

    check.role = role  # type: ignore[attr-defined]  # the test of all routes reads it
    return check


@dataclass(frozen=True, slots=True)
class Enroller:
    """The party that registers a pilot: the holder of a token for many, or of a secret for one, which is not checked yet."""

    tenant: str
    secret: str


async def _enroller(request: Request) -> Enroller:
    token = token_of(request)
    if token.startswith(MARK):
        return Enroller("", token)
    return Enroller((await _token_to_enrol(request)).tenant, "")


_token_to_enrol = allow(Role.ENROL)
_enroller.role = Role.ENROL  # type: ignore[attr-defined]  # the test of all routes reads it


async def _hinter(request: Request) -> TaskHint:
    named = str(request.path_params.get("name"))
    hint = _called_back(request)
    if hint is None:
        return TaskHint((await _token_to_hint(request)).tenant, named, "")
    if hint.downstream != named:
        raise HttpProblem(403, "the capability is for another downstream")
    return hint


_token_to_hint = allow(Role.HINT)
_hinter.role = Role.HINT  # type: ignore[attr-defined]  # the test of all routes reads it
Hinter = Annotated[TaskHint, Depends(_hinter)]
Viewer = Annotated[Principal, Depends(allow(Role.VIEWER))]
Submitter = Annotated[Principal, Depends(allow(Role.SUBMITTER))]
Operator = Annotated[Principal, Depends(allow(Role.OPERATOR))]
EngineCaller = Annotated[Principal, Depends(allow(Role.ENGINE))]
RuleAuthor = Annotated[Principal, Depends(allow(Role.RULE_AUTHOR))]
Administrator = Annotated[Principal, Depends(allow(Role.ADMINISTRATOR))]
Approver = Annotated[Principal, Depends(allow(Role.APPROVER))]
AnEnroller = Annotated[Enroller, Depends(_enroller)]
SiteCaller = Annotated[Principal, Depends(allow(Role.SITE))]
PilotCaller = Annotated[Principal, Depends(allow(Role.PILOT))]
LatePilot = Annotated[Principal, Depends(allow(Role.PILOT, late=LATEST))]
TheDesk = Annotated[RequestContext, Depends(_request_context)]


def json_answer(data: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(data), status, headers, media_type="application/json")


def settled(answer: Answer) -> Stored:
    """The document, or the problem as an exception."""
    if isinstance(answer, WriteApplied):
        return answer.stored
    if isinstance(answer, JobMissing):
        raise HttpProblem(404, "the job no longer exists")
    if isinstance(answer, TransitionRefused):
        raise HttpProblem(409, answer.reason)
    raise HttpProblem(503, f"The request may have succeeded; check the job before retrying ({answer.detail})")
