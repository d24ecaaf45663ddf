"""The advice to people about a retry. It is derived from the decision, so that it never contradicts the action."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forestay.domain.exceptions.causes.cause import Cause, RetryNeed
from forestay.domain.exceptions.incidents.incident import Decision, IncidentState
from forestay.domain.exceptions.incidents.retry_policy import verdict_words, wait_words
from forestay.domain.playbooks.action import ActionKind
from forestay.domain.rules.answer import Answer, AnswerKind, answer_of_decision
from forestay.domain.rules.incident_outcome import DEFAULT_POLICY

_MAY_HELP = {
    RetryNeed.SAME: "Another try may help",
    RetryNeed.ELSEWHERE: "Another try elsewhere may help",
    RetryNeed.CHANGED: "Another try helps only with a change",
    RetryNeed.NO: "Another try alone does not help",
}
_NOBODY_KNOWS = "Nobody knows whether another try helps"
_TRIED = {
    AnswerKind.RETRY: "it is tried again as it is",
    AnswerKind.CHANGED: "it is tried again with a change",
    AnswerKind.ELSEWHERE: "it is tried again elsewhere",
}
_STOPPED = {
    AnswerKind.HOLD: "it waits for a person",
    AnswerKind.ERROR: "it waits for a person",
    AnswerKind.FAIL: "it is given up",
}
_FITS = {
    RetryNeed.SAME: frozenset({AnswerKind.RETRY, AnswerKind.CHANGED, AnswerKind.ELSEWHERE}),
    RetryNeed.ELSEWHERE: frozenset({AnswerKind.RETRY, AnswerKind.ELSEWHERE}),
    RetryNeed.CHANGED: frozenset({AnswerKind.CHANGED}),
    RetryNeed.NO: frozenset[AnswerKind](),
}
"""The answers that meet each retry need of a finding."""
_REFUSED = {IncidentState.HELD: AnswerKind.HOLD, IncidentState.FAILED: AnswerKind.FAIL}
"""States of an incident that override its decision: a safeguard or a refused step has the last word."""


def act_of(decision: Decision | None, state: IncidentState) -> Answer:
    """The present or past action on an incident."""
    decided = answer_of_decision(decision)
    way = _REFUSED.get(state)
    return decided if way is None or way is decided.way else Answer(way, decided.by, way.value)


def retry_advice(finding: Mapping[str, Any], act: Answer, *, wait: int = 0, words: str = "") -> str:
    """One sentence: the finding's advice on another try, and the action. ``words``: the reason given by the decision or the safeguard."""
    need = need_of(finding)
    known = finding.get("cause", Cause.UNKNOWN.value) != Cause.UNKNOWN.value or need is not RetryNeed.NO
    helps = _MAY_HELP[need] if known else _NOBODY_KNOWS
    why = f" ({words.rstrip('.')})" if words else ""
    by = "" if act.by == DEFAULT_POLICY or not act.by else f", as {_who(act.by)} says"
    if _makes_again(act):
        return f"{helps}: the lost input is made again first{by}{why}."
    if act.way in _TRIED:
        after = f" {wait_words(wait)}" if wait and wait_words(wait) not in words else ""
        joint = ": " if not known or act.way in _FITS[need] else "; even so, "
        return f"{helps}{joint}{_TRIED[act.way]}{after}{by}{why}."
    if act.way in _STOPPED:
        joint = "; " if need in (RetryNeed.SAME, RetryNeed.ELSEWHERE) else ": "
        return f"{helps}{joint}{_STOPPED[act.way]}{why}."
    if act.way is AnswerKind.COMPLETE:
        return f"It counts as done{by}{why}."
    return f"{helps}." if act.way is AnswerKind.NOTHING else f"{helps}; it is answered by a playbook{by}{why}."


def _makes_again(act: Answer) -> bool:
    return act.way in _TRIED and ActionKind.REMAKE in act.does.split(", ")


def advice_on(finding: Mapping[str, Any], decision: Decision | None, state: IncidentState, note: str) -> str:
    """The sentence about the present state of an incident."""
    act = act_of(decision, state)
    detail: Mapping[str, Any] = decision.detail if decision is not None else {}
    refused = state in _REFUSED and act != answer_of_decision(decision)
    words = note if refused else str(detail.get("words", "")) if act.by == DEFAULT_POLICY else ""
    wait = detail.get("wait", 0)
    return retry_advice(finding, act, wait=wait if isinstance(wait, int) else 0, words=words)


def verdict_of(finding: Mapping[str, Any]) -> str:
    """The finding's own verdict: `same, once, after 10 min`."""
    return verdict_words(need_of(finding), _number(finding.get("tries")), _number(finding.get("wait")))


def need_of(finding: Mapping[str, Any]) -> RetryNeed:
    """What another try needs; if the finding does not say, no retry helps."""
    need = finding.get("retry")
    return RetryNeed(need) if need in list(RetryNeed) else RetryNeed.NO


def _who(by: str) -> str:
    _, mark, rule = by.partition("#")
    return f"rule {rule[:8]}" if mark else by


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
