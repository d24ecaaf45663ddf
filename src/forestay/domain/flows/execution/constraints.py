"""What a run does while rules handle an unmet constraint: the task, or the run, waits."""

from __future__ import annotations

from dataclasses import replace

from forestay.domain.flows.commands import CancelTimer, CancelWork, Report
from forestay.domain.flows.events import RoundHeld, RunChecked
from forestay.domain.flows.execution.endings import apply_verdict, give_verdict
from forestay.domain.flows.execution.flow_run import (
    BEGUN,
    EndCheck,
    FlowRun,
    InstanceState,
    InstanceVerdict,
    TaskInstance,
)
from forestay.domain.flows.execution.redo import lines
from forestay.domain.flows.execution.run_update import RunUpdate

EXCEPTION = "exception"
"""The kind of the report by which a run requests that an incident's answer be carried out; its detail is the incident."""


def holder_of(incident: str) -> str:
    """The holder of whatever waits for the answer to an incident."""
    return f"incident:{incident}"


def held_at_start(run: FlowRun, incidents: tuple[str, ...]) -> tuple[FlowRun, tuple[Report, ...]]:
    """A new run that may not begin yet."""
    held = replace(run, holders=(*run.holders, *(holder_of(incident) for incident in incidents)))
    return held, tuple(Report(f"start:{incident}", EXCEPTION, "", incident) for incident in incidents)


def hold_round(update: RunUpdate, event: RoundHeld) -> None:
    """A task waits, before its round or at the end of it. The answer is requested in any case, after the holder is set."""
    instance = update.find(event.work)
    if instance is not None and not instance.ended:
        holder = holder_of(event.incident)
        holders = instance.holders if holder in instance.holders else (*instance.holders, holder)
        if event.again and instance.state is not InstanceState.FAULTED:  # a failure reported meanwhile stays
            _begin_later(update, instance, holders)
        else:
            update.put(instance, holders=holders)
    update.say(
        Report(f"{event.work}:{event.incident}", EXCEPTION, instance.id if instance is not None else "", event.incident)
    )


def _begin_later(update: RunUpdate, instance: TaskInstance, holders: tuple[str, ...]) -> None:
    for later in lines(update, instance):
        if update.instances[later].state in BEGUN:  # the elements may differ by then
            give_verdict(update, update.instances[later], InstanceVerdict.AGAIN)
    if instance.fan_out is not None and update.producer(instance) is not None:
        # Elements may have become ready before this was known.
        update.say(CancelWork(instance.work, instance.fan_out.own_count, len(instance.fan_out.shards)))
    if instance.timer:
        update.say(CancelTimer(instance.work))
        instance = update.put(instance, timer=False)
    if instance.verdict is not None:
        # A verdict was given meanwhile, and none of its work was begun.
        apply_verdict(update, update.put(instance, fan_out=None, holders=holders), instance.verdict)
        return
    waiting = TaskInstance(
        instance.id,
        instance.task,
        instance.block,
        InstanceState.WAITING,
        instance.round,
        holders=holders,
        changes=instance.changes,
        checked=True,
    )
    if instance.kept:
        waiting = replace(
            waiting,
            listings=instance.listings,
            sizes=instance.sizes,
            layout=instance.layout,
            done=instance.done,
            kept=True,
            earlier=instance.earlier,
        )
    update.put(waiting)


def run_checked(update: RunUpdate, event: RunChecked) -> None:
    """The run ends as soon as it has no holder."""
    if update.run.check is not EndCheck.ASKED:
        return
    update.set(check=EndCheck.DONE)
    if event.incident:
        update.set(holders=(*update.run.holders, holder_of(event.incident)))
        update.say(Report(f"end:{event.incident}", EXCEPTION, "", event.incident))
