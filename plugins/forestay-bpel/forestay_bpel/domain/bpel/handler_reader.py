"""Reads handlers: what is done on a fault, on a message, on an alarm, to undo and at a forced end."""

from __future__ import annotations

from abc import ABC, abstractmethod

from forestay_bpel.domain.bpel.construct_reader import bpel_tag
from forestay_bpel.domain.bpel.declaration_reader import DeclarationReader
from forestay_bpel.domain.bpel.process import Activity, Catch, Empty, Expression, OnAlarm, OnMessage, Scope, Standard
from forestay_bpel.domain.xml_tree import XmlElement

NOWHERE = Empty(Standard())
"""Replaces a refused activity."""


class HandlerReader(DeclarationReader, ABC):
    """Reads handlers; their contents are activities, whose reader reads handlers in turn."""

    @abstractmethod
    def is_activity(self, element: XmlElement) -> bool: ...

    @abstractmethod
    def activity(self, element: XmlElement) -> Activity: ...

    def only(self, element: XmlElement) -> Activity:
        elements = [child for child in element.elements if self.is_activity(child)]
        if len(elements) != 1:
            self.refused(element, "it has one activity" if elements else "there is no activity in it")
        return self.activity(elements[0]) if elements else NOWHERE

    def handler(self, element: XmlElement | None) -> Activity | None:
        if element is None:
            return None
        self.imported(element)
        return self.only(element)

    def catches(self, element: XmlElement | None) -> tuple[tuple[Catch, ...], Activity | None]:
        if element is None:
            return (), None
        out: list[Catch] = []
        everything: Activity | None = None
        for child in element.elements:
            if child.tag == bpel_tag("catch"):
                self.imported(child)
                name, variable = child.full_name("faultName"), child.get("faultVariable")
                message, kind = child.full_name("faultMessageType"), child.full_name("faultElement")
                if not name and not variable:
                    self.refused(child, "it catches nothing: set faultName or faultVariable")
                if variable and bool(message) == bool(kind):
                    self.refused(child, "a faultVariable has either faultMessageType or faultElement")
                if not variable and (message or kind):
                    self.refused(child, "a fault's type needs a faultVariable")
                out.append(Catch(child.line, self.only(child), name, variable, message, kind))
            elif child.tag == bpel_tag("catchAll"):
                self.imported(child)
                everything = self.only(child)
            elif child.tag != bpel_tag("documentation"):
                self.refused(child, "catch or catchAll was expected")
        if not out and everything is None:
            self.refused(element, "there is no handler in it")
        return tuple(out), everything

    def events(self, element: XmlElement | None) -> tuple[tuple[OnMessage, ...], tuple[OnAlarm, ...]]:
        if element is None:
            return (), ()
        messages: list[OnMessage] = []
        alarms: list[OnAlarm] = []
        for child in element.elements:
            if child.tag == bpel_tag("onEvent"):
                messages.append(self.on_message(child))
                if not isinstance(messages[-1].inner, Scope):
                    self.refused(child, "an event handler's activity is a scope")
            elif child.tag == bpel_tag("onAlarm"):
                alarms.append(self.on_alarm(child, repeat=True))
                if not isinstance(alarms[-1].inner, Scope):
                    self.refused(child, "an event handler's activity is a scope")
            elif child.tag != bpel_tag("documentation"):
                self.refused(child, "onEvent or onAlarm was expected")
        if not messages and not alarms:
            self.refused(element, "there is no handler in it")
        return tuple(messages), tuple(alarms)

    def on_message(self, element: XmlElement) -> OnMessage:
        self.needed(element, "partnerLink", "operation")
        self.imported(element)
        return OnMessage(
            element.line,
            element.get("partnerLink"),
            element.get("operation"),
            self.only(element),
            element.get("variable"),
            element.full_name("messageType"),
            element.full_name("element"),
            element.get("messageExchange"),
            self.parts(element, "fromParts", "fromPart", "toVariable"),
            self.correlations(element),
        )

    def on_alarm(self, element: XmlElement, *, repeat: bool) -> OnAlarm:
        self.imported(element)
        pair = self.when(element)
        every = element.child(bpel_tag("repeatEvery"))
        if every is not None and not repeat:
            self.refused(every, "only an event handler repeats")
        if pair == (None, None) and every is None:
            self.refused(element, "it has no time")
        return OnAlarm(element.line, self.only(element), *pair, None if every is None else self.expression(every))

    def when(self, element: XmlElement) -> tuple[Expression | None, Expression | None]:
        until = element.child(bpel_tag("until"))
        if until is not None and element.child(bpel_tag("for")) is not None:
            self.refused(until, "use for or until, not both")
        return self.expression_in(element, "for"), self.expression_in(element, "until")
