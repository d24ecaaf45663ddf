"""What a server knows of gates, and what it reads for it."""

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
from forestay.domain.flows.execution.flow_suspension import MAX_ORDERS, FlowSuspension
from forestay.domain.jobs.job_document import FlowRef, JobDocument
from forestay.domain.jobs.steering import MAX_HOLDERS
from forestay.ports.errors import Transient
from forestay.services.flows import flow_suspensions
from forestay.services.flows.flow_suspensions import MARK, FlowSuspensions, gate_of

FLOW, ABOVE = "f" * 64, "a" * 64


@pytest.fixture
async def documents(tmp_path: Path) -> AsyncIterator[SqlDocumentStore]:
    store = SqlJobStore(f"sqlite:///{tmp_path / 'gates.db'}")
    await store.open()
    yield SqlDocumentStore(store.database)
    await store.close()


def tied(flow: str = FLOW, *above: str) -> JobDocument:
    return job("tied", tenant="alpha", tie=FlowRef("case", "one@1", flow, -1, 0, 1, above=above))


async def test_a_server_without_cases_reads_nothing(documents: SqlDocumentStore) -> None:
    gates = FlowSuspensions(documents, every=0.01)
    running = asyncio.create_task(gates.run())
    assert not gates.gated(job("untied"))
    await asyncio.sleep(0.1)  # ten looks, if it looked
    assert gates.looks == 0
    assert gates.gated(tied()), "not known yet"
    await until(lambda: _is(not gates.gated(tied())), "the gates to be known")
    await stop(running)


async def test_when_nobody_asks_any_more_the_copy_is_given_up(
    documents: SqlDocumentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_suspensions, "QUIET", 3)
    gates = FlowSuspensions(documents, every=0.01)
    running = asyncio.create_task(gates.run())
    gates.gated(tied())
    await until(lambda: _is(gates._known), "the gates to be known")
    await until(lambda: _is(not gates._known), "the copy to be given up")
    assert gates.gated(tied()), "an old copy is not believed"
    await until(lambda: _is(not gates.gated(tied())), "the gates to be known again")
    await stop(running)


async def test_another_server_learns_of_a_gate_and_of_those_above(documents: SqlDocumentStore) -> None:
    told: list[int] = []
    here, there = FlowSuspensions(documents), FlowSuspensions(documents, every=0.01, changed=lambda: told.append(1))
    running = asyncio.create_task(there.run())
    there.gated(tied())
    await until(lambda: _is(not there.gated(tied())), "the gates to be known")
    told.clear()
    await here.suspend("alpha", ABOVE, "ada")
    await until(lambda: _is(there.gated(tied(FLOW, ABOVE))), "the gate above to be known")
    assert not there.gated(tied())
    assert told, "whoever waits for work is woken"
    assert await here.closed("alpha", (FLOW, ABOVE))
    assert not await here.closed("beta", (FLOW, ABOVE))
    await here.let_go("alpha", ABOVE, "ada")
    await until(lambda: _is(not there.gated(tied(FLOW, ABOVE))), "the gate to be open")
    await stop(running)


async def test_a_gate_whose_writer_died_before_it_set_the_mark_is_found(
    documents: SqlDocumentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates = FlowSuspensions(documents)
    await gates.refresh()

    async def dies(_gates: FlowSuspensions, _name: str) -> None:
        raise Transient("killed")

    with monkeypatch.context() as patched:
        patched.setattr(FlowSuspensions, "_set_mark", dies)
        with pytest.raises(Transient):
            await FlowSuspensions(documents).suspend("alpha", FLOW, "ada")
    assert MARK not in await documents.get([MARK])
    await gates.refresh()
    assert not gates.gated(tied())
    gates._looked = flow_suspensions.THOROUGH
    await gates.refresh()
    assert gates.gated(tied())


async def test_many_who_change_gates_at_once_lose_nothing(documents: SqlDocumentStore) -> None:
    flows = [f"{number:064x}" for number in range(4)]

    async def changes(flow: str) -> None:
        own = FlowSuspensions(documents)
        await own.suspend("alpha", flow, "ada")
        await own.let_go("alpha", flow, "ada")
        await own.suspend("alpha", flow, "eve")

    await asyncio.gather(*(changes(flow) for flow in flows))
    found = await documents.get([MARK])
    assert found[MARK].document.body["gates"] == sorted(gate_of("alpha", flow) for flow in flows)
    reader = FlowSuspensions(documents)
    await reader.refresh()
    assert all(reader.gated(tied(flow)) for flow in flows)


async def test_an_order_closes_the_gate_until_it_is_passed_on(documents: SqlDocumentStore) -> None:
    gates = FlowSuspensions(documents)
    verb = Verb(1, "v1", VerbKind.REMOVE, by="ada", begun_by=1)
    await gates.order("alpha", FLOW, verb)
    await gates.order("alpha", FLOW, Verb(2, "v1", VerbKind.REMOVE, by="ada", begun_by=2))
    ((tenant, gate),) = await gates.ordered()
    assert (tenant, gate.orders) == ("alpha", (verb,))
    assert gates.gated(tied())
    await gates.passed_on("alpha", FLOW, "v1")
    assert not gates.gated(tied())
    assert await gates.ordered() == []
    assert not (await gates.order("alpha", FLOW, verb)).orders, "a repeat of what was passed on changes nothing"


def test_what_a_gate_takes() -> None:
    raised = FlowSuspension(FLOW).order(Verb(1, "r", VerbKind.RAISE))
    assert isinstance(raised, FlowSuspension)
    assert not raised.closed, "an exception that is raised stops nothing"
    gate: FlowSuspension | str = FlowSuspension(FLOW)
    for number in range(MAX_HOLDERS):
        assert isinstance(gate, FlowSuspension)
        gate = gate.hold(f"holder-{number}")
    assert isinstance(gate, FlowSuspension)
    assert gate.hold("holder-0") == gate
    assert isinstance(gate.hold("one-more"), str)
    for number in range(MAX_ORDERS):
        assert isinstance(gate, FlowSuspension)
        gate = gate.order(Verb(1, f"v{number}", VerbKind.REDO))
    assert isinstance(gate, FlowSuspension)
    assert isinstance(gate.order(Verb(1, "one-more", VerbKind.REDO)), str)
    assert isinstance(FlowSuspension(FLOW).order(Verb(1, "v", VerbKind.REPLACE, changes={"x": "y" * 20_000})), str)
    assert FlowSuspension.from_plain(gate.pass_on("v3").as_plain()) == gate.pass_on("v3")


async def _is(value: bool) -> bool:
    return value
