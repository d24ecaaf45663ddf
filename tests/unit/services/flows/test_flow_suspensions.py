"""What a server knows of suspensions, and what it reads for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.examples import job
from tests.unit.apps.server.running import until

from forestay.adapters.sql.document_store import SqlDocumentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.apps.compose.loops import stop
from forestay.domain.flows.events import Verb, VerbKind
from forestay.domain.flows.flow_suspension import MAX_ORDERS, FlowSuspension
from forestay.domain.jobs.job_document import FlowRef, JobDocument
from forestay.domain.jobs.steering import MAX_HOLDERS
from forestay.ports.errors import Transient
from forestay.services.flows import flow_suspensions
from forestay.services.flows.flow_suspensions import MARK, FlowSuspensions, suspension_of

FLOW, ABOVE = "f" * 64, "a" * 64


@pytest.fixture
async def documents(tmp_path: Path) -> AsyncIterator[SqlDocumentStore]:
    store = SqlJobStore(f"sqlite:///{tmp_path / 'suspensions.db'}")
    await store.open()
    yield SqlDocumentStore(store.database)
    await store.close()


def tied(flow: str = FLOW, *above: str) -> JobDocument:
    return job("tied", tenant="alpha", flow_ref=FlowRef("run", "one@1", flow, -1, 0, 1, above=above))


async def test_a_server_without_runs_reads_nothing(documents: SqlDocumentStore) -> None:
    suspensions = FlowSuspensions(documents, every=0.01)
    running = asyncio.create_task(suspensions.run())
    assert not suspensions.suspended(job("untied"))
    await asyncio.sleep(0.1)  # ten looks, if it looked
    assert suspensions.looks == 0
    assert suspensions.suspended(tied()), "not known yet"
    await until(lambda: _is(not suspensions.suspended(tied())), "the suspensions to be known")
    await stop(running)


async def test_when_nobody_asks_any_more_the_copy_is_given_up(
    documents: SqlDocumentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_suspensions, "QUIET", 3)
    suspensions = FlowSuspensions(documents, every=0.01)
    running = asyncio.create_task(suspensions.run())
    suspensions.suspended(tied())
    await until(lambda: _is(suspensions._known), "the suspensions to be known")
    await until(lambda: _is(not suspensions._known), "the copy to be given up")
    assert suspensions.suspended(tied()), "an old copy is not believed"
    await until(lambda: _is(not suspensions.suspended(tied())), "the suspensions to be known again")
    await stop(running)


async def test_another_server_learns_of_a_suspension_and_of_those_above(documents: SqlDocumentStore) -> None:
    numbers: list[int] = []
    here, there = FlowSuspensions(documents), FlowSuspensions(documents, every=0.01, changed=lambda: numbers.append(1))
    running = asyncio.create_task(there.run())
    there.suspended(tied())
    await until(lambda: _is(not there.suspended(tied())), "the suspensions to be known")
    numbers.clear()
    await here.suspend("alpha", ABOVE, "ada")
    await until(lambda: _is(there.suspended(tied(FLOW, ABOVE))), "the suspension above to be known")
    assert not there.suspended(tied())
    assert numbers, "whoever waits for work is woken"
    assert await here.closed("alpha", (FLOW, ABOVE))
    assert not await here.closed("beta", (FLOW, ABOVE))
    await here.let_go("alpha", ABOVE, "ada")
    await until(lambda: _is(not there.suspended(tied(FLOW, ABOVE))), "the suspension to be open")
    await stop(running)


async def test_a_suspension_whose_writer_died_before_it_set_the_mark_is_found(
    documents: SqlDocumentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspensions = FlowSuspensions(documents)
    await suspensions.refresh()

    async def dies(_suspensions: FlowSuspensions, _name: str) -> None:
        raise Transient("killed")

    with monkeypatch.context() as patched:
        patched.setattr(FlowSuspensions, "_set_mark", dies)
        with pytest.raises(Transient):
            await FlowSuspensions(documents).suspend("alpha", FLOW, "ada")
    assert MARK not in await documents.get([MARK])
    await suspensions.refresh()
    assert not suspensions.suspended(tied())
    suspensions._looked = flow_suspensions.THOROUGH
    await suspensions.refresh()
    assert suspensions.suspended(tied())


async def test_many_who_change_suspensions_at_once_lose_nothing(documents: SqlDocumentStore) -> None:
    flows = [f"{number:064x}" for number in range(4)]

    async def changes(flow: str) -> None:
        own = FlowSuspensions(documents)
        await own.suspend("alpha", flow, "ada")
        await own.let_go("alpha", flow, "ada")
        await own.suspend("alpha", flow, "eve")

    await asyncio.gather(*(changes(flow) for flow in flows))
    stored_documents = await documents.get([MARK])
    assert stored_documents[MARK].document.body["suspensions"] == sorted(suspension_of("alpha", flow) for flow in flows)
    reader = FlowSuspensions(documents)
    await reader.refresh()
    assert all(reader.suspended(tied(flow)) for flow in flows)


async def test_an_order_closes_the_suspension_until_it_is_passed_on(documents: SqlDocumentStore) -> None:
    suspensions = FlowSuspensions(documents)
    verb = Verb(1, "v1", VerbKind.REMOVE, by="ada", begun_by=1)
    await suspensions.order("alpha", FLOW, verb)
    await suspensions.order("alpha", FLOW, Verb(2, "v1", VerbKind.REMOVE, by="ada", begun_by=2))
    ((tenant, suspension),) = await suspensions.ordered()
    assert (tenant, suspension.orders) == ("alpha", (verb,))
    assert suspensions.suspended(tied())
    await suspensions.passed_on("alpha", FLOW, "v1")
    assert not suspensions.suspended(tied())
    assert await suspensions.ordered() == []
    assert not (await suspensions.order("alpha", FLOW, verb)).orders, "a repeat of what was passed on changes nothing"


def test_what_a_suspension_takes() -> None:
    raised = FlowSuspension(FLOW).order(Verb(1, "r", VerbKind.RAISE))
    assert isinstance(raised, FlowSuspension)
    assert not raised.closed, "an exception that is raised stops nothing"
    suspension: FlowSuspension | str = FlowSuspension(FLOW)
    for number in range(MAX_HOLDERS):
        assert isinstance(suspension, FlowSuspension)
        suspension = suspension.hold(f"holder-{number}")
    assert isinstance(suspension, FlowSuspension)
    assert suspension.hold("holder-0") == suspension
    assert isinstance(suspension.hold("one-more"), str)
    for number in range(MAX_ORDERS):
        assert isinstance(suspension, FlowSuspension)
        suspension = suspension.order(Verb(1, f"v{number}", VerbKind.REDO))
    assert isinstance(suspension, FlowSuspension)
    assert isinstance(suspension.order(Verb(1, "one-more", VerbKind.REDO)), str)
    assert isinstance(FlowSuspension(FLOW).order(Verb(1, "v", VerbKind.REPLACE, changes={"x": "y" * 20_000})), str)
    assert FlowSuspension.from_plain(suspension.pass_on("v3").as_plain()) == suspension.pass_on("v3")


async def _is(value: bool) -> bool:
    return value
