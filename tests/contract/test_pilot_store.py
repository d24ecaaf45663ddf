"""The contract of the pilot store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.contract.examples import NOW, ODD_TEXTS, pilot
from tests.contract.room import Stores

from forestay.domain.pilots.pilot import Heartbeat, HeartbeatPage, Pilot, PilotState
from forestay.ports.errors import Transient
from forestay.ports.jobs.job_store import Conflicted, Unknown, Version, Written
from forestay.ports.pilots.pilot_store import StoredPilot

OpenAnother = Callable[[], Awaitable[Stores]]


async def put(stores: Stores, made: Pilot, expected: Version | None = None) -> Version:
    result = await stores.pilots.put_pilot(made, expected)
    assert isinstance(result, Written)
    return result.version


class TestPilots:
    async def test_a_pilot_is_read_back_at_once(self, stores: Stores) -> None:
        made = pilot(note="\n".join(ODD_TEXTS), batch_job="slurm:1", extra={"of_the_future": [1]})
        version = await put(stores, made)
        assert await stores.pilots.get_pilot("pilot-1") == StoredPilot(made, version)
        assert await stores.pilots.get_pilot("pilot-2") is None

    async def test_a_second_create_is_refused(self, stores: Stores) -> None:
        version = await put(stores, pilot())
        assert isinstance(await stores.pilots.put_pilot(pilot(host="other"), None), Conflicted)
        assert await stores.pilots.get_pilot("pilot-1") == StoredPilot(pilot(), version)

    async def test_a_rewrite_needs_the_version_that_stands(self, stores: Stores) -> None:
        first = await put(stores, pilot())
        second = await put(stores, pilot(state=PilotState.SILENT), first)
        assert isinstance(await stores.pilots.put_pilot(pilot(state=PilotState.GONE), first), Conflicted)
        other_term = second._replace(term=second.term + 1)
        assert isinstance(await stores.pilots.put_pilot(pilot(state=PilotState.GONE), other_term), Conflicted)
        assert isinstance(await stores.pilots.put_pilot(pilot("pilot-2"), first), Conflicted)
        assert await stores.pilots.get_pilot("pilot-1") == StoredPilot(pilot(state=PilotState.SILENT), second)
        assert await stores.pilots.get_pilot("pilot-2") is None

    async def test_exactly_one_of_many_writers_wins(self, stores: Stores, another: OpenAnother) -> None:
        version = await put(stores, pilot())
        writers = await asyncio.gather(*(another() for _ in range(12)))
        results = await asyncio.gather(
            *(writer.pilots.put_pilot(pilot(note=str(place)), version) for place, writer in enumerate(writers))
        )
        winners = [place for place, result in enumerate(results) if isinstance(result, Written)]
        assert len(winners) == 1
        stored_pilot = await stores.pilots.get_pilot("pilot-1")
        assert stored_pilot is not None
        assert stored_pilot.pilot.note == str(winners[0])

    async def test_finding(self, stores: Stores) -> None:
        made = [
            pilot("a", registered=NOW + 1),
            pilot("b", registered=NOW + 3, tenant="beta"),
            pilot("c", registered=NOW + 2, state=PilotState.GONE),
        ]
        for other_pilot in made:
            await put(stores, other_pilot)
        await stores.jobs.refresh()
        find = stores.pilots.find_pilots
        assert [other_pilot.id for other_pilot in await find()] == ["b", "c", "a"]
        assert [other_pilot.id for other_pilot in await find(tenant="alpha")] == ["c", "a"]
        assert [other_pilot.id for other_pilot in await find(state="alive")] == ["b", "a"]
        assert list(await find(tenant="alpha", state="gone")) == [made[2]]
        assert list(await find(tenant="nobody")) == []


def heartbeat_page(server: str, bucket: int, counter: int = 1) -> HeartbeatPage:
    heartbeats = {
        f"pilot-{number}": Heartbeat(counter, number, 60, (f"claim-{number}",) * number) for number in range(3)
    }
    return HeartbeatPage(server, bucket, counter, f"http://{server}", heartbeats)


class TestHeartbeatPages:
    async def test_the_newest_heartbeat_page_of_each_server_and_bucket_is_seen_fresh(
        self, stores: Stores, another: OpenAnother
    ) -> None:
        for other_heartbeat_page in (
            heartbeat_page("s1", 0),
            heartbeat_page("s1", 1),
            heartbeat_page("s2", 0),
            heartbeat_page("s1", 0, counter=2),
        ):
            await stores.pilots.put_heartbeat_page(other_heartbeat_page)
        heartbeat_pages = await (await another()).pilots.heartbeat_pages(fresh=True)
        by_place = sorted(heartbeat_pages, key=lambda heartbeat_page: (heartbeat_page.server, heartbeat_page.bucket))
        assert by_place == [heartbeat_page("s1", 0, counter=2), heartbeat_page("s1", 1), heartbeat_page("s2", 0)]
        assert list(await stores.pilots.heartbeat_pages(fresh=True, but_of="s1")) == [heartbeat_page("s2", 0)]

    async def test_an_older_counter_is_stored_too(self, stores: Stores) -> None:
        """Only its server writes a heartbeat page, and a server that started again counts from the beginning."""
        await stores.pilots.put_heartbeat_page(heartbeat_page("s1", 0, counter=9))
        await stores.pilots.put_heartbeat_page(heartbeat_page("s1", 0, counter=1))
        assert list(await stores.pilots.heartbeat_pages(fresh=True)) == [heartbeat_page("s1", 0, counter=1)]

    async def test_heartbeat_pages_are_seen_within_a_second_without_asking_for_fresh_ones(self, stores: Stores) -> None:
        await stores.pilots.put_heartbeat_page(heartbeat_page("s1", 0))
        async with asyncio.timeout(10):
            while not await stores.pilots.heartbeat_pages():  # noqa: ASYNC110 - the store calls nobody
                await asyncio.sleep(0.05)

    async def test_the_heartbeat_pages_of_a_server_that_is_gone_are_dropped(self, stores: Stores) -> None:
        for other_heartbeat_page in (heartbeat_page("s1", 0), heartbeat_page("s1", 1), heartbeat_page("s2", 0)):
            await stores.pilots.put_heartbeat_page(other_heartbeat_page)
        await stores.pilots.drop_heartbeat_pages("s1")
        await stores.pilots.drop_heartbeat_pages("never seen")
        assert list(await stores.pilots.heartbeat_pages(fresh=True)) == [heartbeat_page("s2", 0)]

    async def test_no_heartbeat_pages(self, stores: Stores) -> None:
        assert list(await stores.pilots.heartbeat_pages(fresh=True)) == []


class TestOutOfReach:
    async def test_a_write_is_unknown(self, unreachable: Stores) -> None:
        assert isinstance(await unreachable.pilots.put_pilot(pilot(), None), Unknown)

    async def test_everything_else_may_be_tried_again(self, unreachable: Stores) -> None:
        store = unreachable.pilots
        for call in (
            store.get_pilot("pilot-1"),
            store.find_pilots(),
            store.put_heartbeat_page(heartbeat_page("s1", 0)),
            store.heartbeat_pages(),
            store.heartbeat_pages(fresh=True),
            store.drop_heartbeat_pages("s1"),
        ):
            with pytest.raises(Transient):
                await call
