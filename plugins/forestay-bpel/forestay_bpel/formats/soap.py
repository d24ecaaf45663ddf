"""SOAP 1.1 envelopes, as far as the job service needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from forestay_bpel.domain.bpel.services import JOBS
from forestay_bpel.domain.xml_tree import XmlElement
from forestay_bpel.formats.xml_text import XmlRefused, read_xml, write_xml

SOAP = "http://schemas.xmlsoap.org/soap/envelope/"
WSA = "http://www.w3.org/2005/08/addressing"
_SPACES = {"soap": SOAP, "j": JOBS}
COMPLETED = frozenset({"completed", "forced_complete"})
FINAL = COMPLETED | {"failed", "cancelled"}


@dataclass(frozen=True, slots=True)
class SoapRequest:
    """A request: the operation's element, and the message's id if it has one."""

    body: XmlElement
    message: str = ""


class SoapRefused(ValueError):
    """The text is not a SOAP 1.1 envelope with one element in its body."""


def read_request(data: bytes) -> SoapRequest:
    """`SoapRefused`."""
    try:
        envelope = read_xml(data)
    except XmlRefused as error:
        raise SoapRefused(str(error)) from error
    body = envelope.child(f"{{{SOAP}}}Body") if envelope.tag == f"{{{SOAP}}}Envelope" else None
    if body is None or len(body.elements) != 1:
        raise SoapRefused("expected a SOAP 1.1 envelope with one element in its body")
    header = envelope.child(f"{{{SOAP}}}Header")
    for element in header.elements if header is not None else ():
        if element.get(f"{{{SOAP}}}mustUnderstand") == "1" and element.space != WSA:
            raise SoapRefused(f"the header {element.name} is not understood")
    named = header.child(f"{{{WSA}}}MessageID") if header is not None else None
    return SoapRequest(body.elements[0], named.text.strip() if named is not None else "")


def envelope(body: XmlElement) -> str:
    """An envelope with one element in its body."""
    inner = XmlElement(f"{{{SOAP}}}Body", {}, [body], namespaces=_SPACES)
    return write_xml(XmlElement(f"{{{SOAP}}}Envelope", {}, [inner], namespaces=_SPACES), indent=False)


def fault(text: str, *, theirs: bool, name: str = "") -> str:
    """A fault; ``theirs``: the request caused it. With a name a process can distinguish it."""
    parts = [
        XmlElement("faultcode", {}, ["soap:Client" if theirs else "soap:Server"]),
        XmlElement("faultstring", {}, [text[:1000]]),
    ]
    if name:
        parts.append(XmlElement("detail", {}, [XmlElement(f"{{{JOBS}}}{name}", {}, [text[:1000]], namespaces=_SPACES)]))
    return envelope(XmlElement(f"{{{SOAP}}}Fault", {}, parts, namespaces=_SPACES))


def job_element(name: str, **fields: object) -> XmlElement:
    """An element of the job service."""
    children = [
        XmlElement(f"{{{JOBS}}}{key}", {}, [str(value)], namespaces=_SPACES)
        for key, value in fields.items()
        if value is not None
    ]
    return XmlElement(f"{{{JOBS}}}{name}", {}, children, namespaces=_SPACES)


def state_shown(state: str) -> str:
    """The state that a process sees: a job that is being recovered is running."""
    return "completed" if state in COMPLETED else "failed" if state in FINAL else "running"


def notification(facts: Mapping[str, object]) -> str:
    """The envelope that reports a job's end, from the content of a callback."""
    state = state_shown(str(facts["state"]))
    return envelope(job_element("notify", jobId=facts["job"], state=state, exitCode=facts.get("exit_code")))
