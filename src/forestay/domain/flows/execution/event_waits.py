"""Tasks that wait for an event from outside: ended by the event, or by the default at the deadline.

Until the task has ended, its result holds what it waits for, so that the wait is closed with the values with which it was opened, whatever changed since.
"""

from __future__ import annotations

from collections.abc import Mapping

from forestay.domain.flows.commands import AwaitEvent
from forestay.domain.flows.definition.flow_pattern import AwaitPattern
from forestay.domain.flows.events import EventArrived
from forestay.domain.flows.execution.endings import complete
from forestay.domain.flows.execution.flow_run import InstanceState, TaskInstance
from forestay.domain.flows.execution.run_update import RunUpdate
from forestay.domain.flows.execution.scope import filled, values_for

MAX_KEY = 200


def await_event(update: RunUpdate, instance: TaskInstance, pattern: AwaitPattern) -> None:
    key = filled(pattern.key, values_for(update, instance))
    text = ("" if key is None else str(key))[:MAX_KEY]
    reason = f"event {pattern.event}" + (f", key {text}" if text else "")
    awaited = {"event": pattern.event, "key": text}
    update.put(instance, state=InstanceState.AWAITING, result=awaited, reason=reason)
    update.say(AwaitEvent(instance.work, pattern.event, text))


def take_event(update: RunUpdate, event: EventArrived) -> None:
    instance = update.find(event.work)
    if instance is not None and instance.state is InstanceState.AWAITING:
        _complete(update, instance, "arrived", event.id, event.by, event.data)


def end_wait_by_default(update: RunUpdate, instance: TaskInstance) -> bool:
    """Take the default at the deadline of a wait; False: the task is not a wait, or has no default."""
    pattern = update.task(instance).pattern
    if not isinstance(pattern, AwaitPattern) or pattern.default is None or instance.state is not InstanceState.AWAITING:
        return False
    _complete(update, instance, "default", "", "", pattern.default)
    return True


def _complete(
    update: RunUpdate, instance: TaskInstance, outcome: str, event: str, by: str, data: Mapping[str, object]
) -> None:
    awaited = dict(instance.result) if isinstance(instance.result, Mapping) else {}
    known = {**awaited, "outcome": outcome, "id": event, "by": by}
    complete(update, update.put(instance, result=known, reason=""), data)
