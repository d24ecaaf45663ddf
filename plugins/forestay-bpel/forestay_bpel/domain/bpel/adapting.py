"""The flow adapter: at the invoke points of a process the calls go to a proxy, by standard constructs only.

Each invoke of a monitored partner becomes a scope with a partner link of its own, of the same type, that represents the proxy. If the proxy reports that
it cannot be used, the original invoke is done instead. So any engine can run the result, and nothing changes if nothing fails.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from forestay_bpel.domain.bpel.xpath import BPEL
from forestay_bpel.domain.xml_tree import XmlElement

PROXY = "urn:forestay:proxy"
PREFIX = "forestay."
"""The prefix of a partner link's name for the proxy that replaces it."""
AWAY = "forestayAway"
SCHEMA = "http://www.w3.org/2001/XMLSchema"
SREF = "http://docs.oasis-open.org/wsbpel/2.0/serviceref"
WSA = "http://www.w3.org/2005/08/addressing"
_STANDARD = ("targets", "sources")
_HANDLERS = ("catch", "catchAll", "compensationHandler")


@dataclass(slots=True)
class Adapted:
    """The adapted process, and how many invokes go through the proxy."""

    root: XmlElement
    count: int = 0


def adapt(root: XmlElement, *, links: Collection[str] = (), address: str = "") -> Adapted:
    """Adapt a process. ``links``: only these partner links; ``address``: the proxy's address, if it is not configured in the engine at deployment."""
    out = Adapted(root.copy())
    _Adapter(out, frozenset(links), address).walk(out.root, {})
    return out


class _Adapter:
    def __init__(self, out: Adapted, links: frozenset[str], address: str) -> None:
        self.out = out
        self.links = links
        self.address = address

    def walk(self, element: XmlElement, known: dict[str, XmlElement]) -> None:
        declared = element.child(_b("partnerLinks"))
        if declared is not None:
            known = known | {xml_element.get("name"): xml_element for xml_element in declared.elements}
        for place, child in enumerate(element.children):
            if not isinstance(child, XmlElement):
                continue
            self.walk(child, known)
            if child.tag == _b("invoke") and self.monitored(child, known):
                fresh = self.scope(child, known[child.get("partnerLink")])
                fresh.parent = element
                element.children[place] = fresh
                self.out.count += 1

    def monitored(self, invoke: XmlElement, known: dict[str, XmlElement]) -> bool:
        link = invoke.get("partnerLink")
        return link in known and not link.startswith(PREFIX) and (not self.links or link in self.links)

    def scope(self, invoke: XmlElement, link: XmlElement) -> XmlElement:
        standard = [element for element in invoke.elements if element.space == BPEL and element.name in _STANDARD]
        handling = [element for element in invoke.elements if element.space == BPEL and element.name in _HANDLERS]
        plain = invoke.copy()
        plain.children = [
            child
            for child in plain.children
            if not (isinstance(child, XmlElement) and child.name in (*_STANDARD, *_HANDLERS))
        ]
        named = {key: value for key, value in invoke.attributes.items() if key in ("name", "suppressJoinFailure")}
        inner = self.intercepted(plain, link)
        if not handling:
            inner.attributes |= named
            inner.children = [*standard, *inner.children]
            return _parented(inner)
        outer = self.new("scope", named)
        faults = self.new("faultHandlers")
        faults.children = [element for element in handling if element.name != "compensationHandler"]
        undo = [element for element in handling if element.name == "compensationHandler"]
        outer.children = [*standard, *([faults] if faults.children else []), *undo, inner]
        return _parented(outer)

    def intercepted(self, invoke: XmlElement, link: XmlElement) -> XmlElement:
        """The scope around one call."""
        proxy = PREFIX + invoke.get("partnerLink")
        kept = {key: link.get(key) for key in ("partnerLinkType", "partnerRole") if link.get(key)}
        links = self.new("partnerLinks", {}, self.new("partnerLink", {"name": proxy, **kept}))
        for element in links.elements:
            # The type is written with a prefix of the place where the link was declared.
            element.namespaces = {**self.out.root.namespaces, **link.namespaces}
        call = invoke.copy()
        call.attributes["partnerLink"] = proxy
        inner: XmlElement = call
        if self.address:
            inner = self.new("sequence", {}, self.assign(proxy), call)
        away = self.new(
            "variable", {"name": AWAY, "type": "fsx:string"}, self.new("from", {}, self.text("literal", "no"))
        )
        away.namespaces = {**self.out.root.namespaces, "fsx": SCHEMA}
        noted = self.new(
            "copy", {}, self.new("from", {}, self.text("literal", "yes")), self.new("to", {"variable": AWAY})
        )
        gone = self.new("catch", {"faultName": "fs:unavailable"}, self.new("assign", {}, noted))
        gone.namespaces = {**self.out.root.namespaces, "fs": PROXY}
        asked = self.new("scope", {}, links, self.new("faultHandlers", {}, gone), inner)
        # Not in the handler itself: what a fault handler does cannot be interrupted, and an invoke can.
        otherwise = self.new("if", {}, self.text("condition", f"${AWAY} = 'yes'"), invoke)
        return self.new("scope", {}, self.new("variables", {}, away), self.new("sequence", {}, asked, otherwise))

    def text(self, name: str, text: str) -> XmlElement:
        return XmlElement(_b(name), {}, [text], namespaces=self.out.root.namespaces)

    def assign(self, proxy: str) -> XmlElement:
        address = XmlElement(f"{{{WSA}}}Address", {}, [self.address])
        reference = XmlElement(f"{{{SREF}}}service-ref", {}, [XmlElement(f"{{{WSA}}}EndpointReference", {}, [address])])
        literal = self.new("literal", {}, reference)
        copy = self.new("copy", {}, self.new("from", {}, literal), self.new("to", {"partnerLink": proxy}))
        return self.new("assign", {}, copy)

    def new(self, name: str, attributes: dict[str, str] | None = None, *children: XmlElement) -> XmlElement:
        return XmlElement(_b(name), attributes, children, namespaces=self.out.root.namespaces)


def _parented(element: XmlElement) -> XmlElement:
    for child in element.elements:
        child.parent = element
    return element


def _b(name: str) -> str:
    return f"{{{BPEL}}}{name}"
