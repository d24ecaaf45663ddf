"""Job definitions in JSDL 1.0 as texts."""

from __future__ import annotations

from forestay_bpel.domain.jsdl.definition import JobDefinition
from forestay_bpel.domain.jsdl.reading import JsdlRefused, read_definition
from forestay_bpel.domain.jsdl.shapes import DocumentError
from forestay_bpel.domain.jsdl.writing import definition_element
from forestay_bpel.formats.xml_text import XmlRefused, read_xml, write_xml

__all__ = ["DocumentError", "JsdlRefused", "read_jsdl", "write_jsdl"]


def read_jsdl(text: str | bytes) -> JobDefinition:
    """Read a job definition; `JsdlRefused` with all errors and their lines."""
    try:
        return read_definition(read_xml(text))
    except XmlRefused as error:
        raise JsdlRefused((DocumentError(error.line, error.message),)) from error


def write_jsdl(job: JobDefinition) -> str:
    """A job definition as a text."""
    return write_xml(definition_element(job))
