"""Teaching: the cause of an error, what was taught here, and its results."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Response
from pydantic import Field

from forestay.apps.server.exceptions.error_routes import FingerprintId, RetryRecordOut
from forestay.apps.server.http.answers import Out, Time, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import Operator, RequestContext, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Model, NoNul, Reason
from forestay.domain.exceptions.causes.cause import Cause, CauseFinding, RetryNeed
from forestay.domain.exceptions.causes.taught_pattern import RETRIES, TaughtPattern
from forestay.domain.exceptions.evidence.linear_regex import LONGEST
from forestay.formats.jobs.job_public import time_text
from forestay.formats.rules.incident_public import retry_record_public
from forestay.services.exceptions.inbox.error_teacher import SHOWN, ErrorTeacher, PatternTrial, Taught, TeachRequest
from forestay.services.exceptions.inbox.pattern_scores import PatternScore, PatternScores

router = Router(prefix="/v1", tags=["incidents"])
TaughtName = Annotated[str, Path(pattern=r"^taught-[0-9]{1,4}-[0-9a-f]{4,64}$")]
CauseName = Literal[
    "node", "network", "scheduler", "memory", "disk", "time", "data-missing", "data-corrupt", "transfer", "bad-input", "code",
    "output-missing", "cleanup", "policy", "preempted",
]  # fmt: skip
RetryName = Literal["same", "changed", "elsewhere", "no"]
CORRECTED = 0.99
"""The confidence in a person's correction of one failure."""


class CauseIn(Model):
    cause: CauseName
    retry: RetryName | None = None
    """What another try needs; default: what failures of this cause mostly need."""
    reason: Reason = ""


class TeachIn(CauseIn):
    pattern: Annotated[NoNul, Field(max_length=LONGEST)] = ""
    """A regular expression of RE2 that a line of every such failure matches; empty: it is drafted from what these failures share."""
    dry_run: bool = False
    """Only report the effect."""
    anyway: bool = False
    """Store it although it changes the cause of other errors, or of examples in packs."""


class TaughtPatternOut(Out):
    name: str
    pattern: str
    cause: CauseName
    retry: RetryName
    weight: int
    fingerprint: str
    """The fingerprint, at that time, of the error that it was taught from."""
    title: str
    examples: list[str]
    """Lines that it matches."""
    by: str
    at: Time
    why: str


class AnsweredErrorOut(Out):
    fingerprint: str
    title: str
    cause: str
    """The present cause."""
    failures: int


class TeachOut(Out):
    pattern: TaughtPatternOut | None
    """None: none could be drafted."""
    written: bool
    version: int
    """The version of the site's pack; 0: nothing was stored."""
    members: int
    """The number of the error's failures that it was tested on."""
    problems: list[str]
    """Why it cannot be stored."""
    unknown: list[AnsweredErrorOut]
    """Errors without a cause that it would match too."""
    wrong: list[AnsweredErrorOut]
    """Errors of another cause that it would change."""
    examples: list[str]
    """Patterns of packs for whose examples it would change the cause."""
    errors: int
    """The errors that it was tested on, with the number of their failures."""
    failures: int
    whole: bool
    """These are all stored ones; otherwise the newest."""
    replaces: list[str]
    """Taught patterns that decided on these failures until now, and are removed."""
    judged: int
    """Waiting failures that now have the new cause."""
    judged_whole: bool
    """All waiting failures were judged again; otherwise a reconciler continues."""
    now: str
    """The fingerprint of the error with its new cause; empty: none of its failures waited."""


class TaughtScoreOut(TaughtPatternOut):
    record: RetryRecordOut
    """The failures that it matched, and the outcomes of their retries."""
    loses: bool
    """Its advice to retry was wrong more often than right."""


class TaughtOut(Out):
    version: int
    patterns: list[TaughtScoreOut]


class CorrectedOut(Out):
    incident: str
    cause: str
    state: str
    """The present state of the incident."""
    note: str


def _teacher(context: RequestContext) -> ErrorTeacher:
    parts = context.services.components
    return ErrorTeacher(parts.incidents, parts.classifiers, parts.taught, parts.review, parts.clock)


@router.post("/errors/{fingerprint}/teach", response_model=TeachOut, responses=errors(404, 409, body=True))
async def teach_error(context: TheDesk, who: Operator, fingerprint: FingerprintId, body: TeachIn) -> Response:
    """Teach this site the cause of an error: a pattern is drafted, tested on recorded failures and on the examples of the packs, and stored in the site's pack; waiting failures are judged again."""
    retry = RetryNeed(body.retry) if body.retry is not None else None
    request = TeachRequest(fingerprint, Cause(body.cause), retry, body.pattern.strip(), who.subject, body.reason)
    teacher = _teacher(context)
    trial = await teacher.try_out(who.tenant, request)
    pattern = trial.pattern
    if body.dry_run or pattern is None or trial.problems or (trial.harmful and not body.anyway):
        return json_answer(_told(Taught(trial, 0)))
    await context.note(
        who, "error.teach", fingerprint, why=body.reason, title=pattern.title, cause=body.cause, retry=pattern.retry.value,
        pattern=pattern.expression, anyway=body.anyway,
    )  # fmt: skip
    return json_answer(_told(await teacher.teach(who.tenant, trial, pattern)))


@router.get("/taught", response_model=TaughtOut, responses=errors())
async def list_taught(context: TheDesk, who: Viewer) -> Response:
    """The taught patterns of this site with their results: the failures that each matched, and how often another try helped."""
    parts = context.services.components
    pack = await parts.taught.pack(who.tenant)
    scores = await PatternScores(parts.incidents, parts.store).of(who.tenant, pack.patterns)
    return json_answer({"version": pack.version, "patterns": [_scored(score) for score in scores]})


@router.delete("/taught/{name}", response_model=TaughtOut, responses=errors(404))
async def forget_taught(context: TheDesk, who: Operator, name: TaughtName) -> Response:
    """Remove a taught pattern. Failures that it matched keep their cause; later ones are judged without it."""
    taught = context.services.components.taught
    known = (await taught.pack(who.tenant)).get(name)
    if known is None:
        raise HttpProblem(404, "there is no such taught pattern")
    await context.note(who, "error.forget", name, pattern=known.expression, cause=known.cause.value)
    await taught.forget(who.tenant, name)
    return await list_taught(context, who)


@router.post("/incidents/{incident}/cause", response_model=CorrectedOut, responses=errors(404, 409, body=True))
async def correct_cause(context: TheDesk, who: Operator, incident: str, body: CauseIn) -> Response:
    """Correct the cause of one failure that waits for a person; a new decision follows. To apply this to all similar failures, teach its error."""
    cause = Cause(body.cause)
    retry = RetryNeed(body.retry) if body.retry is not None else RETRIES.get(cause, RetryNeed.NO)
    parts = context.services.components
    known = (await parts.incidents.get_statuses([incident])).get(incident)
    if known is None or known.status.tenant != who.tenant:
        raise HttpProblem(404, "there is no such incident")
    await context.note(who, "incident.cause", incident, why=body.reason, cause=body.cause, retry=retry.value)
    words = f"{who.subject} says so{f': {body.reason}' if body.reason else ''}."
    finding = CauseFinding(cause, CORRECTED, retry, words=words)
    await parts.review.correct(incident, finding)
    await parts.taught.correct(who.tenant, incident, cause, who.subject)
    status = (await parts.incidents.get_statuses([incident]))[incident].status
    shown = {"incident": incident, "cause": status.cause, "state": status.state.value, "note": status.note}
    return json_answer(shown)


def _told(taught: Taught) -> dict[str, Any]:
    trial: PatternTrial = taught.trial
    reviewed = taught.reviewed
    return {
        "pattern": _shown(trial.pattern) if trial.pattern is not None else None,
        "written": bool(taught.version),
        "version": taught.version,
        "members": trial.members,
        "problems": trial.problems,
        "unknown": [error._asdict() for error in trial.unknown[:SHOWN]],
        "wrong": [error._asdict() for error in trial.wrong[:SHOWN]],
        "examples": trial.examples[:SHOWN],
        "errors": trial.errors,
        "failures": trial.failures,
        "whole": trial.whole,
        "replaces": list(trial.instead_of),
        "judged": reviewed.judged if reviewed is not None else 0,
        "judged_whole": reviewed is None or reviewed.whole,
        "now": reviewed.now if reviewed is not None else "",
    }


def _shown(pattern: TaughtPattern) -> dict[str, Any]:
    plain = pattern.to_dict()
    expression = plain.pop("expression")
    return {**plain, "pattern": expression, "at": time_text(pattern.at)}


def _scored(score: PatternScore) -> dict[str, Any]:
    return {**_shown(score.pattern), "record": retry_record_public(score.record), "loses": score.loses}
