"""What is said of a process before it runs: what is refused, what is changed, and in which line."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from tests.speed import cpu_limit
from tests.unit.bpel.processes import CASES
from tests.unit.bpel.simulated import World, process_text, run_process
from tests.unit.bpel.written import do, flow, iff, let, linked, scope

from forestay_bpel.domain.bpel.services import MappingRefused, OperationKind, read_services
from forestay_bpel.domain.bpel.xpath import compile_xpath
from forestay_bpel.domain.bpel.xpath_grammar import XPathRefused
from forestay_bpel.domain.bpel.xpath_values import XPathFailed, string
from forestay_bpel.domain.bpel_flow import message_from_plain
from forestay_bpel.domain.xml_tree import XmlElement
from forestay_bpel.formats.bpel import ImportStatus, message_plain, read_bpel
from forestay_bpel.formats.xml_text import read_xml

WSDL = 'importType="http://schemas.xmlsoap.org/wsdl/"'
BODY = 7
"""The line on which the body of `process_text` begins."""


@pytest.mark.parametrize(
    ("body", "line", "words"),
    [
        ("<extensionActivity/>", BODY, "extensionActivity"),
        ("\n\n<assign/>", BODY + 2, "no copy"),
        (let("$x", "1 +"), BODY, "a step was expected"),
        (let("$x", "q:f()"), BODY, "the prefix 'q'"),
        (let("$x", "(" * 200 + "1" + ")" * 200), BODY, "nested at most"),
        (let("$x", "1" + " + 1" * 3000), BODY, "at most 4096"),
        ("<assign><copy><from variable='nobody'/><to variable='x'/></copy></assign>", BODY, "no variable nobody"),
        ('<invoke partnerLink="nobody" operation="a"/>', BODY, "no partner link nobody"),
        ('<invoke operation="a"/>', BODY, "partnerLink is missing"),
        ("<throw/>", BODY, "faultName is missing"),
        ("<rethrow/>", BODY, "allowed in a fault handler"),
        ("<compensate/>", BODY, "allowed in a fault, compensation"),
        (scope(do("a"), catch='<catchAll><compensateScope target="z"/></catchAll>'), BODY, "no scope z"),
        (flow("l", linked("a", out="l")), BODY, "leaves one activity and arrives at one"),
        (flow("l m", linked("a", out="l", into="m"), linked("b", out="m", into="l")), BODY, "cycle"),
        (flow("", linked("a", into="none")), BODY, "no enclosing flow has it"),
        ('<if expressionLanguage="x"><condition expressionLanguage="urn:xquery">1</condition><empty/></if>', BODY, "only XPath 1.0"),
        ("<wait/>", BODY, "has no time"),
        ("<sequence/>", BODY, "no activity"),
        ("<nothing/>", BODY, "not allowed"),
        ('<pick createInstance="yes"><onAlarm><for>1</for><empty/></onAlarm></pick>', BODY, "no onMessage"),
    ],
)  # fmt: skip
def test_what_is_refused(body: str, line: int, words: str) -> None:
    read = read_bpel(process_text(body))
    assert read.flow is None
    entries = [entry for entry in read.report.of(ImportStatus.REFUSED) if words in f"{entry.construct} {entry.note}"]
    assert [entry.line for entry in entries][:1] == [line], read.report.of(ImportStatus.REFUSED)


@pytest.mark.parametrize(
    ("location", "fate"),
    [
        ("http://127.0.0.1:1/x.wsdl", "refused"),
        ("//host/x.wsdl", "refused"),
        ("file:///etc/passwd", "refused"),
        ("x.wsdl", "changed"),
    ],
)
def test_nothing_is_fetched(location: str, fate: str) -> None:
    read = read_bpel(process_text("<empty/>", before=f'<import location="{location}" {WSDL}/>').replace("</variables>\n", "</variables>\n"))  # fmt: skip
    assert [entry.fate.value for entry in read.report.entries if entry.construct == "import"] == [fate]


def test_an_extension_that_must_be_understood_is_refused() -> None:
    for must, fate in (("yes", ImportStatus.REFUSED), ("no", ImportStatus.CHANGED)):
        text = f'<extensions><extension namespace="urn:x" mustUnderstand="{must}"/></extensions>'
        assert read_bpel(process_text("<empty/>", before=text)).report.fate is fate


def test_bpel_of_another_kind_is_refused() -> None:
    for space in (
        "http://schemas.xmlsoap.org/ws/2003/03/business-process/",
        "http://docs.oasis-open.org/wsbpel/2.0/process/abstract",
        "urn:x",
    ):
        assert read_bpel(f'<process name="p" xmlns="{space}"/>').flow is None
    assert read_bpel("<!DOCTYPE a><a/>").report.of(ImportStatus.REFUSED)[0].line == 1


def test_every_construct_has_a_line_and_a_fate() -> None:
    for run in CASES:
        read = read_bpel(process_text(run.body, variables=run.variables, before=run.before))
        assert all(entry.line >= 1 for entry in read.report.entries), run.name
        assert read.flow is not None, run.name


DEEP = "//*[" * 6 + "//*" + "]" * 6
BOMBS = [
    DEEP, "count(//node()[count(//node()[count(//node())>0])>0])", "//*[. = //*]",
    "concat(" + ", ".join(["string(/)"] * 90) + ")", "//*/ancestor::*/descendant::*/ancestor::*/descendant::*",
]  # fmt: skip


@pytest.mark.parametrize("text", BOMBS)
def test_a_bomb_of_xpath_is_stopped(text: str) -> None:
    tree = XmlElement("r")
    at = tree
    for _ in range(30):
        for _ in range(20):
            at.append(XmlElement("a", {}, ["x"]))
        fresh = XmlElement("b")
        at.append(fresh)
        at = fresh
    began = time.thread_time()
    with suppress(XPathFailed):
        compile_xpath(text, {}).evaluate(lambda _: "", node=tree)
    assert time.thread_time() - began < cpu_limit(1.0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3 - 4 div 2", "5"), ("7 mod 3", "1"), ("-7 mod 3", "-1"), ("1 div 0", "Infinity"), ("0 div 0", "NaN"), ("- - 2", "2"),
        ("'a' = 'a' and 1 < 2 or false()", "true"), ("count(//a)", "2"), ("//a[2]", "2"), ("//a[last()]/@k", ""), ("sum(//a)", "3"),
        ("substring('12345', 1.5, 2.6)", "234"), ("substring('12345', 0 div 0, 3)", ""), ("translate('bar', 'abc', 'AB')", "BAr"),
        ("normalize-space('  a  b ')", "a b"), ("string(1.5)", "1.5"), ("string(1e3)", "refused"), ("round(2.5)", "3"), ("round(-2.5)", "-2"),
        ("floor(-1.5)", "-2"), ("string-length('äb')", "2"), ("//a/@k = 'v'", "true"), ("//a != '1'", "true"), ("not(//none)", "true"),
        ("name(//b/..)", "r"), ("//b/preceding-sibling::a[1]", "2"), ("//a[1]/following-sibling::*[2]/@x", ""), ("(//a | //b)[3]/c", "3"),
        ("starts-with('abc', 'ab')", "true"), ("substring-before('a-b', '-')", "a"), ("substring-after('a-b', '-')", "b"), ("self::r/a", "1"),
        ("number('x')", "NaN"), ("number(' 4 ')", "4"), ("contains('abc', '')", "true"), ("//text()[. = '3']/../..", "3"), ("*[self::b]", "3"),
        ("id('x')", "failed"), ("document('file:///etc/passwd')", "failed"), ("$none", "failed"),
    ],
)  # fmt: skip
def test_xpath(text: str, value: str) -> None:
    tree = read_xml('<r><a k="v">1</a><a>2</a><b><c>3</c></b></r>')

    def look(name: str) -> str:
        raise XPathFailed(name)

    try:
        entry = string(compile_xpath(text, {}).evaluate(look, node=tree))
    except XPathRefused:
        entry = "refused"
    except XPathFailed:
        entry = "failed"
    assert entry == value


def test_a_mapping() -> None:
    fields = {
        "partners": {
            "grid": {
                "start": {"kind": "submit", "notify": "done"},
                "draw": {"job": "x"},
                "ask": "manual",
                "one": {"answer": "1"},
            }
        }
    }
    services = read_services(fields)
    kinds = {name: services.binding("grid", name) for name in ("start", "draw", "ask", "one", "getStatus", "nothing")}
    assert {name: binding.kind if binding else None for name, binding in kinds.items()} == {
        "start": OperationKind.SUBMIT, "draw": OperationKind.RUN, "ask": OperationKind.MANUAL, "one": OperationKind.ANSWER, "getStatus": OperationKind.POLL, "nothing": None,
    }  # fmt: skip
    for wrong in (5, {}, {"partners": 5}, {"partners": {"a": 5}}, {"partners": {"a": {"b": {"kind": "x"}}}}, {"partners": {"a": {"b": {"job": 5}}}}, {"partners": {"a": {"b": {"job": "x", "max_attempts": 0}}}}):  # fmt: skip
        with pytest.raises(MappingRefused):
            read_services(wrong)


def test_choices_are_made_when_they_are_reached() -> None:
    _, world, _ = run_process(
        process_text(let("$x", "1") + iff("$x = 1", do("a")) + let("$x", "2") + iff("$x = 1", do("b"))), World()
    )
    assert world.seen == ["a"]


@pytest.mark.parametrize(
    "plain",
    [5, [], {"a": None}, {"a": []}, {"a": ["t", {}, 1, None]}, {"a": ["t", {"k": 5}, 1, None, []]}, {"a": ["t", {}, "x", None, []]}, {"a": ["", {}, 1, None, []]}, {"a": ["t", {}, 1, None, [5]]}, {"a": {}}],
)  # fmt: skip
def test_what_is_no_message_is_refused_where_it_comes_in(plain: object) -> None:
    with pytest.raises(ValueError, match=r"message|part"):
        message_from_plain(plain)


def test_a_message_comes_through() -> None:
    sent = message_plain({"a": "5", "b": "<t:x xmlns:t='urn:t' k='v'><t:y/>z</t:x>"})
    read = message_from_plain(sent)
    assert (read["a"].text, read["b"].tag, read["b"].text) == ("5", "{urn:t}x", "z")
