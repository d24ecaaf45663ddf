"""What a rule said to an exception, as a decision that can be recorded: a playbook that is to be carried out, or why a person is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forestay.domain.exceptions.incidents.default_policy import DefaultAction
from forestay.domain.exceptions.incidents.incident import Decision, Incident
from forestay.domain.playbooks.playbook import Playbook, aimed, playbook_as_plain, version_of
from forestay.domain.rules.condition import ConditionVerdict
from forestay.domain.rules.rule_set import RuleSetLevel, Ruling

DEFAULT_POLICY = "default policy"
PLAYBOOK = "playbook"
"""The verdict of a decision that has a playbook; the default policy's are its courses."""
MOST_WORDS = 200
"""Characters of a condition that a decision repeats."""


def decision_by_rule(
    incident: Incident,
    ruling: Ruling,
    playbook: Playbook | str,
    now: int,
    *,
    n: int = 1,
    seen: Mapping[str, Any] | None = None,
) -> Decision:
    """The decision that a ruling is which concluded or erred. ``playbook``: what it concluded, or why that cannot be carried out; then a person is asked."""
    by = ruling.by
    assert by is not None  # noqa: S101 - it concluded or erred
    path = [
        {"rule": tested.rule, "verdict": tested.verdict.value, "message": tested.message} for tested in by.walk.path
    ]
    detail = {"rule_set": str(by.rule_set), "version": by.version, "tree": str(by.key), "path": path, **(seen or {})}
    if ruling.verdict is ConditionVerdict.ERROR:
        reason = f"rule {ruling.flagged} of {by.rule_set} has an evaluation error ({by.walk.path[-1].message}); held for a person"
        return _held(incident, f"{by.rule_set}#{ruling.flagged}", reason, detail, now, n)
    name = f"{by.rule_set}#{ruling.rule}"
    if isinstance(playbook, str):
        return _held(incident, name, playbook, detail, now, n)
    playbook = aimed(playbook, at_job=bool(incident.job))
    rule = by.walk.tree.rules[by.walk.last_satisfied]
    detail |= {"words": f"if {shortened(rule.condition)}" + (f"; {rule.description}" if rule.description else "")}
    detail |= {"author": rule.author} if rule.author else {}
    if by.rule_set.level is RuleSetLevel.FLOW:
        # Written for somebody's own flow; on the jobs of others of the same flow it needs approval.
        detail |= {"rule_owner": rule.author}
    if ruling.conclusion is not None and ruling.conclusion.playbook:
        detail |= {"playbook": playbook.name, "playbook_version": version_of(playbook)}
    return Decision(
        incident.id, n, incident.tenant, now, PLAYBOOK, name, playbook=playbook_as_plain(playbook), detail=detail
    )


def shortened(condition: str) -> str:
    """Of a long condition the beginning: the whole of it stands in the rule."""
    text = " ".join(condition.split())
    return text if len(text) <= MOST_WORDS else f"{text[:MOST_WORDS]}…"


def _held(incident: Incident, by: str, words: str, detail: dict[str, Any], now: int, n: int) -> Decision:
    detail |= {"words": words, "wait": 0, "charged": True}
    return Decision(incident.id, n, incident.tenant, now, DefaultAction.HOLD.value, by, detail=detail)


def shadow_said(ruling: Ruling) -> dict[str, Any]:
    """What the rules would have said with those that do not act yet."""
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
