"""Copies of an assign: all of them, or none."""

from __future__ import annotations

import re

from forestay_bpel.domain.bpel.process import Assign, Copy, FromSpec, ToSpec
from forestay_bpel.domain.bpel.xpath_values import Attribute, Node, Root, Text, Value, string
from forestay_bpel.domain.xml_tree import XmlElement
from forestay_bpel.interpreter.host import WHOLE, Fault, Message, standard_fault
from forestay_bpel.interpreter.scopes import Running, ScopeVariable, Values, copied

_SERVICE = "{http://docs.oasis-open.org/wsbpel/2.0/serviceref}service-ref"
_ADDRESSING = "http://www.w3.org/2005/08/addressing"
_VARIABLE = re.compile(r"\$\s*([\w-]+)")
Whole = Message
"""A value that is a whole message."""


class Assigning:
    """Carries out assigns."""

    def __init__(self, values: Values) -> None:
        self.values = values

    def assign(self, at: Running, assign: Assign) -> None:
        """Carry out every copy, or none: a fault restores all variables and partner links."""
        before: dict[int, tuple[ScopeVariable, Message | None]] = {}
        partners = [(at.home_of_partner(copy.to.partner), copy.to.partner) for copy in assign.copies if copy.to.partner]
        addresses = [(home, name, home.addresses.get(name, "")) for home, name in partners]
        for copy in assign.copies:
            for name in self.targets(copy.to):
                if at.has(name):
                    held = at.find(name)
                    before.setdefault(id(held), (held, copied(held.value)))
        try:
            for copy in assign.copies:
                self.copy(at, copy)
        except Fault as fault:
            fault.line = fault.line or assign.std.line
            for held, value in before.values():
                held.value = value
            for home, name, address in addresses:
                home.addresses[name] = address
            raise

    @staticmethod
    def targets(to: ToSpec) -> list[str]:
        if to.variable:
            return [to.variable]
        if to.expression is None:
            return []
        return _VARIABLE.findall(to.expression.xpath.text)

    def first(self, at: Running, held: ScopeVariable, from_spec: FromSpec) -> None:
        """The initial value of a variable."""
        value = self.from_(at, from_spec)
        if value is not None:
            self.store(held, WHOLE, value, keep_name=False)

    def copy(self, at: Running, copy: Copy) -> None:
        try:
            value = self.from_(at, copy.from_)
        except Fault as fault:
            if copy.ignore_missing and fault.name.endswith("}selectionFailure"):
                return
            fault.line = fault.line or copy.from_.line
            raise
        if value is None:
            if copy.ignore_missing:
                return
            raise standard_fault("selectionFailure", "there is nothing to copy", copy.from_.line)
        self.to(at, copy, value)

    # Sources

    def from_(self, at: Running, from_spec: FromSpec) -> XmlElement | str | Whole | None:
        if from_spec.literal is not None:
            inner = from_spec.literal.elements
            return inner[0].copy() if inner else from_spec.literal.text
        if from_spec.partner:
            return _reference(at.home_of_partner(from_spec.partner).addresses.get(from_spec.partner, ""))
        if from_spec.expression is not None:
            return self.one(self.values.value(at, from_spec.expression))
        if not from_spec.variable:
            return ""
        held = at.find(from_spec.variable)
        if held.value is None:
            raise standard_fault("uninitializedVariable", from_spec.variable, from_spec.line)
        if from_spec.property:
            return self.values.property(held.value, from_spec.property)
        if not from_spec.part and not from_spec.query and WHOLE not in held.value:
            return copied(held.value) or {}
        part = held.part(from_spec.part)
        if part is None:
            raise standard_fault("uninitializedVariable", f"{from_spec.variable}.{from_spec.part}", from_spec.line)
        if from_spec.query is None:
            return part.copy()
        return self.one(self.values.value(at, from_spec.query, node=part))

    @staticmethod
    def one(value: Value) -> XmlElement | str:
        if not isinstance(value, list):
            return string(value)
        if len(value) != 1:
            raise standard_fault("selectionFailure", f"{len(value)} nodes; expected one")
        node = value[0]
        return node.copy() if isinstance(node, XmlElement) else node.text

    # Targets

    def to(self, at: Running, copy: Copy, value: XmlElement | str | Whole) -> None:
        to = copy.to
        if to.partner:
            at.home_of_partner(to.partner).addresses[to.partner] = _address(value)
            return
        if to.expression is not None:
            self.to_expression(at, copy, value)
            return
        held = at.find(to.variable)
        if to.property:
            node = self.values.property_node(held.value or {}, to.property)
            if node is None:
                raise standard_fault("selectionFailure", "the message has no such property", to.line)
            self.replace(node, value, keep_name=False)
        elif to.query is not None:
            part = held.part(to.part)
            if part is None:
                raise standard_fault("uninitializedVariable", to.variable, to.line)
            self.into(self.values.value(at, to.query, node=part), value, copy)
        else:
            self.store(held, to.part, value, keep_name=copy.keep_name)

    def to_expression(self, at: Running, copy: Copy, value: XmlElement | str | Whole) -> None:
        expression = copy.to.expression
        assert expression is not None  # noqa: S101 - the caller looked
        text = expression.xpath.text.strip()
        name = text[1:]
        # A variable, or a part of one, without a value can be assigned as a whole.
        if text.startswith("$") and all(char.isalnum() or char in "_-." for char in name):
            variable, _, part = name.partition(".")
            if at.has(variable):
                self.store(at.find(variable), part, value, keep_name=copy.keep_name)
                return
        self.into(self.values.value(at, expression), value, copy)

    def into(self, place: Value, value: XmlElement | str | Whole, copy: Copy) -> None:
        if not isinstance(place, list) or len(place) != 1:
            count = len(place) if isinstance(place, list) else 0
            raise standard_fault("selectionFailure", f"{count} targets; expected one", copy.to.line)
        self.replace(place[0], value, keep_name=copy.keep_name)

    def store(self, held: ScopeVariable, part: str, value: XmlElement | str | Whole, *, keep_name: bool) -> None:
        """Assign a value to a variable, or to a part of it."""
        if isinstance(value, dict):
            if part or (not held.is_message and WHOLE not in value):
                raise standard_fault(
                    "mismatchedAssignmentFailure", f"a message cannot be assigned to {held.declared.name}"
                )
            held.value = value
            return
        if not held.is_message:
            if part:
                raise standard_fault("mismatchedAssignmentFailure", f"{held.declared.name} has no parts")
            root = held.value.get(WHOLE) if held.value else None
            if root is None:
                root = XmlElement(held.tag())
            fresh = root.copy()
            self.replace(fresh, value, keep_name=keep_name or (not held.declared.type and not held.declared.element))
            held.value = {WHOLE: fresh}
            return
        if not part:
            known = list(held.value or {})
            if len(known) != 1:
                raise standard_fault("mismatchedAssignmentFailure", f"say which part of {held.declared.name}")
            part = known[0]
        old = (held.value or {}).get(part)
        if isinstance(value, XmlElement) and (old is None or old.name == part or keep_name):
            fresh = value.copy()
        else:
            fresh = old.copy() if old is not None else XmlElement(part)
            self.replace(fresh, value, keep_name=keep_name)
        held.value = {**(held.value or {}), part: fresh}

    @staticmethod
    def replace(node: Node, value: XmlElement | str | Whole, *, keep_name: bool) -> None:
        if isinstance(value, dict):
            raise standard_fault("mismatchedAssignmentFailure", "a message does not fit into an element")
        text = value if isinstance(value, str) else value.text
        match node:
            case XmlElement():
                if isinstance(value, XmlElement):
                    node.fill(value)
                    if keep_name:
                        node.tag = value.tag
                else:
                    node.set_text(text)
            case Attribute(parent, tag):
                parent.attributes[tag] = text
            case Text(parent, place):
                parent.children[place] = text
            case Root(child):
                child.set_text(text)


def _reference(address: str) -> XmlElement:
    """An endpoint reference as a process sees it; empty if a partner has no address."""
    if not address:
        return XmlElement(_SERVICE)
    inner = XmlElement(f"{{{_ADDRESSING}}}Address", {}, [address])
    return XmlElement(_SERVICE, {}, [XmlElement(f"{{{_ADDRESSING}}}EndpointReference", {}, [inner])])


def _address(value: XmlElement | str | Whole) -> str:
    """The address in an endpoint reference, at whatever depth; empty if it has none."""
    if not isinstance(value, XmlElement):
        return ""
    if value.name == "Address":
        return value.text.strip()
    return next(filter(None, (_address(child) for child in value.elements)), "")
