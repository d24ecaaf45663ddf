"""XML as data with line numbers: one reader for every document that people and engines send.

It is made for untrusted texts. A document type is refused before anything in it is read, so that there are no entities but XML's
own five, nothing is fetched, and nothing expands; depth, size, elements and attributes are bounded while reading, not afterwards. The parser is
Expat, which is part of Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn
from xml.parsers import expat

from forestay_bpel.domain.xml_tree import XML, XmlElement
from forestay_bpel.domain.xml_writing import write_xml

__all__ = ["XmlRefused", "read_xml", "write_xml"]

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
MAX_ELEMENTS = 10_000
MAX_ATTRIBUTES = 64
MAX_VALUE = 65_536
"""Characters of one attribute's value."""
MAX_NAME = 1000
CHUNK = 32_768
MAX_TAG = 131_072
"""Bytes of one tag, comment or the like."""
XINCLUDE = "http://www.w3.org/2001/XInclude"
_ENCODINGS = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})
_LARGE = 256


class XmlRefused(ValueError):
    """A text is not XML, or not XML that is accepted here."""

    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(f"{line}:{column}: {message}")
        self.line = line
        self.column = column
        self.message = message


def read_xml(text: str | bytes, *, most: int = MAX_BYTES) -> XmlElement:
    """Read the document's element; `XmlRefused` with the line for anything else."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(data) > most:
        raise XmlRefused(1, 1, f"the text is larger than {most} bytes")
    if data.startswith((b"\xff\xfe", b"\xfe\xff", b"\x00<", b"<\x00")):
        raise XmlRefused(1, 1, "it is not in UTF-8")
    if data.count(b"<") > 4 * MAX_ELEMENTS:
        raise XmlRefused(1, 1, f"there are more than {MAX_ELEMENTS} elements in it")
    # A text is already decoded: the encoding in its first line no longer applies.
    return _XmlReading(from_text=isinstance(text, str)).read(data)


class _XmlReading:
    def __init__(self, *, from_text: bool) -> None:
        self.from_text = from_text
        # The encoding given here overrides the document's own declaration.
        self.parser = parser = expat.ParserCreate("utf-8", namespace_separator=" ")
        parser.buffer_text = True
        parser.StartElementHandler = self.start
        parser.EndElementHandler = self.end
        parser.CharacterDataHandler = self.characters
        parser.StartNamespaceDeclHandler = self.prefix
        parser.XmlDeclHandler = self.declared
        parser.StartDoctypeDeclHandler = self.doctype
        parser.EntityDeclHandler = self.entity
        parser.ExternalEntityRefHandler = self.external
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        self.stack: list[XmlElement] = []
        self.root: XmlElement | None = None
        self.count = 0
        self.spaces: Mapping[str, str] = {"xml": XML}
        self.fresh: dict[str, str] = {}

    def read(self, data: bytes) -> XmlElement:
        try:
            # Piece by piece, so that an endless tag is refused before all of it is collected.
            for begin in range(0, len(data), CHUNK):
                self.parser.Parse(data[begin : begin + CHUNK], False)  # noqa: FBT003 - expat takes it so
                if begin + CHUNK - self.parser.CurrentByteIndex > MAX_TAG:
                    self.refuse(f"a tag is longer than {MAX_TAG} bytes")
            self.parser.Parse(b"", True)  # noqa: FBT003
        except expat.ExpatError as error:
            message = f"invalid XML: {expat.ErrorString(error.code)}"
            raise XmlRefused(error.lineno, error.offset + 1, message) from None
        if self.root is None:
            raise XmlRefused(1, 1, "it is empty")
        return self.root

    def refuse(self, message: str) -> NoReturn:
        raise XmlRefused(self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber + 1, message)

    def declared(self, version: str, encoding: str | None, standalone: int) -> None:
        if version != "1.0":
            self.refuse("only XML 1.0 is read")
        if encoding is not None and not self.from_text and encoding.lower() not in _ENCODINGS:
            self.refuse(f"the encoding {encoding[:40]} is not read; write it in UTF-8")

    def doctype(self, *_: object) -> None:
        self.refuse("a document type (<!DOCTYPE) is refused: no entities, no fetching")

    def entity(self, *_: object) -> None:
        self.refuse("entities are refused")

    def external(self, *_: object) -> int:
        self.refuse("external entities are refused")

    def prefix(self, prefix: str | None, uri: str | None) -> None:
        self.fresh[prefix or ""] = uri or ""
        if uri and set(uri) & set("{} "):
            self.refuse("a namespace with braces or blanks is refused")
        if len(self.fresh) > MAX_ATTRIBUTES:
            self.refuse(f"an element has more than {MAX_ATTRIBUTES} attributes")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.count += 1
        if self.count > MAX_ELEMENTS:
            self.refuse(f"there are more than {MAX_ELEMENTS} elements in it")
        if len(self.stack) >= MAX_DEPTH:
            self.refuse(f"it is nested more than {MAX_DEPTH} deep")
        if len(attributes) > MAX_ATTRIBUTES:
            self.refuse(f"an element has more than {MAX_ATTRIBUTES} attributes")
        if self.fresh:
            known = {**(self.stack[-1].namespaces if self.stack else self.spaces), **self.fresh}
            if len(known) > _LARGE:
                self.refuse(f"more than {_LARGE} namespaces are in scope")
            self.fresh = {}
        else:
            known = self.stack[-1].namespaces if self.stack else self.spaces  # type: ignore[assignment]
        for key, value in attributes.items():
            if len(value) > MAX_VALUE or len(key) > MAX_NAME:
                self.refuse(f"an attribute is longer than {MAX_VALUE} characters")
        tag = _clark(name)
        if len(tag) > MAX_NAME:
            self.refuse(f"a name is longer than {MAX_NAME} characters")
        if tag.startswith(f"{{{XINCLUDE}}}"):
            self.refuse("XInclude is refused: nothing is fetched")
        named = {_clark(key): value for key, value in attributes.items()}
        element = XmlElement(tag, named, line=self.parser.CurrentLineNumber, namespaces=known)
        if self.stack:
            self.stack[-1].append(element)
        else:
            self.root = element
        self.stack.append(element)

    def end(self, name: str) -> None:
        self.stack.pop()

    def characters(self, data: str) -> None:
        if self.stack:
            self.stack[-1].append(data)


def _clark(name: str) -> str:
    space, sign, local = name.rpartition(" ")
    return f"{{{space}}}{local}" if sign else name
