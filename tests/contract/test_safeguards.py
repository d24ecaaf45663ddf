"""Safeguards on every store: several handlers together never act more often than the limits say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import pytest
from tests.contract.examples import job
from tests.contract.room import Stores
from tests.unit.apps.server.running import until

from forestay.adapters.system.clock import RandomIds
from forestay.apps.compose.loops import stop
from forestay.domain.exceptions.safeguards.rate_limit import MINUTE, BucketName, Meter, RateLimit
from forestay.domain.exceptions.safeguards.safeguards import (
    EVERY_TENANT,
    ActionGranted,
    ActionRefused,
    ActionRequest,
    Safeguard,
    SafeguardPolicy,
)
from forestay.domain.exceptions.safeguards.storm import FailureSignature, Trial
from forestay.domain.jobs.job_document import State
from forestay.ports.documents import Document, DocumentStore
from forestay.ports.errors import Conflict, NotFound, Transient
from forestay.ports.jobs.job_store import DocumentChange, Unknown, Version, WriteResult, Written
from forestay.services.exceptions.safeguards.action_limits import (
    STORMS,
    ActionLimits,
    CanaryOutcome,
    EmergencyStop,
    StormTracker,
    name_of,
)

OpenAnother = Callable[[], Awaitable[Stores]]
POLICY = SafeguardPolicy(owner_acts=RateLimit(500, 10 * MINUTE), rule_acts=RateLimit(10_000, MINUTE), lasts=MINUTE)
RULE = "domain/site/r1"
TRIAL = Trial(RULE)


@dataclass
class Hand:
    """A clock that is moved by hand."""

    at: int = 1_800_000_000_000

    def now(self) -> int:
        return self.at

    def monotonic(self) -> float:
        return self.at / 1000


def request(number: int, **changed: object) -> ActionRequest:
    sign = FailureSignature("node", "s1", f"h{number}")
    known = ActionRequest("alpha", "ann", f"j{number}", 1, sign, "resubmit", "job", rule=RULE, core_seconds=60)
    return replace(known, **changed)  # type: ignore[arg-type]


def handler(stores: Stores, clock: Hand, policy: SafeguardPolicy = POLICY) -> ActionLimits:
    return ActionLimits(
        stores.documents, StormTracker(stores.documents, stores.jobs, clock), clock, RandomIds(), policy
    )


async def test_several_handlers_at_once_keep_one_limit(stores: Stores, another: OpenAnother) -> None:
    clock = Hand()
    handlers = [handler(await another(), clock) for _ in range(5)]

    async def act(which: int) -> None:
        for batch in range(30):
            numbers = range(which * 1000 + batch * 4, which * 1000 + batch * 4 + 4)
            await handlers[which].permit([request(number) for number in numbers])

    await asyncio.gather(*(act(which) for which in range(5)))
    # 600 were asked for. What one has leased and another would need stays with the first.
    assert 450 <= sum(handler.granted for handler in handlers) <= 500
    assert sum(handler.granted + handler.refused for handler in handlers) == 600
    assert sum(handler.leases for handler in handlers) <= 300, "tokens come in bunches"
    name = BucketName(Meter.OWNER, "alpha", "ann")
    bucket = (await stores.documents.get([name.document]))[name.document].document.body
    assert sum(tokens for _, tokens, _ in bucket["leases"]) == 500  # type: ignore[attr-defined]

    (refused,) = await handler(stores, clock).permit([request(9999)])
    assert isinstance(refused, ActionRefused)
    assert refused.safeguard is Safeguard.RATE
    assert refused.words == "acts on jobs of ann: 500 in 10 minutes are used up"
    assert refused.again is not None
    assert refused.again > clock.now()


async def test_a_dead_handlers_lease_comes_back_by_itself_and_an_ended_ones_at_once(
    stores: Stores, another: OpenAnother
) -> None:
    clock = Hand()
    policy = replace(POLICY, owner_acts=RateLimit(200, 10 * MINUTE), bunch=20)
    name = BucketName(Meter.OWNER, "alpha", "ann")
    dead, ending, third = [handler(await another(), clock, policy) for _ in range(3)]
    await dead.permit([request(1)])
    await ending.permit([request(2)])
    await stores.jobs.refresh()
    assert (await third.buckets("alpha"))[name].free == 200 - 8
    await ending.give_back()
    await ending.give_back()
    await stores.jobs.refresh()
    assert (await third.buckets("alpha"))[name].free == 200 - 4 - 1, "what was spent is not given back"
    clock.at += 12 * MINUTE
    (answer,) = await third.permit([request(3)])
    assert isinstance(answer, ActionGranted)
    await stores.jobs.refresh()
    assert (await third.buckets("alpha"))[name].free == 200 - 4
    clock.at += MINUTE
    (late,) = await dead.permit([request(4)])
    assert isinstance(late, ActionGranted)
    assert dead.leases > third.leases, "its old tokens were worth nothing any more"


async def test_a_stop_holds_for_every_handler_at_once(stores: Stores, another: OpenAnother) -> None:
    clock = Hand()
    stops = EmergencyStop(stores.documents, clock)
    limits, two = handler(await another(), clock), handler(await another(), clock)
    assert isinstance((await limits.permit([request(1)]))[0], ActionGranted)
    for tenant in ("alpha", EVERY_TENANT):
        await stops.stop(tenant, by="oscar", why="the disks are full")
        again = await stops.stop(tenant, by="paula", why="me too")
        assert again.by == "oscar", "who came first is who stopped it"
        for who in (limits, two):
            (answer,) = await who.permit([request(2)])
            assert isinstance(answer, ActionRefused)
            assert answer.safeguard is Safeguard.STOP
            assert "oscar" in answer.words
        assert [stop.tenant for stop in await stops.stops("alpha")] == [tenant]
        assert (await stops.go(tenant)).by == "oscar"
        with pytest.raises(Conflict):
            await stops.go(tenant)
    assert isinstance((await two.permit([request(3)]))[0], ActionGranted)
    await stops.stop("beta", by="oscar", why="")
    assert isinstance((await two.permit([request(4)]))[0], ActionGranted)


async def test_five_thousand_failures_told_by_several_handlers_are_one_group_and_one_try(
    stores: Stores, another: OpenAnother
) -> None:
    clock = Hand()
    handlers = [handler(await another(), clock) for _ in range(4)]

    async def work(which: int) -> list[ActionGranted | ActionRefused]:
        own = handlers[which]
        for batch in range(5):
            await own.storms.notice("alpha", [request(which * 1250 + batch * 250 + n).sign for n in range(250)])
        return list(await own.permit([request(which * 1250 + n) for n in range(20)]))

    answers = [answer for part in await asyncio.gather(*(work(which) for which in range(4))) for answer in part]
    (group,) = await handlers[0].storms.groups("alpha")
    assert str(group.key) == "cause node"
    assert group.failures == 5_000
    granted = [answer for answer in answers if isinstance(answer, ActionGranted)]
    assert len(granted) == 1, "one is tried first, by one handler"
    assert granted[0].group == group.id
    assert {answer.safeguard for answer in answers if isinstance(answer, ActionRefused)} == {Safeguard.STORM}


async def test_what_came_of_a_try_is_read_from_the_jobs(stores: Stores) -> None:
    clock = Hand()
    own = handler(stores, clock)
    await own.storms.notice("alpha", [request(n).sign for n in range(100)])
    (first,) = await own.permit([request(0)])
    assert isinstance(first, ActionGranted)
    assert await own.storms.look("alpha") == [CanaryOutcome(first.group, TRIAL, "j0/1", None)], "there is no such job"
    (first,) = await own.permit([request(1)])
    assert isinstance(first, ActionGranted), "another goes in its place"

    done = job("j1", tenant="alpha")
    written = await stores.jobs.write([DocumentChange(replace(done, id="j1", state=State.RUNNING, attempt=2), None)])
    assert isinstance(written[0], Written)
    assert not await own.storms.look("alpha"), "not over yet"
    written = await stores.jobs.write(
        [DocumentChange(replace(done, id="j1", state=State.COMPLETED, attempt=2), written[0].version)]
    )
    assert isinstance(written[0], Written)
    assert await own.storms.look("alpha") == [CanaryOutcome(first.group, TRIAL, "j1/1", True)]
    answers = await own.permit([request(n) for n in range(2, 20)])
    assert sum(1 for answer in answers if isinstance(answer, ActionGranted)) == 10

    bad = [CanaryOutcome(first.group, TRIAL, f"j{n}/1", False) for n in range(2, 5)]
    await own.storms.tell("alpha", bad)
    (held,) = await own.storms.groups("alpha")
    assert held.held
    (refused,) = await own.permit([request(30)])
    assert isinstance(refused, ActionRefused)
    assert refused.safeguard is Safeguard.CANARY
    assert refused.again is None, "a person has to look"
    with pytest.raises(NotFound):
        await own.storms.try_again("alpha", "no such group", RULE)
    assert not (await own.storms.try_again("alpha", first.group, RULE)).held
    (again,) = await own.permit([request(31)])
    assert isinstance(again, ActionGranted)
    await own.storms.let_all("alpha", first.group, RULE)
    answers = await own.permit([request(n) for n in range(40, 50)])
    assert all(isinstance(answer, ActionGranted) for answer in answers)
    assert len((await own.storms.groups("alpha"))[0].canaries[TRIAL].pending) == 10, "some are watched still"


async def test_a_person_lets_one_error_of_a_storm_through_or_all_of_them(stores: Stores) -> None:
    own = handler(stores, Hand())
    await own.storms.notice("alpha", [request(n).sign for n in range(100)])
    acts = [replace(request(n), fingerprint=f"1-error{n}") for n in range(3)]
    assert [type(answer) for answer in await own.permit(acts)] == [ActionGranted] * 3, "each error is tried on its own"
    (group,) = await own.storms.groups("alpha")
    await own.storms.tell(
        "alpha", [CanaryOutcome(group.id, Trial(RULE, act.fingerprint), act.act, False) for act in acts]
    )
    (held,) = await own.storms.groups("alpha")
    assert held.held
    let = await own.storms.let_all("alpha", group.id, RULE, "1-error0")
    assert [canary.held for canary in let.canaries.values()] == [False, True, True]
    with pytest.raises(NotFound):
        await own.storms.try_again("alpha", group.id, RULE, "1-error9")
    let = await own.storms.try_again("alpha", group.id, RULE)
    assert not any(canary.held for canary in let.canaries.values()), "without an error, of each"


async def test_a_reconciler_follows_what_canaries_let_through(stores: Stores) -> None:
    own = handler(stores, Hand())
    await own.storms.notice("alpha", [request(n).sign for n in range(100)])
    (first,) = await own.permit([request(0)])
    assert isinstance(first, ActionGranted)
    done = job("j0", tenant="alpha")
    (written,) = await stores.jobs.write([DocumentChange(replace(done, state=State.FAULTED, attempt=2), None)])
    assert isinstance(written, Written)
    await stores.jobs.refresh()
    own.storms.every = 0.05
    running = asyncio.create_task(own.storms.run())

    async def is_held() -> bool:
        return (await own.storms.groups("alpha"))[0].held

    await until(is_held, "the try that failed to be seen")
    await stop(running)


async def test_without_the_store_nothing_is_permitted(unreachable: Stores) -> None:
    with pytest.raises(Transient):
        await handler(unreachable, Hand()).permit([request(1)])


async def test_tenants_have_limits_of_their_own(stores: Stores) -> None:
    own = handler(stores, Hand(), replace(POLICY, owner_acts=RateLimit(1, MINUTE)))
    answers = await own.permit([request(1), request(2), request(3, tenant="beta"), request(4, owner="ö" * 400)])
    assert [type(answer) for answer in answers] == [ActionGranted, ActionRefused, ActionGranted, ActionGranted]


@pytest.mark.finding("F-D4")
async def test_a_failure_counts_once_in_a_storm_however_often_its_buckets_conflict(
    stores: Stores, another: OpenAnother
) -> None:
    """The storms of each tenant and the bucket of all tenants are written in one call; a conflict on the bucket repeats the call after the storms were written."""
    clock, tenants = Hand(), ("alpha", "beta", "gamma")
    handlers = [handler(await another(), clock) for _ in range(12)]
    failures = [request(number, tenant=tenants[number % 3]) for number in range(12)]
    await asyncio.gather(
        *(
            own.permit([failure], [(failure.tenant, failure.sign)])
            for own, failure in zip(handlers, failures, strict=True)
        )
    )
    stored_documents = await stores.documents.get([name_of(tenant) for tenant in tenants])
    counts = [
        sum(count for signs in handlers[0].storms.read(stored).slices.values() for count in signs.values())
        for stored in stored_documents.values()
    ]
    assert counts == [4, 4, 4]


@pytest.mark.finding("F-D4")
async def test_a_failure_counts_once_although_the_store_does_not_say_that_it_was_written(stores: Stores) -> None:
    clock, unclear = Hand(), list[str]()

    class Unclear:
        """The real store; the answer to the first write of each storm is lost on its way."""

        def __getattr__(self, name: str) -> object:
            return getattr(stores.documents, name)

        async def put(self, documents: Sequence[tuple[Document, Version | None]]) -> Sequence[WriteResult]:
            results = list(await stores.documents.put(documents))
            for place, (document, _) in enumerate(documents):
                if document.kind == STORMS and not unclear:
                    unclear.append(document.id)
                    results[place] = Unknown("the connection was closed")
            return results

    documents = cast("DocumentStore", Unclear())
    storms = StormTracker(documents, stores.jobs, clock)
    await storms.notice("alpha", [request(1).sign])
    assert unclear == [name_of("alpha")]
    unclear.clear()
    safeguards = ActionLimits(documents, storms, clock, RandomIds(), POLICY)
    await safeguards.permit([request(2)], [("alpha", request(2).sign)])
    assert unclear == [name_of("alpha")]
    stored = (await stores.documents.get([name_of("alpha")]))[name_of("alpha")]
    slices = storms.read(stored).slices
    assert sum(count for signs in slices.values() for count in signs.values()) == 2
