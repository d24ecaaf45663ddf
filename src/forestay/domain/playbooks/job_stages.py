"""The stages of a job in paper P0 (figures 3 to 7), and their permitted order, without failures and in each pattern.

Forestay's own table of states (`domain.jobs.lifecycle`) is finer and decides about jobs; this one decides in which order a playbook may use the patterns. A
deliberate difference: every attempt of a job stages its files again, so a re-submission is a re-stage too, and a playbook needs only one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from forestay.domain.playbooks.action import ActionKind


class JobStage(StrEnum):
    """The stage of a job, as its flow sees it."""

    STAGING = "data staging"
    SUBMISSION = "job submission"
    POLLING = "poll job status"
    NOTIFICATION = "job status notification"
    COMPLETED = "completed"
    FAILED = "failed"


_S = JobStage
NORMAL: Mapping[JobStage, frozenset[JobStage]] = {
    _S.STAGING: frozenset({_S.SUBMISSION, _S.FAILED}),
    _S.SUBMISSION: frozenset({_S.POLLING, _S.NOTIFICATION, _S.FAILED}),
    _S.POLLING: frozenset({_S.POLLING, _S.COMPLETED, _S.FAILED}),
    _S.NOTIFICATION: frozenset({_S.COMPLETED, _S.FAILED}),
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
}
"""Figure 3."""


@dataclass(frozen=True, slots=True)
class PatternStages:
    """A fault-tolerant pattern among the stages."""

    brings: JobStage
    """The stage that it brings the job to."""
    after: frozenset[JobStage]
    """The stages in which the exception may have occurred."""
    then: frozenset[JobStage]
    """The patterns that may follow."""


_EXECUTING = frozenset({_S.POLLING, _S.NOTIFICATION})
_AGAIN = frozenset({_S.STAGING, _S.SUBMISSION, _S.COMPLETED, _S.FAILED})
PATTERNS: Mapping[ActionKind, PatternStages] = {
    ActionKind.RESTAGE: PatternStages(
        _S.STAGING, frozenset({_S.STAGING}) | _EXECUTING, frozenset({_S.STAGING, _S.SUBMISSION, _S.FAILED})
    ),
    ActionKind.RESUBMIT: PatternStages(
        _S.SUBMISSION,
        frozenset({_S.SUBMISSION}) | _EXECUTING,
        frozenset({_S.STAGING, _S.POLLING, _S.NOTIFICATION, _S.FAILED}),
    ),
    ActionKind.REPOLL: PatternStages(_S.POLLING, frozenset({_S.SUBMISSION, _S.POLLING}), _AGAIN),
    ActionKind.REREGISTER: PatternStages(_S.NOTIFICATION, frozenset({_S.SUBMISSION, _S.NOTIFICATION}), _AGAIN),
    ActionKind.FORCE_FAIL: PatternStages(_S.FAILED, frozenset(JobStage) - {_S.COMPLETED}, frozenset()),
    ActionKind.FORCE_COMPLETE: PatternStages(_S.COMPLETED, frozenset(JobStage) - {_S.COMPLETED}, frozenset()),
}
"""Figures 4 to 7, and the two that end a job."""


def why_not(action: ActionKind, before: ActionKind | None) -> str:
    """Why a pattern may not follow another one, or begin; empty if it may."""
    pattern = PATTERNS.get(action)
    if pattern is None:
        return ""
    if before is None:
        if action in (ActionKind.REPOLL, ActionKind.REREGISTER):
            return f"{action} needs a resubmitted job; resubmit must come first"
        return ""
    earlier = PATTERNS[before]
    if pattern.brings not in earlier.then:
        words = " or ".join(sorted(stage.value for stage in earlier.then)) or "nothing"
        return f"after {before} comes {words}, not {pattern.brings}"
    return ""
