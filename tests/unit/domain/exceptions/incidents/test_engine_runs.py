"""The runs of other engines: what is reported twice, late or too much of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.exceptions.incidents.engine_run import (
    ENDED,
    MAX_INSTANCES,
    MAX_LEDGER,
    OCCASIONS,
    EngineEvent,
    EngineRun,
    EventKind,
    begun_run,
    engine_run_id,
    retried,
    taken,
)
from forestay.domain.exceptions.incidents.exception_type import EXCEPTIONS
from forestay.domain.flows.events import Verb, VerbKind
from forestay.domain.playbooks.engine_order import EngineOrder, OrderVerb, order_id, order_of


@st.composite
def events(draw: st.DrawFn) -> EngineEvent:
    kind = draw(st.sampled_from(EventKind))
    instance = draw(st.sampled_from(["load", "tell"])) if kind.of_instance else ""
    data = draw(st.dictionaries(st.sampled_from(["rows", "venue"]), st.integers(), max_size=2))
    return EngineEvent(
        f"e{draw(st.integers(0, 9))}", "run-1", kind, draw(st.integers(1, 99)), instance=instance, data=data
    )


def begun() -> EngineRun:
    first = EngineEvent("e", "run-1", EventKind.RUN_STARTED, 1, flow="nightly")
    return begun_run(first, tenant="lab", engine="script", reporter="ada")


def test_every_exception_has_its_occasion() -> None:
    assert set(OCCASIONS.values()) == EXCEPTIONS
    assert all(kind.of_instance != type_.of_run for kind, type_ in OCCASIONS.items())


@given(st.lists(events(), max_size=12), events())
def test_the_same_event_again_changes_nothing(before: list[EngineEvent], event: EngineEvent) -> None:
    run = begun()
    for engine_event in before:
        run = taken(run, engine_event)
    once = taken(run, event)
    assert taken(once, event) == once
    assert EngineRun.from_plain(once.as_plain()) == once


@given(st.lists(events(), max_size=12))
def test_a_run_that_has_ended_stays_ended(after: list[EngineEvent]) -> None:
    run = taken(begun(), EngineEvent("end", "run-1", EventKind.RUN_FAILED, 5))
    for event in after:
        run = taken(run, event)
    assert (run.state, run.ended) == ("failed", 5)
    assert run.state in ENDED


def test_a_run_remembers_only_so_much() -> None:
    run = begun()
    for n in range(MAX_INSTANCES + 50):
        kind = EventKind.TASK_COMPLETED if n % 2 else EventKind.TASK_STARTED
        run = taken(run, EngineEvent(f"e{n}", "run-1", kind, n, instance=f"i{n}"))
    assert len(run.instances) == MAX_INSTANCES
    assert sum(1 for state in run.instances.values() if state == "running") == (MAX_INSTANCES + 50) // 2, (
        "what runs is kept"
    )
    for n in range(MAX_LEDGER + 5):
        run = retried(retried(run, f"step-{n}", "load", "memory"), f"step-{n}", "load", "memory")
    assert len(run.ledger) == MAX_LEDGER


def test_names_of_tenants_engines_and_runs_do_not_run_together() -> None:
    assert len({engine_run_id("a", "bc", "d"), engine_run_id("ab", "c", "d"), engine_run_id("a", "b", "cd")}) == 3


NO_ORDERS = (VerbKind.RAISE, VerbKind.ANSWER, VerbKind.REBIND)
"""Other engines have no incidents of their own to raise, ask no questions here, and have no compensations of the library."""


@given(st.sampled_from([kind for kind in VerbKind if kind not in NO_ORDERS]))
def test_every_verb_is_an_order(kind: VerbKind) -> None:
    order = order_of(Verb(7, "v1", kind, instance="load", by="ada", changes={"result": 1}), run="c", key="run-1")
    assert order is not None
    assert (order.id, order.verb) == (order_id("c", "v1"), OrderVerb(kind.value))
    assert EngineOrder.from_plain(order.as_plain() | {"engine": "script"}) == order
    for none in NO_ORDERS:
        assert order_of(Verb(7, "v1", none), run="c", key="run-1") is None
