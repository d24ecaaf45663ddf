"""Reads a process from its element into the typed model, with a report on every construct."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from forestay_bpel.domain.bpel.construct_reader import bpel_tag
from forestay_bpel.domain.bpel.handler_reader import NOWHERE, HandlerReader
from forestay_bpel.domain.bpel.process import (
    Activity,
    Assign,
    Compensate,
    CompensateScope,
    Copy,
    Empty,
    Exit,
    Expression,
    FlowActivity,
    ForEach,
    If,
    Invoke,
    Pick,
    Process,
    Receive,
    RepeatUntil,
    Reply,
    Rethrow,
    Scope,
    Sequence,
    Source,
    Standard,
    Throw,
    Validate,
    Wait,
    While,
)
from forestay_bpel.domain.bpel.report import ImportReport, ImportStatus
from forestay_bpel.domain.bpel.xpath import BPEL, compile_xpath
from forestay_bpel.domain.xml_tree import XmlElement

BPEL11 = "http://schemas.xmlsoap.org/ws/2003/03/business-process/"


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of reading: a process unless something was refused, and the report."""

    process: Process | None
    report: ImportReport


def read_process(root: XmlElement, wsdls: Iterable[XmlElement] = ()) -> Reading:
    """Read a process; the elements of WSDL documents define the locations of properties in messages."""
    elements = tuple(wsdls)
    reader = _ProcessReader(with_wsdl=bool(elements))
    process = reader.process(root)
    if process is None or reader.report.refused:
        return Reading(None, reader.report)
    process = replace(process, aliases=tuple(reader.aliases(elements)))
    from forestay_bpel.domain.bpel.checks import check_process

    for entry in check_process(process):
        reader.report.entries.append(entry)
    if not process.aliases:
        for scope in (with_set for with_set in reader.with_sets if with_set.properties):
            reader.report.add(
                reader.lines[scope.name], "correlationSet", ImportStatus.CHANGED,
                "no WSDL defines its properties; they are looked up by name",
            )  # fmt: skip
    return Reading(None if reader.report.refused else process, reader.report)


class _ProcessReader(HandlerReader):
    def __init__(self, *, with_wsdl: bool = False) -> None:
        super().__init__(with_wsdl=with_wsdl)
        self.suppress = False
        self.activities: dict[str, Callable[[XmlElement, Standard], Activity]] = {
            "empty": lambda _, std: Empty(std),
            "exit": lambda _, std: Exit(std),
            "rethrow": lambda _, std: Rethrow(std),
            "compensate": lambda _, std: Compensate(std),
            "compensateScope": lambda element, std: CompensateScope(std, element.get("target")),
            "throw": self.throw,
            "validate": self.validate,
            "wait": self.wait,
            "assign": self.assign,
            "invoke": self.invoke,
            "receive": self.receive,
            "reply": self.reply,
            "sequence": lambda element, std: Sequence(std, self.inner(element)),
            "flow": self.flow,
            "if": self.if_,
            "while": self.while_,
            "repeatUntil": self.repeat_until,
            "forEach": self.for_each,
            "pick": self.pick,
            "scope": self.scope_of,
        }

    # The process

    def process(self, root: XmlElement) -> Process | None:
        if root.space.startswith(BPEL11):
            self.refused(root, "this is BPEL 1.1; only WS-BPEL 2.0 is supported")
            return None
        if root.tag != bpel_tag("process"):
            self.refused(root, "this is not an executable WS-BPEL 2.0 process")
            return None
        self.needed(root, "name", "targetNamespace")
        self.language(root)
        self.suppress = self.yes(root, "suppressJoinFailure")
        scope = self.scope_of(root, Standard(root.get("name"), root.line, suppress=self.suppress))
        return Process(root.get("name"), scope)

    def scope_of(self, element: XmlElement, std: Standard) -> Scope:
        inner: Activity | None = None
        elements: dict[str, XmlElement] = {}
        for child in element.elements:
            if child.space != BPEL:
                self.changed(child, "an extension; it is ignored")
                continue
            if self.is_activity(child):
                if inner is not None:
                    self.refused(child, f"{element.name} has one activity")
                inner = self.activity(child)
                continue
            match child.name:
                case "import":
                    self.imports(child)
                case "extensions":
                    self.extensions(child)
                case "documentation" | "sources" | "targets":
                    pass
                case "messageExchanges" | "variables" | "partnerLinks" | "correlationSets" | "faultHandlers" | "eventHandlers" | "compensationHandler" | "terminationHandler":  # fmt: skip
                    if child.name in elements:
                        self.refused(child, f"it occurs twice in {element.name}")
                    elements[child.name] = child
                case _:
                    self.refused(child, f"it is not allowed in {element.name}")
        if inner is None:
            self.refused(element, "there is no activity in it")
        root = element.name == "process"
        if root:
            for name in ("compensationHandler", "terminationHandler"):
                if name in elements:
                    self.refused(elements[name], "a process has none")
        catches, catch_all = self.catches(elements.get("faultHandlers"))
        messages, alarms = self.events(elements.get("eventHandlers"))
        return Scope(
            std,
            inner or NOWHERE,
            variables=tuple(self.variables(elements.get("variables"))),
            partners=tuple(self.partners(elements.get("partnerLinks"))),
            sets=tuple(self.sets(elements.get("correlationSets"))),
            catches=catches,
            catch_all=catch_all,
            compensation=self.handler(elements.get("compensationHandler")),
            termination=self.handler(elements.get("terminationHandler")),
            messages=messages,
            alarms=alarms,
            isolated=self.yes(element, "isolated"),
            exit_on_standard=self.yes(element, "exitOnStandardFault"),
        )

    # Activities

    def inner(self, element: XmlElement) -> tuple[Activity, ...]:
        out: list[Activity] = []
        for child in element.elements:
            if self.is_activity(child):
                out.append(self.activity(child))
            elif child.space != BPEL:
                self.changed(child, "an extension; it is ignored")
            elif child.name not in ("documentation", "sources", "targets", "links"):
                self.refused(child, f"it is not allowed in {element.name}")
        if not out:
            self.refused(element, "there is no activity in it")
        return tuple(out)

    def is_activity(self, element: XmlElement) -> bool:
        return element.space == BPEL and (element.name in self.activities or element.name == "extensionActivity")

    def activity(self, element: XmlElement) -> Activity:
        if element.name == "extensionActivity":
            self.refused(element, "not an activity of WS-BPEL 2.0")
            return NOWHERE
        before = self.suppress
        self.suppress = self.yes(element, "suppressJoinFailure", otherwise=before)
        self.imported(element)
        activity = self.activities[element.name](element, self.standard(element))
        self.suppress = before
        return activity

    def standard(self, element: XmlElement) -> Standard:
        sources: list[Source] = []
        targets: list[str] = []
        join: Expression | None = None
        for child in element.elements:
            if child.tag == bpel_tag("sources"):
                for xml_element in child.each(bpel_tag("source")):
                    self.needed(xml_element, "linkName")
                    sources.append(
                        Source(xml_element.get("linkName"), self.expression_in(xml_element, "transitionCondition"))
                    )
            elif child.tag == bpel_tag("targets"):
                targets += [xml_element.get("linkName") for xml_element in child.each(bpel_tag("target"))]
                join = self.expression_in(child, "joinCondition")
        return Standard(element.get("name"), element.line, tuple(sources), tuple(targets), join, self.suppress)

    def validate(self, element: XmlElement, std: Standard) -> Activity:
        self.needed(element, "variables")
        self.changed(element, "no schema is read: only the presence of a value is checked")
        return Validate(std, tuple(element.get("variables").split()))

    def throw(self, element: XmlElement, std: Standard) -> Activity:
        self.needed(element, "faultName")
        return Throw(std, element.full_name("faultName"), element.get("faultVariable"))

    def wait(self, element: XmlElement, std: Standard) -> Activity:
        pair = self.when(element)
        if pair == (None, None):
            self.refused(element, "it has no time")
        return Wait(std, *pair)

    def assign(self, element: XmlElement, std: Standard) -> Activity:
        if self.yes(element, "validate"):
            self.changed(element, "validate: no schema is read, so nothing is checked against one")
        copies: list[Copy] = []
        for child in element.elements:
            if child.tag == bpel_tag("copy"):
                copies.append(self.copy(child))
            elif child.tag == bpel_tag("extensionAssignOperation"):
                self.refused(child, "not an operation of WS-BPEL 2.0")
            elif child.space == BPEL and child.name not in ("documentation", "sources", "targets"):
                self.refused(child, "it is not allowed in assign")
        if not copies:
            self.refused(element, "there is no copy in it")
        return Assign(std, tuple(copies))

    def invoke(self, element: XmlElement, std: Standard) -> Activity:
        self.needed(element, "partnerLink", "operation")
        to_parts = self.parts(element, "toParts", "toPart", "fromVariable")
        from_parts = self.parts(element, "fromParts", "fromPart", "toVariable")
        if (to_parts and element.get("inputVariable")) or (from_parts and element.get("outputVariable")):
            self.refused(element, "a message comes from a variable or from parts, not from both")
        handling = [child for child in element.elements if child.name in ("catch", "catchAll", "compensationHandler")]
        inner = std if not handling else Standard(std.name, std.line)
        call = Invoke(
            inner, element.get("partnerLink"), element.get("operation"), element.get("inputVariable"), element.get("outputVariable"),
            to_parts, from_parts, self.correlations(element),
        )  # fmt: skip
        if not handling:
            return call
        own = XmlElement(bpel_tag("faultHandlers"), line=element.line, namespaces=element.namespaces)
        own.children = [child for child in handling if child.name != "compensationHandler"]
        catches, catch_all = self.catches(own) if own.children else ((), None)
        undo = element.child(bpel_tag("compensationHandler"))
        return Scope(std, call, catches=catches, catch_all=catch_all, compensation=self.handler(undo))

    def receive(self, element: XmlElement, std: Standard) -> Activity:
        self.needed(element, "partnerLink", "operation")
        parts = self.parts(element, "fromParts", "fromPart", "toVariable")
        if parts and element.get("variable"):
            self.refused(element, "a message goes to a variable or to parts, not to both")
        return Receive(
            std, element.get("partnerLink"), element.get("operation"), element.get("variable"), self.yes(element, "createInstance"),
            element.get("messageExchange"), parts, self.correlations(element),
        )  # fmt: skip

    def reply(self, element: XmlElement, std: Standard) -> Activity:
        self.needed(element, "partnerLink", "operation")
        parts = self.parts(element, "toParts", "toPart", "fromVariable")
        if parts and element.get("variable"):
            self.refused(element, "a message comes from a variable or from parts, not from both")
        return Reply(
            std, element.get("partnerLink"), element.get("operation"), element.get("variable"), element.full_name("faultName"),
            element.get("messageExchange"), parts, self.correlations(element),
        )  # fmt: skip

    def flow(self, element: XmlElement, std: Standard) -> Activity:
        links = element.child(bpel_tag("links"))
        names = tuple(xml_element.get("name") for xml_element in self.listed(links, "link"))
        return FlowActivity(std, names, self.inner(element))

    def if_(self, element: XmlElement, std: Standard) -> Activity:
        branches = [(self.condition(element), self.only(element))]
        otherwise: Activity | None = None
        for child in element.elements:
            if child.tag == bpel_tag("elseif"):
                self.imported(child)
                branches.append((self.condition(child), self.only(child)))
            elif child.tag == bpel_tag("else"):
                self.imported(child)
                otherwise = self.only(child)
        return If(std, tuple(branches), otherwise)

    def while_(self, element: XmlElement, std: Standard) -> Activity:
        return While(std, self.condition(element), self.only(element))

    def repeat_until(self, element: XmlElement, std: Standard) -> Activity:
        return RepeatUntil(std, self.condition(element), self.only(element))

    def for_each(self, element: XmlElement, std: Standard) -> Activity:
        self.needed(element, "counterName", "parallel")
        expressions: list[Expression] = []
        for name in ("startCounterValue", "finalCounterValue"):
            counter = self.expression_in(element, name)
            if counter is None:
                self.refused(element, f"there is no {name} in it")
            expressions.append(counter or Expression(compile_xpath("1", {}), element.line))
        inner = self.only(element)
        if not isinstance(inner, Scope):
            self.refused(element, "the activity of a forEach is a scope")
            inner = Scope(Standard(line=element.line), inner)
        done = element.child(bpel_tag("completionCondition"))
        branches = done.child(bpel_tag("branches")) if done is not None else None
        if done is not None and branches is None:
            self.refused(done, "there is no branches in it")
        return ForEach(
            std, element.get("counterName"), expressions[0], expressions[1], inner, self.yes(element, "parallel"),
            None if branches is None else self.expression(branches),
            branches is not None and self.yes(branches, "successfulBranchesOnly"),
        )  # fmt: skip

    def pick(self, element: XmlElement, std: Standard) -> Activity:
        messages = tuple(self.on_message(child) for child in element.each(bpel_tag("onMessage")))
        alarms = tuple(self.on_alarm(child, repeat=False) for child in element.each(bpel_tag("onAlarm")))
        create = self.yes(element, "createInstance")
        if not messages:
            self.refused(element, "there is no onMessage in it")
        if create and alarms:
            self.refused(element, "a pick that creates an instance has no onAlarm")
        return Pick(std, messages, alarms, create)
