"""A change is made of what stands, until a write stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from forestay.domain.jobs.resources import Resources
from forestay.domain.pilots.pilot import Pilot
from forestay.ports.documents import Document, StoredDocument
from forestay.ports.errors import Transient
from forestay.ports.jobs.job_store import Conflicted, Unknown, Version, WriteResult, Written
from forestay.ports.pilots.pilot_store import StoredPilot
from forestay.services.shared.document_update import TRIES, update_document, update_pilot


class OneDocument:
    """A store of one number, whose writes come to what the test says; a write that nobody knows of may stand."""

    def __init__(self, *results: str) -> None:
        self.results = list(results)
        self.value: int | None = None
        self.writes: list[Version | None] = []

    async def get(self, documents: Sequence[str]) -> Mapping[str, StoredDocument]:
        if self.value is None:
            return {}
        return {documents[0]: StoredDocument(_document(self.value), Version(self.value, 1))}

    async def kinds(self, prefix: str) -> Sequence[str]:
        raise NotImplementedError

    async def find(self, kind: str, *, tenant: str | None = None) -> Sequence[StoredDocument]:
        raise NotImplementedError

    async def remove(self, documents: Sequence[StoredDocument]) -> int:
        raise NotImplementedError

    async def put(self, documents: Sequence[tuple[Document, Version | None]]) -> Sequence[WriteResult]:
        ((document, expected),) = documents
        self.writes.append(expected)
        result = self.results.pop(0) if self.results else "written"
        if result == "overtaken":
            self.value = (self.value or 0) + 10
            return [Conflicted()]
        if result != "lost":
            self.value = int(str(document.body["value"]))
        return [Written(Version(self.value or 0, 1)) if result == "written" else Unknown("no answer")]


def _document(value: int) -> Document:
    return Document("n", "", "number", {"value": value})


def _raised(stored: StoredDocument | None) -> tuple[Document, int]:
    value = int(str(stored.document.body["value"])) + 1 if stored is not None else 1
    return _document(value), value


async def test_what_others_wrote_meanwhile_is_changed() -> None:
    store = OneDocument("overtaken", "overtaken")
    assert await update_document(store, "n", _raised, unsure="no") == 21
    assert store.writes == [None, Version(10, 1), Version(20, 1)]


@pytest.mark.parametrize(("result", "value"), [("lost", 1), ("applied", 2)])
async def test_a_write_that_nobody_knows_of_is_looked_at(result: str, value: int) -> None:
    store = OneDocument(result)
    assert await update_document(store, "n", _raised, unsure="no") == value


async def test_nothing_is_written_where_nothing_is_to_change() -> None:
    store = OneDocument()
    assert await update_document(store, "n", lambda stored: (None, stored), unsure="no") is None
    assert store.writes == []


async def test_it_gives_up_after_so_many_tries() -> None:
    store = OneDocument(*["overtaken"] * 100)
    with pytest.raises(Transient, match="it was not stored"):
        await update_document(store, "n", _raised, unsure="it was not stored", tries=3)
    assert len(store.writes) == 3
    with pytest.raises(Transient):
        await update_document(store, "n", _raised, unsure="it was not stored")
    assert len(store.writes) == 3 + TRIES


class OnePilot:
    """A store of one pilot, of which the first write is refused."""

    def __init__(self, stored: Pilot | None) -> None:
        self.pilot = stored
        self.written = 0

    async def get_pilot(self, _pilot: str) -> StoredPilot | None:
        return StoredPilot(self.pilot, Version(self.written, 1)) if self.pilot is not None else None

    async def put_pilot(self, pilot: Pilot, expected: Version | None) -> WriteResult:
        assert expected == Version(self.written, 1)
        self.written += 1
        if self.written == 1:
            return Conflicted()
        self.pilot = pilot
        return Written(Version(self.written, 1))


async def test_a_pilot_is_changed_if_there_is_one() -> None:
    pilot = Pilot("p", "lab", "host", "local", 1, Resources(), 60, 0)
    store: Any = OnePilot(pilot)
    await update_pilot(store, "p", lambda known: replace(known, drain="ann: off"), unsure="no")
    assert (store.pilot.drain, store.written) == ("ann: off", 2)
    await update_pilot(store, "p", lambda _: None, unsure="no")
    assert store.written == 2
    missing: Any = OnePilot(None)
    await update_pilot(missing, "p", lambda known: known, unsure="no")
    assert missing.written == 0
