"""Flows made up at random: every pattern, nested, with conditions, compensations and policies."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from hypothesis import strategies as st

from forestay.domain.flows.definition.flow import Compensation, Deadline, Flow, OnFailure, Task, WhenFailed, all_tasks
from forestay.domain.flows.definition.flow_pattern import (
    AskPattern,
    AtMaximum,
    AwaitPattern,
    Branch,
    BranchSelection,
    ChoicePattern,
    Dimension,
    FilesOf,
    JobPattern,
    LinesOf,
    ListOf,
    LoopPattern,
    MergePattern,
    Pattern,
    RangeOf,
    Source,
    SubflowPattern,
    WatchOf,
    WorkletPattern,
)
from forestay.domain.jobs.job_secrets import SecretReference
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import Effects, RetryPolicy, WhenExhausted

SUB = Flow("sub", (Task("only", JobPattern(("true",))),), {"n": 0})
CONDITIONS = st.sampled_from(["params.a == 1", "params.a > 1", "not params.b", "params.b or params.a in [0, 1]"])
PARAMS = st.fixed_dictionaries({"a": st.integers(0, 2), "b": st.booleans(), "names": st.just(["x", "y"])})
SOURCES: st.SearchStrategy[Source] = st.one_of(
    st.builds(ListOf, st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)),
    st.just(ListOf("${params.names}")),
    st.builds(RangeOf, st.just(0), st.integers(1, 4), st.integers(1, 2)),
    st.just(FilesOf("in/*.txt")),
    st.just(LinesOf("names.txt")),
)
WATCH = st.builds(WatchOf, st.just("in/*.txt"), st.just(""), st.none(), st.integers(1, 100))


SECRETS = {"DB": SecretReference("file", "db"), "T": SecretReference("vault", "s/data/a#b", as_file=True)}
ON_FAILURE = st.sampled_from(OnFailure)
WHEN_FAILED = st.sampled_from(WhenFailed)


def ref(path: str) -> str:
    return "${" + path + "}"


class _Names:
    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> str:
        self.made += 1
        return f"t{self.made}"


@st.composite
def jobs(draw: st.DrawFn, earlier: tuple[Task, ...], own: tuple[str, ...]) -> JobPattern:
    """A job that may refer to tasks before it and to its own elements."""
    words = ["run", *draw(st.lists(st.sampled_from(["x", "${params.a}", "$${HOME}", *_values(earlier)]), max_size=2))]
    resources = draw(st.sampled_from([Resources(), Resources(cpus=2, memory=1 << 30, wall=60), Resources(nodes=2)]))
    alone = resources.nodes == 1  # what one host prepares is refused on several
    return JobPattern(
        command=(*words, *(ref(name) for name in own)),
        environment=draw(st.sampled_from([{}, {"A": "${params.a}"}])),
        resources=resources,
        outputs=draw(st.sampled_from([{}, {"out": "*.out"}])),
        result=draw(st.sampled_from(["", "r.json"])),
        container=draw(st.sampled_from(["", "debian:12", "oci:/images/a:1"])) if alone else "",
        effects=draw(st.sampled_from(Effects)),
        retry=draw(st.sampled_from([RetryPolicy(), RetryPolicy(3, 10, WhenExhausted.HOLD)])),
        expected_runtime=draw(st.sampled_from([None, 60])),
        priority=draw(st.integers(-2, 2)),
        labels=draw(st.sampled_from([{}, {"team": "x"}])),
        secrets=draw(st.sampled_from([{}, SECRETS])) if alone else {},
    )


def _outputs(task: Task) -> bool:
    return isinstance(task.pattern, JobPattern) and bool(task.pattern.outputs)


def _values(earlier: tuple[Task, ...]) -> list[str]:
    refs = []
    for task in earlier:
        refs.append(ref(f"tasks.{task.name}.state"))
        if isinstance(task.pattern, JobPattern):
            refs += [ref(f"tasks.{task.name}.outputs.{name}") for name in task.pattern.outputs]
            if task.pattern.result and not task.scatter:
                refs.append(ref(f"tasks.{task.name}.result.n"))
    return refs


@st.composite
def _tasks(draw: st.DrawFn, names: _Names, depth: int, policies: st.SearchStrategy[WhenFailed]) -> tuple[Task, ...]:
    made: list[Task] = []
    for _ in range(draw(st.integers(1, 4 if depth == 0 else 2))):
        made.append(draw(_task(names, depth, tuple(made), policies)))
    return tuple(made)


@st.composite
def _task(
    draw: st.DrawFn, names: _Names, depth: int, earlier: tuple[Task, ...], policies: st.SearchStrategy[WhenFailed]
) -> Task:
    name = names()
    kinds = ["job", "job", "job", "scatter", "scatter", "watch", "merge", "flow", "worklet", "forget", "ask", "event"]
    outputs = [task.name for task in earlier if task.scatter and _outputs(task)]
    kinds += ["follow"] * 4 if outputs else []
    kind = draw(st.sampled_from(kinds + (["loop", "choice"] if depth < 2 else [])))
    after = tuple(
        draw(st.lists(st.sampled_from([task.name for task in earlier]), max_size=2, unique=True)) if earlier else []
    )
    scatter: tuple[Dimension, ...] = ()
    if kind == "scatter":
        scatter = tuple(Dimension(f"v{place}", draw(SOURCES)) for place in range(draw(st.integers(1, 2))))
    elif kind == "follow":
        scatter = (Dimension("v0", ListOf(ref(f"tasks.{draw(st.sampled_from(outputs))}.outputs.out"))),)
    elif kind == "watch":
        scatter = (Dimension("file", draw(WATCH)),)
    elif kind == "flow" and draw(st.booleans()):
        scatter = (Dimension("v0", RangeOf(0, 3)),)
    own = tuple(dimension.name for dimension in scatter)
    pattern: Pattern
    match kind:
        case "merge":
            pattern = MergePattern({"all": draw(st.lists(st.sampled_from(["x", *_values(earlier)]), max_size=2))})
        case "flow":
            pattern = SubflowPattern("sub", {"n": "${params.a}"}, draw(st.sampled_from(["", "any", "peer"])))
        case "worklet":
            pattern = WorkletPattern("place", {})
        case "ask":
            form = {"properties": {"n": {"type": "integer", "default": 1}}}
            pattern = AskPattern(draw(st.sampled_from(["?", "${params.a}?"])), form=form)
        case "event":
            pattern = AwaitPattern("ready", draw(st.sampled_from(["", "${params.a}"])))
        case "forget":
            pattern = JobPattern(("note",), wait=False)
        case "loop":
            inner = draw(_tasks(names, depth + 1, policies))
            until = draw(st.sampled_from(["", "iteration >= 2", "params.b"]))
            while_ = draw(st.sampled_from(["", "iteration <= 1"]))
            pattern = LoopPattern(inner, draw(st.integers(1, 3)), while_, until, draw(st.sampled_from(AtMaximum)))
        case "choice":
            branches = (
                Branch("one", draw(_tasks(names, depth + 1, policies)), draw(CONDITIONS)),
                Branch("two", draw(_tasks(names, depth + 1, policies)), draw(CONDITIONS)),
            )
            otherwise = draw(st.just(()) | _tasks(names, depth + 1, policies))
            pattern = ChoicePattern(branches, otherwise, draw(st.sampled_from(BranchSelection)))
        case _:
            pattern = draw(jobs(earlier, own))
    compensated = kind in ("job", "scatter", "follow", "watch", "flow") and draw(st.booleans())
    return Task(
        name=name,
        pattern=pattern,
        after=after,
        when=draw(st.just("") | CONDITIONS),
        scatter=scatter,
        tolerate=draw(st.integers(0, 1)) if scatter else 0,
        compensation=Compensation(JobPattern(("undo", *(ref(path) for path in own))), 2) if compensated else None,
        deadline=draw(st.sampled_from([None, None, Deadline(3600)])),
        when_failed=draw(policies),
    )


@st.composite
def flows(
    draw: st.DrawFn,
    on_failure: st.SearchStrategy[OnFailure] = ON_FAILURE,
    policies: st.SearchStrategy[WhenFailed] = WHEN_FAILED,
) -> Flow:
    """A flow that passes its check."""
    tasks = draw(_tasks(_Names(), 0, policies))
    return Flow(
        name="made-up",
        tasks=tasks,
        params={"a": 0, "b": False, "names": ["x", "y"]},
        outputs={"state": "${tasks.t1.state}"},
        on_failure=draw(on_failure),
        flows={"sub": SUB} if any(isinstance(task.pattern, SubflowPattern) for task in all_tasks(tasks)) else {},
    )


def fates(salt: int, badness: int) -> Callable[[str, int, bool], bool]:
    """So many of a hundred elements end badly, always the same ones; compensations end well."""
    return lambda task, index, undo: undo or zlib.crc32(f"{salt}/{task}/{index}".encode()) % 100 >= badness
