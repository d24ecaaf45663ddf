"""The partners of a process that runs as a run: a job service whose jobs are the run's own, answers from the mapping, and people."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from forestay.domain.flows.definition.flow import Task
from forestay.domain.jobs.job_flow_pattern import SUBMISSION, JobFlowPattern
from forestay.domain.jobs.specification import RetryPolicy
from forestay.flows.flow_context import PendingWork
from forestay.flows.results import Ended, JobFailed
from forestay_bpel.domain.bpel.adapting import PREFIX
from forestay_bpel.domain.bpel.services import JOBS, Binding, OperationKind
from forestay_bpel.domain.bpel_flow import BpelFlow
from forestay_bpel.domain.jsdl.definition import JSDL
from forestay_bpel.domain.jsdl.job import ConvertedJob, NotRunnable, converted_job, task_name
from forestay_bpel.domain.jsdl.reading import JsdlRefused, read_definition
from forestay_bpel.domain.xml_tree import XmlElement
from forestay_bpel.interpreter.host import WHOLE, Fault, Incoming, Message, PartnerCall

MAX_EARLY = 100
DEFINITION = f"{{{JSDL}}}JobDefinition"
_SPACES = {"j": JOBS}


@dataclass(slots=True)
class _Job:
    """A job that the process has submitted."""

    work: PendingWork
    state: str = "running"
    result: XmlElement | None = None
    notified: list[tuple[str, Binding]] = field(default_factory=list)
    """The receivers of its end: partner links, and the form of the message."""


class Partners(ABC):
    """The environment of a process that executes as a run."""

    def __init__(self, flow: BpelFlow) -> None:
        self.bpel = flow
        self._kinds = _invoked(flow)
        self.known: dict[str, _Job] = {}
        self.replies: dict[str, Message] = {}
        self.faulted_replies: dict[str, str] = {}
        self.asked: list[tuple[str, str, asyncio.Future[Message]]] = []
        """Questions to people that are not answered yet."""
        self.early: list[Incoming] = []
        """Answers that came before their question."""

    @abstractmethod
    def start(self, task: Task) -> PendingWork:
        """Begin a job."""

    @abstractmethod
    def fresh_name(self, wanted: str) -> str: ...

    @abstractmethod
    def give_up(self, name: str) -> None:
        """Cancel a job for whose end nobody waits any more."""

    @abstractmethod
    def deliver(self, incoming: Incoming) -> None:
        """A message for the process."""

    def accept(self, incoming: Incoming) -> None:
        """Accept an external message: an awaited answer, or one for the process."""
        for call in self.asked:
            partner, operation, answer = call
            if (partner, operation) == (incoming.partner, incoming.operation) and not answer.done():
                self.asked.remove(call)
                answer.set_result(incoming.message)
                return
        binding = self.bpel.services.binding(incoming.partner, incoming.operation)
        if binding is not None and binding.kind is OperationKind.MANUAL:
            self.early = [*self.early, incoming][-MAX_EARLY:]
        else:
            self.deliver(incoming)

    # Called by the interpreter

    async def invoke(self, call: PartnerCall) -> Message:
        binding = self.bpel.services.binding(call.partner, call.operation)
        if binding is None and call.operation in self.bpel.jobs:
            binding = Binding(OperationKind.RUN, job=call.operation)
        if binding is None:
            why = f"no mapping defines {call.operation} of {call.partner} is"
            raise Fault(f"{{{JOBS}}}unknownOperation", why=why, line=call.line)
        match binding.kind:
            case OperationKind.RUN:
                return await self._run(call, binding)
            case OperationKind.SUBMIT | OperationKind.FORGET:
                return self._submit(call, binding)
            case OperationKind.POLL:
                return self._message(binding, self._status(*self._job(call)))
            case OperationKind.REGISTER:
                name, job = self._job(call)
                job.notified.append((call.partner, binding))
                if job.result is not None:
                    self._tell(name, job)
                return self._message(binding, _element("registered", jobId=name))
            case OperationKind.CANCEL:
                name, job = self._job(call)
                if job.result is None:
                    self.give_up(name)
                return self._message(binding, _element("cancelled", jobId=name))
            case OperationKind.ANSWER:
                return self._message(binding, XmlElement(binding.part or "answer", {}, [binding.answer]))
            case OperationKind.MANUAL:
                return await self._ask(call)

    async def reply(self, partner: str, operation: str, message: Message, fault: str) -> None:
        self.replies[operation] = message
        if fault:
            self.faulted_replies[operation] = fault

    # Jobs

    async def _run(self, call: PartnerCall, binding: Binding) -> Message:
        name, job = self._begin(call, binding)
        try:
            ended = await job.work
        except JobFailed as error:
            raise Fault(f"{{{JOBS}}}jobFailed", self._message(binding, _failed(name, error)), why=str(error), line=call.line) from error  # fmt: skip
        except asyncio.CancelledError:
            self.give_up(name)
            raise
        return self._message(binding, _done(name, ended))

    def _submit(self, call: PartnerCall, binding: Binding) -> Message:
        name, job = self._begin(call, binding)
        job.work.awaited = True
        if binding.kind is OperationKind.SUBMIT:
            if binding.tell:
                job.notified.append((call.partner, binding))
            asyncio.ensure_future(self._follow(name, job))  # noqa: RUF006 - the run waits for all its tasks
        return self._message(binding, _element("submitted", jobId=name))

    async def _follow(self, name: str, job: _Job) -> None:
        try:
            job.result = _done(name, await job.work)
            job.state = "completed"
        except JobFailed as error:
            job.result = _failed(name, error)
            job.state = "failed"
        self._tell(name, job)

    def _tell(self, name: str, job: _Job) -> None:
        for partner, binding in job.notified:
            assert job.result is not None  # noqa: S101 - it has ended
            self.deliver(
                Incoming(partner.removeprefix(PREFIX), binding.notify, self._message(binding, job.result.copy()))
            )
        job.notified.clear()

    def _begin(self, call: PartnerCall, binding: Binding) -> tuple[str, _Job]:
        forestay_job = self._forestay_job(call, binding)
        name = self.fresh_name(task_name(call.name or forestay_job.name))
        pattern = replace(forestay_job.pattern, wait=binding.kind is not OperationKind.FORGET)
        if (submission := self._submission(call, binding)) is not None:
            pattern = replace(pattern, labels={**pattern.labels, SUBMISSION: submission.value})
        if binding.max_attempts > 1:
            pattern = replace(pattern, retry=RetryPolicy(binding.max_attempts, pattern.retry.wait))
        job = self.known[name] = _Job(self.start(Task(name, pattern)))
        return name, job

    def _submission(self, call: PartnerCall, binding: Binding) -> JobFlowPattern | None:
        """How the process submits and awaits a job; None: it is notified, or does not wait."""
        if binding.kind is OperationKind.RUN:
            return JobFlowPattern.SYNCHRONOUS
        kinds = self._kinds.get(call.partner.removeprefix(PREFIX), set[OperationKind]())
        polls = OperationKind.POLL in kinds and OperationKind.REGISTER not in kinds
        return JobFlowPattern.POLLING if binding.kind is OperationKind.SUBMIT and polls and not binding.tell else None

    def _forestay_job(self, call: PartnerCall, binding: Binding) -> ConvertedJob:
        definition = next(
            (element for part in call.message.values() for element in _inside(part) if element.tag == DEFINITION), None
        )
        if definition is None:
            wanted = [binding.job] if binding.job else [text.strip() for text in _names(call.message)]
            definition = next((self.bpel.jobs[job] for job in (*wanted, call.operation) if job in self.bpel.jobs), None)
        if definition is None:
            raise Fault(f"{{{JOBS}}}unknownJob", why="the message has no job definition and names none", line=call.line)
        try:
            return converted_job(read_definition(definition))
        except (JsdlRefused, NotRunnable) as error:
            raise Fault(f"{{{JOBS}}}submissionFailed", why=str(error), line=call.line) from error

    def _job(self, call: PartnerCall) -> tuple[str, _Job]:
        for part in call.message.values():
            for element in _inside(part):
                if element.text.strip() in self.known and not element.elements:
                    return element.text.strip(), self.known[element.text.strip()]
        raise Fault(f"{{{JOBS}}}unknownJob", why="the message names no job of this process", line=call.line)

    @staticmethod
    def _status(name: str, job: _Job) -> XmlElement:
        return job.result.copy() if job.result is not None else _element("job", jobId=name, state=job.state)

    @staticmethod
    def _message(binding: Binding, element: XmlElement) -> Message:
        return {binding.part or WHOLE: element}

    async def _ask(self, call: PartnerCall) -> Message:
        for incoming in self.early:
            if (incoming.partner, incoming.operation) == (call.partner.removeprefix(PREFIX), call.operation):
                self.early.remove(incoming)
                return incoming.message
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        asked = (call.partner.removeprefix(PREFIX), call.operation, answer)
        self.asked.append(asked)
        try:
            return await answer
        finally:
            if asked in self.asked:
                self.asked.remove(asked)


def _element(name: str, **fields: str) -> XmlElement:
    children = [
        XmlElement(f"{{{JOBS}}}{key}", {}, [value] if value else [], namespaces=_SPACES)
        for key, value in fields.items()
    ]
    return XmlElement(f"{{{JOBS}}}{name}", {}, children, namespaces=_SPACES)


def _done(name: str, ended: Ended) -> XmlElement:
    code = "" if ended.exit_code is None else str(ended.exit_code)
    return _element("job", jobId=name, state="completed", exitCode=code, result=_text(ended.result))


def _failed(name: str, error: JobFailed) -> XmlElement:
    code = "" if error.exit_code is None else str(error.exit_code)
    return _element("job", jobId=name, state="failed", exitCode=code, reason=error.reason)


def _text(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else str(value)


def _inside(element: XmlElement) -> Iterator[XmlElement]:
    yield element
    for child in element.elements:
        yield from _inside(child)


def _invoked(flow: BpelFlow) -> dict[str, set[OperationKind]]:
    """The kinds of operations that a process invokes, by partner."""
    kinds: dict[str, set[OperationKind]] = {}
    for element in _inside(flow.root):
        if element.name == "invoke":
            partner = element.get("partnerLink").removeprefix(PREFIX)
            binding = flow.services.binding(partner, element.get("operation"))
            if binding is not None:
                kinds.setdefault(partner, set()).add(binding.kind)
    return kinds


def _names(message: Message) -> Iterator[str]:
    for part in message.values():
        for element in _inside(part):
            if not element.elements:
                yield element.text
