"""The contract of the job store: jobs that are removed for good."""

from __future__ import annotations

from tests.contract.examples import job, pilot, record
from tests.contract.room import Stores

from forestay.domain.pilots.pilot import PilotState
from forestay.ports.jobs.job_store import DocumentChange, JobQuery, Written

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
