"""Routes for replay: what rules would have decided on recorded incidents; and the promotion of a rule, of which a replay is part."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Annotated, Any

from fastapi import Path, Query, Request, Response
from pydantic import Field

from forestay.apps.server.http.answers import Out, Time, errors
from forestay.apps.server.http.event_stream import EventStream, event, while_wanted
from forestay.apps.server.http.problems import STATUS, HttpProblem, asked_time, body_of
from forestay.apps.server.http.request_context import RequestContext, RuleAuthor, TheDesk, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Model, Reason
from forestay.apps.server.rules.rule_routes import (
    EditedOut,
    LevelName,
    Number,
    RuleIn,
    RuleName,
    SetName,
    StateIn,
    draft_of,
    edited,
    set_named,
)
from forestay.domain.rules.rule_tree import RuleState
from forestay.formats.jobs.job_public import time_text
from forestay.formats.rules.replay_json import proposal_shown, replay_shown
from forestay.ports.errors import PortError
from forestay.services.rules.rule_promotion import NotPromoted, Summary
from forestay.services.rules.rule_replay import (
    MOST,
    MOST_ALLOWED,
    MOST_DRAFTS,
    MOST_PROPOSED_FROM,
    NotReplayed,
    Progress,
    Replayed,
    ReplayRequest,
)

router = Router(prefix="/v1/rules", tags=["rules"])
TOLD_EVERY = 0.25
MOST_WAITING = 4
"""The most replays of a server that wait for the running one."""
Moment = Annotated[str, Field(max_length=40)]


class ReplayIn(Model):
    since: Moment | None = None
    """Incidents that happened then or later; nothing: all that are recorded."""
    until: Moment | None = None
    version: Number | None = None
    """The set as it was at this version."""
    acting: bool = False
    """Only rules that act now; else the set's shadows count as if they were promoted."""
    promoted: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")] | None = None
    """As if this shadow alone were promoted."""
    rules: Annotated[list[RuleIn], Field(max_length=MOST_DRAFTS)] = Field(default_factory=list)
    """Rules that nobody has added yet, as they would be added."""
    most: Annotated[int, Field(ge=1, le=MOST_ALLOWED)] = MOST
    """The most incidents to evaluate; of more, the newest."""
    show: Annotated[int, Field(ge=0, le=1000)] = 100
    """The most incidents that are listed individually."""


class RuleTallyOut(Out):
    rule: str
    answered: int
    differs: int
    right: int
    unproven: int
    wrong: int
    wrong_by: dict[str, int]
    errors: int
    came: dict[str, int]
    core_hours_saved: float
    core_hours_spent: float
    peak_hour: int
    put_off: int
    examples: list[str]


class ReplayGroupOut(Out):
    by: str
    cause: str
    then: str
    now: str
    count: int
    wrong: int
    came: dict[str, int]
    examples: list[str]


class AnswerOut(Out):
    way: str
    by: str
    does: str


class ComparedOut(Out):
    incident: str
    at: Time
    cause: str
    job: str
    then: AnswerOut
    now: AnswerOut
    came: str
    proof: str
    wrong: str | None


class MessageOut(Out):
    rule: str
    incident: str
    message: str


class SummaryOut(Out):
    incidents: int
    same: int
    differs: int
    by_rule: int
    wrong: int
    wrong_by: dict[str, int]
    proof: dict[str, int]
    came: dict[str, int]
    errors: int
    core_hours_saved: float
    core_hours_spent: float
    peak_hour: int
    put_off: int


class ReplayOut(SummaryOut):
    """What rules would have decided, with the actual outcomes."""

    rule_set: str
    version: int
    all: bool
    """All recorded incidents of the period were evaluated."""
    kept_since: Time | None = None
    """Incidents of the period that were closed before this time may have been removed by the retention."""
    evaluated: int
    """Incidents on which the rules were evaluated; the others have the same values in everything that the rules read. All of them: nearly all differ in it."""
    read: list[str]
    """The fields that the rules read."""
    drafts: list[str]
    first: Time | None
    last: Time | None
    rules: list[RuleTallyOut]
    groups: list[ReplayGroupOut]
    more_groups: int
    examples: list[ComparedOut]
    messages: list[MessageOut]


ProposalName = Annotated[str, Path(pattern=r"^[0-9a-f]{12}$")]


class DismissIn(Model):
    reason: Reason = ""


class DismissedOut(Out):
    proposal: str


class ProposedRuleOut(Out):
    """As it would be added."""

    type: str
    condition: str
    conclusion: dict[str, Any]
    reference_incident: str
    description: str


class ProposalOut(Out):
    id: str
    """To dismiss it by."""
    fingerprint: str
    """The error that it is for; empty: it is for more than one."""
    words: list[str]
    rule: ProposedRuleOut
    remedy: str
    helped: int
    tried: int
    by_hand: int
    examples: list[str]
    """Incidents in which it helped."""
    exceptions: list[str]
    """Incidents in which it did not."""
    replay: SummaryOut
    """Over all incidents that it would answer, as if it stood alone."""


class ProposalsOut(Out):
    rule_set: str
    incidents: int
    all: bool
    proposals: list[ProposalOut]


MOST_OF_ERROR = 500
"""The most failures of one error from which rules are proposed."""
Work = Callable[[Progress], Awaitable[dict[str, Any]]]
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "What it came to"}
}
"""The other form of an answer that takes long."""


@router.post("/{level}/{name}/replay", response_model=ReplayOut, responses=STREAM | errors(404, 429, body=True))
async def replay_rules(
    request: Request, context: TheDesk, who: RuleAuthor, level: LevelName, name: SetName, body: ReplayIn
) -> Response:
    """Replay a rule set over recorded incidents: which decisions would change, which verdicts would be wrong, what it would cost. No job is changed.

    With `Accept: text/event-stream` the answer is a stream that says how far it is: `progress`, and at the end `answer` or `problem`.
    """
    rule_set = set_named(who, level, name)
    question = ReplayRequest(
        rule_set,
        body.version,
        acting=body.acting,
        promoted=body.promoted,
        drafts=[await draft_of(context, who, rule_set, rule) for rule in body.rules],
        since=asked_time(body.since, "since"),
        until=asked_time(body.until, "until"),
        most=body.most,
        shown=body.show,
    )

    async def work(progress: Progress) -> dict[str, Any]:
        done = await context.services.rule_replay.replay(question, progress)
        if isinstance(done, NotReplayed):
            raise HttpProblem(422, *_wrong(done))
        return _shown(done)

    return await _answer(request, context, question, work)


@router.get("/{level}/{name}/proposals", response_model=ProposalsOut, responses=STREAM | errors(404, 429, body=True))
async def propose_rules(
    request: Request,
    context: TheDesk,
    who: RuleAuthor,
    level: LevelName,
    name: SetName,
    since: Annotated[str | None, Query(max_length=40)] = None,
    until: Annotated[str | None, Query(max_length=40)] = None,
    most: Annotated[int, Query(ge=1, le=MOST_ALLOWED)] = MOST_PROPOSED_FROM,
    fingerprint: Annotated[
        str | None, Query(max_length=64, description="Only from the newest 500 failures of this error")
    ] = None,
) -> Response:
    """Propose rules from what recovered recorded failures and from people's actions, each with its support and its replay. Nothing is added.

    With `Accept: text/event-stream` the answer is a stream, as for a replay.
    """
    question = ReplayRequest(
        set_named(who, level, name),
        since=asked_time(since, "since"),
        until=asked_time(until, "until"),
        most=min(most, MOST_OF_ERROR) if fingerprint else most,
        fingerprint=fingerprint or None,
    )

    async def work(progress: Progress) -> dict[str, Any]:
        found_proposals = await context.services.rule_proposals.propose(question, progress)
        shown = [proposal_shown(proposed.proposal, proposed.report) for proposed in found_proposals.proposals]
        about = {
            "rule_set": str(question.rule_set),
            "incidents": found_proposals.incidents,
            "all": found_proposals.whole,
        }
        return {**about, "proposals": shown}

    return await _answer(request, context, question, work)


@router.post(
    "/{level}/{name}/proposals/{proposal}/dismiss", response_model=DismissedOut, responses=errors(404, body=True)
)
async def dismiss_proposal(
    context: TheDesk, who: RuleAuthor, level: LevelName, name: SetName, proposal: ProposalName, body: DismissIn
) -> Response:
    """Do not propose this rule any more."""
    rule_set = set_named(who, level, name)
    await context.note(who, "rule.dismiss", f"{rule_set}#{proposal}", why=body.reason)
    await context.services.rule_proposals.dismiss(rule_set, proposal, by=who.subject, why=body.reason)
    return json_answer({"proposal": proposal})


@router.post(
    "/{level}/{name}/rules/{rule}/state", response_model=EditedOut, responses=STREAM | errors(404, 409, 429, body=True)
)
async def set_state(
    request: Request, context: TheDesk, who: RuleAuthor, level: LevelName, name: SetName, rule: RuleName, body: StateIn
) -> Response:
    """Promote a rule, or put it back into shadow mode. Before a promotion it is replayed over all recorded incidents; if it would have been wrong, or failed with an error, the promotion is
    refused unless that is confirmed with a reason. The summary of the replay is kept with the version.

    With `Accept: text/event-stream` the answer is a stream, as for a replay.
    """
    rule_set = set_named(who, level, name)
    named = f"{rule_set}#{rule}"
    if body.state is RuleState.SHADOW:
        await context.note(who, "rule.state", named, state=body.state.value)
        return json_answer(
            edited(await context.services.rule_editor.promote(rule_set, rule, by=who.subject, to=body.state))
        )

    async def about_to(summary: Summary) -> None:
        await context.note(who, "rule.state", named, why=body.reason, state=body.state.value, replay=summary)

    async def work(progress: Progress) -> dict[str, Any]:
        done = await context.services.rule_promotion.promote(
            rule_set,
            rule,
            by=who.subject,
            reason=body.reason,
            confirmed=body.confirmed,
            about_to=about_to,
            progress=progress,
        )
        if isinstance(done, NotPromoted):
            raise HttpProblem(409, *_against(done))
        return edited(done)

    return await _answer(request, context, ReplayRequest(rule_set), work)


async def _answer(request: Request, context: RequestContext, question: ReplayRequest, work: Work) -> Response:
    if context.services.rule_replay.waiting >= MOST_WAITING:
        raise HttpProblem(429, "too many replays wait on this server; try again later")
    if "text/event-stream" in request.headers.get("accept", ""):
        return EventStream(_told(context, question, work), context.stopping)
    done = await while_wanted(_done(work), request, context.stopping)
    if done is None:
        raise HttpProblem(503, "the server is stopping; use another one")
    return json_answer(done)


async def _done(work: Work) -> dict[str, Any]:
    return await work(lambda _: None)


async def _told(context: RequestContext, question: ReplayRequest, work: Work) -> AsyncGenerator[bytes, None]:
    """The progress, and finally the result."""
    looked = 0

    def progress(many: int) -> None:
        nonlocal looked
        looked = many

    task = asyncio.ensure_future(work(progress))
    try:
        total = await context.services.rule_replay.count(question)
        while not task.done():
            yield event("progress", {"incidents": looked, "of": total})
            await asyncio.wait([task], timeout=TOLD_EVERY)
        try:
            yield event("answer", await task)
        except HttpProblem as problem:
            yield event("problem", body_of(problem.status_code, str(problem.detail), problem.errors))
        except PortError as error:
            status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)
            yield event("problem", body_of(status, str(error)))
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _shown(done: Replayed) -> dict[str, Any]:
    about = {
        "rule_set": str(done.rule_set),
        "version": done.version,
        "all": done.whole,
        "kept_since": time_text(done.kept_since) if done.kept_since else None,
        "evaluated": done.evaluated,
        "read": list(done.read),
        "drafts": list(done.drafts),
    }
    return about | replay_shown(done.report)


def _wrong(done: NotReplayed) -> tuple[str, list[dict[str, object]]]:
    problems: list[dict[str, object]] = [
        {"at": f"condition:{problem.line}:{problem.column}", "detail": problem.message} for problem in done.problems
    ]
    problems += [{"at": "rules", "detail": reason} for reason in done.reasons]
    return done.reasons[0] if done.reasons else str(done.problems[0]), problems


def _against(done: NotPromoted) -> tuple[str, list[dict[str, object]]]:
    looked = done.summary["incidents"]
    words = f"over {looked:,} recorded incidents this rule {'; '.join(done.reasons)}. Confirm it with a reason, or correct the rule"
    problems: list[dict[str, object]] = [{"at": "replay", "detail": reason} for reason in done.reasons]
    return words, problems + [
        {"at": f"incident {example}", "detail": "the decision would be wrong"} for example in done.examples
    ]
