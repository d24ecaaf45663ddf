"""Reads the declarations of a scope, and the sources and targets of values."""

from __future__ import annotations

from collections.abc import Iterable

from forestay_bpel.domain.bpel.construct_reader import ConstructReader, bpel_tag
from forestay_bpel.domain.bpel.process import (
    Alias,
    Copy,
    CorrelationSet,
    FromSpec,
    PartnerLink,
    ToSpec,
    VariableDeclaration,
)
from forestay_bpel.domain.xml_tree import XmlElement


class DeclarationReader(ConstructReader):
    """Reads variables, partners, correlation sets and the two ends of a copy."""

    def __init__(self, *, with_wsdl: bool) -> None:
        super().__init__()
        self.with_wsdl = with_wsdl
        self.with_sets: list[CorrelationSet] = []
        self.lines: dict[str, int] = {}

    def imports(self, element: XmlElement) -> None:
        where = element.get("location")
        if "://" in where or where.startswith("//"):
            self.refused(element, "nothing is downloaded; pass the file with --wsdl, and use an address without a host")
        elif not element.get("importType"):
            self.refused(element, "the attribute importType is missing")
        elif self.with_wsdl:
            self.imported(element)
        else:
            self.changed(element, "nothing is downloaded: pass the file with --wsdl; messages are not validated")

    def extensions(self, element: XmlElement) -> None:
        for child in element.elements:
            if child.get("mustUnderstand") == "yes":
                self.refused(
                    child, f"the extension {child.get('namespace')[:80]} must be understood, and is not supported"
                )
            else:
                self.changed(child, "the extension is ignored")

    def variables(self, element: XmlElement | None) -> Iterable[VariableDeclaration]:
        for child in self.listed(element, "variable"):
            self.needed(child, "name")
            kinds = [kind for kind in ("messageType", "type", "element") if child.get(kind)]
            if len(kinds) != 1:
                self.refused(child, "a variable has one of messageType, type and element")
            if "." in child.get("name"):
                self.refused(child, "a variable's name has no dot")
            first = child.child(bpel_tag("from"))
            self.imported(child)
            yield VariableDeclaration(
                child.get("name"),
                child.line,
                child.full_name("messageType"),
                child.full_name("type"),
                child.full_name("element"),
                None if first is None else self.from_(first),
            )

    def partners(self, element: XmlElement | None) -> Iterable[PartnerLink]:
        for child in self.listed(element, "partnerLink"):
            self.needed(child, "name", "partnerLinkType")
            mine, theirs = child.get("myRole"), child.get("partnerRole")
            if not mine and not theirs:
                self.refused(child, "a partner link has a role: myRole, partnerRole or both")
            if child.get("initializePartnerRole") and not theirs:
                self.refused(child, "initializePartnerRole without partnerRole")
            self.imported(child)
            yield PartnerLink(child.get("name"), child.line, child.qname(child.get("partnerLinkType")), mine, theirs)

    def sets(self, element: XmlElement | None) -> Iterable[CorrelationSet]:
        for child in self.listed(element, "correlationSet"):
            self.needed(child, "name", "properties")
            self.imported(child)
            correlation_set = CorrelationSet(
                child.get("name"), tuple(child.qname(part) for part in child.get("properties").split())
            )
            self.with_sets.append(correlation_set)
            self.lines[correlation_set.name] = child.line
            yield correlation_set

    def listed(self, element: XmlElement | None, name: str) -> Iterable[XmlElement]:
        seen: set[str] = set()
        for child in element.elements if element is not None else ():
            if child.tag == bpel_tag(name):
                if child.get("name") in seen:
                    self.refused(child, f"there is a second {name} {child.get('name')}")
                seen.add(child.get("name"))
                yield child
            elif child.tag != bpel_tag("documentation"):
                self.refused(child, f"{name} was expected")

    def aliases(self, wsdls: Iterable[XmlElement]) -> Iterable[Alias]:
        for wsdl in wsdls:
            for child in wsdl.elements:
                if child.name != "propertyAlias":
                    continue
                query = next((element for element in child.elements if element.name == "query"), None)
                yield Alias(
                    child.qname(child.get("propertyName")),
                    child.full_name("messageType"),
                    child.full_name("element") or child.full_name("type"),
                    child.get("part"),
                    None if query is None or not query.text.strip() else self.expression(query),
                )

    def copy(self, element: XmlElement) -> Copy:
        self.imported(element)
        from_, to = element.child(bpel_tag("from")), element.child(bpel_tag("to"))
        if from_ is None or to is None:
            self.refused(element, "it has one from and one to")
            return Copy(FromSpec(element.line), ToSpec(element.line))
        keep, missing = self.yes(element, "keepSrcElementName"), self.yes(element, "ignoreMissingFromData")
        return Copy(self.from_(from_), self.to(to), keep, missing)

    def from_(self, element: XmlElement) -> FromSpec:
        literal = element.child(bpel_tag("literal"))
        partner = element.get("partnerLink")
        if partner:
            self.changed(element, "the address of a partner is an empty reference; a mapping defines the partner")
        if element.get("variable"):
            return FromSpec(
                element.line, element.get("variable"), element.get("part"),
                element.full_name("property"),
                self.expression_in(element, "query"),
            )  # fmt: skip
        if partner:
            return FromSpec(element.line, partner=partner)
        if literal is not None:
            if len(literal.elements) > 1:
                self.refused(literal, "a literal is one element or a text")
            return FromSpec(element.line, literal=literal)
        if element.text.strip():
            return FromSpec(element.line, expression=self.expression(element))
        self.refused(element, "it has nothing to copy")
        return FromSpec(element.line, empty=True)

    def to(self, element: XmlElement) -> ToSpec:
        if element.get("partnerLink"):
            self.changed(element, "partners have no addresses here; a mapping defines them")
            return ToSpec(element.line, partner=element.get("partnerLink"))
        if element.get("variable"):
            return ToSpec(
                element.line, element.get("variable"), element.get("part"),
                element.full_name("property"),
                self.expression_in(element, "query"),
            )  # fmt: skip
        if not element.text.strip():
            self.refused(element, "it has no target")
            return ToSpec(element.line)
        return ToSpec(element.line, expression=self.expression(element))
