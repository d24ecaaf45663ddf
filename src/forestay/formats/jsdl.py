"""Job definitions in JSDL 1.0 as texts."""

from __future__ import annotations

from forestay.domain.flows.jsdl.definition import JobDefinition
from forestay.domain.flows.jsdl.reading import JsdlRefused, read_definition
from forestay.domain.flows.jsdl.shapes import DocumentError
from forestay.domain.flows.jsdl.writing import definition_element
from forestay.formats.text.xml_text import XmlRefused, read_xml, write_xml

__all__ = ["DocumentError", "JsdlRefused", "read_jsdl", "write_jsdl"]


def read_jsdl(text: str | bytes) -> JobDefinition:
    """A job definition; `JsdlRefused` with everything that is wrong, each with its line."""
    try:
        return read_definition(read_xml(text))
    except XmlRefused as error:
        raise JsdlRefused((DocumentError(error.line, error.message),)) from error


def write_jsdl(job: JobDefinition) -> str:
    """A job definition as a text."""
    return write_xml(definition_element(job))
