"""The run of a WS-BPEL process as a workflow: the interpreter runs beside the run's loop, and its invokes are the run's tasks."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from temporalio import workflow

from forestay.adapters.temporal.workflows import temporal_runtime
from forestay.adapters.temporal.workflows.python_run import PythonRunWorkflow
from forestay.adapters.temporal.workflows.temporal_runtime import Plain
from forestay.domain.flows.definition.flow import Task
from forestay.domain.flows.events import Event, Verb, VerbKind
from forestay.domain.flows.execution.flow_run import RunPhase
from forestay.domain.flows.execution.grown import returned
from forestay.flows.flow_context import PendingWork
from forestay.flows.flow_context_base import json_text
from forestay_bpel.domain.bpel_flow import BpelFlow, bpel_from_plain, first_message, message_from_plain
from forestay_bpel.domain.xml_tree import XmlElement
from forestay_bpel.domain.xml_writing import write_xml
from forestay_bpel.interpreter.execution_context import ProcessStopped
from forestay_bpel.interpreter.host import Incoming, Message
from forestay_bpel.interpreter.interpreter import Interpreter
from forestay_bpel.interpreter.partners import Partners

BPEL_RUN = "bpel-run"
"""A stored name."""
MAX_OUTPUTS = 65_536
MAX_TRACE = 200


class _Partners(Partners):
    """The partners of a process, implemented by its run."""

    def __init__(self, flow: BpelFlow, run: BpelRunWorkflow) -> None:
        super().__init__(flow)
        self.run = run

    def start(self, task: Task) -> PendingWork:
        return self.run.begin(task)

    def fresh_name(self, wanted: str) -> str:
        return self.run.name_for(wanted)

    def give_up(self, name: str) -> None:
        self.run.give_up(name)

    def deliver(self, incoming: Incoming) -> None:
        self.run.interpreter.deliver(incoming)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def now(self) -> float:
        return workflow.time()

    def trace(self, event: str) -> None:
        self.run.traced = [*self.run.traced, event][-MAX_TRACE:]


@workflow.defn(name=BPEL_RUN)
class BpelRunWorkflow(PythonRunWorkflow):
    """Its argument is that of a run; the flow is a process with its job definitions and its mapping."""

    @workflow.init
    def __init__(self, payload: Plain) -> None:
        self.traced: list[str] = []
        super().__init__(payload)
        bpel: Any = self.flow
        process = bpel.process()
        self.partners = _Partners(bpel, self)
        self.interpreter = Interpreter(process, self.partners)
        partner, operation = first_message(process)
        self.interpreter.deliver(Incoming(partner, operation, _message(self.flow_run.params.get("message"))))

    @workflow.run
    async def run(self, payload: Plain) -> Plain:
        if self.flow_run.open:
            self.function = asyncio.get_running_loop().create_task(self._call())
        return await self._loop(payload)

    @workflow.signal(name=temporal_runtime.MESSAGE)
    def incoming(self, plain: Plain) -> None:
        """A message for the process from outside."""
        incoming = Incoming(str(plain["partner"]), str(plain["operation"]), _message(plain.get("message")))
        self.partners.accept(incoming)

    def _read_flow(self, plain: Plain) -> Any:
        return bpel_from_plain(plain)

    def _take(self, event: Event) -> None:
        if self.flow_run.phase is not RunPhase.RUNNING:
            self.interpreter.closed = True
        super()._take(event)

    def give_up(self, name: str) -> None:
        """Give up a task for which nobody waits any more."""
        instance = self.flow_run.instances.get(name)
        if instance is not None and not instance.ended and not self.interpreter.closed:
            reason = "the process gave it up"
            self.inbox.append(
                Verb(temporal_runtime.now(), f"bpel:{name}", VerbKind.REMOVE, instance=name, by="bpel", reason=reason)
            )
            self.woken = True

    def _past_words(self, limit: int) -> str:
        return f"its history has more than {2 * limit} events, the limit for a process"

    async def _call(self) -> None:
        try:
            ended = await self.interpreter.run()
        except ProcessStopped as error:
            self._fail(str(error))
            return
        except asyncio.CancelledError:
            return
        if ended.fault is not None:
            fault = ended.fault
            self._fail(f"{self.flow.name}, line {fault.line}: {fault}")
            return
        outputs = json.loads(json_text(self._replied(), "the process's reply", MAX_OUTPUTS))
        self.flow_run, commands = returned(self.flow_run, outputs, temporal_runtime.now())
        self.perform(commands)

    def _replied(self) -> Plain:
        out: Plain = {}
        for operation, message in self.partners.replies.items():
            out[operation] = {name or "value": _shown(part) for name, part in message.items()}
            if operation in self.partners.faulted_replies:
                out[f"{operation}.fault"] = self.partners.faulted_replies[operation].rpartition("}")[2]
        return out


def _shown(part: XmlElement) -> str:
    return write_xml(part, indent=False).partition("\n")[2].strip() if part.elements else part.text


def _message(plain: object) -> Message:
    """A message that was validated on arrival; if it is invalid nevertheless, it counts as empty and does not fail the run."""
    try:
        return message_from_plain(plain)
    except ValueError:
        return {}
