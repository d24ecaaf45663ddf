"""What is counted and reported of a failing store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from forestay.adapters.system.clock import SystemClock
from forestay.ports.errors import Conflict, NotFound, Permanent, PortError, Transient
from forestay.ports.jobs.job_store import Unknown, WriteResult
from forestay.services.shared.store_errors import REPORT_EVERY, StoreErrors, unwatched, watched


class SteppedClock(SystemClock):
    """A clock that stands still until it is moved."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


class FakeStore:
    """A store that fails as it is told."""

    error: Exception | None = None
    results: Sequence[WriteResult] = ()

    async def get(self, ids: Sequence[str]) -> Mapping[str, str]:
        if self.error is not None:
            raise self.error
        return dict.fromkeys(ids, "found")

    async def write(self) -> Sequence[WriteResult]:
        return self.results


class Watch:
    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.reports: list[tuple[str, str, int]] = []
        self.errors = StoreErrors(self.clock, lambda *report: self.reports.append(report))
        self.inner = FakeStore()
        self.store = watched(self.inner, "jobs", self.errors)


@pytest.mark.finding("F-B6")
@pytest.mark.parametrize("error", [Transient("the disk is full"), ValueError("a bug")])
async def test_an_error_that_is_not_about_the_request_is_counted_and_reported(error: Exception) -> None:
    watch = Watch()
    watch.inner.error = error
    with pytest.raises(type(error)):
        await watch.store.get(["a"])
    assert watch.errors.counts == {"jobs.get": 1}
    ((operation, detail, count),) = watch.reports
    assert (operation, count) == ("jobs.get", 1)
    assert str(error) in detail


@pytest.mark.finding("F-B6")
async def test_a_write_of_unknown_outcome_is_counted_and_reported() -> None:
    watch = Watch()
    watch.inner.results = [Unknown("the disk is full"), Unknown("the disk is full")]
    assert await watch.store.write() == watch.inner.results
    assert watch.reports == [("jobs.write", "the disk is full", 1)]


@pytest.mark.parametrize("error", [Permanent("too long"), Conflict("taken"), NotFound("none")])
async def test_an_error_about_the_request_is_not_reported(error: PortError) -> None:
    watch = Watch()
    watch.inner.error = error
    with pytest.raises(type(error)):
        await watch.store.get(["a"])
    assert not watch.errors.counts
    assert not watch.reports


async def test_a_store_that_fails_at_every_request_is_reported_now_and_then() -> None:
    watch = Watch()
    watch.inner.error = Transient("the disk is full")
    for _ in range(3):
        with pytest.raises(Transient):
            await watch.store.get(["a"])
    watch.clock.seconds += REPORT_EVERY
    with pytest.raises(Transient):
        await watch.store.get(["a"])
    assert [count for _, _, count in watch.reports] == [1, 3]
    assert watch.errors.counts["jobs.get"] == 4


async def test_what_the_store_gives_reaches_the_caller() -> None:
    watch = Watch()
    assert await watch.store.get(["a"]) == {"a": "found"}
    assert unwatched(watch.store) is watch.inner
    assert unwatched(watch.inner) is watch.inner
