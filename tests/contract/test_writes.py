"""The contract of the job store: what is written, and what is refused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.contract.examples import NOW, ODD_TEXTS, ending, job
from tests.contract.room import Room, Stores

from forestay.domain.jobs.claim import Applied, claim, end, release
from forestay.domain.jobs.job_document import AttemptOutcome, JobDocument, State
from forestay.domain.jobs.lifecycle import Event, allowed
from forestay.ports.errors import Permanent, Transient
from forestay.ports.jobs.job_store import (
    Conflicted,
    DocumentChange,
    JobQuery,
    JobStore,
    Stored,
    Unknown,
    Version,
    Written,
)

OpenAnother = Callable[[], Awaitable[Stores]]


async def create(store: JobStore, *documents: JobDocument) -> list[Version]:
    """Store new jobs; their versions."""
    results = await store.write([DocumentChange(document, None) for document in documents])
    assert all(isinstance(result, Written) for result in results)
    return [result.version for result in results if isinstance(result, Written)]


async def read(store: JobStore, identifier: str = "job-1") -> Stored:
    return (await store.get([identifier]))[identifier]


def claimed(document: JobDocument, claim_id: str) -> JobDocument:
    found_claim = claim(document, claim_id=claim_id, pilot=f"pilot of {claim_id}", host="node1", now=NOW)
    assert isinstance(found_claim, JobDocument)
    return found_claim


class TestOneDocument:
    async def test_what_was_created_is_read_back(self, stores: Stores) -> None:
        (version,) = await create(stores.jobs, job())
        assert await stores.jobs.get(["job-1"]) == {"job-1": Stored(job(), version)}

    async def test_a_second_create_is_refused_and_changes_nothing(self, stores: Stores) -> None:
        (version,) = await create(stores.jobs, job())
        (result,) = await stores.jobs.write([DocumentChange(job(owner="mallory"), None)])
        assert isinstance(result, Conflicted)
        assert await read(stores.jobs) == Stored(job(), version)

    async def test_a_job_may_be_created_with_its_first_claim_and_only_one_creator_gets_it(
        self, stores: Stores, another: OpenAnother
    ) -> None:
        others = [stores, *[await another() for _ in range(2)]]
        wanted = [claimed(job(), f"claim-{number}") for number in range(len(others))] + [job()]
        writing = (
            other_stores.jobs.write([DocumentChange(document, None)])
            for other_stores, document in zip([*others, stores], wanted, strict=True)
        )
        results = [result for (result,) in await asyncio.gather(*writing)]
        (winner,) = [number for number, result in enumerate(results) if isinstance(result, Written)]
        stored = await read(stores.jobs)
        assert stored.document == wanted[winner]
        assert [line.event for line in stored.document.history] == [line.event for line in wanted[winner].history]
        await stores.jobs.refresh()
        running = JobQuery(states=frozenset({State.RUNNING}))
        page = await stores.jobs.search(running, limit=10)
        assert [stored.document for stored in page.jobs] == [
            document for document in wanted[winner : winner + 1] if document.claim
        ]

    async def test_a_first_claim_ends_like_any_other(self, stores: Stores) -> None:
        first = claimed(job(), "c1")
        (version,) = await create(stores.jobs, first)
        await stores.jobs.refresh()
        held = JobQuery(states=frozenset({State.RUNNING}), anyof={"pilot": ["pilot of c1"]})
        assert [stored.document.id for stored in (await stores.jobs.search(held)).jobs] == ["job-1"]
        verdict = end(first, ending(first), now=NOW, by="pilot of c1")
        assert isinstance(verdict, Applied)
        (result,) = await stores.jobs.write([DocumentChange(verdict.document, version)])
        assert isinstance(result, Written)
        assert (await read(stores.jobs)).document.state is State.COMPLETED

    async def test_a_rewrite_needs_the_version_that_stands(self, stores: Stores) -> None:
        (first,) = await create(stores.jobs, job())
        (second,) = await stores.jobs.write([DocumentChange(job(priority=1), first)])
        assert isinstance(second, Written)
        assert second.version != first
        (stale,) = await stores.jobs.write([DocumentChange(job(priority=2), first)])
        assert isinstance(stale, Conflicted)
        assert await read(stores.jobs) == Stored(job(priority=1), second.version)

    async def test_a_version_of_another_term_does_not_stand(self, stores: Stores) -> None:
        (version,) = await create(stores.jobs, job())
        (result,) = await stores.jobs.write([DocumentChange(job(priority=1), version._replace(term=version.term + 1))])
        assert isinstance(result, Conflicted)
        assert await read(stores.jobs) == Stored(job(), version)

    async def test_a_rewrite_of_what_is_not_there_makes_nothing(self, stores: Stores) -> None:
        (version,) = await create(stores.jobs, job())
        (result,) = await stores.jobs.write([DocumentChange(job("job-2"), version)])
        assert isinstance(result, Conflicted)
        assert await stores.jobs.get(["job-2"]) == {}

    @pytest.mark.ledger("P4-01")
    async def test_one_versioned_document_records_every_transition(self, stores: Stores) -> None:
        """Each step is one write over the version before it, and a line in the same document."""
        (version,) = await create(stores.jobs, job())
        versions = [version]
        running = claimed(job(), "c1")
        ended = end(running, ending(running), now=NOW + 5, by="pilot-1")
        assert isinstance(ended, Applied)
        for document in (running, ended.document):
            (result,) = await stores.jobs.write([DocumentChange(document, versions[-1])])
            assert isinstance(result, Written)
            versions.append(result.version)
        assert len(set(versions)) == 3
        stored = await read(stores.jobs)
        assert stored == Stored(ended.document, versions[-1])
        story = [(line.rev, line.event, line.state) for line in stored.document.history]
        assert story == [(1, "create", "available"), (2, "claim", "running"), (3, "complete", "completed")]

    @pytest.mark.ledger("P4-03")
    @pytest.mark.parametrize(("outcome", "code"), [(AttemptOutcome.OK, 0), (AttemptOutcome.FAILURE, 1)])
    async def test_a_lost_holder_cannot_record_its_end_over_a_newer_claim(
        self, stores: Stores, outcome: AttemptOutcome, code: int
    ) -> None:
        (version,) = await create(stores.jobs, job())
        first = claimed(job(), "c1")
        (held,) = await stores.jobs.write([DocumentChange(first, version)])
        assert isinstance(held, Written)
        freed = release(first, claim_id="c1", now=NOW, by="reconciler", reason="silent", overlap_possible=True)
        assert isinstance(freed, JobDocument)
        (released,) = await stores.jobs.write([DocumentChange(freed, held.version)])
        assert isinstance(released, Written)
        second = claimed(freed, "c2")
        (newer,) = await stores.jobs.write([DocumentChange(second, released.version)])
        assert isinstance(newer, Written)

        late = end(first, ending(first, outcome, code), now=NOW, by="pilot-1")
        assert isinstance(late, Applied)
        (result,) = await stores.jobs.write([DocumentChange(late.document, held.version)])
        assert isinstance(result, Conflicted)
        assert await read(stores.jobs) == Stored(second, newer.version)

        due = end(second, ending(second, outcome, code), now=NOW, by="pilot-2")
        assert isinstance(due, Applied)
        (recorded,) = await stores.jobs.write([DocumentChange(due.document, newer.version)])
        assert isinstance(recorded, Written)
        document = (await read(stores.jobs)).document
        assert document.state is (State.COMPLETED if outcome is AttemptOutcome.OK else State.FAILED)
        assert document.last is not None
        assert document.last.claim == "c2"


class TestManyDocuments:
    async def test_each_change_is_for_itself(self, stores: Stores) -> None:
        first, second = await create(stores.jobs, job("a"), job("b"))
        (newer,) = await stores.jobs.write([DocumentChange(job("b", priority=1), second)])
        assert isinstance(newer, Written)
        results = await stores.jobs.write(
            [
                DocumentChange(job("e"), None),
                DocumentChange(job("b", priority=2), second),
                DocumentChange(job("a", priority=3), first),
                DocumentChange(job("missing"), first),
                DocumentChange(job("d"), None),
                DocumentChange(job("b2"), None),
            ]
        )
        assert [type(write_result) for write_result in results] == [
            Written,
            Conflicted,
            Written,
            Conflicted,
            Written,
            Written,
        ]
        stored_jobs = await stores.jobs.get(["a", "b", "b2", "d", "e", "missing"])
        assert stored_jobs.keys() == {"a", "b", "b2", "d", "e"}
        assert (stored_jobs["a"].document.priority, stored_jobs["b"].document.priority) == (3, 1)
        for name, place in (("e", 0), ("a", 2), ("d", 4), ("b2", 5)):
            assert results[place] == Written(stored_jobs[name].version)
        assert stored_jobs["b"].version == newer.version

    async def test_a_large_bulk_in_which_every_second_change_is_stale(self, stores: Stores) -> None:
        names = [f"job-{number:04}" for number in range(1000)]
        versions = await create(stores.jobs, *map(job, names))
        half = [DocumentChange(job(name, priority=1), version) for name, version in zip(names, versions, strict=True)][
            ::2
        ]
        assert all(isinstance(write_result, Written) for write_result in await stores.jobs.write(half))
        changes = [
            DocumentChange(job(name, priority=2), version) for name, version in zip(names, versions, strict=True)
        ]
        random.Random(1).shuffle(changes)
        results = await stores.jobs.write(changes)
        for change, result in zip(changes, results, strict=True):
            assert isinstance(result, Conflicted if int(change.document.id[4:]) % 2 == 0 else Written)
        stored_jobs = await stores.jobs.get(names)
        assert [stored_jobs[name].document.priority for name in names] == [1, 2] * 500

    async def test_nothing_to_write_and_nothing_to_get(self, stores: Stores) -> None:
        assert list(await stores.jobs.write([])) == []
        assert await stores.jobs.get([]) == {}


class TestTogether:
    @pytest.mark.ledger("P4-02")
    async def test_exactly_one_of_sixty_claimers_wins(self, stores: Stores, another: OpenAnother) -> None:
        """Each claimer has its own connection, reads the job for itself and then writes at the same moment."""
        await create(stores.jobs, job())
        claimers = await asyncio.gather(*(another() for _ in range(60)))
        read_by_all = asyncio.Barrier(len(claimers))

        async def try_to_claim(number: int) -> Written | Conflicted | Unknown:
            stored = await read(claimers[number].jobs)
            await read_by_all.wait()
            (result,) = await claimers[number].jobs.write(
                [DocumentChange(claimed(stored.document, f"c{number}"), stored.version)]
            )
            return result

        results = await asyncio.gather(*map(try_to_claim, range(len(claimers))))
        winners = [number for number, result in enumerate(results) if isinstance(result, Written)]
        assert len(winners) == 1
        found_stored = await read(stores.jobs)
        assert results[winners[0]] == Written(found_stored.version)
        assert found_stored.document.claim is not None
        assert found_stored.document.claim.id == f"c{winners[0]}"
        assert found_stored.document.attempt == 1

    @pytest.mark.ledger("P4-02")
    async def test_bulks_of_claims_for_the_same_jobs_in_different_orders(
        self, stores: Stores, another: OpenAnother
    ) -> None:
        """Every job is won once, by the claimer that was told so; nobody waits for ever for somebody else's lock."""
        names = [f"job-{number}" for number in range(100)]
        await create(stores.jobs, *map(job, names))
        seen = await stores.jobs.get(names)
        claimers = await asyncio.gather(*(another() for _ in range(8)))

        async def claim_all(number: int) -> dict[str, int]:
            order = random.Random(number).sample(names, len(names))
            changes = [DocumentChange(claimed(seen[name].document, f"c{number}"), seen[name].version) for name in order]
            results = await claimers[number].jobs.write(changes)
            assert not any(isinstance(result, Unknown) for result in results)
            return {name: number for name, result in zip(order, results, strict=True) if isinstance(result, Written)}

        wins = await asyncio.gather(*map(claim_all, range(len(claimers))))
        winner_of = {name: number for won in wins for name, number in won.items()}
        assert sum(map(len, wins)) == len(winner_of) == len(names)
        for name, stored in (await stores.jobs.get(names)).items():
            assert stored.document.claim is not None
            assert stored.document.claim.id == f"c{winner_of[name]}"

    async def test_exactly_one_of_many_creators_wins(self, stores: Stores, another: OpenAnother) -> None:
        creators = await asyncio.gather(*(another() for _ in range(16)))
        changes = [[DocumentChange(job(owner=f"owner-{number}"), None)] for number in range(len(creators))]
        results = await asyncio.gather(
            *(creator.jobs.write(change) for creator, change in zip(creators, changes, strict=True))
        )
        winners = [number for number, (result,) in enumerate(results) if isinstance(result, Written)]
        assert len(winners) == 1
        assert (await read(stores.jobs)).document.owner == f"owner-{winners[0]}"

    async def test_many_calls_at_once_on_one_instance(self, stores: Stores) -> None:
        async def one(number: int) -> None:
            name = f"job-{number}"
            (version,) = await create(stores.jobs, job(name))
            assert await read(stores.jobs, name) == Stored(job(name), version)

        await asyncio.gather(*map(one, range(100)))

    async def test_a_cancelled_call_leaves_the_store_usable(self, stores: Stores) -> None:
        for number in range(10):
            task = asyncio.ensure_future(stores.jobs.write([DocumentChange(job(f"dropped-{number}"), None)]))
            await asyncio.sleep(0.001 * number)
            task.cancel()
            await asyncio.wait([task])
        (version,) = await create(stores.jobs, job())
        assert await read(stores.jobs) == Stored(job(), version)


class TestAcrossInstances:
    async def test_what_is_acknowledged_is_there_for_everyone_at_once(
        self, stores: Stores, another: OpenAnother
    ) -> None:
        other = await another()
        (version,) = await create(stores.jobs, job())
        assert await read(other.jobs) == Stored(job(), version)
        (result,) = await other.jobs.write([DocumentChange(job(priority=7), version)])
        assert isinstance(result, Written)
        assert await read(stores.jobs) == Stored(job(priority=7), result.version)

    async def test_what_was_stored_is_there_after_closing_and_opening(self, room: Room) -> None:
        first = room.stores().jobs
        await first.open()
        (version,) = await create(first, job())
        await first.close()
        second = room.stores().jobs
        await second.open()
        try:
            assert await read(second) == Stored(job(), version)
        finally:
            await second.close()

    async def test_several_open_a_new_store_at_the_same_time(self, room: Room) -> None:
        instances = [room.stores().jobs for _ in range(6)]
        try:
            await asyncio.gather(*(instance.open() for instance in instances))
            await create(instances[0], job())
            for instance in instances:
                assert (await read(instance)).document == job()
        finally:
            for instance in instances:
                await instance.close()


class TestFaithfulness:
    async def test_fields_of_a_newer_writer_survive_a_rewrite(self, stores: Stores) -> None:
        extra = {"affinity": {"sites": ["x", "y"], "weight": 0.5}, "of_the_future": None}
        (version,) = await create(stores.jobs, job(extra=extra))
        stored = await read(stores.jobs)
        assert stored.document.extra == extra
        (result,) = await stores.jobs.write([DocumentChange(claimed(stored.document, "c1"), version)])
        assert isinstance(result, Written)
        document = (await read(stores.jobs)).document
        assert (document.state, document.extra) == (State.RUNNING, extra)

    async def test_a_document_that_asks_for_a_newer_writer_is_read_and_left_alone(self, stores: Stores) -> None:
        await create(stores.jobs, job(min_writer=99))
        document = (await read(stores.jobs)).document
        assert document == job(min_writer=99)
        assert not allowed(document, Event.CLAIM)
        await stores.jobs.refresh()
        page = await stores.jobs.search(JobQuery())
        assert [stored.document for stored in page.jobs] == [document]

    async def test_texts_are_kept_as_they_are_and_found_by_them(self, stores: Stores) -> None:
        documents = [
            job(
                f"job-{place}", owner=text, name=text, team=text, labels={text: text},
                parameters={text: [text, {"deep": text}], "long": (text + "\\\"é\0") * 1000, "number": 0.1},
            )
            for place, text in enumerate(ODD_TEXTS)
        ]  # fmt: skip
        await create(stores.jobs, *documents)
        stored_jobs = await stores.jobs.get([document.id for document in documents])
        assert [stored_jobs[document.id].document for document in documents] == documents
        await stores.jobs.refresh()
        for document, text in zip(documents, ODD_TEXTS, strict=True):
            for query in (
                JobQuery(anyof={"owner": [text]}),
                JobQuery(anyof={"name": [text], "team": [text, "other"]}),
                JobQuery(labels={text: text}),
            ):
                assert [stored.document for stored in (await stores.jobs.search(query)).jobs] == [document]
        counts = await stores.jobs.count(JobQuery(), by="owner")
        assert counts == dict.fromkeys(ODD_TEXTS, 1)

    async def test_labels_do_not_run_into_each_other(self, stores: Stores) -> None:
        await create(stores.jobs, job("a", labels={"x=y": "z"}), job("b", labels={"x": "y=z"}))
        await stores.jobs.refresh()
        for query, name in (({"x=y": "z"}, "a"), ({"x": "y=z"}, "b")):
            page = await stores.jobs.search(JobQuery(labels=query))
            assert [stored.document.id for stored in page.jobs] == [name]

    async def test_a_label_that_was_changed_is_found_by_the_new_one_alone(self, stores: Stores) -> None:
        (version,) = await create(stores.jobs, job(labels={"run": "7"}))
        await stores.jobs.write([DocumentChange(job(labels={"run": "8"}), version)])
        await stores.jobs.refresh()
        assert (await stores.jobs.search(JobQuery(labels={"run": "7"}))).jobs == []
        assert len((await stores.jobs.search(JobQuery(labels={"run": "8"}))).jobs) == 1

    @pytest.mark.parametrize("value", ["half a character \ud800", 2**70, {1, 2}], ids=["half", "huge", "set"])
    async def test_what_cannot_be_stored_is_refused_for_good(self, stores: Stores, value: object) -> None:
        with pytest.raises(Permanent):
            await stores.jobs.write([DocumentChange(job(parameters={"value": value}), None)])
        assert await stores.jobs.get(["job-1"]) == {}


class TestOutOfReach:
    async def test_writes_are_unknown(self, unreachable: Stores) -> None:
        changes = [DocumentChange(job("a"), None), DocumentChange(replace(job("b"), priority=1), Version(1, 1))]
        results = await unreachable.jobs.write(changes)
        assert [type(result) for result in results] == [Unknown, Unknown]

    async def test_everything_else_may_be_tried_again(self, unreachable: Stores) -> None:
        store = unreachable.jobs
        for call in (
            store.open(),
            store.get(["job-1"]),
            store.search(JobQuery()),
            store.count(JobQuery(), by="state"),
            store.get_specifications(["s"]),
            store.get_record("r"),
            store.find_records(kind="evidence"),
        ):
            with pytest.raises(Transient):
                await call
