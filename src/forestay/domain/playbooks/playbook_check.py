"""The errors of a playbook: all at once, each with its step.

The rules are those of the worklet service of paper P1, with similar ones for the job patterns of paper P0. A valid playbook ends: nothing that it suspended stays
suspended, unless its last step leaves it to a person.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping

from forestay.domain.exceptions.incidents.exception_type import EXECUTING, ExceptionType
from forestay.domain.flows.definition.expression import BadExpression, template_references
from forestay.domain.flows.definition.flow_problem import FlowProblem, Place
from forestay.domain.flows.execution.scope import size_of
from forestay.domain.playbooks.action import (
    INSIDE,
    JOB_PATTERNS,
    MAX_FACTOR,
    MAX_MAPPINGS,
    MAX_RECIPIENTS,
    MAX_SIZE,
    MAX_TEXT,
    MAX_WAIT,
    MAX_WORKLETS,
    RESENDING,
    STEERING,
    Action,
    ActionKind,
    ActionTarget,
    Amount,
    AvoidHost,
    CompensateAction,
    FreeSpace,
    Hold,
    NeedChange,
    Notify,
    ReserveSpace,
    Restage,
    Restaging,
    Resubmission,
    Resubmit,
    RetryByPolicy,
    Select,
    Steer,
    Worklet,
    target_of,
    worklets_of,
)
from forestay.domain.playbooks.job_stages import PATTERNS, why_not
from forestay.domain.playbooks.playbook import MAX_STEPS, Playbook, PlaybookStep, aimed

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_WORD = re.compile(r"[A-Za-z0-9_.:@/+-]{0,200}")
TASK_ONLY = frozenset({ActionKind.RESTART, ActionKind.FORCE_COMPLETE, ActionKind.FORCE_FAIL})
ENDING = frozenset({ActionKind.REMOVE, ActionKind.FORCE_COMPLETE, ActionKind.FORCE_FAIL})
"""After one of these no further action on the target is possible."""
RESENDABLE = EXECUTING | {ExceptionType.TIMEOUT, ExceptionType.RESOURCE_UNAVAILABLE}
"""The types whose job can be submitted again, or elsewhere."""
ANYWHERE = frozenset({ActionKind.NOTIFY})
OF_JOBS = frozenset({ExceptionType.ABORT, ExceptionType.CONSTRAINT_VIOLATION})
"""Exceptions that concern a job if there is one: a step without a target is checked as a step on the job."""
REFERENCES = frozenset({"params", "tasks", "incident", "run"})
"""The roots of the references that a worklet's data may contain."""
MAX_GIVEN = 16_384


def check_playbook(
    playbook: Playbook,
    kind: ExceptionType | None = None,
    *,
    worklets: Container[str] | None = None,
    retry_policies: Container[str] | None = None,
) -> list[FlowProblem]:
    """All errors of a playbook.

    ``kind``: the type of exception that it is to answer; without one, only errors that apply to every type are reported. ``worklets`` and ``retry_policies``: those that
    exist; without them any name is accepted.
    """
    playbook = aimed(playbook, at_job=kind in OF_JOBS)
    findings = list(_check_frame(playbook))
    for place, step in enumerate(playbook.steps):
        at: Place = ("steps", place)
        findings += [FlowProblem((*at, *inner), message) for inner, message in _check_arguments(step.do)]
        for inner, worklet in enumerate(worklets_of(step.do)):
            if worklets is not None and worklet.flow not in worklets:
                findings.append(FlowProblem((*at, "worklets", inner), f"there is no worklet {worklet.flow!r}"))
        if (
            isinstance(step.do, RetryByPolicy)
            and step.do.retry_policy
            and retry_policies is not None
            and step.do.retry_policy not in retry_policies
        ):
            findings.append(FlowProblem((*at, "retry_policy"), f"there is no retry policy {step.do.retry_policy!r}"))
        if kind is not None:
            findings += [FlowProblem(at, message) for message in _check_kind(step, kind)]
    findings += _check_order(playbook.steps)
    return findings


def _check_frame(playbook: Playbook) -> Iterator[FlowProblem]:
    if not NAME.fullmatch(playbook.name):
        yield FlowProblem(
            ("name",), "a name has up to 64 letters, digits, '_', '-' and '.', and begins with a letter or '_'"
        )
    if len(playbook.description) > MAX_TEXT:
        yield FlowProblem(("description",), f"it is longer than {MAX_TEXT} characters")
    if not playbook.steps:
        yield FlowProblem(("steps",), "it has no steps; at least one is required")
    if len(playbook.steps) > MAX_STEPS:
        yield FlowProblem(("steps",), f"it has {len(playbook.steps)} steps; the limit is {MAX_STEPS}")


# The arguments of one action

_Wrong = Iterator[tuple[Place, str]]


def _check_arguments(do: Action) -> _Wrong:
    match do:
        case Steer(action, target):
            if action not in STEERING:
                yield ("action",), f"{action} has no target"
            elif action in TASK_ONLY and target not in (ActionTarget.TASK, ActionTarget.JOB):
                yield ("target",), f"{action} applies to a task, not to {_words(target)}"
        case CompensateAction(worklets):
            if not worklets:
                yield ("worklets",), "no worklet is given"
            if len(worklets) > MAX_WORKLETS:
                yield ("worklets",), f"{len(worklets)} worklets at once; the limit is {MAX_WORKLETS}"
            yield from _check_worklets(worklets)
        case Select(worklet):
            yield from _check_worklet(worklet, ("worklet",))
            if worklet.take:
                yield ("worklet", "take"), "a selected worklet returns the outputs of its task"
        case Restage():
            yield from _check_restage(do)
        case FreeSpace(size):
            yield from _within("size", size, 1, MAX_SIZE, "bytes")
        case ReserveSpace(size, seconds):
            yield from _within("size", size, 1, MAX_SIZE, "bytes")
            yield from _within("seconds", seconds, 1, MAX_WAIT, "seconds")
        case Resubmit():
            yield from _check_resubmit(do)
        case RetryByPolicy(retry_policy):
            if retry_policy and not NAME.fullmatch(retry_policy):
                yield ("retry_policy",), "invalid name of a retry policy"
        case Notify(text, to):
            if not text.strip() or len(text) > MAX_TEXT:
                yield ("text",), f"expected a text of 1 to {MAX_TEXT} characters"
            if len(to) > MAX_RECIPIENTS:
                yield ("to",), f"at most {MAX_RECIPIENTS} recipients are allowed"
            for place, name in enumerate(to):
                if not name or not _WORD.fullmatch(name):
                    yield ("to", place), "invalid recipient"
        case AvoidHost(seconds, _):
            yield from _within("seconds", seconds, 1, MAX_WAIT, "seconds")
        case Hold(target, reason):
            if target in (ActionTarget.ALL_RUNS, ActionTarget.ANCESTORS):
                yield ("target",), f"hold applies to a job, a task or a run, not to {_words(target)}"
            if len(reason) > MAX_TEXT:
                yield ("reason",), f"it is longer than {MAX_TEXT} characters"


def _check_worklets(worklets: tuple[Worklet, ...]) -> _Wrong:
    taken: dict[str, int] = {}
    for place, worklet in enumerate(worklets):
        yield from _check_worklet(worklet, ("worklets", place))
        for name in worklet.take:
            if name in taken:
                yield ("worklets", place, "take", name), f"worklet {taken[name]} also returns it; only one may"
            taken.setdefault(name, place)


def _check_worklet(worklet: Worklet, at: Place) -> _Wrong:
    if not worklet.flow or not _WORD.fullmatch(worklet.flow):
        yield (*at, "flow"), "expected the version of a stored flow"
    if len(worklet.give) + len(worklet.take) > MAX_MAPPINGS:
        yield at, f"at most {MAX_MAPPINGS} values can be mapped"
    if size_of(worklet.give) > MAX_GIVEN:
        yield (*at, "give"), f"it is larger than {MAX_GIVEN} bytes"
    for name, value in worklet.give.items():
        for text in _texts(value):
            try:
                paths = list(template_references(text))
            except BadExpression as wrong:
                yield (*at, "give", name), str(wrong)
                continue
            for path in paths:
                if path[0] not in REFERENCES:
                    known = ", ".join(sorted(REFERENCES))
                    yield (*at, "give", name), f"${{{'.'.join(path)}}} starts with none of {known}"
    for name, output in worklet.take.items():
        if not NAME.fullmatch(name) or not NAME.fullmatch(output):
            yield (*at, "take", name), "expected a parameter of the run and the name of an output"


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for text in value.values():
            yield from _texts(text)
    elif isinstance(value, list | tuple):
        for text in value:
            yield from _texts(text)


def _check_restage(do: Restage) -> _Wrong:
    changed = {"protocol": do.protocol or None, "buffer": do.buffer, "timeout": do.timeout}
    names = [name for name, value in changed.items() if value is not None]
    if do.how is Restaging.CHANGED and not names:
        yield ("how",), "nothing changes; set one of protocol, buffer and timeout"
    if do.how is not Restaging.CHANGED and names:
        yield ("how",), f"{', '.join(names)} can only be given with 'changed'"
    if do.place and do.how is not Restaging.OTHER_TARGET:
        yield ("place",), "a place can only be given with 'other-target'"
    if not _WORD.fullmatch(do.protocol) or not _WORD.fullmatch(do.place):
        yield (), "a protocol and a place must be short words"
    if do.buffer is not None:
        yield from _within("buffer", do.buffer, 512, 1 << 30, "bytes")
    if do.timeout is not None:
        yield from _within("timeout", do.timeout, 1, MAX_WAIT, "seconds")


def _check_resubmit(do: Resubmit) -> _Wrong:
    yield from _within("wait", do.wait, 0, MAX_WAIT, "seconds")
    if do.how is Resubmission.CHANGED and not do.needs:
        yield ("needs",), "nothing changes; set a resource and its change"
    if do.how is Resubmission.SAME and do.needs:
        yield ("needs",), "needs can only be changed with 'changed' or 'other-domain'"
    if do.domain and do.how is not Resubmission.OTHER_DOMAIN:
        yield ("domain",), "a domain can only be given with 'other-domain'"
    if not _WORD.fullmatch(do.domain):
        yield ("domain",), "invalid name of a domain"
    for name, need in do.needs.items():
        yield from _check_need(name, need)


def _check_need(name: Amount, need: NeedChange) -> _Wrong:
    at: Place = ("needs", name.value)
    if (need.factor is None) == (need.to is None):
        yield at, "expected either a factor or an amount"
    if need.factor is not None and not 1 < need.factor <= MAX_FACTOR:
        yield (*at, "factor"), f"a factor must be greater than 1 and at most {MAX_FACTOR}"
    if need.factor is not None and need.at_most is None:
        yield at, "a factor needs 'at_most' as a limit"
    for field, value in (("to", need.to), ("at_most", need.at_most)):
        if value is not None and not 1 <= value <= MAX_SIZE:
            yield (*at, field), f"expected 1 to {MAX_SIZE}"
    if need.to is not None and need.at_most is not None and need.to > need.at_most:
        yield at, "the amount is greater than 'at_most'"


def _within(name: str, value: int, least: int, most: int, unit: str) -> _Wrong:
    if not least <= value <= most:
        yield (name,), f"expected {least} to {most} {unit}"


# What an exception type allows


def _check_kind(step: PlaybookStep, kind: ExceptionType) -> Iterator[str]:
    action, target = step.action, target_of(step.do)
    if kind is ExceptionType.SELECTION:
        if action is not ActionKind.SELECT:
            yield f"{action} is not a selection; for a late-bound task a playbook is one 'select'"
        return
    if action in ANYWHERE:
        return
    if kind.of_run and (action in JOB_PATTERNS or target in (ActionTarget.JOB, ActionTarget.TASK)):
        yield f"{kind} concerns a whole run; {action} applies to a task or its job"
    if kind is ExceptionType.RUN_POST and action is not ActionKind.COMPENSATE:
        yield f"{kind}: the run is complete; only compensate is possible, not {action}"
    if kind is ExceptionType.TASK_POST and not (
        action is ActionKind.COMPENSATE
        or (
            action in (ActionKind.SUSPEND, ActionKind.CONTINUE, ActionKind.REMOVE, ActionKind.HOLD)
            and target not in (ActionTarget.TASK, ActionTarget.JOB)
        )
    ):
        yield f"{kind}: the task is complete; only compensate is possible, or suspend, continue and remove of more than the task"
    if action is ActionKind.RESTART and kind not in EXECUTING:
        allowed = ", ".join(sorted(EXECUTING))
        yield f"restart applies to an executing task ({allowed}); {kind} is not one of them"
    if action in JOB_PATTERNS and not kind.of_run and kind not in RESENDABLE:
        yield f"{action} needs a submitted job; with {kind} there is none"
    if action is ActionKind.SELECT:
        yield from _select_kind(kind)


def _select_kind(kind: ExceptionType) -> Iterator[str]:
    if kind.of_run:
        yield "select applies to a late-bound task"


# What may follow what


def _check_order(steps: tuple[PlaybookStep, ...]) -> Iterator[FlowProblem]:
    suspended: dict[ActionTarget, int] = {}
    ended: dict[ActionTarget, int] = {}
    resent: int | None = None
    pattern: ActionKind | None = None
    seen: list[Action] = []
    last = len(steps) - 1
    for place, step in enumerate(steps):
        at: Place = ("steps", place)
        action, target = step.action, target_of(step.do)
        if step.do in seen:
            yield FlowProblem(at, f"step {seen.index(step.do)} already does this")
        seen.append(step.do)
        if action is ActionKind.SELECT and len(steps) > 1:
            yield FlowProblem(at, "select cannot be combined with other steps")
        if action is ActionKind.HOLD and place != last:
            yield FlowProblem(at, "hold must be the last step: a person decides what follows")
        over = next((action_target for action_target in ended if target in INSIDE[action_target]), None)
        if over is not None:
            yield FlowProblem(at, f"nothing can be done to {_words(target)} after step {ended[over]}")
        if any(worklet.take for worklet in worklets_of(step.do)) and any(
            ActionTarget.RUN in INSIDE[target] for target in ended
        ):
            yield FlowProblem(at, "the run has ended by then; nothing can be returned to it")
        if action in RESENDING:
            if resent is not None:
                yield FlowProblem(at, f"step {resent} already submits the work")
            resent = place
        if action in PATTERNS and target in (ActionTarget.JOB, None):
            if words := why_not(action, pattern):
                yield FlowProblem(at, words)
            pattern = action
        holding = [
            action_target for action_target in suspended if target is not None and target in INSIDE[action_target]
        ]
        if action is ActionKind.RESTART and holding:
            yield FlowProblem(at, f"it is suspended since step {suspended[holding[0]]}; continue it first")
        if action in (ActionKind.RESUBMIT, ActionKind.RETRY) and ActionTarget.JOB in holding:
            yield FlowProblem(at, f"the job is suspended since step {suspended[ActionTarget.JOB]}; continue it first")
        if target is None:
            continue
        if action is ActionKind.SUSPEND:
            if target in suspended:
                yield FlowProblem(at, f"{_words(target)} is suspended since step {suspended[target]}")
            suspended.setdefault(target, place)
        elif action is ActionKind.CONTINUE:
            if suspended.pop(target, None) is None:
                yield FlowProblem(
                    at, f"{_words(target)} was not suspended by an earlier step; continue has no other effect"
                )
        elif action in ENDING or action is ActionKind.ROLLBACK:
            ended.setdefault(target, place)
            for action_target in INSIDE[target] & suspended.keys():
                del suspended[action_target]
    if steps and steps[last].action is ActionKind.HOLD:
        return
    for target, place in suspended.items():
        words = f"{_words(target)} stays suspended at the end; continue or remove it, or end with 'hold'"
        yield FlowProblem(("steps", place), words)


def _words(target: ActionTarget | None) -> str:
    names = {
        ActionTarget.JOB: "the job",
        ActionTarget.TASK: "the task",
        ActionTarget.RUN: "the run",
        ActionTarget.ANCESTORS: "the ancestors",
        ActionTarget.ALL_RUNS: "all runs",
    }
    return names[target] if target is not None else "it"
