"""Running scopes: variables, correlation sets, and inner scopes that completed and can be compensated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from forestay_bpel.domain.bpel.process import Alias, Expression, Process, Scope, VariableDeclaration
from forestay_bpel.domain.bpel.xpath import BPEL
from forestay_bpel.domain.bpel.xpath_values import Node, Value, XPathFailed, boolean, string
from forestay_bpel.domain.xml_tree import XmlElement
from forestay_bpel.interpreter.host import WHOLE, Fault, Message, standard_fault


@dataclass(slots=True)
class ScopeVariable:
    """A variable and its value; ``None``: it has none yet."""

    declared: VariableDeclaration
    value: Message | None = None

    @property
    def is_message(self) -> bool:
        return bool(self.declared.message)

    def part(self, name: str) -> XmlElement | None:
        return None if self.value is None else self.value.get(name)

    def tag(self) -> str:
        """The element name of a variable without parts."""
        return self.declared.element or self.declared.name


@dataclass(slots=True)
class Running:
    """One run of a scope."""

    scope: Scope
    above: Running | None = None
    variables: dict[str, ScopeVariable] = field(default_factory=dict)
    sets: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    completed: list[Running] = field(default_factory=list)
    """The completed inner scopes, oldest first."""
    addresses: dict[str, str] = field(default_factory=dict)
    """The endpoint references that the process has assigned to the partner links declared here."""

    def find(self, name: str) -> ScopeVariable:
        at: Running | None = self
        while at is not None:
            if name in at.variables:
                return at.variables[name]
            at = at.above
        raise standard_fault("uninitializedVariable", f"there is no variable {name}")

    def has(self, name: str) -> bool:
        at: Running | None = self
        while at is not None:
            if name in at.variables:
                return True
            at = at.above
        return False

    def home_of_set(self, name: str) -> Running:
        at: Running | None = self
        while at is not None:
            if name in at.sets:
                return at
            at = at.above
        raise standard_fault("correlationViolation", f"there is no correlation set {name}")

    def home_of_partner(self, name: str) -> Running:
        """The scope that declares a partner link; of several runs of one scope that enclose each other the outermost."""
        at = self
        while at.above is not None and (
            at.above.scope is at.scope or all(link.name != name for link in at.scope.partners)
        ):
            at = at.above
        return at


Links = dict[str, bool]


class Values:
    """Evaluates expressions over the variables of a scope."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def value(
        self, at: Running, expression: Expression, *, node: Node | None = None, links: Links | None = None
    ) -> Value:
        def look(name: str) -> Value:
            if links is not None and name in links:
                return links[name]
            return self.variable(at, name)

        functions = {
            (BPEL, "getVariableProperty"): lambda value: self.property_value(at, string(value[0]), string(value[1]))
        }
        try:
            return expression.xpath.evaluate(look, node=node, functions=functions)
        except XPathFailed as why:
            raise standard_fault("subLanguageExecutionFault", str(why), expression.line) from why
        except Fault as fault:
            fault.line = fault.line or expression.line
            raise

    def truth(self, at: Running, expression: Expression, *, links: Links | None = None) -> bool:
        return boolean(self.value(at, expression, links=links))

    def text(self, at: Running, expression: Expression) -> str:
        return string(self.value(at, expression))

    def whole(self, at: Running, expression: Expression) -> int:
        """An unsigned whole number; a fault otherwise."""
        text = self.text(at, expression).strip()
        if not text.isdecimal() or len(text) > 9:
            raise standard_fault("invalidExpressionValue", f"{text[:40]!r} is not an unsigned integer", expression.line)
        return int(text)

    def variable(self, at: Running, name: str) -> Value:
        variable, sign, part = name.partition(".")
        if not at.has(variable) and at.has(name):
            variable, sign, part = name, "", ""
        held = at.find(variable)
        if held.value is None:
            raise standard_fault("uninitializedVariable", variable)
        if sign or WHOLE in held.value:
            element = held.value.get(part)
            if element is None:
                raise standard_fault("uninitializedVariable", name)
            return [element]
        return [*held.value.values()]

    # Properties

    def property_value(self, at: Running, variable: str, name: str) -> str:
        held = at.find(variable)
        if held.value is None:
            raise standard_fault("uninitializedVariable", variable)
        local = name.rpartition(":")[2].rpartition("}")[2]
        return self.property(held.value, next((alias.property for alias in self.process.aliases if alias.property.rpartition("}")[2] == local), local))  # fmt: skip

    def property(self, message: Message, name: str) -> str:
        """The value of a property in a message: by its alias, or else by its name."""
        node = self.property_node(message, name)
        if node is None:
            raise standard_fault("selectionFailure", f"the message has no property {name.rpartition('}')[2]}")
        return node.text.strip()

    def property_node(self, message: Message, name: str) -> XmlElement | None:
        for alias in self.process.aliases:
            if alias.property == name:
                element = self._aliased(message, alias)
                if element is not None:
                    return element
        local = name.rpartition("}")[2]
        if local in message:
            return message[local]
        return next(
            (descendant for part in message.values() for descendant in _descendants(part) if descendant.name == local),
            None,
        )

    def _aliased(self, message: Message, alias: Alias) -> XmlElement | None:
        part = message.get(alias.part) if alias.part else next(iter(message.values()), None)
        if part is None or (alias.element and part.tag != alias.element):
            return None
        if alias.query is None:
            return part
        try:
            nodes = alias.query.xpath.evaluate(_nothing, node=part)
        except XPathFailed:
            return None
        return next((node for node in nodes if isinstance(node, XmlElement)), None) if isinstance(nodes, list) else None


def _nothing(name: str) -> Value:
    raise XPathFailed(f"there is no variable {name} here")


def _descendants(element: XmlElement) -> Iterator[XmlElement]:
    yield element
    for child in element.elements:
        yield from _descendants(child)


def copied(message: Message | None) -> Message | None:
    return None if message is None else {name: part.copy() for name, part in message.items()}
