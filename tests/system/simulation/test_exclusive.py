"""Exclusive use under random schedules: a small share of what `just exclusive` runs, and what must be found."""

from __future__ import annotations

from unittest import mock

import pytest
from tests.system.simulation.exclusive import DeviceWorld, QuotaWorld, SeatWorld, run_schedules

from forestay.domain.jobs.job_document import JobDocument
from forestay.services.scheduling import licence_seats

SCHEDULES = 150


def test_nothing_is_shared() -> None:
    tally = run_schedules(SCHEDULES)
    assert tally.seats >= 3
    assert tally.running >= 4
    assert tally.started > SCHEDULES


@pytest.mark.parametrize(("world", "words"), [(SeatWorld, "seats"), (QuotaWorld, "quota|without an entry")])
def test_a_sweep_without_its_fence_is_found(world: type[SeatWorld], words: str) -> None:
    def unfenced(document: JobDocument) -> JobDocument:
        return document

    def schedules() -> None:
        for seed in range(2000):
            world(seed).run()

    with mock.patch.object(licence_seats, "confirm", unfenced), pytest.raises(AssertionError, match=words):
        schedules()


def test_a_guard_that_does_not_look_for_strays_is_found() -> None:
    def schedules() -> None:
        for seed in range(500):
            world = DeviceWorld(seed)
            world.kernel.strays = set  # type: ignore[method-assign]
            world.run()

    with pytest.raises(AssertionError, match="shared"):
        schedules()
