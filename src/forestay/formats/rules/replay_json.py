"""The result of a replay, as JSON types and in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from forestay.domain.rules.answer import Answer
from forestay.domain.rules.proposal import Proposal, in_words
from forestay.domain.rules.replay import (
    WORDS,
    ComparedIncident,
    DecisionError,
    Replay,
    ReplayGroup,
    ReplayGroupKey,
    RuleTally,
)
from forestay.formats.jobs.job_public import time_text

Plain = dict[str, Any]


def replay_shown(report: Replay) -> Plain:
    """The whole report."""
    rules = sorted(report.rules.items(), key=lambda rule: (-sum(rule[1].wrong.values()), -rule[1].answered, rule[0]))
    groups = sorted(report.groups.items(), key=lambda group: (-group[1].wrong, -group[1].count, group[0]))
    return {
        **replay_summary(report),
        "first": time_text(report.first),
        "last": time_text(report.last),
        "rules": [{"rule": name, **tally_shown(tally)} for name, tally in rules],
        "groups": [group_shown(key, group) for key, group in groups],
        "more_groups": report.more_groups,
        "examples": [compared_shown(example) for example in report.examples()],
        "messages": [
            {"rule": path.rule, "incident": path.incident, "message": path.message[:200]} for path in report.messages
        ],
    }


def replay_summary(report: Replay) -> Plain:
    """The totals alone, as stored with a promotion."""
    return {
        "incidents": report.incidents,
        "same": report.same,
        "differs": report.differs,
        "by_rule": report.by_rule,
        "wrong": report.wrongs,
        "wrong_by": counted(report.wrong),
        "proof": counted(report.proof),
        "came": counted(report.came),
        "errors": report.errors,
        "core_hours_saved": hours(report.saved),
        "core_hours_spent": hours(report.spent),
        "peak_hour": report.peak_hour,
        "put_off": sum(tally.put_off for tally in report.rules.values()),
    }


def tally_shown(tally: RuleTally) -> Plain:
    """The answers that one rule would have given."""
    return {
        "answered": tally.answered,
        "differs": tally.differs,
        "right": tally.right,
        "unproven": tally.unproven,
        "wrong": sum(tally.wrong.values()),
        "wrong_by": counted(tally.wrong),
        "errors": tally.errors,
        "came": counted(tally.came),
        "core_hours_saved": hours(tally.saved),
        "core_hours_spent": hours(tally.spent),
        "peak_hour": tally.peak_hour,
        "put_off": tally.put_off,
        "examples": list(tally.examples),
    }


def group_shown(key: ReplayGroupKey, group: ReplayGroup) -> Plain:
    return {
        "by": key.rule,
        "cause": key.cause,
        "then": key.then.value,
        "now": key.now.value,
        "count": group.count,
        "wrong": group.wrong,
        "came": counted(group.came),
        "examples": list(group.examples),
    }


def compared_shown(compared_incident: ComparedIncident) -> Plain:
    """One incident."""
    return {
        "incident": compared_incident.incident,
        "at": time_text(compared_incident.at),
        "cause": compared_incident.cause,
        "job": compared_incident.job,
        "then": answer_shown(compared_incident.then),
        "now": answer_shown(compared_incident.now),
        "came": compared_incident.outcome.came.value,
        "proof": compared_incident.proof.value,
        "wrong": compared_incident.wrong.value if compared_incident.wrong is not None else None,
    }


def answer_shown(answer: Answer) -> Plain:
    return {"way": answer.way.value, "by": answer.by, "does": answer.does[:200]}


def proposal_shown(proposal: Proposal, report: Replay) -> Plain:
    """A proposal with its support and its replay; `rule` is what would be added."""
    return {
        "id": proposal.id,
        "fingerprint": proposal.fingerprint,
        "words": list(in_words(proposal)),
        "rule": {
            "type": proposal.type.value,
            "condition": proposal.condition,
            "conclusion": {"steps": [dict(step) for step in proposal.steps]},
            "reference_incident": proposal.reference_incident,
            "description": f"proposed: {next(in_words(proposal))}"[:2000],
        },
        "remedy": proposal.remedy.kind.value,
        "helped": proposal.helped,
        "tried": proposal.tried,
        "by_hand": proposal.by_hand,
        "examples": list(proposal.examples),
        "exceptions": list(proposal.against),
        "replay": replay_summary(report),
    }


def wrong_in_words(wrong: Mapping[DecisionError, int]) -> list[str]:
    """One line for each kind of wrong verdict."""
    return [f"{many} × {WORDS[kind]}" for kind, many in sorted(wrong.items()) if many]


def hours(core_seconds: float) -> float:
    return round(core_seconds / 3600, 3)


def counted(counts: Mapping[Any, int] | Counter[Any]) -> dict[str, int]:
    """Counts by name, the largest first."""
    named = {(key.value if isinstance(key, StrEnum) else str(key)): many for key, many in counts.items() if many}
    return dict(sorted(named.items(), key=lambda pair: (-pair[1], pair[0])))
