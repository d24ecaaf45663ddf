"""Short calls share jobs; each keeps its own future, result and exception."""

from __future__ import annotations

from concurrent.futures import wait

import pytest
from tests.unit.client.executor import functions

from forestay.client import Executor, ForestayClient, JobFailedError
from forestay.client.executor import bundle

PATIENCE = 180.0


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a short call takes long; it is short all the same."""
    monkeypatch.setattr(bundle, "WHOLE", 10.0)


def warm(pool: Executor) -> None:
    """Enough calls for the executor to know that they are short."""
    assert list(pool.map(functions.picky, range(20))) == [n * n for n in range(20)]


def jobs(client: ForestayClient, pool: Executor) -> int:
    return sum(1 for _ in client.all_jobs({"label": f"forestay/executor={pool.name}"}))


@pytest.mark.usefixtures("unhurried")
def test_each_call_has_its_own_end(pool: Executor, client: ForestayClient) -> None:
    warm(pool)
    before = jobs(client, pool)
    calls = [pool.submit(functions.picky, number, 137) for number in range(300)]
    wait(calls, PATIENCE)
    with pytest.raises(ValueError, match="not this one") as raised:
        calls[137].result()
    assert raised.value.args == ("not this one", 137)
    assert "picky" in str(raised.value.__cause__)
    assert [call.result() for place, call in enumerate(calls) if place != 137] == [
        n * n for n in range(300) if n != 137
    ]
    assert jobs(client, pool) - before < 200, "they shared jobs"


@pytest.mark.usefixtures("unhurried")
def test_any_program_attaches_to_a_call_by_its_place(pool: Executor, client: ForestayClient) -> None:
    warm(pool)
    calls = [pool.submit(functions.picky, number, 140) for number in range(200)]
    shared = [place for place, call in enumerate(calls) if "/" in call.job_id(PATIENCE)]
    assert len(shared) > 100
    with Executor(client) as other:
        some = [place for place in shared if place != 140][:3]
        results = [other.attach(calls[place].job_id()).result(PATIENCE) for place in some]
        assert results == [place * place for place in some]
        if 140 in shared:
            with pytest.raises(ValueError, match="not this one"):
                other.attach(calls[140].job_id()).result(PATIENCE)


@pytest.mark.usefixtures("unhurried")
def test_a_call_that_ends_its_interpreter_takes_its_bundle_along_and_no_other(pool: Executor) -> None:
    warm(pool)
    calls = [pool.submit(functions.picky, number, -50) for number in range(1, 129)]
    wait(calls, PATIENCE)
    lost = [place for place, call in enumerate(calls) if isinstance(call.exception(), JobFailedError)]
    assert 49 in lost, "the one that did it"
    assert len({calls[place].job_id().partition("/")[0] for place in lost}) == 1
    assert all(call.result() == (place + 1) ** 2 for place, call in enumerate(calls) if place not in lost)


def test_calls_that_take_long_and_those_with_terms_of_their_own_go_alone(pool: Executor) -> None:
    assert list(pool.map(functions.nap, [0.12] * 10)) == [0.12] * 10
    calls = [pool.submit(functions.nap, 0.12) for _ in range(70)]
    assert all("/" not in call.job_id(PATIENCE) for call in calls)
    for call in calls:
        call.cancel()
    warm(pool)
    again = pool.with_options(max_attempts=2)
    calls_again = [again.submit(functions.picky, number) for number in range(70)]
    assert all("/" not in future.job_id(PATIENCE) for future in calls_again)
    wait(calls_again, PATIENCE)


@pytest.mark.usefixtures("unhurried")
def test_a_call_that_shares_its_job_cannot_be_cancelled_once_it_was_sent(pool: Executor) -> None:
    warm(pool)
    for many in (100, 400, 1600):
        # On a busy machine they may be sent one by one, as slowly as they come.
        calls = [pool.submit(functions.picky, number) for number in range(many)]
        wait(calls, PATIENCE)
        if any("/" in call.job_id() for call in calls):
            break
    assert any("/" in call.job_id() for call in calls)
    assert not any(call.cancel() for call in calls)
