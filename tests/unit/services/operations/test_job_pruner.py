"""Jobs that ended long ago are removed, and nothing that anybody may still ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.contract.examples import job, pilot, record, specification

from forestay.adapters.sql.document_store import SqlDocumentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.sql.pilot_store import SqlPilotStore
from forestay.adapters.system.clock import RandomIds, SystemClock
from forestay.domain.jobs.job_document import FINAL, Delivery, FlowRef, JobDocument, State
from forestay.domain.jobs.reuse import REUSE
from forestay.domain.jobs.submission import Submission
from forestay.domain.peers.placing import Placing
from forestay.domain.pilots.pilot import PilotState
from forestay.ports.documents import Document
from forestay.ports.errors import Conflict, NotFound, Transient
from forestay.ports.flows.flow_engine import RunQuery
from forestay.ports.jobs.job_store import DocumentChange, Stored
from forestay.services.flows.flow_jobs import document_of
from forestay.services.jobs.job_submitter import JobSubmitter
from forestay.services.jobs.store_marks import pruned_before
from forestay.services.operations.job_pruner import JobPruner, Pruned
from forestay.services.operations.retention import DAY

OLD = 1_000_000
BEFORE = 2_000_000


@dataclass
class FakeEngine:
    """Knows of runs when they began and ended, and what was above them."""

    ended: dict[str, int | None] = field(default_factory=dict)
    above: dict[str, str] = field(default_factory=dict)
    began: int = OLD - 1
    asked: list[str] = field(default_factory=list)

    async def describe(self, run: str) -> Any:
        self.asked.append(run)
        if run not in self.ended:
            raise NotFound(run)
        return SimpleNamespace(ended=self.ended[run], above=self.above.get(run, ""))

    async def find(self, query: RunQuery, *, limit: int, cursor: str | None) -> Any:
        """One a page."""
        assert (query.tenant, query.open, limit > 0) == ("alpha", True, True)
        there, at = [run for run, ended in self.ended.items() if ended is None], int(cursor or 0)
        runs = [SimpleNamespace(started=self.began + at) for _ in there[at : at + 1]]
        return SimpleNamespace(runs=runs, cursor=str(at + 1) if at + 1 < len(there) else None)


@dataclass
class Desk:
    store: SqlJobStore
    documents: SqlDocumentStore
    engine: FakeEngine
    prune: JobPruner

    async def put(self, *documents: JobDocument) -> None:
        await self.store.write([DocumentChange(document, None) for document in documents])

    async def there(self, *names: str) -> set[str]:
        return set(await self.store.get(names))


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    store = SqlJobStore(f"sqlite:///{tmp_path / 'prune.db'}")
    await store.open()
    documents, engine = SqlDocumentStore(store.database), FakeEngine()
    pruner = JobPruner(store, documents, SqlPilotStore(store.database), SystemClock(), engine)  # type: ignore[arg-type]
    yield Desk(store, documents, engine, pruner)
    await store.close()


def flow_ref(run: str) -> FlowRef:
    return FlowRef(run, "align@1", "f" * 64, -1, 0, 1)


async def test_only_what_has_ended_and_is_old_goes(desk: Desk) -> None:
    every = [job(state.value, state=state, changed=OLD) for state in State]
    await desk.put(*every, job("new", state=State.COMPLETED, changed=BEFORE + 1))
    assert await desk.prune.prune(BEFORE) == Pruned(len(FINAL), 0)
    left = {state.value for state in State} - {state.value for state in FINAL} | {"new"}
    assert await desk.there(*(state.value for state in State), "new") == left


async def test_what_is_known_of_a_result_goes_with_its_job(desk: Desk) -> None:
    note = {"key": "k", "place": "reuse-last:alpha:p"}
    await desk.put(job("old", state=State.COMPLETED, changed=OLD, extra={REUSE: note}))
    entries = [Document(name, "alpha", "reuse", {"job": "old"}) for name in ("reuse:alpha:k", "reuse-last:alpha:p")]
    other = Document("reuse:alpha:other", "alpha", "reuse", {"job": "new"})
    await desk.documents.put([(entry, None) for entry in [*entries, other]])
    await desk.prune.prune(BEFORE)
    assert list(await desk.documents.get([entry.id for entry in [*entries, other]])) == [other.id]


async def test_jobs_of_a_run_stay_until_it_has_ended(desk: Desk) -> None:
    desk.engine.ended = {"open": None, "over": 5}
    names = [f"{run}-{number}" for run in ("open", "over") for number in range(3)]
    await desk.put(
        *(job(name, state=State.COMPLETED, changed=OLD, flow_ref=flow_ref(name.split("-")[0])) for name in names)
    )
    assert await desk.prune.prune(BEFORE) == Pruned(3, 3)
    assert await desk.there(*names) == {"open-0", "open-1", "open-2"}
    assert sorted(desk.engine.asked) == ["open", "over"], "each is asked after once"
    desk.engine.ended["open"] = 9
    assert await desk.prune.prune(BEFORE) == Pruned(3, 0)


async def test_jobs_of_a_sub_flow_stay_until_all_above_it_have_ended(desk: Desk) -> None:
    """The runs above may still read what they made: whether the engine started it, it was placed, or it is a worklet."""
    runs = ("by-engine", "by-worklet", "by-placing")
    desk.engine.ended = {"root": None, "middle": 7, **dict.fromkeys(runs, 5)}
    desk.engine.above = {"by-engine": "middle", "middle": "root"}
    await desk.store.add_records(
        [record("worklet:by-worklet", kind="worklet", job="by-worklet", body={"run": "middle"})]
    )
    placed = Placing("by-placing", "alpha", "ada", parent="middle", work="w", index=0, flow="f", name="n", wanted="any")
    await desk.documents.put([(Document("placing:by-placing", "alpha", "placing-here", placed.as_plain()), None)])
    await desk.put(*(job(run, state=State.COMPLETED, changed=OLD, flow_ref=flow_ref(run)) for run in runs))
    assert await desk.prune.prune(BEFORE) == Pruned(0, 3)
    # The store knows what was above these two; of the third the engine alone did.
    desk.engine.ended = {"root": None, "middle": 7}
    assert await desk.prune.prune(BEFORE) == Pruned(0, 3)
    desk.engine.ended["root"] = 9
    assert await desk.prune.prune(BEFORE) == Pruned(3, 0)


@pytest.mark.parametrize(("began", "others", "gone"), [(OLD - 1, 1, 0), (OLD + 1, 2, 1), (OLD - 1, 0, 1)])
async def test_jobs_of_a_run_that_the_engine_forgot_go_if_no_run_is_older(
    desk: Desk, began: int, others: int, gone: int
) -> None:
    """Nobody knows any more what was above it; one that began later was not."""
    desk.engine.began = began
    desk.engine.ended = {f"other-{number}": None for number in range(others)}
    await desk.put(job("one", state=State.COMPLETED, changed=OLD, flow_ref=flow_ref("forgotten")))
    assert await desk.prune.prune(BEFORE) == Pruned(gone, 1 - gone)


async def test_where_nobody_knows_of_runs_their_jobs_stay(desk: Desk) -> None:
    await desk.put(job("one", state=State.COMPLETED, changed=OLD, flow_ref=flow_ref("any")))
    desk.prune.engine = None
    assert await desk.prune.prune(BEFORE) == Pruned(0, 1)


async def test_an_end_that_is_still_to_be_told_stays(desk: Desk) -> None:
    delivery = Delivery("https://example.org", done=True)
    await desk.put(
        job("told", state=State.FAILED, changed=OLD, delivery=delivery),
        job("untold", state=State.FAILED, changed=OLD, delivery=Delivery("https://example.org", 3, due=OLD)),
    )
    assert await desk.prune.prune(BEFORE) == Pruned(1, 1)
    assert await desk.there("told", "untold") == {"untold"}


async def test_a_dry_run_removes_nothing(desk: Desk) -> None:
    await desk.put(job("one", state=State.CANCELLED, changed=OLD))
    seen: list[Pruned] = []
    assert await desk.prune.prune(BEFORE, dry_run=True, on_progress=seen.append) == Pruned(1, 0)
    assert seen == [Pruned(1, 0)]
    assert await desk.there("one")
    assert await pruned_before(desk.documents) == 0


async def test_more_than_a_page_goes_beside_some_that_stay(desk: Desk) -> None:
    desk.engine.ended = {"open": None}
    names = [f"job-{number:04}" for number in range(1200)]
    await desk.put(
        *(
            job(
                name,
                state=State.COMPLETED,
                changed=OLD + place // 7,
                flow_ref=flow_ref("open") if place % 3 == 0 else None,
            )
            for place, name in enumerate(names)
        )
    )
    await desk.store.add_records([record(f"r-{name}", job=name) for name in names])
    assert await desk.prune.prune(BEFORE) == Pruned(800, 400)
    assert await desk.there(*names) == set(names[::3])
    assert {other_record.job for other_record in await desk.store.find_records(limit=2000)} == set(names[::3])


async def test_one_that_is_written_meanwhile_stays(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    await desk.put(job("one", state=State.FAILED, changed=OLD), job("two", state=State.FAILED, changed=OLD))
    remove = desk.store.remove

    async def late(jobs: list[Stored]) -> int:
        read = (await desk.store.get(["one"]))["one"]
        await desk.store.write([DocumentChange(read.document.having(state=State.FORCED_COMPLETE), read.version)])
        return await remove(jobs)

    monkeypatch.setattr(desk.store, "remove", late)
    assert await desk.prune.prune(BEFORE) == Pruned(1, 0)
    assert await desk.there("one", "two") == {"one"}


async def test_the_mark_only_moves_on(desk: Desk) -> None:
    for before in (BEFORE, BEFORE - 5):
        await desk.put(job(f"job-{before}", state=State.FAILED, changed=OLD))
        await desk.prune.prune(before)
    assert await pruned_before(desk.documents) == BEFORE


async def test_what_was_removed_is_not_run_again_by_a_repeat(desk: Desk) -> None:
    """Of a request with a key; one whose jobs are all there is answered as ever, however old it is."""
    clock = SystemClock()

    def submit(key: str) -> Any:
        desk_of_one = JobSubmitter(
            desk.store, clock, RandomIds(), documents=desk.documents
        )  # no memory of earlier requests
        return desk_of_one.submit([Submission(specification(), "ada")] * 2, by="ada", key=key)

    gone, stays = [await submit(key) for key in ("gone", "stays")]
    known = await desk.store.get([gone[0].id])
    ended = [DocumentChange(stored.document.having(state=State.COMPLETED), stored.version) for stored in known.values()]
    await desk.store.write(ended)
    assert await desk.prune.prune(clock.now()) == Pruned(1, 0)
    with pytest.raises(Conflict, match="removed; use a new key"):
        await submit("gone")
    assert await desk.there(gone[0].id) == set()
    assert [entry.created for entry in await submit("stays")] == [False, False]
    assert [entry.id for entry in await submit("stays")] == [stay.id for stay in stays]


async def test_a_store_that_does_not_answer_is_asked_another_time(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    await desk.put(job("one", state=State.FAILED, changed=OLD))

    async def away(_jobs: list[Stored]) -> int:
        raise Transient("away")

    with monkeypatch.context() as patched:
        patched.setattr(desk.store, "remove", away)
        with pytest.raises(Transient):
            await desk.prune.prune(BEFORE)
    assert await desk.prune.prune(BEFORE) == Pruned(1, 0)


@pytest.mark.finding("F-E")
async def test_what_was_delivered_to_a_run_goes_with_its_jobs(desk: Desk) -> None:
    """A thousand jobs were pruned and a thousand documents stayed."""
    desk.engine.ended = {"over": OLD, "open": None}
    for run in ("over", "open"):
        ref = flow_ref(run)
        name = document_of(ref.run, ref.work, ref.shard)
        await desk.documents.put([(Document(name, "alpha", "delivery", {"run": run, "ended": "ff"}), None)])
        await desk.put(job(run, state=State.COMPLETED, changed=OLD, flow_ref=ref))
    await desk.prune.prune(BEFORE)
    assert await desk.there("over", "open") == {"open"}
    assert [stored.document.body["run"] for stored in await desk.documents.find("delivery")] == ["open"]


@pytest.mark.finding("F-E")
@pytest.mark.parametrize("kind", ["login", "enrolment"])
async def test_secrets_that_expired_go_even_where_jobs_are_kept_for_ever(desk: Desk, kind: str) -> None:
    now = SystemClock().now()
    for name, expires in (("old", now - DAY - 1), ("yesterday", now - DAY + 60_000), ("new", now + 60_000)):
        await desk.documents.put([(Document(name, "alpha", kind, {"expires": expires, "used": False}), None)])
    assert await desk.prune.drop_expired() == 1
    assert [stored.document.id for stored in await desk.documents.find(kind)] == ["new", "yesterday"]


async def test_what_is_told_of_an_ended_run_and_old_alerts_and_pilots_go_with_its_jobs(desk: Desk) -> None:
    desk.engine.ended = {"over": 5}
    await desk.put(job("one", state=State.COMPLETED, changed=OLD, flow_ref=flow_ref("over")))
    await desk.store.add_records(
        [
            record("told", kind="run-event", job="over", at=OLD),
            record("told-since", kind="run-event", job="over", at=BEFORE),
            record("of-another", kind="run-event", job="open", at=OLD),
            record("old-alert", kind="alert", job="", at=OLD),
            record("alert", kind="alert", job="", at=BEFORE),
            record("key", kind="key", job="", at=OLD),
        ]
    )
    for name, state, registered in (
        ("gone", PilotState.GONE, OLD),
        ("alive", PilotState.ALIVE, OLD),
        ("gone-since", PilotState.GONE, BEFORE),
    ):
        await desk.prune.pilots.put_pilot(pilot(name, state=state, registered=registered), None)
    assert await desk.prune.prune(BEFORE, dry_run=True) == Pruned(1, 0)
    assert len(await desk.store.find_records()) == 6
    assert await desk.prune.prune(BEFORE) == Pruned(1, 0)
    assert {found.id for found in await desk.store.find_records()} == {"told-since", "of-another", "alert", "key"}
    assert {found.id for found in await desk.prune.pilots.find_pilots()} == {"alive", "gone-since"}
