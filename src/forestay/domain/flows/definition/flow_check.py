"""The static check of a flow: reports all errors at once, each with its position and a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

from forestay.domain.flows.definition.ask_check import check_ask
from forestay.domain.flows.definition.expression import BadExpression, evaluate, parse_condition, references
from forestay.domain.flows.definition.flow import OTHERWISE, Deadline, Flow, Task, all_tasks, bodies
from forestay.domain.flows.definition.flow_pattern import (
    AskPattern,
    AwaitPattern,
    ChoicePattern,
    Dimension,
    JobPattern,
    ListOf,
    LoopPattern,
    MergePattern,
    RangeOf,
    SubflowPattern,
    WatchOf,
    WorkletPattern,
)
from forestay.domain.flows.definition.flow_plan import MAX_COMPENSATIONS, most_compensations, plan_flow
from forestay.domain.flows.definition.flow_problem import FlowProblem, Place, did_you_mean
from forestay.domain.flows.definition.flow_version import flow_as_plain
from forestay.domain.flows.definition.job_check import check_job
from forestay.domain.flows.definition.reference_check import RESERVED, References
from forestay.domain.flows.execution.scope import size_of

MAX_TASKS = 1000
MAX_PARAMS = 65_536
MAX_FLOW = 524_288
_PUT_AWAY = "put long lists into a file and scatter over its lines"
MAX_NESTING = 8
MAX_ROUNDS = 100_000
MAX_DIMENSIONS = 8
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
EVENT = re.compile(r"[A-Za-z0-9._-]{1,100}")
VERSION = re.compile(r"[0-9a-f]{64}")
DOMAIN = re.compile(r"[A-Za-z0-9._@+-]{1,64}")
YEAR = 31_536_000


def check_flow(flow: Flow) -> list[FlowProblem]:
    """All errors of a flow, in the order of the document; an empty list: it can be run."""
    problems = list(_flow(flow, ()))
    return sorted(dict.fromkeys(problems), key=lambda problem: _order(flow, problem.path))


def _order(flow: Flow, path: Place) -> tuple[int, str]:
    """The sort key: the task's position in the document, then the path."""
    places = {task.name: place for place, task in enumerate(all_tasks(flow.tasks), start=1)}
    inner = [places[step] for step in path if isinstance(step, str) and step in places]
    return (inner[-1] if inner else 0), FlowProblem(path, "").where


def _flow(flow: Flow, at: Place) -> Iterator[FlowProblem]:
    if not NAME.fullmatch(flow.name):
        yield FlowProblem((*at, "name"), "a flow's name has letters, digits, '-' and '_', and begins with a letter")
    yield from _deadline(flow.deadline, (*at, "deadline"))
    if size_of(flow.params) > MAX_PARAMS:
        yield FlowProblem((*at, "params"), f"the parameters are larger than {MAX_PARAMS} bytes; {_PUT_AWAY}")
    if size_of(flow_as_plain(flow)) > MAX_FLOW:
        yield FlowProblem(at, f"the flow is larger than {MAX_FLOW} bytes; {_PUT_AWAY}")
    for name in flow.params:
        if not NAME.fullmatch(name):
            yield FlowProblem((*at, "params", name), "a parameter's name has letters, digits, '-' and '_'")
    if not flow.tasks:
        yield FlowProblem((*at, "tasks"), "there are no tasks; a flow needs at least one")
    count = sum(1 for _ in all_tasks(flow.tasks))
    if count > MAX_TASKS:
        yield FlowProblem((*at, "tasks"), f"{count} tasks; at most {MAX_TASKS} are allowed. Use scatter or sub-flows")
    most = most_compensations(flow.tasks)
    if most > MAX_COMPENSATIONS:
        yield FlowProblem(
            (*at, "tasks"),
            f"up to {most} compensations; at most {MAX_COMPENSATIONS} are allowed. Lower a loop's at_most",
        )
    yield from _block(flow, flow.tasks, (*at, "tasks"), seen={}, depth=0)
    if count == len({task.name for task in all_tasks(flow.tasks)}):
        yield from _cycles(flow, at)
        yield from References(flow, at).check()
    yield from _unused(flow, at)
    for name, inner in flow.flows.items():
        yield from _flow(inner, (*at, "flows", name))


def _unused(flow: Flow, at: Place) -> Iterator[FlowProblem]:
    patterns = [task.pattern for task in all_tasks(flow.tasks)]
    used = {pattern.flow for pattern in patterns if isinstance(pattern, SubflowPattern)}
    used |= {pattern.default for pattern in patterns if isinstance(pattern, WorkletPattern)}
    for name in flow.flows:
        if name not in used:
            yield FlowProblem((*at, "flows", name), f"no task runs the sub-flow {name!r}; use it or remove it")


def _block(
    flow: Flow, tasks: tuple[Task, ...], at: Place, *, seen: dict[str, Place], depth: int
) -> Iterator[FlowProblem]:
    if depth > MAX_NESTING:
        yield FlowProblem(at, f"tasks are nested more than {MAX_NESTING} deep; use a sub-flow")
        return
    names = {task.name for task in tasks}
    for task in tasks:
        here = (*at, task.name)
        if not NAME.fullmatch(task.name):
            yield FlowProblem(here, "a task's name has letters, digits, '-' and '_', and begins with a letter")
        if task.name in seen:
            other = FlowProblem(seen[task.name], "").where
            yield FlowProblem(here, f"there is another task {task.name!r} at {other}; names are unique in a whole flow")
        seen.setdefault(task.name, here)
        yield from _after(flow, task, names, here)
        yield from _task(flow, task, here)
        for body in bodies(task.pattern):
            inner = _body_place(task, body.name, here)
            yield from _block(flow, body.tasks, inner, seen=seen, depth=depth + 1)


def _body_place(task: Task, body: str, here: Place) -> Place:
    if isinstance(task.pattern, LoopPattern):
        return (*here, "loop", "tasks")
    if body == OTHERWISE:
        return (*here, "choose", "otherwise", "tasks")
    return (*here, "choose", "branches", body, "tasks")


def _after(flow: Flow, task: Task, siblings: set[str], here: Place) -> Iterator[FlowProblem]:
    everywhere = {other_task.name for other_task in all_tasks(flow.tasks)}
    for place, name in enumerate(task.after):
        at = (*here, "after", place)
        if name == task.name:
            yield FlowProblem(at, "a task cannot come after itself")
        elif name in siblings:
            continue
        elif name in everywhere:
            yield FlowProblem(at, f"task {name!r} is not in the same block; use the loop or choice that contains it")
        else:
            yield FlowProblem(at, f"there is no task {name!r}{did_you_mean(name, siblings - {task.name})}")


def _deadline(deadline: Deadline | None, at: Place) -> Iterator[FlowProblem]:
    if deadline is not None and not 0 < deadline.seconds <= YEAR:
        yield FlowProblem(at, f"a deadline is 1 second to a year, not {deadline.seconds} s")


def _task(flow: Flow, task: Task, here: Place) -> Iterator[FlowProblem]:
    yield from _deadline(task.deadline, (*here, "deadline"))
    yield from _never(task.when, (*here, "when"), "the task can never be reached: its condition is always false")
    pattern = task.pattern
    if task.tolerate and not task.scatter:
        yield FlowProblem((*here, "tolerate"), "there is no scatter whose elements could fail; remove it")
    if task.tolerate < 0:
        yield FlowProblem((*here, "tolerate"), "expected a number of elements, 0 or more")
    yield from _scatter(task, here)
    match pattern:
        case JobPattern():
            yield from check_job(pattern, here)
        case SubflowPattern():
            yield from _subflow(flow, pattern, here)
        case WorkletPattern(place, params, default):
            if not NAME.fullmatch(place):
                yield FlowProblem((*here, "worklet"), "name the late-bound task: letters, digits, '-' and '_'")
            if default:
                yield from _subflow(flow, SubflowPattern(default, params), here, said_by="default")
        case MergePattern(values):
            if not values:
                yield FlowProblem((*here, "merge"), "there is nothing to merge; name at least one value")
        case AskPattern():
            yield from check_ask(task, pattern, (*here, "ask"))
        case AwaitPattern(event, _, default):
            if not EVENT.fullmatch(event):
                yield FlowProblem((*here, "wait_for", "event"), "name the event: letters, digits, '.', '_' and '-'")
            if default is not None and task.deadline is None:
                words = "the default counts at the deadline; give the task a deadline"
                yield FlowProblem((*here, "wait_for", "default"), words)
        case LoopPattern():
            yield from _loop(pattern, here)
        case ChoicePattern():
            yield from _choice(pattern, here)
    yield from _compensation(task, here)
    yield from _action(task, here)


def _action(task: Task, here: Place) -> Iterator[FlowProblem]:
    if not task.action:
        return
    at = (*here, "action")
    if not EVENT.fullmatch(task.action):
        yield FlowProblem(at, "name the action: letters, digits, '.', '_' and '-'")
    if task.compensation is not None:
        yield FlowProblem(at, "the task has a compensation of its own; remove 'compensate' or this")
    elif not isinstance(task.pattern, JobPattern | AskPattern):
        yield FlowProblem(at, "only tasks that run jobs or ask a person have an action; put it on the inner tasks")
    elif isinstance(task.pattern, JobPattern) and not task.pattern.wait:
        yield FlowProblem(
            at, "the flow does not wait for this task, so it cannot be compensated; remove 'wait: false' or this"
        )


def _compensation(task: Task, here: Place) -> Iterator[FlowProblem]:
    compensation = task.compensation
    if compensation is None:
        return
    at = (*here, "compensate")
    yield from check_job(compensation.job, at)
    if isinstance(task.pattern, MergePattern | AskPattern | AwaitPattern | LoopPattern | ChoicePattern):
        yield FlowProblem(at, "only tasks that run jobs or a flow can be compensated; put it on the inner tasks")
    if isinstance(task.pattern, JobPattern) and not task.pattern.wait:
        yield FlowProblem(
            at, "the flow does not wait for this task, so it cannot be compensated; remove 'wait: false' or this"
        )
    if not compensation.job.wait:
        yield FlowProblem((*at, "wait"), "the flow always waits for a compensation; remove this")
    if not 1 <= compensation.tries <= 100:
        yield FlowProblem((*at, "tries"), "a compensation is tried 1 to 100 times")


def _scatter(task: Task, here: Place) -> Iterator[FlowProblem]:
    if not task.scatter:
        return
    at = (*here, "scatter")
    if not isinstance(task.pattern, JobPattern | SubflowPattern):
        yield FlowProblem(at, "only jobs and sub-flows can be scattered; put the tasks into a sub-flow")
    if len(task.scatter) > MAX_DIMENSIONS:
        yield FlowProblem(at, f"{len(task.scatter)} variables; at most {MAX_DIMENSIONS} are possible")
    for dimension in task.scatter:
        yield from _dimension(dimension, (*at, dimension.name), alone=len(task.scatter) == 1)


def _dimension(dimension: Dimension, at: Place, *, alone: bool) -> Iterator[FlowProblem]:
    if not NAME.fullmatch(dimension.name):
        yield FlowProblem(at, "a variable's name has letters, digits, '-' and '_'")
    if dimension.name in RESERVED:
        yield FlowProblem(at, f"{dimension.name!r} is a reserved name; choose another one")
    match dimension.source:
        case ListOf(()):
            yield FlowProblem(at, "the list is empty: there is nothing to scatter over")
        case RangeOf(_, _, step) if step == 0:
            yield FlowProblem((*at, "range"), "the step is 0; write 1 or more, or less than 0 to count down")
        case RangeOf(int() as first, int() as end, step) if not range(first, end, step):
            yield FlowProblem((*at, "range"), f"the range from {first} to {end} in steps of {step} is empty")
        case WatchOf(_, file, count, quiet):
            if not file and count is None and quiet is None:
                yield FlowProblem((*at, "until"), "the watch has no end; set until which file, count or quiet time")
            if not alone:
                yield FlowProblem(at, "a watched listing cannot be combined with other variables; use a sub-flow")
            if count is not None and count < 1:
                yield FlowProblem((*at, "until", "count"), "a count is 1 or more")
            if quiet is not None and not 1 <= quiet <= YEAR:
                yield FlowProblem((*at, "until", "quiet"), "a quiet time is 1 second to a year")


def _subflow(flow: Flow, pattern: SubflowPattern, here: Place, said_by: str = "flow") -> Iterator[FlowProblem]:
    if pattern.domain and not DOMAIN.fullmatch(pattern.domain):
        yield FlowProblem((*here, "domain"), "a domain is 'any', or the name of a peer as `forestay peers` shows it")
    inner = flow.flows.get(pattern.flow)
    if inner is None:
        if not VERSION.fullmatch(pattern.flow):
            hint = did_you_mean(pattern.flow, flow.flows)
            yield FlowProblem((*here, said_by), f"there is no sub-flow {pattern.flow!r} under 'flows'{hint}")
        return
    for name in pattern.params:
        if name not in inner.params:
            hint = did_you_mean(name, inner.params)
            yield FlowProblem((*here, "params", name), f"flow {pattern.flow!r} has no parameter {name!r}{hint}")
    for name, value in inner.params.items():
        if value is None and name not in pattern.params:
            yield FlowProblem((*here, "params"), f"flow {pattern.flow!r} needs the parameter {name!r}; give it here")


def _loop(pattern: LoopPattern, here: Place) -> Iterator[FlowProblem]:
    at = (*here, "loop")
    if not pattern.tasks:
        yield FlowProblem((*at, "tasks"), "the loop is empty; it needs at least one task")
    if not 1 <= pattern.maximum <= MAX_ROUNDS:
        yield FlowProblem((*at, "at_most"), f"a loop has a bound: at most 1 to {MAX_ROUNDS} rounds")
    yield from _never(pattern.while_, (*at, "while"), "the loop's tasks can never be reached: 'while' is always false")


def _choice(pattern: ChoicePattern, here: Place) -> Iterator[FlowProblem]:
    at = (*here, "choose")
    if not pattern.branches:
        yield FlowProblem((*at, "branches"), "the choice is empty; it needs at least one branch")
    for branch in pattern.branches:
        place = (*at, "branches", branch.name)
        if not NAME.fullmatch(branch.name) or branch.name == OTHERWISE:
            yield FlowProblem(place, f"a branch's name has letters, digits, '-' and '_', and is not {OTHERWISE!r}")
        if not branch.when:
            yield FlowProblem((*place, "when"), "the branch needs a condition; or put its tasks under 'otherwise'")
        if not branch.tasks:
            yield FlowProblem((*place, "tasks"), "the branch is empty; it needs at least one task")
        yield from _never(
            branch.when, (*place, "when"), "the branch can never be reached: its condition is always false"
        )


def _never(condition: str, at: Place, message: str) -> Iterator[FlowProblem]:
    """A condition without references that does not hold."""
    if not condition:
        return
    try:
        expression = parse_condition(condition)
    except BadExpression as why:
        yield FlowProblem(at, f"the condition cannot be read: {why}")
        return
    if not any(references(expression)) and evaluate(expression, lambda _: None) is not True:
        yield FlowProblem(at, message)


def _cycles(flow: Flow, at: Place) -> Iterator[FlowProblem]:
    """Tasks that wait for each other, and tasks that wait for those."""
    plan = plan_flow(flow)
    places = dict(_places(flow.tasks, (*at, "tasks")))
    begun: set[str] = set()
    waiting = dict(plan.tasks)
    while True:
        ready = [name for name, task in waiting.items() if begun.issuperset(task.before)]
        if not ready:
            break
        begun.update(ready)
        for name in ready:
            del waiting[name]
    in_cycles: set[str] = set()
    for name in waiting:
        if name in in_cycles:
            continue
        cycle = _cycle_from(name, {other_name: plan.tasks[other_name].before for other_name in waiting})
        if cycle and not in_cycles & set(cycle):
            in_cycles |= set(cycle)
            chain = " → ".join([*cycle, cycle[0]])
            yield FlowProblem(
                places[cycle[0]], f"tasks wait for each other: {chain}; remove a dependency, or use a loop"
            )
    for name, task in waiting.items():
        if name not in in_cycles:
            yield FlowProblem(
                places[name],
                f"the task can never be reached: it comes after {_first(task.before, waiting)!r}, which never starts",
            )


def _first(names: tuple[str, ...], among: Mapping[str, object]) -> str:
    return next((name for name in names if name in among), names[0])


def _cycle_from(start: str, edges: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The cycle reached by walking back from a task, if the task is part of it."""
    path = [start]
    while True:
        following = next((name for name in edges[path[-1]] if name in edges), None)
        if following is None:
            return []
        if following in path:
            cycle = path[path.index(following) :]
            return cycle if all(b in edges[a] for a, b in pairwise(cycle)) else []
        path.append(following)


def _places(tasks: tuple[Task, ...], at: Place) -> Iterator[tuple[str, Place]]:
    for task in tasks:
        here = (*at, task.name)
        yield task.name, here
        for body in bodies(task.pattern):
            yield from _places(body.tasks, _body_place(task, body.name, here))
