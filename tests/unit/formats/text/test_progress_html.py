"""What a notebook shows: well-formed, escaped, and told in words."""

from __future__ import annotations

from xml.etree import ElementTree

from forestay.formats.text.progress_html import facts_html, progress_html

EVIL = '<script>alert("x")</script>'


def read(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)  # noqa: S314 - our own


def test_a_bar_says_what_it_shows() -> None:
    root = read(progress_html("sweep", well=7, bad=2, count=20, words="running"))
    bar = root.find("progress")
    assert bar is not None
    assert (bar.attrib["max"], bar.attrib["value"]) == ("20", "9")
    assert bar.attrib["aria-label"] == "sweep: 9 of 20 ended, 2 of them badly; running"
    assert (bar.tail or "").strip() == "9 of 20 ended, 2 of them badly; running"


def test_nothing_to_count_has_no_bar() -> None:
    assert read(progress_html("sweep", well=0, bad=0, count=0)).find("progress") is None


def test_what_people_wrote_is_escaped() -> None:
    for text in (
        progress_html(EVIL, well=0, bad=0, count=1, words=EVIL),
        facts_html(EVIL, {EVIL: EVIL, "empty": ""}),
    ):
        read(text)
        assert "<script>" not in text


def test_facts_that_are_not_known_are_left_out() -> None:
    rows = read(facts_html("a call", {"job": "j1", "result": None, "error": ""})).findall(".//tr")
    assert [row.findtext("th") for row in rows] == ["job"]
