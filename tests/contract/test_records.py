"""The contract of the job store: create-only records, and specifications."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.contract.examples import NOW, ODD_TEXTS, record, specification
from tests.contract.room import Stores

from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import Effects, RetryPolicy, WhenExhausted
from forestay.ports.errors import Transient

OpenAnother = Callable[[], Awaitable[Stores]]


class TestRecords:
    async def test_a_record_is_read_back_at_once(self, stores: Stores) -> None:
        body = {text: [text, {"deep": text}, 1, 0.5, None, True] for text in ODD_TEXTS} | {"long": "x\0" * 20_000}
        made = record("r1", kind="log", job="job é/1", body=body)
        assert list(await stores.jobs.add_records([made])) == [True]
        assert await stores.jobs.get_record("r1") == made
        assert await stores.jobs.get_record("r2") is None

    async def test_the_first_one_stays(self, stores: Stores) -> None:
        await stores.jobs.add_records([record("r1")])
        added = await stores.jobs.add_records([record("r0"), record("r1", body={"text": "other"}), record("r2")])
        assert list(added) == [True, False, True]
        assert await stores.jobs.get_record("r1") == record("r1")

    async def test_one_that_is_sent_twice_in_one_call_is_created_once(self, stores: Stores) -> None:
        added = await stores.jobs.add_records([record("r1"), record("r1", body={"text": "other"})])
        assert list(added) == [True, False]
        assert await stores.jobs.get_record("r1") == record("r1")

    async def test_nothing_to_add(self, stores: Stores) -> None:
        assert list(await stores.jobs.add_records([])) == []

    async def test_exactly_one_of_many_creators_is_told_so(self, stores: Stores, another: OpenAnother) -> None:
        creators = await asyncio.gather(*(another() for _ in range(16)))
        answers = await asyncio.gather(
            *(creator.jobs.add_records([record("r1", body={"by": place})]) for place, creator in enumerate(creators))
        )
        winners = [place for place, (added,) in enumerate(answers) if added]
        assert len(winners) == 1
        assert await stores.jobs.get_record("r1") == record("r1", body={"by": winners[0]})

    async def test_finding(self, stores: Stores) -> None:
        made = [
            record(f"r{place:02}", at=NOW + place // 3, kind=kind, job=f"job-{place % 2}", tenant=tenant)
            for place, (kind, tenant) in enumerate([("log", "alpha"), ("alert", "alpha"), ("log", "beta")] * 4)
        ]
        await stores.jobs.add_records(list(reversed(made)))
        await stores.jobs.refresh()
        find = stores.jobs.find_records
        assert list(await find()) == made
        assert list(await find(kind="log")) == [other_record for other_record in made if other_record.kind == "log"]
        assert list(await find(job="job-1")) == [other_record for other_record in made if other_record.job == "job-1"]
        assert list(await find(tenant="beta")) == [
            other_record for other_record in made if other_record.tenant == "beta"
        ]
        assert list(await find(since=NOW + 2)) == [other_record for other_record in made if other_record.at >= NOW + 2]
        assert list(await find(kind="log", job="job-0", tenant="alpha", since=NOW + 1)) == [made[6]]
        assert list(await find(limit=4)) == made[:4]
        newest = sorted(made, key=lambda other_record: (-other_record.at, other_record.id))
        assert list(await find(newest_first=True)) == newest
        assert list(await find(newest_first=True, limit=5)) == newest[:5]
        assert list(await find(kind="nothing")) == []

    async def test_out_of_reach(self, unreachable: Stores) -> None:
        with pytest.raises(Transient):
            await unreachable.jobs.add_records([record("r1")])


class TestSpecifications:
    async def test_putting_again_changes_nothing(self, stores: Stores) -> None:
        first = specification()
        await stores.jobs.put_specifications([first, first])
        await stores.jobs.put_specifications([first, specification(name="call")])
        await stores.jobs.put_specifications([])
        specifications = await stores.jobs.get_specifications([first.id, "alpha-call", "missing"])
        assert specifications == {first.id: first, "alpha-call": specification(name="call")}
        assert await stores.jobs.get_specifications([]) == {}

    async def test_every_part_is_kept(self, stores: Stores) -> None:
        made = replace(
            specification(),
            command=ODD_TEXTS,
            environment=dict.fromkeys(ODD_TEXTS, "x" * 10_000),
            resources=Resources(2, 1 << 40, 5, 1, 3600),
            outputs=("*.bam", "a/**"),
            effects=Effects.EXTERNAL,
            retry=RetryPolicy(5, 60, WhenExhausted.HOLD),
            extra={"of a newer writer": {"image": "x"}},
        )
        await stores.jobs.put_specifications([made])
        assert await stores.jobs.get_specifications([made.id]) == {made.id: made}

    async def test_out_of_reach(self, unreachable: Stores) -> None:
        with pytest.raises(Transient):
            await unreachable.jobs.put_specifications([specification()])
