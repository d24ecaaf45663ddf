"""An answer to an exception, from whatever source, in a form in which two answers can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from forestay.domain.exceptions.causes.cause import RetryNeed
from forestay.domain.exceptions.incidents.default_policy import FailureFacts, default_course
from forestay.domain.exceptions.incidents.incident import Decision, Incident
from forestay.domain.jobs.claim import MAX_RELEASES, said_by_policy
from forestay.domain.playbooks.action import ActionKind
from forestay.domain.rules.condition import ConditionVerdict
from forestay.domain.rules.in_words import need_in_words
from forestay.domain.rules.incident_outcome import DEFAULT_POLICY
from forestay.domain.rules.rule_set import Ruling
from forestay.domain.rules.rule_tree import Conclusion


class AnswerKind(StrEnum):
    """The effect of an answer on the job."""

    RETRY = "retry"
    """It is retried unchanged."""
    CHANGED = "retry-changed"
    """It is retried with more resources."""
    ELSEWHERE = "retry-elsewhere"
    """It is retried in another place, or with other replicas of its files."""
    HOLD = "hold"
    """It waits for a person."""
    FAIL = "fail"
    """It fails, or is removed, alone or with its run."""
    COMPLETE = "complete"
    """It counts as done."""
    OTHER = "other"
    """Any other action: worklets run, people are notified. It is not judged."""
    ERROR = "error"
    """A condition could not be evaluated: there is no action, and a person is asked."""
    NOTHING = "nothing"
    """No rule answers an exception of this type, and it is ignored; or there is no decision yet."""


TRYING = frozenset({AnswerKind.RETRY, AnswerKind.CHANGED, AnswerKind.ELSEWHERE})
STOPPING = frozenset({AnswerKind.HOLD, AnswerKind.FAIL, AnswerKind.COMPLETE, AnswerKind.ERROR})
_FAILING = frozenset({ActionKind.FORCE_FAIL, ActionKind.REMOVE, ActionKind.ROLLBACK})
_SENDING = frozenset({ActionKind.RESUBMIT, ActionKind.RETRY, ActionKind.RESTART, ActionKind.RESTAGE, ActionKind.REMAKE})
_ELSEWHERE = frozenset({ActionKind.AVOID_HOST, ActionKind.REMAKE})
FIELDS_OF_DEFAULT = frozenset({"cause", "confidence", "retry", "history.same_cause"})
"""The fields of an incident that `default_said` reads."""
_PLACES = frozenset({"other-domain", "other-replica", "other-target"})


@dataclass(frozen=True, slots=True)
class Answer:
    """The action, and the rule or policy that chose it."""

    way: AnswerKind
    by: str = DEFAULT_POLICY
    """The rule as ``domain/site#RULE``, or the default policy."""
    does: str = ""
    """Its actions, for people."""
    needs: frozenset[str] = frozenset()
    """The resources that are increased, if the kind is `CHANGED`."""

    @property
    def by_rule(self) -> bool:
        return "#" in self.by

    def same_as(self, other: Answer) -> bool:
        """Whether it has the same effect on the job, whoever decided it."""
        return (self.way, self.needs) == (other.way, other.needs)


def answer_of_steps(steps: Sequence[Mapping[str, Any]], by: str) -> Answer:
    """The answer of a playbook, by its steps as JSON types."""
    actions = [str(step.get("action", "")) for step in steps]
    does = ", ".join(_told(step) for step in steps)
    if ActionKind.FORCE_COMPLETE in actions:
        return Answer(AnswerKind.COMPLETE, by, does)
    if _FAILING.intersection(actions):
        return Answer(AnswerKind.FAIL, by, does)
    if ActionKind.HOLD in actions or (ActionKind.SUSPEND in actions and ActionKind.CONTINUE not in actions):
        return Answer(AnswerKind.HOLD, by, does)
    sent = next((step for step in steps if step.get("action") in _SENDING), None)
    if sent is None or ActionKind.COMPENSATE in actions or ActionKind.SELECT in actions:
        return Answer(AnswerKind.OTHER, by, does)
    if sent.get("needs"):
        return Answer(AnswerKind.CHANGED, by, does, frozenset(map(str, sent["needs"])))
    if sent.get("how") in _PLACES or _ELSEWHERE.intersection(actions):
        return Answer(AnswerKind.ELSEWHERE, by, does)
    return Answer(AnswerKind.RETRY, by, does)


def answer_of_decision(decision: Decision | None) -> Answer:
    """The answer of a recorded decision."""
    if decision is None:
        return Answer(AnswerKind.NOTHING, "")
    if decision.playbook is not None:
        steps: Any = decision.playbook.get("steps", ())
        return answer_of_steps(steps, decision.by)
    try:
        way = AnswerKind(decision.verdict)
    except ValueError:
        way = AnswerKind.OTHER
    return Answer(way, decision.by, decision.verdict)


def answer_of_ruling(ruling: Ruling, conclusion: Conclusion | None) -> Answer | None:
    """The answer of the present rules; None if no rule concludes. `conclusion` is the ruling's, with the name of a playbook replaced by its steps."""
    by = ruling.by
    if by is None:
        return None
    if ruling.verdict is ConditionVerdict.ERROR:
        return Answer(AnswerKind.ERROR, f"{by.rule_set}#{ruling.flagged}", by.walk.message)
    return answer_of_conclusion(conclusion, f"{by.rule_set}#{ruling.rule}")


def answer_of_conclusion(conclusion: Conclusion | None, by: str) -> Answer:
    """The answer of a rule's conclusion. A playbook of which only the name is known cannot be carried out, and a person is asked."""
    if conclusion is None or not conclusion.steps:
        return Answer(AnswerKind.HOLD, by, conclusion.playbook if conclusion is not None else "")
    return answer_of_steps(conclusion.steps, by)


def default_said(incident: Incident, then: Answer, facts: Mapping[str, Any]) -> Answer:
    """The default policy's answer to an incident: the recorded one, or else the one that follows from the incident."""
    if then.by == DEFAULT_POLICY and then.way is not AnswerKind.NOTHING:
        return then
    job: Any = incident.context.get("job")
    if not isinstance(job, Mapping):
        return Answer(AnswerKind.NOTHING)
    releases, failures = _number(job.get("releases")), _number(job.get("failures"))
    if releases >= MAX_RELEASES:
        return Answer(AnswerKind.HOLD, does="hold")
    finding: Any = incident.context.get("finding")
    verdict: Mapping[str, Any] = finding if isinstance(finding, Mapping) else {}
    course = default_course(
        said_by_policy(
            failures, _number(job.get("max_attempts")), hold=job.get("when_exhausted") == AnswerKind.HOLD.value
        ),
        FailureFacts(
            cause=str(facts.get("cause", "unknown")),
            confidence=_confidence(facts.get("confidence")),
            retry=_need(facts.get("retry")),
            tries=_number(verdict.get("tries")),
            releases=releases,
            spent=_number(facts.get("history.same_cause")),
        ),
    ).course
    return Answer(AnswerKind(course.value), does=course.value)


def _confidence(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _need(value: object) -> RetryNeed:
    return RetryNeed(value) if isinstance(value, str) and value in list(RetryNeed) else RetryNeed.SAME


def _told(step: Mapping[str, Any]) -> str:
    needs: Any = step.get("needs") or {}
    changes = [need_in_words(name, need) for name, need in needs.items()] if isinstance(needs, Mapping) else []
    place = [str(step[name]) for name in ("how", "target") if step.get(name) and step[name] not in ("same", "changed")]
    return " ".join([str(step.get("action", "")), *place, *changes])


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
