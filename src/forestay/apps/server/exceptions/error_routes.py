"""Errors: all failures of one fingerprint, and their triage."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Query, Response
from pydantic import Field

from forestay.apps.server.http.answers import Out, Time, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import Operator, RequestContext, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Model, Reason
from forestay.domain.exceptions.incidents.error_triage import LONGEST_SNOOZE, ErrorState, ErrorTriage, TriageAct
from forestay.domain.exceptions.incidents.incident import Incident
from forestay.domain.rules.retry_record import RetryRecord
from forestay.formats.jobs.job_public import time_text
from forestay.formats.rules.incident_public import retry_record_public, status_public
from forestay.ports.exceptions.incident_store import MAX_TALLIED
from forestay.ports.operations.identity import Principal
from forestay.services.exceptions.inbox.error_reader import ErrorReader, ErrorSummary
from forestay.services.exceptions.inbox.error_triages import ErrorTriages
from forestay.services.rules.retry_records import RetryRecords

router = Router(prefix="/v1/errors", tags=["incidents"])
FINGERPRINT = r"^[0-9]{1,4}-[0-9a-f]{4,64}$"
FingerprintId = Annotated[str, Path(pattern=FINGERPRINT)]
MOST_VALUES = 20
"""The most values shown for each tag."""
SHOWN_LINES = 40
"""The most lines of a sample's log."""
StateName = Literal["new", "acknowledged", "snoozed", "resolved", "regressed"]


class TriageIn(Model):
    act: TriageAct
    assignee: Annotated[str, Field(max_length=128, pattern=r"^[A-Za-z0-9._@+:-]*$")] = ""
    """For `assign`: the assignee; empty: nobody."""
    seconds: Annotated[int, Field(ge=0, le=LONGEST_SNOOZE // 1000)] = 0
    """For `snooze`: how long it may wait."""
    reason: Reason = ""


class TriageOut(Out):
    state: StateName
    assignee: str
    until: Time | None
    """When the snooze ends."""
    since: Time | None
    by: str
    """Who did the last action, and why."""
    why: str


class CommonTagOut(Out):
    tag: str
    value: str
    share: float
    """Of this error's failures of the last seven days."""
    share_of_others: float
    """Of the other failures of these days."""


class SampleOut(Out):
    incident: str
    job: str
    owner: str
    at: Time
    host: str
    deciding: list[str]
    """The lines that decided the cause."""
    log: list[str]
    """The last lines."""


class RetryRecordOut(Out):
    seen: int
    """Failures of this error, of the newest hundred."""
    retried: int
    """Those whose retry has ended."""
    helped: int
    """Those whose job succeeded."""
    whole: bool
    """All were counted; otherwise only the newest hundred."""
    words: str
    """Such as `seen 14 times here, retry helped 12 of 13`."""


class KnownErrorOut(TriageOut):
    fingerprint: str
    title: str
    cause: str
    task: str
    first_seen: Time
    last_seen: Time
    count: int
    """All failures of this error."""
    waiting: int
    """Those that are held or in progress."""
    recovered: int
    """Those whose job succeeded afterwards. A job that was cancelled, forced or failed again did not recover."""
    recovered_whole: bool
    """All were looked at; otherwise at least so many recovered: only the thousand that were answered last were looked at."""
    given_up: int
    newest: str
    """The newest incident."""
    words: str
    """Its cause in words, and what to do about it."""
    advice: str
    tags: dict[str, dict[str, int]]
    """How many failures there were by owner, host, site, exit code and flow."""
    hours: list[int]
    """Failures in each of the last 24 hours; the last is this hour."""
    hours_since: Time
    retry_record: RetryRecordOut | None
    """The outcomes of retried failures at the newest one's site. None: they cannot be counted now."""
    common: list[CommonTagOut]
    """Tags that nearly all of them have, and other failures rarely."""
    samples: list[SampleOut]


class ErrorHoursOut(Out):
    hours: dict[str, list[int]]
    """By fingerprint: failures in each of the last 24 hours; the last is this hour."""
    since: Time


def error_reader(context: RequestContext) -> ErrorReader:
    parts = context.services.components
    return ErrorReader(parts.incidents, parts.store, ErrorTriages(parts.documents, parts.clock), parts.clock)


@router.get("/hours", response_model=ErrorHoursOut, responses=errors())
async def read_error_hours(
    context: TheDesk,
    who: Viewer,
    fingerprint: Annotated[
        list[Annotated[str, Query(pattern=FINGERPRINT)]], Query(max_length=MAX_TALLIED, description="One or several")
    ],
) -> Response:
    """How many failures each of these errors had in each of the last 24 hours."""
    hours, since = await error_reader(context).hours(who.tenant, fingerprint)
    return json_answer({"hours": {name: list(numbers) for name, numbers in hours.items()}, "since": time_text(since)})


@router.get("/{fingerprint}", response_model=KnownErrorOut, responses=errors(404))
async def read_error(context: TheDesk, who: Viewer, fingerprint: FingerprintId) -> Response:
    """One error: since when, how often, where and whose, the outcome of its failures, and what they have in common."""
    return await _answer(context, who, fingerprint)


async def _answer(context: RequestContext, who: Principal, fingerprint: str) -> Response:
    error = await error_reader(context).read(who.tenant, fingerprint)
    parts = context.services.components
    record = await RetryRecords(parts.incidents, parts.store).of(error.newest)
    return json_answer(_shown(error, record))


@router.post("/{fingerprint}/triage", response_model=KnownErrorOut, responses=errors(404, body=True))
async def triage_error(context: TheDesk, who: Operator, fingerprint: FingerprintId, body: TriageIn) -> Response:
    """Acknowledge, assign, snooze or resolve an error. After it is resolved, its next failure is a regression."""
    if bool(body.seconds) != (body.act is TriageAct.SNOOZE):
        raise HttpProblem(422, "`seconds` is required for `act: snooze` and not allowed otherwise")
    if body.assignee and body.act is not TriageAct.ASSIGN:
        raise HttpProblem(422, "`assignee` is allowed for `act: assign` only")
    reader = error_reader(context)
    title = (await reader.newest(who.tenant, fingerprint)).title
    until = context.services.components.clock.now() + body.seconds * 1000 if body.seconds else 0
    deed = f"error.{body.act.value}"
    await context.note(who, deed, fingerprint, why=body.reason, title=title, assignee=body.assignee, until=until)
    await reader.triages.say(
        who.tenant, fingerprint, body.act, by=who.subject, why=body.reason, assignee=body.assignee, until=until
    )
    return await _answer(context, who, fingerprint)


def triage_public(triage: ErrorTriage, state: ErrorState) -> dict[str, Any]:
    return {
        "state": state.value,
        "assignee": triage.assignee,
        "until": time_text(triage.until) if state is ErrorState.SNOOZED else None,
        "since": time_text(triage.at) if triage.at else None,
        "by": triage.by,
        "why": triage.why,
    }


def _shown(error: ErrorSummary, record: RetryRecord | None) -> dict[str, Any]:
    newest = status_public(error.newest)
    finding = _part(error.samples[0].context.get("finding")) if error.samples else {}
    return {
        **triage_public(error.triage, error.state),
        **{name: newest[name] for name in ("fingerprint", "title", "cause", "task")},
        "first_seen": time_text(error.first_seen),
        "last_seen": newest["at"],
        "count": error.count,
        "waiting": error.waiting,
        "recovered": error.recovered,
        "recovered_whole": error.recovered_whole,
        "given_up": error.states.get("failed", 0),
        "newest": newest["id"],
        "words": str(finding.get("words") or ""),
        "advice": str(finding.get("advice") or ""),
        "tags": {
            tag: {value: many for value, many in list(counts.items())[:MOST_VALUES] if value}
            for tag, counts in error.tags.items()
        },
        "hours": list(error.hours),
        "hours_since": time_text(error.since),
        "retry_record": retry_record_public(record),
        "common": [common._asdict() for common in error.common],
        "samples": [_sample(incident) for incident in error.samples],
    }


def _sample(incident: Incident) -> dict[str, Any]:
    evidence, finding, host = (_part(incident.context.get(name)) for name in ("evidence", "finding", "host"))
    log, lines = evidence.get("log_tail"), finding.get("lines")
    return {
        "incident": incident.id,
        "job": incident.job,
        "owner": incident.owner,
        "at": time_text(incident.at),
        "host": str(host.get("name") or ""),
        "deciding": [str(line) for line in lines] if isinstance(lines, list) else [],
        "log": str(log or "").splitlines()[-SHOWN_LINES:],
    }


def _part(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
