"""The state machine of a playbook: ``advance(run, event) -> (run, commands)``.

Pure and total. The steps are done in order, each once: a repeated event, or one about a step that is not the present one, changes nothing. Commands to the
environment may be repeated at any time (`ask_again`), since each step has an id under which it is done once.

The environment answers every `DoStep` and `TakeBack` by `StepDone` or `StepRefused`, and every `StartWorklets` by a `WorkletEnded` for each worklet, or by
`StepRefused` if they cannot be started.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from forestay.domain.exceptions.incidents.incident import step_id
from forestay.domain.flows.execution.run_names import run_of
from forestay.domain.playbooks.action import INSIDE, ActionKind, ActionTarget, CompensateAction, Hold, target_of
from forestay.domain.playbooks.playbook import Playbook, WhenRefused, playbook_as_plain, playbook_from_plain, refusal_of

FORMAT = 1
MAX_DETAIL = 300


class PlaybookRunState(StrEnum):
    """The state of a run of a playbook."""

    RUNNING = "running"
    COMPLETE = "complete"
    HELD = "held"
    """Complete, and left to a person by its last step."""
    FAILED = "failed"
    """A step could not be done. The playbook's suspensions stay, and a person is asked."""
    STOPPED = "stopped"
    """A person stopped it; its suspensions stay."""


class StepState(StrEnum):
    """The outcome of a step."""

    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class StepEnd:
    """A step that has ended."""

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
    """A step is impossible, now and later: its target is gone, or does not allow it."""

    step: int
    reason: str
    stage: StepStage = StepStage.ACT


@dataclass(frozen=True, slots=True)
class WorkletEnded:
    """A worklet's run has ended."""

    step: int
    place: int
    well: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A person stops the playbook; the present step may still be carried out."""

    by: str


Event = StepDone | StepRefused | WorkletEnded | Stopped


def event_as_plain(event: Event) -> dict[str, Any]:
    """An event as JSON types."""
    out: dict[str, Any] = {"type": type(event).__name__}
    for attribute in fields(event):
        value = getattr(event, attribute.name)
        out[attribute.name] = value.value if isinstance(value, StrEnum) else value
    return out


def event_from_plain(data: Mapping[str, Any]) -> Event:
    """Read an event; raises `ValueError` for anything else."""
    kind = {callback.__name__: callback for callback in (StepDone, StepRefused, WorkletEnded, Stopped)}.get(
        data.get("type", "")
    )
    if kind is None:
        raise ValueError(f"{data.get('type')!r} is not an event of a playbook")
    values = {attribute.name: data[attribute.name] for attribute in fields(kind) if attribute.name in data}
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
    """For continue: the holder that the playbook's own suspend step set."""


@dataclass(frozen=True, slots=True)
class StartWorklets:
    """Start the worklets of a step, each as the run of this name."""

    step: int
    id: str
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Return the results of a step's worklets to the run."""

    step: int
    id: str
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FinishPlaybook:
    """The playbook has ended. Its last command."""

    state: PlaybookRunState
    reason: str = ""
    held: tuple[ActionTarget, ...] = ()
    """The targets that it leaves suspended, for a person."""


Command = DoStep | StartWorklets | TakeBack | FinishPlaybook


@dataclass(frozen=True, slots=True)
class PlaybookRun:
    """The state of a playbook run: the answer number ``n`` to an incident."""

    incident: str
    n: int
    playbook: Playbook
    at: int = 0
    """The present step."""
    stage: StepStage = StepStage.ACT
    state: PlaybookRunState = PlaybookRunState.RUNNING
    reason: str = ""
    ends: tuple[StepEnd, ...] = ()
    """One for each step that has ended."""
    held: Mapping[ActionTarget, str] = field(default_factory=dict)
    """The targets that the playbook has suspended, and the holder of each."""
    worklets: Mapping[int, str] = field(default_factory=dict)
    """The ended worklets of the present step, each with the reason of its failure; empty: succeeded."""

    def step_id(self, step: int) -> str:
        """The id under which a step is done once; also the holder of what it suspends."""
        return step_id(self.incident, self.n, step)

    def as_plain(self) -> dict[str, Any]:
        """As JSON types."""
        return {
            "format": FORMAT,
            "incident": self.incident,
            "n": self.n,
            "playbook": playbook_as_plain(self.playbook),
            "at": self.at,
            "stage": self.stage.value,
            "state": self.state.value,
            "reason": self.reason,
            "ends": [[end.state.value, end.detail] for end in self.ends],
            "held": {target.value: holder for target, holder in self.held.items()},
            "worklets": [[place, reason] for place, reason in self.worklets.items()],
        }

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> PlaybookRun:
        """Read a state back."""
        if data["format"] > FORMAT:
            raise ValueError(f"the state has format {data['format']}; this release supports up to {FORMAT}")
        return cls(
            incident=data["incident"],
            n=data["n"],
            playbook=playbook_from_plain(data["playbook"]),
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
    return f"playbook:{incident}:{n}"


def worklet_run(incident: str, n: int, step: int, place: int) -> str:
    """The id of the run that runs a worklet of a step."""
    return run_of(incident, f"playbook:{n}:{step}", place)


def start_playbook(incident: str, n: int, playbook: Playbook) -> tuple[PlaybookRun, tuple[Command, ...]]:
    """A new run of a playbook that has passed its check, and its first command."""
    return _begin(PlaybookRun(incident, n, playbook))


def advance(run: PlaybookRun, event: Event) -> tuple[PlaybookRun, tuple[Command, ...]]:
    """Process an event."""
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


def ask_again(run: PlaybookRun) -> tuple[Command, ...]:
    """The commands of the present step once more, for a process that takes over a run from another."""
    return () if run.state is not PlaybookRunState.RUNNING else (_ask(run),)


def _is_about(run: PlaybookRun, stage: StepStage) -> bool:
    return stage is run.stage or (run.stage is StepStage.WORKLETS and stage is StepStage.ACT)


def _ask(run: PlaybookRun) -> Command:
    do, name = run.playbook.steps[run.at].do, run.step_id(run.at)
    if isinstance(do, CompensateAction):
        runs = tuple(worklet_run(run.incident, run.n, run.at, place) for place in range(len(do.worklets)))
        if run.stage is StepStage.TAKE_BACK:
            return TakeBack(run.at, name, runs)
        return StartWorklets(run.at, name, runs)
    release = ""
    if do.action is ActionKind.CONTINUE:
        target = target_of(do)
        release = run.held.get(target, "") if target is not None else ""
    return DoStep(run.at, name, release)


def _begin(run: PlaybookRun) -> tuple[PlaybookRun, tuple[Command, ...]]:
    """Begin the present step, or end."""
    while run.at < len(run.playbook.steps):
        do = run.playbook.steps[run.at].do
        if isinstance(do, CompensateAction):
            run = replace(run, stage=StepStage.WORKLETS, worklets={})
        elif do.action is ActionKind.CONTINUE and target_of(do) not in run.held:
            # The playbook does not hold it: the suspend step was refused. Holders of others are not touched.
            run = _next(run, StepEnd(StepState.REFUSED, "this playbook did not suspend it"))
            continue
        return run, (_ask(run),)
    held = bool(run.playbook.steps) and isinstance(run.playbook.steps[-1].do, Hold)
    return _finish(run, PlaybookRunState.HELD if held and run.held else PlaybookRunState.COMPLETE)


def _next(run: PlaybookRun, end: StepEnd) -> PlaybookRun:
    return replace(run, at=run.at + 1, stage=StepStage.ACT, worklets={}, ends=(*run.ends, end))


def _done(run: PlaybookRun, detail: str) -> tuple[PlaybookRun, tuple[Command, ...]]:
    do = run.playbook.steps[run.at].do
    target = target_of(do)
    held = dict(run.held)
    if target is not None:
        if do.action in (ActionKind.SUSPEND, ActionKind.HOLD):
            held[target] = run.step_id(run.at)
        elif do.action is ActionKind.CONTINUE:
            held.pop(target, None)
        elif do.action in (ActionKind.REMOVE, ActionKind.FORCE_COMPLETE, ActionKind.FORCE_FAIL, ActionKind.ROLLBACK):
            held = {
                action_target: holder for action_target, holder in held.items() if action_target not in INSIDE[target]
            }
    run = replace(run, held=held)
    return _begin(_next(run, StepEnd(StepState.DONE, detail[:MAX_DETAIL])))


def _refused(run: PlaybookRun, reason: str) -> tuple[PlaybookRun, tuple[Command, ...]]:
    step = run.playbook.steps[run.at]
    number, run = run.at, _next(run, StepEnd(StepState.REFUSED, reason[:MAX_DETAIL]))
    if step.action is ActionKind.CONTINUE:
        # It is gone, or someone has removed the holder: either way the playbook holds it no longer.
        target = target_of(step.do)
        run = replace(
            run,
            held={action_target: holder for action_target, holder in run.held.items() if action_target is not target},
        )
    if refusal_of(step) is WhenRefused.GO_ON:
        return _begin(run)
    return _finish(run, PlaybookRunState.FAILED, f"step {number}, {step.action}: {reason}"[:MAX_DETAIL])


def _worklet_ended(run: PlaybookRun, place: int, reason: str) -> tuple[PlaybookRun, tuple[Command, ...]]:
    do = run.playbook.steps[run.at].do
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


def _perhaps_held(run: PlaybookRun) -> PlaybookRun:
    """A run whose present step may still be carried out: its target counts as suspended."""
    do = run.playbook.steps[run.at].do
    target = target_of(do)
    if target is None or do.action not in (ActionKind.SUSPEND, ActionKind.HOLD):
        return run
    return replace(run, held={**run.held, target: run.step_id(run.at)})


def _finish(run: PlaybookRun, state: PlaybookRunState, reason: str = "") -> tuple[PlaybookRun, tuple[Command, ...]]:
    run = replace(run, state=state, reason=reason)
    return run, (FinishPlaybook(state, reason, tuple(run.held)),)
