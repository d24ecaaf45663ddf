"""What is run again: a whole task, or what its last rounds left incomplete; and everything after it."""

from __future__ import annotations

from collections.abc import Iterator

from forestay.domain.flows.definition.flow import WhenFailed
from forestay.domain.flows.execution.flow_run import BEGUN, InstanceState, TaskInstance
from forestay.domain.flows.execution.run_update import RunUpdate

MAX_EARLIER = 50
"""The most rounds in a row that each run only what the ones before left."""


def leftover(instance: TaskInstance) -> TaskInstance:
    """The task, prepared to run what its last rounds left undone."""
    return TaskInstance(
        instance.id, instance.task, instance.block, round=instance.round, listings=instance.listings, sizes=instance.sizes, layout=instance.layout,
        done=instance.done, kept=True, earlier=(instance.work, *instance.earlier), holders=instance.holders, changes=instance.changes,
        bound=instance.bound, bound_params=instance.bound_params, seen=instance.seen, as_of=instance.as_of,
    )  # fmt: skip


def downstream(update: RunUpdate, instance: TaskInstance) -> Iterator[TaskInstance]:
    """The tasks of the same block that come after this one, directly or not."""
    reached = {instance.task}
    grown = True
    siblings = [task_instance for task_instance in update.block(instance.block) if task_instance.id != instance.id]
    while grown:
        grown = False
        for sibling in siblings:
            if sibling.task not in reached and reached & set(update.place(sibling).before):
                reached.add(sibling.task)
                grown = True
    return (sibling for sibling in siblings if sibling.task in reached)


def lines(update: RunUpdate, instance: TaskInstance) -> frozenset[str]:
    """The tasks after this one that depend on it by their elements only: they redo only the elements that it redoes."""
    after = {sibling.task: sibling for sibling in downstream(update, instance)}
    reached = {instance.task}
    grown = update.run.streams
    while grown:
        grown = False
        for name, sibling in after.items():
            place = update.place(sibling)
            others = (set(place.before) - {place.producer}) & {instance.task, *after}
            if name not in reached and place.producer in reached and not others:
                reached.add(name)
                grown = True
    return frozenset(after[name].id for name in reached - {instance.task})


def do_rest(update: RunUpdate, instance: TaskInstance) -> bool:
    """Have a task run what its rounds left undone, for which others wait; False: all of it must be run again."""
    if instance.state in BEGUN:
        return True  # it consumes new elements as they come; those it has already given up run after this round
    if not instance.done or len(instance.earlier) >= MAX_EARLIER:
        return False
    update.put(leftover(instance))
    return True


def fails_run(update: RunUpdate, instance: TaskInstance) -> bool:
    """Whether a task has failed in a way that fails its run."""
    ignored = update.task(instance).when_failed is WhenFailed.IGNORE
    return instance.state is InstanceState.FAILED and not instance.forced and not ignored
