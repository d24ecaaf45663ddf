"""Enrolment secrets on every store: one pilot is let in, whatever the answers of the store are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import pytest
from tests.contract.room import Stores
from tests.unit.apps.server.later_clock import LaterClock

from forestay.adapters.system.clock import RandomIds
from forestay.domain.pilots.enrolment import Enrolment, EnrolmentCandidate, NotGood
from forestay.ports.documents import Document, DocumentStore
from forestay.ports.errors import Permanent, Transient
from forestay.ports.jobs.job_store import Unknown, Version, WriteResult
from forestay.services.pilots.pilot_enrolment import KIND, PilotEnrolment

OpenAnother = Callable[[], Awaitable[Stores]]


def enrol(documents: DocumentStore, ahead: int = 0) -> PilotEnrolment:
    return PilotEnrolment(documents, LaterClock(ahead), RandomIds())


async def secret_of(service: PilotEnrolment) -> str:
    return (await service.make(tenant="alpha", site="cluster", launch="l-1", by="agent", seconds=60)).text


def newcomer(number: int) -> EnrolmentCandidate:
    return EnrolmentCandidate(f"p-{number}", f"number-of-pilot-{number}", "cluster", "l-1")


@dataclass
class LosesAnswers:
    """A document store that writes, and does not say so."""

    documents: DocumentStore
    lost: int = 1

    async def put(self, documents: Sequence[tuple[Document, Version | None]]) -> Sequence[WriteResult]:
        done = await self.documents.put(documents)
        if self.lost:
            self.lost -= 1
            return [Unknown("the answer was lost") for _ in done]
        return done

    def __getattr__(self, name: str) -> object:
        return getattr(self.documents, name)


async def test_one_of_many_pilots_is_let_in(stores: Stores, another: OpenAnother) -> None:
    secret = await secret_of(enrol(stores.documents))
    servers = await asyncio.gather(*(another() for _ in range(6)))
    answers = await asyncio.gather(
        *(enrol(server.documents).redeem(secret, newcomer(number)) for number, server in enumerate(servers))
    )
    let_in = [answer for answer in answers if isinstance(answer, Enrolment)]
    assert len(let_in) == 1
    assert [type(answer) for answer in answers].count(NotGood) == 5
    again = await enrol(stores.documents).redeem(secret, newcomer(int(let_in[0].pilot.removeprefix("p-"))))
    assert again == let_in[0]


async def test_a_pilot_is_let_in_when_the_stores_answer_was_lost(stores: Stores) -> None:
    secret = await secret_of(enrol(stores.documents))
    unsure = enrol(LosesAnswers(stores.documents))  # type: ignore[arg-type]
    first = await unsure.redeem(secret, newcomer(1))
    assert isinstance(first, Enrolment)
    assert first.pilot == "p-1"
    assert await unsure.redeem(secret, newcomer(2)) == NotGood()


async def test_the_secret_is_not_kept_and_expires(stores: Stores) -> None:
    service = enrol(stores.documents)
    secret = await secret_of(service)
    await stores.jobs.refresh()
    kept = await stores.documents.find(KIND)
    assert len(kept) == 1
    assert secret.removeprefix("fse-") not in str(kept)
    assert await enrol(stores.documents, 60_000).redeem(secret, newcomer(1)) == NotGood()
    assert await service.redeem(f"{secret}0", newcomer(1)) == NotGood()


async def test_bounds_and_a_store_that_does_not_answer(stores: Stores, unreachable: Stores) -> None:
    for seconds in (0, 31 * 86_400):
        with pytest.raises(Permanent):
            await enrol(stores.documents).make(tenant="alpha", site="s", launch="", by="a", seconds=seconds)
    with pytest.raises(Transient):
        await secret_of(enrol(unreachable.documents))
    with pytest.raises(Transient):
        await enrol(unreachable.documents).redeem("fse-00", newcomer(1))
