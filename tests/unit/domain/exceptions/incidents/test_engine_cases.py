"""The cases of other engines: what is reported twice, late or too much of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.exceptions.incidents.engine_case import (
    ENDED,
    MAX_ITEMS,
    MAX_LEDGER,
    OCCASIONS,
    EngineCase,
    EngineEvent,
    EventKind,
    begun_case,
    engine_case_id,
    retried,
    taken,
)
from forestay.domain.exceptions.incidents.exception_type import EXCEPTIONS
from forestay.domain.exlets.engine_order import EngineOrder, OrderVerb, order_id, order_of
from forestay.domain.flows.events import Verb, VerbKind


@st.composite
def events(draw: st.DrawFn) -> EngineEvent:
    kind = draw(st.sampled_from(EventKind))
    item = draw(st.sampled_from(["load", "tell"])) if kind.of_item else ""
    data = draw(st.dictionaries(st.sampled_from(["rows", "venue"]), st.integers(), max_size=2))
    return EngineEvent(f"e{draw(st.integers(0, 9))}", "run-1", kind, draw(st.integers(1, 99)), item=item, data=data)


def begun() -> EngineCase:
    first = EngineEvent("e", "run-1", EventKind.CASE_STARTED, 1, flow="nightly")
    return begun_case(first, tenant="lab", engine="script", reporter="ada")


def test_every_exception_has_its_occasion() -> None:
    assert set(OCCASIONS.values()) == EXCEPTIONS
    assert all(kind.of_item != type_.of_case for kind, type_ in OCCASIONS.items())


@given(st.lists(events(), max_size=12), events())
def test_the_same_event_again_changes_nothing(before: list[EngineEvent], event: EngineEvent) -> None:
    case = begun()
    for one in before:
        case = taken(case, one)
    once = taken(case, event)
    assert taken(once, event) == once
    assert EngineCase.from_plain(once.as_plain()) == once


@given(st.lists(events(), max_size=12))
def test_a_case_that_has_ended_stays_ended(after: list[EngineEvent]) -> None:
    case = taken(begun(), EngineEvent("end", "run-1", EventKind.CASE_FAILED, 5))
    for one in after:
        case = taken(case, one)
    assert (case.state, case.ended) == ("failed", 5)
    assert case.state in ENDED


def test_a_case_remembers_only_so_much() -> None:
    case = begun()
    for n in range(MAX_ITEMS + 50):
        kind = EventKind.ITEM_COMPLETED if n % 2 else EventKind.ITEM_STARTED
        case = taken(case, EngineEvent(f"e{n}", "run-1", kind, n, item=f"i{n}"))
    assert len(case.items) == MAX_ITEMS
    assert sum(1 for state in case.items.values() if state == "running") == (MAX_ITEMS + 50) // 2, "what runs is kept"
    for n in range(MAX_LEDGER + 5):
        case = retried(retried(case, f"step-{n}", "load", "memory"), f"step-{n}", "load", "memory")
    assert len(case.ledger) == MAX_LEDGER


def test_names_of_tenants_engines_and_cases_do_not_run_together() -> None:
    assert len({engine_case_id("a", "bc", "d"), engine_case_id("ab", "c", "d"), engine_case_id("a", "b", "cd")}) == 3


@given(st.sampled_from([one for one in VerbKind if one is not VerbKind.RAISE]))
def test_every_verb_is_an_order(kind: VerbKind) -> None:
    order = order_of(Verb(7, "v1", kind, item="load", by="ada", changes={"result": 1}), case="c", key="run-1")
    assert order is not None
    assert (order.id, order.verb) == (order_id("c", "v1"), OrderVerb(kind.value))
    assert EngineOrder.from_plain(order.as_plain() | {"engine": "script"}) == order
    assert order_of(Verb(7, "v1", VerbKind.RAISE), case="c", key="run-1") is None
