"""The consequences of new facts: tasks start and end, loops repeat, the run stops, is compensated, finishes.

Events only record facts. `settle` then does whatever the facts allow until nothing is left to do. Therefore the order in which events arrive
does not matter if the facts are the same.
"""

from __future__ import annotations

from math import prod

from forestay.domain.flows.commands import BindWorklet, StartTimer
from forestay.domain.flows.definition.expression import holds
from forestay.domain.flows.definition.flow import OTHERWISE, bodies
from forestay.domain.flows.definition.flow_pattern import (
    AskPattern,
    AtMaximum,
    AwaitPattern,
    BranchSelection,
    ChoicePattern,
    JobPattern,
    LoopPattern,
    MergePattern,
    SubflowPattern,
    WorkletPattern,
)
from forestay.domain.flows.definition.flow_plan import MAX_COMPENSATIONS
from forestay.domain.flows.execution.endings import (
    TOO_LARGE,
    apply_verdict,
    complete,
    end,
    fail_instance,
    give_verdict,
    result_limit,
)
from forestay.domain.flows.execution.event_waits import await_event
from forestay.domain.flows.execution.flow_run import InstanceState, InstanceVerdict, RunPhase, TaskInstance
from forestay.domain.flows.execution.library import is_full, is_of_library
from forestay.domain.flows.execution.questions import ask_person
from forestay.domain.flows.execution.redo import leftover
from forestay.domain.flows.execution.rounds import (
    Impossible,
    ask_for_listings,
    listing_names,
    open_round,
    push_compensation,
    undo_size,
)
from forestay.domain.flows.execution.run_end import step_run
from forestay.domain.flows.execution.run_update import RunUpdate
from forestay.domain.flows.execution.scope import filled_map, size_of, task_value, values_for, values_in
from forestay.domain.flows.execution.streaming import bars, feed, lost_inputs, may_be_followed, more_to_do
from forestay.domain.flows.scatter.fan_out import bits_of, done_pieces, joined, layout_of

MAX_DONE = 200_000
"""The most bytes kept for a scatter with failed elements, so that only those need be run again."""


def settle(update: RunUpdate) -> None:
    """Do everything that the facts allow."""
    while update.run.phase is not RunPhase.FINISHED:
        moved = False
        for name in list(update.instances):
            instance = update.instances.get(name)
            if instance is not None and not instance.ended:
                moved = _step(update, instance) or moved
        if not (step_run(update) or moved):
            return


def _step(update: RunUpdate, instance: TaskInstance) -> bool:
    match instance.state:
        case InstanceState.WAITING:
            return _may_begin(update, instance)
        case InstanceState.LISTING | InstanceState.BINDING | InstanceState.ASKING | InstanceState.AWAITING if (
            update.run.phase is not RunPhase.RUNNING
        ):
            give_verdict(update, instance, InstanceVerdict.CANCELLED)
            return True
        case InstanceState.LISTING if all(name in instance.listings for name in listing_names(update.task(instance))):
            _open(update, instance)
            return True
        case InstanceState.BINDING if instance.bound:
            _open(update, instance)
            return True
        case InstanceState.RUNNING if instance.fan_out is not None:
            if feed(update, instance):
                return True
            if instance.fan_out.finished and (instance.verdict is not None or not update.held(instance)):
                _end_round(update, instance)
                return True
            return False
        case InstanceState.RUNNING:
            return _step_container(update, instance)
        case _:
            return False


def _may_begin(update: RunUpdate, instance: TaskInstance) -> bool:
    if update.run.phase is not RunPhase.RUNNING:
        return False
    prefix = f"{instance.block}/" if instance.block else ""
    before = [update.instances[prefix + name] for name in update.place(instance).before]
    producer = update.producer(instance)
    if producer is not None and may_be_followed(producer):
        before.remove(producer)  # its elements are consumed as they end
    if not all(task_instance.ended for task_instance in before):
        return False
    if any(bars(update, task_instance) for task_instance in before):
        update.put(instance, state=InstanceState.CANCELLED, reason="a task before it failed")
        return True
    if update.held(instance):
        return False
    _begin(update, instance)
    return True


def _begin(update: RunUpdate, instance: TaskInstance) -> None:
    task = update.task(instance)
    if task.when and not holds(task.when, values_for(update, instance)):
        update.put(instance, state=InstanceState.SKIPPED, reason="its condition is false")
        return
    instance = update.put(
        instance,
        state=InstanceState.RUNNING,
        round=instance.round + 1,
        seen=update.run.data_changes if instance.as_of < 0 else instance.seen,
        timer=task.deadline is not None,
        reason="",
        forced=False,
    )
    if task.deadline is not None:
        update.say(StartTimer(instance.work, update.at + 1000 * task.deadline.seconds))
    if undo_size(update, instance) > update.plan.undo_limit:
        fail_instance(update, instance, f"its compensation would need more than {update.plan.undo_limit} bytes")
        return
    if is_of_library(update, instance) and is_full(update):
        fail_instance(update, instance, f"{MAX_COMPENSATIONS} compensations of the library wait on the stack already")
        return
    match task.pattern:
        case JobPattern() | SubflowPattern():
            if not instance.kept and ask_for_listings(update, instance):
                update.put(instance, state=InstanceState.LISTING)
            else:
                _open(update, instance)
        case WorkletPattern() if isinstance(instance.changes.get("flow"), str):
            _open(update, instance)  # someone has chosen the flow to run here
        case WorkletPattern(place, params):
            update.put(instance, state=InstanceState.BINDING)
            update.say(BindWorklet(instance.work, instance.id, place, filled_map(params, values_for(update, instance))))
        case MergePattern(values):
            complete(update, instance, filled_map(values, values_for(update, instance)))
        case AskPattern():
            ask_person(update, instance, task.pattern)
        case AwaitPattern():
            await_event(update, instance, task.pattern)
        case LoopPattern():
            _next_iteration(update, instance)
        case ChoicePattern():
            _choose(update, instance, task.pattern)


def _open(update: RunUpdate, instance: TaskInstance) -> None:
    try:
        open_round(update, instance)
    except Impossible as why:
        fail_instance(update, update.instances[instance.id], str(why))


def _end_round(update: RunUpdate, instance: TaskInstance) -> None:
    fan_out = instance.fan_out
    assert fan_out is not None  # noqa: S101 - the caller has looked
    push_compensation(update, instance)
    done = joined(instance.done, done_pieces(fan_out))
    instance = update.put(
        instance,
        fan_out=None,
        well=sum(bits_of(piece).bit_count() for piece in done),
        bad=fan_out.bad,
        count=prod(instance.sizes) if instance.sizes else fan_out.count,
    )
    incomplete = fan_out.bad or (update.run.streams and instance.well < instance.count)
    if instance.sizes and incomplete and size_of(done) <= MAX_DONE:
        instance = update.put(instance, done=done, layout=instance.layout or layout_of(fan_out))
    else:
        instance = update.put(instance, done=(), layout=())
    if instance.verdict is not None:
        apply_verdict(update, instance, instance.verdict)
    elif fan_out.bad > update.task(instance).tolerate:
        fail_instance(update, instance, fan_out.why() or f"{fan_out.bad} of {fan_out.count} jobs failed")
    elif instance.result == TOO_LARGE:
        update.put(instance, result=None)
        fail_instance(
            update,
            update.instances[instance.id],
            f"its result is larger than {result_limit(update, instance)} bytes; put it into a file",
        )
    elif more_to_do(update, instance, fan_out.bad):
        update.put(leftover(instance))
    elif instance.well < instance.count and lost_inputs(update, instance):
        end(update, instance, InstanceState.CANCELLED, reason="a task before it failed")
    else:
        complete(update, instance, instance.outputs)


def _step_container(update: RunUpdate, instance: TaskInstance) -> bool:
    inner = [task_instance for block in instance.blocks for task_instance in update.block(block)]
    if not all(task_instance.ended for task_instance in inner):
        return False
    if instance.verdict is not None:
        apply_verdict(update, instance, instance.verdict)
        return True
    if update.run.phase is not RunPhase.RUNNING or update.held(instance):
        return False
    if any(bars(update, task_instance) for task_instance in inner):
        # Failures inside have been handled there; the tasks after this one cannot begin.
        end(update, instance, InstanceState.CANCELLED, reason="a task inside it failed")
        return True
    pattern = update.task(instance).pattern
    if isinstance(pattern, LoopPattern):
        _end_iteration(update, instance, pattern)
    elif isinstance(pattern, ChoicePattern):
        complete(update, instance, filled_map(pattern.outputs, values_in(update, instance.blocks)))
    return True


def _next_iteration(update: RunUpdate, instance: TaskInstance) -> None:
    pattern = update.task(instance).pattern
    assert isinstance(pattern, LoopPattern)  # noqa: S101 - only loops come here
    inside = values_in(update, (f"{instance.work}/{instance.iteration}",))
    if pattern.while_ and not holds(pattern.while_, inside):
        complete(update, instance, filled_map(pattern.outputs, inside))
        return
    if instance.iteration >= pattern.maximum:
        if (pattern.while_ or pattern.until) and pattern.at_maximum is AtMaximum.FAIL:
            fail_instance(update, instance, f"its condition was not met after {pattern.maximum} rounds")
        else:
            complete(update, instance, filled_map(pattern.outputs, inside))
        return
    update.close_blocks(instance)
    iteration = instance.iteration + 1
    block = f"{instance.work}/{iteration}"
    update.put(instance, iteration=iteration, blocks=(block,))
    update.open_block(block, pattern.tasks)


def _end_iteration(update: RunUpdate, instance: TaskInstance, pattern: LoopPattern) -> None:
    inside = values_in(update, instance.blocks)
    if pattern.until and holds(pattern.until, inside):
        complete(update, instance, filled_map(pattern.outputs, inside))
        return
    previous = {
        task_instance.task: _remembered(update, task_instance)
        for block in instance.blocks
        for task_instance in update.block(block)
    }
    _next_iteration(update, update.put(instance, previous=previous))


def _remembered(update: RunUpdate, instance: TaskInstance) -> dict[str, object]:
    pattern = update.task(instance).pattern
    names = pattern.outputs if isinstance(pattern, JobPattern) else instance.outputs
    outputs = {name: task_value(update, instance, ("outputs", name)) for name in names}
    kept = {
        name: task_value(update, instance, (name,)) for name in ("state", "exit_code", "result", "count", "well", "bad")
    }
    return kept | {"outputs": outputs}


def _choose(update: RunUpdate, instance: TaskInstance, pattern: ChoicePattern) -> None:
    values = values_for(update, instance)
    taken = [branch.name for branch in pattern.branches if holds(branch.when, values)]
    if pattern.take is BranchSelection.FIRST:
        taken = taken[:1]
    if not taken and pattern.otherwise:
        taken = [OTHERWISE]
    if not taken:
        end(update, instance, InstanceState.SKIPPED, reason="no branch was taken")
        return
    update.put(instance, blocks=tuple(f"{instance.work}/{name}" for name in taken))
    for body in bodies(pattern):
        if body.name in taken:
            update.open_block(f"{instance.work}/{body.name}", body.tasks)
