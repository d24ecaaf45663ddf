"""Hostile XML: each is refused, soon, and nothing is fetched for it."""

from __future__ import annotations

import gzip
import socket
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import examples
from tests.speed import cpu_limit

from forestay_bpel.domain.xml_tree import XmlElement
from forestay_bpel.formats.xml_text import MAX_BYTES, XmlRefused, read_xml, write_xml

LAUGHS = "".join(f"<!ENTITY l{n} '" + f"&l{n - 1};" * 10 + "'>" for n in range(1, 10))
BILLION = f'<!DOCTYPE a [<!ENTITY l0 "lol">{LAUGHS}]><a>&l9;</a>'
QUADRATIC = f'<!DOCTYPE a [<!ENTITY x "{"x" * 80_000}">]><a>{"&x;" * 27_000}</a>'
HOSTILE = {
    "billion laughs": BILLION,
    "quadratic": QUADRATIC,
    "external file": '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
    "external http": '<!DOCTYPE a [<!ENTITY x SYSTEM "http://127.0.0.1:PORT/x">]><a>&x;</a>',
    "parameter entity": '<!DOCTYPE a [<!ENTITY % x SYSTEM "http://127.0.0.1:PORT/x.dtd"> %x;]><a/>',
    "external subset": '<!DOCTYPE a SYSTEM "http://127.0.0.1:PORT/x.dtd"><a/>',
    "public subset": '<!DOCTYPE a PUBLIC "-//X" "http://127.0.0.1:PORT/x.dtd"><a/>',
    "empty doctype": "<!DOCTYPE a><a/>",
    "undeclared entity": "<a>&x;</a>",
    "deep": "<a>" * 200_000,
    "deep and whole": "<a>" * 65 + "</a>" * 65,
    "wide": "<a>" + "<b/>" * 100_000 + "</a>",
    "wide enough": "<a>" + "<b/>" * 15_000 + "</a>",
    "long attribute": f'<a b="{"x" * 900_000}"/>',
    "many attributes": "<a " + " ".join(f"b{n}='1'" for n in range(70_000)) + "/>",
    "many namespaces": "<a " + " ".join(f"xmlns:b{n}='u{n}'" for n in range(30_000)) + "/>",
    "namespaces in each": "".join(f'<a xmlns:b{n}="u">' for n in range(60)) + "<a>" * 10,
    "long name": f"<{'a' * 500_000}/>",
    "xinclude": '<a xmlns:x="http://www.w3.org/2001/XInclude"><x:include href="http://127.0.0.1:PORT/x"/></a>',
    "not whole": "<a><b></a>",
    "two roots": "<a/><a/>",
    "same attribute twice": '<a b="1" b="2"/>',
    "unbound prefix": "<b:a/>",
    "nothing": "",
    "a zero": "<a>\x00</a>",
    "a control character": "<a>&#1;</a>",
    "XML 1.1": '<?xml version="1.1"?><a/>',
    "surrogate": "<a>\ud800</a>",
    "too large": "<a>" + "x" * MAX_BYTES + "</a>",
}
BYTES = {
    "UTF-16": '<?xml version="1.0" encoding="UTF-16"?><a/>'.encode("utf-16"),
    "UTF-16 without a mark": "<a/>".encode("utf-16-le"),
    "UTF-32": "<a/>".encode("utf-32"),
    "UTF-7": b'<?xml version="1.0" encoding="UTF-7"?><a>+ADw-b+AD4-</a>',
    "latin-1 said": b'<?xml version="1.0" encoding="ISO-8859-1"?><a>\xe9</a>',
    "latin-1 not said": b"<a>\xe9</a>",
    "EBCDIC": '<?xml version="1.0" encoding="cp037"?><a/>'.encode("cp037"),
    "overlong": b"<a>\xc0\xbc</a>",
    "packed": gzip.compress(b"<a>" + b"x" * 10_000_000 + b"</a>", 1),
}


@pytest.fixture(scope="module")
def listener() -> Iterator[socket.socket]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        sock.setblocking(False)
        yield sock


@pytest.mark.parametrize("name", [*HOSTILE, *BYTES])
def test_is_refused_soon(name: str, listener: socket.socket) -> None:
    text = BYTES.get(name) or HOSTILE[name].replace("PORT", str(listener.getsockname()[1]))
    took = []
    for _ in range(3):  # the best of three, of the time that is spent on it: the machine may be busy
        began = time.thread_time()
        with pytest.raises(XmlRefused) as refused:
            read_xml(text)
        took.append(time.thread_time() - began)
    assert min(took) < cpu_limit(0.05)
    assert refused.value.line >= 1
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_a_place_of_a_schema_is_never_looked_up(listener: socket.socket) -> None:
    at = f"http://127.0.0.1:{listener.getsockname()[1]}"
    text = f'<?xml-stylesheet href="{at}/x.xsl"?><a xmlns:i="http://www.w3.org/2001/XMLSchema-instance" i:schemaLocation="u {at}/x.xsd"/>'
    assert read_xml(text).name == "a"
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_lines_names_and_texts_are_kept() -> None:
    element = read_xml(
        '<a xmlns="u"\n xmlns:p="v">\n  <p:b c="1" p:d="2">x<![CDATA[<&>]]>&amp;y</p:b><!-- no -->\n</a>'
    )
    (inner,) = element.elements
    assert (element.tag, element.line) == ("{u}a", 1)
    assert (inner.tag, inner.line, inner.text) == ("{v}b", 3, "x<&>&y")
    assert inner.attributes == {"c": "1", "{v}d": "2"}
    assert inner.qname("p:z") == "{v}z"


def test_a_decoded_text_may_say_any_encoding() -> None:
    assert read_xml('<?xml version="1.0" encoding="ISO-8859-1"?><a>é</a>').text == "é"


NAMES = st.sampled_from(["a", "b", "c-d", "_e", "é"])
SPACES = st.sampled_from(["", "urn:x", "urn:y"])
TAGS = st.builds(lambda space, name: f"{{{space}}}{name}" if space else name, SPACES, NAMES)
TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="￾￿") | st.sampled_from("\n\t\r<>&\"'")
)
ELEMENTS = st.recursive(
    st.builds(lambda tag, value: XmlElement(tag, value), TAGS, st.dictionaries(TAGS, TEXTS, max_size=3)),
    lambda inner: st.builds(
        lambda tag, value, children: XmlElement(
            tag, value, [child.copy() if isinstance(child, XmlElement) else child for child in children]
        ),
        TAGS,
        st.dictionaries(TAGS, TEXTS, max_size=2),
        st.lists(inner | TEXTS, max_size=4),
    ),
    max_leaves=12,
)


@given(ELEMENTS)
@settings(max_examples=examples(200), deadline=None)
def test_what_is_written_is_read_as_the_same(element: XmlElement) -> None:
    assert read_xml(write_xml(element, indent=False)).canonical() == element.canonical()
