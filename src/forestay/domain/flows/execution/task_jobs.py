"""From a work order to jobs: their shared specification, and the parameters of each.

The executor of `SubmitJobs` or of a shard's batch has the flow and the order, and needs only this module. References to a scatter's own variables stay in
the command as ``{name}``, to be filled in from a job's parameters where it runs; everything else is filled in here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from forestay.domain.flows.commands import StartRun, WorkOrder
from forestay.domain.flows.definition.expression import (
    Path,
    Reference,
    Values,
    as_text,
    fill,
    inside,
    parse_template,
    template_references,
)
from forestay.domain.flows.definition.flow import Task
from forestay.domain.flows.definition.flow_pattern import Dimension, JobPattern, ListOf, RangeOf
from forestay.domain.flows.definition.flow_plan import FlowPlan, job_texts
from forestay.domain.flows.definition.flow_version import job_as_plain, job_from_plain
from forestay.domain.flows.execution.scope import filled_map
from forestay.domain.jobs.inputs import JobInput
from forestay.domain.jobs.specification import Specification

Member = Callable[[str, int], object]
"""Returns the n-th member of a stored listing."""
Files = Callable[[Mapping[str, object], bool], object]
"""Returns the location of an output (``{"run", "work", "output"}``), or with ``True`` a list of locations, one for each succeeded element
(with ``"count"`` and ``"earlier"``: what the last round has not is in an earlier one), or of ``$elements`` a place by number; from committed manifests."""
MAX_INPUTS = 1000
"""The most input files of one job."""


@dataclass(frozen=True, slots=True)
class TaskJobs:
    """What the jobs of an order have in common."""

    specification: Specification
    """Without an id: that is a digest of the content and given where specifications are stored."""
    result: str
    priority: int
    expected_runtime: int | None
    labels: Mapping[str, str]
    wait: bool


def job_pattern(plan: FlowPlan, order: WorkOrder) -> JobPattern:
    """The job of an order with its changes applied; raises `ValueError` if there is none or they do not fit."""
    task = plan.tasks[order.task].task
    if order.undo:
        if task.compensation is None:
            raise ValueError(f"task {task.name} has no compensation")
        return task.compensation.job
    if not isinstance(task.pattern, JobPattern):
        raise TypeError(f"task {task.name} is not a job")
    if not order.changes:
        return task.pattern
    try:
        return job_from_plain({**job_as_plain(task.pattern), **order.changes})
    except (TypeError, KeyError) as error:
        raise ValueError(f"the changes are not valid for a job: {error}") from error


def task_jobs(plan: FlowPlan, order: WorkOrder, *, tenant: str, files: Files, sources: Files | None = None) -> TaskJobs:
    """The common part of an order's jobs. ``sources``: returns the text of an output as an input's source, if not its location."""
    task = plan.tasks[order.task].task
    job = job_pattern(plan, order)
    values = _with_places(task, _scope_values(order, files))
    origins = _with_places(task, _scope_values(order, sources or files))
    patterns = {name: as_text(fill(text, values)) for name, text in job.outputs.items()}
    globs = [as_text(fill(text, _with_stars(task, values))) for text in job.outputs.values()]
    specification = Specification(
        id="",
        tenant=tenant,
        name=task.name,
        command=tuple(word for text in job.command for word in _words(text, values)),
        environment={name: as_text(fill(text, values)) for name, text in job.environment.items()},
        resources=job.resources,
        inputs=tuple(
            job_input for name, text in job.inputs.items() for job_input in _inputs(name, text, values, origins)
        ),
        staging=job.staging,
        named_outputs=patterns,
        outputs=tuple(dict.fromkeys([*globs, *([job.result] if job.result else [])])),
        container=as_text(fill(job.container, values)) if job.container else "",
        effects=job.effects,
        requires=job.requires,
        licences=job.licences,
        secrets=job.secrets,
        checkpoint=job.checkpoint,
        retry=job.retry,
    )
    return TaskJobs(
        specification=specification,
        result=job.result,
        priority=job.priority,
        expected_runtime=job.expected_runtime,
        labels={name: as_text(fill(text, values)) for name, text in job.labels.items()},
        wait=job.wait,
    )


def parameters(
    plan: FlowPlan, order: WorkOrder, indexes: Iterable[int], *, member: Member, files: Files | None = None
) -> Iterator[Mapping[str, object]]:
    """The parameters of these jobs: the scatter's variables, and the values inside them to which the job refers."""
    task = plan.tasks[order.task].task
    inner = _inner_paths(plan, order)
    choosers = [
        (dimension.name, _chooser(dimension, order, size, member, files))
        for dimension, size in zip(task.scatter, order.sizes, strict=True)
    ]
    for index in indexes:
        chosen: dict[str, object] = {}
        rest = index
        for (name, choose), size in zip(reversed(choosers), reversed(order.sizes), strict=True):
            rest, place = divmod(rest, size)
            chosen[name] = choose(place)
        found_inside = {name: chosen[name] for name, _ in choosers}
        for path in inner:
            found_inside[".".join(path)] = inside(found_inside.get(path[0]), path[1:])
        yield found_inside


def listed_places(plan: FlowPlan, order: WorkOrder, first: int, count: int) -> Mapping[str, frozenset[int]]:
    """By stored listing, the members that the jobs first … first + count - 1 use."""
    listed_places: dict[str, frozenset[int]] = {}
    below = 1
    for dimension, size in zip(reversed(plan.tasks[order.task].task.scatter), reversed(order.sizes), strict=True):
        listing = order.listings.get(dimension.name)
        if listing is not None and size:
            places = frozenset(index // below % size for index in range(first, first + count))
            listed_places[listing] = listed_places.get(listing, frozenset()) | places
        below *= size
    return listed_places


def _inputs(name: str, text: str, values: Values, origins: Values) -> Iterator[JobInput]:
    """The files of one entry: a single file, or for a list a folder of files whose names keep the order of the list."""
    into = as_text(fill(name, values))
    source = fill(text, origins)
    if isinstance(source, str) and source:
        yield JobInput(into, source)
        return
    if (
        isinstance(source, str)
        or not isinstance(source, Sequence)
        or not all(isinstance(other_name, str) for other_name in source)
    ):
        raise ValueError(f"input {name}: {text} names no file")
    if len(source) > MAX_INPUTS:
        raise ValueError(f"input {name}: {len(source)} files; at most {MAX_INPUTS} are allowed for one job")
    digits = len(str(len(source) - 1))
    for place, other_name in enumerate(source):
        yield JobInput(f"{into}/{place:0{digits}}-{other_name.rpartition('/')[2]}", other_name)


def _inner_paths(plan: FlowPlan, order: WorkOrder) -> tuple[Path, ...]:
    """References such as ``${sample.name}``, where the element is a record."""
    own = _own_names(plan.tasks[order.task].task)
    pattern = plan.tasks[order.task].task.pattern
    if not order.undo and not isinstance(pattern, JobPattern):
        return ()
    found_template_references = (
        path for text in job_texts(job_pattern(plan, order)) for path in template_references(text)
    )
    return tuple(dict.fromkeys(path for path in found_template_references if path[0] in own and len(path) > 1))


def run_params(plan: FlowPlan, command: StartRun, *, member: Member, files: Files) -> Mapping[str, object]:
    """The parameters of a sub-flow's run, with its element filled in."""
    if not command.order.sizes:
        return command.params
    (element,) = parameters(plan, command.order, [command.index], member=member, files=files)
    scope = _scope_values(command.order, files)

    def value(path: Path) -> object:
        if path == ("index",):
            return command.index
        return inside(element[path[0]], path[1:]) if path[0] in element else scope(path)

    return filled_map(command.params, value)


def _scope_values(order: WorkOrder, files: Files) -> Values:
    def value(path: Path) -> object:
        return with_places(order.scope.get(".".join(path)), files)

    return value


def with_places(value: object, files: Files) -> object:
    """A value with the outputs in it replaced by their locations."""
    if isinstance(value, Mapping):
        single, several = value.get("$output"), value.get("$outputs")
        if isinstance(single, Mapping):
            return files(single, False)  # noqa: FBT003 - the port says what it means
        if isinstance(several, Mapping):
            return files(several, True)  # noqa: FBT003
        return {key: with_places(inner, files) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [with_places(inner, files) for inner in value]
    return value


def _own_names(task: Task) -> frozenset[str]:
    return frozenset({dimension.name for dimension in task.scatter} | ({"index"} if task.scatter else set()))


def _with_places(task: Task, values: Values) -> Values:
    own = _own_names(task)
    return lambda path: "{" + ".".join(path) + "}" if path[0] in own else values(path)


def _with_stars(task: Task, values: Values) -> Values:
    own = _own_names(task)
    return lambda path: "*" if path[0] in own else values(path)


def _words(text: str, values: Values) -> Iterator[str]:
    """One word of a command; a word that is one reference to a list gives a word for each member."""
    parts = parse_template(text)
    if len(parts) == 1 and isinstance(parts[0], Reference):
        value = values(parts[0].path)
        if isinstance(value, Sequence) and not isinstance(value, str):
            yield from (as_text(entry) for entry in value)
            return
    yield as_text(fill(text, values))


def _chooser(
    dimension: Dimension, order: WorkOrder, size: int, member: Member, files: Files | None
) -> Callable[[int], object]:
    def scope(path: Path) -> object:
        return order.scope.get(".".join(path))

    match dimension.source:
        case ListOf(str() as text):
            found_fill = fill(text, scope)
            if files is not None and isinstance(found_fill, Mapping) and "$elements" in found_fill:
                places = files(found_fill["$elements"], True)  # noqa: FBT003 - the port says what it means
                assert isinstance(places, Mapping)  # noqa: S101 - so it says
                return lambda place: places[place]
            if files is not None:
                found_fill = with_places(found_fill, files)
            members = found_fill if isinstance(found_fill, Sequence) and not isinstance(found_fill, str) else ()
            if len(members) != size:
                raise ValueError(f"scatter {dimension.name}: {len(members)} files of {size} elements; an output to scatter over is one file of each")  # fmt: skip
            return lambda place: members[place]
        case ListOf(values):
            return lambda place: _filled(values[place], scope)
        case RangeOf(first, _, step):
            start = fill(first, scope) if isinstance(first, str) else first
            begin = start if isinstance(start, int) else 0
            return lambda place: begin + place * step
        case _:
            listing = order.listings[dimension.name]
            return lambda place: member(listing, place)


def _filled(value: object, values: Values) -> object:
    return fill(value, values) if isinstance(value, str) else value
