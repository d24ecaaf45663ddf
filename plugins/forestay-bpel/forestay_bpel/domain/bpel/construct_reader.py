"""Reports on a construct while it is read, and reads the small parts that occur in many constructs."""

from __future__ import annotations

from forestay_bpel.domain.bpel.process import Correlation, Expression, MessagePart
from forestay_bpel.domain.bpel.report import ImportReport, ImportStatus
from forestay_bpel.domain.bpel.xpath import BPEL, compile_xpath
from forestay_bpel.domain.bpel.xpath_grammar import XPathRefused
from forestay_bpel.domain.xml_tree import XmlElement

XPATH_URN = "urn:oasis:names:tc:wsbpel:2.0:sublang:xpath1.0"
TRUE = "true()"


def bpel_tag(name: str) -> str:
    """The full name of an element of WS-BPEL 2.0."""
    return f"{{{BPEL}}}{name}"


class ConstructReader:
    """Reads the pieces; the report grows with each."""

    def __init__(self) -> None:
        self.report = ImportReport()

    def imported(self, element: XmlElement) -> None:
        self.report.add(element.line, element.name, ImportStatus.IMPORTED)

    def changed(self, element: XmlElement, note: str) -> None:
        self.report.add(element.line, element.name, ImportStatus.CHANGED, note)

    def refused(self, element: XmlElement, note: str) -> None:
        self.report.add(element.line, element.name, ImportStatus.REFUSED, note)

    def needed(self, element: XmlElement, *names: str) -> None:
        for name in names:
            if not element.get(name).strip():
                self.refused(element, f"the attribute {name} is missing")

    def yes(self, element: XmlElement, name: str, *, otherwise: bool = False) -> bool:
        value = element.get(name)
        if value not in ("", "yes", "no"):
            self.refused(element, f"{name} is yes or no, not {value[:20]!r}")
        return value == "yes" if value else otherwise

    def language(self, element: XmlElement) -> None:
        for name in ("queryLanguage", "expressionLanguage"):
            if element.get(name) not in ("", XPATH_URN):
                self.refused(element, f"{name} {element.get(name)[:80]}: only XPath 1.0 is supported")

    def expression(self, element: XmlElement) -> Expression:
        text = element.text.strip()
        self.language(element)
        if not text:
            self.refused(element, "the expression is missing")
            text = TRUE
        try:
            return Expression(compile_xpath(text, element.namespaces), element.line)
        except XPathRefused as why:
            self.refused(element, str(why))
            return Expression(compile_xpath(TRUE, {}), element.line)

    def expression_in(self, element: XmlElement, name: str) -> Expression | None:
        """The expression in a child of this name, if there is one."""
        xml_element = element.child(bpel_tag(name))
        return None if xml_element is None else self.expression(xml_element)

    def condition(self, element: XmlElement) -> Expression:
        expression = self.expression_in(element, "condition")
        if expression is None:
            self.refused(element, "the condition is missing")
            return Expression(compile_xpath(TRUE, {}), element.line)
        return expression

    def parts(self, element: XmlElement, group: str, tag: str, attribute: str) -> tuple[MessagePart, ...]:
        xml_element = element.child(bpel_tag(group))
        if xml_element is None:
            return ()
        for child in xml_element.each(bpel_tag(tag)):
            self.needed(child, "part", attribute)
        return tuple(MessagePart(child.get("part"), child.get(attribute)) for child in xml_element.each(bpel_tag(tag)))

    def correlations(self, element: XmlElement) -> tuple[Correlation, ...]:
        xml_element = element.child(bpel_tag("correlations"))
        out: list[Correlation] = []
        for child in xml_element.each(bpel_tag("correlation")) if xml_element is not None else ():
            self.needed(child, "set")
            initiate = child.get("initiate", "no")
            if initiate not in ("yes", "no", "join"):
                self.refused(child, f"initiate is yes, no or join, not {initiate[:20]!r}")
            self.imported(child)
            out.append(Correlation(child.get("set"), initiate, child.get("pattern")))
        return tuple(out)
