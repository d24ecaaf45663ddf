"""Events from outside on every store: none is lost, whichever comes first, and each wait gets one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import pytest
from tests.contract.room import Stores
from tests.unit.apps.server.later_clock import LaterClock

from forestay.adapters.system.clock import RandomIds
from forestay.domain.flows.events import Event, EventArrived
from forestay.ports.errors import NotFound, Permanent, Transient
from forestay.services.flows.external_events import MAX_DATA, MOST_EVENTS, RETAINED, ExternalEvents

OpenAnother = Callable[[], Awaitable[Stores]]


@dataclass
class Runs:
    """The engine, as far as events need it."""

    deliveries: list[tuple[str, EventArrived]] = field(default_factory=list)
    error: Exception | None = None

    async def tell_run(self, run: str, events: Sequence[Event]) -> None:
        if self.error is not None:
            raise self.error
        self.deliveries += [(run, event) for event in events if isinstance(event, EventArrived)]


def service(stores: Stores, runs: Runs | None = None, ahead: int = 0) -> ExternalEvents:
    return ExternalEvents(stores.documents, LaterClock(ahead), RandomIds(), runs or Runs())  # type: ignore[arg-type]


async def test_an_event_goes_to_all_that_wait_and_to_nobody_else(stores: Stores) -> None:
    runs = Runs()
    events = service(stores, runs)
    for run, key in (("r1", "7"), ("r2", "7"), ("r3", "8")):
        assert await events.wait("alpha", "ready", key, run=run, work="w@1") is None
    await events.wait("beta", "ready", "7", run="r4", work="w@1")
    sent = await events.send("alpha", "ready", "7", {"file": "a"}, by="ada", id_="e1")
    assert (set(sent.runs), sent.repeated) == ({"r1", "r2"}, False)
    assert {run for run, _ in runs.deliveries} == {"r1", "r2"}
    assert {(event.id, event.by, event.work) for _, event in runs.deliveries} == {("e1", "ada", "w@1")}
    again = await events.send("alpha", "ready", "7", {"file": "b"}, by="ada", id_="e1")
    assert again.repeated
    later = await events.wait("alpha", "ready", "7", run="r5", work="w@1")
    assert later is None, "it was given to those that waited"


async def test_an_id_is_its_senders_own(stores: Stores) -> None:
    """Whoever guesses the id of an event that is to come cannot keep it out."""
    runs = Runs()
    events = service(stores, runs)
    await events.send("alpha", "ready", "7", {"file": "forged"}, by="mallory", id_="nightly-1")
    early = await events.wait("alpha", "ready", "7", run="r1", work="w@1")
    assert early is not None
    assert early.by == "mallory"
    await events.wait("alpha", "ready", "7", run="r2", work="w@1")
    sent = await events.send("alpha", "ready", "7", {"file": "a"}, by="ada", id_="nightly-1")
    assert (sent.runs[-1], sent.repeated) == ("r2", False)
    assert (await events.send("alpha", "ready", "7", {}, by="ada", id_="nightly-1")).repeated


async def test_an_event_that_comes_first_is_kept_for_one_wait_which_may_ask_again(stores: Stores) -> None:
    events = service(stores)
    await events.send("alpha", "ready", "", {"n": 1}, by="ada", id_="e1")
    await events.send("alpha", "ready", "", {"n": 2}, by="ada", id_="e2")
    for _ in range(2):
        first = await events.wait("alpha", "ready", "", run="r1", work="w@1")
        assert first is not None
        assert (first.id, first.data) == ("e1", {"n": 1})
    second = await events.wait("alpha", "ready", "", run="r1", work="w@2")
    assert second is not None
    assert second.id == "e2"
    assert await events.wait("alpha", "ready", "", run="r2", work="w@1") is None


async def test_what_is_kept_is_bounded_in_number_time_and_size(stores: Stores) -> None:
    events = service(stores)
    for number in range(MOST_EVENTS + 2):
        await events.send("alpha", "many", "", {}, by="ada", id_=f"e{number}")
    oldest = await events.wait("alpha", "many", "", run="r1", work="w@1")
    assert oldest is not None
    assert oldest.id == "e2"
    late = service(stores, ahead=RETAINED + 1000)
    assert await late.wait("alpha", "many", "", run="r2", work="w@1") is None
    with pytest.raises(Permanent, match="put them into a file"):
        await events.send("alpha", "large", "", {"x": "y" * MAX_DATA}, by="ada")


async def test_a_run_that_could_not_be_told_is_told_by_a_reconciler(stores: Stores) -> None:
    away = Runs(error=Transient("away"))
    await service(stores, away).wait("alpha", "ready", "", run="r1", work="w@1")
    await service(stores, away).send("alpha", "ready", "", {}, by="ada", id_="e1")
    await stores.jobs.refresh()
    back = Runs()
    await service(stores, back).look()
    assert [(run, event.id) for run, event in back.deliveries] == [("r1", "e1")]
    await service(stores).close("alpha", "ready", "", run="r1", work="w@1")
    await stores.jobs.refresh()
    await service(stores, back).look()
    assert len(back.deliveries) == 1, "what was taken is not told again"


async def test_a_run_that_has_ended_waits_no_longer(stores: Stores) -> None:
    events = service(stores, Runs(error=NotFound("gone")))
    await events.wait("alpha", "ready", "", run="r1", work="w@1")
    await events.send("alpha", "ready", "", {}, by="ada", id_="e1")
    await stores.jobs.refresh()
    back = Runs()
    await service(stores, back).look()
    assert back.deliveries == []


async def test_an_event_and_a_wait_at_the_same_time_meet(stores: Stores, another: OpenAnother) -> None:
    for number in range(5):
        runs, key = Runs(), str(number)
        waiting, sending = service(await another(), runs), service(await another(), runs)
        taken, _ = await asyncio.gather(
            waiting.wait("alpha", "race", key, run="r1", work="w@1"),
            sending.send("alpha", "race", key, {"n": number}, by="ada"),
        )
        assert taken is not None or [run for run, _ in runs.deliveries] == ["r1"]
