"""The contract of the document store."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

import pytest
from tests.contract.examples import ODD_TEXTS
from tests.contract.room import Stores

from forestay.ports.documents import Document, StoredDocument
from forestay.ports.errors import Permanent, Transient
from forestay.ports.jobs.job_store import Conflicted, Unknown, Version, Written

OpenAnother = Callable[[], Awaitable[Stores]]


def document(name: str = "delivery:1", kind: str = "delivery", **body: object) -> Document:
    return Document(name, "alpha", kind, {"done": "ff", **body})


async def put(stores: Stores, made: Document, expected: Version | None = None) -> Version:
    (result,) = await stores.documents.put([(made, expected)])
    assert isinstance(result, Written)
    return result.version


async def test_a_document_is_read_back_at_once(stores: Stores) -> None:
    made = document(ODD_TEXTS[1], texts=list(ODD_TEXTS), count=2**53)
    version = await put(stores, made)
    assert await stores.documents.get([made.id, "no such document"]) == {made.id: StoredDocument(made, version)}


async def test_a_second_create_is_refused(stores: Stores) -> None:
    version = await put(stores, document())
    (result,) = await stores.documents.put([(document(done="00"), None)])
    assert isinstance(result, Conflicted)
    assert (await stores.documents.get(["delivery:1"]))["delivery:1"] == StoredDocument(document(), version)


async def test_a_rewrite_needs_the_version_that_stands(stores: Stores) -> None:
    first = await put(stores, document())
    second = await put(stores, document(done="1"), first)
    other_term = second._replace(term=second.term + 1)
    for stale in (first, other_term):
        (result,) = await stores.documents.put([(document(done="2"), stale)])
        assert isinstance(result, Conflicted)
    (result,) = await stores.documents.put([(document("delivery:2"), second)])
    assert isinstance(result, Conflicted)
    assert await stores.documents.get(["delivery:1", "delivery:2"]) == {
        "delivery:1": StoredDocument(document(done="1"), second)
    }


async def test_each_of_many_is_written_for_itself(stores: Stores) -> None:
    version = await put(stores, document())
    results = await stores.documents.put(
        [(document(done="1"), version), (document("delivery:2"), None), (document("d3"), version)]
    )
    assert [type(result) for result in results] == [Written, Written, Conflicted]
    assert (await stores.documents.get(["delivery:1"]))["delivery:1"].document.body["done"] == "1"
    assert await stores.documents.put([]) == [] or await stores.documents.put([]) == ()


async def test_exactly_one_of_many_writers_wins(stores: Stores, another: OpenAnother) -> None:
    version = await put(stores, document())
    writers = await asyncio.gather(*(another() for _ in range(8)))
    results = await asyncio.gather(
        *(writer.documents.put([(document(by=place), version)]) for place, writer in enumerate(writers))
    )
    winners = [place for place, (result,) in enumerate(results) if isinstance(result, Written)]
    assert len(winners) == 1
    assert (await stores.documents.get(["delivery:1"]))["delivery:1"].document.body["by"] == winners[0]


async def test_documents_are_found_by_kind(stores: Stores) -> None:
    await put(stores, document("b", "gate"))
    await put(stores, document("a", "gate"))
    await put(stores, document("c", "delivery"))
    await stores.jobs.refresh()
    assert [stored.document.id for stored in await stores.documents.find("gate")] == ["a", "b"]
    assert await stores.documents.find("lease") == []


async def test_documents_of_a_kind_are_those_of_one_tenant_or_all(stores: Stores) -> None:
    await put(stores, document("a"))
    await put(stores, document("b")._replace(tenant="beta"))
    await stores.jobs.refresh()
    assert [stored.document.id for stored in await stores.documents.find("delivery", tenant="beta")] == ["b"]
    assert [stored.document.id for stored in await stores.documents.find("delivery")] == ["a", "b"]


@pytest.mark.finding("F-E")
async def test_more_documents_of_a_kind_than_a_page_are_all_found(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is beyond a page was left out without a word."""
    module = sys.modules[type(stores.documents).__module__]
    monkeypatch.setattr(module, "MAX_PAGE", 3)
    for number in range(7):
        await put(stores, document(f"d{number}"))
    await stores.jobs.refresh()
    assert [stored.document.id for stored in await stores.documents.find("delivery")] == [f"d{n}" for n in range(7)]


@pytest.mark.finding("F-E")
async def test_a_document_is_removed_at_the_version_that_was_read(stores: Stores) -> None:
    await put(stores, document("a"))
    version = await put(stores, document("b"))
    read = await stores.documents.get(["a", "b"])
    await put(stores, document("b", n=1), version)
    assert await stores.documents.remove(list(read.values())) == 1
    assert set(await stores.documents.get(["a", "b"])) == {"b"}
    assert await stores.documents.remove(()) == 0
    await put(stores, document("a"))


async def test_a_store_that_does_not_answer(unreachable: Stores) -> None:
    (result,) = await unreachable.documents.put([(document(), None)])
    assert isinstance(result, Unknown)
    with pytest.raises(Transient):
        await unreachable.documents.get(["delivery:1"])


async def test_what_json_cannot_say_is_refused(stores: Stores) -> None:
    with pytest.raises(Permanent):
        await stores.documents.put([(document(number=2**80), None)])
