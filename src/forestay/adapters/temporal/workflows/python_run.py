"""The run of a Python flow as a workflow: the flow's function runs beside the run's loop, which starts the tasks that it calls.

The run contains the source, so that every orchestrator executes a run by the text with which it was started. A function cannot be carried into a new run,
but its state can: a run continues as new only at a checkpoint. A function without checkpoints is stopped when its history has become too long.
"""

from __future__ import annotations

import asyncio
import builtins
import json
import traceback
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import replace
from typing import Any

from temporalio import workflow
from temporalio.worker.workflow_sandbox import RestrictedWorkflowAccessError

from forestay.adapters.temporal.workflows import temporal_runtime
from forestay.adapters.temporal.workflows.run import FlowRunWorkflow
from forestay.adapters.temporal.workflows.temporal_runtime import Plain
from forestay.domain.flows.commands import Command
from forestay.domain.flows.definition.flow_pattern import JobPattern
from forestay.domain.flows.definition.flow_plan import FlowPlan
from forestay.domain.flows.definition.python_flow import PythonFlow, python_from_plain
from forestay.domain.flows.events import Event
from forestay.domain.flows.execution.flow_run import FlowRun, RunPhase, TaskInstance
from forestay.domain.flows.execution.grown import grown_plan, grown_tasks, raised, returned, start_grown
from forestay.domain.flows.execution.grown_resumption import resume_grown
from forestay.flows.flow_context import DESK
from forestay.flows.flow_context_base import FlowContextBase, FlowStopped, json_text, refuse
from forestay.flows.results import Ended, JobFailed

MAX_OUTPUTS = 65_536
MAX_RESULTS = 500
MAX_RESULTS_BYTES = 500_000
_CLOSED = ("open", "input", "breakpoint", "exec", "eval", "compile")
NOT_FOR_FLOWS = "is not allowed in flows: a flow must behave the same in every replay; do it in a job"


@workflow.defn(name=temporal_runtime.PYTHON_RUN)
class PythonRunWorkflow(FlowContextBase, FlowRunWorkflow):
    """Its argument is that of a run; continued, also ``tasks``, ``names``, ``last``, ``after`` and ``kept`` (the checkpoint's state)."""

    @workflow.init
    def __init__(self, payload: Plain) -> None:
        self.flow: PythonFlow = self._read_flow(json.loads(payload["flow"]))
        self.resting = False
        """The function waits at a checkpoint for a new run."""
        self.function: asyncio.Task[None] | None = None
        FlowContextBase.__init__(self, payload.get("resumed", {}).get("earlier", payload))
        FlowRunWorkflow.__init__(self, payload)

    @workflow.run
    async def run(self, payload: Plain) -> Plain:
        if self.flow_run.open:
            context = copy_context()
            context.run(DESK.set, self)
            self.function = asyncio.get_running_loop().create_task(self._call(), context=context)
        return await self._loop(payload)

    @workflow.query(name=temporal_runtime.STATE)
    def state(self) -> Plain:
        known = self.flow_run.as_plain()
        known["instances"] = [
            {**instance, "after": self.after.get(instance["id"], [])} for instance in known["instances"]
        ]
        return known if self.flow_run.outcome is None else known | {"earlier": self.resumption()}

    # The hooks of the common run loop, for a flow that grows

    def _read_flow(self, plain: Plain) -> Any:
        return python_from_plain(plain)

    def _plan(self, payload: Plain) -> FlowPlan:
        known = payload.get("resumed", {}).get("earlier", payload)
        tasks = json.loads(known["tasks"]) if "tasks" in known else {}
        return grown_plan(self.flow.name, self.flow.version, tasks)

    def _start(self, plan: FlowPlan, payload: Plain) -> tuple[FlowRun, tuple[Command, ...]]:
        params = {**self.flow.params, **payload.get("params", {})}
        return start_grown(plan, run=payload["run"], at=temporal_runtime.now(), params=params, **self._checked(payload))

    def _resume(self, plan: FlowPlan, given: Plain) -> tuple[FlowRun, tuple[Command, ...]]:
        ended = FlowRun.from_plain(plan, given["state"])
        task, changes = given["task"], given["changes"]
        resumed = resume_grown(ended, self.former, at=temporal_runtime.now(), task=task, changes=changes)
        self.former = list(resumed.former)
        return resumed.resumption.run, resumed.resumption.commands

    def _may_continue(self, limit: int) -> bool:
        ready = self.resting or (not self.flow_run.open and temporal_runtime.too_long(limit))
        return ready and workflow.all_handlers_finished()

    def _something_to_do(self, limit: int) -> bool:
        return super()._something_to_do(limit) or self._past(limit)

    def _past(self, limit: int) -> bool:
        """Whether the history is so long that the function must be stopped."""
        return self.flow_run.open and not self.resting and workflow.info().get_current_history_length() >= 2 * limit

    def _look_at_length(self, limit: int) -> None:
        if self._past(limit):
            self._fail(self._past_words(limit))

    def _past_words(self, limit: int) -> str:
        return (
            f"its history has more than {2 * limit} events: call 'await checkpoint(state)' in each round of a long loop"
        )

    def _carried(self) -> Plain:
        own = self.carried_on()
        return super()._carried() | own | {"tasks": json.dumps(grown_tasks(self.flow_run))}

    def _take(self, event: Event) -> None:
        super()._take(event)
        self.settle_ends()
        if self.flow_run.phase is not RunPhase.RUNNING and self.function is not None:
            self.function.cancel()

    # The function and its requests

    async def _call(self) -> None:
        try:
            outputs = _outputs(await _function(self.flow)(**dict(self.flow_run.params)))
            for work in self.works:
                if not work.awaited:
                    await work
        except Exception as error:
            self.blame(error)
            self._fail(_words(error, self.flow))
        else:
            self.flow_run, commands = returned(self.flow_run, outputs, temporal_runtime.now())
            self.perform(commands)

    def _fail(self, reason: str) -> None:
        self.flow_run, commands = raised(self.flow_run, reason, temporal_runtime.now())
        self.perform(commands)
        if self.function is not None:
            self.function.cancel()

    def moment(self) -> int:
        return temporal_runtime.now()

    def now(self) -> float:
        return workflow.time()

    def owner(self) -> str:
        return str(self.given["owner"])

    def perform(self, commands: tuple[Command, ...]) -> None:
        self._perform(commands)
        self.woken = True

    async def checkpoint(self, state: object) -> None:
        self.keep(state)
        if temporal_runtime.too_long(self.given["limits"]["history"]):
            self.resting = self.woken = True
            await asyncio.get_running_loop().create_future()

    def hear(self, instance: TaskInstance, ended: Ended, pattern: JobPattern, end: asyncio.Future[Ended]) -> None:
        if instance.sizes:
            read = bool(pattern.result) and 0 < instance.count <= MAX_RESULTS
        else:
            read = instance.result is None and bool(self.calls[instance.id].result)
        if read:
            self.tasks.spawn(self._with_results(instance, pattern.result, ended, end))
        else:
            end.set_result(ended)

    async def _with_results(self, instance: TaskInstance, file: str, ended: Ended, end: asyncio.Future[Ended]) -> None:
        """Read the result files of a scatter's jobs, or that of a job which a resumed run keeps."""
        works = [instance.work, *instance.earlier]
        asked = self.flow_ref | {"works": works, "count": instance.count, "result": file, "most": MAX_RESULTS_BYTES}
        former = self.calls[instance.id].result
        try:
            results = await temporal_runtime.do("read_results", asked, seconds=600)
        except temporal_runtime.ActivityRefused as error:
            self._refuse(instance, str(error), end)
            return
        result = results if instance.sizes else results[0]
        self.note_result(instance.id, result)
        if former and self.calls[instance.id].result != former:
            self._refuse(instance, "its result can no longer be read", end)
        elif not end.done():
            end.set_result(replace(ended, results=tuple(results)) if instance.sizes else replace(ended, result=result))

    def _refuse(self, instance: TaskInstance, reason: str, end: asyncio.Future[Ended]) -> None:
        if not end.done():
            refuse(end, JobFailed(instance.id, reason, bad=0, count=instance.count))


def _function(flow: PythonFlow) -> Callable[..., Awaitable[object]]:
    """The function, made from the run's own copy of its source."""
    name = flow.file or f"{flow.name}.py"
    known = {name: getattr(builtins, name) for name in dir(builtins)}
    known |= {name: _closed(name) for name in _CLOSED}
    space: dict[str, Any] = {"__name__": f"forestay_flow_{flow.name}", "__file__": name, "__builtins__": known}
    exec(compile(flow.source, name, "exec"), space)  # noqa: S102 - the operator's own file, by its hash
    function: Callable[..., Awaitable[object]] = space[flow.name]
    return function


def _closed(name: str) -> Callable[..., object]:
    def refused(*_: object, **__: object) -> object:
        raise FlowStopped(f"{name}() {NOT_FOR_FLOWS}")

    return refused


def _outputs(value: object) -> Plain:
    """The function's return value as the outputs of the run."""
    if value is None:
        return {}
    plain = json.loads(json_text(value, "the flow's return value", MAX_OUTPUTS))
    return plain if isinstance(plain, dict) else {"result": plain}


def _words(error: Exception, flow: PythonFlow) -> str:
    """Why the function failed, with the line where it did."""
    name = flow.file or f"{flow.name}.py"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name]
    where = f"{name}, line {lines[-1]}: " if lines else ""
    if isinstance(error, RestrictedWorkflowAccessError):
        return f"{where}{error.qualified_name.removesuffix('.__call__')} {NOT_FOR_FLOWS}"
    if isinstance(error, JobFailed | FlowStopped):
        return f"{where}{error}"
    return f"{where}{type(error).__name__}: {error}"
