"""Decides how an exception is answered: by a rule or, if none matches, by the default policy. It has no effects.

A decision can be recorded: it contains the playbook to be carried out, or the reason why a person is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from forestay.domain.exceptions.causes.cause import CauseFinding
from forestay.domain.exceptions.evidence.evidence import Evidence
from forestay.domain.exceptions.incidents.default_policy import (
    FREE_TRIES,
    DefaultAction,
    DefaultAnswer,
    default_answer,
    is_lost,
)
from forestay.domain.exceptions.incidents.dispatcher import Dispatcher, FailureRoute, can_roll_back
from forestay.domain.exceptions.incidents.exception_policy import ExceptionAction, ExceptionPolicy
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import (
    DEFAULT_POLICY,
    HELD_FOR_A_PERSON,
    OWN_ENGINE,
    PLAYBOOK,
    Decision,
    Incident,
)
from forestay.domain.jobs.claim import needs_person
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.playbooks.action import ActionKind, ActionTarget, RetryByPolicy, Rollback, Steer
from forestay.domain.playbooks.playbook import Playbook, PlaybookStep, actions_of, aimed, playbook_as_plain, version_of
from forestay.domain.rules.condition import ConditionVerdict
from forestay.domain.rules.context import read_context, told_by
from forestay.domain.rules.rule_set import ANY_TASK, RuleSetLevel, Ruling
from forestay.domain.rules.rule_tree import Conclusion
from forestay.services.exceptions.detect.failure_detector import FailedAttempt
from forestay.services.rules.playbook_store import PlaybookStore
from forestay.services.rules.rule_store import RuleCache

FRESH = 0.5
"""The greatest age in seconds of the copy of the rules."""


class FilePolicy(Protocol):
    """The default policy for failures caused by files."""

    async def answer(self, document: JobDocument, evidence: Evidence, finding: CauseFinding) -> Playbook | None: ...


@dataclass(slots=True)
class Decider:
    """The service."""

    rules: RuleCache
    playbooks: PlaybookStore
    """The playbooks that rules conclude by name."""
    files: FilePolicy
    """Answers failures caused by files, before the job's own policy does."""
    policy: ExceptionPolicy = field(default_factory=ExceptionPolicy)
    """The answer where no rule concludes; the failures of our own jobs have their policy in their documents."""
    dispatcher: Dispatcher = field(default_factory=Dispatcher)
    """Routes a failure for which no rule concludes."""
    free_tries: Sequence[int] = FREE_TRIES
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def get_ready(self) -> None:
        """Refresh the rules, unless that was just done. `Transient` if the store does not answer: no decision is made by part of the rules."""
        if self.rules.age > FRESH:
            async with self._looking:
                # Of many concurrent callers one refreshes, for all.
                if self.rules.age > FRESH:
                    await self.rules.refresh()

    def has_rules(self, tenant: str, flow_name: str, kind: ExceptionType, task: str = "", *, own: bool = False) -> bool:
        """Whether any rule, acting or in shadow mode, could answer: in memory, and as fast for many rules as for few. ``own``: one of the task's own tree."""
        return self.rules.has_tree(tenant, flow_name, kind, task, own=own)

    def wanted(self, tenant: str, flow_name: str, kind: ExceptionType, task: str = "") -> bool:
        """Whether such an exception could have any effect: by a rule, or by the default policy."""
        return self.policy.course(kind) is not ExceptionAction.IGNORE or self.has_rules(tenant, flow_name, kind, task)

    async def decide(self, incident: Incident, now: int, *, n: int = 1) -> Decision:
        """The decision number `n` on an exception, based only on its incident."""
        by_rule, seen = await self.decide_by_rule(incident, now, n=n)
        return by_rule or _by_exception_policy(incident, self.policy.course(incident.kind), now, n, seen)

    async def decide_failure(self, failed: FailedAttempt, now: int, *, n: int = 1) -> Decision:
        """The decision number `n` on the failure of a job of ours: rules see its incident, the default policy its job."""
        by_rule, seen = await self.decide_by_rule(failed.incident, now, n=n)
        if needs_person(failed.document):
            # No rule's author could know what this very attempt did: the default policy answers.
            return _answered(failed.incident, default_answer(failed.document, failed.finding), now, n, seen)
        return by_rule or await self._by_job_policy(failed, now, n, seen)

    async def decide_by_rule(
        self, incident: Incident, now: int, *, n: int = 1
    ) -> tuple[Decision | None, Mapping[str, object]]:
        """The decision of a rule, None if none concludes; and what rules in shadow mode would have concluded."""
        context, _ = read_context(told_by(incident))
        flow, task = str(context["run.flow"]), str(context["exception.task"])
        active, shadow = self.rules.decide(incident.tenant, flow, incident.kind, task, context)
        by = active.by
        if by is not None and by.key.task == ANY_TASK and _stands_beside(incident):
            # A rule for any task concerns the task that timed out, not those that happen to run beside it.
            active = type(active)(())
        seen = {"shadow": shadow_said(shadow)} if shadow is not None else {}
        if active.verdict is ConditionVerdict.FALSE:
            return None, seen
        conclusion = active.conclusion
        playbook = await self.playbooks.concluded(incident.tenant, conclusion, incident.kind)
        return decision_by_rule(incident, active, conclusion, playbook, now, n=n, seen=seen), seen

    async def _by_job_policy(self, failed: FailedAttempt, now: int, n: int, seen: Mapping[str, object]) -> Decision:
        document, evidence, finding, incident, avoid, _ = failed
        sent = self.dispatcher.send(finding)
        way = sent.way
        if way is FailureRoute.OWN and not is_lost(document):
            playbook = await self.files.answer(document, evidence, finding)
            if playbook is not None:
                words = f"{finding.cause} failure of files: {', '.join(actions_of(playbook.steps))}"
                return _default(incident, PLAYBOOK, now, n, playbook, words=words, **seen)
        if way is FailureRoute.OWN or is_lost(document):
            answer = replace(default_answer(document, finding, self.free_tries), avoid=avoid)
            return _answered(incident, answer, now, n, seen)
        if way is FailureRoute.RETRY or (way is FailureRoute.ROLLBACK and can_roll_back(document)):
            do = RetryByPolicy(sent.retry_policy) if way is FailureRoute.RETRY else Rollback()
            return _default(
                incident, PLAYBOOK, now, n, Playbook("default", (PlaybookStep(do),)), words=sent.words, **seen
            )
        course = DefaultAction.HOLD if way is FailureRoute.HOLD else DefaultAction.FAIL
        return _answered(incident, DefaultAnswer(course, sent.words), now, n, seen)


def _stands_beside(incident: Incident) -> bool:
    """Whether this is a timeout reported to a task that runs beside the one that timed out."""
    exception: Any = incident.context.get("exception")
    late = exception.get("task_id", incident.instance) if isinstance(exception, Mapping) else incident.instance
    return incident.kind is ExceptionType.TIMEOUT and bool(incident.instance) and late != incident.instance


def _answered(incident: Incident, answer: DefaultAnswer, now: int, n: int, seen: Mapping[str, object]) -> Decision:
    told = {"words": answer.words, "wait": answer.wait, "charged": answer.charged, **seen}
    told |= {"avoid": list(answer.avoid)} if answer.avoid else {}
    return _default(incident, answer.course.value, now, n, None, **told)


def _by_exception_policy(
    incident: Incident, course: ExceptionAction, now: int, n: int, seen: Mapping[str, object]
) -> Decision:
    """The default decision, with the playbook that it needs."""
    playbook: Playbook | None = None
    own_job = bool(incident.job) and incident.engine == OWN_ENGINE
    if course is ExceptionAction.RETRY and own_job:
        playbook = Playbook("default", (PlaybookStep(RetryByPolicy()),))
    elif course is ExceptionAction.FAIL and (own_job or incident.instance):
        target = ActionTarget.JOB if own_job else ActionTarget.TASK
        playbook = Playbook("default", (PlaybookStep(Steer(ActionKind.FORCE_FAIL, target)),))
    elif course in (ExceptionAction.RETRY, ExceptionAction.FAIL):
        course = ExceptionAction.HOLD
    return _default(incident, course.value, now, n, playbook, words=_WORDS[course], **seen)


def _default(
    incident: Incident, verdict: str, now: int, n: int, playbook: Playbook | None, **detail: object
) -> Decision:
    plain = None if playbook is None else playbook_as_plain(playbook)
    return Decision(incident.id, n, incident.tenant, now, verdict, DEFAULT_POLICY, playbook=plain, detail=detail)


_WORDS = {
    ExceptionAction.IGNORE: "no rule matches; ignored by the default policy",
    ExceptionAction.RETRY: "no rule matches; retried by the default retry policy",
    ExceptionAction.HOLD: f"no rule answers; {HELD_FOR_A_PERSON}",
    ExceptionAction.FAIL: "no rule matches; failed by the default policy",
}


MOST_WORDS = 200
"""Characters of a condition that a decision repeats."""


def decision_by_rule(
    incident: Incident,
    ruling: Ruling,
    conclusion: Conclusion | None,
    playbook: Playbook | str,
    now: int,
    *,
    n: int = 1,
    seen: Mapping[str, Any] | None = None,
) -> Decision:
    """The decision by a ruling that concluded or erred. ``playbook``: its conclusion, or why it cannot be carried out; then a person is asked."""
    by = ruling.by
    assert by is not None  # noqa: S101 - it concluded or erred
    path = [
        {"rule": tested.rule, "verdict": tested.verdict.value, "message": tested.message} for tested in by.walk.path
    ]
    detail = {"rule_set": str(by.rule_set), "version": by.version, "tree": str(by.key), "path": path, **(seen or {})}
    if ruling.verdict is ConditionVerdict.ERROR:
        reason = f"rule {ruling.flagged} of {by.rule_set} has an evaluation error ({by.walk.path[-1].message}); {HELD_FOR_A_PERSON}"
        return _held(incident, f"{by.rule_set}#{ruling.flagged}", reason, detail, now, n)
    name = f"{by.rule_set}#{ruling.rule}"
    if isinstance(playbook, str):
        return _held(incident, name, playbook, detail, now, n)
    playbook = aimed(playbook, at_job=bool(incident.job))
    rule = by.walk.tree.rules[by.walk.last_satisfied]
    detail |= {"words": f"if {shortened(rule.condition)}" + (f"; {rule.description}" if rule.description else "")}
    detail |= {"author": rule.author} if rule.author else {}
    if by.rule_set.level is RuleSetLevel.FLOW:
        # The author wrote it for an own flow; on other owners' jobs of the same flow it needs approval.
        detail |= {"rule_owner": rule.author}
    if conclusion is not None and conclusion.playbook:
        detail |= {"playbook": playbook.name, "playbook_version": version_of(playbook)}
    return Decision(
        incident.id, n, incident.tenant, now, PLAYBOOK, name, playbook=playbook_as_plain(playbook), detail=detail
    )


def shortened(condition: str) -> str:
    """The beginning of a long condition; the rule contains the whole."""
    text = " ".join(condition.split())
    return text if len(text) <= MOST_WORDS else f"{text[:MOST_WORDS]}…"


def _held(incident: Incident, by: str, words: str, detail: dict[str, Any], now: int, n: int) -> Decision:
    detail |= {"words": words, "wait": 0, "charged": True}
    return Decision(incident.id, n, incident.tenant, now, DefaultAction.HOLD.value, by, detail=detail)


def shadow_said(ruling: Ruling) -> dict[str, Any]:
    """What the rules would have concluded including those in shadow mode."""
    by = ruling.by
    if by is None:
        return {"verdict": ruling.verdict.value}
    steps = [dict(step) for step in ruling.conclusion.steps] if ruling.conclusion is not None else []
    rule = ruling.flagged if ruling.verdict is ConditionVerdict.ERROR else ruling.rule
    return {
        "verdict": ruling.verdict.value,
        "rule": f"{by.rule_set}#{rule}",
        "steps": steps,
        "playbook": ruling.conclusion.playbook if ruling.conclusion is not None else "",
    }
