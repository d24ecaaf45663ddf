"""The contract of the job store: jobs that are removed for good."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.contract.examples import NOW, ODD_TEXTS, job, pilot, record, specification
from tests.contract.room import Stores
from tests.contract.test_audit import page
from tests.contract.test_incident_store import add, incident, step

from forestay.domain.exceptions.incidents.incident import Decision, IncidentState
from forestay.domain.exceptions.safeguards.audit import AuditHead, head_of
from forestay.domain.pilots.pilot import PilotState
from forestay.ports.documents import Document
from forestay.ports.exceptions.incident_store import IncidentQuery
from forestay.ports.jobs.job_store import USE_NOTED, DocumentChange, JobQuery, SpecificationUse, Written

NAMES = ("one", "two", "three é\0")


async def made(stores: Stores) -> None:
    written = await stores.jobs.write([DocumentChange(job(name), None) for name in NAMES])
    assert all(isinstance(write_result, Written) for write_result in written)
    await stores.jobs.add_records([record(f"r-{name}", kind="log", job=name) for name in NAMES])
    await stores.jobs.add_records([record("r-of-none", kind="key", job="")])
    await stores.jobs.refresh()


async def test_a_job_goes_with_its_records_and_nothing_else_does(stores: Stores) -> None:
    await made(stores)
    stored_jobs = await stores.jobs.get(["one", NAMES[2]])
    assert await stores.jobs.remove(list(stored_jobs.values())) == 2
    assert set(await stores.jobs.get(NAMES)) == {"two"}
    await stores.jobs.refresh()
    page = await stores.jobs.search(JobQuery())
    assert [stored.document.id for stored in page.jobs] == ["two"]
    assert {other_record.id for other_record in await stores.jobs.find_records()} == {"r-two", "r-of-none"}
    assert await stores.jobs.get_record("r-one") is None


async def test_one_that_was_written_since_stays(stores: Stores) -> None:
    await made(stores)
    stored_jobs = await stores.jobs.get(NAMES)
    read = stored_jobs["one"]
    (result,) = await stores.jobs.write([DocumentChange(read.document.having(priority=7), read.version)])
    assert isinstance(result, Written)
    assert await stores.jobs.remove(list(stored_jobs.values())) == 2
    (kept,) = (await stores.jobs.get(NAMES)).values()
    assert (kept.document.id, kept.document.priority) == ("one", 7)


async def test_what_is_gone_already_is_not_counted(stores: Stores) -> None:
    await made(stores)
    stored_jobs = list((await stores.jobs.get(NAMES)).values())
    assert [await stores.jobs.remove(some) for some in (stored_jobs[:1], stored_jobs, stored_jobs, [])] == [1, 2, 0, 0]


async def test_a_name_that_was_removed_can_be_given_again(stores: Stores) -> None:
    await made(stores)
    await stores.jobs.remove(list((await stores.jobs.get(["one"])).values()))
    (result,) = await stores.jobs.write([DocumentChange(job("one"), None)])
    assert isinstance(result, Written)
    assert set(await stores.jobs.get(["one"])) == {"one"}


async def test_many_go_at_once(stores: Stores) -> None:
    names = [f"many-{number}" for number in range(1000)]
    await stores.jobs.write([DocumentChange(job(name), None) for name in names])
    stored_jobs = await stores.jobs.get(names)
    assert await stores.jobs.remove(list(stored_jobs.values())) == 1000
    assert not await stores.jobs.get(names)


async def test_old_records_go_by_kind_or_by_whom_they_are_beside(stores: Stores) -> None:
    kinds = ("alert", "log", "key")
    every = [
        record(f"{kind}-{name}-{at}", kind=kind, job=name, at=at) for kind in kinds for name in NAMES for at in (1, 5)
    ]
    await stores.jobs.add_records(every)
    await stores.jobs.refresh()
    assert await stores.jobs.drop_records(5, kinds=["alert"], jobs=[NAMES[2]]) == 5
    await stores.jobs.refresh()
    assert {found.id for found in await stores.jobs.find_records()} == {
        old.id for old in every if old.at == 5 or (old.kind != "alert" and old.job != NAMES[2])
    }
    assert await stores.jobs.drop_records(5) == 0
    assert await stores.jobs.drop_records(5, kinds=["alert"]) == 0


async def test_pilots_that_are_gone_for_long_go(stores: Stores) -> None:
    for name, state, registered in (
        ("gone", PilotState.GONE, 1),
        ("silent", PilotState.SILENT, 1),
        ("gone since", PilotState.GONE, 5),
    ):
        assert isinstance(await stores.pilots.put_pilot(pilot(name, state=state, registered=registered), None), Written)
    await stores.jobs.refresh()
    assert await stores.pilots.drop_gone(5) == 1
    assert await stores.pilots.drop_gone(5) == 0
    await stores.jobs.refresh()
    assert {found.id for found in await stores.pilots.find_pilots()} == {"silent", "gone since"}


async def test_old_records_go_by_their_ids_unless_they_were_created_again(stores: Stores) -> None:
    await stores.jobs.add_records([record("again", at=1), record("old é\0", at=1), record("other", at=1)])
    await stores.jobs.refresh()
    assert await stores.jobs.drop_records(5, ids=["again"]) == 1
    await stores.jobs.add_records([record("again", at=7)])
    await stores.jobs.refresh()
    assert await stores.jobs.drop_records(5, ids=["again", "old é\0", "none"]) == 1
    await stores.jobs.refresh()
    assert {found.id for found in await stores.jobs.find_records()} == {"again", "other"}


async def test_all_records_are_found_page_by_page(stores: Stores) -> None:
    """Many have the same time: a page that continues after a time alone would repeat or miss some."""
    names = [f"r-{number:03}" for number in range(23)] + list(ODD_TEXTS)
    await stores.jobs.add_records([record(name, at=7 if place > 3 else place) for place, name in enumerate(names)])
    await stores.jobs.refresh()
    found: list[str] = []
    after = None
    while page_of := await stores.jobs.find_records(kind="evidence", after=after, limit=5):
        found += [entry.id for entry in page_of]
        after = page_of[-1].at, page_of[-1].id
    assert sorted(found) == sorted(names)
    assert len(found) == len(names)
    assert await stores.jobs.find_records(after=(0, "r-000"), since=7, limit=1) == [
        next(entry for entry in await stores.jobs.find_records(since=7, limit=1))
    ]


class TestIncidents:
    async def test_one_goes_with_its_decisions_and_steps(self, stores: Stores) -> None:
        names = ["i1", ODD_TEXTS[1], "stays"]
        await add(stores, *(incident(name) for name in names))
        await stores.incidents.add_decisions([Decision(name, 1, "alpha", NOW, "retry", "ann") for name in names])
        await stores.incidents.add_steps([step(name) for name in names])
        await stores.jobs.refresh()
        gone = await stores.incidents.get_statuses(names[:2])
        assert await stores.incidents.remove(list(gone.values())) == 2
        assert set(await stores.incidents.get_incidents(names)) == {"stays"}
        assert set(await stores.incidents.get_statuses(names)) == {"stays"}
        assert await stores.incidents.get_decision("i1", 1) is None
        await stores.jobs.refresh()
        assert await stores.incidents.steps("i1") == []
        assert len(await stores.incidents.steps("stays")) == 1
        page_of = await stores.incidents.find(IncidentQuery())
        assert [stored.status.id for stored in page_of.statuses] == ["stays"]
        assert await stores.incidents.remove(list(gone.values())) == 0
        assert await stores.incidents.remove([]) == 0

    async def test_one_whose_status_was_written_since_stays(self, stores: Stores) -> None:
        await add(stores, incident("i1"))
        read = (await stores.incidents.get_statuses(["i1"]))["i1"]
        changed = read.status.moved(IncidentState.HELD, now=NOW + 1)
        (result,) = await stores.incidents.put_statuses([(changed, read.version)])
        assert isinstance(result, Written)
        assert await stores.incidents.remove([read]) == 0
        assert (await stores.incidents.get_statuses(["i1"]))["i1"].status.state is IncidentState.HELD

    async def test_one_can_be_created_again(self, stores: Stores) -> None:
        await add(stores, incident("i1"))
        await stores.jobs.refresh()
        assert await stores.incidents.remove(list((await stores.incidents.get_statuses(["i1"])).values())) == 1
        await add(stores, incident("i1"))
        assert set(await stores.incidents.get_statuses(["i1"])) == {"i1"}


class TestSpecifications:
    async def unused(self, stores: Stores, before: int) -> dict[str, SpecificationUse]:
        await stores.jobs.refresh()
        return {use.id: use for use in await stores.jobs.unused_specifications(before)}

    async def test_those_not_used_for_long_are_found_the_longest_unused_first(self, stores: Stores) -> None:
        day = USE_NOTED
        for number in (3, 1, 2):
            await stores.jobs.put_specifications([specification(name=f"s{number}")], used=number * day)
        assert list(await self.unused(stores, 3 * day)) == ["alpha-s1", "alpha-s2"]
        await stores.jobs.refresh()
        assert [use.used for use in await stores.jobs.unused_specifications(9 * day, limit=1)] == [day]

    async def test_a_use_is_noted_with_one_that_exists(self, stores: Stores) -> None:
        made = specification()
        await stores.jobs.put_specifications([made], used=USE_NOTED)
        await stores.jobs.put_specifications([made], used=5 * USE_NOTED)
        assert await self.unused(stores, 5 * USE_NOTED) == {}
        assert (await self.unused(stores, 5 * USE_NOTED + 1))[made.id].used == 5 * USE_NOTED
        assert await stores.jobs.get_specifications([made.id]) == {made.id: made}

    async def test_an_earlier_note_does_not_replace_a_later_one(self, stores: Stores) -> None:
        made = specification()
        await stores.jobs.put_specifications([made], used=5 * USE_NOTED)
        await stores.jobs.put_specifications([made], used=USE_NOTED)
        assert await self.unused(stores, 5 * USE_NOTED) == {}

    async def test_one_that_was_used_since_stays(self, stores: Stores) -> None:
        made = [specification(name="used"), specification(name="unused é")]
        await stores.jobs.put_specifications(made, used=USE_NOTED)
        old = list((await self.unused(stores, 2 * USE_NOTED)).values())
        assert len(old) == 2
        await stores.jobs.put_specifications(made[:1], used=3 * USE_NOTED)
        assert await stores.jobs.remove_specifications(old) == 1
        assert await stores.jobs.get_specifications([spec.id for spec in made]) == {made[0].id: made[0]}
        assert await stores.jobs.remove_specifications(old) == 0
        assert await stores.jobs.remove_specifications([]) == 0

    async def test_one_that_is_removed_and_used_at_the_same_time_is_there(self, stores: Stores) -> None:
        """The writer of a job relies on it from the moment on at which its use was acknowledged."""
        for number in range(20):
            made = specification(name=f"raced-{number}")
            await stores.jobs.put_specifications([made], used=USE_NOTED)
            old = list((await self.unused(stores, 2 * USE_NOTED)).values())
            await asyncio.gather(
                stores.jobs.remove_specifications(old), stores.jobs.put_specifications([made], used=9 * USE_NOTED)
            )
            assert await stores.jobs.get_specifications([made.id]) == {made.id: made}

    async def test_a_use_can_be_noted_where_an_earlier_release_noted_none(self, stores: Stores) -> None:
        made = specification()
        await stores.jobs.put_specifications([made])
        (use,) = (await self.unused(stores, NOW)).values()
        assert use.used == 0
        assert await stores.jobs.note_use([use], NOW) == 1
        assert await stores.jobs.note_use([use], NOW + 1) == 0
        assert await stores.jobs.note_use([], NOW) == 0
        assert await self.unused(stores, NOW) == {}
        assert await stores.jobs.get_specifications([made.id]) == {made.id: made}


class TestAuditLog:
    async def test_the_first_pages_of_one_tenant_go(self, stores: Stores) -> None:
        head = AuditHead()
        for number in range(5):
            made = page(head, f"n{number}")
            assert await stores.audit.add(made)
            head = head_of(made)
        assert await stores.audit.add(page(tenant="beta"))
        await stores.jobs.refresh()
        assert await stores.audit.tenants() == ["alpha", "beta"]
        assert await stores.audit.remove_first("alpha", 3) == 3
        await stores.jobs.refresh()
        assert sorted(await stores.audit.get("alpha", range(1, 9))) == [4, 5]
        assert [found.number for found in await stores.audit.find("alpha", entry=1)] == [4, 5]
        assert await stores.audit.remove_first("alpha", 3) == 0
        assert await stores.audit.get("beta", [1])


async def test_kinds_are_found_by_how_they_begin(stores: Stores) -> None:
    kinds = ["launch-ended:a:1", "launch-ended:b:2", "launch:a", "launch-endee", "other"]
    await stores.documents.put([(Document(f"d-{kind}", "alpha", kind, {}), None) for kind in kinds])
    await stores.documents.put([(Document("second", "alpha", kinds[0], {}), None)])
    await stores.jobs.refresh()
    assert await stores.documents.kinds("launch-ended:") == kinds[:2]
    assert await stores.documents.kinds("none") == []


@pytest.mark.parametrize("many", [3, 7])
async def test_pilots_are_found_however_many_there_are(
    stores: Stores, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sql", "opensearch"):
        monkeypatch.setattr(f"forestay.adapters.{module}.pilot_store.MAX_PAGE", 3)
    for number in range(many):
        made = replace(pilot(f"p-{number}"), registered=NOW + number // 2)
        assert isinstance(await stores.pilots.put_pilot(made, None), Written)
    await stores.jobs.refresh()
    found = await stores.pilots.find_pilots(tenant="alpha")
    assert len(found) == len({entry.id for entry in found}) == many
    assert [entry.registered for entry in found] == sorted((entry.registered for entry in found), reverse=True)
