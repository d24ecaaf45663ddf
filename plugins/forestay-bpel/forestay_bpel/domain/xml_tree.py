"""An XML element as data: what JSDL documents, BPEL processes and the messages between them are made of.

Names are written ``{namespace}local``, or ``local`` without a namespace. An element knows its line, so that errors can be
reported with the position.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

NO_NAMESPACES: Mapping[str, str] = {}
XML = "http://www.w3.org/XML/1998/namespace"


class XmlElement:
    """One element: its name, attributes, children (elements and texts), and the namespaces in scope."""

    __slots__ = ("attributes", "children", "line", "namespaces", "parent", "tag")

    def __init__(
        self,
        tag: str,
        attributes: Mapping[str, str] | None = None,
        children: Sequence[XmlElement | str] = (),
        *,
        line: int = 0,
        namespaces: Mapping[str, str] = NO_NAMESPACES,
    ) -> None:
        self.tag = tag
        self.attributes: dict[str, str] = dict(attributes or {})
        self.children: list[XmlElement | str] = []
        self.line = line
        self.namespaces = namespaces
        self.parent: XmlElement | None = None
        for child in children:
            self.append(child)

    def append(self, child: XmlElement | str) -> None:
        if isinstance(child, XmlElement):
            child.parent = self
        self.children.append(child)

    @property
    def name(self) -> str:
        """The local name."""
        return self.tag.rpartition("}")[2]

    @property
    def space(self) -> str:
        """The namespace; empty for none."""
        return self.tag[1:].rpartition("}")[0] if self.tag.startswith("{") else ""

    @property
    def elements(self) -> list[XmlElement]:
        return [child for child in self.children if isinstance(child, XmlElement)]

    @property
    def text(self) -> str:
        """All text inside, as XPath's string-value."""
        parts: list[str] = []
        waiting: list[XmlElement | str] = [self]
        while waiting:
            node = waiting.pop()
            if isinstance(node, str):
                parts.append(node)
            else:
                waiting.extend(reversed(node.children))
        return "".join(parts)

    def child(self, tag: str) -> XmlElement | None:
        """The first child with this name."""
        return next((element for element in self.elements if element.tag == tag), None)

    def each(self, tag: str) -> Iterator[XmlElement]:
        return (element for element in self.elements if element.tag == tag)

    def get(self, name: str, otherwise: str = "") -> str:
        return self.attributes.get(name, otherwise)

    def qname(self, text: str) -> str:
        """A name written with a prefix, such as an attribute's value, in full. An unknown prefix stays as it is."""
        prefix, sign, local = text.strip().rpartition(":")
        space = self.namespaces.get(prefix if sign else "", "")
        return f"{{{space}}}{local}" if space else text.strip()

    def full_name(self, attribute: str) -> str:
        """The expanded name in an attribute; empty if there is none."""
        text = self.get(attribute)
        return self.qname(text) if text else ""

    def copy(self) -> XmlElement:
        """A copy that shares nothing that changes."""
        out = XmlElement(self.tag, self.attributes, line=self.line, namespaces=self.namespaces)
        for child in self.children:
            out.append(child if isinstance(child, str) else child.copy())
        return out

    def fill(self, other: XmlElement) -> None:
        """Replace attributes and children by those of another element; the name stays."""
        self.attributes = dict(other.attributes)
        self.namespaces = {**other.namespaces, **self.namespaces}
        self.children = []
        for child in other.children:
            self.append(child if isinstance(child, str) else child.copy())

    def set_text(self, text: str) -> None:
        self.children = [text] if text else []

    def same(self, other: XmlElement) -> bool:
        """Whether both have the same content; whitespace between elements, lines and prefixes are ignored."""
        return self.canonical() == other.canonical()

    def canonical(self) -> tuple[Any, ...]:
        parts: list[Any] = []
        mixed = any(isinstance(child, str) and child.strip() for child in self.children)
        for child in self.children:
            if isinstance(child, XmlElement):
                parts.append(child.canonical())
            elif child and (mixed or not self.elements):
                if parts and isinstance(parts[-1], str):
                    parts[-1] += child
                else:
                    parts.append(child)
        return (self.tag, tuple(sorted(self.attributes.items())), tuple(parts))

    def __repr__(self) -> str:
        return f"<{self.name} line {self.line}>"


def as_plain(element: XmlElement) -> list[Any]:
    """An element as JSON types. Namespaces are given where they change."""
    return _plain(element, NO_NAMESPACES)


def _plain(element: XmlElement, known: Mapping[str, str]) -> list[Any]:
    spaces = dict(element.namespaces) if element.namespaces != known else None
    inner = [child if isinstance(child, str) else _plain(child, element.namespaces) for child in element.children]
    return [element.tag, element.attributes, element.line, spaces, inner]


def from_plain(plain: Sequence[Any], known: Mapping[str, str] = NO_NAMESPACES) -> XmlElement:
    tag, attributes, line, spaces, inner = plain
    here = known if spaces is None else spaces
    children = [child if isinstance(child, str) else from_plain(child, here) for child in inner]
    return XmlElement(tag, attributes, children, line=line, namespaces=here)
