"""Flows as JSON documents: every error is reported with its position.

The fields of a job are those of the HTTP interface. Some values may have units: ``4 GiB``, ``90 min``.
"""

from __future__ import annotations

from typing import Any

from forestay.domain.flows.definition.flow import Compensation, DeadlineAction, Flow, OnFailure, Task, WhenFailed
from forestay.domain.flows.definition.flow import Deadline as DeadlineOf
from forestay.domain.flows.definition.flow_check import check_flow
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
from forestay.domain.flows.definition.flow_problem import FlowProblem, Place
from forestay.domain.flows.definition.flow_version import LANGUAGE, flow_as_plain
from forestay.domain.jobs.inputs import Staging
from forestay.domain.jobs.job_secrets import SecretReference, secrets_from_plain
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import CheckpointPolicy, Effects, RetryPolicy, WhenExhausted
from forestay.formats.text.document_fields import Fields, depth_of, duration_of, size_of

JOB_FIELDS = (
    "command", "run", "environment", "resources", "inputs", "staging", "outputs", "result", "container", "effects", "max_attempts", "retry_wait",
    "when_exhausted", "expected_runtime", "priority", "labels", "wait", "requires", "licences", "checkpoint", "secrets",
)  # fmt: skip
ANY_TASK = ("after", "when", "scatter", "tolerate", "compensate", "action", "deadline", "when_failed")
KINDS = ("command", "run", "flow", "worklet", "merge", "ask", "wait_for", "loop", "choose")
"""Exactly one of these determines the kind of a task."""
MAX_DEPTH = 40
_NO_COMMAND = ("-",)


def flow_to_json(flow: Flow) -> dict[str, Any]:
    """The document of a flow; defaults are left out."""
    return flow_as_plain(flow)


def read_flow(data: object) -> tuple[Flow, list[FlowProblem]]:
    """Read the structure of a document: the flow, as far as it can be read, and all errors."""
    fields = Fields()
    flow = _flow(fields, data, ())
    return flow, fields.findings


def check_document(data: object) -> tuple[Flow | None, list[FlowProblem]]:
    """Read a document and check its contents: a flow that can be run, or all errors."""
    if depth_of(data) > MAX_DEPTH:
        return None, [FlowProblem((), f"it is nested more than {MAX_DEPTH} deep")]
    flow, findings = read_flow(data)
    wrong = {finding.path for finding in findings}
    for problem in check_flow(flow):
        # An error in reading is not reported a second time.
        if not any(problem.path[: len(path)] == path or path[: len(problem.path)] == problem.path for path in wrong):
            findings.append(problem)
    return (None if findings else flow), findings


def _flow(fields: Fields, data: object, at: Place, *, outer: bool = True) -> Flow:
    known = ["name", "params", "on_failure", "reuse", "deadline", "flows", "tasks", "outputs", "description"]
    record = fields.record(data, at, ["forestay", *known], what="a flow", needed=["name", "tasks"])
    if outer and (record.get("forestay") != LANGUAGE or record.get("forestay") is True):
        fields.wrong((*at, "forestay") if "forestay" in record else at, f"add 'forestay: {LANGUAGE}', the version of this language")  # fmt: skip
    flows = fields.record(record.get("flows", {}), (*at, "flows"), None, what="sub-flows by name")
    return Flow(
        name=fields.text(record.get("name", "-"), (*at, "name")),
        tasks=_tasks(fields, record.get("tasks", {}), (*at, "tasks")),
        params=fields.record(record.get("params", {}), (*at, "params"), None, what="parameters by name"),
        outputs=fields.record(record.get("outputs", {}), (*at, "outputs"), None, what="outputs by name"),
        deadline=_deadline(fields, record.get("deadline"), (*at, "deadline")),
        on_failure=fields.one_of(OnFailure, record.get("on_failure", OnFailure.STOP), (*at, "on_failure")),
        reuse=fields.truth(record.get("reuse", False), (*at, "reuse")),
        flows={
            name: _flow(fields, inner, (*at, "flows", name), outer=isinstance(inner, dict) and "forestay" in inner)
            for name, inner in flows.items()
        },
    )


def _tasks(fields: Fields, data: object, at: Place) -> tuple[Task, ...]:
    record = fields.record(data, at, None, what="tasks by name")
    return tuple(_task(fields, name, inner, (*at, name)) for name, inner in record.items())


def _task(fields: Fields, name: str, data: object, at: Place) -> Task:
    if not isinstance(data, dict):
        fields.wrong(at, "a task is a record of fields, such as 'command' and 'after'")
        data = {"command": list(_NO_COMMAND)}
    kinds = [kind for kind in KINDS if kind in data]
    if len(kinds) != 1:
        reason = f"it is {' and '.join(kinds)} at once" if kinds else "it has no kind"
        fields.wrong(at, f"{reason}; a task has one of {', '.join(KINDS)}")
    kind = kinds[0] if kinds else ""
    record = fields.record(data, at, [*ANY_TASK, *_own_fields(kind)], what="a task")
    scatter = fields.record(record.get("scatter", {}), (*at, "scatter"), None, what="variables and what they run over")
    after = record.get("after", [])
    return Task(
        name=name,
        pattern=_pattern(fields, kind, record, at),
        after=tuple(fields.texts([after] if isinstance(after, str) else after, (*at, "after"))),
        when=fields.condition(record.get("when", ""), (*at, "when")),
        scatter=tuple(
            Dimension(variable, _source(fields, source, (*at, "scatter", variable)))
            for variable, source in scatter.items()
        ),
        tolerate=fields.whole(record.get("tolerate", 0), (*at, "tolerate")),
        compensation=_compensation(fields, record.get("compensate"), (*at, "compensate")),
        action=fields.text(record.get("action", ""), (*at, "action"), empty=True),
        deadline=_deadline(fields, record.get("deadline"), (*at, "deadline")),
        when_failed=fields.one_of(WhenFailed, record.get("when_failed", WhenFailed.FAIL), (*at, "when_failed")),
    )


def _own_fields(kind: str) -> tuple[str, ...]:
    match kind:
        case "command" | "run":
            return JOB_FIELDS
        case "flow":
            return ("flow", "params", "domain")
        case "worklet":
            return ("worklet", "default", "params")
        case "merge":
            return ("merge",)
        case "ask" | "wait_for":
            return (kind,)
        case "loop" | "choose":
            return (kind, "outputs")
        case _:
            return (*JOB_FIELDS, *KINDS, "default", "domain", "params")


def _pattern(fields: Fields, kind: str, record: dict[str, object], at: Place) -> Pattern:
    params_at = (*at, "params")
    match kind:
        case "flow":
            params = fields.record(record.get("params", {}), params_at, None, what="parameters by name")
            domain = fields.text(record.get("domain", ""), (*at, "domain"), empty=True)
            return SubflowPattern(fields.text(record["flow"], (*at, "flow")), params, domain)
        case "worklet":
            params = fields.record(record.get("params", {}), params_at, None, what="parameters by name")
            default = fields.text(record.get("default", ""), (*at, "default"), empty=True)
            return WorkletPattern(fields.text(record["worklet"], (*at, "worklet")), params, default)
        case "merge":
            return MergePattern(fields.record(record["merge"], (*at, "merge"), None, what="values by name"))
        case "ask":
            return _ask(fields, record["ask"], (*at, "ask"))
        case "wait_for":
            return _wait_for(fields, record["wait_for"], (*at, "wait_for"))
        case "loop":
            return _loop(fields, record, at)
        case "choose":
            return _choose(fields, record, at)
        case _:
            return _job(fields, record, at)


def _ask(fields: Fields, data: object, at: Place) -> AskPattern:
    known = ["title", "text", "form", "who", "default"]
    ask = fields.record(data, at, known, what="a question", needed=["title"])
    who, default = ask.get("who"), ask.get("default")
    return AskPattern(
        title=fields.text(ask.get("title", "-"), (*at, "title")),
        text=fields.text(ask.get("text", ""), (*at, "text"), empty=True),
        form=fields.record(ask.get("form", {}), (*at, "form"), None, what="a form"),
        who=AskPattern("").who if who is None else tuple(fields.texts([who] if isinstance(who, str) else who, (*at, "who"))),
        default=None if default is None else fields.record(default, (*at, "default"), None, what="an answer"),
    )  # fmt: skip


def _wait_for(fields: Fields, data: object, at: Place) -> AwaitPattern:
    wait = fields.record(data, at, ["event", "key", "default"], what="a wait for an event", needed=["event"])
    default = wait.get("default")
    return AwaitPattern(
        event=fields.text(wait.get("event", "-"), (*at, "event")),
        key=fields.text(wait.get("key", ""), (*at, "key"), empty=True),
        default=None if default is None else fields.record(default, (*at, "default"), None, what="outputs by name"),
    )


def _loop(fields: Fields, record: dict[str, object], at: Place) -> LoopPattern:
    here = (*at, "loop")
    known = ["at_most", "while", "until", "then", "tasks"]
    loop = fields.record(record["loop"], here, known, what="a loop", needed=["at_most", "tasks"])
    return LoopPattern(
        tasks=_tasks(fields, loop.get("tasks", {}), (*here, "tasks")),
        maximum=fields.whole(loop.get("at_most", 1), (*here, "at_most")),
        while_=fields.condition(loop.get("while", ""), (*here, "while")),
        until=fields.condition(loop.get("until", ""), (*here, "until")),
        at_maximum=fields.one_of(AtMaximum, loop.get("then", AtMaximum.FAIL), (*here, "then")),
        outputs=fields.record(record.get("outputs", {}), (*at, "outputs"), None, what="outputs by name"),
    )


def _choose(fields: Fields, record: dict[str, object], at: Place) -> ChoicePattern:
    here = (*at, "choose")
    known = ["take", "branches", "otherwise"]
    choose = fields.record(record["choose"], here, known, what="a choice", needed=["branches"])
    branches = fields.record(choose.get("branches", {}), (*here, "branches"), None, what="branches by name")
    made: list[Branch] = []
    for name, inner in branches.items():
        place = (*here, "branches", name)
        branch = fields.record(inner, place, ["when", "tasks"], what="a branch", needed=["when", "tasks"])
        tasks = _tasks(fields, branch.get("tasks", {}), (*place, "tasks"))
        made.append(Branch(name, tasks, fields.condition(branch.get("when", "true"), (*place, "when"))))
    otherwise: tuple[Task, ...] = ()
    if "otherwise" in choose:
        place = (*here, "otherwise")
        inner = fields.record(choose["otherwise"], place, ["tasks"], what="a branch", needed=["tasks"])
        otherwise = _tasks(fields, inner.get("tasks", {}), (*place, "tasks"))
    return ChoicePattern(
        branches=tuple(made),
        otherwise=otherwise,
        take=fields.one_of(BranchSelection, choose.get("take", BranchSelection.ALL), (*here, "take")),
        outputs=fields.record(record.get("outputs", {}), (*at, "outputs"), None, what="outputs by name"),
    )


def _source(fields: Fields, data: object, at: Place) -> Source:
    if isinstance(data, str):
        return ListOf(data)
    if isinstance(data, list):
        return ListOf(tuple(data))
    record = fields.record(
        data, at, ["range", "files", "lines", "watch", "until"], what="a list, a reference or a record"
    )
    kinds = [kind for kind in ("range", "files", "lines", "watch") if kind in record]
    if len(kinds) != 1:
        fields.wrong(at, "a variable runs over a list, a reference to one, or one of range, files, lines, watch")
        return ListOf((0,))
    if "until" in record and kinds != ["watch"]:
        fields.wrong((*at, "until"), "only a watch has an end")
    match kinds[0]:
        case "range":
            return _range(fields, record["range"], (*at, "range"))
        case "files":
            return FilesOf(fields.text(record["files"], (*at, "files")))
        case "lines":
            return LinesOf(fields.text(record["lines"], (*at, "lines")))
        case _:
            place = (*at, "until")
            until = fields.record(record.get("until", {}), place, ["file", "count", "quiet"], what="an end")
            count, quiet = until.get("count"), until.get("quiet")
            return WatchOf(
                pattern=fields.text(record["watch"], (*at, "watch")),
                until_file=fields.text(until.get("file", ""), (*place, "file"), empty=True),
                until_count=None if count is None else fields.whole(count, (*place, "count")),
                until_quiet=None if quiet is None else fields.number_in(duration_of, quiet, (*place, "quiet")),
            )


def _range(fields: Fields, data: object, at: Place) -> RangeOf:
    if not isinstance(data, list) or len(data) not in (2, 3):
        fields.wrong(at, "a range is [first, end] or [first, end, step]")
        return RangeOf(0, 1)
    first, end = (
        record if isinstance(record, str) else fields.whole(record, (*at, place))
        for place, record in enumerate(data[:2])
    )
    return RangeOf(first, end, fields.whole(data[2], (*at, 2)) if len(data) > 2 else 1)


def _deadline(fields: Fields, data: object, at: Place) -> DeadlineOf | None:
    if data is None:
        return None
    if not isinstance(data, dict):
        return DeadlineOf(fields.number_in(duration_of, data, at))
    record = fields.record(data, at, ["seconds", "then"], what="a deadline", needed=["seconds"])
    return DeadlineOf(
        seconds=fields.number_in(duration_of, record.get("seconds", 1), (*at, "seconds")),
        then=fields.one_of(DeadlineAction, record.get("then", DeadlineAction.FAIL), (*at, "then")),
    )


def _compensation(fields: Fields, data: object, at: Place) -> Compensation | None:
    return None if data is None else compensation_of(fields, data, at)


def compensation_of(fields: Fields, data: object, at: Place) -> Compensation:
    """Read a compensation: its job, and how often it is tried."""
    record = fields.record(data, at, [*JOB_FIELDS, "tries"], what="a compensation")
    if len([kind for kind in ("command", "run") if kind in record]) != 1:
        fields.wrong(at, "a compensation has one of command, run")
    return Compensation(_job(fields, record, at), fields.whole(record.get("tries", 3), (*at, "tries")))


def _job(fields: Fields, record: dict[str, object], at: Place) -> JobPattern:
    effects = fields.one_of(Effects, record.get("effects", Effects.INTERNAL), (*at, "effects"))
    exhausted = record.get("when_exhausted", WhenExhausted.FAIL)
    runtime = record.get("expected_runtime")
    return JobPattern(
        command=_command(fields, record, at),
        environment=fields.words_by_name(record.get("environment", {}), (*at, "environment")),
        resources=_resources(fields, record.get("resources", {}), (*at, "resources")),
        inputs=fields.texts_by_name(record.get("inputs", {}), (*at, "inputs")),
        staging=fields.one_of(Staging, record.get("staging", Staging.PARALLEL.value), (*at, "staging")),
        outputs=fields.texts_by_name(record.get("outputs", {}), (*at, "outputs")),
        result=fields.text(record.get("result", ""), (*at, "result"), empty=True),
        container=fields.text(record.get("container", ""), (*at, "container"), empty=True),
        effects=effects,
        retry=RetryPolicy(
            max_attempts=fields.whole(record.get("max_attempts", 1), (*at, "max_attempts")),
            wait=fields.number_in(duration_of, record.get("retry_wait", 0), (*at, "retry_wait")),
            when_exhausted=fields.one_of(WhenExhausted, exhausted, (*at, "when_exhausted")),
        ),
        expected_runtime=None if runtime is None else fields.number_in(duration_of, runtime, (*at, "expected_runtime")),
        priority=fields.whole(record.get("priority", 0), (*at, "priority")),
        labels=fields.words_by_name(record.get("labels", {}), (*at, "labels")),
        wait=fields.truth(record.get("wait", True), (*at, "wait")),
        requires=fields.text(record.get("requires", ""), (*at, "requires"), empty=True),
        licences=_licences(fields, record.get("licences", {}), (*at, "licences")),
        checkpoint=_checkpoint(fields, record.get("checkpoint"), (*at, "checkpoint")),
        secrets=_secrets(fields, record.get("secrets", {}), (*at, "secrets")),
    )


def _secrets(fields: Fields, data: object, at: Place) -> dict[str, SecretReference]:
    secrets: dict[str, SecretReference] = {}
    for variable, value in fields.record(data, at, None, what="secrets by variable").items():
        try:
            secrets |= secrets_from_plain({variable: value})
        except ValueError as error:
            fields.wrong((*at, variable), str(error).partition(": ")[2])
    return secrets


def _checkpoint(fields: Fields, data: object, at: Place) -> CheckpointPolicy | None:
    if data is None:
        return None
    record = fields.record(data, at, ["files", "signal", "every", "grace"], what="a checkpoint", needed=["files"])
    usual = CheckpointPolicy(files=())
    return CheckpointPolicy(
        files=tuple(fields.words(record.get("files", []), (*at, "files"))),
        signal=fields.text(record.get("signal", usual.signal), (*at, "signal")),
        every=fields.number_in(duration_of, record.get("every", usual.every), (*at, "every")),
        grace=fields.number_in(duration_of, record.get("grace", usual.grace), (*at, "grace")),
    )


def _licences(fields: Fields, data: object, at: Place) -> dict[str, int]:
    if not isinstance(data, dict):
        fields.wrong(at, "licences are seats by name, such as {matlab: 1}")
        return {}
    return {str(name): fields.whole(seats, (*at, str(name))) for name, seats in data.items()}


def _command(fields: Fields, record: dict[str, object], at: Place) -> tuple[str, ...]:
    if "command" in record:
        return tuple(fields.words(record["command"], (*at, "command"))) or _NO_COMMAND
    if "run" not in record:
        return _NO_COMMAND
    line = record["run"]
    if isinstance(line, list):
        return tuple(fields.words(line, (*at, "run"))) or _NO_COMMAND
    return ("sh", "-c", fields.text(line, (*at, "run")))


def _resources(fields: Fields, data: object, at: Place) -> Resources:
    record = fields.record(data, at, ["cpus", "memory", "disk", "gpus", "wall", "nodes"], what="resources")
    wall = record.get("wall")
    return Resources(
        cpus=fields.whole(record.get("cpus", 1), (*at, "cpus")),
        memory=fields.number_in(size_of, record.get("memory", 0), (*at, "memory")),
        disk=fields.number_in(size_of, record.get("disk", 0), (*at, "disk")),
        gpus=fields.whole(record.get("gpus", 0), (*at, "gpus")),
        wall=None if wall is None else fields.number_in(duration_of, wall, (*at, "wall")),
        nodes=fields.whole(record.get("nodes", 1), (*at, "nodes")),
    )
