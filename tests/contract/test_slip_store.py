"""The contract of the slip store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.contract.examples import ODD_TEXTS
from tests.contract.room import Stores

from forestay.ports.documents import Slip, StoredSlip
from forestay.ports.errors import Permanent, Transient
from forestay.ports.jobs.job_store import Conflicted, Unknown, Version, Written

OpenAnother = Callable[[], Awaitable[Stores]]


def slip(name: str = "delivery:1", kind: str = "delivery", **body: object) -> Slip:
    return Slip(name, "alpha", kind, {"done": "ff", **body})


async def put(stores: Stores, made: Slip, expected: Version | None = None) -> Version:
    (result,) = await stores.slips.put([(made, expected)])
    assert isinstance(result, Written)
    return result.version


async def test_a_slip_is_read_back_at_once(stores: Stores) -> None:
    made = slip(ODD_TEXTS[1], texts=list(ODD_TEXTS), count=2**53)
    version = await put(stores, made)
    assert await stores.slips.get([made.id, "no such slip"]) == {made.id: StoredSlip(made, version)}


async def test_a_second_create_is_refused(stores: Stores) -> None:
    version = await put(stores, slip())
    (result,) = await stores.slips.put([(slip(done="00"), None)])
    assert isinstance(result, Conflicted)
    assert (await stores.slips.get(["delivery:1"]))["delivery:1"] == StoredSlip(slip(), version)


async def test_a_rewrite_needs_the_version_that_stands(stores: Stores) -> None:
    first = await put(stores, slip())
    second = await put(stores, slip(done="1"), first)
    other_term = second._replace(term=second.term + 1)
    for stale in (first, other_term):
        (result,) = await stores.slips.put([(slip(done="2"), stale)])
        assert isinstance(result, Conflicted)
    (result,) = await stores.slips.put([(slip("delivery:2"), second)])
    assert isinstance(result, Conflicted)
    assert await stores.slips.get(["delivery:1", "delivery:2"]) == {"delivery:1": StoredSlip(slip(done="1"), second)}


async def test_each_of_many_is_written_for_itself(stores: Stores) -> None:
    version = await put(stores, slip())
    results = await stores.slips.put([(slip(done="1"), version), (slip("delivery:2"), None), (slip("d3"), version)])
    assert [type(result) for result in results] == [Written, Written, Conflicted]
    assert (await stores.slips.get(["delivery:1"]))["delivery:1"].slip.body["done"] == "1"
    assert await stores.slips.put([]) == [] or await stores.slips.put([]) == ()


async def test_exactly_one_of_many_writers_wins(stores: Stores, another: OpenAnother) -> None:
    version = await put(stores, slip())
    writers = await asyncio.gather(*(another() for _ in range(8)))
    results = await asyncio.gather(*(one.slips.put([(slip(by=place), version)]) for place, one in enumerate(writers)))
    winners = [place for place, (result,) in enumerate(results) if isinstance(result, Written)]
    assert len(winners) == 1
    assert (await stores.slips.get(["delivery:1"]))["delivery:1"].slip.body["by"] == winners[0]


async def test_slips_are_found_by_kind(stores: Stores) -> None:
    await put(stores, slip("b", "gate"))
    await put(stores, slip("a", "gate"))
    await put(stores, slip("c", "delivery"))
    await stores.jobs.refresh()
    assert [one.slip.id for one in await stores.slips.find("gate")] == ["a", "b"]
    assert await stores.slips.find("lease") == []


async def test_a_store_that_does_not_answer(unreachable: Stores) -> None:
    (result,) = await unreachable.slips.put([(slip(), None)])
    assert isinstance(result, Unknown)
    with pytest.raises(Transient):
        await unreachable.slips.get(["delivery:1"])


async def test_what_json_cannot_say_is_refused(stores: Stores) -> None:
    with pytest.raises(Permanent):
        await stores.slips.put([(slip(number=2**80), None)])
