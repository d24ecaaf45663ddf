"""The contract of the job store: jobs that are removed for good."""

from __future__ import annotations

from tests.contract.examples import job, record
from tests.contract.room import Stores

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
