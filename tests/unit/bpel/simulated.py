"""A process in a made-up world: partners by name, and time that passes at once when nothing else is to be done."""

from __future__ import annotations

import asyncio
import re
import selectors
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from forestay_bpel.domain.bpel.process import Process
from forestay_bpel.domain.bpel.reading import read_process
from forestay_bpel.domain.xml_tree import XmlElement
from forestay_bpel.formats.xml_text import read_xml
from forestay_bpel.interpreter.host import Fault, Incoming, Message, PartnerCall
from forestay_bpel.interpreter.interpreter import Interpreter, ProcessResult

T = TypeVar("T")
NAMESPACE = "urn:t"
START = 1_000_000_000.0
WRAP = """<process name="p" targetNamespace="urn:t" xmlns="http://docs.oasis-open.org/wsbpel/2.0/process/executable" xmlns:t="urn:t"
 xmlns:bpel="http://docs.oasis-open.org/wsbpel/2.0/process/executable" xmlns:xsd="http://www.w3.org/2001/XMLSchema" {attributes}>
<partnerLinks><partnerLink name="me" partnerLinkType="t:L" myRole="r"/><partnerLink name="p" partnerLinkType="t:L" partnerRole="r" myRole="s"/></partnerLinks>
<variables><variable name="in" messageType="t:in"/><variable name="out" messageType="t:out"/><variable name="x" type="xsd:int"/>
<variable name="y" type="xsd:int"/><variable name="d" element="t:doc"/>{variables}</variables>
{before}<sequence><receive partnerLink="me" operation="start" variable="in" createInstance="yes"/>
{body}
</sequence></process>"""


class _NoWaiting(selectors.DefaultSelector):
    """Instead of waiting, time is moved."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("it waits for ever")
        if timeout > 0:
            self.loop.moment += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.moment = 0.0
        selector = _NoWaiting()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.moment


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def part(text: str, name: str = "part") -> Message:
    return {name: read_xml(text) if text.startswith("<") else XmlElement(name, {}, [text])}


def process_text(body: str, *, variables: str = "", before: str = "", attributes: str = "") -> str:
    return WRAP.format(body=body, variables=variables, before=before, attributes=attributes)


def process_of(text: str) -> Process:
    read = read_process(read_xml(text))
    assert read.process is not None, [str(entry) for entry in read.report.entries if entry.fate == "refused"]
    return read.process


@dataclass
class World:
    """Partners: ``bad…`` fails, ``slowN…`` takes N seconds, ``echo`` gives back what it gets; all others answer with their name."""

    seen: list[str] = field(default_factory=list)
    """What was invoked (``a``; ``a.`` when a slow one ends, ``a!`` when it is given up) and answered (``=text``)."""
    events: list[str] = field(default_factory=list)
    messages: list[tuple[float, Incoming]] = field(default_factory=list)
    answers: dict[str, Callable[[PartnerCall], Message]] = field(default_factory=dict)

    async def invoke(self, call: PartnerCall) -> Message:
        name = call.operation
        text = " ".join(element.text.strip() for element in call.message.values())
        self.seen.append(f"{name}({text})" if text else name)
        slow = re.match(r"slow(\d+)", name)
        if slow:
            try:
                await asyncio.sleep(int(slow[1]))
            except asyncio.CancelledError:
                self.seen.append(f"{name}!")
                raise
            self.seen.append(f"{name}.")
        if "bad" in name:
            raise Fault(f"{{{NAMESPACE}}}{name}", part(f"<t:why xmlns:t='{NAMESPACE}'>{name}</t:why>"))
        if name in self.answers:
            return self.answers[name](call)
        return call.message if name == "echo" else part(name)

    async def reply(self, partner: str, operation: str, message: Message, fault: str) -> None:
        text = " ".join(element.text.strip() for element in message.values())
        self.seen.append(f"={fault.rpartition('}')[2] + '!' if fault else ''}{text}")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def now(self) -> float:
        return START + asyncio.get_running_loop().time()

    def trace(self, event: str) -> None:
        self.events.append(event)


async def _run(process: Process, world: World, first: Message) -> tuple[ProcessResult, float]:
    interpreter = Interpreter(process, world)
    interpreter.deliver(Incoming("me", "start", first))
    loop = asyncio.get_running_loop()
    for at, incoming in world.messages:
        loop.call_at(at, interpreter.deliver, incoming)
    return await interpreter.run(), loop.time()


def run_process(text: str, world: World | None = None, first: str = "5") -> tuple[ProcessResult, World, float]:
    """Run a process to its end; the seconds that it took."""
    there = world or World()
    ended, took = run_virtually(_run(process_of(text), there, part(first)))
    return ended, there, took
