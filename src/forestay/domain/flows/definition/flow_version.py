"""A flow as plain JSON types, and its version: the digest of these.

The plain form has the keys of the YAML format and can itself be read as such a document; defaults are left out. The order of
tasks, branches and scatter variables matters, since it determines the order of commands; the order of all other names does not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from forestay.domain.flows.definition.flow import (
    Compensation,
    Deadline,
    DeadlineAction,
    Flow,
    OnFailure,
    Task,
    WhenFailed,
)
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
from forestay.domain.flows.definition.flow_plan import FlowPlan, plan_flow
from forestay.domain.jobs.checkpoint import checkpoint_as_plain, checkpoint_from_plain
from forestay.domain.jobs.inputs import Staging
from forestay.domain.jobs.job_secrets import secrets_from_plain
from forestay.domain.jobs.requirements import needs_as_plain
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import Effects, RetryPolicy, WhenExhausted

Plain = dict[str, Any]
LANGUAGE = 1


def version_of(flow: Flow) -> str:
    """The content hash of a flow."""
    text = json.dumps(flow_as_plain(flow), separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def planned(flow: Flow) -> FlowPlan:
    """A flow prepared for execution, with its version and those of its sub-flows."""
    versions = {name: version_of(inner) for name, inner in flow.flows.items()}
    return plan_flow(flow, version=version_of(flow), versions=versions)


def flow_as_plain(flow: Flow) -> Plain:
    out: Plain = {"forestay": LANGUAGE, "name": flow.name}
    if flow.params:
        out["params"] = _sorted(flow.params)
    if flow.on_failure is not OnFailure.STOP:
        out["on_failure"] = flow.on_failure.value
    if flow.reuse:
        out["reuse"] = True
    if flow.deadline is not None:
        out["deadline"] = _deadline_as_plain(flow.deadline)
    if flow.flows:
        out["flows"] = {name: flow_as_plain(flow.flows[name]) for name in sorted(flow.flows)}
    out["tasks"] = _tasks_as_plain(flow.tasks)
    if flow.outputs:
        out["outputs"] = _sorted(flow.outputs)
    return out


def flow_from_plain(data: Mapping[str, Any]) -> Flow:
    """Read the plain form. It is trusted: user input goes through the YAML reader."""
    return Flow(
        name=data["name"],
        tasks=_tasks_from_plain(data["tasks"]),
        params=data.get("params", {}),
        outputs=data.get("outputs", {}),
        deadline=_deadline_from_plain(data.get("deadline")),
        on_failure=OnFailure(data.get("on_failure", OnFailure.STOP)),
        flows={name: flow_from_plain(inner) for name, inner in data.get("flows", {}).items()},
        reuse=data.get("reuse", False),
    )


def _sorted(value: object) -> Any:
    """A value with its keys sorted."""
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_sorted(entry) for entry in value]
    return value


def _tasks_as_plain(tasks: tuple[Task, ...]) -> Plain:
    return {task.name: task_as_plain(task) for task in tasks}


def _tasks_from_plain(data: Mapping[str, Any]) -> tuple[Task, ...]:
    return tuple(task_from_plain(name, task) for name, task in data.items())


def task_as_plain(task: Task) -> Plain:
    out: Plain = {}
    if task.after:
        out["after"] = list(task.after)
    if task.when:
        out["when"] = task.when
    if task.scatter:
        out["scatter"] = {dimension.name: _source_as_plain(dimension.source) for dimension in task.scatter}
    if task.tolerate:
        out["tolerate"] = task.tolerate
    out |= _pattern_as_plain(task.pattern)
    if task.compensation is not None:
        out["compensate"] = job_as_plain(task.compensation.job)
        if task.compensation.tries != Compensation.__dataclass_fields__["tries"].default:
            out["compensate"]["tries"] = task.compensation.tries
    if task.action:
        out["action"] = task.action
    if task.deadline is not None:
        out["deadline"] = _deadline_as_plain(task.deadline)
    if task.when_failed is not WhenFailed.FAIL:
        out["when_failed"] = task.when_failed.value
    return out


def task_from_plain(name: str, data: Mapping[str, Any]) -> Task:
    compensate = data.get("compensate")
    return Task(
        name=name,
        pattern=_pattern_from_plain(data),
        after=tuple(data.get("after", ())),
        when=data.get("when", ""),
        scatter=tuple(
            Dimension(entry, _source_from_plain(source)) for entry, source in data.get("scatter", {}).items()
        ),
        tolerate=data.get("tolerate", 0),
        compensation=None
        if compensate is None
        else Compensation(job_from_plain(compensate), compensate.get("tries", 3)),
        action=data.get("action", ""),
        deadline=_deadline_from_plain(data.get("deadline")),
        when_failed=WhenFailed(data.get("when_failed", WhenFailed.FAIL)),
    )


def _deadline_as_plain(deadline: Deadline) -> Plain:
    out: Plain = {"seconds": deadline.seconds}
    if deadline.then is not DeadlineAction.FAIL:
        out["then"] = deadline.then.value
    return out


def _deadline_from_plain(data: Mapping[str, Any] | None) -> Deadline | None:
    return None if data is None else Deadline(data["seconds"], DeadlineAction(data.get("then", DeadlineAction.FAIL)))


def _source_as_plain(source: Source) -> Any:
    match source:
        case ListOf(str() as text):
            return text
        case ListOf(values):
            return _sorted(values)
        case RangeOf(first, end, step):
            return {"range": [first, end] if step == 1 else [first, end, step]}
        case FilesOf(pattern):
            return {"files": pattern}
        case LinesOf(path):
            return {"lines": path}
        case WatchOf(pattern, file, count, quiet):
            until: Plain = {}
            if file:
                until["file"] = file
            if count is not None:
                until["count"] = count
            if quiet is not None:
                until["quiet"] = quiet
            return {"watch": pattern, "until": until}


def _source_from_plain(data: Any) -> Source:
    if isinstance(data, str):
        return ListOf(data)
    if isinstance(data, list | tuple):
        return ListOf(tuple(data))
    if "range" in data:
        return RangeOf(*data["range"])
    if "files" in data:
        return FilesOf(data["files"])
    if "lines" in data:
        return LinesOf(data["lines"])
    until = data["until"]
    return WatchOf(data["watch"], until.get("file", ""), until.get("count"), until.get("quiet"))


def _pattern_as_plain(pattern: Pattern) -> Plain:
    out: Plain
    match pattern:
        case JobPattern():
            return job_as_plain(pattern)
        case SubflowPattern(flow, params, domain):
            where = {"domain": domain} if domain else {}
            return {"flow": flow} | where | ({"params": _sorted(params)} if params else {})
        case WorkletPattern(place, params, default):
            otherwise = {"default": default} if default else {}
            return {"worklet": place} | otherwise | ({"params": _sorted(params)} if params else {})
        case MergePattern(values):
            return {"merge": _sorted(values)}
        case AskPattern():
            return {"ask": _ask_as_plain(pattern)}
        case AwaitPattern(event, key, default):
            wait: Plain = {"event": event} | ({"key": key} if key else {})
            return {"wait_for": wait if default is None else wait | {"default": _sorted(default)}}
        case LoopPattern():
            loop: Plain = {"at_most": pattern.maximum}
            if pattern.while_:
                loop["while"] = pattern.while_
            if pattern.until:
                loop["until"] = pattern.until
            if pattern.at_maximum is not AtMaximum.FAIL:
                loop["then"] = pattern.at_maximum.value
            loop["tasks"] = _tasks_as_plain(pattern.tasks)
            out = {"loop": loop}
        case ChoicePattern():
            branches = {
                branch.name: {"when": branch.when, "tasks": _tasks_as_plain(branch.tasks)}
                for branch in pattern.branches
            }
            choose: Plain = {"branches": branches}
            if pattern.take is not BranchSelection.ALL:
                choose["take"] = pattern.take.value
            if pattern.otherwise:
                choose["otherwise"] = {"tasks": _tasks_as_plain(pattern.otherwise)}
            out = {"choose": choose}
    return out | ({"outputs": _sorted(pattern.outputs)} if pattern.outputs else {})


def _ask_as_plain(pattern: AskPattern) -> Plain:
    out: Plain = {"title": pattern.title}
    if pattern.text:
        out["text"] = pattern.text
    if pattern.form:
        out["form"] = dict(pattern.form)  # the order of its fields is the order in which they are displayed
    if pattern.who != AskPattern("").who:
        out["who"] = list(pattern.who)
    if pattern.default is not None:
        out["default"] = _sorted(pattern.default)
    return out


def _pattern_from_plain(data: Mapping[str, Any]) -> Pattern:
    if "command" in data:
        return job_from_plain(data)
    if "flow" in data:
        return SubflowPattern(data["flow"], data.get("params", {}), data.get("domain", ""))
    if "worklet" in data:
        return WorkletPattern(data["worklet"], data.get("params", {}), data.get("default", ""))
    if "merge" in data:
        return MergePattern(data["merge"])
    if "ask" in data:
        ask = data["ask"]
        who = tuple(ask.get("who", AskPattern("").who))
        return AskPattern(ask["title"], ask.get("text", ""), ask.get("form", {}), who, ask.get("default"))
    if "wait_for" in data:
        wait = data["wait_for"]
        return AwaitPattern(wait["event"], wait.get("key", ""), wait.get("default"))
    outputs = data.get("outputs", {})
    if "loop" in data:
        loop = data["loop"]
        return LoopPattern(
            tasks=_tasks_from_plain(loop["tasks"]),
            maximum=loop["at_most"],
            while_=loop.get("while", ""),
            until=loop.get("until", ""),
            at_maximum=AtMaximum(loop.get("then", AtMaximum.FAIL)),
            outputs=outputs,
        )
    choose = data["choose"]
    branches = (
        Branch(name, _tasks_from_plain(branch["tasks"]), branch.get("when", ""))
        for name, branch in choose["branches"].items()
    )
    return ChoicePattern(
        branches=tuple(branches),
        otherwise=_tasks_from_plain(choose.get("otherwise", {}).get("tasks", {})),
        take=BranchSelection(choose.get("take", BranchSelection.ALL)),
        outputs=outputs,
    )


def job_as_plain(job: JobPattern) -> Plain:
    out: Plain = {"command": list(job.command)}
    for name in ("environment", "inputs", "outputs", "labels"):
        if getattr(job, name):
            out[name] = _sorted(getattr(job, name))
    resources = resources_as_plain(job.resources)
    if resources:
        out["resources"] = resources
    if job.staging is not Staging.PARALLEL:
        out["staging"] = job.staging.value
    if job.result:
        out["result"] = job.result
    if job.container:
        out["container"] = job.container
    if job.effects is not Effects.INTERNAL:
        out["effects"] = job.effects.value
    if job.retry.max_attempts != 1:
        out["max_attempts"] = job.retry.max_attempts
    if job.retry.wait:
        out["retry_wait"] = job.retry.wait
    if job.retry.when_exhausted is not WhenExhausted.FAIL:
        out["when_exhausted"] = job.retry.when_exhausted.value
    if job.expected_runtime is not None:
        out["expected_runtime"] = job.expected_runtime
    if job.priority:
        out["priority"] = job.priority
    if not job.wait:
        out["wait"] = False
    return out | needs_as_plain(job) | checkpoint_as_plain(job.checkpoint)


def resources_as_plain(resources: Resources) -> Plain:
    """Only what differs from a job's defaults."""
    usual = Resources()
    return {
        name: getattr(resources, name)
        for name in ("cpus", "memory", "disk", "gpus", "wall", "nodes")
        if getattr(resources, name) != getattr(usual, name)
    }


def job_from_plain(data: Mapping[str, Any]) -> JobPattern:
    return JobPattern(
        command=tuple(data["command"]),
        environment=data.get("environment", {}),
        resources=Resources(**data.get("resources", {})),
        inputs=data.get("inputs", {}),
        staging=Staging(data.get("staging", Staging.PARALLEL)),
        outputs=data.get("outputs", {}),
        result=data.get("result", ""),
        container=data.get("container", ""),
        effects=Effects(data.get("effects", Effects.INTERNAL)),
        retry=RetryPolicy(
            data.get("max_attempts", 1),
            data.get("retry_wait", 0),
            WhenExhausted(data.get("when_exhausted", WhenExhausted.FAIL)),
        ),
        expected_runtime=data.get("expected_runtime"),
        priority=data.get("priority", 0),
        labels=data.get("labels", {}),
        wait=data.get("wait", True),
        requires=data.get("requires", ""),
        licences=data.get("licences", {}),
        secrets=secrets_from_plain(data.get("secrets")),
        checkpoint=checkpoint_from_plain(data.get("checkpoint")),
    )
