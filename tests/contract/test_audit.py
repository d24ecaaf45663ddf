"""The contract of the audit log's store, and the service that writes through it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import pytest
from tests.contract.examples import ODD_TEXTS
from tests.contract.room import Stores

from forestay.adapters.system.clock import RandomIds, SystemClock
from forestay.domain.exceptions.safeguards.audit import (
    AuditHead,
    AuditNote,
    AuditPage,
    Broken,
    check,
    head_of,
    next_page,
)
from forestay.ports.errors import Transient
from forestay.ports.exceptions.audit import AuditStore
from forestay.services.exceptions.record.audit_log import AuditLog

OpenAnother = Callable[[], Awaitable[Stores]]


def page(head: AuditHead | None = None, name: str = "n1", tenant: str = "alpha", count: int = 2) -> AuditPage:
    notes = [
        AuditNote(ODD_TEXTS[number % 7], "job.cancel", f"j{number}", detail={"odd": list(ODD_TEXTS)})
        for number in range(count)
    ]
    return next_page(head or AuditHead(), notes, tenant=tenant, name=name, now=1_700_000_000_123)


def reconciler(stores: Stores) -> AuditLog:
    return AuditLog(stores.audit, SystemClock(), RandomIds())


def note(number: int) -> AuditNote:
    return AuditNote("ann", "job.cancel", f"j{number}")


async def test_a_page_is_read_back_at_once_as_it_was_written(stores: Stores) -> None:
    made = page()
    assert await stores.audit.add(made)
    assert await stores.audit.get("alpha", [1, 2]) == {1: made}
    assert await stores.audit.get("beta", [1]) == {}
    assert await stores.audit.get("alpha", []) == {}


async def test_what_stands_stays(stores: Stores) -> None:
    first = page()
    assert await stores.audit.add(first)
    assert not await stores.audit.add(page(name="n2"))
    assert not await stores.audit.add(first)
    assert await stores.audit.get("alpha", [1]) == {1: first}
    assert await stores.audit.add(page(name="n3", tenant="beta")), "each tenant has its own chain"


async def test_pages_are_found_by_entry_and_the_last_of_all(stores: Stores) -> None:
    assert await stores.audit.last("alpha") is None
    head, pages = AuditHead(), list[AuditPage]()
    for number in range(12):
        pages.append(page(head, f"n{number}", count=number % 3 + 1))
        head = head_of(pages[-1])
        assert await stores.audit.add(pages[-1])
    await stores.audit.add(page(tenant="beta"))
    await stores.jobs.refresh()
    assert await stores.audit.last("alpha") == pages[-1]
    assert await stores.audit.find("alpha", entry=1) == pages
    assert await stores.audit.find("alpha", entry=3, limit=2) == pages[1:3]
    assert await stores.audit.find("alpha", entry=head.number) == pages[-1:]
    assert await stores.audit.find("alpha", entry=head.number + 1) == []


async def test_many_writers_make_one_chain(stores: Stores, another: OpenAnother) -> None:
    reconcilers = [reconciler(await another()) for _ in range(4)]
    written = await asyncio.gather(
        *(reconcilers[number % 4].write("alpha", [note(number), note(number)]) for number in range(60))
    )
    numbers = sorted(entry.number for entries in written for entry in entries)
    assert numbers == list(range(1, 121))
    assert all(entries[1].before == entries[0].hash for entries in written)
    entries, head = await reconciler(stores).read("alpha", start=1, limit=1_000)
    assert check(entries, AuditHead()) == AuditHead(0, 120, head.hash)
    assert head.number == 120
    assert {entry for other_entries in written for entry in (audit_entry.hash for audit_entry in other_entries)} == {
        entry.hash for entry in entries
    }
    assert sum(reconciler.pages for reconciler in reconcilers) < 60, "what comes together is written together"


async def test_reading_from_a_number_or_the_last_ones(stores: Stores) -> None:
    own = reconciler(stores)
    heads: list[AuditHead] = []
    own.anchored = lambda _, head: heads.append(head)
    for number in range(40):
        await own.write("alpha", [note(number)])
    fresh = reconciler(stores)
    entries, head = await fresh.read("alpha", limit=5)
    assert [entry.number for entry in entries] == [36, 37, 38, 39, 40]
    assert head == heads[-1]
    assert [entry.number for entry in (await fresh.read("alpha", start=18, limit=4))[0]] == [18, 19, 20, 21]
    assert (await fresh.read("alpha", start=41))[0] == []
    assert await fresh.read("beta") == ([], AuditHead())
    assert await fresh.write("alpha", []) == ()
    many = await fresh.write("alpha", [note(number) for number in range(450)])
    assert [entry.number for entry in many] == list(range(41, 491))


@dataclass
class Unclear:
    """A store that does what it is asked and says that it does not know; then one that works."""

    under: AuditStore
    left: int
    does: bool

    async def add(self, page: AuditPage) -> bool:
        if self.left:
            self.left -= 1
            if self.does:
                await self.under.add(page)
            raise Transient("no answer")
        return await self.under.add(page)

    def __getattr__(self, name: str) -> object:
        return getattr(self.under, name)


@pytest.mark.parametrize("does", [True, False])
async def test_an_unclear_answer_makes_no_second_entry(stores: Stores, does: bool) -> None:
    own = reconciler(stores)
    await own.write("alpha", [note(1)])
    own.store = Unclear(stores.audit, 2, does)  # type: ignore[assignment]
    (entry,) = await own.write("alpha", [note(2)])
    assert entry.number == 2
    entries, _ = await reconciler(stores).read("alpha", start=1)
    assert [entry.on for entry in entries] == ["j1", "j2"]


async def test_a_page_of_another_that_came_first_is_followed(stores: Stores) -> None:
    own = reconciler(stores)
    await own.write("alpha", [note(1)])
    other = reconciler(stores)
    await other.write("alpha", [note(2)])
    (entry,) = await own.write("alpha", [note(3)])
    assert entry.number == 3
    entries, _ = await other.read("alpha", start=1)
    assert not isinstance(check(entries, AuditHead()), Broken)
    # A changed entry shows however the rest was written.
    assert isinstance(check([entries[0], replace(entries[1], by="mallory"), entries[2]], AuditHead()), Broken)


async def test_without_the_store_the_caller_hears_of_it(unreachable: Stores) -> None:
    with pytest.raises(Transient):
        await reconciler(unreachable).write("alpha", [note(1)])
    with pytest.raises(Transient):
        await reconciler(unreachable).read("alpha")
