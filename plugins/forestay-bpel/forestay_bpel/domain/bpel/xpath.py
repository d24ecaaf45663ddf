"""XPath 1.0 over elements. Every visited node is counted, so that no expression runs for long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from forestay_bpel.domain.bpel.xpath_functions import ARITHMETIC, COMPARE, FUNCTIONS, OF_CONTEXT
from forestay_bpel.domain.bpel.xpath_grammar import (
    Expr,
    Filter,
    Negative,
    Number,
    Operation,
    Path,
    XPathCall,
    XPathLiteral,
    XPathStep,
    XPathVariable,
    parse_xpath,
)
from forestay_bpel.domain.bpel.xpath_values import (
    Attribute,
    Functions,
    Lookup,
    Node,
    Root,
    Text,
    Value,
    XPathFailed,
    boolean,
    number,
    string,
)
from forestay_bpel.domain.xml_tree import XmlElement

MAX_NODES = 50_000
"""The most nodes that one evaluation may visit."""
MAX_TEXT = 1 << 20
BPEL = "http://docs.oasis-open.org/wsbpel/2.0/process/executable"


@dataclass(frozen=True, slots=True)
class XPath:
    """An expression, ready to be evaluated."""

    text: str
    tree: Expr

    def evaluate(self, variables: Lookup, *, node: Node | None = None, functions: Functions | None = None) -> Value:
        try:
            return _Evaluation(variables, functions or {}).value(self.tree, _Context(node, 1, 1))
        except RecursionError:
            raise XPathFailed("an expression is nested too deep") from None


def compile_xpath(text: str, namespaces: Mapping[str, str]) -> XPath:
    """Compile an expression; `XPathRefused` if it is invalid."""
    return _compiled(text, tuple(sorted(namespaces.items())))


@lru_cache(maxsize=2000)
def _compiled(text: str, namespaces: tuple[tuple[str, str], ...]) -> XPath:
    return XPath(text, parse_xpath(text, dict(namespaces)))


@dataclass(frozen=True, slots=True)
class _Context:
    node: Node | None
    position: int
    size: int


class _Evaluation:
    def __init__(self, variables: Lookup, functions: Functions) -> None:
        self.variables = variables
        self.functions = functions
        self.left = MAX_NODES
        self.keys: dict[int, tuple[int, ...]] = {}
        self.trees: dict[int, int] = {}

    def spend(self, amount: int = 1) -> None:
        self.left -= amount
        if self.left < 0:
            raise XPathFailed(f"an expression may visit at most {MAX_NODES} nodes")

    def value(self, tree: Expr, here: _Context) -> Value:
        self.spend()
        match tree:
            case Number(value):
                return value
            case XPathLiteral(value):
                return value
            case XPathVariable(name):
                return self.variables(name)
            case Negative(inner):
                return -number(self.value(inner, here))
            case Operation(sign, left, right):
                return self.operation(sign, left, right, here)
            case XPathCall(space, name, arguments):
                return self.call(space, name, arguments, here)
            case Filter(inner, predicates):
                nodes = self.nodes(self.value(inner, here))
                for predicate in predicates:
                    nodes = self.kept(nodes, predicate)
                return nodes
            case Path(absolute, start, steps):
                return self.path(absolute, start, steps, here)

    @staticmethod
    def nodes(value: Value) -> list[Node]:
        if not isinstance(value, list):
            raise XPathFailed("a set of nodes was expected")
        return value

    # Paths

    def path(self, absolute: bool, start: Expr | None, steps: Sequence[XPathStep], here: _Context) -> list[Node]:  # noqa: FBT001
        if start is not None:
            nodes = self.nodes(self.value(start, here))
        elif here.node is None:
            raise XPathFailed("there is no context node; start with a variable")
        else:
            nodes = [self.root(here.node)] if absolute else [here.node]
        for step in steps:
            nodes = self.step(nodes, step)
        return nodes

    @staticmethod
    def root(node: Node) -> Node:
        top: XmlElement | Root = node.parent if isinstance(node, Text | Attribute) else node
        while isinstance(top, XmlElement) and top.parent is not None:
            top = top.parent
        return Root(top) if isinstance(top, XmlElement) else top

    def step(self, nodes: list[Node], step: XPathStep) -> list[Node]:
        out: list[Node] = []
        for node in nodes:
            matching_nodes = [other_node for other_node in self.axis(node, step.axis) if self.fits(other_node, step)]
            for predicate in step.predicates:
                matching_nodes = self.kept(matching_nodes, predicate)
            out += matching_nodes
        return self.ordered(out) if len(nodes) > 1 or step.axis in _BACKWARD else out

    def kept(self, nodes: list[Node], predicate: Expr) -> list[Node]:
        out: list[Node] = []
        for place, node in enumerate(nodes, 1):
            value = self.value(predicate, _Context(node, place, len(nodes)))
            if value == place if isinstance(value, float) and not isinstance(value, bool) else boolean(value):
                out.append(node)
        return out

    def fits(self, node: Node, step: XPathStep) -> bool:
        test = step.test
        if test == "node()":
            return True
        if test == "text()":
            return isinstance(node, Text)
        if test.endswith("()") or isinstance(node, Text | Root):
            return False
        if isinstance(node, Attribute) != (step.axis == "attribute"):
            return False
        if test == "*":
            return True
        return node.tag.startswith(test[:-1]) if test.endswith("}*") else node.tag == test

    def axis(self, node: Node, axis: str) -> list[Node]:
        nodes = self._axis(node, axis)
        self.spend(len(nodes))
        return nodes

    def _axis(self, node: Node, axis: str) -> list[Node]:
        match axis:
            case "self":
                return [node]
            case "child":
                return _children(node)
            case "attribute":
                return (
                    [Attribute(node, attribute) for attribute in node.attributes]
                    if isinstance(node, XmlElement)
                    else []
                )
            case "parent":
                above = _parent(node)
                return [above] if above is not None else []
            case "ancestor" | "ancestor-or-self":
                return ([node] if axis == "ancestor-or-self" else []) + self.ancestors(node)
            case "descendant":
                return self.descendants(node)
            case "descendant-or-self":
                return [node, *self.descendants(node)]
            case "following-sibling" | "preceding-sibling":
                return _siblings(node, after=axis == "following-sibling")
        around = [node, *self.ancestors(node)]
        out: list[Node] = []
        for other_node in around:
            for sibling in _siblings(other_node, after=axis == "following"):
                inner = [sibling, *self.descendants(sibling)]
                out += inner if axis == "following" else reversed(inner)
        return out

    def ancestors(self, node: Node) -> list[Node]:
        out: list[Node] = []
        above = _parent(node)
        while above is not None:
            out.append(above)
            above = _parent(above)
        return out

    def descendants(self, node: Node) -> list[Node]:
        out: list[Node] = []
        waiting = list(reversed(_children(node)))
        while waiting:
            returned_node = waiting.pop()
            self.spend()
            out.append(returned_node)
            waiting.extend(reversed(_children(returned_node)))
        return out

    def ordered(self, nodes: list[Node]) -> list[Node]:
        """In the order of the document, each once."""
        known = {self.key(node): node for node in nodes}
        return [known[key] for key in sorted(known)]

    def key(self, node: Node) -> tuple[int, ...]:
        match node:
            case Root():
                return (self.tree(node.child),)
            case Text(parent, place):
                return (*self.key(parent), 1, place)
            case Attribute(parent, tag):
                return (*self.key(parent), 0, list(parent.attributes).index(tag))
        if id(node) not in self.keys:
            above = node.parent
            if above is None:
                self.keys[id(node)] = (self.tree(node), 0)
            else:
                key = self.key(above)
                for place, child in enumerate(above.children):
                    self.spend()
                    if isinstance(child, XmlElement):
                        self.keys[id(child)] = (*key, 1, place)
        return self.keys[id(node)]

    def tree(self, top: XmlElement) -> int:
        """Trees in the order in which they are met: the same in every replay."""
        return self.trees.setdefault(id(top), len(self.trees))

    # Operators and functions

    def operation(self, sign: str, left: Expr, right: Expr, here: _Context) -> Value:
        value = self.value(left, here)
        if sign == "or":
            return boolean(value) or boolean(self.value(right, here))
        if sign == "and":
            return boolean(value) and boolean(self.value(right, here))
        other = self.value(right, here)
        if sign == "|":
            return self.ordered([*self.nodes(value), *self.nodes(other)])
        if sign in COMPARE:
            return self.compare(sign, value, other)
        return ARITHMETIC[sign](number(value), number(other))

    def compare(self, sign: str, left: Value, other: Value) -> bool:
        if isinstance(left, list) and isinstance(other, list):
            self.spend(len(left) * max(1, len(other)))
            return any(self.compare(sign, a.text, b.text) for a in left for b in other)
        if isinstance(left, list) and not isinstance(other, bool):
            self.spend(len(left))
            return any(self.compare(sign, a.text, other) for a in left)
        if isinstance(other, list) and not isinstance(left, bool):
            self.spend(len(other))
            return any(self.compare(sign, left, b.text) for b in other)
        if sign in ("=", "!="):
            if isinstance(left, bool) or isinstance(other, bool):
                same = boolean(left) == boolean(other)
            elif isinstance(left, float) or isinstance(other, float):
                same = number(left) == number(other)
            else:
                same = string(left) == string(other)
            return same == (sign == "=")
        return COMPARE[sign](number(left), number(other))

    def call(self, space: str, name: str, arguments: Sequence[Expr], here: _Context) -> Value:
        if not space and name == "position" and not arguments:
            return float(here.position)
        if not space and name == "last" and not arguments:
            return float(here.size)
        values = [self.value(argument, here) for argument in arguments]
        own = self.functions.get((space, name))
        if own is not None:
            return own(values)
        known = FUNCTIONS.get(name) if not space else None
        if known is None:
            raise XPathFailed(f"there is no function {name} here")
        least, most, function = known
        if not least <= len(values) <= most:
            raise XPathFailed(f"{name} takes {least} to {most} arguments, not {len(values)}")
        if not values and name in OF_CONTEXT:
            if here.node is None:
                raise XPathFailed(f"{name}() needs a node")
            values = [[here.node]]
        found_function = function(values)
        if isinstance(found_function, str):
            self.spend(len(found_function) // 100)
            if len(found_function) > MAX_TEXT:
                raise XPathFailed(f"a text of more than {MAX_TEXT} characters")
        return found_function


_BACKWARD = frozenset({"parent", "ancestor", "ancestor-or-self", "preceding", "preceding-sibling"})


def _children(node: Node) -> list[Node]:
    if isinstance(node, Root):
        return [node.child]
    if not isinstance(node, XmlElement):
        return []
    return [Text(node, place) if isinstance(child, str) else child for place, child in enumerate(node.children)]


def _parent(node: Node) -> Node | None:
    return None if isinstance(node, Root) else node.parent


def _siblings(node: Node, *, after: bool) -> list[Node]:
    above = _parent(node)
    if above is None or isinstance(node, Attribute) or not isinstance(above, XmlElement):
        return []
    every = _children(above)
    at = node.place if isinstance(node, Text) else next(place for place, sibling in enumerate(every) if sibling is node)
    return every[at + 1 :] if after else list(reversed(every[:at]))
