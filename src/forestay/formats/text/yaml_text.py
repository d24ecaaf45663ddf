"""YAML as data with positions: one document, bounded, restricted to JSON types.

Scalars are read as in YAML 1.2: ``no`` and ``on`` are strings, and so is ``1:30``. Duplicate keys and tags are refused. An alias counts as
much as the value it refers to, so that a small text cannot become a large value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from forestay.domain.flows.definition.flow_problem import FlowProblem, Place

MAX_BYTES = 512 * 1024
MAX_DEPTH = 40
MAX_NODES = 100_000

_NULL = re.compile(r"~|null|Null|NULL|")
_TRUE = re.compile(r"true|True|TRUE")
_FALSE = re.compile(r"false|False|FALSE")
_WHOLE = re.compile(r"[-+]?[0-9]{1,18}")
_REAL = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")


class Position(NamedTuple):
    """Both count from 1."""

    line: int
    column: int


@dataclass(slots=True)
class YamlDocument:
    """The contents of a YAML text and their positions."""

    value: object = None
    positions: dict[Place, Position] = field(default_factory=dict)
    findings: list[FlowProblem] = field(default_factory=list)

    def position(self, path: Place) -> Position:
        """The position of a path; for a missing one, where it should be."""
        while path and path not in self.positions:
            path = path[:-1]
        return self.positions.get(path, Position(1, 1))


class _Refused(ValueError):
    def __init__(self, position: Position, message: str) -> None:
        super().__init__(message)
        self.position = position
        self.message = message


@dataclass(slots=True)
class _YamlNode:
    at: Position
    value: object = None
    items: list[_YamlNode] | None = None
    pairs: list[tuple[_YamlNode, _YamlNode]] | None = None
    size: int = 1
    height: int = 1


def read_yaml(text: str, *, loader: Any = yaml.SafeLoader) -> YamlDocument:
    """Read a text; errors are in the findings, and then there is no value."""
    document = YamlDocument()
    try:
        node = _compose(text, loader)
    except _Refused as why:
        document.positions[()] = why.position
        document.findings.append(FlowProblem((), why.message))
        return document
    except yaml.YAMLError as why:
        mark = getattr(why, "problem_mark", None)
        document.positions[()] = _position(mark)
        problem = getattr(why, "problem", None) or "characters that are not allowed"
        document.findings.append(FlowProblem((), f"Invalid YAML: {problem}"))
        return document
    document.value = _plain(node, (), document)
    return document


def _compose(text: str, loader: Any) -> _YamlNode:
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise _Refused(Position(1, 1), f"the text is larger than {MAX_BYTES} bytes")
    root: list[_YamlNode] = []
    stack: list[tuple[_YamlNode, str | None]] = []
    anchors: dict[str, _YamlNode] = {}
    count = 0
    for event in _events(text, loader):
        at = _position(event.start_mark)
        node: _YamlNode | None = None
        match event:
            case yaml.DocumentStartEvent() if root:
                raise _Refused(at, "there is a second document; only one is allowed")
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                _no_tag(event.tag, at)
                if len(stack) >= MAX_DEPTH:
                    raise _Refused(at, f"it is nested more than {MAX_DEPTH} deep")
                mapping = isinstance(event, yaml.MappingStartEvent)
                stack.append((_YamlNode(at, pairs=[]) if mapping else _YamlNode(at, items=[]), event.anchor))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                node, anchor = stack.pop()
                if anchor:
                    anchors[anchor] = node
            case yaml.ScalarEvent():
                node = _YamlNode(at, _scalar(event, at))
                if event.anchor:
                    anchors[event.anchor] = node
                count += 1
            case yaml.AliasEvent():
                if event.anchor not in anchors:
                    raise _Refused(at, f"nothing before this is marked &{event.anchor}")
                node = anchors[event.anchor]
                count += node.size
            case _:
                continue
        if count > MAX_NODES:
            raise _Refused(at, f"there are more than {MAX_NODES} values in it")
        if node is not None and len(stack) + node.height > MAX_DEPTH:
            raise _Refused(at, f"it is nested more than {MAX_DEPTH} deep")
        if node is not None:
            _add(stack[-1][0] if stack else None, node, root)
    if not root:
        raise _Refused(Position(1, 1), "it is empty")
    return root[0]


def _position(mark: Any) -> Position:
    return Position(1, 1) if mark is None else Position(mark.line + 1, mark.column + 1)


def _events(text: str, loader: Any) -> Iterator[yaml.Event]:
    return iter(yaml.parse(text, Loader=loader))


def _no_tag(tag: str | None, at: Position) -> None:
    if tag is not None and tag not in ("!", "tag:yaml.org,2002:str"):
        raise _Refused(at, f"tags such as {tag} are not allowed")


def _scalar(event: yaml.ScalarEvent, at: Position) -> object:
    _no_tag(event.tag, at)
    text: str = event.value
    if event.style or event.tag is not None:
        return text
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text):
        return True
    if _FALSE.fullmatch(text):
        return False
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _REAL.fullmatch(text) else text


def _add(parent: _YamlNode | None, node: _YamlNode, root: list[_YamlNode]) -> None:
    if parent is None:
        root.append(node)
        return
    parent.size += node.size
    parent.height = max(parent.height, node.height + 1)
    if parent.items is not None:
        parent.items.append(node)
        return
    pairs = parent.pairs
    assert pairs is not None  # noqa: S101 - a parent is one of the two
    if pairs and pairs[-1][1] is _PENDING:
        pairs[-1] = (pairs[-1][0], node)
        return
    if node.items is not None or node.pairs is not None or not isinstance(node.value, str):
        raise _Refused(node.at, "a key must be a text; put it into quotes")
    if node.value == "<<":
        raise _Refused(node.at, "'<<' is not supported; write the fields out")
    for key, _ in pairs:
        if key.value == node.value:
            raise _Refused(node.at, f"{node.value!r} occurs twice; first in line {key.at.line}")
    pairs.append((node, _PENDING))


_PENDING = _YamlNode(Position(0, 0))


def _plain(node: _YamlNode, path: Place, document: YamlDocument) -> object:
    document.positions.setdefault(path, node.at)
    if node.items is not None:
        return [_plain(yaml_node, (*path, place), document) for place, yaml_node in enumerate(node.items)]
    if node.pairs is not None:
        plain: dict[str, object] = {}
        for key, value in node.pairs:
            here = (*path, str(key.value))
            document.positions[here] = key.at
            plain[str(key.value)] = _plain(value, here, document)
        return plain
    return node.value
