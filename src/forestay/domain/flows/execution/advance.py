"""How a case moves: ``advance(run, event) -> (run, commands)``.

Pure and total. The same event twice, an event about a round that is over, an event about nothing the case knows: the state stays as it is.
There is no clock; the time is in the event.

What the outside owes a case:

- commands are carried out in the order in which they are given, each until it has succeeded, at least once;
- every job that was submitted is reported when it has ended, well (``completed``, ``forced_complete``) or badly (``failed``, ``cancelled``); ends may come in
  any batches, again, and together with ends that were reported before;
- work that can never be begun is answered by `WorkRefused`; so is what can never be listed or bound;
- a timer fires once its time has come, unless it was cancelled; that it fires late or twice does no harm;
- nothing is sent twice with another meaning: a listing only grows, a verb's id stands for one verb.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from forestay.domain.flows.commands import Command, RunOutcome, StartTimer
from forestay.domain.flows.definition.flow import DeadlineAction
from forestay.domain.flows.definition.flow_pattern import WorkletPattern
from forestay.domain.flows.definition.flow_plan import FlowPlan
from forestay.domain.flows.events import (
    CaseChecked,
    CaseEnded,
    Event,
    FilesAppeared,
    FilesListed,
    JobsAccepted,
    JobsEnded,
    RoundHeld,
    ShardEnded,
    TimerFired,
    Verb,
    WorkletBound,
    WorkRefused,
)
from forestay.domain.flows.execution.case_end import CASE_TIMER
from forestay.domain.flows.execution.constraints import case_checked, held_at_start, hold_round
from forestay.domain.flows.execution.endings import TOO_LARGE, fail_item, give_verdict, result_limit, stop
from forestay.domain.flows.execution.flow_run import (
    EndCheck,
    FlowRun,
    Item,
    ItemState,
    ItemVerdict,
    RunEnding,
    RunPhase,
)
from forestay.domain.flows.execution.rounds import grow, is_watch, listing_names
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
    case: str,
    at: int,
    params: Mapping[str, object] | None = None,
    check: EndCheck = EndCheck.NONE,
    held: tuple[str, ...] = (),
) -> tuple[FlowRun, tuple[Command, ...]]:
    """A new case of a flow, and its first commands. The flow has passed its check. ``held``: the incidents for which it may not begin yet."""
    given = dict(plan.flow.params) | dict(params or {})
    run, reports = held_at_start(FlowRun(plan=plan, case=case, params=given, started=at, check=check), held)
    update = RunUpdate(run, at)
    update.commands += reports
    update.open_block("", plan.flow.tasks)
    if plan.flow.deadline is not None:
        update.say(StartTimer(CASE_TIMER, at + 1000 * plan.flow.deadline.seconds))
    settle(update)
    return update.frozen()


def advance(run: FlowRun, event: Event) -> tuple[FlowRun, tuple[Command, ...]]:
    """Take an event in."""
    update = RunUpdate(run, event.at)
    if run.phase is RunPhase.FINISHED and not isinstance(event, Verb):
        return run, ()
    _take(update, event)
    settle(update)
    return update.frozen()


def undo_run(run: FlowRun, *, at: int) -> tuple[FlowRun, tuple[Command, ...]]:
    """Undo a case that completed: its compensation stack is worked off. Any other case stays as it is."""
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
            fan = update.fan_of(work)
            if fan is not None and fan.own is not None:
                own, _ = advance_shard(fan.own, BatchAccepted(first, fan.own.submitted if count is None else count))
                update.set_fan(work, replace(fan, own=own))
        case ShardEnded():
            _shard_ended(update, event)
        case CaseEnded():
            _case_ended(update, event)
        case FilesListed():
            item = update.find(event.work)
            if item is not None and item.state is ItemState.LISTING and event.dimension not in item.listings:
                update.put(item, listings={**item.listings, event.dimension: (event.listing, max(0, event.count))})
        case FilesAppeared():
            _files_appeared(update, event)
        case WorkletBound():
            _worklet_bound(update, event)
        case WorkRefused():
            _refused(update, event)
        case RoundHeld():
            hold_round(update, event)
        case CaseChecked():
            case_checked(update, event)
        case TimerFired(timer=timer):
            _timer_fired(update, timer)
        case Verb():
            obey(update, event)


def _jobs_ended(update: RunUpdate, event: JobsEnded) -> None:
    fan = update.fan_of(event.work)
    if fan is None or fan.own is None:
        return
    own, _ = advance_shard(fan.own, BatchEnded(event.well, event.bad, event.skipped, event.reason))
    if own == fan.own:
        return
    update.set_fan(event.work, replace(fan, own=own))
    item = update.find(event.work)
    if item is not None and not update.task(item).scatter:
        large = size_of(event.result) > result_limit(update, item)
        update.put(item, exit_code=event.exit_code, result=TOO_LARGE if large else event.result)


def _shard_ended(update: RunUpdate, event: ShardEnded) -> None:
    fan = update.fan_of(event.work)
    if fan is None or not 0 <= event.shard < len(fan.shards) or fan.shards[event.shard].ended:
        return
    known = fan.shards[event.shard]
    # A shard cannot have more ends than jobs, whatever it says.
    well, bad, skipped = (min(max(0, many), known.size) for many in (event.well, event.bad, event.skipped))
    done = ""
    if 0 < well < known.size:
        # Which ones ended well is needed to undo them. Not told, all are taken to have.
        done = nearly_all(every(known.size) if event.done is None else event.done, known.size)
    ended = ShardTally(known.first, known.size, ended=True, well=well, bad=bad, skipped=skipped, done=done)
    update.set_fan(event.work, end_shard(fan, event.shard, ended, reason=event.reason[:MAX_REASON]))


def _case_ended(update: RunUpdate, event: CaseEnded) -> None:
    fan = update.fan_of(event.work)
    if fan is None or fan.own is None or not 0 <= event.index < fan.own.count:
        return
    ended = 1 << event.index
    own, _ = advance_shard(
        fan.own, BatchEnded(well=ended if event.well else 0, bad=0 if event.well else ended, reason=event.reason)
    )
    if own == fan.own:
        return
    update.set_fan(event.work, replace(fan, own=own))
    item = update.find(event.work)
    if item is None:
        return
    item = update.put(item, undoable=item.undoable | (ended if event.left else 0))
    if not item.sizes:
        large = size_of(event.outputs) > result_limit(update, item)
        update.put(item, outputs={} if large else event.outputs, result=TOO_LARGE if large else None)


def _files_appeared(update: RunUpdate, event: FilesAppeared) -> None:
    item = update.find(event.work)
    if item is None or not is_watch(update.task(item)) or event.dimension not in listing_names(update.task(item)):
        return
    if item.state is ItemState.LISTING:
        item = update.put(item, listings={event.dimension: (event.listing, 0)})
        settle(update)
        item = update.items[item.id]
    if item.state is ItemState.RUNNING:
        grow(update, item, count=event.count, ended=event.ended)


def _worklet_bound(update: RunUpdate, event: WorkletBound) -> None:
    item = update.find(event.work)
    if item is None or item.state is not ItemState.BINDING:
        return
    if size_of(event.params) > result_limit(update, item):
        fail_item(update, item, "the parameters of the bound flow are too large")
    elif event.flow:
        update.put(item, bound=event.flow, bound_params=event.params)
    elif default := _default_flow(update, item):
        update.put(item, bound=default)
    else:
        fail_item(update, item, "no flow is bound to it")


def _default_flow(update: RunUpdate, item: Item) -> str:
    """The version of the flow to run at a place for which nobody answers; empty if the flow names none."""
    pattern = update.task(item).pattern
    default = pattern.default if isinstance(pattern, WorkletPattern) else ""
    return update.plan.versions.get(default, default)


def _refused(update: RunUpdate, event: WorkRefused) -> None:
    item = update.find(event.work)
    if item is not None and item.state in (ItemState.LISTING, ItemState.BINDING):
        fail_item(update, item, event.reason)
        return
    fan = update.fan_of(event.work)
    if fan is None:
        return
    own = fan.own
    if own is not None:
        own, _ = advance_shard(own, ShardGrew(own.count, open=False))
        own, _ = advance_shard(own, BatchEnded(bad=every(own.count), reason=event.reason))
        own = replace(own, wait=True)  # nothing was accepted that could be forgotten
    shards = tuple(
        shard if shard.ended else ShardTally(shard.first, shard.size, ended=True, bad=shard.size)
        for shard in fan.shards
    )
    update.set_fan(event.work, FanOut(own, shards, reason=event.reason[:MAX_REASON]))


def _timer_fired(update: RunUpdate, timer: str) -> None:
    if timer == CASE_TIMER:
        deadline = update.plan.flow.deadline
        if deadline is None or update.run.phase is not RunPhase.RUNNING:
            return
        update.report("case-late")
        if deadline.then is DeadlineAction.FAIL:
            stop(update, RunEnding.FAIL, f"it did not finish within {deadline.seconds} s", cancel=True)
        return
    item = update.find(timer)
    if item is None or not item.timer:
        return
    item = update.put(item, timer=False)
    update.report("item-late", item)
    late = update.task(item).deadline
    if late is not None and late.then is DeadlineAction.FAIL and item.verdict is None:
        item = update.put(item, reason=f"it did not finish within {late.seconds} s")
        give_verdict(update, item, ItemVerdict.FAILED)
