"""Routes for rules: read them, add one for its reference incident, promote, roll back, and evaluate them."""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated, Any, Literal

import orjson
from fastapi import Path, Query, Response
from pydantic import Field

from forestay.apps.server.http.answers import Out, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import RequestContext, RuleAuthor, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import INT64, Id, Model, NoNul, PlainValue
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import Incident
from forestay.domain.rules.context import FIELDS, read_context, told_by
from forestay.domain.rules.declared_rules import DeclaredChange
from forestay.domain.rules.in_words import walk_in_words
from forestay.domain.rules.rule_set import RuleSetId, RuleSetLevel, Ruling
from forestay.domain.rules.rule_tree import Conclusion, RuleState
from forestay.formats.jobs.job_public import time_text
from forestay.formats.rules.rule_json import change_shown, rule_shown, ruling_shown, set_shown
from forestay.ports.operations.identity import Principal
from forestay.services.rules.rule_editor import Edited, NotEdited, RuleDraft, found_at
from forestay.services.rules.rule_store import Rulings, rulings

router = Router(prefix="/v1/rules", tags=["rules"])
LevelName = Annotated[RuleSetLevel, Path()]
SetName = Annotated[str, Path(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,99}$")]
RuleName = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
TaskName = Annotated[str, Field(max_length=100, pattern=r"^(\*|[A-Za-z_][A-Za-z0-9_.-]*)?$")]
Told = Annotated[dict[Annotated[str, Field(max_length=200)], PlainValue], Field(max_length=200)]
Number = Annotated[int, Field(ge=0, le=INT64)]
MOST_VERSIONS = 500
MOST_OF_FILE = 200
FileRuleName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,39}$")]


class ConclusionIn(Model):
    playbook: Annotated[str, Field(max_length=64)] = ""
    """The name of a playbook,"""
    steps: Annotated[list[dict[Annotated[str, Field(max_length=100)], PlainValue]], Field(max_length=32)] = Field(
        default_factory=list
    )
    """or its steps."""


class RuleIn(Model):
    type: ExceptionType
    task: TaskName = ""
    """Of a task-level type; nothing or `*`: any task."""
    condition: Annotated[NoNul, Field(min_length=1, max_length=4096)]
    conclusion: ConclusionIn
    reference_incident: Id
    """The incident for which it is written."""
    context: Told | None = None
    """What was known of it; nothing: as the incident has it."""
    description: Annotated[NoNul, Field(max_length=2000)] = ""
    confirmed: bool = False
    """Add it although this rule would change the result for earlier reference incidents."""


class NamedRuleIn(Model):
    """A rule of a file."""

    name: FileRuleName
    type: ExceptionType
    task: TaskName = ""
    condition: Annotated[NoNul, Field(min_length=1, max_length=4096)]
    conclusion: ConclusionIn
    context: Told
    """An example of what it answers. It takes the place of a reference incident."""
    description: Annotated[NoNul, Field(max_length=2000)] = ""


class RuleFileIn(Model):
    rules: Annotated[list[NamedRuleIn], Field(max_length=MOST_OF_FILE)]
    prune: bool = False
    """Remove rules that came from a file and are not among these."""
    confirmed: bool = False
    """Apply them although they change the result for earlier reference incidents."""
    dry_run: bool = False
    """Change nothing; only report what would change."""


class StateIn(Model):
    state: RuleState = RuleState.ACTIVE
    confirmed: bool = False
    """Promote it although the replay contradicts it; requires a reason."""
    reason: Annotated[NoNul, Field(max_length=500)] = ""


class BackIn(Model):
    version: Number


class AskIn(Model):
    type: ExceptionType | None = None
    """Nothing: the incident's."""
    task: TaskName = ""
    flow: Annotated[str, Field(max_length=100)] = ""
    """The flow's name, whose own rules are asked first."""
    context: Told | None = None
    incident: Id | None = None
    """An incident, instead of a context."""
    rule_set: Annotated[str, Field(pattern=r"^(flow|domain|pack)/[A-Za-z_][A-Za-z0-9_.-]{0,99}$")] | None = None
    """This set alone, such as `domain/site`, instead of all that apply."""
    version: Number | None = None


class SetOut(Out):
    level: str
    name: str
    version: int
    rules: int


class SetsOut(Out):
    rule_sets: list[SetOut]


class FieldOut(Out):
    name: str
    type: str
    optional: bool
    words: str


class FieldsOut(Out):
    fields: list[FieldOut]


class SetWholeOut(SetOut):
    tenant: str
    trees: list[dict[str, Any]]


class RuleOut(Out):
    rule: dict[str, Any]


class VersionOut(Out):
    number: int
    by: str
    at: str
    note: str
    changes: int
    replayed: dict[str, Any] | None
    """Of a promotion: what the replay came to that was made for it."""


class VersionsOut(Out):
    versions: list[VersionOut]


class DiffOut(Out):
    changes: list[dict[str, Any]]


class EditedOut(Out):
    version: int
    rule: str
    overturned: list[dict[str, str]]
    replayed: dict[str, Any] | None
    """Of a promotion: what the replay came to."""


class AppliedRuleOut(Out):
    name: str
    rule: str
    """Its id; empty in a dry run where it would be new."""
    state: RuleState
    change: DeclaredChange


class AppliedOut(Out):
    version: int
    rules: list[AppliedRuleOut]
    """Those of the file in their order, then those that are removed."""
    overturned: list[dict[str, str]]


class RulingOut(Out):
    verdict: Literal["true", "false", "error"]
    active: dict[str, Any]
    shadow: dict[str, Any] | None
    words: list[str]
    problems: list[str]


def set_named(who: Principal, level: RuleSetLevel, name: str) -> RuleSetId:
    return RuleSetId(who.tenant, level, name)


def edited(done: Edited | NotEdited) -> dict[str, Any]:
    """The change, or the problem as an exception."""
    if isinstance(done, NotEdited):
        errors_data = [
            {"at": f"condition:{problem.line}:{problem.column}", "detail": problem.message} for problem in done.problems
        ]
        errors_data += [{"at": "rule", "detail": reason} for reason in done.reasons]
        errors_data += [
            {
                "at": f"reference incident {overturned.reference_incident}",
                "detail": f"answered by {overturned.before} now, by {overturned.after} after the change",
            }
            for overturned in done.overturned
        ]
        words = done.reasons[0] if done.reasons else str(done.problems[0])
        raise HttpProblem(409 if done.overturned else 422, words, errors_data)
    overturned = [other_overturned._asdict() for other_overturned in done.overturned]
    return {
        "version": done.version.number,
        "rule": done.rule,
        "overturned": overturned,
        "replayed": done.version.replayed,
    }


async def _incident(request_context: RequestContext, who: Principal, name: str) -> Incident | None:
    incident = (await request_context.services.components.incidents.get_incidents([name])).get(name)
    return incident if incident is not None and incident.tenant == who.tenant else None


async def draft_of(request_context: RequestContext, who: Principal, rule_set: RuleSetId, body: RuleIn) -> RuleDraft:
    """The rule with the context of its reference incident."""
    context: dict[str, Any] | None = dict(body.context) if body.context is not None else None
    if context is None:
        incident = await _incident(request_context, who, body.reference_incident)
        if incident is None:
            raise HttpProblem(404, f"there is no incident {body.reference_incident}; send the context with the rule")
        context = told_by(incident)
    conclusion = Conclusion(body.conclusion.playbook, tuple(body.conclusion.steps))
    return RuleDraft(
        rule_set, body.type, body.task, body.condition, conclusion, body.reference_incident, context, body.description
    )


@router.get("", response_model=SetsOut, responses=errors())
async def find_rule_sets(request_context: TheDesk, who: Viewer) -> Response:
    """Every rule set: the flows', the domain's, the packs'."""
    await request_context.services.rule_cache.refresh()
    sets = request_context.services.rule_cache.sets_of(who.tenant)
    shown = [
        {
            "level": rule_set.id.level.value,
            "name": rule_set.id.name,
            "version": rule_set.version,
            "rules": len(rule_set),
        }
        for rule_set in sets
    ]
    return json_answer({"rule_sets": shown})


@router.get("/context", response_model=FieldsOut, responses=errors())
async def describe_context(who: Viewer) -> Response:
    """All fields that a condition may use, with their types."""
    shown = [
        {"name": field.name, "type": field.kind.value, "optional": field.optional, "words": field.words}
        for field in FIELDS
    ]
    return json_answer({"fields": shown})


@router.post("/test", response_model=RulingOut, responses=errors(400, 404, body=True))
async def ask_rules(request_context: TheDesk, who: Viewer, body: AskIn) -> Response:
    """Evaluate the rules for an exception. Nothing is done and nothing is stored."""
    returned_context: dict[str, Any] | None = dict(body.context) if body.context is not None else None
    type_, task = body.type, body.task
    if returned_context is None:
        if body.incident is None:
            raise HttpProblem(400, "send a context or an incident")
        incident = await _incident(request_context, who, body.incident)
        if incident is None:
            raise HttpProblem(404, f"there is no incident {body.incident}")
        returned_context = told_by(incident)
        type_ = type_ or incident.kind
        task = task or str(returned_context.get("exception.task", ""))
    if type_ is None:
        raise HttpProblem(400, "the exception type is required")
    context, wrong = read_context(returned_context)
    cache = request_context.services.rule_cache
    await cache.refresh()
    if body.rule_set is None:
        returned_rulings = cache.decide(who.tenant, body.flow, type_, task, context)
    else:
        level, _, name = body.rule_set.partition("/")
        chosen = await request_context.services.rules.load(set_named(who, RuleSetLevel(level), name), body.version)
        returned_rulings = rulings([chosen], type_, task, request_context.services.conditions.over(context))
    return json_answer(_ruling(returned_rulings, wrong))


def _ruling(rulings_data: Rulings, wrong: tuple[str, ...]) -> dict[str, Any]:
    return {
        "verdict": rulings_data.active.verdict.value,
        "active": ruling_shown(rulings_data.active),
        "shadow": ruling_shown(rulings_data.shadow) if rulings_data.shadow is not None else None,
        "words": _words(rulings_data.active)
        + [
            f"with shadows: {line}" for line in (_words(rulings_data.shadow) if rulings_data.shadow is not None else ())
        ],
        "problems": list(wrong),
    }


def _words(ruling: Ruling) -> list[str]:
    lines = [
        f"{set_walk.rule_set} {set_walk.key}: {line}"
        for set_walk in ruling.walks
        for line in walk_in_words(set_walk.walk.tree, set_walk.walk)
    ]
    if ruling.rule is not None:
        return [*lines, f"rule {ruling.rule} decides"]
    return [
        *lines,
        f"rule {ruling.flagged} has an evaluation error: no action is taken"
        if ruling.flagged is not None
        else "no rule matches: the default policy decides",
    ]


@router.get("/{level}/{name}", response_model=SetWholeOut, responses=errors(404))
async def read_rule_set(
    request_context: TheDesk,
    who: Viewer,
    level: LevelName,
    name: SetName,
    version: Annotated[int | None, Query(ge=0, le=INT64)] = None,
) -> Response:
    """A rule set, tree by tree, each also in words."""
    rule_set = await request_context.services.rules.load(set_named(who, level, name), version)
    if rule_set.version == 0:
        raise HttpProblem(404, f"there are no rules in {level}/{name}")
    return json_answer(set_shown(rule_set))


@router.post("/{level}/{name}", response_model=EditedOut, responses=errors(404, 409, body=True))
async def add_rule(
    request_context: TheDesk, who: RuleAuthor, level: LevelName, name: SetName, body: RuleIn
) -> Response:
    """Add a rule for its reference incident, as a shadow. It is refused where its condition is not true on the reference incident, and where an earlier
    reference incident would be answered otherwise, unless that is confirmed."""
    draft = await draft_of(request_context, who, set_named(who, level, name), body)
    written = {
        "type": body.type.value,
        "task": body.task,
        "condition": body.condition,
        "reference_incident": body.reference_incident,
    }
    await request_context.note(who, "rule.add", str(draft.rule_set), why=body.description, **written)
    return json_answer(
        edited(await request_context.services.rule_editor.add(draft, by=who.subject, confirmed=body.confirmed))
    )


@router.put("/{level}/{name}", response_model=AppliedOut, responses=errors(409, 422, body=True))
async def apply_rules(
    request_context: TheDesk, who: RuleAuthor, level: LevelName, name: SetName, body: RuleFileIn
) -> Response:
    """Make a set have the rules of a file, known by their names, in one new version; none where nothing differs. What is new or changed is a shadow: it acts only when it is promoted,
    after a replay. Rules that were written for incidents stay."""
    rule_set = set_named(who, level, name)
    drafts = {rule.name: _declared(rule_set, rule) for rule in body.rules}
    if len(drafts) < len(body.rules):
        raise HttpProblem(422, "two rules of the file have the same name")
    if not body.dry_run:
        await request_context.note(who, "rule.apply", str(rule_set), rules=list(drafts), prune=body.prune)
    done = await request_context.services.rule_editor.apply(
        rule_set, drafts, by=who.subject, prune=body.prune, confirmed=body.confirmed, dry_run=body.dry_run
    )
    plain = edited(done)
    applied = done.applied if isinstance(done, Edited) else ()
    new = {DeclaredChange.ADDED, DeclaredChange.CHANGED} if body.dry_run else frozenset[DeclaredChange]()
    shown = [{**rule._asdict(), "rule": "" if rule.change in new else rule.rule} for rule in applied]
    return json_answer({"version": plain["version"], "rules": shown, "overturned": plain["overturned"]})


def _declared(rule_set: RuleSetId, rule: NamedRuleIn) -> RuleDraft:
    """The rule with its example as its reference incident. Reference incidents never change, so its content is part of its id."""
    context = dict(rule.context)
    digest = sha256(orjson.dumps(context, option=orjson.OPT_SORT_KEYS)).hexdigest()[:12]
    conclusion = Conclusion(rule.conclusion.playbook, tuple(rule.conclusion.steps))
    return RuleDraft(
        rule_set,
        rule.type,
        rule.task,
        rule.condition,
        conclusion,
        f"example-{rule.name}-{digest}",
        context,
        rule.description,
    )


@router.get("/{level}/{name}/versions", response_model=VersionsOut, responses=errors(404))
async def find_versions(request_context: TheDesk, who: Viewer, level: LevelName, name: SetName) -> Response:
    """The versions of a set, the newest first; at most 500."""
    rules, whose = request_context.services.rules, set_named(who, level, name)
    newest = await rules.newest(whose)
    versions = await rules.versions(whose, max(1, newest - MOST_VERSIONS + 1), newest)
    shown = [
        {
            "number": version.number,
            "by": version.by,
            "at": time_text(version.at),
            "note": version.note,
            "changes": len(version.changes),
            "replayed": version.replayed,
        }
        for version in reversed(versions)
    ]
    return json_answer({"versions": shown})


@router.get("/{level}/{name}/diff", response_model=DiffOut, responses=errors(404))
async def differ(
    request_context: TheDesk,
    who: Viewer,
    level: LevelName,
    name: SetName,
    old: Annotated[int, Query(ge=0, le=INT64)],
    new: Annotated[int | None, Query(ge=0, le=INT64)] = None,
) -> Response:
    """What differs between two versions, rule by rule; without `new`, the newest."""
    changes = await request_context.services.rule_editor.diff(set_named(who, level, name), old, new)
    return json_answer({"changes": [shown for shown in map(change_shown, changes) if shown is not None]})


@router.post("/{level}/{name}/rollback", response_model=EditedOut, responses=errors(404, 409, body=True))
async def roll_back(
    request_context: TheDesk, who: RuleAuthor, level: LevelName, name: SetName, body: BackIn
) -> Response:
    """Roll back to an older version, by creating a new one."""
    await request_context.note(who, "rule.rollback", str(set_named(who, level, name)), version=body.version)
    return json_answer(
        edited(
            await request_context.services.rule_editor.roll_back(
                set_named(who, level, name), body.version, by=who.subject
            )
        )
    )


@router.get("/{level}/{name}/rules/{rule}", response_model=RuleOut, responses=errors(404))
async def read_rule(request_context: TheDesk, who: Viewer, level: LevelName, name: SetName, rule: RuleName) -> Response:
    """One rule, and its meaning at its position."""
    rule_set = await request_context.services.rules.load(set_named(who, level, name))
    return json_answer({"rule": rule_shown(rule_set, *found_at(rule_set, rule))})


@router.delete("/{level}/{name}/rules/{rule}", response_model=EditedOut, responses=errors(404, 409, 422))
async def remove_rule(
    request_context: TheDesk,
    who: RuleAuthor,
    level: LevelName,
    name: SetName,
    rule: RuleName,
    confirmed: Annotated[Literal["true", "false"], Query()] = "false",
) -> Response:
    """Remove a rule without refinements; this changes the result for its own reference incident, so it must be confirmed."""
    await request_context.note(who, "rule.remove", f"{set_named(who, level, name)}#{rule}")
    return json_answer(
        edited(
            await request_context.services.rule_editor.remove(
                set_named(who, level, name), rule, by=who.subject, confirmed=confirmed == "true"
            )
        )
    )
