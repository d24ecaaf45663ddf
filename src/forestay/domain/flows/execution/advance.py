"""The state machine of a run: ``advance(run, event) -> (run, commands)``.

Pure and total. A repeated event, an event about a round that has ended, or about something unknown to the run leaves the state as it is.
There is no clock; the time is in the event.

What a run requires of its environment:

- commands are carried out in the order in which they are given, each until it has succeeded, at least once;
- every submitted job is reported when it has ended, succeeded (``completed``, ``forced_complete``) or failed (``failed``, ``cancelled``); ends may come in
  any batches, repeatedly, and together with ends that were reported before;
- work that can never begin is answered by `WorkRefused`; so are files that can never be listed and flows that can never be bound;
- a timer fires once its time has come, unless it was cancelled; firing late or twice does no harm;
- nothing is sent again with another meaning: a listing only grows, a verb's id identifies one verb.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from forestay.domain.flows.commands import Command, RunOutcome, StartTimer
from forestay.domain.flows.definition.flow import DeadlineAction
from forestay.domain.flows.definition.flow_pattern import WorkletPattern
from forestay.domain.flows.definition.flow_plan import FlowPlan
from forestay.domain.flows.events import (
    CompensationFound,
    Event,
    EventArrived,
    FilesAppeared,
    FilesListed,
    JobsAccepted,
    JobsEnded,
    RoundHeld,
    RunChecked,
    RunEnded,
    ShardEnded,
    TimerFired,
    Verb,
    WorkletBound,
    WorkRefused,
)
from forestay.domain.flows.execution.constraints import held_at_start, hold_round, run_checked
from forestay.domain.flows.execution.endings import TOO_LARGE, fail_instance, give_verdict, result_limit, stop
from forestay.domain.flows.execution.event_waits import end_wait_by_default, take_event
from forestay.domain.flows.execution.flow_run import (
    EndCheck,
    FlowRun,
    InstanceState,
    InstanceVerdict,
    RunEnding,
    RunPhase,
    TaskInstance,
)
from forestay.domain.flows.execution.library import compensation_found
from forestay.domain.flows.execution.questions import answer_by_default
from forestay.domain.flows.execution.rounds import grow, is_watch, listing_names
from forestay.domain.flows.execution.run_end import RUN_TIMER
from forestay.domain.flows.execution.run_update import RunUpdate
from forestay.domain.flows.execution.scope import size_of
from forestay.domain.flows.execution.settle import settle
from forestay.domain.flows.execution.verbs import obey
from forestay.domain.flows.scatter.elements import every, nearly_all
from forestay.domain.flows.scatter.fan_out import FanOut, ShardTally, end_shard
from forestay.domain.flows.scatter.shard_run import MAX_REASON, BatchAccepted, BatchEnded, ShardGrew, advance_shard


def start_run(
    plan: FlowPlan,
    *,
    run: str,
    at: int,
    params: Mapping[str, object] | None = None,
    check: EndCheck = EndCheck.NONE,
    held: tuple[str, ...] = (),
    streams: bool = False,
    library: bool = False,
) -> tuple[FlowRun, tuple[Command, ...]]:
    """A new run of a flow, and its first commands. The flow has passed its check. ``held``: the incidents because of which it may not begin yet."""
    given_params = dict(plan.flow.params) | dict(params or {})
    new = FlowRun(plan=plan, run=run, params=given_params, started=at, check=check, streams=streams, library=library)
    flow_run, reports = held_at_start(new, held)
    update = RunUpdate(flow_run, at)
    update.commands += reports
    update.open_block("", plan.flow.tasks)
    if plan.flow.deadline is not None:
        update.say(StartTimer(RUN_TIMER, at + 1000 * plan.flow.deadline.seconds))
    settle(update)
    return update.frozen()


def advance(run: FlowRun, event: Event) -> tuple[FlowRun, tuple[Command, ...]]:
    """Process an event."""
    update = RunUpdate(run, event.at)
    if run.phase is RunPhase.FINISHED and not isinstance(event, Verb):
        return run, ()
    _take(update, event)
    settle(update)
    return update.frozen()


def undo_run(run: FlowRun, *, at: int) -> tuple[FlowRun, tuple[Command, ...]]:
    """Undo a completed run: its compensation stack is run. Any other run stays as it is."""
    if run.outcome not in (RunOutcome.COMPLETED, RunOutcome.FORCED_COMPLETE):
        return run, ()
    update = RunUpdate(run, at)
    update.set(phase=RunPhase.COMPENSATING, ending=RunEnding.UNDO, outcome=None, outputs={}, reason="its parent failed")
    settle(update)
    return update.frozen()


def _take(update: RunUpdate, event: Event) -> None:
    match event:
        case JobsEnded():
            _jobs_ended(update, event)
        case JobsAccepted(work=work, first=first, count=count):
            fan_out = update.fan_out_of(work)
            if fan_out is not None and fan_out.own is not None:
                own, _ = advance_shard(
                    fan_out.own, BatchAccepted(first, fan_out.own.submitted if count is None else count)
                )
                update.set_fan_out(work, replace(fan_out, own=own))
        case ShardEnded():
            _shard_ended(update, event)
        case RunEnded():
            _run_ended(update, event)
        case FilesListed():
            instance = update.find(event.work)
            if (
                instance is not None
                and instance.state is InstanceState.LISTING
                and event.dimension not in instance.listings
            ):
                update.put(
                    instance, listings={**instance.listings, event.dimension: (event.listing, max(0, event.count))}
                )
        case FilesAppeared():
            _files_appeared(update, event)
        case WorkletBound():
            _worklet_bound(update, event)
        case CompensationFound():
            compensation_found(update, event)
        case EventArrived():
            take_event(update, event)
        case WorkRefused():
            _refused(update, event)
        case RoundHeld():
            hold_round(update, event)
        case RunChecked():
            run_checked(update, event)
        case TimerFired(timer=timer):
            _timer_fired(update, timer)
        case Verb():
            obey(update, event)


def _jobs_ended(update: RunUpdate, event: JobsEnded) -> None:
    fan_out = update.fan_out_of(event.work)
    if fan_out is None or fan_out.own is None:
        return
    own, _ = advance_shard(fan_out.own, BatchEnded(event.well, event.bad, event.skipped, event.reason))
    if own == fan_out.own:
        return
    update.set_fan_out(event.work, replace(fan_out, own=own))
    instance = update.find(event.work)
    if instance is not None and not update.task(instance).scatter:
        large = size_of(event.result) > result_limit(update, instance)
        update.put(instance, exit_code=event.exit_code, result=TOO_LARGE if large else event.result)


def _shard_ended(update: RunUpdate, event: ShardEnded) -> None:
    fan_out = update.fan_out_of(event.work)
    if fan_out is None or not 0 <= event.shard < len(fan_out.shards) or fan_out.shards[event.shard].ended:
        return
    known = fan_out.shards[event.shard]
    # A shard cannot have more ends than jobs, whatever it reports.
    well, bad, skipped = (min(max(0, many), known.size) for many in (event.well, event.bad, event.skipped))
    done = ""
    if 0 < well < known.size:
        # The succeeded ones must be known to undo them. If not reported, all count as succeeded.
        done = nearly_all(every(known.size) if event.done is None else event.done, known.size)
    ended = ShardTally(known.first, known.size, ended=True, well=well, bad=bad, skipped=skipped, done=done)
    update.set_fan_out(event.work, end_shard(fan_out, event.shard, ended, reason=event.reason[:MAX_REASON]))


def _run_ended(update: RunUpdate, event: RunEnded) -> None:
    fan_out = update.fan_out_of(event.work)
    if fan_out is None or fan_out.own is None or not 0 <= event.index < fan_out.own.count:
        return
    ended = 1 << event.index
    own, _ = advance_shard(
        fan_out.own, BatchEnded(well=ended if event.well else 0, bad=0 if event.well else ended, reason=event.reason)
    )
    if own == fan_out.own:
        return
    update.set_fan_out(event.work, replace(fan_out, own=own))
    instance = update.find(event.work)
    if instance is None:
        return
    instance = update.put(instance, undoable=instance.undoable | (ended if event.left else 0))
    if not instance.sizes:
        large = size_of(event.outputs) > result_limit(update, instance)
        update.put(instance, outputs={} if large else event.outputs, result=TOO_LARGE if large else None)


def _files_appeared(update: RunUpdate, event: FilesAppeared) -> None:
    instance = update.find(event.work)
    if (
        instance is None
        or not is_watch(update.task(instance))
        or event.dimension not in listing_names(update.task(instance))
    ):
        return
    if instance.state is InstanceState.LISTING:
        instance = update.put(instance, listings={event.dimension: (event.listing, 0)})
        settle(update)
        instance = update.instances[instance.id]
    if instance.state is InstanceState.RUNNING:
        grow(update, instance, count=event.count, ended=event.ended)


def _worklet_bound(update: RunUpdate, event: WorkletBound) -> None:
    instance = update.find(event.work)
    if instance is None or instance.state is not InstanceState.BINDING:
        return
    if size_of(event.params) > result_limit(update, instance):
        fail_instance(update, instance, "the parameters of the bound flow are too large")
    elif event.flow:
        update.put(instance, bound=event.flow, bound_params=event.params)
    elif default := _default_flow(update, instance):
        update.put(instance, bound=default)
    else:
        fail_instance(update, instance, "no flow is bound to it")


def _default_flow(update: RunUpdate, instance: TaskInstance) -> str:
    """The version of the flow to run for a late-bound task that nothing binds; empty if the flow names none."""
    pattern = update.task(instance).pattern
    default = pattern.default if isinstance(pattern, WorkletPattern) else ""
    return update.plan.versions.get(default, default)


def _refused(update: RunUpdate, event: WorkRefused) -> None:
    instance = update.find(event.work)
    if instance is not None and instance.state in (
        InstanceState.LISTING,
        InstanceState.BINDING,
        InstanceState.ASKING,
        InstanceState.AWAITING,
    ):
        fail_instance(update, instance, event.reason)
        return
    fan_out = update.fan_out_of(event.work)
    if fan_out is None:
        return
    own = fan_out.own
    if own is not None:
        own, _ = advance_shard(replace(own, waiting=0), ShardGrew(own.count, open=False))
        own, _ = advance_shard(own, BatchEnded(bad=every(own.count), reason=event.reason))
        own = replace(own, wait=True)  # nothing was accepted that could be dropped
    shards = tuple(
        shard if shard.ended else ShardTally(shard.first, shard.size, ended=True, bad=shard.size)
        for shard in fan_out.shards
    )
    update.set_fan_out(event.work, FanOut(own, shards, reason=event.reason[:MAX_REASON]))


def _timer_fired(update: RunUpdate, timer: str) -> None:
    if timer == RUN_TIMER:
        deadline = update.plan.flow.deadline
        if deadline is None or update.run.phase is not RunPhase.RUNNING:
            return
        update.report("run-late")
        if deadline.then is DeadlineAction.FAIL:
            stop(update, RunEnding.FAIL, f"it did not finish within {deadline.seconds} s", cancel=True)
        return
    instance = update.find(timer)
    if instance is None or not instance.timer:
        return
    instance = update.put(instance, timer=False)
    if answer_by_default(update, instance) or end_wait_by_default(update, instance):
        return
    update.report("task-late", instance)
    late = update.task(instance).deadline
    if late is not None and late.then is DeadlineAction.FAIL and instance.verdict is None:
        instance = update.put(instance, reason=f"it did not finish within {late.seconds} s")
        give_verdict(update, instance, InstanceVerdict.FAILED)
