"""The chain of the audit log: whatever is changed, taken out or put in shows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.exceptions.safeguards.audit import (
    MAX_DETAIL,
    MAX_ENTRIES,
    MAX_TEXT,
    START,
    AuditEntry,
    AuditHead,
    AuditNote,
    AuditPage,
    Broken,
    check,
    hash_of,
    head_of,
    next_page,
)
from forestay.formats.rules.audit_json import check_public, entry_public, page_from_json, page_to_json


def chain(count: int = 6) -> list[AuditEntry]:
    head, entries = AuditHead(), list[AuditEntry]()
    for number in range(count // 2):
        notes = [
            AuditNote("ann", "job.cancel", f"j{number}", "wrong input"),
            AuditNote("bob", "rule.promote", detail={"n": number}),
        ]
        page = next_page(head, notes, tenant="alpha", name=str(number), now=1_000 + number)
        head = head_of(page)
        entries += page.entries
    return entries


def test_entries_follow_on_each_other() -> None:
    entries = chain()
    assert [entry.number for entry in entries] == [1, 2, 3, 4, 5, 6]
    assert entries[0].before == START
    assert [entry.before for entry in entries[1:]] == [entry.hash for entry in entries[:-1]]
    assert check(entries, AuditHead()) == AuditHead(0, 6, entries[-1].hash)
    assert check(entries[3:], AuditHead(0, 3, entries[2].hash)) == AuditHead(0, 6, entries[-1].hash)


@given(st.integers(0, 5), st.sampled_from(["at", "by", "what", "on", "why", "detail", "before", "hash", "number"]))
def test_one_changed_value_is_found_and_named(place: int, field: str) -> None:
    entries = chain()
    old = getattr(entries[place], field)
    new: Any = old + 1 if isinstance(old, int) else {"other": 1} if isinstance(old, dict) else "0" + old[1:] + "x"
    entries[place] = replace(entries[place], **{field: new})
    broken = check(entries, AuditHead())
    assert isinstance(broken, Broken)
    assert broken.number == place + 1


@given(st.integers(0, 5), st.data())
def test_one_changed_byte_of_what_is_shown_is_found(place: int, data: st.DataObject) -> None:
    shown = [entry_public(entry) for entry in chain()]
    text = json.dumps(shown[place])
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(codec="ascii").filter(lambda value: value != text[at]))
    changed = text[:at] + other + text[at + 1 :]
    try:
        read = json.loads(changed)
    except ValueError:
        return
    if read == shown[place]:
        return  # another way to write the same
    shown[place] = read
    checked_chain = check_public(shown)
    assert checked_chain.broken is not None
    assert checked_chain.broken == place + 1
    assert checked_chain.words


@pytest.mark.parametrize(
    ("places", "number", "words"),
    [
        ((0, 1, 3, 4, 5), 3, "entry 3 is missing; entry 4 is in its place"),
        ((1, 2), 1, "entry 1 is missing; entry 2 is in its place"),
        ((0, 2, 1), 2, "entry 2 is missing; entry 3 is in its place"),
    ],
)
def test_what_was_taken_out_is_missed(places: tuple[int, ...], number: int, words: str) -> None:
    entries = chain()
    assert check([entries[place] for place in places], AuditHead()) == Broken(number, words)


def test_an_entry_written_anew_with_a_fitting_hash_does_not_fit_the_next() -> None:
    entries = chain()
    forged = replace(entries[2], by="mallory", hash="")
    entries[2] = replace(forged, hash=hash_of(forged))
    assert check(entries, AuditHead()) == Broken(
        4, "entry 4 does not follow the entry before it: one of them was replaced"
    )


def test_what_is_stored_and_shown_keeps_its_hash() -> None:
    note = AuditNote(
        "ann", "job.cancel", "j1", "Zürich 東京 🧬 \ud800 \u2028", {"list": [1, "two", None, True], "odd": "\ud800"}
    )
    page = next_page(AuditHead(), [note], tenant="alpha", name="n", now=1_700_000_000_123)
    stored = json.loads(json.dumps(page_to_json(page)))
    assert page_from_json(stored) == page
    assert check_public([json.loads(json.dumps(entry_public(entry))) for entry in page.entries]).broken is None


def test_nothing_grows_without_end() -> None:
    note = AuditNote("ann", "x", "o" * 5_000, "w" * 5_000, {"text": "d" * 2 * MAX_DETAIL})
    page = next_page(AuditHead(), [note] * 2 * MAX_ENTRIES, tenant="alpha", name="n", now=1)
    assert isinstance(page, AuditPage)
    assert len(page.entries) == MAX_ENTRIES
    assert len(page.entries[0].why) == MAX_TEXT
    assert set(page.entries[0].detail) == {"sha256", "characters"}


def test_what_cannot_be_read_is_broken() -> None:
    shown = [entry_public(entry) for entry in chain(2)]
    del shown[1]["by"]
    assert check_public(shown).broken == 2
