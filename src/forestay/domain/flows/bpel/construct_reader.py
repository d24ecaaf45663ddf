"""What is said of a construct while it is read, and the small pieces that stand in many constructs."""

from __future__ import annotations

from forestay.domain.flows.bpel.process import Correlation, Expression, Part
from forestay.domain.flows.bpel.report import Fate, Report
from forestay.domain.flows.bpel.xpath import BPEL, compile_xpath
from forestay.domain.flows.bpel.xpath_grammar import XPathRefused
from forestay.domain.flows.xml_tree import Element

XPATH_URN = "urn:oasis:names:tc:wsbpel:2.0:sublang:xpath1.0"
TRUE = "true()"


def bpel_tag(name: str) -> str:
    """The full name of an element of WS-BPEL 2.0."""
    return f"{{{BPEL}}}{name}"


class ConstructReader:
    """Reads the pieces; the report grows with each."""

    def __init__(self) -> None:
        self.report = Report()

    def imported(self, element: Element) -> None:
        self.report.add(element.line, element.name, Fate.IMPORTED)

    def changed(self, element: Element, note: str) -> None:
        self.report.add(element.line, element.name, Fate.CHANGED, note)

    def refused(self, element: Element, note: str) -> None:
        self.report.add(element.line, element.name, Fate.REFUSED, note)

    def needed(self, element: Element, *names: str) -> None:
        for name in names:
            if not element.get(name).strip():
                self.refused(element, f"the attribute {name} is missing")

    def yes(self, element: Element, name: str, *, otherwise: bool = False) -> bool:
        value = element.get(name)
        if value not in ("", "yes", "no"):
            self.refused(element, f"{name} is yes or no, not {value[:20]!r}")
        return value == "yes" if value else otherwise

    def language(self, element: Element) -> None:
        for name in ("queryLanguage", "expressionLanguage"):
            if element.get(name) not in ("", XPATH_URN):
                self.refused(element, f"{name} {element.get(name)[:80]}: only XPath 1.0 is read")

    def expression(self, element: Element) -> Expression:
        text = element.text.strip()
        self.language(element)
        if not text:
            self.refused(element, "there is no expression in it")
            text = TRUE
        try:
            return Expression(compile_xpath(text, element.namespaces), element.line)
        except XPathRefused as why:
            self.refused(element, str(why))
            return Expression(compile_xpath(TRUE, {}), element.line)

    def expression_in(self, element: Element, name: str) -> Expression | None:
        """The expression that a child of this name says, if there is one."""
        found = element.child(bpel_tag(name))
        return None if found is None else self.expression(found)

    def condition(self, element: Element) -> Expression:
        found = self.expression_in(element, "condition")
        if found is None:
            self.refused(element, "there is no condition in it")
            return Expression(compile_xpath(TRUE, {}), element.line)
        return found

    def parts(self, element: Element, group: str, one: str, attribute: str) -> tuple[Part, ...]:
        found = element.child(bpel_tag(group))
        if found is None:
            return ()
        for child in found.each(bpel_tag(one)):
            self.needed(child, "part", attribute)
        return tuple(Part(child.get("part"), child.get(attribute)) for child in found.each(bpel_tag(one)))

    def correlations(self, element: Element) -> tuple[Correlation, ...]:
        found = element.child(bpel_tag("correlations"))
        out: list[Correlation] = []
        for child in found.each(bpel_tag("correlation")) if found is not None else ():
            self.needed(child, "set")
            initiate = child.get("initiate", "no")
            if initiate not in ("yes", "no", "join"):
                self.refused(child, f"initiate is yes, no or join, not {initiate[:20]!r}")
            self.imported(child)
            out.append(Correlation(child.get("set"), initiate, child.get("pattern")))
        return tuple(out)
