"""Elements as texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from forestay_bpel.domain.xml_tree import XML, XmlElement


@dataclass(slots=True)
class _Writing:
    parts: list[str]
    indent: bool

    def element(self, element: XmlElement, known: Mapping[str, str], depth: int) -> None:
        fresh: dict[str, str] = {}
        for prefix, uri in element.namespaces.items():
            if known.get(prefix, "") != uri and prefix != "xml":
                fresh |= {prefix: uri}
        here = {**known, **fresh}
        for space in [
            element.space,
            *(attribute[1:].partition("}")[0] for attribute in element.attributes if attribute[0] == "{"),
        ]:
            if space and space != XML and space not in here.values():
                prefix = next(f"ns{n}" for n in range(len(here) + 1) if f"ns{n}" not in here)
                fresh[prefix] = here[prefix] = space
        if not element.space and here.get("", ""):
            fresh[""] = here[""] = ""
        for name in element.attributes:
            space = name[1:].partition("}")[0] if name[0] == "{" else ""
            if space and space != XML and not any(uri == space and prefix for prefix, uri in here.items()):
                prefix = next(f"ns{n}" for n in range(len(here) + 1) if f"ns{n}" not in here)
                fresh[prefix] = here[prefix] = space
        name = _prefixed(element.tag, here, attribute=False)
        self.parts.append(f"<{name}")
        for prefix, uri in fresh.items():
            self.parts.append(f" xmlns{':' if prefix else ''}{prefix}={quoteattr(uri)}")
        for key, value in element.attributes.items():
            self.parts.append(f" {_prefixed(key, here, attribute=True)}={_attribute(value)}")
        children = [child for child in element.children if not isinstance(child, str) or child]
        if not children:
            self.parts.append("/>")
            return
        self.parts.append(">")
        layout = (
            self.indent
            and all(isinstance(child, XmlElement) or not child.strip() for child in children)
            and element.elements
        )
        for child in children:
            if isinstance(child, XmlElement):
                if layout:
                    self.parts.append("\n" + "  " * (depth + 1))
                self.element(child, here, depth + 1)
            elif not layout:
                # Expat converts a lone carriage return to a line end, so an intended one must be escaped.
                self.parts.append(escape(child, {"\r": "&#13;"}))
        if layout:
            self.parts.append("\n" + "  " * depth)
        self.parts.append(f"</{name}>")


def write_xml(element: XmlElement, *, indent: bool = True) -> str:
    """An element as a text that `read_xml` reads back as the same."""
    writing = _Writing(['<?xml version="1.0" encoding="UTF-8"?>\n'], indent)
    writing.element(element, {}, 0)
    return "".join([*writing.parts, "\n"])


def _attribute(value: str) -> str:
    return quoteattr(value, {"\r": "&#13;", "\n": "&#10;", "\t": "&#9;"})


def _prefixed(tag: str, known: Mapping[str, str], *, attribute: bool) -> str:
    if not tag.startswith("{"):
        return tag
    space, _, local = tag[1:].partition("}")
    if space == XML:
        return f"xml:{local}"
    prefix = next(prefix_ for prefix_, uri in known.items() if uri == space and (prefix_ or not attribute))
    return f"{prefix}:{local}" if prefix else local
