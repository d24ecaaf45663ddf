"""How a playbook is run: ``advance(run, event) -> (run, commands)``.

Pure and total. The steps are done in their order, each once: an event about a step that is not the present one, or that comes twice, changes nothing. What was told to
the outside may be told again at any time (`ask_again`), since each step has an id under which it is done once.

The outside answers every `DoStep` and `TakeBack` by `StepDone` or `StepRefused`, and every `StartWorklets` by a `WorkletEnded` for each worklet, or by
`StepRefused` if they cannot be started.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from forestay.domain.exlets.exlet import Exlet, WhenRefused, refusal_of
from forestay.domain.exlets.exlet_plain import exlet_as_plain, exlet_from_plain
from forestay.domain.exlets.primitive import INSIDE, Action, ActionTarget, CompensateAction, Hold, target_of
from forestay.domain.flows.execution.case_names import case_of

FORMAT = 1
MAX_DETAIL = 300


class PlaybookRunState(StrEnum):
    """Where a run of an exlet stands."""

    RUNNING = "running"
    COMPLETE = "complete"
    HELD = "held"
    """Complete, and kept for a person, as its last step says."""
    FAILED = "failed"
    """A step could not be done. What the exlet had suspended stays suspended: a person is asked."""
    STOPPED = "stopped"
    """A person stopped it; what it had suspended stays so."""


class StepState(StrEnum):
    """What became of a step."""

    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class StepEnd:
    """A step that is over."""

    state: StepState
    detail: str = ""


class StepStage(StrEnum):
    """What the present step waits for."""

    ACT = "act"
    WORKLETS = "worklets"
    TAKE_BACK = "take-back"


# Events


@dataclass(frozen=True, slots=True)
class StepDone:
    """A step was carried out."""

    step: int
    detail: str = ""
    stage: StepStage = StepStage.ACT


@dataclass(frozen=True, slots=True)
class StepRefused:
    """A step cannot be carried out, now or ever: what it is about is gone, or does not allow it."""

    step: int
    reason: str
    stage: StepStage = StepStage.ACT


@dataclass(frozen=True, slots=True)
class WorkletEnded:
    """A worklet's case has ended."""

    step: int
    place: int
    well: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A person stops the exlet; the present step may still take place."""

    by: str


Event = StepDone | StepRefused | WorkletEnded | Stopped


def event_as_plain(event: Event) -> dict[str, Any]:
    """An event as JSON types."""
    out: dict[str, Any] = {"type": type(event).__name__}
    for one in fields(event):
        value = getattr(event, one.name)
        out[one.name] = value.value if isinstance(value, StrEnum) else value
    return out


def event_from_plain(data: Mapping[str, Any]) -> Event:
    """Read an event back; raises `ValueError` for what is none."""
    kind = {one.__name__: one for one in (StepDone, StepRefused, WorkletEnded, Stopped)}.get(data.get("type", ""))
    if kind is None:
        raise ValueError(f"{data.get('type')!r} is not an event of a playbook")
    values = {one.name: data[one.name] for one in fields(kind) if one.name in data}
    if "stage" in values:
        values["stage"] = StepStage(values["stage"])
    event: Event = kind(**values)
    return event


# Commands


@dataclass(frozen=True, slots=True)
class DoStep:
    """Carry a step out, under its id."""

    step: int
    id: str
    release: str = ""
    """Of continue: the holder that the exlet's own suspend step put there."""


@dataclass(frozen=True, slots=True)
class StartWorklets:
    """Start the worklets of a step, each as the case of this name."""

    step: int
    id: str
    cases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Give the case what the worklets of a step came to."""

    step: int
    id: str
    cases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FinishExlet:
    """The exlet is over. Its last command."""

    state: PlaybookRunState
    reason: str = ""
    held: tuple[ActionTarget, ...] = ()
    """What it leaves suspended, for a person."""


Command = DoStep | StartWorklets | TakeBack | FinishExlet


@dataclass(frozen=True, slots=True)
class ExletRun:
    """An exlet as it stands: the answer number ``n`` to an incident."""

    incident: str
    n: int
    exlet: Exlet
    at: int = 0
    """The present step."""
    stage: StepStage = StepStage.ACT
    state: PlaybookRunState = PlaybookRunState.RUNNING
    reason: str = ""
    ends: tuple[StepEnd, ...] = ()
    """One for each step that is over."""
    held: Mapping[ActionTarget, str] = field(default_factory=dict)
    """What the exlet has suspended, and by which holder."""
    worklets: Mapping[int, str] = field(default_factory=dict)
    """The worklets of the present step that have ended, and why badly; empty: well."""

    def step_id(self, step: int) -> str:
        """The name under which a step is done once; as a holder, who holds what it suspends."""
        return step_id(self.incident, self.n, step)

    def as_plain(self) -> dict[str, Any]:
        """As JSON types."""
        return {
            "format": FORMAT,
            "incident": self.incident,
            "n": self.n,
            "exlet": exlet_as_plain(self.exlet),
            "at": self.at,
            "stage": self.stage.value,
            "state": self.state.value,
            "reason": self.reason,
            "ends": [[one.state.value, one.detail] for one in self.ends],
            "held": {target.value: holder for target, holder in self.held.items()},
            "worklets": [[place, reason] for place, reason in self.worklets.items()],
        }

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> ExletRun:
        """Read a state back."""
        if data["format"] > FORMAT:
            raise ValueError(f"the state has format {data['format']}; this release supports up to {FORMAT}")
        return cls(
            incident=data["incident"],
            n=data["n"],
            exlet=exlet_from_plain(data["exlet"]),
            at=data["at"],
            stage=StepStage(data["stage"]),
            state=PlaybookRunState(data["state"]),
            reason=data["reason"],
            ends=tuple(StepEnd(StepState(state), detail) for state, detail in data["ends"]),
            held={ActionTarget(target): holder for target, holder in data["held"].items()},
            worklets=dict(data["worklets"]),
        )


def run_name(incident: str, n: int) -> str:
    """The name of a run among all workflows."""
    return f"exlet:{incident}:{n}"


def step_id(incident: str, n: int, step: int) -> str:
    return f"{incident}:{n}:{step}"


def worklet_case(incident: str, n: int, step: int, place: int) -> str:
    """The id of the case that runs a worklet of a step."""
    return case_of(incident, f"exlet:{n}:{step}", place)


def start_exlet(incident: str, n: int, exlet: Exlet) -> tuple[ExletRun, tuple[Command, ...]]:
    """A new run of an exlet that has passed its check, and its first command."""
    return _begin(ExletRun(incident, n, exlet))


def advance(run: ExletRun, event: Event) -> tuple[ExletRun, tuple[Command, ...]]:
    """Take an event in."""
    if run.state is not PlaybookRunState.RUNNING:
        return run, ()
    match event:
        case Stopped(by):
            return _finish(_perhaps_held(run), PlaybookRunState.STOPPED, f"stopped by {by}"[:MAX_DETAIL])
        case StepDone(step, detail, stage) if step == run.at and stage is run.stage and stage is not StepStage.WORKLETS:
            return _done(run, detail)
        case StepRefused(step, reason, stage) if step == run.at and _is_about(run, stage):
            return _refused(run, reason)
        case WorkletEnded(step, place, well, reason) if step == run.at and run.stage is StepStage.WORKLETS:
            return _worklet_ended(run, place, "" if well else reason or "it failed")
        case _:
            return run, ()


def ask_again(run: ExletRun) -> tuple[Command, ...]:
    """What the present step waits for, said once more; for whoever goes on with a run that another has left."""
    return () if run.state is not PlaybookRunState.RUNNING else (_ask(run),)


def _is_about(run: ExletRun, stage: StepStage) -> bool:
    return stage is run.stage or (run.stage is StepStage.WORKLETS and stage is StepStage.ACT)


def _ask(run: ExletRun) -> Command:
    do, name = run.exlet.steps[run.at].do, run.step_id(run.at)
    if isinstance(do, CompensateAction):
        cases = tuple(worklet_case(run.incident, run.n, run.at, place) for place in range(len(do.worklets)))
        if run.stage is StepStage.TAKE_BACK:
            return TakeBack(run.at, name, cases)
        return StartWorklets(run.at, name, cases)
    release = ""
    if do.action is Action.CONTINUE:
        target = target_of(do)
        release = run.held.get(target, "") if target is not None else ""
    return DoStep(run.at, name, release)


def _begin(run: ExletRun) -> tuple[ExletRun, tuple[Command, ...]]:
    """Begin the present step, or end."""
    while run.at < len(run.exlet.steps):
        do = run.exlet.steps[run.at].do
        if isinstance(do, CompensateAction):
            run = replace(run, stage=StepStage.WORKLETS, worklets={})
        elif do.action is Action.CONTINUE and target_of(do) not in run.held:
            # The exlet does not hold it: the suspend step was refused. Nothing is touched that another holds.
            run = _next(run, StepEnd(StepState.REFUSED, "this playbook did not suspend it"))
            continue
        return run, (_ask(run),)
    held = bool(run.exlet.steps) and isinstance(run.exlet.steps[-1].do, Hold)
    return _finish(run, PlaybookRunState.HELD if held and run.held else PlaybookRunState.COMPLETE)


def _next(run: ExletRun, end: StepEnd) -> ExletRun:
    return replace(run, at=run.at + 1, stage=StepStage.ACT, worklets={}, ends=(*run.ends, end))


def _done(run: ExletRun, detail: str) -> tuple[ExletRun, tuple[Command, ...]]:
    do = run.exlet.steps[run.at].do
    target = target_of(do)
    held = dict(run.held)
    if target is not None:
        if do.action in (Action.SUSPEND, Action.HOLD):
            held[target] = run.step_id(run.at)
        elif do.action is Action.CONTINUE:
            held.pop(target, None)
        elif do.action in (Action.REMOVE, Action.FORCE_COMPLETE, Action.FORCE_FAIL, Action.ROLLBACK):
            held = {one: holder for one, holder in held.items() if one not in INSIDE[target]}
    run = replace(run, held=held)
    return _begin(_next(run, StepEnd(StepState.DONE, detail[:MAX_DETAIL])))


def _refused(run: ExletRun, reason: str) -> tuple[ExletRun, tuple[Command, ...]]:
    step = run.exlet.steps[run.at]
    number, run = run.at, _next(run, StepEnd(StepState.REFUSED, reason[:MAX_DETAIL]))
    if step.action is Action.CONTINUE:
        # It is gone, or someone has taken the holder away: either way the exlet holds it no longer.
        target = target_of(step.do)
        run = replace(run, held={one: holder for one, holder in run.held.items() if one is not target})
    if refusal_of(step) is WhenRefused.GO_ON:
        return _begin(run)
    return _finish(run, PlaybookRunState.FAILED, f"step {number}, {step.action}: {reason}"[:MAX_DETAIL])


def _worklet_ended(run: ExletRun, place: int, reason: str) -> tuple[ExletRun, tuple[Command, ...]]:
    do = run.exlet.steps[run.at].do
    if not isinstance(do, CompensateAction) or not 0 <= place < len(do.worklets) or place in run.worklets:
        return run, ()
    run = replace(run, worklets={**run.worklets, place: reason[:MAX_DETAIL]})
    if len(run.worklets) < len(do.worklets):
        return run, ()
    bad = sorted(place for place, why in run.worklets.items() if why)
    if bad:
        return _refused(run, f"worklet {bad[0]}: {run.worklets[bad[0]]}")
    if any(worklet.take for worklet in do.worklets):
        run = replace(run, stage=StepStage.TAKE_BACK)
        return run, (_ask(run),)
    return _done(run, "")


def _perhaps_held(run: ExletRun) -> ExletRun:
    """A run whose present step may take place yet: what it would suspend counts as suspended."""
    do = run.exlet.steps[run.at].do
    target = target_of(do)
    if target is None or do.action not in (Action.SUSPEND, Action.HOLD):
        return run
    return replace(run, held={**run.held, target: run.step_id(run.at)})


def _finish(run: ExletRun, state: PlaybookRunState, reason: str = "") -> tuple[ExletRun, tuple[Command, ...]]:
    run = replace(run, state=state, reason=reason)
    return run, (FinishExlet(state, reason, tuple(run.held)),)
