"""Reads a process from its element: into the typed model, with a report of what became of every construct."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from holdfast.domain.flows.bpel.process import (
    Activity,
    Alias,
    Assign,
    Catch,
    Compensate,
    CompensateScope,
    Copy,
    Correlation,
    CorrelationSet,
    Empty,
    Exit,
    Expression,
    FlowActivity,
    ForEach,
    FromSpec,
    If,
    Invoke,
    OnAlarm,
    OnMessage,
    Part,
    PartnerLink,
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
    ToSpec,
    Validate,
    VariableDeclaration,
    Wait,
    While,
)
from holdfast.domain.flows.bpel.report import Fate, Report
from holdfast.domain.flows.bpel.xpath import BPEL, XPathRefused, compile_xpath
from holdfast.domain.flows.xml_tree import Element

BPEL11 = "http://schemas.xmlsoap.org/ws/2003/03/business-process/"
XPATH_URN = "urn:oasis:names:tc:wsbpel:2.0:sublang:xpath1.0"
_EXPRESSIONS = frozenset(
    {"condition", "for", "until", "repeatEvery", "startCounterValue", "finalCounterValue", "branches"}
)
_NOWHERE = Empty(Standard())
TRUE = "true()"


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read: a process unless something was refused, and the report."""

    process: Process | None
    report: Report


def read_process(root: Element, wsdls: Iterable[Element] = ()) -> Reading:
    """Read a process; the elements of WSDL documents tell where properties are in messages."""
    given = tuple(wsdls)
    reader = _Reader(with_wsdl=bool(given))
    process = reader.process(root)
    if process is None or reader.report.refused:
        return Reading(None, reader.report)
    process = replace(process, aliases=tuple(reader.aliases(given)))
    from holdfast.domain.flows.bpel.checks import check_process

    for entry in check_process(process):
        reader.report.entries.append(entry)
    if not process.aliases:
        for scope in (one for one in reader.with_sets if one.properties):
            reader.report.add(
                reader.lines[scope.name], "correlationSet", Fate.CHANGED,
                "no WSDL says where its properties are; they are looked for by their names",
            )  # fmt: skip
    return Reading(None if reader.report.refused else process, reader.report)


class _Reader:
    def __init__(self, *, with_wsdl: bool = False) -> None:
        self.report = Report()
        self.with_wsdl = with_wsdl
        self.suppress = False
        self.with_sets: list[CorrelationSet] = []
        self.lines: dict[str, int] = {}
        self.activities: dict[str, Callable[[Element, Standard], Activity]] = {
            "empty": lambda _, std: Empty(std),
            "exit": lambda _, std: Exit(std),
            "rethrow": lambda _, std: Rethrow(std),
            "compensate": lambda _, std: Compensate(std),
            "compensateScope": lambda element, std: CompensateScope(std, element.get("target")),
            "throw": lambda element, std: Throw(
                std, element.qname(element.get("faultName")), element.get("faultVariable")
            ),
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
            "scope": self.scope,
        }

    # What is said of a construct

    def imported(self, element: Element) -> None:
        self.report.add(element.line, element.name, Fate.IMPORTED)

    def changed(self, element: Element, note: str) -> None:
        self.report.add(element.line, element.name, Fate.CHANGED, note)

    def refused(self, element: Element, note: str) -> None:
        self.report.add(element.line, element.name, Fate.REFUSED, note)

    def needed(self, element: Element, *names: str) -> None:
        for name in names:
            if not element.get(name).strip():
                self.refused(element, f"the attribute {name} is missing")

    def yes(self, element: Element, name: str, *, otherwise: bool = False) -> bool:
        value = element.get(name)
        if value not in ("", "yes", "no"):
            self.refused(element, f"{name} is yes or no, not {value[:20]!r}")
        return value == "yes" if value else otherwise

    # The process

    def process(self, root: Element) -> Process | None:
        if root.space.startswith(BPEL11):
            self.refused(root, "this is BPEL 1.1; WS-BPEL 2.0 is read")
            return None
        if root.tag != _b("process"):
            self.refused(root, "this is no process of WS-BPEL 2.0 (executable)")
            return None
        self.needed(root, "name", "targetNamespace")
        self.language(root)
        self.suppress = self.yes(root, "suppressJoinFailure")
        scope = self.scope_of(root, Standard(root.get("name"), root.line, suppress=self.suppress))
        return Process(root.get("name"), scope)

    def language(self, element: Element) -> None:
        for name in ("queryLanguage", "expressionLanguage"):
            if element.get(name) not in ("", XPATH_URN):
                self.refused(element, f"{name} {element.get(name)[:80]}: only XPath 1.0 is read")

    def scope_of(self, element: Element, std: Standard) -> Scope:
        inner: Activity | None = None
        found: dict[str, Element] = {}
        for child in element.elements:
            if child.space != BPEL:
                self.changed(child, "an extension; it is not looked at")
                continue
            if child.name in self.activities or child.name == "extensionActivity":
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
                    if child.name in found:
                        self.refused(child, f"it stands twice in {element.name}")
                    found[child.name] = child
                case _:
                    self.refused(child, f"it may not stand in {element.name}")
        if inner is None:
            self.refused(element, "there is no activity in it")
        root = element.name == "process"
        if root:
            for name in ("compensationHandler", "terminationHandler"):
                if name in found:
                    self.refused(found[name], "a process has none")
        catches, catch_all = self.catches(found.get("faultHandlers"))
        messages, alarms = self.events(found.get("eventHandlers"))
        return Scope(
            std,
            inner or _NOWHERE,
            variables=tuple(self.variables(found.get("variables"))),
            partners=tuple(self.partners(found.get("partnerLinks"))),
            sets=tuple(self.sets(found.get("correlationSets"))),
            catches=catches,
            catch_all=catch_all,
            compensation=self.handler(found.get("compensationHandler")),
            termination=self.handler(found.get("terminationHandler")),
            messages=messages,
            alarms=alarms,
            isolated=self.yes(element, "isolated"),
            exit_on_standard=self.yes(element, "exitOnStandardFault"),
        )

    def imports(self, element: Element) -> None:
        where = element.get("location")
        if "://" in where or where.startswith("//"):
            self.refused(element, "nothing is fetched; give the file with --wsdl and name it without a host")
        elif not element.get("importType"):
            self.refused(element, "the attribute importType is missing")
        elif self.with_wsdl:
            self.imported(element)
        else:
            self.changed(element, "nothing is fetched: give the file with --wsdl; messages are taken as they come")

    def extensions(self, element: Element) -> None:
        for child in element.elements:
            if child.get("mustUnderstand") == "yes":
                self.refused(child, f"the extension {child.get('namespace')[:80]} must be understood, and is not")
            else:
                self.changed(child, "the extension is not looked at")

    def variables(self, element: Element | None) -> Iterable[VariableDeclaration]:
        for child in self.listed(element, "variable"):
            self.needed(child, "name")
            kinds = [one for one in ("messageType", "type", "element") if child.get(one)]
            if len(kinds) != 1:
                self.refused(child, "a variable has one of messageType, type and element")
            if "." in child.get("name"):
                self.refused(child, "a variable's name has no dot")
            first = child.child(_b("from"))
            self.imported(child)
            yield VariableDeclaration(
                child.get("name"),
                child.line,
                child.qname(child.get("messageType")) if child.get("messageType") else "",
                child.qname(child.get("type")) if child.get("type") else "",
                child.qname(child.get("element")) if child.get("element") else "",
                None if first is None else self.from_(first),
            )

    def partners(self, element: Element | None) -> Iterable[PartnerLink]:
        for child in self.listed(element, "partnerLink"):
            self.needed(child, "name", "partnerLinkType")
            mine, theirs = child.get("myRole"), child.get("partnerRole")
            if not mine and not theirs:
                self.refused(child, "a partner link has a role: myRole, partnerRole or both")
            if child.get("initializePartnerRole") and not theirs:
                self.refused(child, "initializePartnerRole without partnerRole")
            self.imported(child)
            yield PartnerLink(child.get("name"), child.line, child.qname(child.get("partnerLinkType")), mine, theirs)

    def sets(self, element: Element | None) -> Iterable[CorrelationSet]:
        for child in self.listed(element, "correlationSet"):
            self.needed(child, "name", "properties")
            self.imported(child)
            found = CorrelationSet(
                child.get("name"), tuple(child.qname(one) for one in child.get("properties").split())
            )
            self.with_sets.append(found)
            self.lines[found.name] = child.line
            yield found

    def listed(self, element: Element | None, name: str) -> Iterable[Element]:
        seen: set[str] = set()
        for child in element.elements if element is not None else ():
            if child.tag == _b(name):
                if child.get("name") in seen:
                    self.refused(child, f"there is a second {name} {child.get('name')}")
                seen.add(child.get("name"))
                yield child
            elif child.tag != _b("documentation"):
                self.refused(child, f"{name} was expected")

    def aliases(self, wsdls: Iterable[Element]) -> Iterable[Alias]:
        for wsdl in wsdls:
            for child in wsdl.elements:
                if child.name != "propertyAlias":
                    continue
                query = next((one for one in child.elements if one.name == "query"), None)
                message, element = child.get("messageType"), child.get("element") or child.get("type")
                yield Alias(
                    child.qname(child.get("propertyName")),
                    child.qname(message) if message else "",
                    child.qname(element) if element else "",
                    child.get("part"),
                    None if query is None or not query.text.strip() else self.expression(query),
                )

    # Handlers

    def handler(self, element: Element | None) -> Activity | None:
        if element is None:
            return None
        self.imported(element)
        return self.only(element)

    def catches(self, element: Element | None) -> tuple[tuple[Catch, ...], Activity | None]:
        if element is None:
            return (), None
        out: list[Catch] = []
        everything: Activity | None = None
        for child in element.elements:
            if child.tag == _b("catch"):
                self.imported(child)
                name, variable = child.get("faultName"), child.get("faultVariable")
                message, kind = child.get("faultMessageType"), child.get("faultElement")
                if not name and not variable:
                    self.refused(child, "it catches nothing: say faultName or faultVariable")
                if variable and bool(message) == bool(kind):
                    self.refused(child, "a faultVariable has either faultMessageType or faultElement")
                if not variable and (message or kind):
                    self.refused(child, "a fault's type needs a faultVariable")
                full = [child.qname(one) if one else "" for one in (name, message, kind)]
                out.append(Catch(child.line, self.only(child), full[0], variable, full[1], full[2]))
            elif child.tag == _b("catchAll"):
                self.imported(child)
                everything = self.only(child)
            elif child.tag != _b("documentation"):
                self.refused(child, "catch or catchAll was expected")
        if not out and everything is None:
            self.refused(element, "there is no handler in it")
        return tuple(out), everything

    def events(self, element: Element | None) -> tuple[tuple[OnMessage, ...], tuple[OnAlarm, ...]]:
        if element is None:
            return (), ()
        messages: list[OnMessage] = []
        alarms: list[OnAlarm] = []
        for child in element.elements:
            if child.tag == _b("onEvent"):
                messages.append(self.on_message(child))
                if not isinstance(messages[-1].inner, Scope):
                    self.refused(child, "an event handler's activity is a scope")
            elif child.tag == _b("onAlarm"):
                alarms.append(self.on_alarm(child, repeat=True))
                if not isinstance(alarms[-1].inner, Scope):
                    self.refused(child, "an event handler's activity is a scope")
            elif child.tag != _b("documentation"):
                self.refused(child, "onEvent or onAlarm was expected")
        if not messages and not alarms:
            self.refused(element, "there is no handler in it")
        return tuple(messages), tuple(alarms)

    def on_message(self, element: Element) -> OnMessage:
        self.needed(element, "partnerLink", "operation")
        self.imported(element)
        return OnMessage(
            element.line,
            element.get("partnerLink"),
            element.get("operation"),
            self.only(element),
            element.get("variable"),
            element.qname(element.get("messageType")) if element.get("messageType") else "",
            element.qname(element.get("element")) if element.get("element") else "",
            element.get("messageExchange"),
            self.parts(element, "fromParts", "fromPart", "toVariable"),
            self.correlations(element),
        )

    def on_alarm(self, element: Element, *, repeat: bool) -> OnAlarm:
        self.imported(element)
        found = self.when(element)
        every = element.child(_b("repeatEvery"))
        if every is not None and not repeat:
            self.refused(every, "only an event handler repeats")
        if found == (None, None) and every is None:
            self.refused(element, "it says no time")
        return OnAlarm(element.line, self.only(element), *found, None if every is None else self.expression(every))

    def only(self, element: Element) -> Activity:
        found = [child for child in element.elements if child.space == BPEL and (child.name in self.activities or child.name == "extensionActivity")]  # fmt: skip
        if len(found) != 1:
            self.refused(element, "it has one activity" if found else "there is no activity in it")
        return self.activity(found[0]) if found else _NOWHERE

    # Activities

    def inner(self, element: Element) -> tuple[Activity, ...]:
        out: list[Activity] = []
        for child in element.elements:
            if child.space == BPEL and (child.name in self.activities or child.name == "extensionActivity"):
                out.append(self.activity(child))
            elif child.space != BPEL:
                self.changed(child, "an extension; it is not looked at")
            elif child.name not in ("documentation", "sources", "targets", "links"):
                self.refused(child, f"it may not stand in {element.name}")
        if not out:
            self.refused(element, "there is no activity in it")
        return tuple(out)

    def activity(self, element: Element) -> Activity:
        if element.name == "extensionActivity":
            self.refused(element, "an activity that is no part of WS-BPEL 2.0")
            return _NOWHERE
        before = self.suppress
        self.suppress = self.yes(element, "suppressJoinFailure", otherwise=before)
        self.imported(element)
        found = self.activities[element.name](element, self.standard(element))
        self.suppress = before
        return found

    def standard(self, element: Element) -> Standard:
        sources: list[Source] = []
        targets: list[str] = []
        join: Expression | None = None
        for child in element.elements:
            if child.tag == _b("sources"):
                for one in child.each(_b("source")):
                    self.needed(one, "linkName")
                    condition = one.child(_b("transitionCondition"))
                    sources.append(
                        Source(one.get("linkName"), None if condition is None else self.expression(condition))
                    )
            elif child.tag == _b("targets"):
                targets += [one.get("linkName") for one in child.each(_b("target"))]
                condition = child.child(_b("joinCondition"))
                join = None if condition is None else self.expression(condition)
        return Standard(element.get("name"), element.line, tuple(sources), tuple(targets), join, self.suppress)

    def validate(self, element: Element, std: Standard) -> Activity:
        self.needed(element, "variables")
        self.changed(element, "no schema is read: it is seen to that the variables have a value")
        return Validate(std, tuple(element.get("variables").split()))

    def when(self, element: Element) -> tuple[Expression | None, Expression | None]:
        for_, until = element.child(_b("for")), element.child(_b("until"))
        if for_ is not None and until is not None:
            self.refused(until, "it says for or until, not both")
        return (None if for_ is None else self.expression(for_)), (None if until is None else self.expression(until))

    def wait(self, element: Element, std: Standard) -> Activity:
        found = self.when(element)
        if found == (None, None):
            self.refused(element, "it says no time")
        return Wait(std, *found)

    def expression(self, element: Element) -> Expression:
        text = element.text.strip()
        self.language(element)
        if not text:
            self.refused(element, "there is no expression in it")
            text = TRUE
        try:
            return Expression(compile_xpath(text, element.namespaces), element.line)
        except XPathRefused as why:
            self.refused(element, str(why))
            return Expression(compile_xpath(TRUE, {}), element.line)

    def condition(self, element: Element) -> Expression:
        found = element.child(_b("condition"))
        if found is None:
            self.refused(element, "there is no condition in it")
            return Expression(compile_xpath(TRUE, {}), element.line)
        return self.expression(found)

    def assign(self, element: Element, std: Standard) -> Activity:
        if self.yes(element, "validate"):
            self.changed(element, "validate: no schema is read, so nothing is checked against one")
        copies: list[Copy] = []
        for child in element.elements:
            if child.tag == _b("copy"):
                copies.append(self.copy(child))
            elif child.tag == _b("extensionAssignOperation"):
                self.refused(child, "an operation that is no part of WS-BPEL 2.0")
            elif child.space == BPEL and child.name not in ("documentation", "sources", "targets"):
                self.refused(child, "it may not stand in assign")
        if not copies:
            self.refused(element, "there is no copy in it")
        return Assign(std, tuple(copies))

    def copy(self, element: Element) -> Copy:
        self.imported(element)
        from_, to = element.child(_b("from")), element.child(_b("to"))
        if from_ is None or to is None:
            self.refused(element, "it has one from and one to")
            return Copy(FromSpec(element.line), ToSpec(element.line))
        keep, missing = self.yes(element, "keepSrcElementName"), self.yes(element, "ignoreMissingFromData")
        return Copy(self.from_(from_), self.to(to), keep, missing)

    def from_(self, element: Element) -> FromSpec:
        literal, query = element.child(_b("literal")), element.child(_b("query"))
        partner = element.get("partnerLink")
        if partner:
            self.changed(element, "the address of a partner is an empty reference here; a mapping says who it is")
        if element.get("variable"):
            return FromSpec(
                element.line, element.get("variable"), element.get("part"),
                element.qname(element.get("property")) if element.get("property") else "",
                None if query is None else self.expression(query),
            )  # fmt: skip
        if partner:
            return FromSpec(element.line, partner=partner)
        if literal is not None:
            if len(literal.elements) > 1:
                self.refused(literal, "a literal is one element or a text")
            return FromSpec(element.line, literal=literal)
        if element.text.strip():
            return FromSpec(element.line, expression=self.expression(element))
        self.refused(element, "it says nothing to copy")
        return FromSpec(element.line, empty=True)

    def to(self, element: Element) -> ToSpec:
        query = element.child(_b("query"))
        if element.get("partnerLink"):
            self.changed(element, "partners are not given addresses here; a mapping says who they are")
            return ToSpec(element.line, partner=element.get("partnerLink"))
        if element.get("variable"):
            return ToSpec(
                element.line, element.get("variable"), element.get("part"),
                element.qname(element.get("property")) if element.get("property") else "",
                None if query is None else self.expression(query),
            )  # fmt: skip
        if not element.text.strip():
            self.refused(element, "it says no place")
            return ToSpec(element.line)
        return ToSpec(element.line, expression=self.expression(element))

    def parts(self, element: Element, group: str, one: str, attribute: str) -> tuple[Part, ...]:
        found = element.child(_b(group))
        if found is None:
            return ()
        for child in found.each(_b(one)):
            self.needed(child, "part", attribute)
        return tuple(Part(child.get("part"), child.get(attribute)) for child in found.each(_b(one)))

    def correlations(self, element: Element) -> tuple[Correlation, ...]:
        found = element.child(_b("correlations"))
        out: list[Correlation] = []
        for child in found.each(_b("correlation")) if found is not None else ():
            self.needed(child, "set")
            initiate = child.get("initiate", "no")
            if initiate not in ("yes", "no", "join"):
                self.refused(child, f"initiate is yes, no or join, not {initiate[:20]!r}")
            self.imported(child)
            out.append(Correlation(child.get("set"), initiate, child.get("pattern")))
        return tuple(out)

    def invoke(self, element: Element, std: Standard) -> Activity:
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
        own = Element(_b("faultHandlers"), line=element.line, namespaces=element.namespaces)
        own.children = [child for child in handling if child.name != "compensationHandler"]
        catches, catch_all = self.catches(own) if own.children else ((), None)
        undo = element.child(_b("compensationHandler"))
        return Scope(std, call, catches=catches, catch_all=catch_all, compensation=self.handler(undo))

    def receive(self, element: Element, std: Standard) -> Activity:
        self.needed(element, "partnerLink", "operation")
        parts = self.parts(element, "fromParts", "fromPart", "toVariable")
        if parts and element.get("variable"):
            self.refused(element, "a message goes to a variable or to parts, not to both")
        return Receive(
            std, element.get("partnerLink"), element.get("operation"), element.get("variable"), self.yes(element, "createInstance"),
            element.get("messageExchange"), parts, self.correlations(element),
        )  # fmt: skip

    def reply(self, element: Element, std: Standard) -> Activity:
        self.needed(element, "partnerLink", "operation")
        fault = element.get("faultName")
        parts = self.parts(element, "toParts", "toPart", "fromVariable")
        if parts and element.get("variable"):
            self.refused(element, "a message comes from a variable or from parts, not from both")
        return Reply(
            std, element.get("partnerLink"), element.get("operation"), element.get("variable"), element.qname(fault) if fault else "",
            element.get("messageExchange"), parts, self.correlations(element),
        )  # fmt: skip

    def flow(self, element: Element, std: Standard) -> Activity:
        links = element.child(_b("links"))
        names = tuple(one.get("name") for one in self.listed(links, "link"))
        return FlowActivity(std, names, self.inner(element))

    def if_(self, element: Element, std: Standard) -> Activity:
        branches = [(self.condition(element), self.only(element))]
        otherwise: Activity | None = None
        for child in element.elements:
            if child.tag == _b("elseif"):
                self.imported(child)
                branches.append((self.condition(child), self.only(child)))
            elif child.tag == _b("else"):
                self.imported(child)
                otherwise = self.only(child)
        return If(std, tuple(branches), otherwise)

    def while_(self, element: Element, std: Standard) -> Activity:
        return While(std, self.condition(element), self.only(element))

    def repeat_until(self, element: Element, std: Standard) -> Activity:
        return RepeatUntil(std, self.condition(element), self.only(element))

    def for_each(self, element: Element, std: Standard) -> Activity:
        self.needed(element, "counterName", "parallel")
        found: list[Expression] = []
        for name in ("startCounterValue", "finalCounterValue"):
            child = element.child(_b(name))
            if child is None:
                self.refused(element, f"there is no {name} in it")
            found.append(
                self.expression(child) if child is not None else Expression(compile_xpath("1", {}), element.line)
            )
        inner = self.only(element)
        if not isinstance(inner, Scope):
            self.refused(element, "the activity of a forEach is a scope")
            inner = Scope(Standard(line=element.line), inner)
        done = element.child(_b("completionCondition"))
        branches = done.child(_b("branches")) if done is not None else None
        if done is not None and branches is None:
            self.refused(done, "there is no branches in it")
        return ForEach(
            std, element.get("counterName"), found[0], found[1], inner, self.yes(element, "parallel"),
            None if branches is None else self.expression(branches),
            branches is not None and self.yes(branches, "successfulBranchesOnly"),
        )  # fmt: skip

    def pick(self, element: Element, std: Standard) -> Activity:
        messages = tuple(self.on_message(child) for child in element.each(_b("onMessage")))
        alarms = tuple(self.on_alarm(child, repeat=False) for child in element.each(_b("onAlarm")))
        create = self.yes(element, "createInstance")
        if not messages:
            self.refused(element, "there is no onMessage in it")
        if create and alarms:
            self.refused(element, "a pick that creates an instance has no onAlarm")
        return Pick(std, messages, alarms, create)

    def scope(self, element: Element, std: Standard) -> Activity:
        return self.scope_of(element, std)


def _b(name: str) -> str:
    return f"{{{BPEL}}}{name}"
